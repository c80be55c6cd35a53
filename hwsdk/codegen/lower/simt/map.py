"""Elements on lanes with ids: each lane computes a few neighbouring elements of the result, reductions included.

Design choice: the iteration space is cut into units of one access of a lane along the dim that vectors like best; the
number of the lane in the grid is the number of the unit, and the iters around it are decoded from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
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
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    at,
    compare,
    finish_kernel,
    finished,
    flatten_block,
    inputs_of,
    lets_for,
    merge,
    offsets_of,
)
from hwsdk.codegen.lower.simt.changes import NONE, power_of_two, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.row import lower_row
from hwsdk.codegen.lower.simt.schedules import LaneMapSchedule, lanes_reason, wide_reason, workers_reason
from hwsdk.codegen.lower.simt.split import PART, split_strided
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.overrides import Overrides
from hwsdk.graph.dims import (
    Ranges,
    bounds,
    ceildiv,
    coefficient,
    floordiv,
    free_symbols,
    minimum,
    mod,
    product,
    simplify,
    substitute,
    sym,
)

WAVES = 8  # lockstep groups of a workgroup that computes elements
DECISIONS = ("lanes", "wide")

SHARE = 32  # steps of a long reduction that make it worth to bring in another lane
LONG = 256  # steps from which a reduction over outer elements may be split
MOST_PARTS = 1024
TOGETHER = 16  # blocks of one launch: what they read are arguments


def lower_reduction(
    kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges, changes: Overrides = NONE
) -> tuple[list[Lowered], list[Tensor]]:
    """Elements with a reduction each: alone, or where few elements have a long one, its parts and then those.

    Returns the launches and the buffers between them.
    """
    found = _parts(kernel, chip, ranges, MOST_PARTS)
    if found is None:
        return lower_elements(kernel, chip, machine, ranges, changes), []
    default = LaneMapSchedule(1, 1, MOST_PARTS)
    most = changes.apply(f"{kernel.name}_parts", default, (*DECISIONS, "split")).split
    first, between, second = split_strided(kernel, *(_parts(kernel, chip, ranges, most) or found))
    total, _ = lower_row(second, chip, machine, ranges, changes)
    return [_launch(first, chip, machine, ranges, changes, MOST_PARTS), *total], [between]


def _parts(kernel: Kernel, chip: SimtChip, ranges: Ranges, most_parts: int) -> tuple[Iter, Index] | None:
    """(the iter to split, number of parts): as many as make every core busy."""
    block = kernel.blocks[0]
    if len(kernel.blocks) > 1 or not block.reduce:
        return None
    long = max(block.reduce, key=lambda i: i.extent if isinstance(i.extent, int) else LONG + 1)
    _, most = bounds(long.extent, ranges)
    if isinstance(most, int) and most <= LONG:
        return None
    wanted = chip.target.workers() * WAVES * chip.width * 2
    units = ceildiv(
        product(i.extent for i in block.parallel), chip.elements(kernel.tensor(block.output).dtype)
    )
    least, _ = bounds(units, ranges)
    if isinstance(least, int) and least * 2 > wanted:
        return None
    parts = minimum(most_parts, floordiv(wanted, units + 1) + 1, floordiv(long.extent, SHARE) + 1)
    return long, parts


def lower_elements(
    kernel: Kernel,
    chip: SimtChip,
    machine: Machine,
    ranges: Ranges,
    changes: Overrides = NONE,
    unroll: int = 1,
) -> list[Lowered]:
    """One launch for up to TOGETHER blocks (a pad or a concatenation has several), which divide the workgroups.

    unroll: steps of a reduction whose elements are on their way at once."""
    out = []
    for first in range(0, len(kernel.blocks), TOGETHER):
        blocks = kernel.blocks[first : first + TOGETHER]
        name = f"{kernel.name}_{first}" if first else kernel.name
        used = {t.name for block in blocks for t in inputs_of(kernel, block)}
        inputs = tuple(t for t in kernel.inputs if t.name in used)
        own = replace(kernel, name=name, blocks=blocks, inputs=inputs)
        out.append(_launch(own, chip, machine, ranges, changes, unroll=unroll))
    return out


def _launch(
    kernel: Kernel,
    chip: SimtChip,
    machine: Machine,
    ranges: Ranges,
    changes: Overrides,
    split: int = 1,
    unroll: int = 1,
) -> Lowered:
    """One launch of all blocks of a kernel."""
    namer = Namer(kernel)
    parts = [ElementLowering(kernel, block, namer, chip, ranges, unroll) for block in kernel.blocks]
    plan, decisions = _plan(kernel.name, chip, parts, changes, split)
    for part in parts:
        part.cut(plan.lanes, plan.wide if "wide" in decisions else part.wide)
    starts: list[Index] = [0]
    for part in parts:
        starts.append(starts[-1] + part.grid)
    body = parts[-1].body(starts[-2])
    for part, start, end in zip(
        reversed(parts[:-1]), reversed(starts[:-2]), reversed(starts[1:-1]), strict=True
    ):
        body = (If(compare("lt", sym("group"), end), part.body(start), body),)
    inner = chip.lanes(plan.lanes // chip.width, body)
    loop = (For("group", starts[-1], inner, "parallel", chip.group.name),)
    work: Index = 0
    for part in parts:
        work = work + part.work
    return finish_kernel(kernel, namer, machine, loop, starts[-1], work, schedule=plan, decisions=decisions)


def _plan(
    name: str, chip: SimtChip, parts: Sequence[ElementLowering], changes: Overrides, split: int
) -> tuple[LaneMapSchedule, tuple[str, ...]]:
    """(what was decided, which of it may be changed: the width of accesses if all blocks have one)."""
    lanes, wide = chip.waves(WAVES) * chip.width, max(part.wide for part in parts)
    why = [lanes_reason(chip, lanes), wide_reason(chip, wide)]
    why += [workers_reason(chip, "split", split)] if split > 1 else []
    decisions = DECISIONS if len({part.wide for part in parts}) == 1 else DECISIONS[:1]
    decisions = (*decisions, "split") if split > 1 else decisions
    plan = changes.apply(name, LaneMapSchedule(lanes, wide, split, tuple(why)), decisions)
    waves_of(changes, name, chip, plan.lanes)
    power_of_two(changes, name, "wide", plan.wide, max(part.widest for part in parts))
    return plan, decisions


def _neighbours(flat: FlatBlock) -> Iter | None:
    """The iter along which neighbouring lanes take neighbouring elements: the one that fewest accesses jump along,
    the result first."""
    moves, _ = offsets_of(flat)
    tied = {s for i in flat.block.iters for s in free_symbols(i.extent)}

    def jumps(it: Iter) -> tuple[int, bool]:
        steps = [0 if isinstance(m, int) else coefficient(m, it.name) for m in moves]
        return sum(s not in (0, 1) for s in steps), steps[0] != 1

    return min((i for i in reversed(flat.block.parallel) if i.name not in tied), key=jumps, default=None)


class ElementLowering:
    """Lowers one block, after `cut`.  wide: neighbours of a lane, `widest` where every access is aligned; lanes: of a
    workgroup; grid: workgroups; work: points of the iteration space."""

    def __init__(
        self, kernel: Kernel, block: Block, namer: Namer, chip: SimtChip, ranges: Ranges, unroll: int = 1
    ) -> None:
        self.chip, self.ranges, self.output = chip, ranges, namer.buffer[block.output]
        self.unroll = unroll
        flat = flatten_block(kernel, block, namer, ranges)
        iters, gone = merge(flat.block.iters, [flat])
        self.flat = replace(at(flat, gone), block=replace(flat.block, iters=tuple(iters)))
        self.wide = self.widest = chip.elements(kernel.tensor(flat.block.output).dtype)
        self.vector = _neighbours(self.flat)
        while self.wide > 1 and not self._aligned():
            self.wide //= 2
        self.rows = [i for i in self.flat.block.parallel if i is not self.vector]
        self.extent: Index = 1 if self.vector is None else self.vector.extent
        work = product(i.extent for i in self.flat.block.iters)
        self.work = work if isinstance(work, int) else substitute(work, {PART: 0})

    def cut(self, lanes: int, wide: int) -> None:
        """Workgroups of so many lanes, each with `wide` neighbours."""
        self.lanes, self.wide = lanes, wide
        self.across = ceildiv(self.extent, wide)
        self.units = product(i.extent for i in self.rows) * self.across
        self.grid = ceildiv(self.units, lanes)

    def _aligned(self) -> bool:
        """Is every contiguous access of `wide` elements at a multiple of it?  Else neighbouring lanes had better take
        neighbouring elements."""
        moves, _ = offsets_of(self.flat)
        name = "" if self.vector is None else self.vector.name
        for move in moves:
            if isinstance(move, int) or coefficient(move, name) != 1:
                continue
            if simplify(mod(substitute(move, {name: 0}), self.wide), self.ranges) != 0:
                return False
        return True

    def body(self, start: Index) -> Body:
        """What a lane does; `start` is the first workgroup of the block."""
        unit = sym("unit")
        first: Index = (mod(unit, self.across) if self.rows else unit) * self.wide
        decode: list[Stmt] = [*decode_lets(self.rows, floordiv(unit, self.across))] if self.rows else []
        done: set[str] = set()
        decode += [
            Let("first", FromIndex("i64", first)),
            *lets_for(self.flat, frozenset(r.name for r in self.rows), done),
        ]
        inner = (*decode, *self._unit(self.extent, done))
        number = (sym("group") - start) * self.lanes + sym("t")
        return (Let("unit", FromIndex("i64", number)), If(compare("lt", unit, self.units), inner))

    def _unit(self, extent: Index, done: set[str]) -> Body:
        """The elements of one unit: all at once, or those that exist."""
        whole = self._elements(self.wide, done, lambda body: For("v", self.wide, body, "vector"))
        if self.wide == 1 or simplify(mod(extent, self.wide), self.ranges) == 0:
            return whole
        rest = For("e", extent - sym("first"), self._elements(1, done, None, sym("e")))
        return (If(compare("le", sym("first") + self.wide, extent), whole, (rest,)),)

    def _elements(
        self, wide: int, done: set[str], loop: Callable[[Body], Stmt] | None, offset: Index | None = None
    ) -> Body:
        """`wide` neighbours in a loop over v, or the one at `offset`."""
        cell: Index = sym("v") if offset is None else 0
        place = (
            {}
            if self.vector is None
            else {self.vector.name: sym("first") + (cell if offset is None else offset)}
        )
        flat = at(self.flat, place)
        lets = tuple(lets_for(flat, frozenset(i.name for i in self.flat.block.iters), set(done)))

        def each(*body: Stmt) -> Body:
            return body if loop is None else (loop(body),)

        if flat.block.combiner is None:
            return each(*lets, Store(self.output, (flat.offset,), flat.value, flat.where))
        return self._reduced(flat, lets, wide, cell, each)

    def _reduced(
        self, flat: FlatBlock, lets: Body, wide: int, cell: Index, each: Callable[..., Body]
    ) -> Body:
        """The same with a reduction in front: accumulators in registers, a serial loop over what is reduced."""
        combiner, dtype = flat.block.combiner or "sum", flat.block.accumulator or flat.value.dtype
        old = Load(dtype, "acc", (cell,))
        step: Body = each(*lets, Store("acc", (cell,), Binary(dtype, COMBINE[combiner], old, flat.value)))
        for it in reversed(self.flat.block.reduce):
            step = self._repeated(it, step)
        total = finished(flat.finish, old)
        return (
            Alloc(Buffer("acc", dtype, (wide,), self.chip.registers.name)),
            *each(Store("acc", (cell,), Const(dtype, neutral(combiner, dtype)))),
            *step,
            *each(Store(self.output, (flat.offset,), total, flat.where)),
        )

    def _repeated(self, it: Iter, step: Body) -> Body:
        """The loop over a reduction's iter; rounds of `unroll` steps, then those that fill no round."""
        if self.unroll == 1:
            return (For(it.name, it.extent, step),)
        rounds, rest = floordiv(it.extent, self.unroll), mod(it.extent, self.unroll)
        number = Let(it.name, FromIndex("i64", sym("round") * self.unroll + sym("step")))
        whole = For("round", rounds, (For("step", self.unroll, (number, *step), "unroll"),))
        left = Let(it.name, FromIndex("i64", rounds * self.unroll + sym("step")))
        loops = (whole, For("step", rest, (left, *step), "unroll" if isinstance(rest, int) else "serial"))
        return tuple(x for x in loops if x.extent != 0)
