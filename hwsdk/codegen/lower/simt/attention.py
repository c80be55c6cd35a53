"""Attention on lanes as one streaming kernel: scores never leave the chip.

    workgroup    a block of rows of Q; keys and values come through the scratchpad in blocks
    group        some rows: their scores of a block, the weights, and the running sums in registers
    rows         the largest score so far and the sum of weights; when a block raises the largest score, everything
                 summed before is scaled down

Design choice: lanes that share a row are those whose numbers differ only in the bits that count columns, so the layout
of the accumulators says which exchanges a row needs.  Scores that do not exist are -inf; a row that saw nothing else
takes 0 as its largest, which gives the NaN that a softmax of -inf has.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.inline import both
from hwsdk.codegen.iters import decode
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
    Let,
    Load,
    LoopKernel,
    Ref,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.attention import AttentionLowering
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.lowered import Lowered, Machine, compare, dims_of, finished
from hwsdk.codegen.lower.simt.across import Across, Exchange
from hwsdk.codegen.lower.simt.attention_tiles import MatrixProducts, PlainProducts, clear
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment
from hwsdk.codegen.lower.simt.rounding import rounded, stored_as
from hwsdk.codegen.lower.simt.schedules import (
    LaneAttentionSchedule,
    lanes_reason,
    registers_reason,
    scratch_reason,
)
from hwsdk.codegen.rewrite import Renamer, Rewriter
from hwsdk.graph.dims import Ranges, ceildiv, coefficient, floordiv, mod, product, simplify, substitute, sym

DECISIONS = ("intrinsic", "waves", "columns")


def shared(part: Fragment, row: str, column: str) -> tuple[int, ...] | None:
    """Steps between lanes that hold other columns of the same rows; None where bits of a lane's number move both."""
    r, c = (part.fields[part.coords.index(n)] for n in (row, column))
    mine = {shift + i for shift, bits, _ in r for i in range(bits)}
    other = {shift + i for shift, bits, _ in c for i in range(bits)}
    return None if mine & other else tuple(1 << i for i in sorted(other))


