"""The epilogue of a finished tile: its operands staged, vectors over its rows, the result copied out.

Design choice: a tile that is narrower than a vector is worked on as one run of vectors, its margin included, with zeros
where nothing was copied.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import (
    Const,
    For,
    Index,
    Load,
    Stmt,
    Value,
    View,
)
from hwsdk.codegen.lower.staged.layout import Layout
from hwsdk.codegen.lower.staged.pipeline import Staging
from hwsdk.codegen.lower.staged.program import Hoist, NotVector, Slot, Staged, Strips, VectorProgram
from hwsdk.codegen.neutral import neutral
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.graph.dims import (
    coefficient,
    floordiv,
    free_symbols,
    mod,
    substitute,
    sym,
)


class Finishing(Layout):
    """What happens to a tile of sums before it leaves the chip."""

    staging: Staging
    hoist: Hoist
    tiles: tuple[int, int, int]

    def _finish_streams(self) -> None:
        """Operands of the epilogue that are contiguous along the columns: staged per tile."""
        self.streams: dict[tuple[str, Index], tuple[str, bool]] = {}
        n_extent, lanes = self.columns, self.chip.lanes
        narrow = isinstance(n_extent, int) and n_extent <= self.tiles[1] and n_extent < lanes
        per_row = any(
            coefficient(x.index[0], self.parts.n[-1].name) == 0
            and self.parts.m
            and self.parts.m[-1].name in free_symbols(x.index[0])
            for x in loads(self.flat.finish)
        )
        self.flat_tile = narrow and not per_row
        m = self.parts.m[-1].name if self.parts.m else ""
        n = self.parts.n[-1].name
        for load in loads(self.flat.finish):
            if coefficient(load.index[0], n) == 1:
                tall = m in free_symbols(load.index[0])
                if tall and coefficient(load.index[0], m) is None:
                    raise NotVector(f"access to {load.buffer} is not affine in the rows")
                name = f"e{len(self.streams)}"
                high = self.tiles[0] if tall or self.flat_tile else 1
                self.staging.add(name, load.dtype, (high, self.tiles[1]), halves=1)
                self.streams[(load.buffer, load.index[0])] = (name, tall)
        if self.flat.lets:
            raise NotVector("the epilogue reads indices from memory")

    def _blank(self) -> list[Stmt]:
        """Zeros where a narrow tile's operands have margins, which its vectors run over."""
        if not self.flat_tile or self.columns == self.tiles[1]:
            return []
        out: list[Stmt] = []
        tn = self.tiles[1]
        total = self.tiles[0] * tn
        for name, _ in self.streams.values():
            dtype = self.staging.buffers[name].dtype

            def build(
                first: Index, lanes: Index, beside: Index, strips: Index, name: str = name, dtype: str = dtype
            ) -> VectorProgram:
                program = VectorProgram(
                    self.chip, self.namer, self.hoist, lanes, lambda _: None, {}, beside, strips
                )
                place = View(name, (0, floordiv(first, tn), mod(first, tn)))
                program.stored(Const(dtype, neutral("sum", dtype)), place)
                return program

            out += Strips(self.namer, total, self.chip.lanes).loop(build)
        return out

    def _drain(self, mapping: dict[str, Index], s: dict[str, Index]) -> list[Stmt]:
        """Epilogue on the finished tile, then out through the scratchpad."""
        m = self.parts.m[-1].name if self.parts.m else ""
        n = self.parts.n[-1].name
        out: list[Stmt] = []
        corner: dict[str, Index] = {**mapping, n: s["n0"]}
        if m:
            corner[m] = s["m0"]
        for (buffer, offset), (name, tall) in self.streams.items():
            ld = coefficient(offset, m) if tall else 0
            assert ld is not None
            rows = s["mr"] if tall or self.flat_tile else 1
            source = View(buffer, (offset if isinstance(offset, int) else substitute(offset, corner),))
            out.append(self.staging.load(name, 0, source, rows, s["nr"], ld))
        out += self.staging.wait(0)
        out += self._finished(mapping, s, m)
        target = (
            self.flat.offset if isinstance(self.flat.offset, int) else substitute(self.flat.offset, corner)
        )
        ld = coefficient(self.flat.offset, m) if m else self.tiles[1]
        assert ld is not None
        out.append(self.staging.store("ct", 0, View("o0", (target,)), s["mr"], s["nr"], ld))
        out += self.staging.wait(0)
        return out

    def _finished(self, mapping: dict[str, Index], s: dict[str, Index], m: str) -> list[Stmt]:
        """The epilogue of a tile: row by row, or all of a narrow tile in one run of vectors."""
        if self.flat_tile:
            return self._run(mapping, s, m, s["mr"] * self.tiles[1], None)
        row = sym("tr")
        return [For("tr", s["mr"], tuple(self._run(mapping, s, m, s["nr"], row)))]

    def _run(
        self, mapping: dict[str, Index], s: dict[str, Index], m: str, total: Index, row: Index | None
    ) -> list[Stmt]:
        here: dict[str, Index] = {**mapping}
        if m:
            here[m] = s["m0"] if row is None else s["m0"] + row
        varies = frozenset({self.parts.n[-1].name, m} if row is None else {self.parts.n[-1].name})
        moved = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, here))

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            tn = self.tiles[1]
            where = (floordiv(first, tn), mod(first, tn)) if row is None else (row, first)

            def source(load: Load) -> Slot | Staged | Value | None:
                stream = self.streams.get((load.buffer, load.index[0]))
                if stream is not None:
                    at_row = where[0] if stream[1] or row is None else 0
                    return Staged(View(stream[0], (0, at_row, where[1])))
                if coefficient(load.index[0], self.parts.n[-1].name) != 0:
                    return None
                return moved(load)

            acc = Slot(View("acc", where), self.op.dtypes[2])
            program = VectorProgram(
                self.chip, self.namer, self.hoist, lanes, source, {"acc": acc}, beside, strips, here, varies
            )
            target = View("ct", (0, *where))
            if self.flat.finish is None:
                program.moved_out(self.kernel.outputs[0].dtype, acc, target)
            else:
                program.stored(self.flat.finish, target)
            return program

        return Strips(self.namer, total, self.chip.lanes).loop(build)
