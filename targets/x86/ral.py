"""The port to this machine's own processor: memory of the process, code loaded from objects, tiles run by a
thread pool.

Design choice: nothing but the C library.  Objects are linked by `elf`, the pool is LLVM text that was
compiled into the artifact (`pool.ll`), so running a model needs neither LLVM nor a C compiler.  The hot verbs
of the C form are the pool's own functions; the others are the Python methods below.
"""

from __future__ import annotations

import ctypes
import difflib
import itertools
import mmap
import os
import platform
import threading
from collections.abc import Sequence
from pathlib import Path

from hwsdk.ral_port import threads
from hwsdk.ral_port.c_abi import RalStruct, as_struct, verb_type
from hwsdk.ral_port.interface import PortError, Properties, Ral

from . import pool as pool_module
from .elf import ElfError, parse
from .link import Image

_HUGE = 2 << 20  # pages that the system may use for large blocks
_ADVISE_HUGE = 14  # madvise
#: LLVM's names of features that /proc/cpuinfo calls otherwise (beside `.`, `-`, `_`)
ALIASES = {
    "bmi1": "bmi", "abm": "lzcnt", "pni": "sse3", "pclmulqdq": "pclmul", "lahf_lm": "sahf",
    "3dnowprefetch": "prfchw", "sha_ni": "sha",
}  # fmt: skip
#: verb of the interface -> function of the pool
_NATIVE = {
    "launch": pool_module.LAUNCH, "begin": "hwsdk_pool_begin", "end": "hwsdk_pool_end",
    "copy_in": "hwsdk_pool_copy", "copy_out": "hwsdk_pool_copy", "copy": "hwsdk_pool_copy",
}  # fmt: skip


