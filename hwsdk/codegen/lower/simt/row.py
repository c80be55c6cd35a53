"""Row kernels on lanes: a row belongs to one lockstep group, or a long one to a whole workgroup.

Design choice: the passes are those of the SIMD lowering, with the lanes of the row in the place of one vector; a
row-long intermediate is computed again where it is used, because lanes have arithmetic to spare and no cache of
their own.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import (
    Body,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    Reduce,
    Ref,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    compare,
    finish_kernel,
    finished,
    with_fallback,
)
from hwsdk.codegen.lower.row import RowLowering
from hwsdk.codegen.lower.simt.across import Across, Exchange
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.graph.dims import Ranges, ceildiv, le, product, simplify, sym

WAVES = 8
STEPS = 8  # accesses of a lane per row that one lockstep group still takes alone


def lower_row(kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges) -> list[Lowered]:
    """One kernel, or two behind a guard on the length of a row."""
    short = SimtRowLowering(kernel, chip, machine, ranges, 1)
    made = short.lower()
    limit = STEPS * chip.width * short.wide
    fits = simplify(le(product(i.extent for i in short.inner), limit), ranges)
    if short.alone and fits == 1:
        return [made]
    long = SimtRowLowering(kernel, chip, machine, ranges, chip.waves(WAVES)).lower()
    if not short.alone or fits == 0:
        return [long]
    named = replace(long, loop=replace(long.loop, name=f"{long.loop.name}_long"))
    return [with_fallback(made, fits, named)]


class SimtRowLowering(RowLowering):
    """waves: lockstep groups that share a row.  alone: can one do all of its reductions?"""

    def __init__(self, kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges, waves: int) -> None:
        super().__init__(kernel, machine, ranges, chip.group.name)
        self.chip, self.waves, self.chains = chip, waves, 1
        self.wide = chip.elements(*(t.dtype for t in (*kernel.inputs, *kernel.outputs)))
        self.across = Across(chip, waves, Exchange.of(chip.target, chip.width))
        kinds = [b.accumulator or b.value.dtype for b in kernel.blocks if b.combiner]
        self.alone = all(self.across.carries(d) for d in kinds)
        self.recomputed: dict[str, FlatBlock] = {}

    @property
    def lanes(self) -> int:
        """That share a row."""
        return self.waves * self.chip.width

    def lower(self) -> Lowered:
        body = tuple(self.row())
        rows = product(i.extent for i in self.rows)
        many = self.chip.waves(WAVES)
        if self.waves == 1:
            row: Index = sym("group") * many + sym("wave") if self.chip.wave is not None else sym("group")
            grid = ceildiv(rows, many)
        else:
            many, row, grid = self.waves, sym("group"), rows
        inner: Body = (*decode_lets(self.rows, sym("row")), *body)
        number = Let("row", FromIndex("i64", row))
        inner = (number, *inner) if self.waves > 1 else (number, If(compare("lt", sym("row"), rows), inner))
        loop = (For("group", grid, self.chip.lanes(many, inner), "parallel", self.level),)
        work = rows * product(i.extent for i in self.inner)
        return finish_kernel(self.kernel, self.namer, self.machine, loop, grid, work)

    # ----------------------------------------------------------------------------------------------- intermediates
    def _localised(self, f: FlatBlock) -> FlatBlock:
        """Row-long intermediates become the value that they hold."""
        made = super()._localised(f)
        made = self._inlined(made)
        if made.block.output in self.temps and made.block.output in self.long:
            self.recomputed[self.names[made.block.output]] = made
        return made

    def _inlined(self, f: FlatBlock) -> FlatBlock:
        lets: list[Let] = []

        def value(x: Value) -> Value | None:
            if not isinstance(x, Load) or x.buffer not in self.recomputed:
                return None
            source = self.recomputed[x.buffer]
            lets.extend(n for n in source.lets if n.name not in {m.name for m in lets})
            return source.value

        rewriter = Rewriter(value=value)
        body, finish = rewriter(f.value), rewriter.maybe(f.finish)
        own = tuple(Let(n.name, rewriter(n.value)) for n in f.lets)
        return replace(f, value=body, finish=finish, lets=(*lets, *own))

    def _phases(self, flats: list[FlatBlock]) -> list[list[FlatBlock]]:
        kept = [f for f in flats if self.names[f.block.output] not in self.recomputed]
        return super()._phases(kept)

    def row(self) -> list[Stmt]:
        body = super().row()
        return [
            s for s in body if not (hasattr(s, "buffer") and getattr(s.buffer, "name", "") in self.recomputed)
        ]

    # ------------------------------------------------------------------------------------------------------ passes
    def _lanes(self, phase: list[FlatBlock]) -> int:
        return self.wide

    def _vectors(
        self,
        phase: list[FlatBlock],
        vector: Iter,
        names: dict[str, str],
        bound: frozenset[str],
        done: set[str],
    ) -> list[Stmt]:
        """Every lane takes the accesses that are its turn; the last may be cut off by the end of the row."""
        step, v, rest = (self.namer.fresh(x) for x in "jve")
        wide, extent = self.wide, vector.extent
        me: Index = sym("lane") if self.waves == 1 else sym("t")
        first = (sym(step) * self.lanes + me) * wide
        at = self.namer.fresh("f")
        whole = For(
            v, wide, self._body(phase, vector, sym(at) + sym(v), names, 0, sym(v), bound, set(done)), "vector"
        )
        tail = For(
            rest,
            extent - sym(at),
            self._body(phase, vector, sym(at) + sym(rest), names, 0, 0, bound, set(done)),
        )
        block = self.lanes * wide
        inner: Stmt = If(compare("le", sym(at) + wide, extent), (whole,), (tail,))
        if isinstance(extent, int) and extent % block == 0:
            inner = whole
        return [For(step, ceildiv(extent, block), (Let(at, FromIndex("i64", first)), inner))]

    def _combine(self, name: str, f: FlatBlock, lanes: int) -> list[Stmt]:
        """Partial results of the lanes to one value that all of them hold."""
        dtype = f.block.accumulator or f.value.dtype
        op = f.block.combiner or "sum"
        v = self.namer.fresh("v")
        buffer = self.names[f.block.output]
        partial = Reduce(dtype, op, v, lanes, Load(dtype, name, (0, sym(v))))
        out, total = self.across.reduce(buffer, op, dtype, partial)
        if f.finish is not None:
            out.append(Let(f"r_{buffer}", total))
            total = finished(f.finish, Ref(dtype, f"r_{buffer}"))
        return [*out, Let(f"s_{buffer}", total), *self._kept(f, buffer, total.dtype)]

    def _statistic(self, f: FlatBlock) -> list[Stmt]:
        name = self.names[f.block.output]
        return [*f.lets, Let(f"s_{name}", f.value), *self._kept(f, name, f.value.dtype)]

    def _kept(self, f: FlatBlock, name: str, dtype: str) -> list[Stmt]:
        """The first lane of the row stores a statistic that someone outside wants."""
        if f.block.output in self.temps:
            return []
        me: Index = sym("lane") if self.waves == 1 else sym("t")
        return [If(compare("eq", me, 0), (Store(name, (f.offset,), Ref(dtype, f"s_{name}")),))]
