"""cupy as far as the port uses it, over the interpreter of the code that ships: a GPU machine without a GPU.

The names and signatures are those of cupy 14; what a call means is the driver's manual, not the port's wish: captured
streams refuse what must not be captured, freed memory is gone, errors are exceptions with the driver's names.
"""

from __future__ import annotations

import ctypes
import itertools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.faults import KernelFault
from hwsdk.targets.cuda.ptx import Module as PtxModule
from hwsdk.targets.cuda.ptx import PtxError, chip

SHARED = 166912


class DriverError(RuntimeError):
    """CUDADriverError and CUDARuntimeError."""


class OutOfMemoryError(MemoryError):
    """As cupy's."""


class FakeGpu:
    """One device with everything that lives on it."""

    def __init__(self, memory_bytes: int = 1 << 28) -> None:
        self.engine = Engine(chip(SHARED), memory_bytes=memory_bytes)
        self.limit, self.used = memory_bytes, 0
        self.lost = False
        self.launches: list[str] = []
        self.python_launches = 0
        self.live_blocks: weakref.WeakSet[Any] = weakref.WeakSet()
        self.live_streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self.live_graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self.numbers = itertools.count(1 << 20, 64)
        self.streams: dict[int, Any] = {}
        self.functions: dict[int, Any] = {}
        self.host_pinned: list[Any] = []

    def check(self) -> None:
        """Every call asks: is the device still there?"""
        if self.lost:
            raise DriverError("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")

    def put(self, stream: int, work: Callable[[], None], what: str = "") -> None:
        """On a stream: run it now, or keep it if the stream is captured."""
        self.check()
        graph = self.streams[stream].graph if stream else None
        if graph is None:
            work()
        elif what:
            raise DriverError(f"cudaErrorStreamCaptureUnsupported: {what} is not permitted")
        else:
            graph.append(work)

    def launch(self, function: int, grid: int, lanes: int, scratch: int, stream: int, params: int) -> None:
        name, program = self.functions[function]
        words = []
        for i in range(len(program.parameters)):
            at = ctypes.c_void_p.from_address(params + 8 * i).value
            words.append(ctypes.c_int64.from_address(at or 0).value)

        def work() -> None:
            self.launches.append(name)
            self.engine.launch(program, (grid,), (lanes,), words, scratch)

        self.put(stream, work)


def _runtime(gpu: FakeGpu) -> types.SimpleNamespace:
    to_device, to_host, on_device = 1, 2, 3

    def memcpy_async(target: int, source: int, size: int, kind: int, stream: int) -> None:
        if kind == to_device:
            data = np.frombuffer(ctypes.string_at(source, size), np.uint8)
            gpu.put(
                stream, lambda: gpu.engine.copy_in(target, data), "a copy from host memory that may change"
            )
        elif kind == to_host:

            def fetch() -> None:
                found = np.ascontiguousarray(gpu.engine.copy_out(source, size))
                ctypes.memmove(target, found.ctypes.data, size)

            gpu.put(stream, fetch, "a copy to the host")
        else:
            gpu.put(stream, lambda: gpu.engine.copy_in(target, gpu.engine.copy_out(source, size)))

    def memset_async(target: int, value: int, size: int, stream: int) -> None:
        gpu.put(stream, lambda: gpu.engine.copy_in(target, np.full(size, value, np.uint8)))

    def synchronize(stream: int = 0) -> None:
        gpu.check()
        if stream and gpu.streams[stream].graph is not None:
            raise DriverError(
                "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )

    return types.SimpleNamespace(
        memcpyHostToDevice=to_device, memcpyDeviceToHost=to_host, memcpyDeviceToDevice=on_device,
        streamCaptureModeThreadLocal=1,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda n: {
            "name": b"Pretend GPU", "major": 8, "minor": 0, "totalGlobalMem": gpu.limit, "warpSize": 32,
            "multiProcessorCount": 108, "sharedMemPerBlockOptin": SHARED,
        },
        setDevice=lambda n: gpu.check(),
        memcpyAsync=memcpy_async, memsetAsync=memset_async,
        streamSynchronize=synchronize, deviceSynchronize=synchronize,
    )  # fmt: skip


def _driver(gpu: FakeGpu) -> types.SimpleNamespace:
    def launch(f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
               params: int, extra: int) -> None:  # fmt: skip
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        gpu.python_launches += 1
        try:
            gpu.launch(f, gx, bx, shared, stream, params)
        except KernelFault as fault:
            raise DriverError(f"CUDA_ERROR_ILLEGAL_ADDRESS: {fault}") from None

    return types.SimpleNamespace(
        launchKernel=launch, funcGetAttribute=lambda attribute, f: 0,
        funcSetAttribute=lambda f, attribute, value: None, ctxGetCurrent=lambda: 0x1234,
    )  # fmt: skip


class _Module:
    gpu: FakeGpu

    def load(self, code: bytes) -> None:
        self.gpu.check()
        try:
            self.parsed = PtxModule.parse(code.decode())
        except (PtxError, UnicodeDecodeError) as e:
            raise DriverError(f"CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed: {e}") from None

    def get_function(self, name: str) -> Any:
        if name not in self.parsed.kernels:
            raise DriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        number = next(self.gpu.numbers)
        self.gpu.functions[number] = name, self.parsed.kernels[name]
        return types.SimpleNamespace(ptr=number)


class _Graph:
    def __init__(self, gpu: FakeGpu, work: list[Callable[[], None]]) -> None:
        self.gpu, self.work = gpu, work
        gpu.live_graphs.add(self)

    def launch(self, stream: Any) -> None:
        self.gpu.check()
        for item in self.work:
            item()


class _Stream:
    gpu: FakeGpu

    def __init__(self, non_blocking: bool = False) -> None:
        self.gpu.check()
        self.ptr = next(self.gpu.numbers)
        self.graph: list[Callable[[], None]] | None = None
        self.gpu.streams[self.ptr] = self
        self.gpu.live_streams.add(self)

    def begin_capture(self, mode: int) -> None:
        self.graph = []

    def end_capture(self) -> _Graph:
        work, self.graph = self.graph or [], None
        self.gpu.check()
        return _Graph(self.gpu, work)


class _Event:
    clock = itertools.count()

    def record(self, stream: Any) -> None:
        self.at = next(self.clock)

    def synchronize(self) -> None:
        pass


class _Block:
    def __init__(self, gpu: FakeGpu, size: int) -> None:
        gpu.check()
        if gpu.used + size > gpu.limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {size} bytes (allocated so far: {gpu.used} bytes)."
            )
        gpu.used += size
        self.ptr = gpu.engine.allocate(size, "block")
        gpu.live_blocks.add(self)
        weakref.finalize(self, _give_back, gpu, self.ptr, size)


