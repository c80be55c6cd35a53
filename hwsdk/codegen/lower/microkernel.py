"""The register tile of a contraction: k loop around register accumulators, then the epilogue.

Design choice: the body is LoopIR with unrolled rows and vectors and no special statement; the accumulators are an array
in the registers, which emission turns into values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    If,
    Index,
    Intrin,
    Let,
    Load,
    Stmt,
    Store,
    Ternary,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import FlatBlock, compare, finished
from hwsdk.codegen.lower.operands import Operands
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.graph.dims import floordiv, maximum, minimum, substitute, sym


@dataclass(frozen=True)
class Names:
    """Intrinsics of one multiply-add: `multiply` (acc[n] += a[n] * b[n]), `load` and `broadcast` into its
    registers.
    """

    multiply: str
    load: str
    broadcast: str


@dataclass(frozen=True)
class RegisterTile:
    """What a schedule means for the loops.

    A register tile is rows x vectors of `lanes`.  A task takes `row_block` rows and `panel_block` panels, and
    walks `sub_rows` rows at a time over its panels.  A tile of fewer than `chains` accumulators sums k in
    several chains.  `depth`: the longest block of k; sums of one block are added to those of the blocks before
    it, which wait in the result.
    """

    rows: int
    vectors: int
    lanes: int
    row_block: Index = 64
    panel_block: Index = 4
    sub_rows: Index = 64
    depth: Index | None = None  # None: all of k at once
    chains: int = 1
    intrinsics: Names | None = None  # None: plain arithmetic

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True)
class MicroKernel:
    """What all register tiles of one kernel share.

    flat, parts: the contraction.  b_outer: iters in front of the panels of packed B; panels: how many there are.
    place: the registers.  fused: may multiply and add round once?  k_blocks: blocks that the outermost k is cut into;
    with more than one, `k_block`, `k_first` and `k_size` are bound outside.
    """

    flat: FlatBlock
    parts: Operands
    tile: RegisterTile
    dtype: str
    b_outer: tuple[Iter, ...]
    panels: Index
    place: str
    fused: bool
    k_blocks: Index = 1

    def body(self, rows: int, vectors: int, columns: Index | None) -> Body:
        """The product for `rows` rows from `row` on and one panel; `columns`: how many of an edge panel exist."""
        dtype, lanes = self.dtype, self.tile.lanes
        chains = self._chains(rows, vectors)
        acc = Buffer("acc", dtype, (chains * rows, vectors, lanes), self.place)
        i, v, lane = sym("i"), sym("v"), sym("l")
        clear = self._each(chains * rows, vectors, Store("acc", (i, v, lane), Const(dtype, 0)))
        loop = self._depth_loop(rows, vectors, chains)
        out: list[Stmt] = [Alloc(acc), clear, *loop]
        if chains > 1:
            total: Value = Load(dtype, "acc", (i, v, lane))
            for c in range(1, chains):
                total = Binary(dtype, "add", total, Load(dtype, "acc", (i + c * rows, v, lane)))
            out.append(self._each(rows, vectors, Store("acc", (i, v, lane), total)))
        if self.k_blocks == 1:
            return (*out, *self._finish(rows, vectors, columns))
        so_far = Binary(dtype, "add", Load(dtype, "o0", self._place), Load(dtype, "acc", (i, v, lane)))
        older = self._cells(rows, vectors, columns, Store("acc", (i, v, lane), so_far))
        keep = self._cells(rows, vectors, columns, Store("o0", self._place, Load(dtype, "acc", (i, v, lane))))
        last = compare("eq", sym("k_block"), self.k_blocks - 1)
        return (
            *out,
            If(compare("gt", sym("k_block"), 0), older),
            If(last, self._finish(rows, vectors, columns), keep),
        )

    def _each(self, rows: int, vectors: int, stmt: Stmt) -> Stmt:
        """The statement for every element of a register tile: i, v, l."""
        inner = For("l", self.tile.lanes, (stmt,), "vector")
        return For("i", rows, (For("v", vectors, (inner,), "unroll"),), "unroll")

    def _chains(self, rows: int, vectors: int) -> int:
        """Independent sums over k that a small tile needs to keep the multipliers busy."""
        depth = self.parts.k[-1].extent if self.parts.k else 1
        if isinstance(depth, int) and depth < 16:
            return 1
        return max(1, min(4, self.tile.chains // (rows * vectors)))

    def _depth_loop(self, rows: int, vectors: int, chains: int) -> Body:
        """The loops over k around one step; with chains, the innermost one takes that many steps at a time."""
        if not self.parts.k:
            return self._step(rows, vectors, 0, {})
        inner, extent = self.parts.k[-1], self._extent(self.parts.k[-1])
        if chains == 1:
            loop: Body = (For(inner.name, extent, self._step(rows, vectors, 0, {})),)
        else:
            count = floordiv(extent, chains)
            many = [
                s
                for c in range(chains)
                for s in self._step(rows, vectors, c * rows, {inner.name: sym("q") * chains + c})
            ]
            rest = self._step(rows, vectors, 0, {inner.name: count * chains + sym("q")})
            loop = (For("q", count, tuple(many)), For("q", extent - count * chains, rest))
        for it in reversed(self.parts.k[:-1]):
            loop = (For(it.name, self._extent(it), loop),)
        return loop

    def _extent(self, it: Iter) -> Index:
        """Of one k iter inside a block."""
        return sym("k_size") if self.k_blocks != 1 and it is self.parts.k[0] else it.extent

    def _in_block(self, here: Mapping[str, Index]) -> Mapping[str, Index]:
        """Where k is, the start of its block included."""
        if self.k_blocks == 1 or not self.parts.k:
            return here
        name = self.parts.k[0].name
        return {**here, name: sym("k_first") + here.get(name, sym(name))}

    def _a_at(self, i: Index, here: Mapping[str, Index]) -> Index:
        rows: dict[str, Index] = {self.parts.m[-1].name: sym("row") + i} if self.parts.m else {}
        offset = self.parts.a.index[0]
        return substitute(offset, {**rows, **here})

    def _b_at(self, v: Index, here: Mapping[str, Index]) -> Index:
        """Offset of vector v of the panel's line for the current k."""
        line: Index = 0
        for it in self.b_outer:
            line = line * it.extent + sym(it.name)
        line = line * self.panels + sym("panel")
        for it in self.parts.k:
            line = line * it.extent + sym(it.name)
        line = substitute(line, here)
        return line * self.tile.width + v * self.tile.lanes

    def _step(self, rows: int, vectors: int, chain: int, here: Mapping[str, Index]) -> Body:
        """One k: the line of B, then for each row a broadcast of A and one multiply-add per vector.

        `chain`: first accumulator row; `here`: where k is, if not at its loop variable.
        """
        here = self._in_block(here)
        if self.tile.intrinsics is not None:
            return self._tensorized(rows, vectors, chain, here, self.tile.intrinsics)
        dtype = self.dtype
        i, v, lane = sym("i"), sym("v"), sym("l")
        a, b = self.parts.a, self.parts.b
        left: Value = Load(a.dtype, a.buffer, (self._a_at(i, here),))
        right: Value = Load(b.dtype, "b", (self._b_at(v, here) + lane,))
        left = left if a.dtype == dtype else Cast(dtype, left)
        right = right if b.dtype == dtype else Cast(dtype, right)
        old = Load(dtype, "acc", (i + chain, v, lane))
        fused = dtype in ("f32", "f64") and self.fused
        new: Value = (
            Ternary(dtype, "fma", left, right, old)
            if fused
            else Binary(dtype, "add", old, Binary(dtype, "mul", left, right))
        )
        return (self._each(rows, vectors, Store("acc", (i + chain, v, lane), new)),)

    def _tensorized(
        self, rows: int, vectors: int, chain: int, here: Mapping[str, Index], names: Names
    ) -> Body:
        """The same in the target's own intrinsics."""
        dtype, lanes, place = self.dtype, self.tile.lanes, self.place
        i, v = sym("i"), sym("v")
        line, spread = (
            Buffer("line", dtype, (vectors, lanes), place),
            Buffer("spread", dtype, (lanes,), place),
        )
        load = Intrin(names.load, (("dst", View("line", (v, 0))), ("src", View("b", (self._b_at(v, here),)))))
        source = View(self.parts.a.buffer, (self._a_at(i, here),))
        broadcast = Intrin(names.broadcast, (("dst", View("spread", (0,))), ("src", source)))
        operands = (
            ("acc", View("acc", (i + chain, v, 0))),
            ("a", View("spread", (0,))),
            ("b", View("line", (v, 0))),
        )
        multiply = For("v", vectors, (Intrin(names.multiply, operands),), "unroll")
        return (
            Alloc(line),
            For("v", vectors, (load,), "unroll"),
            For("i", rows, (Alloc(spread), broadcast, multiply), "unroll"),
        )

    def _here(self) -> dict[str, Index]:
        """The iters of the result at cell (i, v, l)."""
        column = sym("panel") * self.tile.width + sym("v") * self.tile.lanes + sym("l")
        rows: dict[str, Index] = {self.parts.m[-1].name: sym("row") + sym("i")} if self.parts.m else {}
        return {self.parts.n[-1].name: column, **rows}

    @property
    def _place(self) -> tuple[Index]:
        """The offset of cell (i, v, l) in the result."""
        return (substitute(self.flat.offset, self._here()),)

    def _finish(self, rows: int, vectors: int, columns: Index | None) -> Body:
        """The epilogue of every cell, into the result."""
        here = self._here()
        total: Value = Load(self.dtype, "acc", (sym("i"), sym("v"), sym("l")))
        if self.flat.finish is not None:
            total = finished(Rewriter(index=lambda x: substitute(x, here))(self.flat.finish), total)
        return self._cells(rows, vectors, columns, Store("o0", self._place, total))

    def _cells(self, rows: int, vectors: int, columns: Index | None, stmt: Store) -> Body:
        """The statement for every cell (i, v, l) of the register tile that exists in the result."""
        lanes, here = self.tile.lanes, self._here()
        rewriter = Rewriter(index=lambda x: substitute(x, here))
        lets = tuple(Let(x.name, rewriter(x.value)) for x in self.flat.lets)
        if columns is None:
            body: Body = (For("l", lanes, (*lets, stmt), "vector"),)
            return (For("i", rows, (For("v", vectors, body, "unroll"),), "unroll"),)
        out: list[Stmt] = []
        for number in range(vectors):
            left = columns - number * lanes
            active = min(left, lanes) if isinstance(left, int) else maximum(0, minimum(left, lanes))
            fixed = Rewriter(index=lambda x, n=number: substitute(x, {"v": n}))  # type: ignore[misc]
            inner: list[Stmt] = [Let(x.name, fixed(x.value)) for x in lets]
            inner.append(Store(stmt.buffer, tuple(fixed.index(x) for x in stmt.index), fixed(stmt.value)))
            out.append(For("l", lanes, tuple(inner), "vector", active=None if active == lanes else active))
        return (For("i", rows, tuple(out), "unroll"),)
