"""Lines of an array along an axis on lanes: one lane, one lockstep group or one workgroup for each line.

Lines whose elements lie far apart but that lie side by side take a lane each, so that neighbouring lanes touch
neighbouring memory; otherwise a short line takes a lockstep group and a long one a workgroup.
Design choice: the three are versions of one kernel behind guards on the sizes, like everything that depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import Alloc, Body, For, FromIndex, If, Index, Let, Stmt
from hwsdk.codegen.lower.lowered import Lowered, compare, with_fallback
from hwsdk.codegen.lower.node_loops import Axis, Context
from hwsdk.codegen.lower.simt.across import Across, Exchange
from hwsdk.codegen.lower.simt.changes import NONE, fitting, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.schedules import LaneLineSchedule, lanes_reason, wide_reason
from hwsdk.codegen.overrides import Overrides
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import Ranges, bounds, ceildiv, floordiv, ge, le, mod, product, simplify, sym

DECISIONS = ("lanes", "lines")
WAVES = 8
ITEMS = 4  # neighbouring elements that one lane of a team takes at once
PLACE = "i32"  # in which positions along an axis are kept: what lanes exchange at once
POSITIONS = 1 << 31
SHORT = 2  # turns of a lockstep group that a line may need before a workgroup takes it


@dataclass(frozen=True)
class Team:
    """Those that share a line: `waves` lockstep groups of a workgroup.  parts: workgroups of one line."""

    chip: SimtChip
    waves: int
    parts: Index = 1

    @property
    def lanes(self) -> int:
        return self.waves * self.chip.width

    @property
    def me(self) -> Index:
        """The lane's number in the team."""
        return sym("lane") if self.waves == 1 else sym("t")

    @property
    def across(self) -> Across:
        return Across(self.chip, self.waves, Exchange.of(self.chip.target, self.chip.width))


def over_teams(
    c: Context,
    chip: SimtChip,
    ranges: Ranges,
    axis: Axis,
    alone: Body,
    team_body: Callable[[Team], Body],
    changes: Overrides = NONE,
) -> Lowered:
    """The versions of one kernel: `alone` is what one lane does for the line (o, i), team_body what every lane of a
    team does."""
    lanes = _by_lanes(c, chip, axis, alone, chip.waves(WAVES))
    beside = simplify(ge(axis.inner, chip.width), ranges)
    main = lanes
    if beside != 1 and chip.scratch is not None:
        main = long = by_teams(c, axis, Team(chip, chip.waves(WAVES)), team_body)
        if Exchange.of(chip.target, chip.width) is not None:
            few = simplify(le(axis.extent, SHORT * ITEMS * chip.width), ranges)
            short = by_teams(c, axis, Team(chip, 1), team_body)
            main = (
                short if few == 1 else long if few == 0 else with_fallback(_named(short, "_group"), few, long)
            )
        main = main if beside == 0 else with_fallback(_named(lanes, "_lane"), beside, main)
    if c.kernel.name not in changes:
        return main
    plan = main.schedule
    assert isinstance(plan, LaneLineSchedule)
    plan = changes.apply(c.kernel.name, plan, DECISIONS)
    return _changed(c, chip, axis, alone, team_body, plan, changes)


def _changed(
    c: Context,
    chip: SimtChip,
    axis: Axis,
    alone: Body,
    team_body: Callable[[Team], Body],
    plan: LaneLineSchedule,
    changes: Overrides,
) -> Lowered:
    """The one version that somebody asked for; it takes every size."""
    name = c.kernel.name
    if plan.lanes == 1:
        made = _by_lanes(c, chip, axis, alone, waves_of(changes, name, chip, plan.lines, "lines"))
    else:
        waves = waves_of(changes, name, chip, plan.lanes)
        if chip.scratch is None or (waves == 1 and Exchange.of(chip.target, chip.width) is None):
            changes.refuse(
                name, f"lanes {plan.lanes}: lanes of {chip.target.name} cannot share a line in this way"
            )
        if waves > 1 and plan.lines != 1:
            changes.refuse(
                name, f"lines {plan.lines}: a line of {plan.lanes} lanes has its workgroup for itself"
            )
        waves_of(changes, name, chip, plan.lines * chip.width, "lines times lanes")
        made = by_teams(c, axis, Team(chip, waves), team_body, plan.lines)
    return fitting(changes, name, chip, made)


def positions(c: Context, extent: Index, ranges: Ranges) -> tuple[tuple[Index, str], ...]:
    """What a kernel requires that keeps positions along an axis in PLACE; UnsupportedError where it never holds."""
    low, high = bounds(extent, ranges)
    what = f"node {c.node.name} ({c.node.op}): positions along an axis have {POSITIONS.bit_length() - 1} bits on lanes"
    if isinstance(low, int) and low > POSITIONS:
        raise UnsupportedError(f"{what}, and it has {low} elements")
    return () if isinstance(high, int) and high <= POSITIONS else ((le(extent, POSITIONS), what),)


def _named(made: Lowered, ending: str) -> Lowered:
    name = made.loop.name
    return replace(made, loop=replace(made.loop, name=f"{name}{ending}"), version_of=name)


def _private(stmt: Stmt, chip: SimtChip) -> Stmt:
    """What a line holds for itself, in the registers of its lane."""
    return Alloc(replace(stmt.buffer, place=chip.registers.name)) if isinstance(stmt, Alloc) else stmt


def _by_lanes(c: Context, chip: SimtChip, axis: Axis, line: Body, waves: int) -> Lowered:
    """One lane for every line; neighbours along the inner dims."""
    lanes = waves * chip.width
    total = axis.outer * axis.inner
    own = (*decode_lets(axis.lines(), sym("unit")), *(_private(s, chip) for s in line))
    body: Body = (
        Let("unit", FromIndex("i64", sym("group") * lanes + sym("t"))),
        If(compare("lt", sym("unit"), total), own),
    )
    grid = ceildiv(total, lanes)
    loop = For("group", grid, chip.lanes(waves, body), "parallel", chip.group.name)
    made = c.done((loop,), grid, total * axis.extent)
    plan = LaneLineSchedule(1, lanes, 1, why=(lanes_reason(chip, lanes, "lines"),))
    return replace(made, schedule=plan, decisions=DECISIONS)


def by_teams(
    c: Context, axis: Axis, team: Team, line: Callable[[Team], Body], many: int | None = None
) -> Lowered:
    """A team for every line, or for every part of one (`part` is its number).  many: lines of a workgroup."""
    chip = team.chip
    if many is None:
        many = chip.waves(WAVES // 2) if team.waves == 1 else 1
    lines = product((axis.outer, axis.inner))
    number: Index = sym("group")
    if many > 1:
        number = number * many + sym("wave")
    lets = [Let("line", FromIndex("i64", number if team.parts == 1 else floordiv(number, team.parts)))]
    if team.parts != 1:
        lets.append(Let("part", FromIndex("i64", mod(number, team.parts))))
    own: Body = (*decode_lets(axis.lines(), sym("line")), *line(team))
    guarded = own if many == 1 else (If(compare("lt", sym("line"), lines), own),)
    grid = ceildiv(lines, many) * team.parts
    waves = many if team.waves == 1 else team.waves
    loop = For("group", grid, chip.lanes(waves, (*lets, *guarded)), "parallel", chip.group.name)
    made = c.done((loop,), grid, lines * axis.extent)
    why = (lanes_reason(chip, team.lanes), lanes_reason(chip, many, "lines"), wide_reason(chip, ITEMS))
    return replace(made, schedule=LaneLineSchedule(team.lanes, many, ITEMS, why=why), decisions=DECISIONS)
