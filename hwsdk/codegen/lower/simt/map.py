"""Elements on lanes with ids: each lane computes a few neighbouring elements of the result, reductions included.

Design choice: the iteration space is cut into units of one access of a lane along the dim that vectors like best; the
number of the lane in the grid is the number of the unit, and the iters around it are decoded from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel, Tensor
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
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.row import lower_row
from hwsdk.codegen.lower.simt.schedules import LaneMapSchedule, lanes_reason, wide_reason, workers_reason
from hwsdk.codegen.lower.simt.split import PART, split_strided
from hwsdk.codegen.neutral import COMBINE, neutral
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


SHARE = 32  # steps of a long reduction that make it worth to bring in another lane
LONG = 256  # steps from which a reduction over outer elements may be split
MOST_PARTS = 1024


def lower_reduction(
    kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges
) -> tuple[list[Lowered], list[Tensor]]:
    """Elements with a reduction each: alone, or where few elements have a long one, its parts and then those.

    Returns the launches and the buffers between them.
    """
    found = _parts(kernel, chip, ranges)
    if found is None:
        return lower_elements(kernel, chip, machine, ranges), []
    first, between, second = split_strided(kernel, *found)
    total, _ = lower_row(second, chip, machine, ranges)
    (made,) = lower_elements(first, chip, machine, ranges)
    plan = made.schedule
    assert isinstance(plan, LaneMapSchedule)
    plan = replace(plan, split=MOST_PARTS, why=(*plan.why, workers_reason(chip, "split", MOST_PARTS)))
    return [replace(made, schedule=plan), *total], [between]


def _parts(kernel: Kernel, chip: SimtChip, ranges: Ranges) -> tuple[Iter, Index] | None:
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
    parts = minimum(MOST_PARTS, floordiv(wanted, units + 1) + 1, floordiv(long.extent, SHARE) + 1)
    return long, parts


def lower_elements(kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges) -> list[Lowered]:
    """One launch per block (a concatenation has several)."""
    out = []
    for number, block in enumerate(kernel.blocks):
        name = f"{kernel.name}_{number}" if number else kernel.name
        own = replace(kernel, name=name, blocks=(block,), inputs=inputs_of(kernel, block))
        out.append(ElementLowering(own, chip, machine, ranges).lower())
    return out


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
    """Lowers one block."""

    def __init__(self, kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges) -> None:
        self.kernel, self.chip, self.machine, self.ranges = kernel, chip, machine, ranges
        self.namer = Namer(kernel)
        flat = flatten_block(kernel, kernel.blocks[0], self.namer, ranges)
        iters, gone = merge(flat.block.iters, [flat])
        self.flat = replace(at(flat, gone), block=replace(flat.block, iters=tuple(iters)))
        self.wide = chip.elements(kernel.tensor(flat.block.output).dtype)
        self.vector = _neighbours(self.flat)
        while self.wide > 1 and not self._aligned():
            self.wide //= 2
        self.rows = [i for i in self.flat.block.parallel if i is not self.vector]

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

    def lower(self) -> Lowered:
        waves = self.chip.waves(WAVES)
        lanes = waves * self.chip.width
        extent: Index = 1 if self.vector is None else self.vector.extent
        across = ceildiv(extent, self.wide)
        units = product(i.extent for i in self.rows) * across
        first: Index = (mod(sym("unit"), across) if self.rows else sym("unit")) * self.wide
        decode: list[Stmt] = [*decode_lets(self.rows, floordiv(sym("unit"), across))] if self.rows else []
        done: set[str] = set()
        decode += [
            Let("first", FromIndex("i64", first)),
            *lets_for(self.flat, frozenset(r.name for r in self.rows), done),
        ]
        inner = (*decode, *self._unit(extent, done))
        body: Body = (
            Let("unit", FromIndex("i64", sym("group") * lanes + sym("t"))),
            If(compare("lt", sym("unit"), units), inner),
        )
        grid = ceildiv(units, lanes)
        loop = (For("group", grid, self.chip.lanes(waves, body), "parallel", self.chip.group.name),)
        work = product(i.extent for i in self.flat.block.iters)
        work = work if isinstance(work, int) else substitute(work, {PART: 0})
        why = (lanes_reason(self.chip, lanes), wide_reason(self.chip, self.wide))
        plan = LaneMapSchedule(lanes, self.wide, why=why)
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, work, schedule=plan)

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
            return each(*lets, Store(self.namer.outputs[0], (flat.offset,), flat.value, flat.where))
        return self._reduced(flat, lets, wide, cell, each)

    def _reduced(
        self, flat: FlatBlock, lets: Body, wide: int, cell: Index, each: Callable[..., Body]
    ) -> Body:
        """The same with a reduction in front: accumulators in registers, a serial loop over what is reduced."""
        combiner, dtype = flat.block.combiner or "sum", flat.block.accumulator or flat.value.dtype
        old = Load(dtype, "acc", (cell,))
        step: Body = each(*lets, Store("acc", (cell,), Binary(dtype, COMBINE[combiner], old, flat.value)))
        for it in reversed(self.flat.block.reduce):
            step = (For(it.name, it.extent, step),)
        total = finished(flat.finish, old)
        return (
            Alloc(Buffer("acc", dtype, (wide,), self.chip.registers.name)),
            *each(Store("acc", (cell,), Const(dtype, neutral(combiner, dtype)))),
            *step,
            *each(Store(self.namer.outputs[0], (flat.offset,), total, flat.where)),
        )
