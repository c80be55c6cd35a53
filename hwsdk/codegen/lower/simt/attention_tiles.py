"""The two products of streaming attention on lanes: scores of a block of rows, and weights times values.

    matrix   intrinsics of a lockstep group; Q stays in registers as fragments, K and V come into fragments by copies of
             the group where the chip has such, the weights go from the accumulators of the first product into operands
             of the second as they lie where the layouts agree, else by the scratchpad
    plain    every lane multiplies for itself: Q, K, V and the weights are read from the scratchpad, four at once

Design choice: both give the same few parts (how rows and columns of accumulators lie, and statements), so that the
softmax between them is written once, over layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Const,
    For,
    FromIndex,
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
from hwsdk.codegen.lower.simt.facts import SimtChip, round_up
from hwsdk.codegen.lower.simt.fragments import Fragment, MatrixUse
from hwsdk.codegen.lower.simt.group_copy import GroupCopy, group_copies
from hwsdk.codegen.lower.simt.rounding import rounded
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import floordiv, mod, sym

FOUR = 4  # neighbours that plain arithmetic reads at once


@dataclass(frozen=True)
class AttentionTile:
    """waves: lockstep groups of a workgroup.  columns: keys of a staged block."""

    waves: int
    columns: int


@dataclass(frozen=True)
class Products:
    """What both kinds share.  depth: of Q and K; values: columns of V; dtype: of sums."""

    chip: SimtChip
    tile: AttentionTile
    depth: int
    values: int
    dtype: str

    @property
    def operand(self) -> str:
        """Dtype of what is multiplied."""
        return self.dtype

    @property
    def lanes(self) -> int:
        return self.tile.waves * self.chip.width

    @property
    def registers(self) -> str:
        return self.chip.registers.name

    def staged(self, name: str, dtype: str, lines: int, length: int) -> Buffer:
        """A block in the scratchpad; lines are one access longer than needed, against bank conflicts."""
        assert self.chip.scratch is not None
        pad = max(1, self.chip.access_bytes // DTYPES[dtype].size_bytes)
        return Buffer(name, dtype, (lines, length + pad), self.chip.scratch.name, align_bytes=16)


@dataclass(frozen=True)
class MatrixProducts(Products):
    use: MatrixUse

    @property
    def operand(self) -> str:
        return self.use.a.dtype

    @property
    def rows(self) -> int:
        """Of a lockstep group."""
        return self.use.roles.m

    @property
    def scores(self) -> tuple[Fragment, int]:
        """The layout of a tile of scores, and tiles side by side."""
        return self.use.acc, self.tile.columns // self.use.roles.n

    @property
    def sums(self) -> tuple[Fragment, int]:
        return self.use.acc, round_up(self.values, self.use.roles.n) // self.use.roles.n

    @property
    def names(self) -> tuple[str, str]:
        """What the fragments call rows and columns."""
        return self.use.row, self.use.column

    @property
    def step(self) -> tuple[int, int]:
        """Rows and columns of one tile of scores; of sums the same."""
        return self.use.roles.m, self.use.roles.n

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and value columns as they are staged."""
        return round_up(self.depth, self.use.roles.k), round_up(self.values, self.use.roles.n)

    @property
    def direct(self) -> tuple[tuple[int, int], ...] | None:
        """For every item of an operand of the second product: (tile, item) of the scores that lies in the same lanes.
        None where it does not."""
        use, out = self.use, []
        a, acc = use.a, use.acc
        row, column, deep = (a.coords.index(use.row), acc.coords.index(use.column), a.coords.index(use.depth))
        own = acc.coords.index(use.row)
        if a.fields[row] != acc.fields[own] or a.fields[deep] != acc.fields[column]:
            return None
        for place in a.base:
            tile, rest = divmod(place[deep], use.roles.n)
            want = [i for i, b in enumerate(acc.base) if b[own] == place[row] and b[column] == rest]
            if len(want) != 1 or max(b[column] for b in acc.base) >= use.roles.n:
                return None
            out.append((tile, want[0]))
        lanes = sum(((1 << bits) - 1) * weight for _, bits, weight in acc.fields[column])
        inside = all(p[deep] % use.roles.n + lanes < use.roles.n for p in a.base)
        return tuple(out) if inside else None

    def scratch(self) -> list[Buffer]:
        use, (depth, values), tile = self.use, self.padded, self.tile
        out = [
            self.staged("sk", use.b.stored, tile.columns, depth),
            self.staged("sv", use.b.stored, tile.columns, values),
        ]
        if self.direct is None:
            out.append(self.staged("sp", use.a.stored, tile.waves * self.rows, tile.columns))
        return out

    def query(self) -> tuple[Buffer | None, list[tuple[int, int, Index, Index]]]:
        """(block of Q in the scratchpad or None, runs of a lane's own registers: first, length, row, depth)."""
        use, runs = self.use, []
        for kk in range(self.padded[0] // use.roles.k):
            for first, length in use.a.runs(use.depth):
                depth = kk * use.roles.k + use.a.at(first, use.depth)
                runs.append((kk * use.a.items + first, length, use.a.at(first, use.row), depth))
        return None, runs

    def head(self) -> list[Stmt]:
        count = self.padded[0] // self.use.roles.k * self.use.a.items
        return [Alloc(Buffer("fq", self.use.a.stored, (count,), self.registers))]

    def _use(self, acc: str, tile: int, a: str, first: int) -> Intrin:
        """The product for a tile of accumulators and its fragment in `fb`."""
        use, where = self.use, View(acc, (tile * self.use.acc.items,))
        assert use.intrinsic is not None
        operands = {use.acc.operand: where, use.addend: where, use.a.operand: View(a, (first,))}
        operands[use.b.operand] = View("fb", (tile * use.b.items,))
        return Intrin(use.intrinsic.name, tuple((n, operands[n]) for n in use.intrinsic.operands))

    def multiply(self) -> list[Stmt]:
        """Scores of the staged block of K into `s`."""
        use, tiles, out = self.use, self.scores[1], list[Stmt]()
        for kk in range(self.padded[0] // use.roles.k):
            out += self._fragments("sk", use.depth, tiles, kk)
            out += [self._use("s", j, "fq", kk * use.a.items) for j in range(tiles)]
        return out

    def _fragments(self, source: str, inner: str, tiles: int, step: int) -> list[Stmt]:
        """What a step of k needs of a staged block, `tiles` side by side, in `fb`; inner: what its lines are along."""
        use, part, at = self.use, self.use.b, 0
        total = tiles * part.items
        out: list[Stmt] = [Alloc(Buffer("fb", part.stored, (total,), self.registers))]

        def place(lines: Fragment, item: int, tile: int, v: Index) -> tuple[Index, Index]:
            row, depth = (lines.at(item, c) for c in (use.column, use.depth))
            row, depth = tile * use.roles.n + row, step * use.roles.k + depth
            return (row, depth + v) if inner == use.depth else (depth, row + v)

        while at < total:
            tile, item = divmod(at, part.items)
            found = self._copy(item, total - at, inner)
            if found is not None:
                copy, lines = found
                out.append(copy.use(View("fb", (at,)), View(source, place(lines, 0, tile, 0))))
                at += copy.items
                continue
            length = part.runs(inner)[0][1]
            cell = Load(part.stored, source, place(part, item, tile, sym("v")))
            out.append(For("v", length, (Store("fb", (at + sym("v"),), cell),), "vector"))
            at += length
        return out

    def _copy(self, item: int, left: int, inner: str) -> tuple[GroupCopy, Fragment] | None:
        """The copy that fills most items of B from `item` on, and the lines that lanes address for it."""
        chip, part = self.chip, self.use.b
        wide = (
            chip.access_bytes // DTYPES[part.stored].size_bytes
        )  # lines of the scratchpad are multiples of it
        for copy in group_copies(chip):
            if copy.items <= left and copy.length == wide and chip.access_bytes % copy.align == 0:
                lines = copy.lines(part, self.use.column, self.use.roles.n, item, inner)
                if lines is not None:
                    return copy, lines
        return None

    def accumulate(self, barrier: Stmt) -> list[Stmt]:
        """The weights in `s` times the staged block of V, onto `o`."""
        use, out = self.use, list[Stmt]()
        steps = self.tile.columns // use.roles.k
        out.append(Alloc(Buffer("fp", use.a.stored, (steps * use.a.items,), self.registers)))
        out += self._operands(barrier)
        tiles = self.sums[1]
        for kk in range(steps):
            out += self._fragments("sv", use.column, tiles, kk)
            out += [self._use("o", j, "fp", kk * use.a.items) for j in range(tiles)]
        return out

    def _operands(self, barrier: Stmt) -> list[Stmt]:
        """The weights as operands of the second product."""
        use, direct, out = self.use, self.direct, list[Stmt]()
        steps = self.tile.columns // use.roles.k
        if direct is not None:
            for kk, (item, (tile, own)) in pairs(range(steps), enumerate(direct)):
                at = (kk * use.roles.k // use.roles.n + tile) * use.acc.items + own
                weight = rounded(Load(use.acc.dtype, "s", (at,)), use.a.dtype)
                out.append(Store("fp", (kk * use.a.items + item,), weight))
            return out
        for j, (item, _) in pairs(range(self.scores[1]), enumerate(use.acc.base)):
            cell = (
                sym("row_part") + use.acc.at(item, use.row),
                j * use.roles.n + use.acc.at(item, use.column),
            )
            weight = rounded(Load(use.acc.dtype, "s", (j * use.acc.items + item,)), use.a.dtype)
            out.append(Store("sp", cell, weight))
        out.append(barrier)
        for kk in range(steps):
            for first, length in use.a.runs(use.depth):
                line = sym("row_part") + use.a.at(first, use.row)
                place = kk * use.roles.k + use.a.at(first, use.depth) + sym("v")
                value = Load(use.a.stored, "sp", (line, place))
                at = kk * use.a.items + first
                out.append(For("v", length, (Store("fp", (at + sym("v"),), value),), "vector"))
        return out


@dataclass(frozen=True)
class PlainProducts(Products):
    """A lockstep group as a grid of lanes: `side` of them side by side, each with four rows."""

    @property
    def side(self) -> int:
        """Lanes side by side: a little wider than high."""
        return 1 << (self.chip.width.bit_length() // 2)

    @property
    def rows(self) -> int:
        return self.chip.width // self.side * FOUR

    @property
    def padded(self) -> tuple[int, int]:
        return round_up(self.depth, FOUR), round_up(self.values, FOUR * self.side)

    def _grid(self, columns: list[int], weight: int) -> Fragment:
        bits, shift = self.chip.width.bit_length() - 1, self.side.bit_length() - 1
        down = ((shift, bits - shift, FOUR),) if bits > shift else ()
        beside = ((0, shift, weight),) if shift else ()
        cells = tuple((i, j) for i in range(FOUR) for j in columns)
        return Fragment("acc", self.dtype, ("m", "n"), cells, (down, beside))

    @property
    def scores(self) -> tuple[Fragment, int]:
        """Neighbouring lanes take neighbouring columns: lines of K in different banks."""
        return self._grid(list(range(0, self.tile.columns, self.side)), 1), 1

    @property
    def sums(self) -> tuple[Fragment, int]:
        """A lane takes four neighbouring columns at once."""
        blocks = range(0, self.padded[1], FOUR * self.side)
        return self._grid([b + i for b in blocks for i in range(FOUR)], FOUR), 1

    @property
    def names(self) -> tuple[str, str]:
        return "m", "n"

    @property
    def step(self) -> tuple[int, int]:
        return self.rows, self.tile.columns

    def scratch(self) -> list[Buffer]:
        (depth, values), tile = self.padded, self.tile
        rows = tile.waves * self.rows
        return [
            self.staged("sq", self.dtype, rows, depth),
            self.staged("sk", self.dtype, tile.columns, depth),
            self.staged("sv", self.dtype, tile.columns, values),
            self.staged("sp", self.dtype, rows, tile.columns),
        ]

    def query(self) -> tuple[Buffer | None, list[tuple[int, int, Index, Index]]]:
        return self.scratch()[0], []

    def head(self) -> list[Stmt]:
        return [
            Let("down", FromIndex("i64", floordiv(sym("lane"), self.side) * FOUR)),
            Let("beside", FromIndex("i64", mod(sym("lane"), self.side))),
        ]

    def _fused(self, acc: str, columns: int, a: Index, b: Index) -> Body:
        """acc[i, j] += fa[a over i] * fb[b over j]."""
        at = sym("i") * columns + sym("j")
        x, y, old = (Load(self.dtype, n, (i,)) for n, i in (("fa", a), ("fb", b), (acc, at)))
        fused = DTYPES[self.dtype].kind == "f" and self.chip.target.numerics.contraction == "fma"
        plain: Value = Binary(self.dtype, "add", old, Binary(self.dtype, "mul", x, y))
        new = Ternary(self.dtype, "fma", x, y, old) if fused else plain
        inner = For("j", columns, (Store(acc, (at,), new),), "unroll")
        return (For("i", FOUR, (inner,), "unroll"),)

    def _rows(self, source: str, block: Index) -> Iterator[Stmt]:
        """Four neighbours of each of the lane's rows into `fa`."""
        for i in range(FOUR):
            cell = Load(self.dtype, source, (sym("row_part") + sym("down") + i, block * FOUR + sym("v")))
            yield For("v", FOUR, (Store("fa", (i * FOUR + sym("v"),), cell),), "vector")

    def multiply(self) -> list[Stmt]:
        columns = self.tile.columns // self.side
        body: list[Stmt] = [
            Alloc(Buffer("fa", self.dtype, (FOUR * FOUR,), self.registers)),
            Alloc(Buffer("fb", self.dtype, (columns * FOUR,), self.registers)),
            *self._rows("sq", sym("kk")),
        ]
        for j in range(columns):
            cell = Load(self.dtype, "sk", (sym("beside") + j * self.side, sym("kk") * FOUR + sym("v")))
            body.append(For("v", FOUR, (Store("fb", (j * FOUR + sym("v"),), cell),), "vector"))
        q = sym("q")
        body.append(
            For("q", FOUR, self._fused("s", columns, sym("i") * FOUR + q, sym("j") * FOUR + q), "unroll")
        )
        return [For("kk", self.padded[0] // FOUR, tuple(body))]

    def accumulate(self, barrier: Stmt) -> list[Stmt]:
        fragment, _ = self.scores
        columns = self.padded[1] // self.side
        out: list[Stmt] = []
        for item in range(fragment.items):
            at = (sym("row_part") + fragment.at(item, "m"), fragment.at(item, "n"))
            out.append(Store("sp", at, Load(self.dtype, "s", (item,))))
        body: list[Stmt] = [
            Alloc(Buffer("fa", self.dtype, (FOUR * FOUR,), self.registers)),
            Alloc(Buffer("fb", self.dtype, (columns,), self.registers)),
            *self._rows("sp", sym("kk")),
        ]
        line: list[Stmt] = []
        for block in range(columns // FOUR):
            place = block * FOUR * self.side + sym("beside") * FOUR + sym("v")
            cell = Load(self.dtype, "sv", (sym("kk") * FOUR + sym("q"), place))
            line.append(For("v", FOUR, (Store("fb", (block * FOUR + sym("v"),), cell),), "vector"))
        line += self._fused("o", columns, sym("i") * FOUR + sym("q"), sym("j"))
        body.append(For("q", FOUR, tuple(line), "unroll"))
        return [*out, barrier, For("kk", self.tile.columns // FOUR, tuple(body))]


def clear(buffer: str, dtype: str, count: int, value: float, place: str) -> list[Stmt]:
    """Registers that begin with one value."""
    store = Store(buffer, (sym("i"),), Const(dtype, value))
    return [Alloc(Buffer(buffer, dtype, (count,), place)), For("i", count, (store,), "unroll")]
