"""Which way a contraction takes on lanes: matrix intrinsics, plain arithmetic on staged blocks, or single elements.

Design choice: the planner's versions are kernels behind its own selector, as on every other machine; a version whose
intrinsic cannot be fed here is left out.  When none is left, lanes multiply staged blocks themselves; what is no
product of two matrices, or has no scratchpad, is computed element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product as product_of
from math import prod

from hwsdk.codegen.blocks import Kernel
from hwsdk.codegen.loop_ir import Alloc, Index, walk
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.lower.lowered import Lowered, Machine, Packing, with_fallback
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import matrix_uses
from hwsdk.codegen.lower.simt.map import lower_elements
from hwsdk.codegen.lower.simt.operand import LaneContraction
from hwsdk.codegen.lower.simt.pipelined import PipelinedContraction
from hwsdk.codegen.lower.simt.plain import plain_tiles
from hwsdk.codegen.lower.simt.tensor import BlockTile, TensorContraction
from hwsdk.codegen.lower.simt.weights import packed, turned
from hwsdk.codegen.planner import Abilities, Contraction, Range, family, plan
from hwsdk.codegen.planner.problem import Extent
from hwsdk.codegen.planner.selector import select
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import Dim, Ranges, eq, le, maximum, product, simplify, substitute

VERSIONS = 4
ABLE = Abilities(max_buffers=4)
SAMPLES = (
    (1, 16, 128, 1024, 4096),
    (64, 1024, 4096),
    (128, 1024, 4096),
)  # of m, n, k that only run time knows


def sample_points(problem: Contraction) -> tuple[tuple[int, int, int], ...]:
    """Sizes to make versions for, from few rows to many."""

    def values(extent: Extent, usual: tuple[int, ...]) -> tuple[int, ...]:
        if not isinstance(extent, Range):
            return (max(1, extent),)
        high = extent.high if extent.high is not None else usual[-1]
        return tuple(x for x in usual if extent.low <= x <= high) or (extent.typical(),)

    m, n, k = (values(e, s) for e, s in zip((problem.m, problem.n, problem.k), SAMPLES, strict=True))
    return tuple(product_of(m, n, k))


class Contractions:
    """Lowers the contractions of one model; equal problems are planned once."""

    def __init__(
        self,
        chip: SimtChip,
        machine: Machine,
        ranges: Ranges,
        precision: str | None = None,
        constants: frozenset[str] = frozenset(),
    ) -> None:
        self.chip, self.machine, self.ranges, self.precision = chip, machine, ranges, precision
        self.constants = constants
        fed = frozenset(u.intrinsic.name for u in matrix_uses(chip.target) if u.intrinsic is not None)
        self.able = replace(ABLE, fed=fed)
        self.plans: dict[Contraction, tuple[tuple[ContractionSchedule, ...], tuple[Dim, ...]]] = {}

    def lower(self, kernel: Kernel) -> list[Lowered]:
        """One kernel or several versions of it."""
        if LaneContraction.accepts(kernel, self.ranges) and self.chip.scratch is not None:
            made = self._tensor(kernel) or self._plain(kernel)
            if made:
                return made
        return lower_elements(kernel, self.chip, self.machine, self.ranges)

    def _plain(self, kernel: Kernel) -> list[Lowered]:
        """Blocks of plain arithmetic, by the number of rows."""
        source = self._source(kernel)
        choices = plain_tiles(self.chip, self._problem(source), source.dtype)
        rows = source.extents[0]
        main: Lowered | None = None
        for number, choice in reversed(list(enumerate(choices))):
            name = kernel.name if len(choices) == 1 else f"{kernel.name}_v{number}"
            block = TensorContraction(kernel, self.chip, self.machine, self.ranges, choice.use, choice.tile)
            made = block.lower(name)
            if not self._fits(made):
                continue
            main = made if main is None else with_fallback(made, le(rows, choice.most or 1), main)
        return [] if main is None else [main]

    def _source(self, kernel: Kernel) -> LaneContraction:
        return LaneContraction(kernel, self.machine, self.ranges, self.chip.group.name)

    def _problem(self, source: ContractionLowering, a: str = "", b: str = "") -> Contraction:
        """What the planner is asked; a, b: dtypes of the operands in the product, if not their own."""
        m, n, k = (planner_extent(e, self.ranges) for e in source.extents)
        batch = planner_extent(product(i.extent for i in source.outer), self.ranges)
        own = source.parts.a.dtype, source.parts.b.dtype
        taken = (a or own[0], b or own[1])
        out = source.kernel.outputs[0].dtype
        return Contraction(
            m, n, k, batch=batch, a=taken[0], b=taken[1], acc=source.dtype, out=out, converted=taken != own
        )

    def _tensor(self, kernel: Kernel) -> list[Lowered]:
        source = self._source(kernel)
        a, b = self._taken(source)
        packing: dict[int, Packing] = {}
        if b == source.parts.b.dtype:  # else its values wait in registers, and need all of them
            kernel, packing = turned(kernel, self.constants)
            source = self._source(kernel)
        uses = {
            u.intrinsic.name: u
            for u in matrix_uses(self.chip.target)
            if u.intrinsic is not None
            and (u.a.dtype, u.b.dtype) == (a, b)
            and _holds(u.acc.dtype, source.dtype)
        }
        if not uses:
            return []
        schedules, costs = self._planned(self._problem(source, a, b))
        fast: list[tuple[Lowered, Dim, Index]] = []
        plain: list[Lowered] = []
        for number, (schedule, cost) in enumerate(zip(schedules, costs, strict=True)):
            use, tile = uses.get(schedule.intrinsic), _tile(schedule)
            if use is None or tile.waves > self.chip.waves(tile.waves):
                continue
            name = kernel.name if len(schedules) == 1 else f"{kernel.name}_v{number}"
            given = (kernel, self.chip, self.machine, self.ranges, use, tile)
            piped = PipelinedContraction(*given)
            if piped.conditions is not None and self._fits(made := piped.lower(name, schedule)):
                fast.append((made, cost, piped.guard))
            if not plain and self._fits(made := TensorContraction(*given).lower(f"{name}_any", schedule)):
                plain.append(made)
        return [packed(x, packing) for x in self._chosen(source, fast, plain)]

    def _chosen(
        self,
        source: ContractionLowering,
        fast: Sequence[tuple[Lowered, Dim, Index]],
        plain: Sequence[Lowered],
    ) -> list[Lowered]:
        """The versions behind the selector; the one for any sizes last, where a guard may refuse all others."""
        m, n, k = (maximum(1, e) for e in source.extents)
        outers = maximum(1, product(i.extent for i in source.outer))
        choice: Index = select([cost for _, cost, _ in fast]) if len(fast) > 1 else 0
        choice = substitute(choice, {"m": m, "n": n, "k": k, "batch": outers})
        guards = [simplify(g, self.ranges) for _, _, g in fast]
        safe = [i for i, g in enumerate(guards) if g == 1]
        main = fast[safe[-1]][0] if safe else plain[0] if plain else None
        if main is None:
            return []
        for number, (made, _, _) in reversed(list(enumerate(fast))):
            if made is not main:
                picked: Index = eq(choice, number) if len(fast) > 1 else 1
                main = with_fallback(made, picked * guards[number], main)
        return [main]

    def _taken(self, source: ContractionLowering) -> tuple[str, str]:
        """The dtypes of A and B in the product: f32 in the precision that was asked for, all others as they are."""
        own = source.parts.a.dtype, source.parts.b.dtype
        asked = self.precision
        return (asked, asked) if own == ("f32", "f32") and asked not in (None, "f32") else own

    def _planned(self, problem: Contraction) -> tuple[tuple[ContractionSchedule, ...], tuple[Dim, ...]]:
        if problem not in self.plans:
            self.plans[problem] = self._plan(problem)
        return self.plans[problem]

    def _plan(self, problem: Contraction) -> tuple[tuple[ContractionSchedule, ...], tuple[Dim, ...]]:
        try:
            if not problem.dynamic:
                return (plan(self.chip.target, problem, self.able),), (0,)
            found = family(self.chip.target, problem, sample_points(problem), VERSIONS, self.able)
        except PlanError:
            return (), ()
        return tuple(v.schedule for v in found.versions), tuple(v.cost for v in found.versions)

    def _fits(self, made: Lowered) -> bool:
        """Do the staged blocks fit the scratchpad of a workgroup?"""
        scratch = self.chip.scratch
        if scratch is None:
            return False
        allocs = [s.buffer for s in walk(made.loop.body) if isinstance(s, Alloc)]
        staged = [x for x in allocs if x.place == scratch.name]
        used = sum(prod(int(str(e)) for e in x.shape) * DTYPES[x.dtype].size_bytes for x in staged)
        return used <= (scratch.usable_bytes or 0)


def _holds(have: str, want: str) -> bool:
    """May sums be kept in `have` where the model asks for `want`?"""
    return have == want or (
        DTYPES[have].kind == DTYPES[want].kind == "f" and DTYPES[have].bits >= DTYPES[want].bits
    )


def _tile(schedule: ContractionSchedule) -> BlockTile:
    """The schedule as a block of whole intrinsics; what the planner clipped to the problem is rounded up again."""
    (bm, bn, bk), (wm, wn), (um, un, uk) = schedule.tiles, schedule.register_tile, schedule.unit_shape
    wm, wn = _up(wm, um), _up(wn, un)
    return BlockTile(_up(bm, wm), _up(bn, wn), _up(bk, uk), wm, wn, schedule.buffers, schedule.occupancy)


def _up(x: int, granule: int) -> int:
    return -(-x // granule) * granule
