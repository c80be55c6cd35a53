"""Windows in strips: several outputs beside each other share the parameters of every tap.

Design choice: a row of outputs has an interior, where no tap leaves the operand, and two edges.  The interior runs in
strips of register accumulators without guards on the strip's dim; the last strip is moved back so that it overlaps, and
no remainder exists.  The edges run one output at a time with their guards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Iter
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
    Select,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import FlatBlock, Namer, at, compare, finished, offsets_of, vector_loop
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.rewrite import Rewriter, indices, loads, subvalues
from hwsdk.graph.dims import ceildiv, coefficient, floordiv, free_symbols, maximum, minimum, substitute, sym

MOST_TAPS = 64

Element = Callable[[FlatBlock, Index], list[Stmt]]  # one output vector at (block, lane), guards and all


@dataclass(frozen=True)
class Interior:
    """Where no tap leaves the operand along the strip: [low, high).  `guard`: what must still hold for a tap."""

    low: Index
    high: Index
    guard: Value | None
    dropped: Value | None  # the whole guard, as the loads carry it


def interior(flat: FlatBlock, strip: Iter, taps: Sequence[Iter]) -> Interior | None:
    """Read the guard of a window as bounds of the strip; None where it is not a conjunction of simple comparisons."""
    guards = {id(x.where): x.where for x in loads(flat.value) if x.where is not None}
    if not guards:
        return Interior(0, strip.extent, None, None)
    if len(guards) > 1:
        return None
    (guard,) = guards.values()
    low: Index = 0
    high: Index = strip.extent
    rest: Value | None = None
    for part in _conjuncts(guard):
        if not isinstance(part, Binary) or not isinstance(part.x, FromIndex) or not isinstance(part.y, Const):
            return None
        index = part.x.index
        names = free_symbols(index)
        if strip.name not in names:
            rest = part if rest is None else Binary("bool", "and", rest, part)
            continue
        step = coefficient(index, strip.name)
        if not isinstance(step, int) or step < 1 or part.y.value != 0 or part.op not in ("ge", "lt"):
            return None
        worst: Index = substitute(index, {strip.name: 0}) if not isinstance(index, int) else index
        for tap in taps:
            move = 0 if isinstance(worst, int) else coefficient(worst, tap.name)
            if not isinstance(move, int) or move < 0:
                return None
            at_end = tap.extent - 1 if part.op == "lt" else 0
            worst = substitute(worst, {tap.name: at_end})
        if part.op == "ge":
            low = maximum(low, ceildiv(-worst, step))
        else:
            high = minimum(high, floordiv(-worst - 1, step) + 1)
    return Interior(low, high, rest, guard)


def _conjuncts(guard: Value | None) -> list[Value]:
    if isinstance(guard, Binary) and guard.op == "and" and guard.dtype == "bool":
        return _conjuncts(guard.x) + _conjuncts(guard.y)
    return [] if guard is None else [guard]


class StripLowering:
    """The body of one row of outputs.  `element` computes one output vector the plain way."""

    def __init__(
        self, flat: FlatBlock, strip: Iter, vector: Iter, taps: Sequence[Iter], size: int, lanes: int, place: str,
        namer: Namer, element: Element,
    ) -> None:  # fmt: skip
        self.flat, self.strip, self.vector, self.taps = flat, strip, vector, tuple(taps)
        self.size, self.lanes, self.place, self.namer, self.element = size, lanes, place, namer, element
        self.dtype = flat.block.accumulator or flat.value.dtype

    @staticmethod
    def suits(flat: FlatBlock, strip: Iter, vector: Iter, taps: Sequence[Iter]) -> bool:
        """Is every access affine along the strip, and the window small and of constant size?"""
        count = 1
        for t in taps:
            if not isinstance(t.extent, int):
                return False
            count *= t.extent
        moves, _ = offsets_of(flat)
        affine = all(isinstance(m, int) or coefficient(m, strip.name) is not None for m in moves)
        if not affine or not 1 < count <= MOST_TAPS or flat.lets:
            return False
        guards = [i for x in loads(flat.value) for i in indices(subvalues(x.where))]
        if any(vector.name in free_symbols(i) for i in guards):
            return False  # lanes at an edge differ
        return interior(flat, strip, taps) is not None

    def row(self) -> Body:
        """Low edge, interior, high edge of the strip's dim."""
        inside = interior(self.flat, self.strip, self.taps)
        assert inside is not None
        whole = inside.dropped is None
        width = self.strip.extent
        lets = {
            "low": minimum(maximum(0, inside.low), width),
            "high": maximum(sym("low"), minimum(inside.high, width)),
            "inside": sym("high") - sym("low"),
        }
        head: list[Stmt] = [Let(n, FromIndex("i64", e)) for n, e in lets.items()]
        strips = ceildiv(sym("inside"), self.size)
        start = sym("low") + minimum(sym("strip") * self.size, sym("inside") - self.size)
        bare = self._unguarded(inside.dropped)
        place = Let("start", FromIndex("i64", start))
        tiles = self._vectors(self._tile(bare, inside.guard))
        fast = For("strip", strips, (*self._registers(bare), place, *tiles))
        slow = For("slow", sym("inside"), self._one(sym("low") + sym("slow")))
        middle = If(compare("ge", sym("inside"), self.size), (fast,), (slow,))
        if whole:
            return (*head, middle)
        first = For("slow", sym("low"), self._one(sym("slow")))
        last = For("slow", width - sym("high"), self._one(sym("high") + sym("slow")))
        return (*head, first, middle, last)

    def _vectors(self, body: Callable[[Index, Index], list[Stmt]]) -> list[Stmt]:
        return vector_loop(self.vector.extent, self.lanes, self.namer, body)

    def _one(self, position: Index) -> Body:
        here = at(self.flat, {self.strip.name: position})
        return tuple(self._vectors(lambda i, lane: self.element(at(here, {self.vector.name: i}), lane)))

    # -------------------------------------------------------------------------------------------------- tile
    def _tile(self, bare: FlatBlock, guard: Value | None) -> Callable[[Index, Index], list[Stmt]]:
        def body(i: Index, lane: Index) -> list[Stmt]:
            return self._strip(at(bare, {self.vector.name: i}), guard, lane)

        return body

    def _unguarded(self, guard: Value | None) -> FlatBlock:
        if guard is None:
            return self.flat

        def strip(value: Value) -> Value | None:
            if isinstance(value, Load) and value.where is guard:
                return replace(value, where=None)
            if isinstance(value, Select) and value.cond is guard:
                return rewriter(value.x)
            return None

        rewriter = Rewriter(value=strip)
        return replace(self.flat, value=rewriter(self.flat.value))

    def _strip(self, flat: FlatBlock, guard: Value | None, lane: Index) -> list[Stmt]:
        """size accumulators; each tap updates them all."""
        combiner = flat.block.combiner or "sum"
        p = sym("p")
        start = Const(self.dtype, neutral(combiner, self.dtype))
        out: list[Stmt] = [For("p", self.size, (Store("many", (p, lane), start),), "unroll")]
        shared, value = self._shared(flat.value, lane)
        old = Load(self.dtype, "many", (p, lane))
        moved = Rewriter(index=self._at_pixel)(value)
        update = Store("many", (p, lane), Binary(self.dtype, COMBINE[combiner], old, moved))
        step: Body = (*shared, For("p", self.size, (update,), "unroll"))
        if guard is not None:
            step = (If(guard, step),)
        for tap in reversed(self.taps):
            step = (For(tap.name, tap.extent, step),)
        out += step
        total: Value = Load(self.dtype, "many", (p, lane))
        if flat.finish is not None:
            total = finished(Rewriter(index=self._at_pixel)(flat.finish), total)
        offset = self._at_pixel(flat.offset)
        out.append(For("p", self.size, (Store("o0", (offset,), total),), "unroll"))
        return out

    def _at_pixel(self, index: Index) -> Index:
        return substitute(index, {self.strip.name: sym("start") + sym("p")})

    def _fixed(self, value: Value) -> list[Load]:
        """Operands that are the same for the whole strip."""
        return [x for x in loads(value) if self.strip.name not in free_symbols(x.index[0])]

    def _registers(self, flat: FlatBlock) -> list[Stmt]:
        """Accumulators of a strip, and a vector for each operand that it shares."""
        once = [
            Buffer(f"once{n}", x.dtype, (self.lanes,), self.place)
            for n, x in enumerate(self._fixed(flat.value))
        ]
        many = Buffer("many", self.dtype, (self.size, self.lanes), self.place)
        return [Alloc(b) for b in (many, *once)]

    def _shared(self, value: Value, lane: Index) -> tuple[list[Stmt], Value]:
        """Operands of the whole strip loaded once per tap, and the value that uses them."""
        out: list[Stmt] = []
        held: dict[int, Value] = {}
        for number, load in enumerate(self._fixed(value)):
            out.append(Store(f"once{number}", (lane,), load))
            held[id(load)] = Load(load.dtype, f"once{number}", (lane,))
        return out, Rewriter(value=lambda v: held.get(id(v)))(value)
