"""Contractions on matrix intrinsics of lockstep groups: blocks of A and B in the scratchpad, fragments in registers.

    workgroup    a block of bm x bn of the result, over k in steps of bk
    scratchpad   A as [bm][bk], B as [bn][bk] for matrix intrinsics, which take neighbours along k; A as [bk][bm], B as
                 [bk][bn] for plain arithmetic, which takes neighbours along rows; padded against bank conflicts
    group        a part of wm x wn, in fragments; the epilogue runs on the accumulators where they lie

Design choice: what is outside the problem is staged as zeros, so the inner loops have no guards; only the epilogue asks
which elements exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.iters import decode, decode_lets
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Ref,
    Select,
    Stmt,
    Store,
    Sync,
    Ternary,
    Value,
    View,
)
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.lowered import Lowered, Machine, compare, dims_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment, MatrixUse
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, ceildiv, coefficient, floordiv, mod, product, simplify, substitute, sym


@dataclass(frozen=True)
class BlockTile:
    """Elements of a workgroup's block (bm, bn, bk) and of a group's part (wm, wn)."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int

    @property
    def waves(self) -> int:
        return (self.bm // self.wm) * (self.bn // self.wn)


class TensorContraction:
    """One contraction for one matrix intrinsic and one tile."""

    def __init__(
        self,
        kernel: Kernel,
        chip: SimtChip,
        machine: Machine,
        ranges: Ranges,
        use: MatrixUse,
        tile: BlockTile,
    ) -> None:
        self.kernel, self.chip, self.ranges, self.use, self.tile = kernel, chip, ranges, use, tile
        self.source = ContractionLowering(kernel, machine, ranges, chip.group.name, frozenset())
        self.parts, self.flat, self.namer = self.source.parts, self.source.flat, self.source.namer
        self.lanes = tile.waves * chip.width
        self.main = machine.main.name

    # ----------------------------------------------------------------------------------------------------- kernel
    def lower(self, name: str, schedule: object | None = None) -> Lowered:
        """The kernel; its grid is one workgroup per block of the result."""
        tile, (rows, columns, depth) = self.tile, self.source.extents
        down, across = ceildiv(rows, tile.bm), ceildiv(columns, tile.bn)
        outer = self.source.outer
        grid = product(i.extent for i in outer) * down * across
        rest: Index = floordiv(sym("group"), down * across)
        place = mod(sym("group"), down * across)
        head: list[Stmt] = [
            *(decode_lets(outer, rest) if outer else ()),
            Let("row0", FromIndex("i64", mod(place, down) * tile.bm)),
            Let("column0", FromIndex("i64", floordiv(place, down) * tile.bn)),
            *(Alloc(self._shared(side)) for side in ("a", "b")),
        ]
        inner = self.chip.lanes(tile.waves, self._lane(depth))
        loop = (For("group", grid, (*head, *inner), "parallel", self.chip.group.name),)
        kernel = LoopKernel(name, self.namer.params(self.main), (), loop, self.namer.outputs)
        kernel = replace(kernel, dims=dims_of(kernel))
        work = product(i.extent for i in self.flat.block.iters)
        return Lowered(kernel, self.namer.args, grid, work, schedule=schedule, sources=self.kernel.sources)

    def _lane(self, depth: Index) -> Body:
        """What one lane does: clear, walk over k, finish."""
        tile, use = self.tile, self.use
        waves_down = tile.bm // tile.wm
        mi, ni = tile.wm // use.roles.m, tile.wn // use.roles.n
        wave: Index = sym("wave") if self.chip.wave is not None else 0
        acc = Buffer("acc", use.acc.dtype, (mi * ni * use.acc.items,), self.chip.registers.name)
        clear = Store("acc", (sym("i"),), Const(use.acc.dtype, 0))
        barrier = self._barrier()
        step: Body = (
            Let("k0", FromIndex("i64", sym("k_block") * tile.bk)),
            *self._stage("a"),
            *self._stage("b"),
            barrier,
            *self._multiply(mi, ni),
            barrier,
        )
        return (
            Let("row_part", FromIndex("i64", mod(wave, waves_down) * tile.wm if waves_down > 1 else 0)),
            Let("column_part", FromIndex("i64", floordiv(wave, waves_down) * tile.wn)),
            Alloc(acc),
            For("i", mi * ni * use.acc.items, (clear,), "unroll"),
            For("k_block", ceildiv(depth, tile.bk), step),
            *self._finish(mi, ni),
        )

    def _barrier(self) -> Sync:
        from hwsdk.codegen.lower.simt.across import Across

        return Across(self.chip, self.tile.waves, None).barrier()

    # ----------------------------------------------------------------------------------------------------- staging
    def _side(self, side: str) -> tuple[Load, Fragment, Iter | None, Index, int]:
        """(the load, its fragment, the iter along rows of the staged block, where the block begins, its rows)."""
        if side == "a":
            rows = self.parts.m[-1] if self.parts.m else None
            return self.parts.a, self.use.a, rows, sym("row0"), self.tile.bm
        return self.parts.b, self.use.b, self.parts.n[-1], sym("column0"), self.tile.bn

    @property
    def plain(self) -> bool:
        """No intrinsic: every lane multiplies for itself."""
        return self.use.intrinsic is None

    def _at(self, row: Index, depth: Index) -> tuple[Index, Index]:
        """Where an element is in its staged block."""
        return (depth, row) if self.plain else (row, depth)

    def _shared(self, side: str) -> Buffer:
        """A staged block; its lines are one access longer than needed, against bank conflicts."""
        _, part, _, _, rows = self._side(side)
        assert self.chip.scratch is not None
        pad = max(1, self.chip.access_bytes // DTYPES[part.dtype].size_bytes)
        shape = (self.tile.bk, rows + pad) if self.plain else (rows, self.tile.bk + pad)
        return Buffer(f"s{side}", part.dtype, shape, self.chip.scratch.name, align_bytes=16)

    def _stage(self, side: str) -> list[Stmt]:
        """Every lane brings its share of accesses of one block."""
        load, part, rows, first, count = self._side(side)
        along_k = self._contiguous(load, self.parts.k[-1].name) if self.parts.k else False
        along_rows = rows is not None and self._contiguous(load, rows.name) and not along_k
        wide = self.chip.access_bytes // max(DTYPES[load.dtype].size_bytes, DTYPES[part.dtype].size_bytes)
        wide = max(1, min(wide, self.tile.bk, count)) if along_k or along_rows else 1
        units = count * self.tile.bk // wide
        number = sym(f"c{side}") * self.lanes + sym("t")
        per_row = (count if along_rows else self.tile.bk) // wide
        other, place = floordiv(sym(f"u{side}"), per_row), mod(sym(f"u{side}"), per_row) * wide
        row, depth = (place, other) if along_rows else (other, place)
        names = Let(f"u{side}", FromIndex("i64", number))
        lets = (
            Let(f"r{side}", FromIndex("i64", row)),
            Let(f"d{side}", FromIndex("i64", depth)),
        )
        body: Body = (*lets, *self._accesses(side, load, part, rows, first, wide, along_rows))
        if units % self.lanes:
            body = (If(compare("lt", sym(f"u{side}"), units), body),)
        return [For(f"c{side}", ceildiv(units, self.lanes), (names, *body))]

    def _accesses(
        self,
        side: str,
        load: Load,
        part: Fragment,
        rows: Iter | None,
        first: Index,
        wide: int,
        along_rows: bool,
    ) -> Body:
        """One access: whole where all of it exists, else element by element with zeros."""
        row, depth = first + sym(f"r{side}"), sym("k0") + sym(f"d{side}")
        extent_r: Index = rows.extent if rows is not None else 1
        extent_k = product(i.extent for i in self.parts.k)
        v = sym("v")
        here_row, here_k = (row + v, depth) if along_rows else (row, depth + v)
        last_row, last_k = (row + wide, depth + 1) if along_rows else (row + 1, depth + wide)
        r, d = sym(f"r{side}"), sym(f"d{side}")
        cell = self._at(r + v, d) if along_rows else self._at(r, d + v)
        value = self._value(load, part, rows, here_row, here_k, None)
        whole = For("v", wide, (Store(f"s{side}", cell, value),), "vector")
        inside = _both(self._below(last_row - 1, extent_r), self._below(last_k - 1, extent_k))
        if inside is None:
            return (whole,)
        known = _both(self._below(here_row, extent_r), self._below(here_k, extent_k))
        guarded = self._value(load, part, rows, here_row, here_k, known)
        return (If(inside, (whole,), (For("v", wide, (Store(f"s{side}", cell, guarded),)),)),)

    def _below(self, index: Index, extent: Index) -> Value | None:
        return compare("lt", index, extent)

    def _value(
        self, load: Load, part: Fragment, rows: Iter | None, row: Index, depth: Index, where: Value | None
    ) -> Value:
        """The element at (row, depth) in the fragment's dtype; zero where the condition is false."""
        here: dict[str, Index] = {rows.name: row} if rows is not None else {}
        here |= (
            decode(self.parts.k, depth) if len(self.parts.k) > 1 else {i.name: depth for i in self.parts.k}
        )
        index = substitute(load.index[0], here) if not isinstance(load.index[0], int) else load.index[0]
        value: Value = Load(load.dtype, load.buffer, (index,), where)
        if where is not None:
            value = Select(load.dtype, where, value, Const(load.dtype, 0))
        return value if load.dtype == part.dtype else Cast(part.dtype, value)

    def _contiguous(self, load: Load, name: str) -> bool:
        index = load.index[0]
        return not isinstance(index, int) and coefficient(index, name) == 1

    # ------------------------------------------------------------------------------------------------- computing
    def _multiply(self, mi: int, ni: int) -> list[Stmt]:
        """All steps of k in the staged blocks: fragments of A and B, then every pair of them."""
        use, place = self.use, self.chip.registers.name
        fa = Buffer("fa", use.a.dtype, (mi * use.a.items,), place)
        fb = Buffer("fb", use.b.dtype, (ni * use.b.items,), place)
        step = sym("kk") * use.roles.k
        loads = [
            *self._fragments("a", use.a, use.row, sym("row_part"), mi, use.roles.m, step),
            *self._fragments("b", use.b, use.column, sym("column_part"), ni, use.roles.n, step),
        ]
        body: Body = (Alloc(fa), Alloc(fb), *loads, *self._pairs(mi, ni))
        kind = "serial" if self.plain else "unroll"
        return [For("kk", self.tile.bk // use.roles.k, body, kind)]

    def _pairs(self, mi: int, ni: int) -> list[Stmt]:
        """Every fragment of A with every one of B."""
        use = self.use
        if use.intrinsic is None:
            return self._plain_pairs(mi, ni)
        pairs: list[Stmt] = []
        for i in range(mi):
            for j in range(ni):
                at = View("acc", ((i * ni + j) * use.acc.items,))
                operands = {
                    use.acc.operand: at,
                    use.addend: at,
                    use.a.operand: View("fa", (i * use.a.items,)),
                    use.b.operand: View("fb", (j * use.b.items,)),
                }
                named = tuple((n, operands[n]) for n in use.intrinsic.operands)
                pairs.append(Intrin(use.intrinsic.name, named))
        return pairs

    def _plain_pairs(self, mi: int, ni: int) -> list[Stmt]:
        """acc[i, j] += a[i] * b[j] for the elements of this lane."""
        use, dtype = self.use, self.use.acc.dtype
        rows, columns = use.a.items, use.b.items
        at = (sym("i") * ni + sym("j")) * use.acc.items + sym("p") * columns + sym("v")
        a: Value = Load(use.a.dtype, "fa", (sym("i") * rows + sym("p"),))
        b: Value = Load(use.b.dtype, "fb", (sym("j") * columns + sym("v"),))
        old = Load(dtype, "acc", (at,))
        fused = DTYPES[dtype].kind == "f" and self.chip.target.numerics.contraction == "fma"
        new: Value = (
            Ternary(dtype, "fma", a, b, old)
            if fused
            else Binary(dtype, "add", old, Binary(dtype, "mul", a, b))
        )
        body: Body = (For("v", columns, (Store("acc", (at,), new),), "unroll"),)
        for name, count in (("p", rows), ("j", ni), ("i", mi)):
            body = (For(name, count, body, "unroll"),)
        return list(body)

    def _fragments(
        self, side: str, part: Fragment, coord: str, start: Index, count: int, size: int, step: Index
    ) -> list[Stmt]:
        out: list[Stmt] = []
        along = coord if self.plain else self.use.depth
        v = sym("v")
        for i in range(count):
            for first, length in part.runs(along):
                row = start + i * size + part.at(first, coord)
                depth = step + part.at(first, self.use.depth)
                cell = Load(
                    part.dtype,
                    f"s{side}",
                    self._at(row + v, depth) if self.plain else self._at(row, depth + v),
                )
                store = Store(f"f{side}", (i * part.items + first + sym("v"),), cell)
                out.append(For("v", length, (store,), "vector"))
        return out

    # --------------------------------------------------------------------------------------------------- epilogue
    def _finish(self, mi: int, ni: int) -> list[Stmt]:
        """The accumulators through the epilogue into the result, where it exists."""
        use, out = self.use, []
        rows, columns, _ = self.source.extents
        for i in range(mi):
            for j in range(ni):
                for first, length in use.acc.runs(use.column):
                    item = (i * ni + j) * use.acc.items + first
                    row = sym("row0") + sym("row_part") + i * use.roles.m + use.acc.at(first, use.row)
                    column = (
                        sym("column0") + sym("column_part") + j * use.roles.n + use.acc.at(first, use.column)
                    )
                    out += self._cells(item, length, row, column, rows, columns)
        return out

    def _cells(
        self, item: int, length: int, row: Index, column: Index, rows: Index, columns: Index
    ) -> list[Stmt]:
        lets = (Let("row", FromIndex("i64", row)), Let("column", FromIndex("i64", column)))
        whole: Body = (For("v", length, self._cell(item, sym("v")), "vector"),)
        if length > 1 and simplify(mod(columns, length), self.ranges) != 0:
            single = tuple(
                If(compare("lt", sym("column") + v, columns), self._cell(item, v)) for v in range(length)
            )
            whole = (If(compare("le", sym("column") + length, columns), whole, single),)
        else:
            whole = (If(compare("lt", sym("column"), columns), whole),)
        return [*lets, If(compare("lt", sym("row"), rows), whole)]

    def _cell(self, item: int, v: Index) -> Body:
        """One accumulator at (row, column + v): the epilogue and its store."""
        here: dict[str, Index] = {self.parts.n[-1].name: sym("column") + v}
        if self.parts.m:
            here[self.parts.m[-1].name] = sym("row")
        moved = Rewriter(index=lambda x: substitute(x, here))
        total: Value = Load(self.use.acc.dtype, "acc", (item + v,))
        wanted = self.source.dtype
        total = total if total.dtype == wanted else Cast(wanted, total)
        if self.flat.finish is not None:
            whole = total
            finish = moved(self.flat.finish)
            total = Rewriter(value=lambda x: whole if isinstance(x, Ref) and x.name == "acc" else None)(
                finish
            )
        offset = self.flat.offset if isinstance(self.flat.offset, int) else substitute(self.flat.offset, here)
        lets = tuple(Let(x.name, moved(x.value)) for x in self.flat.lets)
        return (*lets, Store("o0", (offset,), total))


def _both(a: Value | None, b: Value | None) -> Value | None:
    from hwsdk.codegen.inline import both

    return both(a, b)
