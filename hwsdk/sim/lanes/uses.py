"""Intrinsics for all lanes of a batch: operands gathered by their layouts, semantics executed, results put back.

An intrinsic whose scope is a lockstep group takes its lanes' registers together; all of them must act.  A memory
operand whose layout names lanes begins at each lane's own address.  An asynchronous use has its effect at the matching
wait; registers that it writes go on to the unit's next uses at once, and are anyone's after a wait for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.codegen.loop_ir import Intrin, Value, View
from hwsdk.codegen.planner.roles import contraction_roles
from hwsdk.dtypes import numpy_dtype
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.intrinsics.numbers import storage
from hwsdk.intrinsics.repeat import REPEAT
from hwsdk.sim.lanes.memory import Array, Cells, LaneFault, arrive, check_read, check_write, depart
from hwsdk.sim.lanes.values import Evaluation, Names

if TYPE_CHECKING:
    from hwsdk.sim.lanes.execute import Batch


@dataclass
class Flight:
    """One asynchronous use: what it will write, and what it reads until then."""

    writes: list[tuple[_Operand, Array]] = field(default_factory=list)
    reads: list[_Operand] = field(default_factory=list)
    registers: list[_Operand] = field(default_factory=list)  # written already


class Copies:
    """Asynchronous uses of one unit by a batch, in commit groups."""

    def __init__(self) -> None:
        self.open: list[tuple[Batch, Flight]] = []
        self.committed: list[list[tuple[Batch, Flight]]] = []
        self.registers: list[_Operand] = []  # of uses that are done

    def start(self, batch: Batch, flight: Flight) -> None:
        self.open.append((batch, flight))

    def commit(self) -> None:
        self.committed.append(self.open)
        self.open = []

    def wait(self, pending: int) -> None:
        """All but the last `pending` groups are done."""
        while len(self.committed) > pending:
            for batch, flight in self.committed.pop(0):
                _land(batch, flight)
                self.registers += flight.registers
        if not pending and not self.open:
            for o in self.registers:
                arrive(o.cells, o.elements()[0], writes=True)
            self.registers = []

    @property
    def left(self) -> bool:
        return bool(self.open or self.registers or any(self.committed))


def _land(batch: Batch, flight: Flight) -> None:
    for o in flight.reads:
        arrive(o.cells, o.elements()[0], writes=False)
    for o, values in flight.writes:
        at, lane = o.elements()
        arrive(o.cells, at, writes=True)
        if batch.check:
            check_write(o.cells, at, lane, batch.clock)
        o.write(values)
        o.cells.valid[at] = True


@dataclass
class _Operand:
    """Where the elements of an operand lie for every executing group: shape (groups, *coordinates).

    parts: bytes of an element that the operand takes one by one; 0 where it takes whole elements.
    """

    cells: Cells
    at: Array
    lane: Array  # of the launch
    parts: int = 0

    def elements(self) -> tuple[Array, Array]:
        """The elements touched, each once per lane, and those lanes."""
        at, lane = self.at.reshape(-1), self.lane.reshape(-1)
        if not self.parts:
            return at, lane
        whole = np.unique(np.stack([at // self.parts, lane]), axis=1)
        return whole[0], whole[1]

    def read(self) -> Array:
        data = self.cells.data.view(np.uint8) if self.parts else self.cells.data
        found: Array = data[self.at]
        return found

    def write(self, values: Array) -> None:
        data = self.cells.data.view(np.uint8) if self.parts else self.cells.data
        data[self.at.reshape(-1)] = values.reshape(-1).view(data.dtype)


def run_use(batch: Batch, stmt: Intrin, names: Names, mask: Array) -> None:
    """One Intrin statement for every lane that acts."""
    x: CompiledIntrinsic = compiled(batch.target)[stmt.name]
    members = _members(batch, stmt, x, mask)
    if not len(members):
        return
    sizes = {**x.dims, **{n: _uniform(names.index(d), n) for n, d in stmt.dims}}
    evaluation = Evaluation(batch, names, mask)
    scalars: dict[str, Any] = {}
    views: dict[str, View] = {}
    for name, o in stmt.operands:
        if isinstance(o, View):
            views[name] = o
            continue
        value = evaluation(o) if isinstance(o, Value) else names.index(o)
        each = np.broadcast_to(value, (batch.lanes, 1))[:, 0][members]
        scalars[name] = np.asarray(each[:, 0] if each.ndim > 1 else each).astype(
            numpy_dtype(x.operands[name].dtype)
        )
    fixed = {n: int(v.flat[0]) for n, v in scalars.items() if v.dtype.kind in "iu"}
    operands = {n: _locate(batch, x, n, v, names, members, sizes, fixed) for n, v in views.items()}
    _execute(batch, x, operands, scalars, sizes, len(members))


def _members(batch: Batch, stmt: Intrin, x: CompiledIntrinsic, mask: Array) -> Array:
    """(groups that act, lanes of a group), as positions in the batch."""
    count = x.lanes
    acting = np.broadcast_to(mask, (batch.lanes, 1)).reshape(-1, count)
    come = acting.sum(1)
    partial = (come > 0) & (come < count)
    if partial.any():
        raise LaneFault(f"{stmt.name} needs all {count} lanes of a group; {int(come[partial][0])} act")
    members: Array = np.arange(batch.lanes).reshape(-1, count)[come > 0]
    return members


def _uniform(x: Array, what: str) -> int:
    if np.unique(x).size > 1:
        raise LaneFault(f"extent {what} of an intrinsic differs between lanes")
    return int(x.flat[0])


def _locate(
    batch: Batch, x: CompiledIntrinsic, name: str, view: View, names: Names, members: Array,
    sizes: dict[str, int], scalars: dict[str, int],
) -> _Operand:  # fmt: skip
    cells = batch.cells[view.buffer]
    start: Array = np.zeros((1, 1), np.int64)
    for i, stride in zip(view.index, cells.strides):
        start = start + names.index(i) * stride
    begin = np.broadcast_to(start, (batch.lanes, 1))[:, 0]
    width, parts, size = storage(x.operands[name].dtype).itemsize, 0, cells.size
    if width != cells.itemsize:
        if width != 1 or cells.kind == "private":
            raise LaneFault(
                f"{cells.name} holds {cells.data.dtype}, operand {name} of {x.name} another width"
            )
        parts = cells.itemsize
        begin, size = begin * parts, cells.size * parts
    places = x.layout(name).grid(sizes, scalars)
    lane, item = np.asarray(places.lane), np.asarray(places.item)
    who = members[:, lane]  # (groups, *coordinates)
    inside = begin[who] + item
    if inside.size and (inside.min() < 0 or inside.max() >= size):
        wrong = int(inside.max()) if inside.max() >= size else int(inside.min())
        raise LaneFault(
            f"out of bounds: operand {name} of {x.name} touches element {wrong // max(1, parts)} of {cells.name}"
        )
    align = x.operands[name].align_bytes
    if align and (begin[members] * width % align).any():
        raise LaneFault(f"operand {name} of {x.name} is not aligned to {align} bytes")
    at = inside
    if cells.kind == "private":
        at = inside + who * size
    elif cells.kind == "scratch":
        at = inside + who // batch.clock.group_lanes * size
    return _Operand(cells, at, batch.lane[:, 0][who], parts)


def _execute(
    batch: Batch, x: CompiledIntrinsic, operands: dict[str, _Operand], scalars: dict[str, Array],
    sizes: dict[str, int], groups: int,
) -> None:  # fmt: skip
    counters = batch.counters
    counters.uses[x.name] = counters.uses.get(x.name, 0) + groups
    unit = x.spec.unit if counters.chip.cost(x.name).asynchronous else ""
    arrays = {n: _fetch(batch, operands[n], x.operands[n].dtype, unit) for n in x.reads if n in operands}
    results = _semantics(x, arrays, scalars, sizes, groups)
    written = {n: np.ascontiguousarray(results[n]) for n in x.writes}
    if unit:
        _depart(batch, unit, [operands[n] for n in arrays], [(operands[n], v) for n, v in written.items()])
        return
    for name, values in written.items():
        _put(batch, operands[name], values)


def _fetch(batch: Batch, o: _Operand, dtype: str, unit: str) -> Array:
    at, lane = o.elements()
    if batch.check and not (unit and o.cells.worked_on == unit):
        check_read(o.cells, at, lane, batch.clock)
    batch.counters.access(o.cells, "read", at, lane)
    return _as(o.read(), dtype)


def _put(batch: Batch, o: _Operand, values: Array) -> None:
    at, lane = o.elements()
    if batch.check:
        check_write(o.cells, at, lane, batch.clock)
    batch.counters.access(o.cells, "written", at, lane)
    o.write(values)
    o.cells.valid[at] = True


def _depart(batch: Batch, unit: str, sources: list[_Operand], results: list[tuple[_Operand, Array]]) -> None:
    """The elements are on their way until the matching wait."""
    flight = Flight()
    for o in sources:
        if o.cells.kind != "private":
            flight.reads.append(o)
            depart(o.cells, o.elements()[0], writes=False)
    for o, values in results:
        at, lane = o.elements()
        batch.counters.access(o.cells, "written", at, lane)
        if o.cells.kind == "private":
            if batch.check and o.cells.worked_on != unit:
                check_write(o.cells, at, lane, batch.clock)
            o.write(values)
            o.cells.valid[at] = True
            o.cells.worked_on = unit
            flight.registers.append(o)
        else:
            flight.writes.append((o, values))
        depart(o.cells, at, writes=True)
    batch.copies_of(unit).start(batch, flight)


def _as(x: Array, dtype: str) -> Array:
    """Register bits as the operand's dtype."""
    want = storage(dtype)
    if x.dtype == want:
        return x
    if x.dtype.itemsize != want.itemsize:
        raise LaneFault(f"a buffer of {x.dtype} cannot be an operand of {dtype}: other width")
    return np.ascontiguousarray(x).view(want)


