"""One use of an intrinsic: operands fetched and checked, semantics executed, results stored, at once or at
the wait.

Elements that the semantics does not touch (a false mask) may be out of bounds or uninitialised.  Which they
are follows from the semantics itself: such elements get two different fillings, and what comes out must not
depend on them; an element of a destination that keeps both fillings was not written.

Design choice: the usual use, where every element is fine, pays nothing for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Intrin, View
from hwsdk.intrinsics import CompiledIntrinsic, SemanticsError
from hwsdk.sim import faults
from hwsdk.sim.cells import MAX_READERS, PENDING, READING, VALID, Array, Cell, Integers
from hwsdk.sim.chip import Chip
from hwsdk.sim.faults import Fault
from hwsdk.sim.places import Place, PlaceMaker
from hwsdk.sim.timeline import Operand


@dataclass
class Pending:
    """An asynchronous use that was not waited for.  group: number of the commit that took it, None before."""

    until: float
    writes: list[tuple[Cell, Place, int, Array, Any]]
    reads: list[Operand]
    group: int | None = None
    statement: int = 0


class Use:
    """One Intrin statement made ready."""

    def __init__(self, chip: Chip, stmt: Intrin, number: int) -> None:
        self.number, self.chip = number, chip
        self.intrinsic: CompiledIntrinsic = chip.intrinsics[stmt.name]
        self.views = [n for n, o in stmt.operands if isinstance(o, View)]
        self.scalars = [n for n, o in stmt.operands if not isinstance(o, View)]
        self.dims = [n for n, _ in stmt.dims]
        self.makers = {n: PlaceMaker(self.intrinsic, n) for n in self.views}
        self.reads = [n for n in self.views if n in self.intrinsic.reads]
        self.writes = [n for n in self.views if n in self.intrinsic.writes]
        self.cost = chip.cost(stmt.name)
        self.order = list(chip.target.intrinsics).index(stmt.name) + 1
        self.align = {n: self.intrinsic.operands[n].align_bytes or 0 for n in self.views}
        self.scalar_types = {n: self.intrinsic.operands[n].dtype for n in self.scalars}
        semantics = self.intrinsic.spec.semantics
        self.conditional = " where " in semantics
        self.selective = self.conditional or "select(" in semantics
        self.whole = self.intrinsic.dims
        self.statement = stmt
        self._operations: dict[tuple[int, ...], int] = {}

    def interval(self, dims: tuple[int, ...]) -> float:
        """Cycles that a use keeps its unit.  A library operation takes its operations at the rate of
        another."""
        cost = self.intrinsic.spec.cost
        return self.cost.interval if cost.of is None else self.library(dims)

    def library(self, dims: tuple[int, ...]) -> float:
        cost, chip = self.intrinsic.spec.cost, self.chip
        assert cost.of is not None
        other = chip.intrinsics[cost.of]
        rate = other.ops / chip.cost(cost.of).interval * chip.units[other.spec.unit].count
        overhead = (cost.overhead_us or 0.0) * chip.clock_ghz * 1000
        return self.operations(dims) / (rate * (cost.efficiency or 1.0)) + overhead

    def operations(self, dims: tuple[int, ...]) -> int:
        """Arithmetic operations of a use with these run-time extents."""
        found = self._operations.get(dims)
        if found is None:
            found = self._operations[dims] = self.intrinsic.operations(dict(zip(self.dims, dims)))
        return found


@dataclass
class Bound:
    """The operands of one use: cell, elements, base of each view; values of scalars; extents."""

    use: Use
    dims: Mapping[str, int]
    operands: dict[str, Operand]
    scalars: dict[str, Any]
    me: int
    empty: bool = False
    fetched: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(
        use: Use, views: tuple[Any, ...], scalars: tuple[Any, ...], extents: tuple[int, ...], me: int
    ) -> Bound:
        intrinsic = use.intrinsic
        given = dict(zip(use.dims, extents))
        values = dict(zip(use.scalars, scalars))
        try:
            if given:
                intrinsic.check_extents(given)
            dims = {**use.whole, **given}
            operands = {}
            for name, (cell, index) in zip(use.views, views):
                place = use.makers[name](dims, values)
                operands[name] = (cell, place, _base(cell, index, place.size, name))
        except SemanticsError as error:
            raise Fault(str(error)) from None
        bound = Bound(use, dims, operands, values, me)
        bound.empty = any(n == 0 for n in given.values())
        for name, align in use.align.items():
            cell, place, base = operands[name]
            if align and place.size and base * cell.itemsize % align:
                raise Fault(f"operand {name} at {cell.element(base)} is not aligned to {align} bytes")
        return bound

    def execute(self) -> dict[str, tuple[Array, Any]]:
        """The semantics: for each written operand its elements, and which of them are written (None: all)."""
        use = self.use
        suspects: dict[str, Any] = {}
        arrays: dict[str, Any] = dict(self.scalars)
        for name in use.reads:
            arrays[name], bad = self.fetch(name)
            if bad is not None:
                suspects[name] = bad
        kept = [n for n in use.writes if use.conditional and n not in use.reads]
        if not suspects and not use.conditional:
            results = use.intrinsic.evaluate(arrays, self.dims, check=False)
            return {n: (results[n], None) for n in use.writes}
        runs = []
        for filling in (0, 1):
            filled = {n: _filled(arrays[n], bad, filling) for n, bad in suspects.items()}
            for name in kept:
                cell, place, _ = self.operands[name]
                filled[name] = np.full(place.shape, _FILLINGS[cell.dtype.kind][filling]).astype(cell.dtype)
            runs.append(use.intrinsic.evaluate({**arrays, **filled}, self.dims, check=False))
        return {
            n: self.compared(n, runs[0][n], runs[1][n], arrays.get(n), suspects, kept) for n in use.writes
        }

    def compared(
        self, name: str, one: Array, two: Array, old: Any, suspects: Mapping[str, Any], kept: list[str]
    ) -> tuple[Array, Any]:
        same = _same(one, two)
        if name in kept:
            return one, same  # an element that kept two different fillings was not written
        if name in suspects:
            untouched = suspects[name] & ~same
            changed = ~_same(one, _filled(old, suspects[name], 0)) & untouched
            if changed.any():
                self.refuse(suspects)
            return one, ~untouched
        if not same.all():
            self.refuse(suspects)
        return one, (None if not self.use.conditional else ~_same(one, old) if old is not None else None)

    def refuse(self, suspects: Mapping[str, Any]) -> None:
        """The result depends on elements that may not be read: say which."""
        for name, bad in suspects.items():
            cell, place, base = self.operands[name]
            where = place.at(base)[bad]
            outside = (where < 0) | (where >= cell.size)
            if outside.any():
                raise Fault(
                    f"out of bounds: operand {name} reads element {int(where[outside][0])} of {cell.name}"
                )
            faults.check_read_at(cell, where)

    def fetch(self, name: str) -> tuple[Array, Any]:
        """The operand as a logical tensor, and the elements that may not be read (None: all may)."""
        cell, place, base = self.operands[name]
        if not self.use.selective or place.inside(cell, base):
            place.require(cell, base, name)
            array = _read(cell, place, base)
            if not cell.state or not place.size:
                return array, None
            states = _states(cell, place, base)
            good = (states & (VALID | PENDING)) == VALID
            if good.all():
                return array, None
            if not self.use.selective:
                faults.check_read_at(cell, place.at(base))
            return array, ~good
        where = place.at(base)
        outside = (where < 0) | (where >= cell.size)
        inside = np.where(outside, 0, where)
        array = cell.flat[inside] if cell.size else np.zeros(where.shape, cell.dtype)
        bad = outside if not cell.state else outside | ((cell.valid[inside] & (VALID | PENDING)) != VALID)
        return array, bad

    # -------------------------------------------------------------------------------------------------
    # effects
    def watch(self, results: Mapping[str, tuple[Array, Any]]) -> None:
        """Races: against asynchronous copies, and between iterations of the parallel loop."""
        for name in self.use.reads:
            cell, place, base = self.operands[name]
            if self.me and cell.writers and place.size:
                faults.race_read_at(cell, self.me, _touched(place, base, None, cell))
        for name, (_, mask) in results.items():
            cell, place, base = self.operands[name]
            if mask is None:
                place.require(cell, base, name)
            where = _touched(place, base, mask, cell)
            if not where.size:
                continue
            if int(where.min()) < 0 or int(where.max()) >= cell.size:
                place.require(cell, base, name)
            if cell.state:
                faults.check_write_at(cell, where)
            if self.me and cell.writers:
                faults.race_write_at(cell, self.me, where)

    def start(self, results: Mapping[str, tuple[Array, Any]], until: float, statement: int) -> Pending:
        """The asynchronous effect: the elements are on their way."""
        pending = Pending(until, [], [self.operands[n] for n in self.use.reads], statement=statement)
        for cell, place, base in pending.reads:
            if cell.state and place.size:
                where = place.at(base)
                if int(cell.valid[where].max()) >> 2 >= MAX_READERS:
                    raise Fault(f"more than {MAX_READERS} copies that were not waited for read {cell.name}")
                cell.valid[where] += READING
        for name, (array, mask) in results.items():
            cell, place, base = self.operands[name]
            pending.writes.append((cell, place, base, np.array(array, copy=True), mask))
            if cell.state and place.size:
                cell.valid[_touched(place, base, mask, cell)] |= PENDING
        return pending


def store(cell: Cell, place: Place, base: int, array: Array, mask: Any) -> None:
    """Writes the elements of an operand."""
    if not place.size:
        return
    if place.strides is not None and mask is None:
        place.view(cell.raw, cell.dtype, cell.itemsize, base)[...] = array
        if cell.state:
            place.view(cell.state, np.uint8, 1, base)[...] = VALID
        return
    where = _touched(place, base, mask, cell)
    cell.flat[where] = _spread(array, place) if mask is None else np.asarray(array)[mask]
    if cell.state:
        cell.valid[where] = VALID


def complete(pending: Pending) -> None:
    """What was on its way is there."""
    for cell, place, base in pending.reads:
        if cell.state and place.size:
            cell.valid[place.at(base)] -= READING
    for cell, place, base, array, mask in pending.writes:
        store(cell, place, base, array, mask)


def _base(cell: Cell, index: tuple[int, ...], size: int, operand: str) -> int:
    offset = 0
    for axis, i in enumerate(index):
        if size and not 0 <= i < cell.shape[axis]:
            raise Fault(
                f"out of bounds: operand {operand} begins at index {i} of axis {axis} of {cell.name},"
                f" which is outside 0..{cell.shape[axis] - 1}"
            )
        offset += i * cell.strides[axis]
    return offset


def _read(cell: Cell, place: Place, base: int) -> Array:
    if not place.size:
        return np.zeros(place.shape, cell.dtype)
    if place.strides is not None:
        return place.view(cell.raw, cell.dtype, cell.itemsize, base)
    values = cell.flat[place.at(base)]
    return values


def _states(cell: Cell, place: Place, base: int) -> Any:
    if place.strides is not None:
        return place.view(cell.state, np.uint8, 1, base)
    return cell.valid[place.at(base)]


def _touched(place: Place, base: int, mask: Any, cell: Cell) -> Integers:
    where = place.at(base)
    return where if mask is None else where[mask]


def _spread(array: Array, place: Place) -> Array:
    """Replicas of an operand hold the same values: further axes of the place."""
    extra = len(place.shape) - np.ndim(array)
    return (
        array
        if not extra
        else np.broadcast_to(np.reshape(array, np.shape(array) + (1,) * extra), place.shape)
    )


_FILLINGS: dict[str, tuple[Any, Any]] = {
    "b": (False, True),
    "f": (3.0, -5.0),
    "i": (3, 5),
    "u": (3, 5),
    "V": (3.0, -5.0),
}


def _filled(array: Any, bad: Any, filling: int) -> Array:
    array = np.asarray(array)
    other = np.full(array.shape, _FILLINGS[array.dtype.kind][filling]).astype(array.dtype)
    return np.where(bad, other, array)


def _same(one: Array, two: Array) -> Any:
    """Bit for bit."""
    one, two = np.ascontiguousarray(one), np.ascontiguousarray(two)
    if one.dtype == bool or one.dtype.itemsize == 1:
        return one.view(np.uint8).reshape(one.shape) == two.view(np.uint8).reshape(two.shape)
    kind = np.dtype(f"u{one.dtype.itemsize}")
    return one.view(kind).reshape(one.shape) == two.view(kind).reshape(two.shape)