class HostPort(Ral):
    """One port object per executable; all share the process's thread pool."""

    def __init__(self) -> None:
        self._name = "host processor"
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._libc.posix_memalign.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_size_t,
            ctypes.c_size_t,
        ]
        self._libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._blocks: dict[int, int] = {}  # address -> size
        self._modules: dict[int, Image | None] = {}  # None: nothing but the pool
        self._numbers = itertools.count(1)
        self._kernels: dict[int, str] = {}
        self._pool_code: pool_module.PoolCode | None = None
        self._structs: dict[int, RalStruct] = {}  # by pool state: C code may hold any of them
        self._errors = threading.local()

    def _fail(self, verb: str, message: str) -> PortError:
        self._errors.text = message
        return PortError(verb, self._name, message)

    def open(self, device: int = 0) -> None:
        if device != 0:
            raise self._fail("open", f"there is no device {device}, only 0")
        if platform.machine().lower() not in ("x86_64", "amd64"):
            raise self._fail("open", f"this machine is {platform.machine()}, not x86-64")
        self._name = _cpu_words("model name", " ") or self._name

    def close(self) -> None:
        for address in list(self._blocks):
            self.free(address)
        for module in list(self._modules):
            self.unload(module)

    def properties(self) -> Properties:
        flags = _cpu_words("flags").split()
        features = frozenset(flags) | {ALIASES[f] for f in flags if f in ALIASES}
        memory = mmap.PAGESIZE * os.sysconf("SC_PHYS_PAGES")
        return Properties(self._name, memory, self._workers(), features, host_memory=True, native_code=True)

    def _workers(self) -> int:
        return 1 + self._pool_code.pool().workers if self._pool_code else threads.num_threads()

    # ------------------------------------------------------------------------------------------------- memory
    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        if size_bytes < 0 or align_bytes <= 0 or align_bytes & (align_bytes - 1):
            raise self._fail("alloc", f"{size_bytes} bytes aligned to {align_bytes}")
        if size_bytes >= 2 * _HUGE:
            align_bytes = max(align_bytes, _HUGE)
        place = ctypes.c_void_p()
        too_large = size_bytes >= 1 << 47
        if too_large or self._libc.posix_memalign(
            ctypes.byref(place), max(align_bytes, 64), max(size_bytes, 64)
        ):
            raise self._fail("alloc", f"out of memory: {size_bytes} bytes")
        address = int(place.value or 0)
        if size_bytes >= 2 * _HUGE:
            self._libc.madvise(address, size_bytes & -_HUGE, _ADVISE_HUGE)
        self._blocks[address] = size_bytes
        return address

    def free(self, address: int) -> None:
        if not address:
            return
        if self._blocks.pop(address, None) is None:
            raise self._fail("free", f"{address:#x} was not allocated here, or is free already")
        self._libc.free(address)

    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self.copy(destination, source, size_bytes, stream)

    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self.copy(destination, source, size_bytes, stream)

    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self._check_stream("copy", stream)
        if size_bytes:
            ctypes.memmove(destination, source, size_bytes)

    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        self._check_stream("fill", stream)
        if not 0 <= value <= 255:
            raise self._fail("fill", f"{value} is not a byte")
        if size_bytes:
            ctypes.memset(destination, value, size_bytes)

    # --------------------------------------------------------------------------------------------------- code
    def load(self, codes: Sequence[bytes]) -> int:
        try:
            objects = [(code, parse(code, f"object {i}")) for i, code in enumerate(codes)]
            own = []
            for code, parsed in objects:
                if pool_module.LAUNCH in parsed.defined():
                    self._pool_code = pool_module.install(code, parsed)
                else:
                    own.append(parsed)
            image = Image(own) if own else None
        except ElfError as e:
            raise self._fail("load", str(e)) from None
        number = next(self._numbers)
        self._modules[number] = image
        return number

    def unload(self, module: int) -> None:
        if module not in self._modules:
            raise self._fail("unload", f"there is no module {module}")
        image = self._modules.pop(module)
        if image is not None:
            for address in image.symbols.values():
                self._kernels.pop(address, None)
            image.close()

    def kernel(self, module: int, name: str) -> int:
        if module not in self._modules:
            raise self._fail("kernel", f"there is no module {module}")
        image = self._modules[module]
        symbols = image.symbols if image else {}
        if name not in symbols:
            near = difflib.get_close_matches(name, symbols, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self._fail("kernel", f"the code has no function {name!r}{hint}")
        self._kernels[symbols[name]] = name
        return symbols[name]

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
        self._check_stream("launch", stream)
        if lanes or scratch_bytes:
            raise self._fail("launch", "a processor core runs tiles, not workgroups of lanes")
        if kernel not in self._kernels:
            raise self._fail("launch", f"{kernel:#x} is not a kernel of a loaded module")
        words = (ctypes.c_int64 * max(len(args), 1))(*args)
        if self._pool_code is None:
            tile = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel)
            for i in range(grid):
                tile(ctypes.addressof(words), i, 0)
            return
        native = self.c_struct()
        native.launch(native.context, kernel, grid, ctypes.addressof(words), len(args), work, stream, 0, 0)

    def c_struct(self) -> RalStruct:
        """The C form: of this port's methods, with the pool's functions where the code that was loaded brings
        a pool."""
        pool = self._pool_code.pool() if self._pool_code else None
        key = pool.state if pool else 0
        if key not in self._structs:
            struct = as_struct(self)
            if pool is not None:
                struct.context = pool.state
                for verb, function in _NATIVE.items():
                    setattr(struct, verb, verb_type(verb)(pool.symbols[function]))
            self._structs[key] = struct
        return self._structs[key]

    def synchronize(self, stream: int = 0) -> None:
        self._check_stream("synchronize", stream)

    def _check_stream(self, verb: str, stream: int) -> None:
        if stream:
            raise self._fail(verb, f"there is no stream {stream}, only 0")

    def last_error(self) -> str:
        return str(getattr(self._errors, "text", ""))


def _cpu_words(key: str, default: str = "") -> str:
    """The value of the first line `key` of /proc/cpuinfo."""
    for line in _cpuinfo().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return default


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
