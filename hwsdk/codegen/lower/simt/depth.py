"""Products with k in parts: the launches of a contraction where some of its versions share k over workgroups.

    whole    the versions that walk all of k; no workgroup where one in parts was picked
    parts    versions whose workgroups take a part of k each; no workgroup where a whole one was picked
    sum      adds up the parts in their order and finishes; the same

Design choice: what is not picked is a launch without workgroups, and the buffer between the launches is then empty: a
product that keeps all cores busy takes the launch, the code and the memory that it would take alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower.lowered import Lowered, Machine, with_fallback
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.map import lower_elements
from hwsdk.codegen.lower.simt.schedules import LaneMapSchedule, workers_reason
from hwsdk.codegen.lower.simt.split import depth_sum
from hwsdk.codegen.planner.cost import TOGETHER
from hwsdk.graph.dims import Ranges, product, simplify, sym

COUNT = "k_parts"  # parts at run time, where versions differ in them


@dataclass(frozen=True)
class Parts:
    """A version in parts.  made: what computes them, over `between`.  picked: 1 where it is the one to run, else 0."""

    made: Lowered
    between: Tensor
    picked: Index

    @property
    def count(self) -> Index:
        return self.between.shape[0]


def in_depth(
    kernel: Kernel,
    whole: Lowered | None,
    parts: Sequence[Parts],
    chip: SimtChip,
    machine: Machine,
    ranges: Ranges,
) -> tuple[list[Lowered], list[Tensor]]:
    """The launches, and the buffer between them.  whole: what runs where no version in parts is picked (None: one
    always is)."""
    if not parts:
        return [] if whole is None else [whole], []
    picked: Index = sum((p.picked for p in parts[1:]), parts[0].picked)
    total = sum((p.picked * p.count for p in parts[1:]), parts[0].picked * parts[0].count)
    second = _sum(kernel, [p.count for p in parts], total, chip, machine, ranges)
    between = replace(parts[0].between, shape=(total, *parts[0].between.shape[1:]))
    work = product(i.extent for i in kernel.blocks[0].iters)
    made = [replace(p.made, work=work * picked) for p in parts]
    if whole is None:
        return [made[0], second], [between]
    first = _nothing(made[-1])
    for one, part in zip(reversed(made), reversed(parts), strict=True):
        first = with_fallback(one, part.picked, first)
    second = replace(second, work=second.work * picked)
    rest = with_fallback(_nothing(whole), picked, whole)
    return [rest, first, with_fallback(second, picked, _nothing(second))], [between]


def _nothing(item: Lowered) -> Lowered:
    """A launch without workgroups: the first version stands for all."""
    return replace(item, grid=0, guard=None, fallback=None)


def _sum(
    kernel: Kernel, counts: Sequence[Index], total: Index, chip: SimtChip, machine: Machine, ranges: Ranges
) -> Lowered:
    """What adds up the parts; `total`: how many there are of the version that was picked."""
    same = all(simplify(c - counts[0], ranges) == 0 for c in counts)
    count = counts[0] if same else sym(COUNT)
    (made,) = lower_elements(
        depth_sum(kernel, count), chip, machine, {**ranges, COUNT: (1, None)}, unroll=TOGETHER
    )
    plan = made.schedule
    assert isinstance(plan, LaneMapSchedule)
    shown = f"{counts[0] if same else total}, added up in their order, {TOGETHER} on their way at once"
    plan = replace(plan, why=(*plan.why, workers_reason(chip, "parts", 0)._replace(value=shown)))
    if same:
        return replace(made, schedule=plan)
    dims = tuple(total if d == COUNT else sym(d) for d in made.loop.dims)
    return replace(made, schedule=plan, dims=dims, work=product(i.extent for i in kernel.blocks[0].parallel))
