"""The operands of a window kernel: which a task keeps, which move with the outputs, what of them a strip needs.

Design choice: taps that lie between the outputs share a line of columns, one for each phase of the stride; taps that
do not have lines of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import Const, Index, Load
from hwsdk.codegen.lower.lowered import Machine, Namer, at, flatten_block, merge
from hwsdk.codegen.lower.map import contiguous_iter
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.pipeline import Staging
from hwsdk.codegen.lower.staged.program import NotVector
from hwsdk.codegen.lower.staged.tiles import ONE, only_used
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.rewrite import loads
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    Ranges,
    coefficient,
    free_symbols,
    product,
    sym,
)

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


class WindowOperands:
    """A window kernel taken apart; raises NotVector where an access does not fit."""

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
        self.side = lanes // width if isinstance(width, int) and 0 < width < lanes else 1
        self.lanes = self.side * width if isinstance(width, int) and 0 < width < lanes else lanes
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
