"""Scattering on lanes: the result is divided among workgroups, and every workgroup looks at all updates in order.

    blocks   a workgroup owns some slices of the result, a lane every so many of their elements; the places of updates
             are worked out by all lanes at once, and each is applied by the lanes that own its elements
    lines    along an axis updates stay in their line: with many lines, a lane owns one

Design choice: an element has one owner, who takes its updates in their order; so duplicates give what the reference
gives whatever combines them, and neither races nor atomic operations are needed.  Places outside are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.inline import both, linear
from hwsdk.codegen.iters import decode, decode_lets
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, compare, with_fallback
from hwsdk.codegen.lower.node_loops import Context
from hwsdk.codegen.lower.scattering import place, put
from hwsdk.codegen.lower.simt.across import Across
from hwsdk.codegen.lower.simt.changes import NONE, fitting, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.schedules import LaneScatterSchedule, lanes_reason, workers_reason
from hwsdk.codegen.overrides import Overrides
from hwsdk.errors import PlanError, UnsupportedError
from hwsdk.graph.dims import Ranges, ceildiv, ge, maximum, minimum, mod, product, simplify, sym

DECISIONS = ("lanes", "workgroups")
WAVES = 8
RESIDENT = 4  # workgroups of a core: each looks at all updates
LINES = 4096  # lines from which a lane for each is better

Places = Callable[[Index], tuple[list[Stmt], Index, Value | None]]


def lower_scatter(c: Context, chip: SimtChip, ranges: Ranges, changes: Overrides = NONE) -> list[Lowered]:
    """scatter_nd and scatter_elements, in one kernel or in versions of one."""
    name = c.kernel.name
    if c.node.op == "scatter_nd":
        plan = changes.apply(name, _blocks_plan(chip), DECISIONS)
        if not plan.workgroups:
            changes.refuse(name, "workgroups 0: updates of scatter_nd stay in no line that a lane could own")
        waves_of(changes, name, chip, plan.lanes)
        return [fitting(changes, name, chip, _blocks(c, chip, _nd(c), plan))]
    axis = c.node.attrs["axis"] % len(c.shape(c.node.inputs[0]))
    shape = c.shape(c.node.inputs[0])
    many = simplify(ge(product((*shape[:axis], *shape[axis + 1 :])), LINES), ranges)
    if name in changes:
        plan = changes.apply(name, _blocks_plan(chip) if many != 1 else _lines_plan(chip), DECISIONS)
        waves_of(changes, name, chip, plan.lanes)
        made = _blocks(c, chip, _elements(c, axis), plan) if plan.workgroups else _lines(c, chip, axis, plan)
        return [fitting(changes, name, chip, made)]
    lines = _lines(c, chip, axis, _lines_plan(chip))
    if many == 1:
        return [lines]
    blocks = _blocks(c, chip, _elements(c, axis), _blocks_plan(chip))
    name = lines.loop.name
    named = replace(lines, loop=replace(lines.loop, name=f"{name}_lines"), version_of=name, decisions=())
    return [blocks if many == 0 else with_fallback(named, many, blocks)]


def _blocks_plan(chip: SimtChip) -> LaneScatterSchedule:
    lanes, most = chip.waves(WAVES) * chip.width, RESIDENT * chip.target.workers()
    return LaneScatterSchedule(
        lanes, most, (lanes_reason(chip, lanes), workers_reason(chip, "workgroups", most))
    )


def _lines_plan(chip: SimtChip) -> LaneScatterSchedule:
    lanes = chip.waves(WAVES) * chip.width
    return LaneScatterSchedule(lanes, 0, (lanes_reason(chip, lanes),))


# ------------------------------------------------------------------------------------------------------------ blocks
@dataclass(frozen=True)
class Updates:
    """count: of updates.  slices: places that an update may go to, each of `inner` elements.  at: for an update,
    statements, the slice, and whether there is such a slice."""

    count: Index
    slices: Index
    inner: Index
    at: Places


def _nd(c: Context) -> Updates:
    """out[index[r]] = update[r] for every row r of the indices."""
    data, indices, _ = c.node.inputs
    shape, rows = c.shape(data), c.shape(indices)[:-1]
    depth = c.shape(indices)[-1]
    if not isinstance(depth, int):
        raise UnsupportedError(f"node {c.node.name}: the last dim of scatter_nd's indices must be constant")

    def at(update: Index) -> tuple[list[Stmt], Index, Value | None]:
        lets: list[Stmt] = []
        spots: list[Index] = []
        guard: Value | None = None
        for d in range(depth):
            raw = Load(c.dtype(indices), c.namer.buffer[indices], (update * depth + d,))
            spot, inside = place(lets, f"i{d}", raw, shape[d])
            spots.append(spot)
            guard = both(guard, inside)
        return lets, linear(tuple(spots), shape[:depth]), guard

    return Updates(product(rows), product(shape[:depth]), product(shape[depth:]), at)


def _elements(c: Context, axis: int) -> Updates:
    """out[.., index[p], ..] = update[p] along one axis, for every position p of the indices."""
    data, indices, _ = c.node.inputs
    shape, space = c.shape(data), c.shape(indices)

    def at(update: Index) -> tuple[list[Stmt], Index, Value | None]:
        iters = tuple(Iter(f"x{d}", e) for d, e in enumerate(space))
        here = tuple(decode(iters, update).values())
        lets: list[Stmt] = []
        raw = Load(c.dtype(indices), c.namer.buffer[indices], (update,))
        spot, inside = place(lets, "place", raw, shape[axis])
        return lets, linear((*here[:axis], spot, *here[axis + 1 :]), shape), inside

    return Updates(product(space), product(shape), 1, at)


def _blocks(c: Context, chip: SimtChip, updates: Updates, plan: LaneScatterSchedule) -> Lowered:
    data, _, values = c.node.inputs
    lanes, inner = plan.lanes, updates.inner
    waves = lanes // chip.width
    if chip.scratch is None:
        raise PlanError(
            f"target {chip.target.name}: no scratchpad per {chip.group.name} to keep places of updates in"
        )
    total = updates.slices * inner
    own = maximum(1, ceildiv(ceildiv(total, plan.workgroups), maximum(1, inner)))
    grid = ceildiv(updates.slices, own)
    barrier = Across(chip, waves, None).barrier()
    kind = c.dtype(data)
    element = sym("turn") * lanes + sym("t")
    copy = Store("o0", (sym("begin") + element,), Load(kind, c.namer.buffer[data], (sym("begin") + element,)))
    update = sym("chunk") * lanes + sym("t")
    lets, slice_, inside = updates.at(sym("update"))
    known = both(
        both(inside, compare("ge", sym("slice"), sym("first"))), compare("lt", sym("slice"), sym("last"))
    )
    assert known is not None
    mine = Store("places", (sym("t"),), FromIndex("i64", sym("slice") - sym("first")))
    found: Body = (*lets, Let("slice", FromIndex("i64", slice_)), If(known, (mine,)))
    start = sym("place") * inner
    spot = start + mod(sym("t") - start, lanes) + sym("part") * lanes
    source = (sym("chunk") * lanes + sym("j")) * inner + sym("at") - start
    value = Load(c.dtype(values), c.namer.buffer[values], (source,))
    apply: Body = (
        Let("at", FromIndex("i64", spot)),
        If(compare("lt", sym("at"), start + inner), (put(c, sym("begin") + sym("at"), value),)),
    )
    look: Body = (
        Let("place", Load("i64", "places", (sym("j"),))),
        If(compare("ge", sym("place"), 0), (For("part", ceildiv(inner, lanes), apply),)),
    )
    step: Body = (
        Let("update", FromIndex("i64", update)),
        Store("places", (sym("t"),), Const("i64", -1)),
        If(compare("lt", sym("update"), updates.count), found),
        barrier,
        For("j", minimum(lanes, updates.count - sym("chunk") * lanes), look),
        barrier,
    )
    held = (sym("last") - sym("first")) * inner
    body: Body = (
        For("turn", ceildiv(held, lanes), (If(compare("lt", element, held), (copy,)),)),
        For("chunk", ceildiv(updates.count, lanes), step),
    )
    head = {
        "first": sym("group") * own,
        "last": minimum(sym("group") * own + own, updates.slices),
        "begin": sym("first") * inner,
    }
    places = Alloc(Buffer("places", "i64", (lanes,), chip.scratch.name))
    loop = For(
        "group", grid, (*(Let(n, FromIndex("i64", x)) for n, x in head.items()), places, *chip.lanes(waves, body)),
        "parallel", chip.group.name,
    )  # fmt: skip
    made = c.done((loop,), grid, total + updates.count * 8)
    return replace(made, schedule=plan, decisions=DECISIONS)


# ------------------------------------------------------------------------------------------------------------- lines
def _lines(c: Context, chip: SimtChip, axis: int, plan: LaneScatterSchedule) -> Lowered:
    """A lane copies its line and takes the line's updates one after the other."""
    data, indices, values = c.node.inputs
    shape, space = c.shape(data), c.shape(indices)
    lanes = plan.lanes
    waves = lanes // chip.width
    others = [d for d in range(len(shape)) if d != axis]
    iters = tuple(Iter(f"x{d}", shape[d]) for d in others)
    total = product(i.extent for i in iters)

    def along(k: Index, shape: tuple[Index, ...]) -> Index:
        return linear(tuple(k if d == axis else sym(f"x{d}") for d in range(len(shape))), shape)

    copied = Load(c.dtype(data), c.namer.buffer[data], (along(sym("n"), shape),))
    lets: list[Stmt] = []
    raw = Load(c.dtype(indices), c.namer.buffer[indices], (along(sym("k"), space),))
    spot, inside = place(lets, "place", raw, shape[axis])
    value = Load(c.dtype(values), c.namer.buffer[values], (along(sym("k"), space),))
    walk = For("k", space[axis], (*lets, If(inside, (put(c, along(spot, shape), value),))))
    guard: Value | None = None
    for d in others:
        guard = both(guard, compare("lt", sym(f"x{d}"), space[d]))
    body: Body = (
        Let("unit", FromIndex("i64", sym("group") * lanes + sym("t"))),
        If(
            compare("lt", sym("unit"), total),
            (
                *decode_lets(iters, sym("unit")),
                For("n", shape[axis], (Store("o0", (along(sym("n"), shape),), copied),)),
                walk if guard is None else If(guard, (walk,)),
            ),
        ),
    )
    grid = ceildiv(total, lanes)
    loop = For("group", grid, chip.lanes(waves, body), "parallel", chip.group.name)
    made = c.done((loop,), grid, product(shape) + product(space) * 8)
    return replace(made, schedule=plan, decisions=DECISIONS)
