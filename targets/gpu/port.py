"""The port to devices that a driver of the CUDA family runs, over cupy.

Design choice: one class for all of them; what differs (names of libraries and of a few functions, which code they
load) is a `Driver` record in the folder of each.  cupy is imported when a device is opened and never before.  The hot
verbs of the C form are functions of `launch.ll`, which call the driver directly: no Python runs between two launches.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hwsdk.ral_port.c_abi import RalStruct, as_struct, verb_type
from hwsdk.ral_port.interface import PortError, Properties, Ral

from .arrays import borrowed, lent
from .driver import Driver, first_library
from .staging import Staging

MAX_GRID = (1 << 31) - 1
MAX_DYNAMIC_SCRATCH = 8  # attribute of a function: bytes that a launch may ask for
STATIC_SCRATCH = 1  # attribute of a function: bytes that its code declares
#: verb of the interface -> function of launch.ll
_NATIVE = {"launch": "hwsdk_gpu_launch", "begin": "hwsdk_gpu_begin", "end": "hwsdk_gpu_end"}


class GpuPort(Ral):
    """An open device.  `driver` is given by the subclass."""

    driver: Driver

    def __init__(self) -> None:
        self._name = self.driver.name
        self._device = -1
        self._numbers = itertools.count(1)
        self._blocks: dict[int, Any] = {}
        self._modules: dict[int, list[Any]] = {}
        self._kernels: dict[int, str] = {}
        self._held: dict[int, Any] = {}  # streams, events and recordings by handle
        self._recording: set[int] = set()  # streams
        self._errors = threading.local()
        self._native: tuple[RalStruct, Any] | None = None
        self._functions: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------- device
    def open(self, device: int = 0) -> None:
        try:
            import cupy
        except ImportError as e:
            raise self._fail("open", f"cupy cannot be imported ({e}); {self.driver.install}") from None
        self._cupy, self._runtime, self._cu = cupy, cupy.cuda.runtime, cupy.cuda.driver
        self._library = first_library(self.driver.names)
        try:
            count = self._runtime.getDeviceCount()
        except Exception as e:  # noqa: BLE001 - whatever the driver raises
            raise self._fail("open", f"no device: {_text(e)}") from None
        if not 0 <= device < count:
            have = f"there are {count} devices, 0 to {count - 1}" if count else "there is none"
            raise self._fail("open", f"no device {device}: {have}")
        self._device = device
        with self._verb("open"):
            self._facts = dict(self._runtime.getDeviceProperties(device))
            name = self._facts.get("name", b"")
            self._name = (
                name.decode(errors="replace") if isinstance(name, bytes) else str(name)
            ) or self._name
            self._pool = cupy.cuda.MemoryPool()
            self._staging = Staging(cupy, self._runtime)
            self._runtime.streamSynchronize(0)  # makes the device's context

    @contextmanager
    def _verb(self, verb: str) -> Iterator[None]:
        """This thread's current device is this one; what the driver says becomes a PortError."""
        if self._device < 0:
            raise self._fail(verb, "the device is not open")
        try:
            self._runtime.setDevice(self._device)
            yield
        except PortError:
            raise
        except MemoryError as e:
            raise self._fail(verb, f"out of memory: {_text(e)}") from None
        except Exception as e:  # noqa: BLE001 - cupy's own kinds are known only when it is there
            raise self._fail(verb, _text(e)) from None

    def _fail(self, verb: str, message: str) -> PortError:
        self._errors.text = message
        return PortError(verb, self._name, message)

    def close(self) -> None:
        if self._device < 0:
            return
        try:
            with self._verb("close"):
                self._runtime.deviceSynchronize()
        finally:
            self._held.clear()
            self._kernels.clear()
            self._modules.clear()
            self._blocks.clear()
            self._staging.clear()
            self._pool.free_all_blocks()
            self._device = -1

    def properties(self) -> Properties:
        if self._device < 0:
            raise self._fail("properties", "the device is not open")
        f = self._facts
        extra = {"multiprocessors": f.get("multiProcessorCount"), "warp": f.get("warpSize")}
        return Properties(
            self._name,
            int(f.get("totalGlobalMem", 0)) or None,
            1,
            self.features(f),
            records=self.driver.records,
            extra={**extra, "arch": self.arch(f)},
        )

    def features(self, facts: dict[str, Any]) -> frozenset[str]:
        """Features that code for this device may use, as descriptions name them."""
        raise NotImplementedError

    def arch(self, facts: dict[str, Any]) -> str:
        """The name of the architecture, as the code generator knows it."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------- memory
    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        if size_bytes < 0 or align_bytes <= 0 or align_bytes & (align_bytes - 1):
            raise self._fail("alloc", f"{size_bytes} bytes aligned to {align_bytes}")
        if size_bytes >= 1 << 47:
            raise self._fail("alloc", f"out of memory: {size_bytes} bytes")
        with self._verb("alloc"):
            slack = align_bytes if align_bytes > 256 else 0  # blocks of the pool are aligned to 512
            block = self._pool.malloc(max(size_bytes, 1) + slack)
            address = -(-int(block.ptr) // align_bytes) * align_bytes
            self._blocks[address] = block
            return address

    def free(self, address: int) -> None:
        if address and self._blocks.pop(address, None) is None:
            raise self._fail("free", f"{address:#x} was not allocated here, or is free already")

    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        if not size_bytes:
            return
        with self._verb("copy_in"):
            if stream in self._recording:
                self._write_words(destination, ctypes.string_at(source, size_bytes), stream)
                return
            place = self._staging.place(source, size_bytes, stream)
            self._runtime.memcpyAsync(
                destination, place or source, size_bytes, self._runtime.memcpyHostToDevice, stream
            )
            if not place:
                self._runtime.streamSynchronize(stream)

    def _write_words(self, destination: int, data: bytes, stream: int) -> None:
        """Bytes as operations that carry their value: what a recording may hold."""
        whole = len(data) & -4
        fill = getattr(self._library, self.driver.fill_words)
        for at in range(0, whole, 4):
            word = int.from_bytes(data[at : at + 4], "little")
            status = fill(
                ctypes.c_uint64(destination + at),
                ctypes.c_uint32(word),
                ctypes.c_size_t(1),
                ctypes.c_void_p(stream),
            )
            if status:
                raise self._fail("copy_in", f"{self.driver.fill_words} gives status {status}")
        for at in range(whole, len(data)):
            self._runtime.memsetAsync(destination + at, data[at], 1, stream)

    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        with self._verb("copy_out"):
            if size_bytes:
                self._runtime.memcpyAsync(
                    destination, source, size_bytes, self._runtime.memcpyDeviceToHost, stream
                )
            self._wait(stream)

    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        with self._verb("copy"):
            if size_bytes:
                kind = self._runtime.memcpyDeviceToDevice
                self._runtime.memcpyAsync(destination, source, size_bytes, kind, stream)

    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        if not 0 <= value <= 255:
            raise self._fail("fill", f"{value} is not a byte")
        with self._verb("fill"):
            if size_bytes:
                self._runtime.memsetAsync(destination, value, size_bytes, stream)

    # --------------------------------------------------------------------------------------------------- code
    def load(self, codes: Sequence[bytes]) -> int:
        for number, code in enumerate(codes):
            if not code.lstrip().startswith(self.driver.code):
                begins = " or ".join(repr(c.decode("latin-1")) for c in self.driver.code)
                raise self._fail("load", f"piece {number} is no device code: it does not begin with {begins}")
        with self._verb("load"):
            modules = []
            for code in codes:
                module = self._cupy.cuda.function.Module()
                module.load(code)
                modules.append(module)
            number = next(self._numbers)
            self._modules[number] = modules
            return number

    def unload(self, module: int) -> None:
        if self._modules.pop(module, None) is None:
            raise self._fail("unload", f"there is no module {module}")

    def kernel(self, module: int, name: str) -> int:
        if module not in self._modules:
            raise self._fail("kernel", f"there is no module {module}")
        reason = ""
        with self._verb("kernel"):
            for piece in self._modules[module]:
                try:
                    function = int(piece.get_function(name).ptr)
                except Exception as e:  # noqa: BLE001 - not in this piece
                    reason = _text(e)
                    continue
                self._allow_scratch(function)
                self._kernels[function] = name
                return function
        raise self._fail("kernel", f"the code has no kernel {name!r} ({reason or 'it is empty'})")

    def _allow_scratch(self, function: int) -> None:
        """Launches may ask for all of the scratchpad that the code leaves."""
        most = int(self._facts.get("sharedMemPerBlockOptin") or 0)
        if most:
            static = self._cu.funcGetAttribute(STATIC_SCRATCH, function)
            self._cu.funcSetAttribute(function, MAX_DYNAMIC_SCRATCH, most - static)

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
        if kernel not in self._kernels:
            raise self._fail("launch", f"{kernel:#x} is not a kernel of a loaded module")
        name = self._kernels[kernel]
        if grid > MAX_GRID or lanes < 1:
            raise self._fail("launch", f"{name}: {grid} workgroups of {lanes} lanes")
        if grid <= 0:
            return
        words = (ctypes.c_int64 * max(len(args), 1))(*args)
        start = ctypes.addressof(words)
        slots = (ctypes.c_void_p * max(len(args), 1))(*(start + 8 * i for i in range(len(args))))
        with self._verb(f"launch of {name}"):
            self._cu.launchKernel(
                kernel, grid, 1, 1, lanes, 1, 1, scratch_bytes, stream, ctypes.addressof(slots), 0
            )

    # ------------------------------------------------------------------------------------- streams and events
    def synchronize(self, stream: int = 0) -> None:
        with self._verb("synchronize"):
            self._wait(stream)

    def _wait(self, stream: int) -> None:
        self._runtime.streamSynchronize(stream)
        self._staging.reuse(stream)

    def stream(self) -> int:
        with self._verb("stream"):
            made = self._cupy.cuda.Stream(non_blocking=True)
            self._held[int(made.ptr)] = made
            return int(made.ptr)

    def event(self, stream: int = 0) -> int:
        with self._verb("event"):
            made = self._cupy.cuda.Event()
            made.record(self._held[stream] if stream else self._cupy.cuda.Stream.null)
            return self._hold(made)

    def _hold(self, made: Any) -> int:
        number = next(self._numbers)
        self._held[number] = made
        return number

    def elapsed(self, first: int, second: int) -> float:
        with self._verb("elapsed"):
            self._held[second].synchronize()
            return float(self._cupy.cuda.get_elapsed_time(self._held[first], self._held[second])) * 1e-3

    def release(self, handle: int) -> None:
        self._held.pop(handle, None)
        if self._device >= 0:
            self._staging.drop(handle)

    def begin_record(self, stream: int) -> None:
        if not self.driver.records or stream not in self._held:
            raise self._fail("begin_record", f"stream {stream} cannot be recorded")
        with self._verb("begin_record"):
            self._held[stream].begin_capture(self._runtime.streamCaptureModeThreadLocal)
            self._recording.add(stream)

    def end_record(self, stream: int) -> int:
        if stream not in self._recording:
            raise self._fail("end_record", f"stream {stream} is not recorded")
        self._recording.discard(stream)
        with self._verb("end_record"):
            return self._hold(self._held[stream].end_capture())

    def replay(self, recording: int, stream: int = 0) -> None:
        with self._verb("replay"):
            self._held[recording].launch(self._held[stream] if stream else self._cupy.cuda.Stream.null)

    # ------------------------------------------------------------------------------------------------ arrays
    def borrow(self, value: Any) -> tuple[int, tuple[int, ...], Any] | None:
        found = borrowed(value, self.driver.dlpack, self._device)
        if found is not None:
            with self._verb("borrow"):
                self._runtime.streamSynchronize(
                    0
                )  # its producer's work was ordered before the default stream
        return found

    def lend(self, address: int, shape: tuple[int, ...], kind: Any, owner: object) -> Any:
        with self._verb("lend"):
            return lent(self._cupy, address, shape, kind, owner)

    # ------------------------------------------------------------------------------------------------- C form
    def attach(self, address_of: Callable[[str], int]) -> None:
        self._functions = {verb: address_of(name) for verb, name in _NATIVE.items()}
        self._native = None

    def c_struct(self) -> RalStruct:
        """The C form: of these methods, with the functions of launch.ll where they are loaded."""
        if self._native is None:
            struct, state = as_struct(self), None
            if self._functions:
                state = self._state()
                struct.context = ctypes.addressof(state)
                for verb, address in self._functions.items():
                    setattr(struct, verb, verb_type(verb)(address))
            self._native = struct, state
        return self._native[0]

    def _state(self) -> Any:
        """The words that launch.ll reads: two functions of the driver, the device, then room for a status."""
        address = [ctypes.cast(getattr(self._library, f), ctypes.c_void_p).value
                   for f in (self.driver.launch, self.driver.set_device)]  # fmt: skip
        return (ctypes.c_int64 * 4)(*address, self._current(), 0)

    def _current(self) -> int:
        """What `set_device` takes: the number of the device, or its context."""
        return self._device

    def last_error(self) -> str:
        if self._native is not None and self._native[1] is not None and self._native[1][3]:
            status, self._native[1][3] = int(self._native[1][3]), 0
            return f"{self.driver.launch} gives {self.status_text(status)}"
        return str(getattr(self._errors, "text", ""))

    def status_text(self, status: int) -> str:
        """The driver's words for a status of its functions."""
        return f"status {status}"


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
