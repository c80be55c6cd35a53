"""The C form of the interface and the two bridges: a Python port as a C structure, a shared library as a
Python port.

Design choice: one table says for every verb its C argument types; the structure, the callbacks and the calls
are all made from it.  An exception never crosses into C: it becomes a status, and its text the thread's last
error.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hwsdk.errors import DeviceError
from hwsdk.ral_port.interface import RAL_VERSION, PortError, Properties, Ral

_P, _U64, _I64, _I32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32
_OUT, _TEXT = ctypes.POINTER(ctypes.c_uint64), ctypes.c_char_p

#: verb -> C types behind the context, in the order of the fields of the structure
VERBS: dict[str, tuple[Any, ...]] = {
    "launch": (_U64, _I64, _P, _U64, _I64, _U64, _I64, _I64),
    "begin": (_I64, _U64),
    "end": (_U64,),
    "copy_in": (_U64, _P, _U64, _U64),
    "copy_out": (_P, _U64, _U64, _U64),
    "copy": (_U64, _U64, _U64, _U64),
    "fill": (_U64, _I32, _U64, _U64),
    "alloc": (_U64, _U64, _OUT),
    "free": (_U64,),
    "load": (_U64, ctypes.POINTER(_P), _OUT, _OUT),
    "unload": (_U64,),
    "kernel": (_U64, _TEXT, _OUT),
    "synchronize": (_U64,),
    "stream": (_OUT,),
    "event": (_U64, _OUT),
    "elapsed": (_U64, _U64, ctypes.POINTER(ctypes.c_double)),
    "release": (_U64,),
    "begin_record": (_U64,),
    "end_record": (_U64, _OUT),
    "replay": (_U64, _U64),
    "properties": (_P, _U64, _OUT),
    "last_error": (_P, _U64),
    "close": (),
}
_TYPES = {verb: ctypes.CFUNCTYPE(_I32, _P, *types) for verb, types in VERBS.items()}


def verb_type(verb: str) -> Any:
    """The C function type of a verb."""
    return _TYPES[verb]


class RalStruct(ctypes.Structure):
    """`hwsdk_ral` of the header."""

    _fields_ = [
        ("size", _U64),
        ("version", ctypes.c_uint32),
        ("device", _I32),
        ("context", _P),
        *((verb, _TYPES[verb]) for verb in VERBS),
    ]


class _Bridge:
    """C callbacks that call a Python port."""

    def __init__(self, port: Ral) -> None:
        self.port = port
        self.errors = threading.local()

    def callback(self, verb: str) -> Any:
        """The C function for one verb."""
        body: Callable[..., int | None] = getattr(self, f"_{verb}", None) or self._plain(verb)

        def guarded(_context: int | None, *args: Any) -> int:
            try:
                return body(*args) or 0
            except BaseException as e:  # noqa: BLE001  (nothing may cross into C)
                self.errors.text = e.message if isinstance(e, PortError) else f"{type(e).__name__}: {e}"
                return 1

        return _TYPES[verb](guarded)

    def _plain(self, verb: str) -> Callable[..., None]:
        method = getattr(self.port, verb)

        def call(*args: Any) -> None:
            method(*(0 if a is None else a for a in args))  # ctypes gives a null pointer as None

        return call

    def _launch(
        self, kernel: int, grid: int, args: int, count: int, work: int, stream: int, lanes: int, scratch: int
    ) -> None:
        words = (ctypes.c_int64 * count).from_address(args or 0) if count else ()
        self.port.launch(kernel, grid, tuple(words), work, stream, lanes, scratch)

    def _alloc(self, size: int, align: int, address: Any) -> None:
        address[0] = self.port.alloc(size, align)

    def _load(self, count: int, codes: Any, sizes: Any, module: Any) -> None:
        module[0] = self.port.load([ctypes.string_at(codes[i], sizes[i]) for i in range(count)])

    def _kernel(self, module: int, name: bytes, kernel: Any) -> None:
        kernel[0] = self.port.kernel(module, name.decode())

    def _stream(self, stream: Any) -> None:
        stream[0] = self.port.stream()

    def _event(self, stream: int, event: Any) -> None:
        event[0] = self.port.event(stream)

    def _end_record(self, stream: int, recording: Any) -> None:
        recording[0] = self.port.end_record(stream)

    def _elapsed(self, first: int, second: int, seconds: Any) -> None:
        seconds[0] = self.port.elapsed(first, second)

    def _properties(self, text: int | None, size: int, needed: Any) -> None:
        data = json.dumps(_properties_data(self.port.properties())).encode() + b"\0"
        needed[0] = len(data)
        if text and size:
            ctypes.memmove(text, data, min(size, len(data)))

    def _last_error(self, text: int | None, size: int) -> None:
        data = getattr(self.errors, "text", self.port.last_error()).encode()
        if text and size:
            ctypes.memmove(text, data[: size - 1] + b"\0", min(size, len(data) + 1))


def _properties_data(p: Properties) -> dict[str, Any]:
    names = ("name", "memory_bytes", "workers", "host_memory", "native_code", "records", "extra")
    return {**{n: getattr(p, n) for n in names}, "features": sorted(p.features)}


def as_struct(port: Ral, device: int = 0) -> RalStruct:
    """The C structure of a Python port.  Keep the result (and the port) alive as long as C code may use
    it."""
    bridge = _Bridge(port)
    struct = RalStruct(size=ctypes.sizeof(RalStruct), version=RAL_VERSION, device=device)
    for verb in VERBS:
        setattr(struct, verb, bridge.callback(verb))
    struct._bridge = bridge  # the callbacks are kept by the structure itself, what they call is kept here
    return struct


class LibraryPort(Ral):
    """A port in a shared library with the C form of the interface."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._library = ctypes.CDLL(str(path))
            self._entry = self._library.hwsdk_ral_open
        except OSError as e:
            raise DeviceError(f"{path}: cannot be loaded: {e}") from None
        except AttributeError:
            raise DeviceError(f"{path}: does not export hwsdk_ral_open, see hwsdk_ral.h") from None
        self._entry.restype = ctypes.POINTER(RalStruct)
        self._entry.argtypes = [ctypes.c_uint32, _I32, ctypes.c_char_p, _U64]
        self._struct: RalStruct | None = None
        self._name = path.name

    def c_struct(self) -> RalStruct:
        """The library's own structure of the open device."""
        if self._struct is None:
            raise PortError("call", self._name, "the device is not open")
        return self._struct

    def _call(self, verb: str, *args: Any) -> None:
        struct = self.c_struct()
        if getattr(struct, verb)(struct.context, *args):
            raise PortError(verb, self._name, self.last_error() or "no message")

    def _result(self, verb: str, *args: Any) -> int:
        value = ctypes.c_uint64()
        self._call(verb, *args, ctypes.byref(value))
        return value.value

    def open(self, device: int = 0) -> None:
        message = ctypes.create_string_buffer(1024)
        found = self._entry(RAL_VERSION, device, message, len(message))
        if not found:
            raise PortError(
                "open", f"{self._name} {device}", message.value.decode(errors="replace") or "no message"
            )
        struct = found.contents
        if struct.version != RAL_VERSION or struct.size < ctypes.sizeof(RalStruct):
            what = f"version {struct.version} of {struct.size} bytes"
            expected = f"version {RAL_VERSION} of {ctypes.sizeof(RalStruct)} bytes"
            raise PortError("open", self._name, f"interface {what}, expected {expected}")
        self._struct = struct

    def close(self) -> None:
        if self._struct is not None:
            self._call("close")
            self._struct = None

    def properties(self) -> Properties:
        size = self._result("properties", None, 0)
        text = ctypes.create_string_buffer(size)
        self._result("properties", text, size)
        try:
            data = dict(json.loads(text.value))
            return Properties(**{**data, "features": frozenset(data.get("features", ()))})
        except (ValueError, TypeError) as e:
            raise PortError("properties", self._name, f"not the expected JSON object: {e}") from None

    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        return self._result("alloc", size_bytes, align_bytes)

    def free(self, address: int) -> None:
        self._call("free", address)

    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self._call("copy_in", destination, source, size_bytes, stream)

    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self._call("copy_out", destination, source, size_bytes, stream)

    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self._call("copy", destination, source, size_bytes, stream)

    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        self._call("fill", destination, value, size_bytes, stream)

    def load(self, codes: Sequence[bytes]) -> int:
        kept = [ctypes.create_string_buffer(c, len(c)) for c in codes]
        pointers = (_P * len(kept))(*(ctypes.addressof(k) for k in kept))
        sizes = (_U64 * len(kept))(*map(len, codes))
        return self._result("load", len(kept), pointers, sizes)

    def unload(self, module: int) -> None:
        self._call("unload", module)

    def kernel(self, module: int, name: str) -> int:
        return self._result("kernel", module, name.encode())

    def launch(
        self,
        kernel: int,
        grid: int,
        args: Sequence[int],
        work: int = 0,
        stream: int = 0,
        lanes: int = 0,
        scratch_bytes: int = 0,
    ) -> None:
        words = (_I64 * len(args))(*args)
        self._call("launch", kernel, grid, words, len(args), work, stream, lanes, scratch_bytes)

    def synchronize(self, stream: int = 0) -> None:
        self._call("synchronize", stream)

    def stream(self) -> int:
        return self._result("stream")

    def event(self, stream: int = 0) -> int:
        return self._result("event", stream)

    def elapsed(self, first: int, second: int) -> float:
        seconds = ctypes.c_double()
        self._call("elapsed", first, second, ctypes.byref(seconds))
        return seconds.value

    def release(self, handle: int) -> None:
        self._call("release", handle)

    def begin_record(self, stream: int) -> None:
        self._call("begin_record", stream)

    def end_record(self, stream: int) -> int:
        return self._result("end_record", stream)

    def replay(self, recording: int, stream: int = 0) -> None:
        self._call("replay", recording, stream)

    def begin(self, work: int, stream: int = 0) -> None:
        self._call("begin", work, stream)

    def end(self, stream: int = 0) -> None:
        self._call("end", stream)

    def last_error(self) -> str:
        struct, text = self.c_struct(), ctypes.create_string_buffer(1024)
        struct.last_error(struct.context, text, len(text))
        return text.value.decode(errors="replace")
