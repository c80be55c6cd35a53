"""Blocks of an operand in the scratchpad: every lane brings its share of accesses.

Design choice: what is outside the problem is stored as zeros.  An access that exists as a whole goes at once; one at an
edge goes in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.inline import both
from hwsdk.codegen.iters import decode
from hwsdk.codegen.loop_ir import (
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
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment
from hwsdk.codegen.lower.simt.rounding import rounded
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, ceildiv, coefficient, floordiv, mod, product, substitute, sym


@dataclass(frozen=True)
class Side:
    """One operand of a contraction as a workgroup stages it.

    name: a or b.  rows: the iter along the rows of a block (None: one row), which begins at `first` and has `count` of
    them, each of `depth` elements along `k`.  rows_inner: are rows contiguous in the scratchpad, or k?
    """

    name: str
    chip: SimtChip
    load: Load
    part: Fragment
    rows: Iter | None
    k: Sequence[Iter]
    first: Index
    count: int
    depth: int
    lanes: int
    rows_inner: bool
    ranges: Ranges

    def buffer(self) -> Buffer:
        """The staged blocks; their lines are one access longer than needed, against bank conflicts."""
        assert self.chip.scratch is not None
        pad = max(1, self.chip.access_bytes // DTYPES[self.part.dtype].size_bytes)
        lines, length = (self.depth, self.count) if self.rows_inner else (self.count, self.depth)
        shape = (lines, length + pad)
        return Buffer(f"s{self.name}", self.part.stored, shape, self.chip.scratch.name, align_bytes=16)

    def at(self, row: Index, depth: Index) -> tuple[Index, Index]:
        """Where an element is in the staged block."""
        return (depth, row) if self.rows_inner else (row, depth)

    def stage(self) -> list[Stmt]:
        """The block that begins at `k0`."""
        along_k = bool(self.k) and self._contiguous(self.k[-1].name)
        along_rows = self.rows is not None and self._contiguous(self.rows.name) and not along_k
        wide = self._wide() if along_k or along_rows else 1
        units = self.count * self.depth // wide
        per_line = (self.count if along_rows else self.depth) // wide
        unit, s = sym(f"u{self.name}"), self.name
        line, place = floordiv(unit, per_line), mod(unit, per_line) * wide
        row, depth = (place, line) if along_rows else (line, place)
        number = Let(f"u{s}", FromIndex("i64", sym(f"c{s}") * self.lanes + sym("t")))
        lets = (Let(f"r{s}", FromIndex("i64", row)), Let(f"d{s}", FromIndex("i64", depth)))
        body: Body = (*lets, *self._access(wide, along_rows))
        if units % self.lanes:
            body = (If(compare("lt", unit, units), body),)
        return [For(f"c{s}", ceildiv(units, self.lanes), (number, *body))]

    def _wide(self) -> int:
        """Elements of one access."""
        wide = self.chip.access_bytes // max(
            DTYPES[self.load.dtype].size_bytes, DTYPES[self.part.dtype].size_bytes
        )
        while wide > 1 and (self.depth % wide or self.count % wide):
            wide //= 2
        return max(1, wide)

    def _access(self, wide: int, along_rows: bool) -> Body:
        """One access: whole where all of it exists, else element by element with zeros."""
        r, d, v = sym(f"r{self.name}"), sym(f"d{self.name}"), sym("v")
        row, depth = self.first + r, sym("k0") + d
        here_row, here_k = (row + v, depth) if along_rows else (row, depth + v)
        last_row, last_k = (row + wide - 1, depth) if along_rows else (row, depth + wide - 1)
        cell = self.at(r + v, d) if along_rows else self.at(r, d + v)
        extent_r: Index = self.rows.extent if self.rows is not None else 1
        extent_k = product(i.extent for i in self.k)
        known = both(compare("lt", here_row, extent_r), compare("lt", here_k, extent_k))
        single = For("v", wide, (Store(f"s{self.name}", cell, self._value(here_row, here_k, known)),))
        inside = both(compare("lt", last_row, extent_r), compare("lt", last_k, extent_k))
        whole: Body = (
            For("v", wide, (Store(f"s{self.name}", cell, self._value(here_row, here_k, None)),), "vector"),
        )
        assert inside is not None
        return (If(inside, whole, (single,)),)

    def _offset(self, row: Index, depth: Index) -> Index:
        index = self.load.index[0]
        here: dict[str, Index] = {self.rows.name: row} if self.rows is not None else {}
        here |= decode(self.k, depth) if len(self.k) > 1 else {i.name: depth for i in self.k}
        return index if isinstance(index, int) else substitute(index, here)

    def _value(self, row: Index, depth: Index, where: Value | None) -> Value:
        """The element at (row, depth) in the fragment's dtype; zero where the condition is false."""
        dtype = self.load.dtype
        value: Value = Load(dtype, self.load.buffer, (self._offset(row, depth),), where)
        if where is not None:
            value = Select(dtype, where, value, Const(dtype, 0))
        return rounded(value, self.part.dtype)

    def _contiguous(self, name: str) -> bool:
        index = self.load.index[0]
        return not isinstance(index, int) and coefficient(index, name) == 1
