"""A loop of uses of one intrinsic as one NumPy operation.

What `For u < n { use f(...) }` does may be done at once when no use touches what another writes, and when every
use would succeed.  Both are looked up here with the numbers of the moment: where each operand begins, how far
it moves from one use to the next, what its elements hold.  Values, times, states and counts are those of the
uses one by one; when anything is unusual nothing is done, and the uses run one by one (and fault where they
should).

Design choice: the loop stays the definition and this is only speed, so every doubt ends in "no".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.intrinsics import SemanticsError
from hwsdk.intrinsics.repeat import REPEAT
from hwsdk.sim.cells import PENDING, VALID, Cell
from hwsdk.sim.faults import Fault
from hwsdk.sim.places import Place, Spot, spot
from hwsdk.sim.uses import Plan, Use

_LIMIT = 4096  # facts kept per use
View = tuple[Cell, Any, Any]  # cell, first index, what each use adds to it; or cell, all indices, None


class Repeat:
    """`count` uses with one plan whose operands move by fixed steps.

    places: of each operand over all uses, the use as first axis.  still, apart: does an operand stay where it
    is, or are its elements different ones in every use?  (Neither: they overlap.)
    """

    __slots__ = ("apart", "count", "dims", "known", "places", "plan", "still")

    def __init__(self, use: Use, plan: Plan, count: int, steps: tuple[int, ...]) -> None:
        self.plan, self.count = plan, count
        self.dims = {**use.intrinsic.dims, **plan.dims, REPEAT: count}
        self.places = [
            use.chip.place((count, *p.shape), (step, *(p.strides or ())))
            for p, step in zip(plan.places, steps)
        ]
        self.still = [step == 0 for step in steps]
        self.apart = [_apart(p) for p in self.places]
        self.known: dict[tuple[int, int, int], bool] = {}

    def separate(self, use: Use, spots: list[Spot]) -> bool:
        """Does every use write what no other use touches?"""
        for i in use.writes:
            if not self.apart[i]:
                return False
            written = spots[i]
            for j, other in enumerate(spots):
                if j == i or other.cell is not written.cell:
                    continue
                key = (i, j, other.base - written.base)
                found = self.known.get(key)
                if found is None:
                    found = self.known[key] = _separate(self.places[i], self.places[j], key[2])
                if not found:
                    return False
        return True


def _straight(cell: Cell, index: tuple[int, ...], by: tuple[int, ...], count: int) -> tuple[int, int] | None:
    """First offset and step of an operand that begins at index, index + by, ...; None if one is outside."""
    base = step = 0
    for first, add, extent, stride in zip(index, by, cell.shape, cell.strides):
        if not (0 <= first < extent and 0 <= first + add * (count - 1) < extent):
            return None
        base += first * stride
        step += add * stride
    return base, step


def _listed(cell: Cell, indices: list[tuple[int, ...]]) -> tuple[int, int] | None:
    """The same for any indices; None, too, if the steps differ."""
    at = np.array(indices, np.int64).reshape(len(indices), -1)
    if (at < 0).any() or (at >= np.array(cell.shape)).any():
        return None
    offsets = at @ np.array(cell.strides, np.int64)
    steps = np.diff(offsets)
    return (int(offsets[0]), int(steps[0])) if (steps == steps[0]).all() else None


def _repeat(use: Use, plan: Plan, count: int, steps: tuple[int, ...]) -> Repeat:
    key = (plan, count, steps)
    found: Repeat | None = use.repeats.get(key)
    if found is None:
        if len(use.repeats) >= _LIMIT:
            use.repeats.clear()
        found = use.repeats[key] = Repeat(use, plan, count, steps)
    return found


def _apart(place: Place) -> bool:
    """Is every element of the place another one of the cell?  (False may still be wrong.)"""
    reach = 0
    for stride, extent in sorted(zip(map(abs, place.strides or ()), place.shape)):
        if extent > 1:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True


def _separate(written: Place, other: Place, distance: int) -> bool:
    """Do uses touch elements of `other`, `distance` behind, that only they themselves write?"""
    if distance + other.low > written.high or distance + other.high < written.low:
        return True
    owner = {int(at): k for k, row in enumerate(written.at(0)) for at in np.ravel(row)}
    return all(owner.get(int(at), k) == k for k, row in enumerate(other.at(distance)) for at in np.ravel(row))


def possible(use: Use) -> bool:
    """May uses of this intrinsic ever be one operation?"""
    cost = use.cost
    plain = cost.unit.kind != "dma" and not cost.asynchronous
    affine = all(m.affine and not m.layout.has_lane for m in use.makers)
    return plain and affine and use.intrinsic.repeated is not None


def prepare(use: Use, plan: Plan, views: tuple[View, ...], count: int) -> tuple[Repeat, list[Spot]] | None:
    """The uses made ready; None where one of them may fault or depend on another."""
    bases, steps = [], []
    for align, (cell, index, by) in zip(use.align, views):
        found = _straight(cell, index, by, count) if by is not None else _listed(cell, index[:count])
        if found is None:
            return None
        base, step = found
        if align and (base * cell.itemsize % align or step * cell.itemsize % align):
            return None
        bases.append(base)
        steps.append(step)
    repeat = _repeat(use, plan, count, tuple(steps))
    spots = [spot(view[0], place, base) for view, place, base in zip(views, repeat.places, bases)]
    for at in spots:
        if not at.whole or at.cell.writers:
            return None
    if not all(_readable(spots[i]) for i in use.reads) or not all(_writable(spots[i]) for i in use.writes):
        return None
    return (repeat, spots) if repeat.separate(use, spots) else None


def _readable(at: Spot) -> bool:
    cell = at.cell
    if not cell.state:
        return True
    if at.place.dense:
        return cell.state.count(1, at.base, at.base + at.place.size) == at.place.size
    if cell.asynchronous:
        return bool(((at.states & (VALID | PENDING)) == VALID).all())
    return bool(at.states.all())


def _writable(at: Spot) -> bool:
    cell = at.cell
    if cell.param:  # params may share storage with one another
        return False
    return not (cell.asynchronous and cell.state) or int(at.states.max()) <= VALID


def execute(use: Use, repeat: Repeat, spots: list[Spot], scalars: tuple[Any, ...]) -> bool:
    """Values and states after the uses; False (and nothing is changed) if the semantics has no value."""
    arrays: dict[str, Any] = dict(zip(use.scalars, scalars))
    for i in use.reads:
        arrays[use.views[i]] = spots[i].data
    assert use.intrinsic.repeated is not None
    try:
        results = use.intrinsic.repeated.execute(arrays, repeat.dims)
    except SemanticsError:
        return False
    for i in use.writes:
        spots[i].write(results[use.views[i]], None)
    return True


def plan_of(use: Use, scalars: tuple[Any, ...], extents: tuple[int, ...]) -> Plan | None:
    """The plan of each use; None if it faults or does nothing."""
    try:
        plan = use.plan(scalars, extents)
    except Fault:
        return None
    return None if plan.empty else plan
