"""Rectangles of an iteration space: how a kernel is cut into steps, and what a step copies.

Design choice: a step works on X x Y elements of two iters that lie densely in the scratchpad, whatever their order
in main memory is, because the copies gather them.  So short rows fill whole vectors, and a transpose or a
concatenation is nothing but copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import FromIndex, Index, Let, Load, Stmt, View
from hwsdk.codegen.lower.extents import LIKELY
from hwsdk.codegen.lower.lowered import FlatBlock, Namer
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.pipeline import Staging, Steps, bind
from hwsdk.codegen.lower.staged.program import NotVector
from hwsdk.codegen.rewrite import Rewriter, indices, loads, subvalues
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    ceildiv,
    coefficient,
    floordiv,
    free_symbols,
    maximum,
    minimum,
    product,
    substitute,
    sym,
)

ONE = Iter("one", 1)
SHORT = 32  # columns from which on rows are worked on one by one where that saves copies


def only_used(kernel: Kernel) -> Kernel:
    """Without the inputs that its (single) block does not read."""
    (block,) = kernel.blocks
    values = subvalues(*(x.value for x in block.lets), block.value, block.finish, block.where)
    read = {v.buffer for v in values if isinstance(v, Load)}
    return replace(kernel, inputs=tuple(t for t in kernel.inputs if t.name in read))


def steps_of(offset: Index, x: Iter, y: Iter) -> Steps:
    """How far one step of each iter moves an access."""
    a, b = coefficient(offset, x.name), coefficient(offset, y.name)
    if a is None or b is None:
        raise NotVector("an access is not affine")
    return a, b


@dataclass(frozen=True)
class Stream:
    """An access whose rectangle is copied in for every step.  column: one element per row stands for the row."""

    load: Load
    name: str
    steps: Steps
    column: bool


@dataclass(frozen=True)
class Place:
    """Where a step is: Lets that bind it, values of the iters at its corner, its shape."""

    lets: tuple[Stmt, ...]
    corner: Mapping[str, Index]
    rows: Index
    columns: Index

    def at(self, offset: Index) -> Index:
        return offset if isinstance(offset, int) else substitute(offset, self.corner)


@dataclass
class Tiling:
    """X x Y rectangles of at most `size` elements; the other iters, `outer` and `inner`, are walked around them.

    The order of steps is outer, pieces of y, inner, pieces of x.
    """

    x: Iter
    y: Iter
    outer: Sequence[Iter]
    inner: Sequence[Iter]
    lets: Sequence[Let]
    size: int

    @property
    def per_step(self) -> Index:
        """Rows of a step."""
        y = self.y.extent
        return (
            max(1, self.size // max(1, y))
            if isinstance(y, int)
            else maximum(1, floordiv(self.size, maximum(1, y)))
        )

    @property
    def across(self) -> Index:
        """Columns of a step, at most."""
        return min(self.size, self.y.extent) if isinstance(self.y.extent, int) else self.size

    @property
    def pieces(self) -> Iter:
        return Iter("ys", ceildiv(self.y.extent, self.size))

    @property
    def walk(self) -> tuple[Iter, ...]:
        return (
            *self.outer,
            self.pieces,
            *self.inner,
            Iter("xs", maximum(1, ceildiv(self.x.extent, self.per_step))),
        )

    @property
    def steps(self) -> Index:
        return product(i.extent for i in self.walk)

    @property
    def deep(self) -> Index:
        """Steps that work on the same columns."""
        return product((*(i.extent for i in self.inner), ceildiv(self.x.extent, self.per_step)))

    @property
    def likely(self) -> tuple[int, int]:
        """Rows and columns of a step as one expects them."""
        y = self.y.extent if isinstance(self.y.extent, int) else LIKELY
        x = self.x.extent if isinstance(self.x.extent, int) else LIKELY
        y = max(1, min(y, self.size))
        return max(1, min(x, self.size // y)), y

    def place(self, number: Index, suffix: str) -> Place:
        out, names = bind([i for i in self.walk if i.extent != 1], number, suffix)
        x0 = names.get("xs", 0) * self.per_step
        y0 = names.get("ys", 0) * self.size
        corner: dict[str, Index] = {i.name: names.get(i.name, 0) for i in (*self.outer, *self.inner)}
        corner |= {self.x.name: x0, self.y.name: y0}
        for let in self.lets:
            name = f"{let.name}{suffix}"
            move = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, corner))
            out.append(Let(name, move(let.value)))
            corner[let.name] = sym(name)
        rows, columns = minimum(self.per_step, self.x.extent - x0), minimum(self.size, self.y.extent - y0)
        if isinstance(self.y.extent, int) and self.y.extent <= self.size:
            columns = self.y.extent
        return Place(tuple(out), corner, rows, columns)


def pick(y: Iter, others: Sequence[Iter], offsets: Sequence[Index], lets: Sequence[Let]) -> Iter:
    """The iter beside `y` that makes the best rectangles: one along which what is strided in y is contiguous; then
    the longest."""
    tied = {s for let in lets for i in indices(subvalues(let.value)) for s in free_symbols(i)}

    def worth(it: Iter) -> tuple[int, int]:
        turned = sum(coefficient(o, it.name) == 1 and coefficient(o, y.name) not in (0, 1) for o in offsets)
        return turned, it.extent if isinstance(it.extent, int) else LIKELY

    fit = [
        i for i in others if i.name not in tied and all(coefficient(o, i.name) is not None for o in offsets)
    ]
    return max(reversed(fit), key=worth, default=ONE)


class Streams:
    """The accesses of a kernel that are copied in, over one tiling."""

    def __init__(self, chip: Chip, namer: Namer, staging: Staging) -> None:
        self.chip, self.namer, self.staging = chip, namer, staging
        self.found: dict[tuple[str, Index], Stream] = {}

    @staticmethod
    def check(flat: FlatBlock, x: Iter, y: Iter) -> None:
        """NotVector where a body needs what rectangles do not give."""
        if flat.where is not None:
            raise NotVector("a store is guarded")
        for v in subvalues(flat.value, *(let.value for let in flat.lets)):
            if isinstance(v, Load) and v.where is not None:
                raise NotVector(f"access to {v.buffer} is guarded")
        for v in subvalues(flat.value):
            if isinstance(v, FromIndex) and {x.name, y.name} & free_symbols(v.index):
                raise NotVector("an index is used as a value")
        tied = {s for let in flat.lets for i in indices(subvalues(let.value)) for s in free_symbols(i)}
        if y.name in tied:
            raise NotVector("an index is read for every element")

    def moving(self, flat: FlatBlock, x: Iter, y: Iter) -> list[Load]:
        """The loads that differ between the elements of a rectangle, each access once."""
        out: dict[tuple[str, Index], Load] = {}
        for load in loads(flat.value):
            if steps_of(load.index[0], x, y) != (0, 0):
                out.setdefault((load.buffer, load.index[0]), load)
        return list(out.values())

    def row_wise(self, moving: Sequence[Load], x: Iter, y: Iter) -> bool:
        """Should each row be worked on by itself, because some operand is one element per row?"""
        per_row = any(steps_of(m.index[0], x, y)[1] == 0 for m in moving)
        return per_row and (not isinstance(y.extent, int) or y.extent >= SHORT)

    def add(self, moving: Sequence[Load], tiling: Tiling, rows: bool, halves: int = 2) -> None:
        for load in moving:
            steps = steps_of(load.index[0], tiling.x, tiling.y)
            column = rows and steps[1] == 0
            name = self.staging.add(f"in{len(self.found)}", load.dtype, (tiling.size,), halves)
            self.found[load.buffer, load.index[0]] = Stream(load, name, steps, column)

    def load(self, place: Place, slot: Index, likely: tuple[int, int]) -> list[Stmt]:
        out: list[Stmt] = []
        for s in self.found.values():
            source = View(s.load.buffer, (place.at(s.load.index[0]),))
            shape = (place.rows, 1 if s.column else place.columns)
            out += self.staging.strided(s.name, (slot, 0), source, shape, s.steps, likely, out=False)
        return out


def room_for(chip: Chip, halves: int, dtypes: Sequence[str], most: int) -> int:
    """Elements of a rectangle such that `halves` of one for each dtype fit the scratchpad; whole vectors."""
    size = sum(DTYPES[d].size_bytes for d in dtypes)
    room = (chip.scratch.usable_bytes or 0) // (halves * max(1, size))
    return max(chip.lanes, min(most, room) // chip.lanes * chip.lanes)
