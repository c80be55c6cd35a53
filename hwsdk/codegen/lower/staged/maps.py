"""Maps on a staged chip: rectangles copied in, worked on in vectors, copied out.

Design choice: a map that only moves elements has no computation at all: its rectangles go in and out again, in any
dtype, and what would be a loop of scalar moves (a transpose, a concatenation, a mask) is left to the copy engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import Const, For, Index, Load, Stmt, Value, View
from hwsdk.codegen.lower.lowered import Lowered, Machine, Namer, at, finish_kernel, flatten_block, merge
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.pipeline import Staging, pipeline
from hwsdk.codegen.lower.staged.program import Hoist, Slot, Staged, Strips, VectorProgram
from hwsdk.codegen.lower.staged.tiles import ONE, Place, Streams, Tiling, only_used, pick, room_for, steps_of
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.graph.dims import Ranges, ceildiv, coefficient, minimum, mod, substitute, sym

PIECE = 4096  # elements that one step works on, at most
FIXED = 512  # and of a rectangle that is the same for all steps
STEPS_PER_TASK = 64


class MapLowering:
    """Lowers a map kernel of one block; raises NotVector when its body or an access does not fit the chip."""

    def __init__(self, kernel: Kernel, chip: Chip, machine: Machine, ranges: Ranges, level: str) -> None:
        self.kernel, self.chip, self.machine, self.level = only_used(kernel), chip, machine, level
        self.namer = Namer(self.kernel)
        flat = flatten_block(self.kernel, self.kernel.blocks[0], self.namer, ranges)
        iters, gone = merge(flat.block.iters, [flat])
        self.flat = replace(at(flat, gone), block=replace(flat.block, iters=tuple(iters)))
        self.staging = Staging(chip)
        self.hoist = Hoist(chip, self.namer)
        self.streams = Streams(chip, self.namer, self.staging)
        self._cut(iters or [ONE])

    def _cut(self, iters: list[Iter]) -> None:
        """Choose the rectangle and stage what it needs."""
        flat, value = self.flat, self.flat.value
        offsets = [flat.offset, *(x.index[0] for x in loads(value))]
        y = next((i for i in reversed(iters) if coefficient(flat.offset, i.name) == 1), iters[-1])
        x = pick(y, [i for i in iters if i is not y], offsets, flat.lets)
        outer = [i for i in iters if i is not x and i is not y]
        Streams.check(flat, x, y)
        moving = self.streams.moving(flat, x, y)
        out = self.kernel.outputs[0].dtype
        self.fixed = isinstance(value, Const)
        self.moves = isinstance(value, Load) and value.dtype == out and bool(moving)
        self.rows = not self.moves and self.streams.row_wise(moving, x, y)
        dtypes = [m.dtype for m in moving] + ([] if self.moves else [out])
        most = FIXED if self.fixed else PIECE * (2 if self.moves else 1)
        size = room_for(self.chip, 3 if self.moves else 2, dtypes, most)
        self.tiling = Tiling(x, y, outer, (), flat.lets, size)
        self.streams.add(moving, self.tiling, self.rows, halves=3 if self.moves else 2)
        if not self.moves:
            self.staging.add("out", out, (size,), halves=1 if self.fixed else 2)
        self.steps_out = steps_of(flat.offset, x, y)

    def lower(self) -> Lowered:
        total = self.tiling.steps
        task = sym("task")
        count = minimum(STEPS_PER_TASK, total - task * STEPS_PER_TASK)
        halves = 3 if self.moves else 2

        def load(step: Index, suffix: str) -> list[Stmt]:
            place = self.tiling.place(task * STEPS_PER_TASK + step, suffix)
            return [*place.lets, *self.streams.load(place, mod(step, halves), self.tiling.likely)]

        def compute(step: Index, suffix: str) -> list[Stmt]:
            place = self.tiling.place(task * STEPS_PER_TASK + step, suffix)
            slot = 0 if self.fixed else mod(step, halves)
            work = [] if self.moves or self.fixed else self._work(place, slot)
            return [*place.lets, *work, *self._store(place, slot)]

        if self.fixed:
            self.hoist.out += self._run(self._most(), 0, 0, 0, {})
        stores = 1 if self._plain else 0
        body = pipeline(self.staging, count, load, compute, stores, "step", self.hoist.out)
        grid = ceildiv(total, STEPS_PER_TASK)
        loop = (For("task", grid, body, "parallel", self.level),)
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, total * self.tiling.size)

    def _most(self) -> Index:
        """Elements of the largest rectangle."""
        x, y = self.tiling.x.extent, self.tiling.y.extent
        if isinstance(x, int) and isinstance(y, int):
            return min(self.tiling.size, x * y)
        return self.tiling.size

    @property
    def _plain(self) -> bool:
        """Is a rectangle one copy on its way out?"""
        x, y = self.tiling.x.extent, self.tiling.y.extent
        return self.steps_out[1] == 1 or x == 1 or y == 1

    def _store(self, place: Place, slot: Index) -> list[Stmt]:
        name = next(iter(self.streams.found.values())).name if self.moves else "out"
        target = View("o0", (place.at(self.flat.offset),))
        shape = (place.rows, place.columns)
        return self.staging.strided(
            name, (slot, 0), target, shape, self.steps_out, self.tiling.likely, out=True
        )

    # ---------------------------------------------------------------------------------------------- computing
    def _work(self, place: Place, slot: Index) -> list[Stmt]:
        if not self.rows:
            return self._run(place.rows * place.columns, 0, slot, 0, place.corner)
        row = sym("row")
        run = self._run(place.columns, row * place.columns, slot, row, place.corner)
        return [For("row", place.rows, tuple(run))]

    def _run(
        self, total: Index, base: Index, slot: Index, row: Index, corner: Mapping[str, Index]
    ) -> list[Stmt]:
        """A run of `total` elements, which begins at element `base` of a rectangle."""
        moved = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, corner))
        varies = frozenset({self.tiling.x.name, self.tiling.y.name})

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            def source(load: Load) -> Slot | Staged | Value | None:
                stream = self.streams.found.get((load.buffer, load.index[0]))
                if stream is None:
                    return moved(load)
                if stream.column:
                    return Staged(View(stream.name, (slot, row)), single=True)
                return Staged(View(stream.name, (slot, base + first)))

            program = VectorProgram(
                self.chip, self.namer, self.hoist, lanes, source, {}, beside, strips, corner, varies
            )
            program.stored(self.flat.value, View("out", (slot, base + first)))
            return program

        return Strips(self.namer, total, self.chip.lanes).loop(build)