def _give_back(gpu: FakeGpu, address: int, size: int) -> None:
    gpu.engine.free(address)
    gpu.used -= size


def fake_cupy(gpu: FakeGpu) -> types.ModuleType:
    """A module to put in the place of cupy."""
    cupy = types.ModuleType("cupy")
    module = type("Module", (_Module,), {"gpu": gpu})
    stream = type("Stream", (_Stream,), {"gpu": gpu, "null": types.SimpleNamespace(ptr=0)})

    class MemoryPool:
        def malloc(self, size: int) -> _Block:
            return _Block(gpu, size)

        def free_all_blocks(self) -> None:
            pass

    def pinned(size: int) -> Any:
        buffer = (ctypes.c_char * size)()
        gpu.host_pinned.append(buffer)
        return types.SimpleNamespace(ptr=ctypes.addressof(buffer))

    cupy.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        runtime=_runtime(gpu), driver=_driver(gpu), function=types.SimpleNamespace(Module=module), Stream=stream,
        Event=_Event, MemoryPool=MemoryPool, alloc_pinned_memory=pinned,
        get_elapsed_time=lambda a, b: float(b.at - a.at),
        UnownedMemory=lambda address, size, owner: types.SimpleNamespace(address=address, owner=owner),
        MemoryPointer=lambda memory, offset: types.SimpleNamespace(memory=memory),
    )  # fmt: skip
    cupy.ndarray = type("ndarray", (FakeArray,), {"gpu": gpu})  # type: ignore[attr-defined]
    return cupy


class FakeArray:
    """cupy.ndarray: where it lies, and what keeps it."""

    gpu: FakeGpu

    def __init__(self, shape: Sequence[int], dtype: Any, memory: Any) -> None:
        self.shape, self.dtype, self.memory = tuple(shape), np.dtype(dtype), memory.memory

    def get(self) -> np.ndarray[Any, Any]:
        """Its elements on the host."""
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        raw = np.asarray(self.gpu.engine.copy_out(self.memory.address, size))
        return raw.view(self.dtype).reshape(self.shape)


class FakeLibrary:
    """libcuda as the native host program calls it."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.error = ""
        word, place = ctypes.c_uint32, ctypes.c_void_p
        self.cuLaunchKernel = ctypes.CFUNCTYPE(
            ctypes.c_int, place, word, word, word, word, word, word, word, place, place, place
        )(self._launch)
        self.cuCtxSetCurrent = ctypes.CFUNCTYPE(ctypes.c_int, place)(
            lambda context: 0 if context == 0x1234 else 201
        )
        self.cuMemsetD32Async = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, word, ctypes.c_size_t, place)(
            self._words
        )

    def _launch(self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int | None,
                params: int, extra: int | None) -> int:  # fmt: skip
        try:
            assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, None)
            self.gpu.launch(f, gx, bx, shared, stream or 0, params)
        except Exception as e:  # noqa: BLE001 - a status, as the driver gives
            self.error = str(e)
            return 100 if self.gpu.lost else 700
        return 0

    def _words(self, target: int, value: int, count: int, stream: int | None) -> int:
        data = np.full(count, value, np.uint32).view(np.uint8)
        self.gpu.put(stream or 0, lambda: self.gpu.engine.copy_in(target, data))
        return 0

    def cuGetErrorName(self, status: int, text: Any) -> int:
        names = {
            100: b"CUDA_ERROR_NO_DEVICE",
            700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
            1: b"CUDA_ERROR_INVALID_VALUE",
        }
        text._obj.value = names.get(status, b"CUDA_ERROR_UNKNOWN")
        return 0
