"""Windows on a staged chip: small reductions (depthwise convolution, pooling), vectors along the contiguous dim.

Design choice: a task keeps one chunk of the contiguous dim, so what depends on nothing else (weights, bias) is loaded
once and stays where vectors work.  A step computes a strip of outputs.  What the strip needs of an operand lies
densely there too: a line per outer tap and phase of the stride, so every tap is the same vectors from a little further
on, and where a chunk is narrow one vector holds several outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import Alloc, Buffer, Const, For, Index, Intrin, Load, Stmt, Value, View
from hwsdk.codegen.lower.lowered import Lowered, Machine, Namer, at, finish_kernel, flatten_block, merge
from hwsdk.codegen.lower.map import contiguous_iter
from hwsdk.codegen.lower.row import COMBINE
from hwsdk.codegen.lower.staged.facts import Chip, VectorOp
from hwsdk.codegen.lower.staged.pipeline import Staging, bind, pipeline
from hwsdk.codegen.lower.staged.program import BESIDE, Hoist, NotVector, Slot, Staged, VectorProgram
from hwsdk.codegen.lower.staged.tiles import ONE, only_used
from hwsdk.codegen.neutral import neutral
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    coefficient,
    floordiv,
    free_symbols,
    minimum,
    mod,
    product,
    substitute,
    sym,
)

STRIP = 32  # outputs along the strip, at most
STEPS_PER_TASK = 64
MOST_TAPS = 64
Key = tuple[str, Index]


@dataclass(frozen=True)
class Line:
    """A moving operand.  `step`: from one column to the next; `stride`: columns from one output to the next;
    `weight`: columns per tap; `span`: the farthest column that the taps of one output reach; `outer`: taps with a
    line of their own."""

    load: Load
    name: str
    step: Index
    stride: int
    weight: Mapping[str, int]
    span: int
    outer: tuple[Iter, ...]

    @property
    def phases(self) -> int:
        return min(self.stride, self.span + 1)

    def columns(self, outputs: Index, phase: int = 0) -> Index:
        """Columns of one phase that so many outputs need."""
        return outputs + (self.span - phase) // self.stride


@dataclass(frozen=True)
class Fixed:
    """An operand that a task keeps: one vector for every combination of its taps."""

    load: Load
    name: str
    taps: tuple[Iter, ...]

    @property
    def count(self) -> int:
        return int(str(product(t.extent for t in self.taps)))

    @property
    def number(self) -> Index:
        total: Index = 0
        for t in self.taps:
            total = total * t.extent + sym(t.name)
        return total


@dataclass
class Operands:
    """Who is who among the accesses, for one length of strips."""

    lines: dict[Key, Line] = field(default_factory=dict)
    fixed: dict[Key, Fixed] = field(default_factory=dict)
    tall: dict[Key, str] = field(default_factory=dict)  # operands of the epilogue with an element per output


class WindowLowering:
    """Lowers a window kernel; raises NotVector where an access does not fit."""

    def __init__(self, kernel: Kernel, chip: Chip, machine: Machine, ranges: Ranges, level: str) -> None:
        self.kernel, self.chip, self.machine, self.level = only_used(kernel), chip, machine, level
        self.namer = Namer(self.kernel)
        flat = flatten_block(self.kernel, self.kernel.blocks[0], self.namer, ranges)
        outer, gone = merge(flat.block.parallel, [flat])
        flat = at(flat, gone)
        self.taps = flat.block.reduce
        self.flat = replace(flat, block=replace(flat.block, iters=(*outer, *self.taps)))
        vector = contiguous_iter(list(outer), flat.offset)
        if vector is None or coefficient(flat.offset, vector.name) != 1:
            raise NotVector("the result is not written contiguously")
        if flat.lets or flat.where is not None:
            raise NotVector("a window reads indices from memory")
        count = product(t.extent for t in self.taps)
        if not isinstance(count, int) or count > MOST_TAPS:
            raise NotVector(f"a window of {count} elements is too large to hold")
        self.vector = vector
        rest = [i for i in outer if i is not vector]
        self.strip = rest[-1] if rest else ONE
        self.rows = rest[:-1]
        width, lanes = vector.extent, chip.lanes
        self.side = lanes // width if isinstance(width, int) and width < lanes else 1
        self.lanes = self.side * width if isinstance(width, int) and width < lanes else lanes
        self._operations()

    def _operations(self) -> None:
        kind, self.dtype = (
            self.flat.block.combiner or "sum",
            self.flat.block.accumulator or self.flat.value.dtype,
        )
        fill, combine = (
            self.chip.fill.get(self.dtype),
            self.chip.binary.get((COMBINE[kind], self.dtype, False)),
        )
        if fill is None or combine is None:
            raise NotVector(f"no intrinsic reduces {self.dtype} by {kind}")
        self.fill, self.combine = fill, combine
        self.neutral = Const(self.dtype, neutral(kind, self.dtype))

    def lower(self) -> Lowered:
        size = STRIP
        while not self._stage(size):
            size //= 2
            if size == 0:
                raise NotVector("no strip of a window fits the scratchpad")
        self.hoist = Hoist(self.chip, self.namer)
        chunks = ceildiv(self.vector.extent, self.chip.lanes)
        self.strips = ceildiv(self.strip.extent, size)
        total = product(r.extent for r in self.rows) * self.strips
        groups = ceildiv(total, STEPS_PER_TASK)
        task = sym("task")
        group, chunk = (task, 0) if chunks == 1 else (floordiv(task, chunks), mod(task, chunks))
        self.first = chunk * self.chip.lanes
        self.width = minimum(self.chip.lanes, self.vector.extent - self.first)
        self.hoist.out += self._resident()
        start = group * STEPS_PER_TASK

        def load(step: Index, suffix: str) -> list[Stmt]:
            return self._load(start + step, mod(step, 2), suffix)

        def compute(step: Index, suffix: str) -> list[Stmt]:
            return self._compute(start + step, mod(step, 2), suffix)

        count = minimum(STEPS_PER_TASK, total - start)
        body = pipeline(self.staging, count, load, compute, 1, "step", self.hoist.out)
        grid = groups * chunks
        loop = (For("task", grid, body, "parallel", self.level),)
        work = total * chunks * size * self.chip.lanes
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, work)

    # --------------------------------------------------------------------------------------------- operands
    def _stage(self, size: int) -> bool:
        """Sort the accesses and stage them; does a strip of `size` outputs fit?"""
        self.size = size
        self.staging = Staging(self.chip)
        self.operands = Operands()
        held = 48 * self.chip.lanes * DTYPES[self.dtype].size_bytes
        for load in loads(self.flat.value):
            held += self._operand(load, size)
        for load in loads(self.flat.finish):
            held += self._end(load, size)
        self.staging.add("ct", self.kernel.outputs[0].dtype, (size * self.chip.lanes,))
        room, near = self.chip.vectors.usable_bytes or 0, self.chip.scratch.usable_bytes or 0
        return isinstance(self.staging.bytes, int) and self.staging.bytes <= near and held <= room

    def _operand(self, load: Load, size: int) -> int:
        """Bytes that one more operand takes where vectors work."""
        key, offset = (load.buffer, load.index[0]), load.index[0]
        known = self.operands
        if load.where is not None:
            raise NotVector(f"access to {load.buffer} is guarded")
        if coefficient(offset, self.vector.name) != 1:
            raise NotVector(f"access to {load.buffer} is not contiguous")
        if key in known.lines or key in known.fixed:
            return 0
        moving = {self.strip.name, *(r.name for r in self.rows)}
        if not moving & free_symbols(offset):
            taps = tuple(t for t in self.taps if t.name in free_symbols(offset))
            return self._keep(load, taps)
        line = self._line(load, f"in{len(known.lines)}")
        known.lines[key] = line
        lead = [int(str(i.extent)) for i in line.outer]
        columns = line.columns(size)
        assert isinstance(columns, int)
        self.staging.add(line.name, load.dtype, (*lead, line.phases, columns * self.chip.lanes))
        return int(str(product(lead))) * line.phases * columns * self.chip.lanes * 4

    def _keep(self, load: Load, taps: tuple[Iter, ...]) -> int:
        known = self.operands.fixed
        fixed = known[load.buffer, load.index[0]] = Fixed(load, f"w{len(known)}_", taps)
        self.staging.add(f"in_{fixed.name}", load.dtype, (fixed.count * self.lanes,), halves=1)
        return fixed.count * self.lanes * 4

    def _end(self, load: Load, size: int) -> int:
        """An operand of the epilogue."""
        key, offset = (load.buffer, load.index[0]), load.index[0]
        along = coefficient(offset, self.vector.name)
        if along == 0 and self.side == 1:
            return 0  # the same for all lanes: read where it is used
        if along != 1:
            raise NotVector(f"access to {load.buffer} is not contiguous")
        moving = {self.strip.name, *(r.name for r in self.rows)}
        if not moving & free_symbols(offset):
            return self._keep(load, ()) if key not in self.operands.fixed else 0
        if key not in self.operands.tall:
            name = self.operands.tall[key] = f"e{len(self.operands.tall)}"
            self.staging.add(name, load.dtype, (size * self.chip.lanes,))
        return 0

    def _line(self, load: Load, name: str) -> Line:
        offset = load.index[0]
        steps: dict[str, Index] = {}
        for it in (self.strip, *self.taps):
            step = coefficient(offset, it.name)
            if step is None:
                raise NotVector(f"access to {load.buffer} is not affine")
            if step != 0:
                steps[it.name] = step
        base = _smallest(list(steps.values())) if steps else self.chip.lanes
        stride = _times(steps.get(self.strip.name, base), base)
        if stride is None or stride > 8:  # the taps do not lie between the outputs: every tap is a line
            base, stride = steps[self.strip.name], 1
        near = {t.name: _times(steps[t.name], base) for t in self.taps if t.name in steps}
        weight = {n: times for n, times in near.items() if times is not None and times <= 8}
        outer = tuple(t for t in self.taps if t.name in steps and t.name not in weight)
        span = sum(
            times * (int(str(t.extent)) - 1) for t in self.taps for n, times in weight.items() if n == t.name
        )
        return Line(load, name, base, stride, weight, span, outer)

    # --------------------------------------------------------------------------------------------- residents
    def _resident(self) -> list[Stmt]:
        """What a task keeps, copied in and moved to where vectors work."""
        out: list[Stmt] = []
        here = {self.vector.name: self.first}
        for f in self.operands.fixed.values():
            for part in range(self.side):
                out += self._kept(f, here, part)
        out += self.staging.wait(0)
        for f in self.operands.fixed.values():
            kind = self._loaded(f.load.dtype)
            out.append(Alloc(Buffer(f.name, kind, (f.count * self.lanes,), self.chip.vectors.name)))
            out += self._moved_in(
                f.name, (), f"in_{f.name}", (0,), f.count * self.side * self.width, f.load.dtype
            )
        for line in self.operands.lines.values():
            shape = self.staging.buffers[line.name].shape[1:]
            kind = self._loaded(line.load.dtype)
            out.append(Alloc(Buffer(f"x_{line.name}", kind, shape, self.chip.vectors.name)))
        out.append(Alloc(Buffer("total", self.dtype, (BESIDE, self.lanes), self.chip.vectors.name)))
        return out

    def _kept(self, f: Fixed, here: Mapping[str, Index], part: int) -> list[Stmt]:
        """Copies of one operand: all its taps at once where they are evenly spaced."""
        offset, wide = f.load.index[0], self.side * self.width
        steps = [coefficient(offset, t.name) for t in f.taps]
        even = all(
            a is not None and b is not None and a == b * t.extent
            for a, b, t in zip(steps, steps[1:], f.taps[1:], strict=False)
        )
        name = f"in_{f.name}"
        if even:
            origin = _at(offset, {**here, **{t.name: 0 for t in f.taps}})
            ld = steps[-1] if steps else self.width
            assert ld is not None
            view = View(f.load.buffer, (origin,))
            return [self.staging.piece(name, (0, part * self.width), view, f.count, self.width, ld, wide)]
        view = View(f.load.buffer, (_at(offset, here),))
        where = (0, f.number * wide + part * self.width)
        copy: Stmt = self.staging.piece(name, where, view, 1, self.width, self.width, wide)
        for t in reversed(f.taps):
            copy = For(t.name, t.extent, (copy,))
        return [copy]

    def _loaded(self, dtype: str) -> str:
        """The dtype that elements have where vectors work."""
        near, place = self.chip.scratch.name, self.chip.vectors.name
        return dtype if (dtype, place, dtype, near) in self.chip.move else "f32"

    def _moved_in(
        self,
        name: str,
        lead: tuple[Index, ...],
        source: str,
        where: tuple[Index, ...],
        length: Index,
        dtype: str,
    ) -> list[Stmt]:
        """A run from the scratchpad to where vectors work."""
        place = self.chip.vectors.name
        op = self.chip.move.get((self._loaded(dtype), place, dtype, self.chip.scratch.name))
        if op is None:
            raise NotVector(f"no intrinsic moves {dtype} from {self.chip.scratch.name} to {place}")
        var = self.namer.fresh("j")
        first = sym(var) * op.lanes
        views = (View(name, (*lead, first)), View(source, (*where, first)))
        use = Intrin(
            op.name,
            tuple(zip(op.operands, views, strict=True)),
            ((op.dim, minimum(op.lanes, length - first)),),
        )
        return [For(var, ceildiv(length, op.lanes), (use,))]

    # ------------------------------------------------------------------------------------------------- steps
    def _place(self, number: Index, suffix: str) -> tuple[list[Stmt], dict[str, Index], Index]:
        """Lets, origin of the step, outputs in the strip."""
        out, found = bind([*self.rows, Iter("strip_number", self.strips)], number, suffix)
        origin = {r.name: found[r.name] for r in self.rows}
        first = found["strip_number"] * self.size
        origin[self.strip.name], origin[self.vector.name] = first, self.first
        return out, origin, minimum(self.size, self.strip.extent - first)

    def _load(self, number: Index, half: Index, suffix: str) -> list[Stmt]:
        out, origin, count = self._place(number, suffix)
        for line in self.operands.lines.values():
            taps = {t.name: 0 for t in self.taps if t not in line.outer}
            offset = _at(line.load.index[0], {**origin, **taps})
            lead = tuple(sym(t.name) for t in line.outer)
            copies: list[Stmt] = []
            for phase in range(line.phases):
                view = View(line.load.buffer, (offset + phase * line.step,))
                where = (half, *lead, phase, 0)
                rows, ld = line.columns(count, phase), line.step * line.stride
                copies.append(self.staging.piece(line.name, where, view, rows, self.width, ld, self.width))
            for t in reversed(line.outer):
                copies = [For(t.name, t.extent, tuple(copies))]
            out += copies
        for (buffer, offset), name in self.operands.tall.items():
            step = coefficient(offset, self.strip.name)
            if step is None:
                raise NotVector(f"access to {buffer} is not affine")
            view = View(buffer, (_at(offset, origin),))
            out.append(self.staging.piece(name, (half, 0), view, count, self.width, step, self.width))
        return out

    def _compute(self, number: Index, half: Index, suffix: str) -> list[Stmt]:
        out, origin, count = self._place(number, suffix)
        for line in self.operands.lines.values():
            lead = tuple(sym(t.name) for t in line.outer)
            moves: list[Stmt] = []
            for phase in range(line.phases):
                run = line.columns(count, phase) * self.width
                moves += self._moved_in(
                    f"x_{line.name}", (*lead, phase), line.name, (half, *lead, phase), run, line.load.dtype
                )
            for t in reversed(line.outer):
                moves = [For(t.name, t.extent, tuple(moves))]
            out += moves
        out += self._vectors(count * self.width, half, origin)
        ld = coefficient(self.flat.offset, self.strip.name)
        if ld is None:
            raise NotVector("the result is not affine")
        target = View("o0", (_at(self.flat.offset, origin),))
        out.append(self.staging.piece("ct", (half, 0), target, count, self.width, ld, self.width, out=True))
        return out

    def _vectors(self, total: Index, half: Index, origin: dict[str, Index]) -> list[Stmt]:
        """All outputs of a strip: BESIDE vectors of them at a time, tap by tap."""
        wide = self.side * self.width
        count = ceildiv(total, wide)
        beside = sym("beside")
        number = sym("group") * BESIDE + beside
        strips = minimum(BESIDE, count - sym("group") * BESIDE)
        first, lanes = number * wide, minimum(wide, total - number * wide)
        acc = View("total", (beside, 0))

        def use(op: VectorOp, *operands: View | Value) -> Intrin:
            return Intrin(op.name, tuple(zip(op.operands, operands, strict=True)), ((op.dim, lanes),))

        tap = self._tap(first, lanes, beside, strips)
        tap.out.append(use(self.combine, acc, acc, tap.full(self.flat.value).view))
        update: list[Stmt] = [*tap.once, *tap.body()]
        for t in reversed(self.taps):
            update = [For(t.name, t.extent, tuple(update))]
        clear = For("beside", strips, (use(self.fill, acc, self.neutral),))
        end = self._finish(half, first, lanes, origin, beside, strips)
        return [For("group", ceildiv(count, BESIDE), (clear, *update, *end.once, *end.body()))]

    def _tap(self, first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
        """The value of one tap: every operand lies where vectors work."""

        def source(load: Load) -> Slot | Staged | Value | None:
            key = (load.buffer, load.index[0])
            fixed = self.operands.fixed.get(key)
            kind = self._loaded(load.dtype)
            if fixed is not None:
                return Slot(View(fixed.name, (fixed.number * self.side * self.width,)), kind)
            line = self.operands.lines[key]
            shift: Index = 0
            for name, times in line.weight.items():
                shift = shift + times * sym(name)
            phase = mod(shift, line.stride) if line.stride > 1 else 0
            along = floordiv(shift, line.stride) if line.stride > 1 else shift
            lead = tuple(sym(t.name) for t in line.outer)
            return Slot(View(f"x_{line.name}", (*lead, phase, along * self.width + first)), kind)

        varies = frozenset({self.strip.name, self.vector.name, *(r.name for r in self.rows)})
        return VectorProgram(
            self.chip, self.namer, self.hoist, lanes, source, {}, beside, strips, varies=varies
        )

    def _finish(
        self, half: Index, first: Index, lanes: Index, origin: dict[str, Index], beside: Index, strips: Index
    ) -> VectorProgram:
        number = sym("group") * BESIDE + beside
        here = {
            **origin,
            self.strip.name: origin[self.strip.name] + number,
        }  # one output a vector, if it matters
        moved = Rewriter(index=lambda i: _at(i, here))

        def source(load: Load) -> Slot | Staged | Value | None:
            key = (load.buffer, load.index[0])
            if key in self.operands.tall:
                return Staged(View(self.operands.tall[key], (half, first)))
            if key in self.operands.fixed:
                return Slot(View(self.operands.fixed[key].name, (0,)), self._loaded(load.dtype))
            if self.strip.name in free_symbols(load.index[0]):
                raise NotVector(f"access to {load.buffer} is not contiguous")
            return moved(load)

        acc = Slot(View("total", (beside, 0)), self.dtype)
        varies = frozenset({self.strip.name, self.vector.name})
        program = VectorProgram(
            self.chip, self.namer, self.hoist, lanes, source, {"acc": acc}, beside, strips, origin, varies
        )
        target = View("ct", (half, first))
        if self.flat.finish is None:
            program.moved_out(self.kernel.outputs[0].dtype, acc, target)
        else:
            program.stored(self.flat.finish, target)
        return program


def _at(offset: Index, where: Mapping[str, Index]) -> Index:
    return offset if isinstance(offset, int) else substitute(offset, where)


def _smallest(steps: Sequence[Index]) -> Index:
    """The smallest step, of which the others may be multiples."""
    best = steps[0]
    for step in steps:
        if (_times(best, step) or 0) > 1:
            best = step
    return best


def _times(a: Index, b: Index) -> int | None:
    """a / b as an integer, if it is a small one."""
    return next((times for times in range(1, 65) if b * times == a), None)
