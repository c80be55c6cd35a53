"""One use of an intrinsic: operands fetched and checked, semantics executed, results stored, at once or at
the wait.

Elements that the semantics does not touch (a false mask) may be out of bounds or uninitialised.  Which they
are follows from the semantics itself: such elements get two different fillings, and what comes out must not
depend on them; an element of a destination that keeps both fillings was not written.

Design choice: the usual use, where every element is fine, pays nothing for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Intrin, View
from hwsdk.intrinsics import CompiledIntrinsic, SemanticsError
from hwsdk.sim import faults
from hwsdk.sim.cells import MAX_READERS, PENDING, READING, VALID, Array, Cell
from hwsdk.sim.chip import Chip
from hwsdk.sim.faults import Fault
from hwsdk.sim.places import Place, Spot, spot

Results = Mapping[
    str, tuple[Array, Any]
]  # written operand -> its elements, and which are written (None: all)


@dataclass(frozen=True, eq=False)
class Plan:
    """A use with given extents and strides: everything that does not depend on where its operands lie."""

    dims: Mapping[str, int]
    sizes: Mapping[str, int]  # with the extents that are not passed
    places: tuple[Place, ...]
    operations: int
    interval: float
    empty: bool


@dataclass
class Pending:
    """An asynchronous use that was not waited for.  group: number of the commit that took it, None before."""

    until: float
    writes: list[tuple[Spot, Array, Any]]
    reads: list[Spot]
    statement: int
    group: int | None = None


class Use:
    """One Intrin statement made ready."""

    def __init__(self, chip: Chip, stmt: Intrin, number: int, homes: Mapping[str, str]) -> None:
        self.number, self.chip = number, chip
        self.intrinsic: CompiledIntrinsic = chip.intrinsics[stmt.name]
        self.views = [n for n, o in stmt.operands if isinstance(o, View)]
        self.places = [
            homes[o.buffer] for _, o in stmt.operands if isinstance(o, View)
        ]  # memories of the views
        self.scalars = [n for n, o in stmt.operands if not isinstance(o, View)]
        self.dims = [n for n, _ in stmt.dims]
        self.makers = [chip.place_maker(stmt.name, n) for n in self.views]
        self.reads = [i for i, n in enumerate(self.views) if n in self.intrinsic.reads]
        self.writes = [i for i, n in enumerate(self.views) if n in self.intrinsic.writes]
        self.both = [i for i in self.reads if i in self.writes]
        self.cost = chip.cost(stmt.name)
        self.order = list(chip.target.intrinsics).index(stmt.name) + 1
        self.align = [self.intrinsic.operands[n].align_bytes or 0 for n in self.views]
        semantics = self.intrinsic.spec.semantics
        self.conditional = " where " in semantics
        self.selective = self.conditional or "select(" in semantics
        self.shaping = [i for i, n in enumerate(self.scalars) if any(n in m.scalars for m in self.makers)]
        self.plans: dict[tuple[int, ...], Plan] = {}
        self.repeats: dict[Any, Any] = {}  # what `repeats` found out about loops of this use

    def plan(self, scalars: tuple[Any, ...], extents: tuple[int, ...]) -> Plan:
        """The plan for these extents and strides."""
        key = (*extents, *(int(scalars[i]) for i in self.shaping)) if self.shaping else extents
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = self._plan(scalars, extents)
        return found

    def _plan(self, scalars: tuple[Any, ...], extents: tuple[int, ...]) -> Plan:
        given = dict(zip(self.dims, extents))
        values = dict(zip(self.scalars, scalars))
        try:
            self.intrinsic.check_extents(given)
            sizes = {**self.intrinsic.dims, **given}
            places = tuple(make(sizes, values) for make in self.makers)
        except SemanticsError as error:
            raise Fault(str(error)) from None
        operations = self.intrinsic.operations(given)
        empty = any(n == 0 for n in extents)
        return Plan(given, sizes, places, operations, self.interval(operations), empty)

    def interval(self, operations: int) -> float:
        """Cycles that a use keeps its unit.  A library operation takes its operations at the rate of
        another."""
        cost, chip = self.intrinsic.spec.cost, self.chip
        if cost.of is None:
            return self.cost.interval
        other = chip.intrinsics[cost.of]
        rate = other.ops / chip.cost(cost.of).interval * chip.units[other.spec.unit].count
        return (
            operations / (rate * (cost.efficiency or 1.0)) + (cost.overhead_us or 0.0) * chip.clock_ghz * 1000
        )


class Bound:
    """The operands of one use: their spots, the values of scalars."""

    __slots__ = ("me", "plan", "scalars", "spots", "use")

    def __init__(
        self, use: Use, views: Sequence[Any], scalars: tuple[Any, ...], extents: tuple[int, ...], me: int
    ):
        self.use, self.me = use, me
        self.plan = plan = use.plan(scalars, extents)
        self.scalars = scalars
        self.spots: list[Spot] = []
        for i, (cell, index) in enumerate(views):
            base = self.base(i, cell, index)
            self.spots.append(spot(cell, plan.places[i], base))

    def base(self, number: int, cell: Cell, index: tuple[int, ...]) -> int:
        """The offset where an operand begins."""
        offset, size, use = 0, self.plan.places[number].size, self.use
        for axis, i in enumerate(index):
            if size and not 0 <= i < cell.shape[axis]:
                raise Fault(
                    f"out of bounds: operand {use.views[number]} begins at index {i} of axis {axis} of {cell.name},"
                    f" which is outside 0..{cell.shape[axis] - 1}"
                )
            offset += i * cell.strides[axis]
        align = use.align[number]
        if align and size and offset * cell.itemsize % align:
            raise Fault(
                f"operand {use.views[number]} at {cell.element(offset)} is not aligned to {align} bytes"
            )
        return offset

    # ------------------------------------------------------------ semantics
    def execute(self) -> Results:
        """The semantics executed."""
        use, names = self.use, self.use.views
        arrays: dict[str, Any] = dict(zip(use.scalars, self.scalars))
        suspects: dict[str, Any] = {}
        for i in use.reads:
            arrays[names[i]], bad = self.fetch(i)
            if bad is not None:
                suspects[names[i]] = bad
        if not suspects and not use.conditional:
            results = use.intrinsic.evaluator.execute(arrays, self.plan.sizes)
            return {n: (a, None) for n, a in results.items()}
        return self.twice(arrays, suspects)

    def twice(self, arrays: dict[str, Any], suspects: Mapping[str, Any]) -> Results:
        """Executed with two fillings of what may not be read and of what is only written."""
        use, names = self.use, self.use.views
        kept = {names[i]: self.spots[i] for i in use.writes if use.conditional and i not in use.reads}
        runs = []
        for filling in (0, 1):
            filled = {n: _filled(arrays[n], bad, filling) for n, bad in suspects.items()}
            for name, at in kept.items():
                kind = at.cell.dtype
                filled[name] = np.full(at.place.shape, _FILLINGS[kind.kind][filling]).astype(kind)
            runs.append(use.intrinsic.evaluator.run({**arrays, **filled}, self.plan.sizes))
        results: dict[str, tuple[Array, Any]] = {}
        for i in use.writes:
            name = names[i]
            one, same = runs[0][name], _same(runs[0][name], runs[1][name])
            if name in kept:
                results[name] = one, same  # an element that kept both fillings was not written
            elif name in suspects:
                untouched = suspects[name] & ~same
                if (~_same(one, _filled(arrays[name], suspects[name], 0)) & untouched).any():
                    self.refuse(suspects)
                results[name] = one, ~untouched
            else:
                if not same.all():
                    self.refuse(suspects)
                changed = ~_same(one, arrays[name]) if use.conditional and name in arrays else None
                results[name] = one, changed
        return results

    def refuse(self, suspects: Mapping[str, Any]) -> None:
        """The result depends on elements that may not be read: say which."""
        for name, bad in suspects.items():
            at = self.spots[self.use.views.index(name)]
            where = at.offsets()[bad]
            outside = (where < 0) | (where >= at.cell.size)
            if outside.any():
                raise Fault(
                    f"out of bounds: operand {name} reads element {int(where[outside][0])} of {at.cell.name}"
                )
            faults.check_read_at(at.cell, where)

    def fetch(self, number: int) -> tuple[Array, Any]:
        """The operand as a logical tensor, and the elements that may not be read (None: all may)."""
        at, selective = self.spots[number], self.use.selective
        cell, place = at.cell, at.place
        if at.whole:
            if not cell.state or not place.size or _initialised(at):
                return at.read(), None
            bad = (at.states if at.states is not None else cell.valid[at.offsets()]) & (
                VALID | PENDING
            ) != VALID
            if bad.any() and not selective:
                faults.check_read_at(cell, at.offsets())
            return at.read(), bad if bad.any() else None
        if not selective:
            at.require(self.use.views[number])
        where = at.offsets()
        outside = (where < 0) | (where >= cell.size)
        inside = np.where(outside, 0, where)
        array = cell.flat[inside] if cell.size else np.zeros(where.shape, cell.dtype)
        bad = outside if not cell.state else outside | ((cell.valid[inside] & (VALID | PENDING)) != VALID)
        return array, bad

    # ------------------------------------------------------------ effects
    def watch(self, results: Results) -> None:
        """Bounds of what is written; races against asynchronous copies, and between iterations."""
        use = self.use
        for i in use.reads if self.me else ():
            at = self.spots[i]
            if at.cell.writers and at.place.size:
                faults.race_read_at(at.cell, self.me, at.offsets())
        for i in use.writes:
            self.watch_write(self.spots[i], results[use.views[i]][1], use.views[i])

    def watch_write(self, at: Spot, mask: Any, operand: str) -> None:
        shared = bool(self.me and at.cell.writers)
        if mask is None:
            at.require(operand)
            if not shared and (not at.cell.asynchronous or _idle(at)):
                return
        where = at.touched(mask)
        if not where.size:
            return
        if not at.whole and (int(where.min()) < 0 or int(where.max()) >= at.cell.size):
            at.require(operand)
        if at.cell.state:
            faults.check_write_at(at.cell, where)
        if shared:
            faults.race_write_at(at.cell, self.me, where)

    def store(self, results: Results) -> None:
        """The effect, at once."""
        for i in self.use.writes:
            self.spots[i].write(*results[self.use.views[i]])

    def start(self, results: Results, until: float) -> Pending:
        """The asynchronous effect: the elements are on their way."""
        pending = Pending(until, [], [self.spots[i] for i in self.use.reads], self.use.number)
        for at in pending.reads:
            if at.cell.state and at.place.size:
                states = at.states if at.states is not None else at.cell.valid[at.offsets()]
                if int(states.max()) >> 2 >= MAX_READERS:
                    raise Fault(
                        f"more than {MAX_READERS} copies that were not waited for read {at.cell.name}"
                    )
                _add(at, READING)
        for i in self.use.writes:
            at, (array, mask) = self.spots[i], results[self.use.views[i]]
            pending.writes.append((at, np.array(array, copy=True), mask))
            if at.cell.state and at.place.size:
                if at.states is not None and mask is None:
                    np.bitwise_or(at.states, PENDING, out=at.states)
                else:
                    at.cell.valid[at.touched(mask)] |= PENDING
        return pending


def complete(pending: Pending) -> None:
    """What was on its way is there."""
    for at in pending.reads:
        if at.cell.state and at.place.size:
            _add(at, -READING)
    for at, array, mask in pending.writes:
        at.write(array, mask)


def _add(at: Spot, change: int) -> None:
    """Counts asynchronous readers of the elements."""
    amount = np.uint8(change & 255)  # wraps
    if at.states is not None:
        np.add(at.states, amount, out=at.states)
    else:
        at.cell.valid[at.offsets()] += amount


def _idle(at: Spot) -> bool:
    """Is no copy at work on the elements?  (A quick yes; False may still be right.)"""
    return at.states is not None and int(at.states.max()) <= VALID


def _initialised(at: Spot) -> bool:
    """Are all elements initialised and no copy at work?  (A quick yes; False may still be right.)"""
    place = at.place
    if place.dense:
        return at.cell.state.count(1, at.base, at.base + place.size) == place.size
    return at.states is not None and not at.cell.asynchronous and bool(at.states.all())


_FILLINGS: dict[str, tuple[Any, Any]] = {
    "b": (False, True), "f": (3.0, -5.0), "i": (3, 5), "u": (3, 5), "V": (3.0, -5.0),
}  # fmt: skip


def _filled(array: Any, bad: Any, filling: int) -> Array:
    array = np.asarray(array)
    other = np.full(array.shape, _FILLINGS[array.dtype.kind][filling]).astype(array.dtype)
    return np.where(bad, other, array)


def _same(one: Array, two: Array) -> Any:
    """Bit for bit."""
    kind = np.dtype(f"u{one.dtype.itemsize}")
    one, two = np.ascontiguousarray(one), np.ascontiguousarray(two)
    return one.view(kind).reshape(one.shape) == two.view(kind).reshape(two.shape)
