"""One launch of a kernel with lanes: workgroups in batches, each batch in step.

Design choice: this is the definition of LoopIR for such kernels, as `hwsdk.sim.machine` is for all others, with the
same promises: bounds, capacity, uninitialised reads, races, divergence of barriers, asynchronous copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Body, LoopKernel, group_loops, parallel_loop
from hwsdk.codegen.loop_print import print_statement
from hwsdk.codegen.loop_verify import verify_kernel
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import SimulationError
from hwsdk.sim.chip import Chip
from hwsdk.sim.lanes.counters import Counters
from hwsdk.sim.lanes.execute import Batch
from hwsdk.sim.lanes.memory import Array, Cells, Clock, LaneFault, Touched, as_indices, row_major
from hwsdk.sim.lanes.values import Names
from hwsdk.sim.stats import Stats
from hwsdk.target_desc.model import Target

BATCH_LANES = 1 << 14


def has_lanes(kernel: LoopKernel) -> bool:
    """Has the kernel loops inside a workgroup?"""
    return bool(group_loops(kernel))


class LaneMachine:
    """A kernel made ready to run on a target; `run` may be called any number of times."""

    def __init__(self, kernel: LoopKernel, target: Target, *, check: bool = True) -> None:
        verify_kernel(kernel, target)
        self.kernel, self.target, self.check = kernel, target, check
        self.chip = Chip(target, kernel)
        grid = parallel_loop(kernel)
        assert grid is not None
        self.grid = grid
        self.loops = group_loops(kernel)
        nest = (grid, *self.loops)
        inner = (*self.loops, None)
        self.heads: list[Body] = [  # statements of each level before the next loop
            tuple(s for s in loop.body if s is not next_loop) for loop, next_loop in zip(nest, inner)
        ]
        self.shape = tuple(int(x.extent) for x in self.loops if isinstance(x.extent, int))

    def run(
        self,
        buffers: Mapping[str, Array],
        dims: Mapping[str, int],
        *,
        seed: int | None = None,
        initialised: Mapping[str, Any] | None = None,
    ) -> Stats:
        """One launch, in place on `buffers`; see `hwsdk.sim.machine.run`."""
        for name in self.kernel.dims:
            if name not in dims:
                raise SimulationError(f"kernel {self.kernel.name}: dim {name} has no value")
        values = {n: int(dims[n]) for n in self.kernel.dims}
        names = Names({n: np.full((1, 1), v, np.int64) for n, v in values.items()}, {})
        cells = {p.name: self._param(p.name, buffers, names, initialised or {}) for p in self.kernel.params}
        groups = max(0, int(names.index(self.grid.extent).flat[0]))
        counters = Counters(self.chip, self.shape[-1])
        clock = Clock(prod(self.shape))
        size = max(1, BATCH_LANES // clock.group_lanes)
        starts = list(range(0, groups, size))
        if seed is not None:
            starts = [int(s) for s in np.random.default_rng(seed).permutation(starts)]
        with np.errstate(all="ignore"):
            for first in starts:
                clock.time += 1
                self._batch(cells, first, min(size, groups - first), clock, counters, names)
        unwritten = {}
        for name in self.kernel.outputs:
            unwritten[name] = int((~cells[name].valid).sum())
            array = np.asarray(buffers[name])
            array.reshape(-1)[...] = cells[name].data
            held = (initialised or {}).get(name)
            if isinstance(held, np.ndarray):
                held.reshape(-1)[...] = cells[name].valid
        return counters.stats(self.kernel, groups, unwritten)

    def _param(
        self, name: str, buffers: Mapping[str, Array], names: Names, initialised: Mapping[str, Any]
    ) -> Cells:
        param = next(p for p in self.kernel.params if p.name == name)
        if name not in buffers:
            raise SimulationError(f"kernel {self.kernel.name}: no array is bound to param {name}")
        array = np.asarray(buffers[name])
        shape = tuple(int(names.index(e).flat[0]) for e in param.shape)
        if array.dtype != numpy_dtype(param.dtype):
            raise SimulationError(f"kernel {self.kernel.name}: {name} is {param.dtype}, not {array.dtype}")
        if array.size < prod(shape):
            raise SimulationError(
                f"kernel {self.kernel.name}: {name} has {array.size} elements, not {prod(shape)}"
            )
        output = name in self.kernel.outputs
        flat = array.reshape(-1)
        held = initialised.get(name, not output)
        valid = np.array(
            np.broadcast_to(np.asarray(held, bool).reshape(-1) if np.ndim(held) else held, flat.shape)
        )
        return Cells(
            name, "param", param.place, flat.copy() if output else flat, flat.size, valid, writable=output,
            touched=Touched.none(flat.size) if output and self.check else None,
            strides=as_indices(row_major(shape)), shape=shape,
        )  # fmt: skip

    def _batch(
        self,
        cells: Mapping[str, Cells],
        first: int,
        groups: int,
        clock: Clock,
        counters: Counters,
        names: Names,
    ) -> None:
        batch = Batch(self.target, cells, self.shape, first, groups, clock, counters, self.check)
        inner = names.inner()
        number = np.arange(batch.lanes, dtype=np.int64)
        inner.indices[self.grid.var] = (number // clock.group_lanes + first)[:, None]
        rest = number % clock.group_lanes
        for loop, extent in zip(reversed(self.loops), reversed(self.shape)):
            inner.indices[loop.var] = (rest % extent)[:, None]
            rest = rest // extent
        body = tuple(s for head in ([*self._outside()], *self.heads) for s in head)
        try:
            batch.body(body, inner, np.ones((batch.lanes, 1), bool))
            if any(c.left for c in batch.copies.values()):
                raise LaneFault("the kernel ends while asynchronous copies were not waited for")
        except LaneFault as fault:
            where = "" if batch.statement is None else f"({print_statement(batch.statement).strip()}): "
            raise SimulationError(f"kernel {self.kernel.name}: {where}{fault}") from None

    def _outside(self) -> Body:
        """What stands before the grid: private to every workgroup."""
        return tuple(s for s in self.kernel.body if s is not self.grid)
