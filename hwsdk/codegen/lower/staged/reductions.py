"""Reductions over long or strided dims on a staged chip: sums over outer axes, pooling of whole images, short rows.

Design choice: vectors lie along the outputs, never along what is reduced, so any extent is streamed through the
scratchpad in rectangles (rows: what is reduced, columns: outputs) into accumulators that stay where vectors work.
Few columns share a vector: several rows are then summed side by side and folded at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import Alloc, Buffer, Const, For, If, Index, Intrin, Load, Stmt, Value, View
from hwsdk.codegen.lower.lowered import (
    Lowered,
    Machine,
    Namer,
    at,
    compare,
    finish_kernel,
    flatten_block,
    merge,
)
from hwsdk.codegen.lower.staged.facts import Chip, VectorOp
from hwsdk.codegen.lower.staged.pipeline import Staging, pipeline
from hwsdk.codegen.lower.staged.program import BESIDE, Hoist, NotVector, Slot, Staged, Strips, VectorProgram
from hwsdk.codegen.lower.staged.tiles import ONE, Place, Streams, Tiling, only_used, room_for, steps_of
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    coefficient,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
    substitute,
    sym,
)

PIECE = 4096  # elements of a rectangle, at most
COLUMNS = 2048  # accumulators, at most
TILES_PER_TASK = 16


class ReductionLowering:
    """Lowers a block with reduce iters; raises NotVector when its body or an access does not fit the chip."""

    def __init__(self, kernel: Kernel, chip: Chip, machine: Machine, ranges: Ranges, level: str) -> None:
        self.kernel, self.chip, self.machine, self.level = only_used(kernel), chip, machine, level
        self.namer = Namer(self.kernel)
        flat = flatten_block(self.kernel, self.kernel.blocks[0], self.namer, ranges)
        outer, gone = merge(flat.block.parallel, [flat])
        inner, gone_too = merge(flat.block.reduce, [flat])
        self.flat = replace(at(flat, {**gone, **gone_too}), block=replace(flat.block, iters=(*outer, *inner)))
        self.dtype = flat.block.accumulator or flat.value.dtype
        self.staging = Staging(chip)
        self.hoist = Hoist(chip, self.namer)
        self.streams = Streams(chip, self.namer, self.staging)
        self._operations(flat.block.combiner or "sum")
        self._cut(outer or [ONE], inner)

    def _operations(self, kind: str) -> None:
        fill, combine = (
            self.chip.fill.get(self.dtype),
            self.chip.binary.get((COMBINE[kind], self.dtype, False)),
        )
        if fill is None or combine is None:
            raise NotVector(f"no intrinsic reduces {self.dtype} by {kind}")
        self.fill: VectorOp = fill
        self.combine: VectorOp = combine
        self.neutral = Const(self.dtype, neutral(kind, self.dtype))

    def _cut(self, outer: list[Iter], inner: list[Iter]) -> None:
        flat = self.flat
        y = next((i for i in reversed(outer) if coefficient(flat.offset, i.name) == 1), outer[-1])
        offsets = [load.index[0] for load in loads(flat.value)]
        x = self._down(inner, offsets)
        Streams.check(flat, x, y)
        if flat.lets:
            raise NotVector("a reduction reads indices from memory")
        moving = self.streams.moving(flat, x, y)
        self.varies = frozenset({x.name, y.name})
        self.rows = self.streams.row_wise(moving, x, y)
        size = room_for(self.chip, 2, [m.dtype for m in moving] or [self.dtype], PIECE)
        rest = [i for i in inner if i is not x]
        self.tiling = Tiling(x, y, [i for i in outer if i is not y], rest, (), size)
        across = self.tiling.across
        if isinstance(across, int) and across > COLUMNS:
            self.tiling.size = COLUMNS
        self.width = self.tiling.across
        self.streams.add(moving, self.tiling, self.rows)
        self.staging.add("out", self.kernel.outputs[0].dtype, (self.width,), halves=1)
        self.steps_out = steps_of(flat.offset, ONE, y)
        lanes = self.chip.lanes
        fixed = isinstance(y.extent, int) and y.extent <= self.tiling.size and not self.rows
        self.side = (
            lanes // self.width if fixed and isinstance(self.width, int) and 0 < self.width < lanes else 1
        )
        self.ends: dict[tuple[str, Index], tuple[str, Load]] = {}
        for load in loads(flat.finish):
            if coefficient(load.index[0], y.name) != 0:
                name = self.staging.add(f"e{len(self.ends)}", load.dtype, (self.width,), halves=1)
                self.ends.setdefault((load.buffer, load.index[0]), (name, load))

    def _down(self, inner: list[Iter], offsets: list[Index]) -> Iter:
        fit = [i for i in inner if all(coefficient(o, i.name) is not None for o in offsets)]
        if not fit:
            raise NotVector("an access is not affine in what is reduced")
        return max(reversed(fit), key=lambda i: i.extent if isinstance(i.extent, int) else 1 << 20)

    def lower(self) -> Lowered:
        tiling, task = self.tiling, sym("task")
        self.deep = tiling.deep if isinstance(tiling.deep, int) else maximum(1, tiling.deep)
        if self.deep == 0:
            raise NotVector("nothing is reduced")
        tiles = product((*(i.extent for i in tiling.outer), tiling.pieces.extent))
        per_task = TILES_PER_TASK
        count = minimum(per_task, tiles - task * per_task) * self.deep

        def load(step: Index, suffix: str) -> list[Stmt]:
            place = self._place(task * per_task * self.deep + step, suffix)
            return [*place.lets, *self.streams.load(place, mod(step, 2), tiling.likely)]

        def compute(step: Index, suffix: str) -> list[Stmt]:
            number = task * per_task * self.deep + step
            place = self._place(number, suffix)
            first = If(compare("eq", mod(number, self.deep), 0), tuple(self._clear()))
            last = If(compare("eq", mod(number, self.deep), self.deep - 1), tuple(self._drain(place)))
            return [*place.lets, first, *self._accumulate(place, mod(step, 2)), last]

        lanes, vectors = self.chip.lanes, self.chip.vectors
        wide = self.width if self.side == 1 else BESIDE * lanes
        self.room = ceildiv(wide, lanes) * lanes
        acc = Buffer("acc", self.dtype, (self.room,), vectors.name, align_bytes=vectors.align_bytes or 0)
        body = pipeline(self.staging, count, load, compute, 0, "step", self.hoist.out)
        grid = ceildiv(tiles, per_task)
        loop = (For("task", grid, (Alloc(acc), *body), "parallel", self.level),)
        work = tiles * self.deep * tiling.size
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, work)

    def _place(self, number: Index, suffix: str) -> Place:
        """Where a step is; rows may be none where nothing is reduced, along the rows or around them."""
        place = self.tiling.place(number, suffix)
        around = product(i.extent for i in self.tiling.inner)
        rows = place.rows if isinstance(place.rows, int) else maximum(0, place.rows)
        return replace(place, rows=rows if isinstance(around, int) else rows * minimum(1, around))

    # ---------------------------------------------------------------------------------------------- computing
    def _use(self, op: VectorOp, lanes: Index, *operands: View | Value) -> Intrin:
        return Intrin(op.name, tuple(zip(op.operands, operands, strict=True)), ((op.dim, lanes),))

    def _clear(self) -> list[Stmt]:
        lanes = self.chip.lanes
        var = self.namer.fresh("z")
        use = self._use(self.fill, lanes, View("acc", (sym(var) * lanes,)), self.neutral)
        return [For(var, floordiv(self.room, lanes), (use,))]

    def _accumulate(self, place: Place, slot: Index) -> list[Stmt]:
        """acc = acc op value, a rectangle's rows one after another, or `side` of them at once."""
        columns, row = place.columns, sym("row")
        if self.side > 1 and isinstance(self.width, int):
            return self._run(place, slot, place.rows * columns, 0, 0, self.side * self.width)
        run = self._run(place, slot, columns, row * columns, row, self.chip.lanes)
        return [For("row", place.rows, tuple(run))]

    def _run(
        self, place: Place, slot: Index, total: Index, base: Index, row: Index, width: int
    ) -> list[Stmt]:
        """A run of `total` elements, which begins at element `base` of a rectangle, in vectors of `width`."""
        moved = _mover(place.corner)

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            def source(load: Load) -> Slot | Staged | Value | None:
                stream = self.streams.found.get((load.buffer, load.index[0]))
                if stream is None:
                    return moved(load)
                if stream.column:
                    return Staged(View(stream.name, (slot, row)), single=True)
                return Staged(View(stream.name, (slot, base + first)))

            program = VectorProgram(
                self.chip,
                self.namer,
                self.hoist,
                lanes,
                source,
                {},
                beside,
                strips,
                place.corner,
                self.varies,
            )
            value = program.full(self.flat.value)
            if value.dtype != self.dtype:
                raise NotVector(f"no intrinsic accumulates {value.dtype} in {self.dtype}")
            acc = View("acc", (beside * width if self.side > 1 else first,))
            program.out.append(self._use(self.combine, lanes, acc, acc, value.view))
            return program

        return Strips(self.namer, total, width).loop(build)

    def _fold(self) -> list[Stmt]:
        """Add up what was summed side by side."""
        out: list[Stmt] = []
        if self.side > 1 and isinstance(self.width, int):
            wide, acc = self.side * self.width, View("acc", (0,))
            for part in range(1, BESIDE):
                out.append(self._use(self.combine, wide, acc, acc, View("acc", (part * wide,))))
            for part in range(1, self.side):
                out.append(self._use(self.combine, self.width, acc, acc, View("acc", (part * self.width,))))
        return out

    def _drain(self, place: Place) -> list[Stmt]:
        """Fold, finish, and copy out."""
        out = self._fold()
        shape, likely = (1, place.columns), (1, self.tiling.likely[1])
        for name, load in self.ends.values():
            source = View(load.buffer, (place.at(load.index[0]),))
            steps = steps_of(load.index[0], ONE, self.tiling.y)
            out += self.staging.strided(name, (0, 0), source, shape, steps, likely, out=False)
        if self.ends:
            out += self.staging.wait(0)
        moved = _mover(place.corner)

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            def end(load: Load) -> Slot | Staged | Value | None:
                staged = self.ends.get((load.buffer, load.index[0]))
                if staged is None:
                    return moved(load)
                return Staged(View(staged[0], (0, first)))

            acc = Slot(View("acc", (first,)), self.dtype)
            varies = frozenset({self.tiling.y.name})
            program = VectorProgram(
                self.chip,
                self.namer,
                self.hoist,
                lanes,
                end,
                {"acc": acc},
                beside,
                strips,
                place.corner,
                varies,
            )
            target = View("out", (0, first))
            if self.flat.finish is None:
                program.moved_out(self.kernel.outputs[0].dtype, acc, target)
            else:
                program.stored(self.flat.finish, target)
            return program

        out += Strips(self.namer, place.columns, self.chip.lanes).loop(build)
        goal = View("o0", (place.at(self.flat.offset),))
        out += self.staging.strided("out", (0, 0), goal, shape, self.steps_out, likely, out=True)
        return out + self.staging.wait(0)


def _mover(corner: Mapping[str, Index]) -> Rewriter:
    return Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, corner))
