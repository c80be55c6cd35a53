"""Rows on a staged chip: a row is copied to the scratchpad, worked on in vectors, copied back.

Design choice: a step is one whole row, so what a row's statistics need is in vectors until the row is done; a row that
is too long for the scratchpad runs as scalar code.
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
    Let,
    Load,
    LoopKernel,
    Stmt,
    Store,
    Value,
    View,
    walk,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    at,
    finish_kernel,
    flatten_block,
    merge,
    with_fallback,
)
from hwsdk.codegen.lower.row import lower_row
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.pipeline import Staging, bind, pipeline
from hwsdk.codegen.lower.staged.program import Hoist, NotVector, Slot, Staged, Strips, VectorProgram
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    Ranges,
    both,
    ceildiv,
    coefficient,
    free_symbols,
    le,
    minimum,
    mod,
    product,
    simplify,
    substitute,
    sym,
)

STEPS_PER_TASK = 64


@dataclass(frozen=True)
class Stream:
    """A contiguous run that is copied in for every step."""

    buffer: str
    offset: Index
    dtype: str
    name: str


class RowsLowering:
    """Lowers a map or row kernel; raises NotVector when a body or an access does not fit the chip."""

    def __init__(self, kernel: Kernel, chip: Chip, machine: Machine, ranges: Ranges, level: str) -> None:
        self.kernel, self.chip, self.machine, self.ranges, self.level = kernel, chip, machine, ranges, level
        self.namer = Namer(kernel)
        self.staging = Staging(chip)
        self.hoist = Hoist(chip, self.namer)
        self.streams: dict[tuple[str, Index], Stream] = {}

    def lower(self) -> Lowered:
        flats = [flatten_block(self.kernel, b, self.namer, self.ranges) for b in self.kernel.blocks]
        rows, inner, flats = self._row_space(flats)
        piece = inner.extent
        self.rows, self.inner, self.piece = rows, inner, piece
        self.names = {b.output: self.namer.buffer[b.output] for b in self.kernel.blocks}
        self.temps = {t.name for t in self.kernel.temps}
        self.long = {f.block.output for f in flats if not f.block.combiner and self._is_long(f)}
        self.flats = flats
        self._find_streams()
        stored = [f for f in flats if f.block.output in self.long and f.block.output not in self.temps]
        for f in stored:
            self.staging.add(f"out_{self.names[f.block.output]}", f.value.dtype, (1, piece))
        total = product(r.extent for r in rows)
        task = sym("task")
        count = minimum(STEPS_PER_TASK, total - task * STEPS_PER_TASK)

        def load(step: Index, suffix: str) -> list[Stmt]:
            return self._load(task * STEPS_PER_TASK + step, mod(step, 2), suffix)

        def compute(step: Index, suffix: str) -> list[Stmt]:
            return self._compute(task * STEPS_PER_TASK + step, mod(step, 2), suffix, stored)

        body = pipeline(self.staging, count, load, compute, len(stored), "step", self.hoist.out)
        grid = ceildiv(total, STEPS_PER_TASK)
        loop = (For("task", grid, body, "parallel", self.level),)
        work = total * piece * len(flats)
        made = finish_kernel(self.kernel, self.namer, self.machine, loop, grid, work)
        fits = self._fits(made.loop)
        if fits == 1:
            return made
        if fits == 0:
            raise NotVector(f"a row of {piece} elements is too long to hold")
        plain = lower_row(
            replace(self.kernel, name=f"{self.kernel.name}_long"), self.machine, self.ranges, self.level
        )
        if len(plain) != 1 or plain[0].args != made.args:
            return made
        return with_fallback(made, fits, plain[0])

    def _fits(self, loop: LoopKernel) -> Index:
        """Non-zero where everything that the kernel allocates fits its place."""
        guard: Index = 1
        for memory in (self.chip.scratch, self.chip.vectors):
            kept = [
                s.buffer for s in walk(loop.body) if isinstance(s, Alloc) and s.buffer.place == memory.name
            ]
            size: Index = 0
            for b in kept:
                align = max(1, b.align_bytes)
                size = size + ceildiv(product(b.shape) * DTYPES[b.dtype].size_bytes, align) * align
            guard = both(guard, le(size, memory.usable_bytes or 0))
        return simplify(guard, self.ranges)

    # ------------------------------------------------------------------------------------------------ spaces
    def _row_space(self, flats: list[FlatBlock]) -> tuple[list[Iter], Iter, list[FlatBlock]]:
        spaces = {i.name: replace(i, kind="parallel") for f in flats for i in f.block.iters}
        rows, gone = merge([i for n, i in spaces.items() if n.startswith("p")], flats)
        long = [f for f in flats if self._is_long(f)]
        inner, gone_too = merge([i for n, i in spaces.items() if n.startswith("r")], long)
        if len(inner) != 1:
            raise NotVector("a row is not one contiguous run")
        return rows, inner[0], [at(f, {**gone, **gone_too}) for f in flats]

    def _is_long(self, f: FlatBlock) -> bool:
        return any(i.name.startswith("r") for i in f.block.iters)

    # ----------------------------------------------------------------------------------------------- streams
    def _find_streams(self) -> None:
        own = {self.names[f.block.output] for f in self.flats}
        for f in self.flats:
            if not self._is_long(f):
                continue
            for load in loads(f.value):
                if load.buffer not in own:
                    self._stream(load)
            for let in f.lets:
                if any(self.inner.name in free_symbols(i) for x in loads(let.value) for i in x.index):
                    raise NotVector("an index is read for every element")

    def _stream(self, load: Load) -> None:
        """Stage what moves with the elements of a row."""
        if load.where is not None:
            raise NotVector(f"access to {load.buffer} is guarded")
        step = coefficient(load.index[0], self.inner.name)
        key = (load.buffer, load.index[0])
        if step == 1 and key not in self.streams:
            name = self.staging.add(f"in{len(self.streams)}", load.dtype, (1, self.piece))
            self.streams[key] = Stream(*key, load.dtype, name)
        elif step not in (0, 1):
            raise NotVector(f"access to {load.buffer} is not contiguous")

    def _place(self, number: Index, suffix: str) -> tuple[list[Stmt], dict[str, Index]]:
        """Lets and substitutions for one step."""
        out, names = bind(self.rows, number, suffix)
        mapping: dict[str, Index] = dict(names)
        move = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, mapping))
        for f in self.flats:
            for let in f.lets:
                if let.name not in mapping:
                    out.append(Let(f"{let.name}{suffix}", move(let.value)))
                    mapping[let.name] = sym(f"{let.name}{suffix}")
                    move = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, mapping))
        return out, mapping

    def _load(self, number: Index, half: Index, suffix: str) -> list[Stmt]:
        out, mapping = self._place(number, suffix)
        length = self.inner.extent
        for stream in self.streams.values():
            offset = (
                substitute(stream.offset, {**mapping, self.inner.name: 0})
                if not isinstance(stream.offset, int)
                else stream.offset
            )
            out.append(
                self.staging.load(stream.name, half, View(stream.buffer, (offset,)), 1, length, length)
            )
        return out

    # ---------------------------------------------------------------------------------------------- computing
    def _compute(self, number: Index, half: Index, suffix: str, stored: Sequence[FlatBlock]) -> list[Stmt]:
        out, mapping = self._place(number, suffix)
        length = self.inner.extent
        self.known: dict[str, Slot] = {}
        for t in self.kernel.temps:
            if t.name in self.long:
                place = self.chip.vectors
                out.append(
                    Alloc(
                        Buffer(
                            self.names[t.name],
                            "f32",
                            (self.piece,),
                            place.name,
                            align_bytes=place.align_bytes or 0,
                        )
                    )
                )
        for f in self.flats:
            moved = at(replace(f, lets=()), mapping)
            if f.block.combiner:
                out += self._reduction(moved, length, half)
            elif self._is_long(f):
                out += self._strips(moved, length, half)
            else:
                out += self._statistic(moved)
        for f in stored:
            name = self.names[f.block.output]
            offset = (
                f.offset
                if isinstance(f.offset, int)
                else substitute(f.offset, {**mapping, self.inner.name: 0})
            )
            out.append(self.staging.store(f"out_{name}", half, View(name, (offset,)), 1, length, length))
        return out

    def _program(
        self, first: Index, lanes: Index, half: Index, beside: Index = 0, strips: Index = 1
    ) -> VectorProgram:
        own = {self.names[f.block.output]: f for f in self.flats}
        streams = {(s.buffer, self._bare(s.offset)): s for s in self.streams.values()}

        def source(load: Load) -> Slot | Staged | Value | None:
            if load.buffer in own:
                block = own[load.buffer].block
                if block.output in self.temps and block.output in self.long:
                    return Slot(View(load.buffer, (first,)), "f32")
                if block.output in self.long:
                    return Staged(View(f"out_{load.buffer}", (half, 0, first)))
                return self.known.get(load.buffer)
            stream = streams.get((load.buffer, self._bare(load.index[0])))
            if stream is not None and coefficient(load.index[0], self.inner.name) == 1:
                return Staged(View(stream.name, (half, 0, first)))
            return load if coefficient(load.index[0], self.inner.name) == 0 else None

        varies = frozenset({self.inner.name})
        program = VectorProgram(
            self.chip, self.namer, self.hoist, lanes, source, self.known, beside, strips, varies=varies
        )
        return program

    def _bare(self, offset: Index) -> Index:
        """An offset without the suffixes and substitutions of a step: what identifies a stream."""
        return (
            offset
            if isinstance(offset, int)
            else substitute(offset, {f"{r.name}": sym(r.name) for r in self.rows})
        )

    def _strips(self, f: FlatBlock, length: Index, half: Index) -> list[Stmt]:
        name = self.names[f.block.output]

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            program = self._program(first, lanes, half, beside, strips)
            if f.block.output in self.temps:
                program.out.append(self._same(program.full(f.value), View(name, (first,)), program))
            else:
                program.stored(f.value, View(f"out_{name}", (half, 0, first)))
            return program

        return Strips(self.namer, length, self.chip.lanes).loop(build)

    def _same(self, slot: Slot, target: View, program: VectorProgram) -> Stmt:
        """A copy inside the vector place, by whatever intrinsic does it: a move, or max(x, x)."""
        place = self.chip.vectors.name
        move = self.chip.move.get((slot.dtype, place, slot.dtype, place))
        if move is not None:
            return Intrin(
                move.name,
                tuple(zip(move.operands, (target, slot.view), strict=True)),
                ((move.dim, program.lanes),),
            )
        twice = self.chip.binary.get(("max", slot.dtype, False))
        if twice is None:
            raise NotVector(f"no intrinsic copies {slot.dtype} inside {place}")
        return Intrin(
            twice.name,
            tuple(zip(twice.operands, (target, slot.view, slot.view), strict=True)),
            ((twice.dim, program.lanes),),
        )

    def _reduction(self, f: FlatBlock, length: Index, half: Index) -> list[Stmt]:
        kind, dtype = f.block.combiner or "sum", f.value.dtype
        across = self.chip.reduce.get((kind, dtype))
        step = self.chip.binary.get((COMBINE[kind], dtype, False))
        fill = self.chip.fill.get(dtype)
        if across is None or step is None or fill is None or f.finish is not None:
            raise NotVector(f"no intrinsic reduces {dtype} by {kind}")
        name = f"c_{self.names[f.block.output]}"
        whole = self.chip.lanes
        single = f"s_{self.names[f.block.output]}"
        out: list[Stmt] = [Alloc(Buffer(n, dtype, (whole,), self.chip.vectors.name)) for n in (name, single)]
        acc = View(name, (0,))
        out.append(
            Intrin(
                fill.name,
                tuple(zip(fill.operands, (acc, Const(dtype, neutral(kind, dtype))), strict=True)),
                ((fill.dim, whole),),
            )
        )

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            program = self._program(first, lanes, half, beside, strips)
            slot = program.full(f.value)
            pairs = tuple(zip(step.operands, (acc, acc, slot.view), strict=True))
            program.out.append(Intrin(step.name, pairs, ((step.dim, lanes),)))
            return program

        out += Strips(self.namer, length, whole).loop(build)
        out.append(
            Intrin(
                across.name,
                tuple(zip(across.operands, (View(single, (0,)), acc), strict=True)),
                ((across.dim, whole),),
            )
        )
        return out + self._bound(f, Slot(View(single, (0,)), dtype, True))

    def _statistic(self, f: FlatBlock) -> list[Stmt]:
        program = self._program(0, 1, 0)
        program.lasting = True
        slot = program.full(f.value)
        return [*program.once, *program.out, *self._bound(f, replace(slot, single=True))]

    def _bound(self, f: FlatBlock, slot: Slot) -> list[Stmt]:
        """Remember a value per row; the control unit stores it if someone outside wants it."""
        name = self.names[f.block.output]
        self.known[name] = slot
        if f.block.output in self.temps:
            return []
        return [Store(name, (f.offset,), Load(slot.dtype, slot.view.buffer, slot.view.index))]
