"""Statements of a kernel for a batch of workgroups, all lanes in step under masks.

A lane of the launch has a number: workgroup * lanes of a workgroup + lane in the workgroup (row-major over the loops
inside).  A branch or loop that differs between lanes runs under the mask of those that take it.

Design choice: many workgroups at once are one longer axis of lanes, so NumPy has work and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    For,
    FromIndex,
    If,
    Intrin,
    Let,
    Outline,
    Stmt,
    Store,
    Switch,
    Sync,
)
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import SimulationError
from hwsdk.sim.lanes.counters import Counters
from hwsdk.sim.lanes.memory import (
    Array,
    Cells,
    Clock,
    LaneFault,
    Touched,
    as_indices,
    check_read,
    check_write,
    row_major,
)
from hwsdk.sim.lanes.uses import Copies, run_use
from hwsdk.sim.lanes.values import Evaluation, Names
from hwsdk.target_desc.model import Target


class Batch:
    """Some workgroups of a launch.  shape: extents of the loops inside a workgroup; first: number of the first."""

    def __init__(
        self, target: Target, cells: Mapping[str, Cells], shape: tuple[int, ...], first: int, groups: int,
        clock: Clock, counters: Counters, check: bool,
    ) -> None:  # fmt: skip
        self.target, self.shape, self.first, self.groups = target, shape, first, groups
        self.clock, self.counters, self.check = clock, counters, check
        self.lanes = groups * clock.group_lanes
        self.memories = {m.name: m for m in target.memories}
        self.cells = dict(cells)
        self.lane = (np.arange(self.lanes, dtype=np.int64) + first * clock.group_lanes)[:, None]
        self.copies: dict[str, Copies] = {}  # by unit
        self.statement: Stmt | None = None

    # ------------------------------------------------------------------------------------------------- statements
    def body(self, body: Body, names: Names, mask: Array) -> None:
        """The statements in a scope of their own."""
        cells, names = self.cells, names.inner()
        self.cells = dict(cells)
        taken: list[Cells] = []
        for stmt in body:
            self.statement = stmt
            self.counters.statements += 1
            match stmt:
                case Let():
                    self._let(stmt, names, mask)
                case Store():
                    self._store(stmt, names, mask)
                case Alloc(buffer=buffer):
                    taken.append(self._alloc(buffer, names))
                case _:
                    self._nested(stmt, names, mask)
        for each in taken:
            self.counters.free(each, self._instance_bytes(each))
        self.cells = cells

    def _nested(self, stmt: Stmt, names: Names, mask: Array) -> None:
        match stmt:
            case For():
                self._for(stmt, names, mask)
            case If():
                self._if(stmt, names, mask)
            case Switch():
                self._switch(stmt, names, mask)
            case Outline(body=inner):
                self.body(inner, names, mask)
            case Intrin():
                run_use(self, stmt, names, mask)
            case Sync():
                self._sync(stmt, mask)
            case _:
                raise SimulationError(f"{type(stmt).__name__} is not a statement of LoopIR")

    def _if(self, stmt: If, names: Names, mask: Array) -> None:
        truth = Evaluation(self, names, mask)(stmt.cond)
        for side, taken in ((stmt.then, mask & truth), (stmt.orelse, mask & ~truth)):
            if side and taken.any():
                self.body(side, names, taken)

    def _switch(self, stmt: Switch, names: Names, mask: Array) -> None:
        chosen = names.index(stmt.index)
        wrong = mask & ((chosen < 0) | (chosen >= len(stmt.cases)))
        if wrong.any():
            number = int(np.broadcast_to(chosen, wrong.shape)[wrong][0])
            raise LaneFault(f"case {number} of a switch with {len(stmt.cases)} cases")
        for i, case in enumerate(stmt.cases):
            if (mask & (chosen == i)).any():
                self.body(case, names, mask & (chosen == i))

    def _let(self, stmt: Let, names: Names, mask: Array) -> None:
        value = Evaluation(self, names, mask)(stmt.value)
        names.values[stmt.name] = value
        if value.dtype.kind in "iub":
            exact = isinstance(stmt.value, FromIndex)
            names.indices[stmt.name] = names.index(stmt.value.index) if exact else value.astype(np.int64)  # type: ignore[attr-defined]

    def _store(self, stmt: Store, names: Names, mask: Array) -> None:
        evaluation = Evaluation(self, names, mask)
        if stmt.where is not None:
            mask = mask & evaluation(stmt.where)
        value = evaluation(stmt.value)
        self.store(stmt.buffer, [names.index(i) for i in stmt.index], value, mask)

    def _for(self, stmt: For, names: Names, mask: Array) -> None:
        inner = names.inner()
        if stmt.kind == "vector":
            assert isinstance(stmt.extent, int)
            var = np.arange(stmt.extent, dtype=np.int64)[None, :]
            inner.indices[stmt.var] = var
            active = mask if stmt.active is None else mask & (var < names.index(stmt.active))
            if stmt.extent and active.any():
                self.body(stmt.body, inner, active)
            return
        extent = names.index(stmt.extent)
        most = int(np.where(mask, extent, 0).max(initial=0))
        uniform = extent.size == 1
        for i in range(most):
            inner.indices[stmt.var] = np.full((1, 1), i, np.int64)
            taken = mask if uniform else mask & (i < extent)
            self.body(stmt.body, inner, taken)

    # ------------------------------------------------------------------------------------------------------ memory
    def _alloc(self, buffer: Buffer, names: Names) -> Cells:
        memory = self.memories[buffer.place]
        shape = [self._uniform(names.index(e), buffer) for e in buffer.shape]
        stated = buffer.strides
        strides = (
            row_major(shape) if stated is None else [self._uniform(names.index(s), buffer) for s in stated]
        )
        size = 1 + sum((e - 1) * s for e, s in zip(shape, strides)) if all(shape) else 0
        shared = memory.kind == "scratchpad"
        rows = self.groups if shared else self.lanes
        cells = Cells(
            buffer.name, "scratch" if shared else "private", buffer.place,
            np.zeros(rows * size, numpy_dtype(buffer.dtype)), size, np.zeros(rows * size, bool),
            touched=Touched.none(rows * size) if shared and self.check else None,
            strides=as_indices(strides), shape=tuple(shape),
        )  # fmt: skip
        self.cells[buffer.name] = cells
        self.counters.take(cells, self._instance_bytes(cells), memory)
        return cells

    def _instance_bytes(self, cells: Cells) -> int:
        return cells.size * cells.itemsize

    def _uniform(self, x: Array, buffer: Buffer) -> int:
        if np.unique(x).size > 1:
            raise LaneFault(f"an extent of {buffer.name} differs between lanes")
        return int(x.flat[0])

    def offsets(self, name: str, index: Sequence[Array], mask: Array) -> tuple[Cells, Array, Array, Array]:
        """(cells, flat elements of the lanes that act, their lanes, mask of the access over both axes)."""
        cells = self.cells[name]
        offset: Array = np.zeros((1, 1), np.int64)
        for i, stride in zip(index, cells.strides):
            offset = offset + i * stride
        axes = (self.lanes, max(offset.shape[1], mask.shape[1], *(i.shape[1] for i in index), 1))
        acting = np.broadcast_to(mask, axes)
        for axis, i in enumerate(index):
            wide = np.broadcast_to(i, axes)
            outside = acting & ((wide < 0) | (wide >= cells.shape[axis]))
            if outside.any():
                raise LaneFault(
                    f"out of bounds: index {int(wide[outside][0])} of axis {axis} of {name} is outside"
                    f" 0..{int(cells.shape[axis]) - 1} in lane {int(np.broadcast_to(self.lane, axes)[outside][0])}"
                )
        whole = np.broadcast_to(offset, axes)
        if cells.kind == "private":
            whole = whole + np.arange(self.lanes)[:, None] * cells.size
        elif cells.kind == "scratch":
            whole = whole + (np.arange(self.lanes) // self.clock.group_lanes)[:, None] * cells.size
        return cells, whole[acting], np.broadcast_to(self.lane, axes)[acting], acting

    def load(self, name: str, index: Sequence[Array], mask: Array) -> Array:
        cells, at, lane, acting = self.offsets(name, index, mask)
        if self.check:
            check_read(cells, at, lane, self.clock)
        self.counters.access(cells, "read", at, lane)
        out = np.zeros(acting.shape, cells.data.dtype)
        out[acting] = cells.data[at]
        return out

    def store(self, name: str, index: Sequence[Array], value: Array, mask: Array) -> None:
        cells, at, lane, acting = self.offsets(name, index, mask)
        if self.check:
            check_write(cells, at, lane, self.clock)
        self.counters.access(cells, "written", at, lane)
        cells.data[at] = np.broadcast_to(value, acting.shape)[acting]
        cells.valid[at] = True

    # -------------------------------------------------------------------------------------------------------- sync
    def _sync(self, stmt: Sync, mask: Array) -> None:
        sync = self.target.syncs[stmt.name]
        if sync.kind == "commit":
            self.copies_of(sync.unit or "").commit()
        elif sync.kind == "wait":
            self.copies_of(sync.unit or "").wait(stmt.pending)
        elif sync.kind != "fence":  # lanes are in step here, so a fence has nothing to order
            self._meet(stmt, sync.scope, mask)

    def copies_of(self, unit: str) -> Copies:
        """Asynchronous uses of a unit."""
        return self.copies.setdefault(unit, Copies())

    def _meet(self, stmt: Sync, scope: str, mask: Array) -> None:
        """A barrier: all lanes of a workgroup (or of a lockstep group) come, or none."""
        levels = [x.name for x in self.target.levels]
        inside = levels.index(scope)
        members = self.clock.group_lanes if self.target.levels[inside].index else self.shape[-1]
        lanes = np.broadcast_to(mask, (self.lanes, 1)).reshape(-1, members)
        come = lanes.sum(1)
        partial = (come > 0) & (come < members)
        if partial.any():
            group = int(np.flatnonzero(partial)[0])
            raise LaneFault(
                f"barrier divergence: {int(come[group])} of {members} lanes reach {stmt.name} in group"
                f" {group + self.first}"
            )
        if members == self.clock.group_lanes:
            self.clock.time += 1
