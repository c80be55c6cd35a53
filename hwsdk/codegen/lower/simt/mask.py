"""Which taps of a window lie inside the image, as bits: one word per line of a lane, made before all blocks.

Padding then costs one test per access instead of a padded copy of the image: an access that the window has outside is
zeros in the scratchpad.  The idea is that of the optimised iterators of implicit matrix products in CUTLASS.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    Index,
    Let,
    Load,
    Ref,
    Select,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.simt.operand import Operand
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.graph.dims import Ranges, floordiv, simplify, substitute, sym


@dataclass(frozen=True)
class Mask:
    """source: an operand whose `taps` are known.  name: of the registers.  count: lines of a lane."""

    source: Operand
    name: str
    count: int
    place: str

    @property
    def dtype(self) -> str:
        return "u32" if (self.source.taps or 0) <= 32 else "u64"

    def alloc(self) -> Alloc:
        return Alloc(Buffer(self.name, self.dtype, (self.count,), self.place))

    def fill(self, slot: Index, row: Index) -> list[Stmt]:
        """The word of a line: bit t is set where tap t of the row's window is inside."""
        source, cell = self.source, (slot,)
        where = source.load.where
        assert where is not None
        stem = slot if isinstance(slot, int) else ""
        values = source.row_values(row)
        names: dict[str, Index] = {name: sym(f"{self.name}{stem}_{name}") for name in values}
        lets = [Let(str(names[name]), FromIndex("i64", value)) for name, value in values.items()]
        tap: Index = 0
        for it in source.k[:-1]:
            tap = tap * it.extent + sym(it.name)
        inside = Rewriter(index=lambda i: substitute(i, names))(where)
        bit = Select(self.dtype, inside, self._bit(tap), Const(self.dtype, 0))
        word = Binary(self.dtype, "or", Load(self.dtype, self.name, cell), bit)
        body: Body = (Store(self.name, cell, word),)
        for it in reversed(source.k[:-1]):
            body = (For(it.name, it.extent, body),)
        return [*lets, Store(self.name, cell, Const(self.dtype, 0)), *body]

    def _bit(self, tap: Index) -> Value:
        return Binary(self.dtype, "shl", Const(self.dtype, 1), Cast(self.dtype, FromIndex("i64", tap)))

    def bit(self, name: str, depth: Index, ranges: Ranges) -> Let:
        """The bit of the tap that a place along k belongs to."""
        return Let(name, self._bit(simplify(floordiv(depth, self.source.k[-1].extent), ranges)))

    def test(self, slot: Index, bit: str) -> Value:
        """Is the tap of `bit` inside, for the line in `slot`?"""
        word = Load(self.dtype, self.name, (slot,))
        hit = Binary(self.dtype, "and", word, Ref(self.dtype, bit))
        return Binary("bool", "ne", hit, Const(self.dtype, 0))
