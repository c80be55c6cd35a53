"""How many lanes share a row, how wide they read, and whether registers hold it: versions by the length of a row.

Design choice: the fewest lanes whose registers hold the row, because every lane less is an exchange less and more rows
go at once; beyond what a workgroup's registers hold, the row is streamed by a whole workgroup.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower.simt.changes import power_of_two, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.schedules import (
    LaneRowSchedule,
    lanes_reason,
    registers_reason,
    wide_reason,
    workers_reason,
)
from hwsdk.codegen.overrides import Overrides
from hwsdk.graph.dims import Ranges, bounds, floordiv, minimum

WAVES = 8  # lockstep groups of a workgroup
HELD = 32  # elements of one tensor that a lane keeps at most
STEPS = 8  # accesses of a lane per row that one lockstep group still takes alone where nothing is held
DECISIONS = ("lanes", "waves", "wide", "steps")
PART_DECISIONS = ("waves", "wide", "split")
PART = 4  # accesses of a lane that make it worth to bring in another workgroup


@dataclass(frozen=True)
class RowFacts:
    """What decides.  length: elements of a row.  wide: elements of the widest access.  starts: every row begins at a
    multiple of it.  aligned: it ends at one, too.  divisible: the dim that makes it so where it is one (empty: none).
    held: tensors of row length that several passes read.  alone: one lockstep group can do all reductions.
    flat: the row is one iter.
    """

    length: Index
    rows: Index
    wide: int
    starts: bool
    aligned: bool
    divisible: str
    held: int
    alone: bool
    flat: bool
    bits: int  # of the widest element that is held


@dataclass(frozen=True)
class RowVersion:
    """A schedule and where it may run: rows of up to `most` elements (None: any), multiples of `multiple`."""

    schedule: LaneRowSchedule
    most: int | None = None
    multiple: int = 1


def row_versions(chip: SimtChip, facts: RowFacts, ranges: Ranges) -> list[RowVersion]:
    """In the order in which they are tried; the last one takes every row."""
    found: list[RowVersion] = []
    if facts.aligned or facts.wide == 1:
        found = _by_length(chip, facts, facts.wide, ranges)
    else:
        if facts.divisible:
            found = [
                RowVersion(v.schedule, v.most, facts.wide)
                for v in _by_length(chip, facts, facts.wide, ranges)
            ]
        found += _by_length(chip, facts, 1, ranges)
    return found


def changed_rows(
    name: str, chip: SimtChip, facts: RowFacts, planned: list[RowVersion], changes: Overrides, ranges: Ranges
) -> list[RowVersion]:
    """One version as somebody asked for, behind it the one for rows that its registers cannot hold.

    PlanError where lanes cannot share rows in that way.
    """
    plan = changes.apply(name, planned[0].schedule, DECISIONS)
    waves_of(changes, name, chip, plan.waves * chip.width, "waves")
    whole = plan.waves * chip.width
    few = plan.lanes <= chip.width and not plan.lanes & (plan.lanes - 1) and facts.alone
    if not few and plan.lanes != whole:
        changes.refuse(
            name, f"lanes {plan.lanes}: a row has a power of two up to {chip.width} lanes, or all {whole}"
        )
    if not facts.flat and plan.lanes != planned[0].schedule.lanes:
        changes.refuse(
            name, f"lanes {plan.lanes}: rows over several dims have {planned[0].schedule.lanes} here"
        )
    _check_access(name, chip, facts, plan, changes)
    plan = replace(plan, rows=whole // plan.lanes)
    multiple = plan.wide if not facts.starts else 1
    room = plan.lanes * plan.wide * plan.steps
    least, most = bounds(facts.length, ranges)
    if not plan.steps or (isinstance(most, int) and most <= room):
        room = 0
    elif isinstance(least, int) and least > room:
        changes.refuse(
            name, f"steps {plan.steps}: {plan.lanes} lanes then hold {room} elements of rows of {least}"
        )
    if not room and multiple == 1:
        return [RowVersion(plan)]
    return [RowVersion(plan, room or None, multiple), RowVersion(planned[-1].schedule)]


def _check_access(
    name: str, chip: SimtChip, facts: RowFacts, plan: LaneRowSchedule, changes: Overrides
) -> None:
    power_of_two(changes, name, "wide", plan.wide, facts.wide)
    if plan.wide > 1 and not facts.starts and not facts.divisible:
        changes.refuse(name, f"wide {plan.wide}: rows begin at any element")
    if plan.steps and not facts.held:
        changes.refuse(name, f"steps {plan.steps}: no pass reads again what registers could hold")


def _by_length(chip: SimtChip, facts: RowFacts, wide: int, ranges: Ranges) -> list[RowVersion]:
    """From the shortest rows to any."""
    least, most = bounds(facts.length, ranges)
    out: list[RowVersion] = []
    for lanes, waves in _teams(chip, facts, isinstance(facts.length, int)):
        room = lanes * _elements(chip, facts, wide)
        if isinstance(least, int) and least > room:
            continue
        exact = (
            -(-facts.length // (lanes * wide)) if isinstance(facts.length, int) else room // (lanes * wide)
        )
        out.append(RowVersion(_schedule(chip, lanes, waves, wide, exact if facts.held else 0), room))
        if isinstance(most, int) and most <= room:
            return [*out[:-1], RowVersion(out[-1].schedule)]
    return [*out, RowVersion(streamed(chip, wide))]


def streamed(chip: SimtChip, wide: int, split: int = 1) -> LaneRowSchedule:
    """A workgroup for a row of any length."""
    waves = chip.waves(WAVES)
    plan = _schedule(chip, waves * chip.width, waves, wide, 0)
    return replace(plan, split=split, why=(*plan.why, workers_reason(chip, "split", split)))


def _teams(chip: SimtChip, facts: RowFacts, known: bool) -> list[tuple[int, int]]:
    """(lanes that share a row, lockstep groups of a workgroup), fewest first."""
    waves = chip.waves(WAVES)
    out: list[tuple[int, int]] = []
    if facts.alone:
        some = [chip.width >> s for s in range(3, 0, -1)] if known and facts.flat else []
        out += [(lanes, chip.waves(WAVES // 2)) for lanes in (*some, chip.width) if lanes]
    if waves > 1 and facts.held:
        out.append((waves * chip.width, waves))
    return out if facts.flat else out[:1]


def _schedule(chip: SimtChip, lanes: int, waves: int, wide: int, steps: int) -> LaneRowSchedule:
    rows = max(1, waves * chip.width // lanes)
    why = (
        lanes_reason(chip, lanes),
        lanes_reason(chip, rows, "rows"),
        wide_reason(chip, wide),
        registers_reason(chip, "steps", steps),
    )
    return LaneRowSchedule(lanes, rows, waves, wide, steps, why=why)


def _elements(chip: SimtChip, facts: RowFacts, wide: int) -> int:
    """Elements of a row that one lane takes: what half of its registers hold of every held tensor."""
    if not facts.held:
        return STEPS * wide
    registers = chip.registers
    size = int(registers.width_bytes) if isinstance(registers.width_bytes, int) else 4
    free = (size * (registers.count or 64) - (registers.reserved_bytes or 0)) // 2
    room = free // (facts.held * max(size, facts.bits // 8))
    most = HELD if wide > 1 else HELD // 2
    return max(wide, 1 << (min(room, most).bit_length() - 1) if room else 1)


def parts_of(chip: SimtChip, facts: RowFacts, ranges: Ranges) -> LaneRowSchedule | None:
    """How workgroups that share a row of a reduction take it; None where one is enough."""
    workers = chip.target.workers()
    _, rows = bounds(facts.rows, ranges)
    _, length = bounds(facts.length, ranges)
    own = chip.waves(WAVES) * chip.width * (facts.wide if facts.starts else 1) * PART
    if not isinstance(rows, int) or rows * 2 > workers or (isinstance(length, int) and length <= 2 * own):
        return None
    wide = facts.wide if facts.starts else 1
    return streamed(chip, wide, max(2, 2 * workers // max(1, rows)))


def changed_parts(
    name: str, chip: SimtChip, facts: RowFacts, planned: LaneRowSchedule, changes: Overrides
) -> LaneRowSchedule:
    """The same as somebody asked for."""
    plan = changes.apply(name, planned, PART_DECISIONS)
    lanes = plan.waves * chip.width
    waves_of(changes, name, chip, lanes, "waves")
    _check_access(name, chip, facts, plan, changes)
    return replace(plan, lanes=lanes, rows=1)


def parts(plan: LaneRowSchedule, facts: RowFacts) -> Index:
    """Workgroups that share a row: as many as have PART accesses each."""
    return minimum(plan.split, floordiv(facts.length, plan.lanes * plan.wide * PART) + 1)
