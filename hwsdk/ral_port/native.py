"""Runs the compiled host program on a device whose memory is this process's: two native calls per inference.

Design choice: everything else is packing words.  An inference costs two `pack_into`, one `unpack_from` and
the allocation of the outputs; see `host_code` for what is written once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.artifact import Bundle
from hwsdk.dtypes import numpy_dtype
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
from hwsdk.ral_port.host_code import Context, HostCode
from hwsdk.ral_port.inputs import address_of
from hwsdk.ral_port.interface import Ral

_FIRST_ARENA = 1 << 16
_SMALL = 1 << 12  # bytes of an output below which its alignment is not worth a microsecond


class NativeEngine:
    """Runs a bundle with host code through a port whose device is this machine's memory."""

    def __init__(self, bundle: Bundle, port: Ral) -> None:
        program = bundle.program
        self._bundle, self._port = bundle, port
        self._module, kernels = load_kernels(bundle, port)
        addresses, self._kept = place_constants(constant_arrays(bundle), port)
        self._code = code = HostCode(program, port, self._module, port, kernels, addresses)
        self._layout, self._run, self._map = code.layout, code.run, code.map
        self._pack_inputs, self._unpack_results = code.pack_inputs, code.unpack_results
        self._outputs = tuple((numpy_dtype(o.dtype), len(o.shape)) for o in program.outputs)
        self._free: list[Context] = []

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
            context = self._code.context()
        try:
            ral = context.ral
            if ral is None or ral.generation != threads.generation():
                ral = self._code.bind(context)
            block = context.block
            self._pack_inputs(block, layout.HEADER_WORDS * 8, *words)
            status = self._layout(context.address)
            if status:
                raise self._code.refused(status, [a.shape for a in arrays], ral.workers)
            results = self._unpack_results(block, self._map.results * 8)
            outputs = self._allocate(context, results, ral.workers)
            if times is None:
                status = self._run(ral.address, context.address)
            else:
                status = self._code.timed_run(ral, context, times)
            if status:
                raise self._code.failed(status, context)
            context.runs += 1
            return outputs
        finally:
            self._free.append(context)

    def _allocate(self, context: Context, results: tuple[int, ...], workers: int) -> list[Array]:
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
        self._code.pack_memory(context.block, self._map.memory * 8, *memory)
        return outputs

    def _grow(self, context: Context, needed: int) -> None:
        """More than is needed, so that a stream of growing lengths does not allocate each time.  (Untouched
        pages of this machine's memory cost nothing.)"""
        size = max(needed, _FIRST_ARENA, min(2 * context.arena_bytes, 4 * needed))
        self._port.free(context.arena)
        context.arena, context.arena_bytes = 0, 0
        context.arena = self._port.alloc(size, ALIGN)
        context.arena_bytes = size

    # ------------------------------------------------------------------------------------------------ figures
    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        return self._code.counts()

    def runs(self) -> int:
        """Inferences so far."""
        return sum(c.runs for c in self._code.contexts)

    def arena_bytes(self) -> int:
        """Memory held for intermediate buffers by all contexts."""
        return sum(c.arena_bytes for c in self._code.contexts)

    def idle(self) -> bool:
        """Is no run in progress?"""
        return len(self._free) == len(self._code.contexts)

    def close(self) -> None:
        """Give back everything that it took from the port."""
        for context in self._code.contexts:
            self._port.free(context.arena)
            context.arena = context.arena_bytes = 0
        self._port.unload(self._module)