def _semantics(
    x: CompiledIntrinsic,
    arrays: dict[str, Array],
    scalars: dict[str, Array],
    sizes: dict[str, int],
    groups: int,
) -> dict[str, Array]:
    """Written operands for every group: (groups, *coordinates)."""
    together = x.repeated
    if together is not None and not scalars:
        found = together.run(arrays, {**sizes, REPEAT: groups})
        return {n: found[n] for n in x.writes}
    product = _products(x, arrays)
    if product is not None:
        return product
    parts: list[dict[str, Array]] = []
    for g in range(groups):
        given = {n: a[g] for n, a in arrays.items()} | {n: s[g] for n, s in scalars.items()}
        parts.append(x.evaluator.run(given, sizes))
    return {n: np.stack([p[n] for p in parts]) for n in x.writes}


def _products(x: CompiledIntrinsic, arrays: dict[str, Array]) -> dict[str, Array] | None:
    """d = c + a*b of every group by one call of matmul: only where the description leaves the order of sums free."""
    roles = contraction_roles(x.target, x.spec)
    if roles is None or x.spec.rounding != "free" or len(x.writes) != 1:
        return None
    addend = next((n for n in arrays if n not in (roles.a, roles.b)), None)
    a, b, d = (x.coords(n) for n in (roles.a, roles.b, roles.acc))
    if addend is None or len(a) != 2 or len(b) != 2 or len(d) != 2 or x.coords(addend) != d:
        return None
    left = arrays[roles.a] if a[0] == d[0] else arrays[roles.a].swapaxes(1, 2)
    right = arrays[roles.b] if b[1] == d[1] else arrays[roles.b].swapaxes(1, 2)
    wide = numpy_dtype(x.operands[roles.acc].dtype)
    return {roles.acc: arrays[addend] + np.matmul(left.astype(wide), right.astype(wide))}
