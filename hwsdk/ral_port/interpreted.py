"""Runs a host program in Python over a port whose memory is this process's: for ports without native host code,
and to bring up a new one.

Design choice: memory of a run is taken at its start and given back at its end, so nothing outlives a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import resolve
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
from hwsdk.ral_port.steps import Steps


class InterpretedEngine:
    """Runs a bundle through the verbs of a port."""

    def __init__(self, bundle: Bundle, port: Ral) -> None:
        self._program, self._port = bundle.program, port
        self._module, kernels = load_kernels(bundle, port)
        self._constants, self._kept = place_constants(constant_arrays(bundle), port)
        self._steps = Steps(bundle.program, port, kernels)
        self._kinds = [numpy_dtype(o.dtype) for o in bundle.program.outputs]
        self._running: set[object] = set()
        self._peak = 0

    def run(self, arrays: Sequence[Array], times: list[LaunchTime] | None = None) -> list[Array]:
        """One inference."""
        port = self._port
        workers = port.properties().workers
        resolved = resolve(self._program, [a.shape for a in arrays], workers)
        outputs = [
            aligned_empty(shape, kind, int(np.prod(shape, dtype=np.int64)) * kind.itemsize)[0]
            for shape, kind in zip(resolved.outputs, self._kinds, strict=True)
        ]
        homes = {
            "input": [address_of(a) for a in arrays],
            "output": [address_of(a) for a in outputs],
            "constant": self._constants,
        }
        total = -(-resolved.arena_bytes // ALIGN) * ALIGN + resolved.workspace_bytes * workers
        with self._arena(total) as arena:
            port.begin(resolved.work)
            try:
                self._steps.run(resolved, homes, arena, 0, times)
                port.synchronize()
            finally:
                port.end()
        self._steps.finished()
        return outputs

    @contextmanager
    def _arena(self, size: int) -> Iterator[int]:
        """Memory of one run; freed at its end, also after an error."""
        token = object()
        self._running.add(token)
        block = 0
        try:
            block = self._port.alloc(size, ALIGN)
            self._peak = max(self._peak, size)
            yield block
        finally:
            self._port.free(block)
            self._running.discard(token)

    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        return self._steps.counts()

    def runs(self) -> int:
        """Inferences so far."""
        return self._steps.runs()

    def arena_bytes(self) -> int:
        """The largest block that a run took for intermediate buffers."""
        return self._peak

    def idle(self) -> bool:
        """Is no run in progress?"""
        return not self._running

    def close(self) -> None:
        """Give back everything that it took from the port."""
        self._port.unload(self._module)
