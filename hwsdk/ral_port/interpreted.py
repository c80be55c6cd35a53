"""Runs a host program in Python over any port: for ports without native host code, and to bring up a new one.

Design choice: the same decisions as the interpreter that defines the language (`host_interpreter.resolve`,
`choose`), with addresses in place of arrays; a device with its own memory gets its inputs copied in and its
outputs copied out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import Resolved, choose, resolve
from hwsdk.dtypes import numpy_dtype
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
from hwsdk.ral_port.interface import Ral


class InterpretedEngine:
    """Runs a bundle through the verbs of a port."""

    def __init__(self, bundle: Bundle, port: Ral) -> None:
        self._program, self._port = bundle.program, port
        self._host = port.properties().host_memory
        self._module, self._kernels = load_kernels(bundle, port)
        self._constants, self._kept = place_constants(constant_arrays(bundle), port)
        self._buffers = {b.name: b for b in bundle.program.buffers}
        self._tallies: dict[int, list[int]] = {}  # by thread: launches of each version, then runs
        self._running: set[object] = set()
        self._peak = 0

    def run(self, arrays: Sequence[Array], times: list[LaunchTime] | None = None) -> list[Array]:
        """One inference."""
        workers = self._port.properties().workers
        resolved = resolve(self._program, [a.shape for a in arrays], workers)
        outputs = [
            aligned_empty(
                shape, kind := numpy_dtype(spec.dtype), int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            )[0]
            for shape, spec in zip(resolved.outputs, self._program.outputs, strict=True)
        ]
        with self._memory() as blocks:
            self._port.begin(resolved.work)
            try:
                self._run(resolved, arrays, outputs, blocks, times)
            finally:
                self._port.end()
        return outputs

    @contextmanager
    def _memory(self) -> Iterator[list[int]]:
        """Device blocks of one run; freed at its end, also after an error."""
        blocks: list[int] = []
        token = object()
        self._running.add(token)
        try:
            yield blocks
        finally:
            for block in blocks:
                self._port.free(block)
            self._running.discard(token)

    def _alloc(self, size: int, blocks: list[int]) -> int:
        block = self._port.alloc(size, ALIGN)
        blocks.append(block)
        return block

    def _run(
        self,
        resolved: Resolved,
        arrays: Sequence[Array],
        outputs: Sequence[Array],
        blocks: list[int],
        times: list[LaunchTime] | None,
    ) -> None:
        port = self._port
        arena_bytes = -(-resolved.arena_bytes // ALIGN) * ALIGN
        total = arena_bytes + resolved.workspace_bytes * port.properties().workers
        arena = self._alloc(total, blocks)
        self._peak = max(self._peak, total)
        ins = [self._to_device(a, blocks) for a in arrays]
        outs = [address_of(a) if self._host else self._alloc(a.nbytes, blocks) for a in outputs]
        homes = {"input": ins, "output": outs, "constant": self._constants}

        def address(name: str) -> int:
            buffer = self._buffers[name]
            position = resolved.value(buffer.position)
            return arena + position if buffer.storage == "arena" else homes[buffer.storage][position]

        for write in self._program.writes:
            values = np.array(
                [resolved.value(v) for v in write.values], numpy_dtype(self._buffers[write.buffer].dtype)
            )
            port.copy_in(address(write.buffer), address_of(values), values.nbytes)
        tally = self._tallies.setdefault(threading.get_ident(), [0] * (len(self._kernels) + 1))
        first = 0
        for launch in self._program.launches:
            number, version = choose(launch, resolved)
            args = [address(a) for a in launch.args] + [resolved.value(d) for d in launch.dims]
            args += [arena + arena_bytes, resolved.workspace_bytes]
            start = port.event() if times is not None else 0
            port.launch(
                self._kernels[first + number], resolved.value(version.grid), args, resolved.value(launch.work)
            )
            if times is not None:
                end = port.event()
                times.append(LaunchTime(launch.kernel, version.symbol, port.elapsed(start, end)))
                port.release(start)
                port.release(end)
            tally[first + number] += 1
            first += len(launch.versions)
        port.synchronize()
        tally[-1] += 1
        if not self._host:
            for array, place in zip(outputs, outs, strict=True):
                port.copy_out(address_of(array), place, array.nbytes)

    def _to_device(self, array: Array, blocks: list[int]) -> int:
        if self._host:
            return address_of(array)
        place = self._alloc(array.nbytes, blocks)
        self._port.copy_in(place, address_of(array), array.nbytes)
        return place

    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        return self._totals()[:-1]

    def runs(self) -> int:
        """Inferences so far."""
        return self._totals()[-1]

    def arena_bytes(self) -> int:
        """The largest block that a run took for intermediate buffers."""
        return self._peak

    def idle(self) -> bool:
        """Is no run in progress?"""
        return not self._running

    def _totals(self) -> list[int]:
        columns = list(self._tallies.values())
        return [sum(c[i] for c in columns) for i in range(len(self._kernels) + 1)]
