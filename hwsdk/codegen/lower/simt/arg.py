"""Positions of extremes along an axis on lanes: every lane keeps the first best of its elements, pairs of value and
position are combined by exchanges and through the scratchpad.

Design choice: a pair goes before another by value, then by position, NaN before every number; so the order in which
lanes are combined does not matter.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Let,
    Load,
    Ref,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, compare
from hwsdk.codegen.lower.node_loops import Axis, Context, arg_line
from hwsdk.codegen.lower.simt.across import carried
from hwsdk.codegen.lower.simt.changes import NONE
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.lines import PLACE, Team, over_teams, positions
from hwsdk.codegen.overrides import Overrides
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, ceildiv, sym


def lower_arg(c: Context, chip: SimtChip, ranges: Ranges, changes: Overrides = NONE) -> list[Lowered]:
    """argmax and argmin."""
    axis, alone = arg_line(c)
    made = over_teams(c, chip, ranges, axis, alone, lambda team: _arg_body(c, axis, team), changes)
    return [replace(made, requires=positions(c, axis.extent, ranges))]


def _arg_body(c: Context, axis: Axis, team: Team) -> Body:
    dtype, out = c.dtype(c.node.inputs[0]), c.dtype(c.node.outputs[0])
    wide, place = carried(dtype), team.chip.registers.name
    least = c.node.attrs["kind"] == "argmin"
    x: Value = Load(dtype, "a0", (axis.at(sym("k")),))
    x = x if wide == dtype else Cast(wide, x)
    k = FromIndex(PLACE, sym("k"))
    best, at = Load(wide, "best", (0,)), Load(PLACE, "at", (0,))
    other, other_at = Load(wide, "other", (0,)), Load(PLACE, "other_at", (0,))
    none = Const(PLACE, -1)
    take: Body = (Store("best", (0,), Ref(wide, "x")), Store("at", (0,), k))
    fresh = Binary("bool", "or", Binary("bool", "eq", at, none), _better(Ref(wide, "x"), best, least))
    walk: Body = (
        Let("k", FromIndex("i64", sym("turn") * team.lanes + team.me)),
        If(compare("lt", sym("k"), axis.extent), (Let("x", x), If(fresh, take))),
    )
    head: list[Stmt] = [
        *(Alloc(Buffer(n, d, (1,), place)) for n, d in (("best", wide), ("at", PLACE))),
        *team.across.registers("best", "other", wide),
        *team.across.registers("at", "other_at", PLACE),
        Store("best", (0,), Const(wide, 0)),
        Store("at", (0,), none),
        For("turn", ceildiv(axis.extent, team.lanes), walk),
    ]
    found: Body = (Store("best", (0,), other), Store("at", (0,), other_at))
    step = team.chip.width // 2
    while step:
        head += team.across.swapped("best", "other", wide, step)
        head += team.across.swapped("at", "other_at", PLACE, step)
        head.append(If(_first(other, other_at, best, at, least), found))
        step //= 2
    if team.waves > 1:
        head += _arg_groups(team, wide, least)
    first = Select(PLACE, Binary("bool", "eq", at, none), Const(PLACE, 0), at)
    store = Store("o0", (sym("o") * axis.inner + sym("i"),), Cast(out, first) if out != PLACE else first)
    return (*head, If(compare("eq", team.me, 0), (store,)))


def _arg_groups(team: Team, wide: str, least: bool) -> list[Stmt]:
    """What the lockstep groups found, through the scratchpad, to the first lane."""
    assert team.chip.scratch is not None
    place = team.chip.scratch.name
    best, at = Load(wide, "best", (0,)), Load(PLACE, "at", (0,))
    other, other_at = Load(wide, "bests", (sym("w") + 1,)), Load(PLACE, "places", (sym("w") + 1,))
    mine: Body = (Store("bests", (sym("wave"),), best), Store("places", (sym("wave"),), at))
    found: Body = (Store("best", (0,), other), Store("at", (0,), other_at))
    look: Body = (For("w", team.waves - 1, (If(_first(other, other_at, best, at, least), found),)),)
    return [
        Alloc(Buffer("bests", wide, (team.waves,), place)),
        Alloc(Buffer("places", PLACE, (team.waves,), place)),
        If(compare("eq", sym("lane"), 0), mine),
        team.across.barrier(),
        If(compare("eq", sym("t"), 0), look),
    ]


def _better(x: Value, y: Value, least: bool) -> Value:
    """Does x win over an earlier y?"""
    plain: Value = Binary("bool", "lt" if least else "gt", x, y)
    if DTYPES[x.dtype].kind != "f":
        return plain
    odd = Binary("bool", "and", Unary("bool", "isnan", x), Unary("bool", "not", Unary("bool", "isnan", y)))
    return Binary("bool", "or", plain, odd)


def _first(x: Value, x_at: Value, y: Value, y_at: Value, least: bool) -> Value:
    """Does (x, x_at) go before (y, y_at)?  A place of -1 is none."""
    tie = Unary("bool", "not", Binary("bool", "or", _better(x, y, least), _better(y, x, least)))
    earlier = Binary("bool", "and", tie, Binary("bool", "lt", x_at, y_at))
    wins = Binary("bool", "or", _better(x, y, least), earlier)
    some = Binary("bool", "ge", x_at, Const(PLACE, 0))
    alone = Binary("bool", "lt", y_at, Const(PLACE, 0))
    return Binary("bool", "and", some, Binary("bool", "or", alone, wins))
