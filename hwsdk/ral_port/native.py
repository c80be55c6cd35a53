"""Runs the compiled host program: two native calls per inference, everything else is packing words.

Design choice: no locks (a forked child would inherit them held).  A run context is one flat block of words
(see `hwsdk.codegen.host_layout`); its constant words are written once, so that an inference costs two
`pack_into`, one `unpack_from` and the allocation of the outputs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import resolve
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import CodegenError, InputError
from hwsdk.ral_port import threads
from hwsdk.ral_port.engine import (
    ALIGN,
    Array,
    LaunchTime,
    aligned_empty,
    constant_arrays,
    load_kernels,
    place_constants,
)
from hwsdk.ral_port.inputs import address_of
from hwsdk.ral_port.interface import PortError, Ral

_FIRST_ARENA = 1 << 16
_SMALL = 1 << 12  # bytes of an output below which its alignment is not worth a microsecond


class _Ral:
    """The interface structure of one thread setting."""

    def __init__(self, port: Ral) -> None:
        self.generation = threads.generation()
        self.struct = port.c_struct()
        self.address = ctypes.addressof(self.struct)
        self.workers = port.properties().workers


class _Context:
    """State of one run: the run block, its arena, its counters."""

    def __init__(self, words: int, versions: int, launches: int) -> None:
        self.block = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.block)
        self.counters = (ctypes.c_int64 * max(versions, 1))()
        self.times = (ctypes.c_int64 * (launches + 1))()
        self.ral: _Ral | None = None
        self.arena = 0
        self.arena_bytes = 0
        self.runs = 0


class NativeEngine:
    """Runs a bundle with host code through a port whose device is this machine's memory."""

    def __init__(self, bundle: Bundle, port: Ral) -> None:
        program = bundle.program
        self._bundle, self._program, self._port = bundle, program, port
        self._module, kernels = load_kernels(bundle, port)
        addresses, self._kept = place_constants(constant_arrays(bundle), port)
        self._kernels = (ctypes.c_int64 * max(len(kernels), 1))(*kernels)
        self._constants = (ctypes.c_int64 * max(len(addresses), 1))(*addresses)
        word, run = ctypes.c_int64, ctypes.c_void_p
        self._layout = ctypes.CFUNCTYPE(word, run)(port.kernel(self._module, "hwsdk_layout"))
        self._run = ctypes.CFUNCTYPE(word, run, run)(port.kernel(self._module, "hwsdk_run"))
        self._map = layout.RunBlock(program.input_ranks, program.output_ranks)
        self._outputs = tuple((numpy_dtype(o.dtype), len(o.shape)) for o in program.outputs)
        block = self._map
        self._pack_inputs = struct.Struct(f"@{block.results - layout.HEADER_WORDS}q").pack_into
        self._unpack_results = struct.Struct(f"@{block.memory - block.results}q").unpack_from
        self._pack_memory = struct.Struct(f"@{block.words - block.memory}q").pack_into
        self._contexts: list[_Context] = []
        self._free: list[_Context] = []
        self._ral: _Ral | None = None

    # ---------------------------------------------------------------------------------------------------- run
    def run(self, arrays: Sequence[Array], times: list[LaunchTime] | None = None) -> list[Array]:
        """One inference."""
        words: list[int] = []
        for array in arrays:
            words += array.shape
        for array in arrays:
            words.append(address_of(array))
        try:
            context = self._free.pop()
        except IndexError:
            context = self._new_context()
        try:
            ral = context.ral
            if ral is None or ral.generation != threads.generation():
                ral = self._bind(context)
            block = context.block
            self._pack_inputs(block, layout.HEADER_WORDS * 8, *words)
            status = self._layout(context.address)
            if status:
                raise self._refused(status, arrays, ral.workers)
            results = self._unpack_results(block, self._map.results * 8)
            outputs = self._allocate(context, results, ral.workers)
            if times is None:
                status = self._run(ral.address, context.address)
            else:
                status = self._timed_run(ral, context, times)
            if status:
                raise self._failed(status, context)
            context.runs += 1
            return outputs
        finally:
            self._free.append(context)

    def _allocate(self, context: _Context, results: tuple[int, ...], workers: int) -> list[Array]:
        """Arena and outputs of the sizes that the layout function gave; their addresses go to the block."""
        arena = -(-results[layout.ARENA_BYTES] // ALIGN) * ALIGN
        needed = arena + results[layout.WORKSPACE_BYTES] * workers
        if needed > context.arena_bytes:
            self._grow(context, needed)
        memory = [context.arena, context.arena + arena]
        outputs = []
        at, size = layout.RESULT_DIMS, self._map.output_bytes - self._map.results
        for kind, rank in self._outputs:
            shape = results[at : at + rank]
            if results[size] < _SMALL:
                array = np.empty(shape, kind)
                memory.append(address_of(array))
            else:
                array, address = aligned_empty(shape, kind, results[size])
                memory.append(address)
            outputs.append(array)
            at += rank
            size += 1
        self._pack_memory(context.block, self._map.memory * 8, *memory)
        return outputs

    def _grow(self, context: _Context, needed: int) -> None:
        """More than is needed, so that a stream of growing lengths does not allocate each time.  (Untouched
        pages of this machine's memory cost nothing.)"""
        size = max(needed, _FIRST_ARENA, min(2 * context.arena_bytes, 4 * needed))
        self._port.free(context.arena)
        context.arena, context.arena_bytes = 0, 0
        context.arena = self._port.alloc(size, ALIGN)
        context.arena_bytes = size

    def _new_context(self) -> _Context:
        context = _Context(self._map.words, len(self._program.symbols), len(self._program.launches))
        self._contexts.append(context)
        return context

    def _bind(self, context: _Context) -> _Ral:
        """Write the constant words of a context for the current thread setting."""
        ral = self._ral
        if ral is None or ral.generation != threads.generation():
            self._ral = ral = _Ral(self._port)  # two threads may both do this: either result will do
        context.ral = ral
        block = context.block
        block[layout.WORKERS_WORD] = ral.workers
        block[layout.STREAM_WORD] = 0
        block[layout.CONSTANTS_WORD] = ctypes.addressof(self._constants)
        block[layout.KERNELS_WORD] = ctypes.addressof(self._kernels)
        block[layout.COUNTERS_WORD] = ctypes.addressof(context.counters)
        return ral

    # ------------------------------------------------------------------------------------------------- errors
    def _refused(self, status: int, arrays: Sequence[Array], workers: int) -> InputError:
        """The layout function said no: the interpreter, on the same shapes, says why."""
        shapes = [a.shape for a in arrays]
        try:
            resolve(self._program, shapes, workers)
        except InputError as e:
            return e
        reason = {layout.OVERFLOW: "a size does not fit 64 bits", layout.DIVISION: "division by zero"}
        return InputError(f"input shapes {shapes} cannot be used: {reason.get(status, 'a check failed')}")

    def _failed(self, status: int, context: _Context) -> CodegenError | PortError:
        number, code = status >> 32, status & 0xFFFFFFFF
        launch = self._program.launches[number - 1].kernel if number else "start of the run"
        if code == layout.NO_VERSION:
            return CodegenError(f"no version of kernel {launch} covers these input shapes")
        assert context.ral is not None
        text = ctypes.create_string_buffer(1024)
        native = context.ral.struct
        native.last_error(native.context, text, len(text))
        return PortError(
            "launch", self._port.properties().name, f"{launch}: {text.value.decode(errors='replace')}"
        )

    # ------------------------------------------------------------------------------------------------ figures
    def _timed_run(self, ral: _Ral, context: _Context, times: list[LaunchTime]) -> int:
        """Run with the address of the time stamps in the block; they say when each launch began, and the
        end."""
        before = list(context.counters)
        context.block[layout.TIMES_WORD] = ctypes.addressof(context.times)
        try:
            status = int(self._run(ral.address, context.address))
        finally:
            context.block[layout.TIMES_WORD] = 0
        at = 0
        for number, launch in enumerate(self._program.launches if not status else ()):
            chosen = [i for i in range(len(launch.versions)) if context.counters[at + i] != before[at + i]]
            at += len(launch.versions)
            seconds = (context.times[number + 1] - context.times[number]) * 1e-9
            times.append(LaunchTime(launch.kernel, launch.versions[chosen[0]].symbol, seconds))
        return status

    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        totals = np.zeros(len(self._program.symbols), np.int64)
        for context in list(self._contexts):
            totals += np.array(context.counters[: len(totals)], np.int64)
        return [int(t) for t in totals]

    def runs(self) -> int:
        """Inferences so far."""
        return sum(c.runs for c in self._contexts)

    def arena_bytes(self) -> int:
        """Memory held for intermediate buffers by all contexts."""
        return sum(c.arena_bytes for c in self._contexts)

    def idle(self) -> bool:
        """Is no run in progress?"""
        return len(self._free) == len(self._contexts)
