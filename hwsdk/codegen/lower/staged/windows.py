"""Windows on a staged chip: small reductions (depthwise convolution, pooling) vectorised over the contiguous dim.

Design choice: a step computes a strip of outputs along one dim for one vector of the contiguous dim.  Each operand's
footprint for a strip is a small rectangle of vectors, copied in as rows of one 2-D copy per remaining tap dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import (
    Alloc,
    Buffer,
    Const,
    For,
    Index,
    Intrin,
    Load,
    Stmt,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import Lowered, Machine, Namer, at, finish_kernel, flatten_block, merge
from hwsdk.codegen.lower.map import contiguous_iter
from hwsdk.codegen.lower.row import COMBINE
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.pipeline import Staging, bind, pipeline
from hwsdk.codegen.lower.staged.program import NotVector, Slot, VectorProgram
from hwsdk.codegen.neutral import neutral
from hwsdk.codegen.rewrite import loads
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    coefficient,
    free_symbols,
    minimum,
    mod,
    product,
    substitute,
    sym,
)

STRIP = 16  # outputs along the strip, at most
STEPS_PER_TASK = 64
MOST_TAPS = 64


@dataclass(frozen=True)
class Footprint:
    """What one operand needs for a strip: `columns` vectors at distance `step`, for every value of `outer` taps.

    weight: by iter, how many columns one step of it moves; iters of `outer` move to another copy.
    """

    load: Load
    name: str
    step: Index
    weight: dict[str, int]
    columns: int
    outer: tuple[Iter, ...]


class WindowLowering:
    """Lowers a window kernel; raises NotVector where an access does not fit."""

    def __init__(self, kernel: Kernel, chip: Chip, machine: Machine, ranges: Ranges, level: str) -> None:
        self.kernel, self.chip, self.machine, self.level = kernel, chip, machine, level
        self.namer = Namer(kernel)
        flat = flatten_block(kernel, kernel.blocks[0], self.namer, ranges)
        outer, gone = merge(flat.block.parallel, [flat])
        flat = at(flat, gone)
        self.taps = flat.block.reduce
        self.flat = replace(flat, block=replace(flat.block, iters=(*outer, *self.taps)))
        vector = contiguous_iter(list(outer), flat.offset)
        if vector is None or coefficient(flat.offset, vector.name) != 1:
            raise NotVector("the result is not written contiguously")
        if flat.lets:
            raise NotVector("a window reads indices from memory")
        count = product(t.extent for t in self.taps)
        if not isinstance(count, int) or count > MOST_TAPS:
            raise NotVector(f"a window of {count} elements is too large to hold")
        self.vector = vector
        rest = [i for i in outer if i is not vector]
        self.strip = rest[-1] if rest else Iter("one", 1)
        self.rows = rest[:-1]

    def lower(self) -> Lowered:
        size = STRIP
        while not self._stage(size):
            size //= 2
            if size == 0:
                raise NotVector("no strip of a window fits the scratchpad")
        lanes = self.chip.lanes
        strips, chunks = ceildiv(self.strip.extent, size), ceildiv(self.vector.extent, lanes)
        total = product(r.extent for r in self.rows) * strips * chunks
        self.counts = strips, chunks
        task = sym("task")
        count = minimum(STEPS_PER_TASK, total - task * STEPS_PER_TASK)

        def load(step: Index, suffix: str) -> list[Stmt]:
            return self._load(task * STEPS_PER_TASK + step, mod(step, 2), suffix)

        def compute(step: Index, suffix: str) -> list[Stmt]:
            return self._compute(task * STEPS_PER_TASK + step, mod(step, 2), suffix)

        body = pipeline(self.staging, count, load, compute, 1, "step")
        grid = ceildiv(total, STEPS_PER_TASK)
        loop = (For("task", grid, body, "parallel", self.level),)
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, total * size)

    # --------------------------------------------------------------------------------------------- footprints
    def _stage(self, size: int) -> bool:
        self.size = size
        self.staging = Staging(self.chip)
        self.footprints: dict[tuple[str, Index], Footprint] = {}
        for load in loads(self.flat.value):
            key = (load.buffer, load.index[0])
            if key not in self.footprints:
                self.footprints[key] = self._footprint(load, f"in{len(self.footprints)}")
        self.streams: dict[tuple[str, Index], str] = {}
        for load in loads(self.flat.finish):
            if coefficient(load.index[0], self.vector.name) == 1:
                key = (load.buffer, load.index[0])
                if key not in self.streams:
                    rows = size if self.strip.name in free_symbols(load.index[0]) else 1
                    self.streams[key] = self.staging.add(
                        f"e{len(self.streams)}", load.dtype, (rows, self.chip.lanes)
                    )
        self.staging.add("ct", self.kernel.outputs[0].dtype, (size, self.chip.lanes))
        return isinstance(self.staging.bytes, int) and self.staging.bytes <= (
            self.chip.scratch.usable_bytes or 0
        )

    def _footprint(self, load: Load, name: str) -> Footprint:
        if load.where is not None:
            raise NotVector(f"access to {load.buffer} is guarded")
        if coefficient(load.index[0], self.vector.name) != 1:
            raise NotVector(f"access to {load.buffer} is not contiguous")
        moves: list[tuple[Iter, Index, int]] = []
        for it in (replace(self.strip, extent=self.size), *self.taps):
            step = coefficient(load.index[0], it.name)
            if step is None or not isinstance(it.extent, int):
                raise NotVector(f"access to {load.buffer} is not affine")
            if step != 0:
                moves.append((it, step, it.extent))
        base = self._base([m[1] for m in moves])
        weight: dict[str, int] = {}
        outer: list[Iter] = []
        columns = 1
        for it, step, extent in moves:
            times = self._times(step, base)
            if times is None or times > 8:
                outer.append(it)
                continue
            weight[it.name] = times
            columns += (extent - 1) * times
        lead = [i.extent for i in outer]
        self.staging.add(name, load.dtype, (*lead, columns, self.chip.lanes))
        return Footprint(load, name, base, weight, columns, tuple(outer))

    def _base(self, steps: Sequence[Index]) -> Index:
        """The smallest step, of which the others may be multiples."""
        best: Index = 0
        for step in steps:
            if best == 0 or (self._times(best, step) or 0) > 1:
                best = step
        return best if best != 0 else self.chip.lanes

    def _times(self, a: Index, b: Index) -> int | None:
        """a / b as an integer, if it is one."""
        for times in range(1, 65):
            if b * times == a:
                return times
        return None

    # ------------------------------------------------------------------------------------------------- steps
    def _place(self, number: Index, suffix: str) -> tuple[list[Stmt], dict[str, Index], Index, Index]:
        """Lets, origin of the step, outputs in the strip, lanes."""
        names = [*self.rows, Iter("strip_number", self.counts[0]), Iter("chunk", self.counts[1])]
        out, found = bind(names, number, suffix)
        origin = {r.name: found[r.name] for r in self.rows}
        first = found["strip_number"] * self.size
        lane = found["chunk"] * self.chip.lanes
        origin[self.strip.name], origin[self.vector.name] = first, lane
        return (
            out,
            origin,
            minimum(self.size, self.strip.extent - first),
            minimum(self.chip.lanes, self.vector.extent - lane),
        )

    def _load(self, number: Index, half: Index, suffix: str) -> list[Stmt]:
        out, origin, count, lanes = self._place(number, suffix)
        for f in self.footprints.values():
            rows: Index = f.columns
            if self.strip.name in f.weight:
                rows = f.columns - f.weight[self.strip.name] * (self.size - count)
            taps = {t.name: 0 for t in self.taps if t not in f.outer}
            offset = self._moved(f.load.index[0], {**origin, **taps})
            lead = tuple(sym(t.name) for t in f.outer)
            source = View(f.load.buffer, (offset,))
            copy: Stmt = self.staging.rectangle(f.name, (half, *lead, 0, 0), source, rows, lanes, f.step)
            for t in reversed(f.outer):
                copy = For(t.name, t.extent, (copy,))
            out.append(copy)
        for (buffer, offset), name in self.streams.items():
            tall = self.strip.name in free_symbols(offset)
            step = coefficient(offset, self.strip.name) if tall else self.chip.lanes
            assert step is not None
            source = View(buffer, (self._moved(offset, origin),))
            out.append(self.staging.rectangle(name, (half, 0, 0), source, count if tall else 1, lanes, step))
        return out

    def _moved(self, offset: Index, where: dict[str, Index]) -> Index:
        return offset if isinstance(offset, int) else substitute(offset, where)

    def _compute(self, number: Index, half: Index, suffix: str) -> list[Stmt]:
        out, origin, count, lanes = self._place(number, suffix)
        kind, dtype = self.flat.block.combiner or "sum", self.flat.block.accumulator or self.flat.value.dtype
        fill, combine = self.chip.fill.get(dtype), self.chip.binary.get((COMBINE[kind], dtype, False))
        if fill is None or combine is None:
            raise NotVector(f"no intrinsic reduces {dtype} by {kind}")
        acc = View("total", (0,))
        column = sym("column")
        clear = Intrin(
            fill.name,
            ((fill.operands[0], acc), (fill.operands[1], Const(dtype, neutral(kind, dtype)))),
            ((fill.dim, lanes),),
        )
        step = self._tap(half, lanes, column)
        slot = step.full(self.flat.value)
        add = Intrin(
            combine.name,
            tuple(zip(combine.operands, (acc, acc, slot.view), strict=True)),
            ((combine.dim, lanes),),
        )
        loop: Stmt = (
            For(self.taps[-1].name, self.taps[-1].extent, (*step.once, *step.out, add))
            if self.taps
            else For("none", 1, (*step.once, *step.out, add))
        )
        for t in reversed(self.taps[:-1]):
            loop = For(t.name, t.extent, (loop,))
        end = self._finish(half, lanes, column, origin, Slot(acc, dtype))
        body = (Alloc(Buffer("total", dtype, (self.chip.lanes,), self.chip.vectors.name)), clear, loop, *end)
        out.append(For("column", count, body))
        ld = coefficient(self.flat.offset, self.strip.name) or self.chip.lanes
        target = View("o0", (self._moved(self.flat.offset, origin),))
        out.append(self.staging.store("ct", half, target, count, lanes, ld))
        return out

    def _tap(self, half: Index, lanes: Index, column: Index) -> VectorProgram:
        """The value of one tap: every load comes from its footprint."""

        def source(load: Load) -> Slot | Value | None:
            f = self.footprints[(load.buffer, load.index[0])]
            where: Index = 0
            for name, times in f.weight.items():
                where = where + times * (column if name == self.strip.name else sym(name))
            lead = tuple(sym(t.name) for t in f.outer)
            return program.moved_in(load.dtype, View(f.name, (half, *lead, where, 0)))

        program = VectorProgram(self.chip, self.namer, lanes, source)
        return program

    def _finish(
        self, half: Index, lanes: Index, column: Index, origin: dict[str, Index], acc: Slot
    ) -> list[Stmt]:
        here = {**origin, self.strip.name: origin[self.strip.name] + column}

        def source(load: Load) -> Slot | Value | None:
            name = self.streams.get((load.buffer, load.index[0]))
            if name is not None:
                tall = self.strip.name in free_symbols(load.index[0])
                return program.moved_in(load.dtype, View(name, (half, column if tall else 0, 0)))
            if coefficient(load.index[0], self.vector.name) != 0:
                return None
            return Load(load.dtype, load.buffer, (self._moved(load.index[0], here),))

        program = VectorProgram(self.chip, self.namer, lanes, source, {"acc": acc})
        target = View("ct", (half, column, 0))
        if self.flat.finish is None:
            program.moved_out(self.kernel.outputs[0].dtype, acc, target)
        else:
            program.stored(self.flat.finish, target)
        return [*program.once, *program.out]
