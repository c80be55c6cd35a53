"""How many lanes share a row, how wide they read, and whether registers hold it: versions by the length of a row.

Design choice: the fewest lanes whose registers hold the row, because every lane less is an exchange less and more rows
go at once; beyond what a workgroup's registers hold, the row is streamed by a whole workgroup.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.schedules import (
    LaneRowSchedule,
    lanes_reason,
    registers_reason,
    wide_reason,
    workers_reason,
)
from hwsdk.graph.dims import Ranges, bounds, floordiv, minimum

WAVES = 8  # lockstep groups of a workgroup
HELD = 32  # elements of one tensor that a lane keeps at most
STEPS = 8  # accesses of a lane per row that one lockstep group still takes alone where nothing is held
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


def parts_of(chip: SimtChip, facts: RowFacts, ranges: Ranges) -> tuple[Index, int] | None:
    """Workgroups that share a row of a reduction, and their largest number; None where one is enough."""
    workers = chip.target.workers()
    _, rows = bounds(facts.rows, ranges)
    _, length = bounds(facts.length, ranges)
    own = chip.waves(WAVES) * chip.width * (facts.wide if facts.starts else 1) * PART
    if not isinstance(rows, int) or rows * 2 > workers or (isinstance(length, int) and length <= 2 * own):
        return None
    most = max(2, 2 * workers // max(1, rows))
    return minimum(most, floordiv(facts.length, own) + 1), most