class StreamingAttention:
    """One kernel for one way of computing products."""

    def __init__(
        self,
        parts: AttentionLowering,
        chip: SimtChip,
        machine: Machine,
        ranges: Ranges,
        products: MatrixProducts | PlainProducts,
    ) -> None:
        self.parts, self.chip, self.machine, self.ranges, self.products = (
            parts,
            chip,
            machine,
            ranges,
            products,
        )
        self.first, self.second = parts.first, parts.second
        self.dtype = products.dtype
        self.across = Across(chip, products.tile.waves, Exchange.of(chip.target, chip.width))
        self.rows, self.columns = parts.rows, parts.columns
        self.block = products.tile.waves * products.rows
        self.row_name, self.column_name = products.names

    # ------------------------------------------------------------------------------------------------------ kernel
    def lower(self) -> Lowered:
        kernel, chip, made = self.parts.kernel, self.chip, self.products
        blocks = ceildiv(self.rows, self.block)
        outers = product(i.extent for i in self.first.parts.batch)
        outer = floordiv(sym("group"), blocks)
        lets = {"outer": outer, "row0": mod(sym("group"), blocks) * self.block}
        lets |= decode(self.first.parts.batch, sym("outer"))
        lets |= {f"z_{n}": v for n, v in decode(self.second.parts.batch, sym("outer")).items()}
        head = [Let(n, FromIndex("i64", v)) for n, v in lets.items()]
        scratch = [Alloc(b) for b in made.scratch()]
        lanes = chip.lanes(made.tile.waves, tuple(self._lane()))
        loop = For("group", outers * blocks, (*head, *scratch, *lanes), "parallel", chip.group.name)
        params, args, last = self._params()
        body = LoopKernel(kernel.name, params, (), (loop,), (last,))
        body = replace(body, dims=dims_of(body))
        work = product((*(i.extent for i in self.first.parts.batch), self.rows, self.columns)) * 4
        return Lowered(
            body,
            args,
            loop.extent,
            work,
            schedule=self.schedule(),
            sources=kernel.sources,
            decisions=DECISIONS,
        )

    def _params(self) -> tuple[tuple[Buffer, ...], tuple[str, ...], str]:
        hidden = {self.parts.scores.name, self.parts.weights.name}
        found: list[tuple[Buffer, str]] = []
        for prefix, part in (("f_", self.first), ("s_", self.second)):
            named = zip(part.namer.params(self.machine.main.name), part.namer.args, strict=True)
            found += [(replace(b, name=f"{prefix}{b.name}"), n) for b, n in named if n not in hidden]
        return tuple(b for b, _ in found), tuple(n for _, n in found), found[-1][0].name

    def schedule(self) -> LaneAttentionSchedule:
        made, tile = self.products, self.products.tile
        name = made.use.intrinsic.name if isinstance(made, MatrixProducts) and made.use.intrinsic else ""
        direct = isinstance(made, MatrixProducts) and made.direct is not None
        why = (
            lanes_reason(self.chip, tile.waves, "waves"),
            lanes_reason(self.chip, self.block, "rows"),
            scratch_reason(self.chip, "columns", tile.columns),
            registers_reason(self.chip, "sums", made.sums[0].items * made.sums[1]),
        )
        return LaneAttentionSchedule(name, self.block, tile.columns, tile.waves, direct, why=why)

    def _named(self, prefix: str, part: ContractionLowering, body: Body) -> Body:
        """Statements of one part in the joint kernel."""
        own = set(part.namer.buffer.values())
        return Renamer(lambda b: f"{prefix}{b}" if b in own else b, {}, "")(body)

    # ------------------------------------------------------------------------------------------------------- lanes
    def _lane(self) -> list[Stmt]:
        made, place = self.products, self.chip.registers.name
        (sums, more) = made.sums
        wave: Index = sym("wave") if self.chip.wave is not None else 0
        block = product((sym("block"), made.tile.columns))
        barrier = self.across.barrier()
        step: Body = (
            Let("column0", FromIndex("i64", block)),
            *self._staged("sk", self.first, "f_", sym("column0")),
            *self._staged("sv", self.second, "s_", sym("column0")),
            barrier,
            *clear("s", self.dtype, made.scores[0].items * made.scores[1], 0.0, place),
            *made.multiply(),
            *self._named("f_", self.first, tuple(self._finished_scores())),
            *self._weights(),
            *made.accumulate(barrier),
            barrier,
        )
        lowest = float("-inf")
        return [
            Let("row_part", FromIndex("i64", wave * made.rows)),
            *made.head(),
            *self._query(),
            *clear("o", self.dtype, sums.items * more, 0.0, place),
            *clear("top", self.dtype, len(self._lines), lowest, place),
            *clear("total", self.dtype, len(self._lines), 0.0, place),
            For("block", ceildiv(self.columns, made.tile.columns), step),
            *self._written(),
        ]

    def _query(self) -> list[Stmt]:
        """The block of Q, staged or in registers; zeros where it does not exist."""
        staged, runs = self.products.query()
        if staged is not None:
            return self._staged("sq", self.first, "f_", sym("row0"), query=True)
        if self.block <= self.products.tile.columns:
            return self._query_by_scratchpad(runs)
        load, m, k = self.first.parts.a, self.first.parts.m[0], self.first.parts.k[0]
        out: list[Stmt] = []
        for first, length, row, depth in runs:
            here = {m.name: sym("row0") + sym("row_part") + row, k.name: depth}
            known: Value | None = compare("lt", here[m.name], self.rows)
            if k.extent != self.products.padded[0]:
                known = both(known, compare("le", depth + length, k.extent))
            assert known is not None
            whole = self._copy("fq", (first,), load, here, k.name, length)
            value = self._edge(load, here, m.name, self.rows, k.name, k.extent)
            edge = For("v", length, (Store("fq", (first + sym("v"),), value),), "unroll")
            out.append(If(known, whole, (edge,)))
        return list(self._named("f_", self.first, tuple(out)))

    def _query_by_scratchpad(self, runs: list[tuple[int, int, Index, Index]]) -> list[Stmt]:
        """The block of Q where keys will be staged, from there into registers."""
        dtype, v, barrier = stored_as(self.products.operand), sym("v"), self.across.barrier()
        out = [*self._staged("sk", self.first, "f_", sym("row0"), query=True), barrier]
        for first, length, row, depth in runs:
            cell = Load(dtype, "sk", (sym("row_part") + row, depth + v))
            out.append(For("v", length, (Store("fq", (first + v,), cell),), "vector"))
        return [*out, barrier]

    def _copy(
        self, to: str, at: tuple[Index, ...], load: Load, place: dict[str, Index], along: str, wide: int
    ) -> Body:
        """`wide` neighbours along an iter."""
        v = sym("v")
        index = load.index[0]
        moved = {n: x + v if n == along else x for n, x in place.items()}
        offset = index if isinstance(index, int) else substitute(index, moved)
        value = rounded(Load(load.dtype, load.buffer, (offset,)), self.products.operand)
        return (For("v", wide, (Store(to, (*at[:-1], at[-1] + v), value),), "vector"),)

    def _staged(
        self, name: str, part: ContractionLowering, prefix: str, first: Index, query: bool = False
    ) -> list[Stmt]:
        """A block of Q, K or V into the scratchpad, lines of what a row or key has; zeros behind the ends."""
        made, parts = self.products, part.parts
        buffer = next(b for b in made.scratch() if b.name == name)
        load = parts.a if query else parts.b
        second = part is self.second
        lines_of, along = (
            (parts.k[0], parts.n[0]) if second else ((parts.m if query else parts.n)[0], parts.k[0])
        )
        count, length = int(str(buffer.shape[0])), made.padded[1 if second else 0]
        wide = self._wide(load, along.name, length)
        index = load.index[0]
        if second and not isinstance(index, int):
            index = substitute(index, {i.name: sym(f"z_{i.name}") for i in parts.batch})
            load = replace(load, index=(index,))
        units, per_line = count * length // wide, length // wide
        unit, n = sym(f"u{name}"), made.lanes
        line, place = sym(f"l{name}"), sym(f"d{name}")
        here = {lines_of.name: first + line, along.name: place}
        limit = self.rows if query else self.columns
        known = compare("lt", first + line, limit)
        if not isinstance(along.extent, int) or along.extent < length:
            known = both(known, compare("le", place + wide, along.extent)) or known
        whole = self._copy(name, (line, place), load, here, along.name, wide)
        edge_value = self._edge(load, here, lines_of.name, limit, along.name, along.extent)
        edge = For("v", wide, (Store(name, (line, place + sym("v")), edge_value),))
        body: Body = (
            Let(f"l{name}", FromIndex("i64", floordiv(unit, per_line))),
            Let(f"d{name}", FromIndex("i64", mod(unit, per_line) * wide)),
            If(known, whole, (edge,)),
        )
        if units % n:
            body = (If(compare("lt", unit, units), body),)
        turn = Let(f"u{name}", FromIndex("i64", sym("turn") * n + sym("t")))
        return list(self._named(prefix, part, (For("turn", -(-units // n), (turn, *body)),)))

    def _edge(
        self, load: Load, here: dict[str, Index], lines: str, limit: Index, along: str, extent: Index
    ) -> Value:
        """One element, or zero."""
        place = here[along] + sym("v")
        known = both(compare("lt", here[lines], limit), compare("lt", place, extent))
        assert known is not None
        index = load.index[0]
        offset = index if isinstance(index, int) else substitute(index, {**here, along: place})
        value = Load(load.dtype, load.buffer, (offset,), known)
        return rounded(Select(load.dtype, known, value, Const(load.dtype, 0)), self.products.operand)

    def _wide(self, load: Load, along: str, length: int) -> int:
        """Elements of one access along a line."""
        index = load.index[0]
        if isinstance(index, int) or coefficient(index, along) != 1:
            return 1
        wide = self.chip.elements(load.dtype)
        while wide > 1 and (
            length % wide or simplify(mod(substitute(index, {along: 0}), wide), self.ranges) != 0
        ):
            wide //= 2
        return wide

    # ----------------------------------------------------------------------------------------------------- softmax
    @property
    def _lines(self) -> list[int]:
        """Rows of a tile that one lane holds, as the fragment's base counts them."""
        part, _ = self.products.scores
        return sorted({b[part.coords.index(self.row_name)] for b in part.base})

    def _cells(self, part: Fragment, tiles: int, across: int) -> list[tuple[int, int, Index, Index]]:
        """(item, which of the lane's rows, row in the group, column) of all tiles side by side."""
        at, out = part.coords.index(self.row_name), []
        for j in range(tiles):
            for item, base in enumerate(part.base):
                row, column = part.at(item, self.row_name), part.at(item, self.column_name)
                out.append((j * part.items + item, self._lines.index(base[at]), row, j * across + column))
        return out

    def _finished_scores(self) -> list[Stmt]:
        """The first product's epilogue on `s`; -inf where there is no score."""
        m, n = self.first.parts.m[0].name, self.first.parts.n[0].name
        out: list[Stmt] = []
        low = Const(self.dtype, float("-inf"))
        for item, _, row, column in self._cells(*self.products.scores, self.products.step[1]):
            here = {"row": sym("row0") + sym("row_part") + row, "column": sym("column0") + column}
            moved = Rewriter(index=lambda x: substitute(x, {m: sym("row"), n: sym("column")}))
            total: Value = Load(self.dtype, "s", (item,))
            if self.first.flat.finish is not None:
                total = finished(moved(self.first.flat.finish), total)
            total = total if total.dtype == self.dtype else Cast(self.dtype, total)
            known = both(compare("lt", sym("row"), self.rows), compare("lt", sym("column"), self.columns))
            assert known is not None
            out += [Let(name, FromIndex("i64", x)) for name, x in here.items()]
            out.append(If(known, (Store("s", (item,), total),), (Store("s", (item,), low),)))
        return out

    def _shuffled(self, buffer: str, op: str) -> list[Stmt]:
        """One value per row from all lanes that hold columns of it, in registers `x`."""
        part, _ = self.products.scores
        steps = shared(part, self.row_name, self.column_name)
        assert steps is not None
        out: list[Stmt] = []
        for number in range(len(self._lines)):
            out.append(Store("x", (0,), Load(self.dtype, buffer, (number,))))
            for step in steps:
                out += self.across.swapped("x", "y", self.dtype, step)
                pair = Binary(self.dtype, op, Load(self.dtype, "x", (0,)), Load(self.dtype, "y", (0,)))
                out.append(Store("x", (0,), pair))
            out.append(Store(buffer, (number,), Load(self.dtype, "x", (0,))))
        return out

    def _exchange(self) -> list[Stmt]:
        place = self.chip.registers.name
        return [Alloc(Buffer("x", self.dtype, (1,), place)), *self.across.registers("x", "y", self.dtype)]

    def _weights(self) -> list[Stmt]:
        """Scores to weights; what was summed before is scaled to the new largest score."""
        d, lines, place = self.dtype, self._lines, self.chip.registers.name
        cells = self._cells(*self.products.scores, 0)
        sums = self._cells(*self.products.sums, 0)
        out: list[Stmt] = [*self._exchange(), Alloc(Buffer("new", d, (len(lines),), place))]
        for number in range(len(lines)):
            found: Value = Load(d, "top", (number,))
            for item, which, _, _ in cells:
                if which == number:
                    found = Binary(d, "max", found, Load(d, "s", (item,)))
            out.append(Store("new", (number,), found))
        out += self._shuffled("new", "max")
        low = Const(d, float("-inf"))
        for number in range(len(lines)):
            new = Load(d, "new", (number,))
            base = Select(d, Binary("bool", "eq", new, low), Const(d, 0.0), new)
            out.append(Let(f"base{number}", base))
            shrink = Unary(d, "exp", Binary(d, "sub", Load(d, "top", (number,)), Ref(d, f"base{number}")))
            out += [Let(f"shrink{number}", shrink), Store("top", (number,), new)]
        for item, which, _, _ in cells:
            weight = Unary(d, "exp", Binary(d, "sub", Load(d, "s", (item,)), Ref(d, f"base{which}")))
            out.append(Store("s", (item,), weight))
        for number in range(len(lines)):
            total: Value = Binary(d, "mul", Load(d, "total", (number,)), Ref(d, f"shrink{number}"))
            for item, which, _, _ in cells:
                if which == number:
                    total = Binary(d, "add", total, Load(d, "s", (item,)))
            out.append(Store("total", (number,), total))
        for item, which, _, _ in sums:
            out.append(Store("o", (item,), Binary(d, "mul", Load(d, "o", (item,)), Ref(d, f"shrink{which}"))))
        return out

    def _written(self) -> list[Stmt]:
        """Sums divided by the sums of weights, through the second product's epilogue, where they exist."""
        d, part = self.dtype, self.second
        m, n = part.parts.m[0].name, part.parts.n[0].name
        outer: dict[str, Index] = {i.name: sym(f"z_{i.name}") for i in part.parts.batch}
        here = {**outer, m: sym("row"), n: sym("column")}
        moved = Rewriter(index=lambda x: substitute(x, here))
        out: list[Stmt] = [*self._exchange(), *self._shuffled("total", "add")]
        offset = part.flat.offset if isinstance(part.flat.offset, int) else substitute(part.flat.offset, here)
        lets = tuple(Let(x.name, moved(x.value)) for x in part.flat.lets)
        for item, which, row, column in self._cells(*self.products.sums, self.products.step[1]):
            value: Value = Binary(d, "div", Load(d, "o", (item,)), Load(d, "total", (which,)))
            if not isinstance(self.columns, int):  # a product over no keys is zero
                value = Select(d, compare("gt", self.columns, 0), value, Const(d, 0.0))
            if part.flat.finish is not None:
                value = finished(moved(part.flat.finish), value)
            places = {"row": sym("row0") + sym("row_part") + row, "column": column}
            known = both(compare("lt", sym("row"), self.rows), compare("lt", sym("column"), part.extents[1]))
            assert known is not None
            out += [Let(name, FromIndex("i64", x)) for name, x in places.items()]
            out.append(If(known, (*lets, Store("o0", (offset,), value))))
        return list(self._named("s_", part, tuple(out)))
