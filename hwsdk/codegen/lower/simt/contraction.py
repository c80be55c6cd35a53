"""Which way a contraction takes on lanes: matrix intrinsics, plain arithmetic on staged blocks, or single elements.

Design choice: the planner's versions are kernels behind its own selector, as on every other machine; a version whose
intrinsic cannot be fed here is left out.  When none is left, lanes multiply staged blocks themselves; what is no
product of two matrices, or has no scratchpad, is computed element by element.  Versions that give parts of k to several
workgroups are launches of their own (`depth`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of
from typing import Any

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.footprint import overflow
from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.lower.lowered import Lowered, Machine, Packing, with_fallback
from hwsdk.codegen.lower.simt.changes import NONE, fitting
from hwsdk.codegen.lower.simt.depth import Parts, in_depth
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import MatrixUse, matrix_uses
from hwsdk.codegen.lower.simt.map import lower_elements
from hwsdk.codegen.lower.simt.operand import LaneContraction
from hwsdk.codegen.lower.simt.pipelined import PipelinedContraction
from hwsdk.codegen.lower.simt.plain import PlainTile, plain_tiles, shared_depth, tiles_in_parts
from hwsdk.codegen.lower.simt.plain_cost import PlainMachine
from hwsdk.codegen.lower.simt.product_changes import (
    PLAIN,
    changed_plain,
    changed_product,
    changed_schedule,
    decisions,
    tile_of,
    whole,
)
from hwsdk.codegen.lower.simt.resident import ResidentUse, resident_uses
from hwsdk.codegen.lower.simt.schedules import LaneProductSchedule
from hwsdk.codegen.lower.simt.split import depth_part, splits_depth
from hwsdk.codegen.lower.simt.streamed import StreamedContraction
from hwsdk.codegen.lower.simt.tensor import TensorContraction
from hwsdk.codegen.lower.simt.weights import packed, turned
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.planner import Abilities, Contraction, Range, family, plan
from hwsdk.codegen.planner.problem import Extent
from hwsdk.codegen.planner.selector import select
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import (
    Dim,
    Ranges,
    bounds,
    ceildiv,
    eq,
    ge,
    gt,
    le,
    maximum,
    product,
    simplify,
    substitute,
)

Planned = tuple[tuple[ContractionSchedule, ...], tuple[Dim, ...]]  # and what each costs, over the dims

VERSIONS = 4
ABLE = Abilities(max_buffers=4, split_k=True)
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


@dataclass(frozen=True)
class _Version:
    """A kernel for one schedule.  number: of the schedule; guard: not zero where it may run; between: what it writes
    where that is not the result but parts of it."""

    number: int
    made: Lowered
    guard: Index
    between: Tensor | None = None


class Contractions:
    """Lowers the contractions of one model; equal problems are planned once."""

    def __init__(
        self,
        chip: SimtChip,
        machine: Machine,
        ranges: Ranges,
        precision: str | None = None,
        constants: frozenset[str] = frozenset(),
        changes: Overrides = NONE,
    ) -> None:
        self.chip, self.machine, self.ranges, self.precision = chip, machine, ranges, precision
        self.changes = changes
        self.constants = constants
        self.plans: dict[tuple[Contraction, frozenset[str]], Planned] = {}

    def lower(self, kernel: Kernel) -> tuple[list[Lowered], list[Tensor]]:
        """The launches of a kernel, each in its versions, and the buffers between them."""
        if LaneContraction.accepts(kernel, self.ranges) and self.chip.scratch is not None:
            made, between = self._tensor(kernel)
            if not made:
                made, between = self._plain(kernel)
            if made:
                return made, between
        return lower_elements(kernel, self.chip, self.machine, self.ranges, self.changes), []

    def _plain(self, kernel: Kernel) -> tuple[list[Lowered], list[Tensor]]:
        """Blocks of plain arithmetic, by the number of rows; blocks of few rows may share k."""
        source = self._source(kernel)
        problem = self._problem(source)
        whole = plain_tiles(self.chip, problem, source.dtype)
        if kernel.name in self.changes:
            planned = self._block(kernel, kernel.name, whole[0], problem).schedule
            assert isinstance(planned, LaneProductSchedule)
            tile = changed_plain(kernel.name, self.chip, planned, source.dtype, self.changes)
            made = self._block(kernel, kernel.name, tile, problem)
            return [fitting(self.changes, kernel.name, self.chip, replace(made, decisions=PLAIN))], []
        split = tiles_in_parts(self.chip, problem, source.dtype, whole) if splits_depth(kernel) else []
        parts = self._plain_parts(kernel, source, problem, split)
        if any(p.picked == 1 for p in parts):
            return in_depth(kernel, None, parts, self.chip, self.machine, self.ranges)
        known = all(isinstance(x, int) for x in (problem.n, problem.k, problem.batch))
        shared = (
            split[len(parts) - 1].most or 0 if parts and known else 0
        )  # parts are picked up to these rows
        main: Lowered | None = None
        for number, choice in reversed(list(enumerate(whole))):
            if choice.most is not None and choice.most <= shared:
                continue
            name = kernel.name if len(whole) == 1 else f"{kernel.name}_v{number}"
            made = self._block(kernel, name, choice, problem)
            made = replace(made, version_of=kernel.name, decisions=PLAIN)
            if self._fits(made):
                guard = le(source.extents[0], choice.most or 1)
                main = made if main is None else with_fallback(made, guard, main)
        return in_depth(kernel, main, parts if main else [], self.chip, self.machine, self.ranges)

    def _plain_parts(
        self, kernel: Kernel, source: ContractionLowering, problem: Contraction, split: Sequence[PlainTile]
    ) -> list[Parts]:
        """The versions in parts, from few rows to many; where only run time knows how many blocks there are, it sees to
        it that all their parts are in flight at once."""
        machine, out = PlainMachine.of(self.chip, source.dtype), list[Parts]()
        rows, columns, k = source.extents
        before = 0
        for number, choice in enumerate(split):
            part = depth_part(kernel, choice.part, self.ranges)
            made = self._block(part, f"{kernel.name}_parts{number or ''}", choice, problem)
            if not self._fits(made):
                break
            picked: Index = (
                le(rows, choice.most or 1) * gt(rows, before) if before else le(rows, choice.most or 1)
            )
            if not all(isinstance(x, int) for x in (problem.n, problem.k, problem.batch)):
                grid = product(i.extent for i in source.outer) * ceildiv(rows, choice.tile.bm)
                grid = grid * ceildiv(columns, choice.tile.bn) * ceildiv(k, choice.part)
                room = machine.workers * machine.resident(choice.use, choice.tile)
                picked = picked * le(grid, room) * ge(k, shared_depth(problem) // 2)
            out.append(Parts(made, part.outputs[0], picked))
            before = choice.most or 1
        return out

    def _block(self, kernel: Kernel, name: str, choice: PlainTile, problem: Contraction) -> Lowered:
        """The kernel for one tile of plain arithmetic."""
        given = (kernel, self.chip, self.machine, self.ranges, choice.use, choice.tile)
        machine = PlainMachine.of(self.chip, choice.use.acc.dtype)
        sized = problem.at(m=choice.most, k=shared_depth(problem) if choice.part else None)
        schedule = machine.schedule(sized, choice.use, choice.tile, choice.part)
        return TensorContraction(*given).lower(name, schedule)

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

    def _tensor(self, kernel: Kernel) -> tuple[list[Lowered], list[Tensor]]:
        source = self._source(kernel)
        a, b = self._taken(source)
        packing: dict[str, Packing] = {}
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
            return [], []
        problem, streamed = self._problem(source, a, b), self._streamed(source, a, b)
        schedules, costs = self._planned(problem, {*uses, *streamed})
        if kernel.name in self.changes and any(s.intrinsic in uses for s in schedules):
            return [packed(self._changed(kernel, schedules, uses), packing)], []
        fast: list[_Version] = []
        plain: list[Lowered] = []
        for number, schedule in enumerate(schedules):
            name = kernel.name if len(schedules) == 1 else f"{kernel.name}_v{number}"
            use = streamed.get(schedule.intrinsic) or uses[schedule.intrinsic]
            fast += self._pipelined(kernel, name, number, schedule, use)
            if not plain and not schedule.k_part and schedule.intrinsic in uses:
                plain += self._any(kernel, name, schedule, use)
        plain = plain or self._spare(kernel, problem, uses)
        made, between = self._chosen(kernel, source, fast, [costs[v.number] for v in fast], plain)
        return [packed(x, packing) for x in made], between

    def _streamed(self, source: LaneContraction, a: str, b: str) -> dict[str, ResidentUse]:
        """Intrinsics that read A and B from the scratchpad as their lines lie in memory."""
        along = tuple(x.along_k for x in source.operands)
        return {
            u.intrinsic.name: u
            for u in resident_uses(self.chip.target)
            if u.intrinsic is not None
            and (u.left.dtype, u.right.dtype) == (a, b) == (source.parts.a.dtype, source.parts.b.dtype)
            and _holds(u.acc.dtype, source.dtype)
            and (u.left.along_k, u.right.along_k) == along
        }

    def _any(self, kernel: Kernel, name: str, schedule: ContractionSchedule, use: MatrixUse) -> list[Lowered]:
        """The kernel for any sizes, if it fits."""
        tile = tile_of(schedule)
        if tile.waves > self.chip.waves(tile.waves):
            return []
        given = (kernel, self.chip, self.machine, self.ranges, use, tile)
        made = TensorContraction(*given).lower(f"{name}_any", whole(schedule))
        changeable = decisions(PipelinedContraction(*given))
        made = replace(made, version_of=kernel.name, decisions=changeable)
        return [made] if self._fits(made) else []

    def _spare(self, kernel: Kernel, problem: Contraction, uses: Mapping[str, MatrixUse]) -> list[Lowered]:
        """What runs where operands in the scratchpad cannot be read: fragments in registers, planned for one size."""
        schedules, _ = self._planned(problem.at(), uses)
        for schedule in schedules:
            name, use = f"{kernel.name}_spare", uses[schedule.intrinsic]
            piped = [] if schedule.k_part else self._pipelined(kernel, name, 0, schedule, use)
            for plain in self._any(kernel, name, schedule, use) if not schedule.k_part else ():
                return [with_fallback(v.made, v.guard, plain) if v.guard != 1 else v.made for v in piped] or [
                    plain
                ]
        return []

    def _pipelined(
        self, kernel: Kernel, name: str, number: int, schedule: ContractionSchedule, use: MatrixUse
    ) -> list[_Version]:
        """The kernel for whole chunks, if there is one; parts of k are whole wherever all of k is."""
        tile = tile_of(schedule, use.members)
        if tile.waves > self.chip.waves(tile.waves):
            return []
        given = (self.chip, self.machine, self.ranges, use, tile)
        kind = StreamedContraction if isinstance(use, ResidentUse) else PipelinedContraction
        piped = kind(kernel, *given)
        guard = 0 if piped.conditions is None else simplify(piped.guard, self.ranges)
        if guard == 0:
            return []
        between = None
        if schedule.k_part:
            if not splits_depth(kernel):
                return []
            part = depth_part(kernel, schedule.k_part, self.ranges)
            piped, name, between = kind(part, *given), f"{name}_parts", part.outputs[0]
        made = piped.lower(name, whole(schedule))
        if between is None and not isinstance(use, ResidentUse):  # the others are the planner's alone
            made = replace(made, version_of=kernel.name, decisions=decisions(piped))
        return [_Version(number, made, guard, between)] if self._fits(made) else []

    def _changed(
        self, kernel: Kernel, schedules: Sequence[ContractionSchedule], uses: Mapping[str, MatrixUse]
    ) -> Lowered:
        """The one tile that somebody asked for."""
        usable = [s for s in schedules if s.intrinsic in uses]
        planned = replace(next((s for s in usable if not s.k_part), usable[0]), k_part=0)

        def given(schedule: ContractionSchedule) -> tuple[Any, ...]:
            use = uses[schedule.intrinsic]
            return kernel, self.chip, self.machine, self.ranges, use, tile_of(schedule)

        changeable = decisions(PipelinedContraction(*given(planned)))
        plan = changed_schedule(kernel.name, self.chip, planned, uses, changeable, self.changes)
        fast, block = PipelinedContraction(*given(plan)), TensorContraction(*given(plan))
        return changed_product(kernel.name, fast, block, plan, self.changes)

    def _chosen(
        self,
        kernel: Kernel,
        source: ContractionLowering,
        fast: Sequence[_Version],
        costs: Sequence[Dim],
        plain: Sequence[Lowered],
    ) -> tuple[list[Lowered], list[Tensor]]:
        """The versions behind the selector; the one for any sizes last, where a guard may refuse all others."""
        extents = (*source.extents, product(i.extent for i in source.outer))
        sizes = dict(zip(("m", "n", "k", "batch"), extents, strict=True))
        choice: Index = select(costs) if len(fast) > 1 else 0
        choice = simplify(choice, {name: (1, bounds(e, self.ranges)[1]) for name, e in sizes.items()})
        choice = substitute(choice, {name: maximum(1, e) for name, e in sizes.items()})
        picked = [(v, eq(choice, i) * v.guard) for i, v in enumerate(fast)]
        parts = [Parts(v.made, v.between, p) for v, p in picked if v.between is not None and p != 0]
        if any(p.picked == 1 for p in parts):
            return in_depth(kernel, None, parts, self.chip, self.machine, self.ranges)
        whole = [(v, p) for v, p in picked if v.between is None]
        safe = [v.made for v, _ in whole if v.guard == 1]
        main = safe[-1] if safe else plain[0] if plain else None
        if main is None:
            return [], []
        for v, p in reversed(whole):
            if v.made is not main and p != 0:
                main = with_fallback(v.made, p, main)
        return in_depth(kernel, main, parts, self.chip, self.machine, self.ranges)

    def _taken(self, source: ContractionLowering) -> tuple[str, str]:
        """The dtypes of A and B in the product: f32 in the precision that was asked for, all others as they are."""
        own = source.parts.a.dtype, source.parts.b.dtype
        asked = self.precision
        return (asked, asked) if own == ("f32", "f32") and asked not in (None, "f32") else own

    def _planned(self, problem: Contraction, fed: Iterable[str]) -> Planned:
        """Schedules on these intrinsics, with what they cost."""
        key = problem, frozenset(fed)
        if key not in self.plans:
            self.plans[key] = self._plan(problem, replace(ABLE, fed=key[1]))
        return self.plans[key]

    def _plan(self, problem: Contraction, able: Abilities) -> Planned:
        try:
            if not problem.dynamic:
                best = plan(self.chip.target, problem, able)
                spare = plan(self.chip.target, problem, replace(able, split_k=False))
                return ((best,), (0,)) if not best.k_part else ((best, spare), (0, 1))
            found = family(self.chip.target, problem, sample_points(problem), VERSIONS, able)
        except PlanError:
            return (), ()
        return tuple(v.schedule for v in found.versions), tuple(v.cost for v in found.versions)

    def _fits(self, made: Lowered) -> bool:
        """Do staged blocks fit the scratchpad of a workgroup, and what a lane holds its registers?"""
        return self.chip.scratch is not None and not overflow(made.loop, self.chip.target)


def _holds(have: str, want: str) -> bool:
    """May sums be kept in `have` where the model asks for `want`?"""
    return have == want or (
        DTYPES[have].kind == DTYPES[want].kind == "f" and DTYPES[have].bits >= DTYPES[want].bits
    )
