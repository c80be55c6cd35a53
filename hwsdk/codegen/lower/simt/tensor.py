"""Contractions on matrix intrinsics of lockstep groups: blocks of A and B in the scratchpad, fragments in registers.

    workgroup    a block of bm x bn of the result, over k in steps of bk
    scratchpad   A as [bm][bk], B as [bn][bk] for matrix intrinsics, which take neighbours along k; A as [bk][bm], B as
                 [bk][bn] for plain arithmetic, which takes neighbours along rows; padded against bank conflicts
    group        a part of wm x wn, in fragments; the epilogue runs on the accumulators where they lie

    grid         blocks of the result in strips of rows, so that those which run at once share their operands

Design choice: what is outside the problem is staged as zeros, so the inner loops have no guards; only the epilogue asks
which elements exist.  This is the version for any sizes; `pipelined` has the one for sizes whose chunks are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt

from hwsdk.codegen.blocks import Kernel
from hwsdk.codegen.iters import decode_lets
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
    Stmt,
    Store,
    Sync,
    Ternary,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import Lowered, Machine, compare, dims_of, finished
from hwsdk.codegen.lower.simt.across import Across
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import MatrixUse
from hwsdk.codegen.lower.simt.operand import LaneContraction
from hwsdk.codegen.lower.simt.staging import Side
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, ceildiv, floordiv, maximum, minimum, mod, product, substitute, sym


@dataclass(frozen=True)
class BlockTile:
    """Elements of a workgroup's block (bm, bn, bk) and of a part (wm, wn); blocks in the scratchpad at once; workgroups
    that a core keeps in flight; lockstep groups that have a part together."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int = 1
    occupancy: int = 1
    members: int = 1

    @property
    def waves(self) -> int:
        return (self.bm // self.wm) * (self.bn // self.wn) * self.members


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
        self.source = LaneContraction(kernel, machine, ranges, chip.group.name)
        self.parts, self.flat, self.namer = self.source.parts, self.source.flat, self.source.namer
        self.lanes = tile.waves * chip.width
        self.main = machine.main.name
        self.sides = self._side("a"), self._side("b")

    # ----------------------------------------------------------------------------------------------------- kernel
    def lower(self, name: str, schedule: object | None = None) -> Lowered:
        """The kernel; its grid is one workgroup per block of the result."""
        tile, (rows, columns, depth) = self.tile, self.source.extents
        down, across = ceildiv(rows, tile.bm), ceildiv(columns, tile.bn)
        outer = self.source.outer
        grid = product(i.extent for i in outer) * down * across
        rest: Index = floordiv(sym("group"), down * across)
        head: list[Stmt] = [
            *(decode_lets(outer, rest) if outer else ()),
            *self._origin(down, across),
            *(Alloc(x) for x in self._scratch()),
        ]
        inner = self.chip.lanes(tile.waves, self._lane(depth))
        loop = (For("group", grid, (*head, *inner), "parallel", self.chip.group.name),)
        kernel = LoopKernel(name, self.namer.params(self.main), (), loop, self.namer.outputs)
        kernel = replace(kernel, dims=dims_of(kernel))
        work = product(i.extent for i in self.flat.block.iters)
        return Lowered(kernel, self.namer.args, grid, work, schedule=schedule, sources=self.kernel.sources)

    def _origin(self, down: Index, across: Index) -> list[Stmt]:
        """Where the workgroup's block begins: strips of rows, in a strip down the columns."""
        tile = self.tile
        square = sqrt(self.chip.target.workers() * tile.occupancy * tile.bn / tile.bm)
        high = max(1, round(square))
        place: Index = mod(sym("group"), down * across)
        strip, within = sym("strip"), sym("within")
        lets: dict[str, Index] = {
            "strip": floordiv(place, high * across),
            "within": place - strip * (high * across),
            "rows_here": maximum(1, minimum(high, down - strip * high)),
            "row_first": (strip * high + mod(within, sym("rows_here"))) * tile.bm,
            "column_first": floordiv(within, sym("rows_here")) * tile.bn,
            "row0": self._begin("a", sym("row_first")),
            "column0": self._begin("b", sym("column_first")),
        }
        return [Let(name, FromIndex("i64", x)) for name, x in lets.items()]

    def _begin(self, side: str, first: Index) -> Index:
        """The first row that is staged for a block whose results begin at `first`."""
        return first

    def _scratch(self) -> list[Buffer]:
        return [side.buffer() for side in self.sides]

    def _lane(self, depth: Index) -> Body:
        """What one lane does: clear, walk over k, finish."""
        tile, use = self.tile, self.use
        waves_down = tile.bm // tile.wm
        mi, ni = tile.wm // use.roles.m, tile.wn // use.roles.n
        wave: Index = sym("wave") if self.chip.wave is not None else 0
        wave = floordiv(wave, tile.members) if tile.members > 1 else wave
        member = Let(use.acc.number, FromIndex("i64", mod(sym("t"), tile.members * self.chip.width)))
        acc = Buffer("acc", use.acc.dtype, (mi * ni * use.acc.items,), self.chip.registers.name)
        clear = Store("acc", (sym("i"),), Const(use.acc.dtype, 0))
        return (
            *((member,) if tile.members > 1 else ()),
            Let("row_part", FromIndex("i64", mod(wave, waves_down) * tile.wm if waves_down > 1 else 0)),
            Let("column_part", FromIndex("i64", floordiv(wave, waves_down) * tile.wn)),
            Alloc(acc),
            For("i", mi * ni * use.acc.items, (clear,), "unroll"),
            *self._walk(depth, mi, ni),
            *self._finish(mi, ni),
        )

    def _walk(self, depth: Index, mi: int, ni: int) -> Body:
        """All blocks of k."""
        barrier = self._barrier()
        staged = (s for side in self.sides for s in side.stage())
        first = Let("k0", FromIndex("i64", sym("k_block") * self.tile.bk))
        step = (first, *staged, barrier, *self._multiply(mi, ni), barrier)
        addresses = (s for side in self.sides for s in side.addresses())
        return (*addresses, For("k_block", ceildiv(depth, self.tile.bk), step))

    def _barrier(self) -> Sync:
        return Across(self.chip, self.tile.waves, None).barrier()

    def _side(self, name: str) -> Side:
        """An operand as it is staged."""
        tile, (a, b) = self.tile, self.source.operands
        source, part, first, count = (
            (a, self.use.a, "row0", tile.bm) if name == "a" else (b, self.use.b, "column0", tile.bn)
        )
        return Side(
            name, self.chip, source, part, sym(first), count, tile.bk, self.lanes, self.plain, self.ranges
        )

    @property
    def plain(self) -> bool:
        """No intrinsic: every lane multiplies for itself."""
        return self.use.intrinsic is None

    # ------------------------------------------------------------------------------------------------- computing
    def _multiply(self, mi: int, ni: int) -> list[Stmt]:
        """All steps of k in the staged blocks: fragments of A and B, then every pair of them."""
        use, place = self.use, self.chip.registers.name
        fa = Buffer("fa", use.a.stored, (mi * use.a.items,), place)
        fb = Buffer("fb", use.b.stored, (ni * use.b.items,), place)
        step = sym("kk") * use.roles.k
        loads = [
            *self._fragments(self.sides[0], use.row, sym("row_part"), mi, use.roles.m, step),
            *self._fragments(self.sides[1], use.column, sym("column_part"), ni, use.roles.n, step),
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
        self, side: Side, coord: str, start: Index, count: int, size: int, step: Index
    ) -> list[Stmt]:
        """Registers of one operand, filled from its staged block by the widest accesses that its layout allows."""
        out: list[Stmt] = []
        part, v = side.part, sym("v")
        for i in range(count):
            for first, length in part.runs(coord if self.plain else self.use.depth):
                row = start + i * size + part.at(first, coord)
                depth = step + part.at(first, self.use.depth)
                at = side.at(row + v, depth) if self.plain else side.at(row, depth + v)
                cell = Load(part.stored, f"s{side.name}", at)
                store = Store(f"f{side.name}", (i * part.items + first + v,), cell)
                out.append(For("v", length, (store,), "vector"))
        return out

    # --------------------------------------------------------------------------------------------------- epilogue
    def _finish(self, mi: int, ni: int) -> list[Stmt]:
        """The accumulators through the epilogue into the result, where it exists."""
        rows, columns, _ = self.source.extents
        out: list[Stmt] = []
        for item, length, row, column in self._runs(mi, ni):
            lets = (Let("row", FromIndex("i64", row)), Let("column", FromIndex("i64", column)))
            single = (If(self._own(sym("column") + v, columns), self._cell(item, v)) for v in range(length))
            out += [*lets, If(compare("lt", sym("row"), rows), tuple(single))]
        return out

    def _own(self, column: Index, columns: Index) -> Value:
        """Is a column one of the result's, for this workgroup to write?"""
        return compare("lt", column, columns)

    def _runs(self, mi: int, ni: int) -> Iterator[tuple[int, int, Index, Index]]:
        """Neighbours of a row: first accumulator, how many, row and column of the first."""
        use = self.use
        for i in range(mi):
            for j in range(ni):
                for first, length in use.acc.runs(use.column):
                    row = i * use.roles.m + use.acc.at(first, use.row)
                    column = j * use.roles.n + use.acc.at(first, use.column)
                    yield (
                        (i * ni + j) * use.acc.items + first,
                        length,
                        sym("row0") + sym("row_part") + row,
                        sym("column0") + sym("column_part") + column,
                    )

    def _cell(self, item: int, v: Index, place: Index | None = None) -> Body:
        """One accumulator at (row, column + v): the epilogue and its store (to `place`, where that is known)."""
        here: dict[str, Index] = {self.parts.n[-1].name: sym("column") + v}
        if self.parts.m:
            here[self.parts.m[-1].name] = sym("row")
        moved = Rewriter(index=lambda x: substitute(x, here))
        total: Value = Load(self.use.acc.dtype, "acc", (item + v,))
        wanted = self.source.dtype
        total = total if total.dtype == wanted else Cast(wanted, total)
        if self.flat.finish is not None:
            total = finished(moved(self.flat.finish), total)
        lets = tuple(Let(x.name, moved(x.value)) for x in self.flat.lets)
        if place is None:
            offset = self.flat.offset
            place = offset if isinstance(offset, int) else substitute(offset, here)
        return (*lets, Store("o0", (place,), total))
