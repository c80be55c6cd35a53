"""One operand of a contraction as matrices: its elements by a row's number and a place along k.

    rows     one iter, or all that a row's number is made of: the pixels of images, one after the other, are the rows of
             a convolution
    k        one iter or several: the taps of a window with the channels inside

Design choice: only the operand whose k is contiguous counts rows over several iters.  Its lines begin anywhere, at an
address that is computed once per line, and the result, which lies row by row, never notices: the algebra of indices
puts quotient and remainder together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.iters import decode
from hwsdk.codegen.loop_ir import Index, Load, Value
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.lowered import Machine, at
from hwsdk.codegen.rewrite import Rewriter, indices
from hwsdk.graph.dims import Ranges, coefficient, free_symbols, product, simplify, substitute, sym

MOST_TAPS = 64


@dataclass(frozen=True)
class Operand:
    """load: of one element, affine in all iters; zero outside its condition, if it has one.  outer: iters around the
    product."""

    load: Load
    rows: tuple[Iter, ...]
    k: tuple[Iter, ...]
    outer: tuple[Iter, ...]

    @property
    def row_count(self) -> Index:
        return product(i.extent for i in self.rows)

    @property
    def depth(self) -> Index:
        """Elements along k."""
        return product(i.extent for i in self.k)

    @property
    def along_k(self) -> bool:
        """Are neighbours along k neighbours in memory?"""
        return bool(self.k) and coefficient(self.load.index[0], self.k[-1].name) == 1

    @property
    def along_rows(self) -> bool:
        return len(self.rows) == 1 and coefficient(self.load.index[0], self.rows[0].name) == 1

    def offset(self, row: Index, depth: Index) -> Index:
        """Where the element at (row, depth) lies."""
        index = self.load.index[0]
        if isinstance(index, int):
            return index
        return substitute(index, {**self.row_values(row), **_numbered(self.k, depth)})

    def row_values(self, row: Index) -> dict[str, Index]:
        """The iters of a row's number."""
        return _numbered(self.rows, row)

    def inside(self, row: Index, depth: Index) -> Value | None:
        """Is the element inside what the load's condition allows?  None: it has none."""
        values = {**self.row_values(row), **_numbered(self.k, depth)}
        return Rewriter(index=lambda i: substitute(i, values)).maybe(self.load.where)

    @cached_property
    def taps(self) -> int | None:
        """How many places of a window the load's condition depends on; None: more than a word has bits, or it differs
        within the innermost iter along k."""
        where, count = self.load.where, product(i.extent for i in self.k[:-1])
        if where is None or not self.k or not isinstance(count, int) or count > MOST_TAPS:
            return None
        used = {s for i in indices([where]) for s in free_symbols(i)}
        return None if self.k[-1].name in used else count

    def row_offset(self, row: Index) -> Index:
        """Where a row begins."""
        return self.offset(row, 0)

    def deep_offset(self, depth: Index) -> Index:
        """From the beginning of a row to a place along k."""
        return self.offset(0, depth) - self.offset(0, 0)

    @cached_property
    def step(self) -> Index | None:
        """From one place along k to the next, where they are evenly spaced."""
        return coefficient(self.deep_offset(sym("depth")), "depth")

    def strides(self, inner: Iter) -> Iterator[Index]:
        """Steps of all other iters, and where the first element lies."""
        index = self.load.index[0]
        if isinstance(index, int):
            yield index
            return
        names = [i.name for i in (*self.k, *self.rows, *self.outer) if i is not inner]
        for name in names:
            step = coefficient(index, name)
            yield step if step is not None else 1
        yield substitute(index, dict.fromkeys((*names, inner.name), 0))


def _numbered(iters: tuple[Iter, ...], number: Index) -> dict[str, Index]:
    return {iters[0].name: number} if len(iters) == 1 else decode(iters, number)


class LaneContraction(ContractionLowering):
    """A contraction taken apart for lanes: all rows that A's lines can be counted over are one iter."""

    masked = True

    def __init__(self, kernel: Kernel, machine: Machine, ranges: Ranges, level: str) -> None:
        super().__init__(kernel, machine, ranges, level, frozenset())
        parts = self.parts
        rows = parts.m
        if len(rows) > 1 and not (parts.k and coefficient(parts.a.index[0], parts.k[-1].name) == 1):
            rows = rows[-1:]
        merged = len(rows) > 1
        outer = (*parts.batch, *(() if merged else parts.m[:-1]), *parts.n[:-1])
        self.operands = Operand(parts.a, rows, parts.k, outer), Operand(parts.b, parts.n[-1:], parts.k, outer)
        if merged:
            self._count_rows()

    def _count_rows(self) -> None:
        """One iter in the place of all rows."""
        rows = self.parts.m
        row = Iter(f"{rows[-1].name}_all", product(i.extent for i in rows))
        values = decode(rows, sym(row.name))
        names = {i.name for i in rows}
        flat = at(self.flat, values)
        iters = (*self.parts.batch, row, *self.parts.n, *self.parts.k)
        assert names.isdisjoint(i.name for i in iters)
        known = {**self.ranges, row.name: (0, row.extent - 1)}
        self.flat = replace(flat, block=replace(flat.block, iters=iters), offset=simplify(flat.offset, known))
        self.parts = replace(self.parts, m=(row,))
