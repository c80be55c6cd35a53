"""Blocks of an operand in the scratchpad: every lane brings its share of accesses.

Design choice: what is outside the problem is stored as zeros.  An access that exists as a whole goes at once; one at an
edge goes in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hwsdk.codegen.inline import both
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
    Select,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment
from hwsdk.codegen.lower.simt.mask import Mask
from hwsdk.codegen.lower.simt.operand import Operand
from hwsdk.codegen.lower.simt.rounding import rounded
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, floordiv, minimum, mod, simplify, sym


@dataclass(frozen=True)
class Side:
    """One operand of a contraction as a workgroup stages it.

    name: a or b.  The block's rows begin at `first`, `count` of them, each of `depth` elements along k.  rows_inner:
    are rows contiguous in the scratchpad, or k?
    """

    name: str
    chip: SimtChip
    source: Operand
    part: Fragment
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

    @property
    def along_k(self) -> bool:
        """Do accesses go along k?"""
        return self.source.along_k or not self.source.along_rows

    @cached_property
    def wide(self) -> int:
        """Elements of one access."""
        if not (self.source.along_k or self.source.along_rows):
            return 1
        dtypes = self.source.load.dtype, self.part.dtype
        wide = self.chip.access_bytes // max(DTYPES[x].size_bytes for x in dtypes)
        while wide > 1 and (self.depth % wide or self.count % wide):
            wide //= 2
        return max(1, wide)

    @property
    def accesses(self) -> int:
        """Most accesses of one lane."""
        return -(-self._units // self.lanes)

    @property
    def _units(self) -> int:
        return self.count * self.depth // self.wide

    # ----------------------------------------------------------------------------------------------------- addresses
    @property
    def _lines_kept(self) -> bool:
        """Are the addresses of lines worth a register each?  Those of rows over several iters take divisions."""
        return len(self.source.rows) > 1

    def addresses(self) -> list[Stmt]:
        """Where the lines of a lane begin, before all blocks."""
        if not self._lines_kept:
            return []
        s = self.name
        row = minimum(self.first + sym(f"r{s}"), self.source.row_count - 1)
        kept = Buffer(f"g{s}", "i64", (self.accesses,), self.chip.registers.name)
        begin = Store(kept.name, (sym(f"c{s}"),), FromIndex("i64", self.source.row_offset(row)))
        allocs = [Alloc(kept)]
        inside: list[Stmt] = []
        if self.mask is not None:
            allocs.append(self.mask.alloc())
            inside = self.mask.fill(sym(f"c{s}"), row)
        return [*allocs, For(f"c{s}", self.accesses, (*self._numbers(), begin, *inside), "unroll")]

    @cached_property
    def mask(self) -> Mask | None:
        """Where padding is told by bits."""
        if self.source.taps is None or not self._lines_kept or not self._together:
            return None
        return Mask(self.source, f"q{self.name}", self.accesses, self.chip.registers.name)

    @property
    def _together(self) -> bool:
        """Does an access along k stay within the innermost iter?"""
        k = self.source.k
        return bool(k) and simplify(mod(k[-1].extent, self.wide), self.ranges) == 0

    def _numbers(self) -> Body:
        """Which access: its row and its place along k."""
        per_line = (self.depth if self.along_k else self.count) // self.wide
        unit, s = sym(f"u{self.name}"), self.name
        line, place = floordiv(unit, per_line), mod(unit, per_line) * self.wide
        row, depth = (line, place) if self.along_k else (place, line)
        return (
            Let(f"u{s}", FromIndex("i64", sym(f"c{s}") * self.lanes + sym("t"))),
            Let(f"r{s}", FromIndex("i64", row)),
            Let(f"d{s}", FromIndex("i64", depth)),
        )

    def _offset(self, row: Index, depth: Index, inner: Index) -> Index:
        """Where the `inner`-th element of the access at (row, depth) lies."""
        source, s = self.source, self.name
        if not self.along_k:
            return source.offset(row + inner, depth)
        start = sym(f"l{s}") if self._lines_kept else None
        if source.step is None and self._together:
            deep = source.deep_offset(depth) + inner
        else:
            deep = source.deep_offset(depth + inner)
        return (source.row_offset(row) if start is None else start) + deep

    # ------------------------------------------------------------------------------------------------------- staging
    def stage(self) -> list[Stmt]:
        """The block that begins at `k0`."""
        s = self.name
        body: Body = self._access()
        if self._lines_kept:
            body = (Let(f"l{s}", Load("i64", f"g{s}", (sym(f"c{s}"),))), *body)
        if self.mask is not None:
            known = {"t": (0, self.lanes - 1)}
            body = (self.mask.bit(f"b{s}", sym("k0") + sym(f"d{s}"), known), *body)
        if self._units % self.lanes:
            body = (If(compare("lt", sym(f"u{s}"), self._units), body),)
        kind = "unroll" if self._lines_kept else "serial"
        return [For(f"c{s}", self.accesses, (*self._numbers(), *body), kind)]

    def _access(self) -> Body:
        """One access: whole where all of it exists, else element by element with zeros."""
        r, d, v, wide = sym(f"r{self.name}"), sym(f"d{self.name}"), sym("v"), self.wide
        row, depth = self.first + r, sym("k0") + d
        along_k = self.along_k
        here_row, here_k = (row, depth + v) if along_k else (row + v, depth)
        last_row, last_k = (row, depth + wide - 1) if along_k else (row + wide - 1, depth)
        cell = self.at(r, d + v) if along_k else self.at(r + v, d)
        extents = self.source.row_count, self.source.depth
        known = both(compare("lt", here_row, extents[0]), compare("lt", here_k, extents[1]))
        offset, masked = self._offset(row, depth, v), self.source.load.where is not None
        inside = both(compare("lt", last_row, extents[0]), compare("lt", last_k, extents[1]))
        if self.mask is not None:
            tap = self.mask.test(sym(f"c{self.name}"), f"b{self.name}")
            known, inside = both(known, tap), both(inside, tap)
        elif masked:
            known = both(known, self.source.inside(here_row, here_k))
        single = For("v", wide, (Store(f"s{self.name}", cell, self._value(offset, known)),))
        if masked and self.mask is None:
            return (single,)
        whole: Body = (For("v", wide, (Store(f"s{self.name}", cell, self._value(offset, None)),), "vector"),)
        assert inside is not None
        return (If(inside, whole, (single,)),)

    def _value(self, offset: Index, where: Value | None) -> Value:
        """An element in the fragment's dtype; zero where the condition is false."""
        load = self.source.load
        value: Value = Load(load.dtype, load.buffer, (offset,), where)
        if where is not None:
            value = Select(load.dtype, where, value, Const(load.dtype, 0))
        return rounded(value, self.part.dtype)
