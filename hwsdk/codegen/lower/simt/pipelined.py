"""Contractions on matrix intrinsics whose blocks arrive ahead of time.

    ring         where the chip copies beside the stream of instructions, `stages` slots: while one is multiplied the
                 others are filled; one barrier per block
    registers    where copies pass registers, the next block waits in them while this one is multiplied
    rounds       the loop over blocks is unrolled over the slots, so that slots are displacements; blocks that do not
                 fill a round, and the one that ends behind k, follow in a loop of their own

Design choice: the version runs only where every chunk is whole (`guard`).  Rows beside the problem repeat the last one,
the last block of columns begins early enough to be whole, and only the epilogue asks what to store; so the inner loop
consists of products and the moves that feed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from hwsdk.codegen.inline import both
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Stmt,
    Sync,
    Value,
)
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.simt.panel import Panel
from hwsdk.codegen.lower.simt.tensor import TensorContraction
from hwsdk.graph.dims import (
    ceildiv,
    coefficient,
    eq,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    simplify,
    substitute,
    sym,
)

ROUND = 640  # products and copies of a round, about
LONGEST = 8  # blocks of a round, about


class PipelinedContraction(TensorContraction):
    """One contraction for one matrix intrinsic, one tile and whole chunks."""

    @cached_property
    def panels(self) -> tuple[Panel, Panel]:
        a, b = self._panel("a"), self._panel("b")
        if self.tile.stages == 1 or a.copy is None or b.copy is None:
            return a, b
        return replace(a, slots=self.tile.stages), replace(b, slots=self.tile.stages)

    def _panel(self, name: str) -> Panel:
        tile, use, (a, b) = self.tile, self.use, self.source.operands
        m, n = use.roles.m, use.roles.n
        source, part, coord, size, share, first, count = (
            (a, use.a, use.row, m, tile.wm, "row0", tile.bm)
            if name == "a"
            else (b, use.b, use.column, n, tile.wn, "column0", tile.bn)
        )
        return Panel(
            name, self.chip, source, part, coord, use.depth, size, share, sym(first), count, tile.bk,
            self.lanes, 1, self.ranges,
        )  # fmt: skip

    @cached_property
    def conditions(self) -> list[Index] | None:
        """What must be zero for this version to run; None where it never may."""
        return self._conditions()

    def _conditions(self) -> list[Index] | None:
        if self.plain or not self.parts.k:
            return None
        found = [p.conditions() for p in self.panels]
        return None if any(c is None for c in found) else [x for c in found if c is not None for x in c]

    @property
    def guard(self) -> Index:
        """Non-zero where this version may run."""
        asked = self.conditions
        assert asked is not None
        out: Index = 1
        if asked:
            out = eq(sum(asked[1:], asked[0]), 0)
        for panel in self.panels:
            if not panel.along_k:
                out = out * ge(panel.source.row_count, panel.count)
        return out

    # ------------------------------------------------------------------------------------------------------- blocks
    def _begin(self, side: str, first: Index) -> Index:
        """Lines along rows are read as they are: the last block begins where it is whole."""
        panel = self.panels[0 if side == "a" else 1]
        return first if panel.along_k else minimum(first, panel.source.row_count - panel.count)

    def _scratch(self) -> list[Buffer]:
        return [p.buffer() for p in self.panels]

    def _walk(self, depth: Index, mi: int, ni: int) -> Body:
        """All blocks of k; what no loop changes stands in front."""
        body = self._ring(depth, mi, ni) if self.panels[0].slots > 1 else self._relay(depth, mi, ni)
        return (*(s for p in self.panels for s in p.before()), *body)

    def _ring(self, depth: Index, mi: int, ni: int) -> Body:
        """Copies run ahead of products."""
        copy, stages, ahead = self.chip.copy, self.tile.stages, self._ahead
        assert copy is not None
        blocks, full = ceildiv(depth, self.tile.bk), floordiv(depth, self.tile.bk)
        unrolled = self._unrolled(
            mi * ni * (self.tile.bk // self.use.roles.k) + sum(p.instructions for p in self.panels)
        )
        rounds = floordiv(maximum(0, full - ahead), unrolled)

        def filled(block: Index, slot: Index) -> Stmt:
            """Any block: whole, at the end of k, or none."""
            edge = If(compare("lt", block, blocks), tuple(self._sent(block, slot, edge=True)))
            return If(compare("lt", block, full), tuple(self._sent(block, slot, edge=False)), (edge,))

        start = For("n", ahead, (filled(sym("n"), sym("n")), Sync(copy.commit)))
        steady: list[Stmt] = []
        for number in range(unrolled):
            coming = sym("round") * unrolled + number + ahead
            sent = self._sent(coming, (number + ahead) % stages, edge=False)
            steady += self._turn(sent, mi, ni, number % stages)
        block, done = sym("rest") + ahead + sym("done"), Let("done", FromIndex("i64", rounds * unrolled))
        last = self._turn([filled(block, mod(sym("rest") + ahead, stages))], mi, ni, mod(sym("rest"), stages))
        return (
            start,
            For("round", rounds, tuple(steady)),
            done,
            For("rest", blocks - sym("done"), tuple(last)),
            *self._closed(),
        )

    @property
    def _ahead(self) -> int:
        """Blocks by which copies run ahead: all slots but the one that is multiplied."""
        return self.tile.stages - 1

    def _turn(self, sent: Sequence[Stmt], mi: int, ni: int, slot: Index) -> list[Stmt]:
        """One block is multiplied, another sent for."""
        copy = self.chip.copy
        assert copy is not None
        wait = Sync(copy.wait, pending=self._ahead - 1)
        return [wait, self._barrier(), *sent, Sync(copy.commit), *self._multiplied(mi, ni, slot)]

    def _closed(self) -> list[Stmt]:
        """Behind the last block."""
        copy = self.chip.copy
        assert copy is not None
        return [Sync(copy.wait)]

    def _unrolled(self, work: int) -> int:
        """Blocks of a round: as often around the ring as makes addresses and loop control rare among products."""
        stages = self.tile.stages
        return min(max(1, ROUND // (stages * work)), max(1, LONGEST // stages)) * stages

    def _sent(self, block: Index, slot: Index, edge: bool) -> list[Stmt]:
        return [s for p in self.panels for s in p.send(block, slot, edge)]

    def _relay(self, depth: Index, mi: int, ni: int) -> Body:
        """The next block waits in registers."""
        blocks, full = ceildiv(depth, self.tile.bk), floordiv(depth, self.tile.bk)
        barrier = self._barrier()

        def fetched(block: Index) -> Stmt:
            edge = If(compare("lt", block, blocks), self._fetched(block, edge=True))
            return If(compare("lt", block, full), self._fetched(block, edge=False), (edge,))

        put = tuple(s for p in self.panels for s in p.put(0))
        waiting = tuple(p.waiting() for p in self.panels)
        step = (
            *put,
            barrier,
            fetched(sym("k_block") + 1),
            *self._multiplied(mi, ni, 0),
            barrier,
        )
        return (*waiting, fetched(0), For("k_block", blocks, step))

    def _fetched(self, block: Index, edge: bool) -> Body:
        return tuple(s for p in self.panels for s in p.fetch(block, edge))

    # ---------------------------------------------------------------------------------------------------- computing
    def _multiplied(self, mi: int, ni: int, slot: Index) -> list[Stmt]:
        """One block: fragments of A and B for each step of k, then every pair of them."""
        use, place = self.use, self.chip.registers.name
        out: list[Stmt] = []
        a, b = self.panels
        for step in range(0, self.tile.bk, use.roles.k):
            out += [
                Alloc(Buffer("fa", use.a.stored, (mi * use.a.items,), place)),
                Alloc(Buffer("fb", use.b.stored, (ni * use.b.items,), place)),
                *a.fragments("fa", sym("row_part"), mi, step, slot),
                *b.fragments("fb", sym("column_part"), ni, step, slot),
                *self._pairs(mi, ni),
            ]
        return out

    # ----------------------------------------------------------------------------------------------------- epilogue
    def _finish(self, mi: int, ni: int) -> list[Stmt]:
        """Blocks that are whole, with rows of whole runs, ask nothing: one address, everything else displacements."""
        ends = dict(zip(("row", "column"), self.source.extents, strict=False))
        whole: Value | None = None
        for name, count in (("row", self.tile.bm), ("column", self.tile.bn)):
            whole = both(whole, compare("le", sym(f"{name}0") + count, ends[name]))
            whole = both(whole, compare("eq", sym(f"{name}0"), sym(f"{name}_first")))
        run = self.use.acc.runs(self.use.column)[0][1]
        for step in self._output_steps():
            if simplify(mod(step, run), self.ranges) != 0:
                whole = both(whole, compare("eq", mod(step, run), 0))
        assert whole is not None
        base = Let("out", FromIndex("i64", floordiv(self._output(self._corner()), run)))
        return [base, If(whole, tuple(self._whole_runs(mi, ni, run)), tuple(super()._finish(mi, ni)))]

    def _corner(self) -> tuple[Index, Index]:
        """Row and column of a lane's first accumulator."""
        _, _, row, column = next(self._runs(1, 1))
        return row, column

    def _output(self, at: tuple[Index, Index]) -> Index:
        """Where the result's element at (row, column) lies."""
        here: dict[str, Index] = {self.parts.n[-1].name: at[1]}
        if self.parts.m:
            here[self.parts.m[-1].name] = at[0]
        offset = self.flat.offset
        return offset if isinstance(offset, int) else substitute(offset, here)

    def _output_steps(self) -> Iterator[Index]:
        """Distances of the result's rows and matrices."""
        for it in (*self.source.outer, *self.parts.m):
            step = coefficient(self.flat.offset, it.name)
            yield 1 if step is None else step

    def _whole_runs(self, mi: int, ni: int, run: int) -> Iterator[Stmt]:
        start = self._output(self._corner())
        for item, length, row, column in self._runs(mi, ni):
            moved = self._output((row, column)) - start
            place = sym("out") * run + moved + sym("v")
            yield Let("row", FromIndex("i64", row))
            yield Let("column", FromIndex("i64", column))
            yield For("v", length, self._cell(item, sym("v"), place), "vector")

    def _own(self, column: Index, columns: Index) -> Value:
        own = compare("lt", column, columns)
        for panel, name, at in zip(self.panels, ("row", "column"), (sym("row"), column), strict=True):
            if not panel.along_k:  # the last block begins before its own results
                own = Binary("bool", "and", own, compare("ge", at, sym(f"{name}_first")))
        return own
