"""Attention on a SIMD core: contraction, row operations, contraction, as one streaming kernel.

Design choice: the three kernels stay what they are; they run back to back on one block of rows, and the
scores between them are a scratch block in a near cache instead of a tensor in memory.  The scores are never
longer than a block of rows, so the kernel's memory does not grow with the square of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import Alloc, Body, Buffer, For, FromIndex, Index, Let, LoopKernel, Stmt
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.lowered import Lowered, Machine, dims_of
from hwsdk.codegen.lower.microkernel import RegisterTile
from hwsdk.codegen.lower.row import RowLowering
from hwsdk.codegen.rewrite import Renamer
from hwsdk.graph.dims import Ranges, ceildiv, floordiv, mod, product, simplify, substitute, sym

ROWS = 32  # of one block: a block of scores for 512 columns is 64 KiB


def attention_kernels(kernels: Sequence[Kernel], public: Iterable[str]) -> tuple[Kernel, ...]:
    """Join every contraction -> row -> contraction whose intermediates nobody else reads."""
    kept = set(public)
    readers: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        for t in kernel.inputs:
            readers.setdefault(t.name, []).append(number)
    joined: dict[int, Kernel] = {}
    gone: set[int] = set()
    for number, first in enumerate(kernels):
        chain = _chain(kernels, number, readers, kept)
        if chain is not None:
            row, second = (kernels[i] for i in chain)
            joined[chain[1]] = _join(first, row, second)
            gone |= {number, chain[0]}
    return tuple(joined.get(i, k) for i, k in enumerate(kernels) if i not in gone)


def _chain(
    kernels: Sequence[Kernel], number: int, readers: Mapping[str, list[int]], kept: set[str]
) -> tuple[int, int] | None:
    """Numbers of the row kernel and of the second contraction behind a contraction."""
    first = kernels[number]
    if first.kind != "contraction":
        return None
    scores = first.outputs[0].name
    after = readers.get(scores, [])
    if scores in kept or len(after) != 1 or kernels[after[0]].kind != "row":
        return None
    row = kernels[after[0]]
    if len(row.outputs) != 1 or row.outputs[0].name in kept or row.outputs[0].shape != first.outputs[0].shape:
        return None
    last = readers.get(row.outputs[0].name, [])
    if len(last) != 1 or kernels[last[0]].kind != "contraction":
        return None
    return after[0], last[0]


def _join(first: Kernel, row: Kernel, second: Kernel) -> Kernel:
    between = (first.outputs[0], row.outputs[0])
    hidden = {t.name for t in between}
    inputs = {t.name: t for k in (first, row, second) for t in k.inputs if t.name not in hidden}
    return Kernel(
        second.name.replace("contraction", "attention"),
        "attention",
        (*first.blocks, *row.blocks, *second.blocks),
        tuple(inputs.values()),
        second.outputs,
        (*between, *row.temps),
        (*first.sources, *row.sources, *second.sources),
        (first, row, second),
    )


@dataclass(frozen=True)
class Part:
    """One of the three kernels inside the joint one: statements for a bound block of rows, and how they are
    renamed.
    """

    body: Body
    shift: Mapping[str, Index]
    prefix: str


class AttentionLowering:
    """Lowers a joint kernel; `accepts` says whether its parts fit together."""

    def __init__(
        self, kernel: Kernel, machine: Machine, ranges: Ranges, level: str, constants: frozenset[str]
    ) -> None:
        self.kernel, self.machine, self.ranges, self.level = kernel, machine, ranges, level
        self.constants = constants
        first, row, second = kernel.parts
        self.first = ContractionLowering(first, machine, ranges, level, constants)
        self.second = ContractionLowering(second, machine, ranges, level, constants)
        self.row = RowLowering(row, machine, ranges, level)
        self.row_body = self.row.row()
        self.namers = {"f_": self.first.namer, "r_": self.row.namer, "s_": self.second.namer}
        self.scores, self.weights = first.outputs[0], row.outputs[0]
        self.rows, self.columns, _ = self.first.extents

    @staticmethod
    def accepts(kernel: Kernel, ranges: Ranges) -> bool:
        first, _, second = kernel.parts
        return all(ContractionLowering.accepts(k, ranges) for k in (first, second))

    def fits(self) -> bool:
        """Are scores and weights [outer, rows, columns] in all three parts, with the same outer number?"""
        a = self.second.parts.a
        if self.scores.dtype != self.weights.dtype:
            return False  # they share one buffer
        if self.second.namer.buffer[self.weights.name] != a.buffer or self.second.parts.b.buffer == a.buffer:
            return False
        if any(p.b_name in self.constants for p in (self.first, self.second)):
            return False  # a layer between weights: its rows stream well enough through memory
        plain = not self.first.flat.lets and len(self.first.parts.n) == 1 and len(self.second.parts.m) == 1
        same = self.second.extents[0] == self.rows and self.second.extents[2] == self.columns
        if not plain or not same or len(self.first.parts.m) != 1 or len(self.second.parts.n) != 1:
            return False
        outers = product(i.extent for i in self.first.parts.batch)
        if product(i.extent for i in self.second.parts.batch) != outers or len(self.row.inner) != 1:
            return False
        k = self.second.parts.k
        return (
            len(k) == 1
            and self._linear(self.first.flat.offset, self.first, self.first.parts.n[0].name)
            and self._linear(a.index[0], self.second, k[0].name)
            and product(i.extent for i in self.row.rows) == outers * self.rows
        )

    def _linear(self, offset: Index, part: ContractionLowering, column: str) -> bool:
        """Is the offset that of [batch..., row, column] in row-major order?"""
        want: Index = 0
        for it in part.parts.batch:
            want = want * it.extent + sym(it.name)
        want = (want * self.rows + sym(part.parts.m[0].name)) * self.columns + sym(column)
        return simplify(offset - want, self.ranges) == 0

    # ------------------------------------------------------------------------------------------------ kernel
    def lower(
        self, tiles: tuple[RegisterTile, RegisterTile], schedule: object | None = None
    ) -> list[Lowered]:
        self.first.tile, self.second.tile = (replace(t, sub_rows=ROWS) for t in tiles)
        packs: list[Lowered] = []
        self.packed: list[Tensor] = []
        for part in (self.first, self.second):
            packs += part.pack(part.b_name)[1]
            self.packed.append(part.packed_tensor)
        blocks = ceildiv(self.rows, ROWS)
        outers = product(i.extent for i in self.first.parts.batch)
        scores = Buffer(
            "scores", self.scores.dtype, (ROWS * self.columns,), self.machine.near.name, align_bytes=64
        )
        lets = {
            "outer": floordiv(sym("task"), blocks),
            "row_task": mod(sym("task"), blocks),
            "row0": floordiv(sym("row_task") * self.rows, blocks),
            "rows": floordiv((sym("row_task") + 1) * self.rows, blocks) - sym("row0"),
        }
        head: list[Stmt] = [Let(name, FromIndex("i64", value)) for name, value in lets.items()]
        body = (*head, Alloc(scores), *(self._inside(p) for p in self._parts()))
        loop = For("task", outers * blocks, body, "parallel", self.level)
        return [*packs, self._kernel((loop,), outers * blocks, schedule)]

    def _parts(self) -> list[Part]:
        zero_row = sym("row0")
        first_shift = self._corner(self.first.flat.offset, self.first, self.first.parts.n[0].name)
        second_shift = self._corner(self.second.parts.a.index[0], self.second, self.second.parts.k[0].name)
        score, weight = self.row.namer.buffer[self.scores.name], self.row.namer.buffer[self.weights.name]
        base = (sym("outer") * self.rows + zero_row) * self.columns
        return [
            Part(self._product(self.first), {"o0": first_shift}, "f_"),
            Part(self._rows(), {score: base, weight: base}, "r_"),
            Part(self._product(self.second), {self.second.parts.a.buffer: second_shift}, "s_"),
        ]

    def _corner(self, offset: Index, part: ContractionLowering, column: str) -> Index:
        """The offset of the block's first element, in the part's own iters."""
        assert not isinstance(offset, int)
        return substitute(offset, {part.parts.m[0].name: sym("row0"), column: 0})

    def _product(self, part: ContractionLowering) -> Body:
        lets = [Let("panel0", FromIndex("i64", 0)), Let("panels", FromIndex("i64", part.panels))]
        return (*decode_lets(part.parts.batch, sym("outer")), *lets, *part.rows())

    def _rows(self) -> Body:
        number = sym("outer") * self.rows + sym("row0") + sym("r")
        return (For("r", sym("rows"), (*decode_lets(self.row.rows, number), *self.row_body)),)

    def _inside(self, part: Part) -> Stmt:
        """The part in a scope of its own."""
        hidden = {self.scores.name, self.weights.name}
        scratch = {new for old, new in self.namers[part.prefix].buffer.items() if old in hidden}

        def name(buffer: str) -> str:
            return "scores" if buffer in scratch else f"{part.prefix}{buffer}"

        return For(f"{part.prefix}part", 1, Renamer(name, part.shift, part.prefix)(part.body))

    def _kernel(self, body: Body, grid: Index, schedule: object | None) -> Lowered:
        params: list[Buffer] = []
        args: list[str] = []
        place = self.machine.main.name
        packed = dict(zip(("f_", "s_"), self.packed, strict=True))
        for prefix, tensor in packed.items():
            params.append(Buffer(f"{prefix}b", tensor.dtype, (product(tensor.shape),), place, align_bytes=64))
            args.append(tensor.name)
        hidden = {self.scores.name, self.weights.name}
        last: list[tuple[Buffer, str]] = []
        for prefix, namer in self.namers.items():
            for p, name in zip(namer.params(place), namer.args, strict=True):
                if name in hidden:
                    continue
                moved = replace(p, name=f"{prefix}{p.name}")
                if name == self.kernel.outputs[0].name:
                    last.append((moved, name))
                else:
                    params.append(moved)
                    args.append(name)
        loop = LoopKernel(
            self.kernel.name, (*params, *(b for b, _ in last)), (), body, tuple(b.name for b, _ in last)
        )
        loop = replace(loop, dims=dims_of(loop))
        work = product((*(i.extent for i in self.first.parts.batch), self.rows, self.columns)) * 16
        return Lowered(loop, (*args, *(n for _, n in last)), grid, work, {}, schedule, self.kernel.sources)
