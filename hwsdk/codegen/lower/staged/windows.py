"""Windows on a staged chip: small reductions (depthwise convolution, pooling), vectors along the contiguous dim.

Design choice: a task keeps one chunk of the contiguous dim, so what depends on nothing else (weights, bias) is loaded
once and stays where vectors work.  A step computes a strip of outputs.  What the strip needs of an operand lies
densely there too: a line per outer tap and phase of the stride, so every tap is the same vectors from a little further
on, and where a chunk is narrow one vector holds several outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.loop_ir import Alloc, Buffer, For, Index, Intrin, Load, Stmt, Value, View
from hwsdk.codegen.lower.lowered import Lowered, finish_kernel
from hwsdk.codegen.lower.staged.facts import VectorOp
from hwsdk.codegen.lower.staged.pipeline import bind, pipeline
from hwsdk.codegen.lower.staged.program import BESIDE, Hoist, NotVector, Slot, Staged, VectorProgram
from hwsdk.codegen.lower.staged.window_operands import Fixed, WindowOperands
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.graph.dims import (
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


class WindowLowering(WindowOperands):
    """Lowers a window kernel; raises NotVector where an access does not fit."""

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
