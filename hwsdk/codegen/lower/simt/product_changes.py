"""Products whose schedule was changed by hand: one tile for all sizes.

    matrix   the pipelined kernel where every chunk is whole, behind it the one for any sizes, both of that tile
    plain    the kernel of that tile

Design choice: the tile is taken as it is given; what it needs beyond the chip is found in the loops that it leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwsdk.codegen.lower.lowered import Lowered, with_fallback
from hwsdk.codegen.lower.simt.changes import fitting, power_of_two, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip, round_up
from hwsdk.codegen.lower.simt.fragments import MatrixUse, plain_use
from hwsdk.codegen.lower.simt.pipelined import PipelinedContraction
from hwsdk.codegen.lower.simt.plain import PlainTile, side_by_side
from hwsdk.codegen.lower.simt.schedules import LaneProductSchedule
from hwsdk.codegen.lower.simt.tensor import BlockTile, TensorContraction
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import nearest
from hwsdk.graph.dims import simplify

PLAIN = ("rows", "columns", "block")
MOST = 16  # rows or columns of one lane
DECISIONS = ("intrinsic", "register_tile", "tiles", "buffers", "occupancy")


def tile_of(schedule: ContractionSchedule, members: int = 1) -> BlockTile:
    """The schedule as a block of whole intrinsics; what the planner clipped to the problem is rounded up again."""
    (bm, bn, bk), (wm, wn), (um, un, uk) = schedule.tiles, schedule.register_tile, schedule.unit_shape
    wm, wn = round_up(wm, um), round_up(wn, un)
    sizes = (round_up(bm, wm), round_up(bn, wn), round_up(bk, uk), wm, wn)
    return BlockTile(*sizes, schedule.buffers, schedule.occupancy, members)


def whole(schedule: ContractionSchedule) -> ContractionSchedule:
    """The schedule with the tiles that are lowered."""
    tile = tile_of(schedule)
    return replace(schedule, tiles=(tile.bm, tile.bn, tile.bk), register_tile=(tile.wm, tile.wn))


def decisions(piped: PipelinedContraction) -> tuple[str, ...]:
    """What may be changed: the number of blocks only where copies run ahead of the products."""
    ahead = piped.conditions is not None and all(p.copy is not None for p in piped.panels)
    return DECISIONS if ahead else tuple(d for d in DECISIONS if d != "buffers")


def changed_schedule(
    name: str,
    chip: SimtChip,
    planned: ContractionSchedule,
    uses: Mapping[str, MatrixUse],
    changeable: tuple[str, ...],
    changes: Overrides,
) -> ContractionSchedule:
    """The schedule as somebody asked for; PlanError where it is no whole number of intrinsics."""
    wanted = changes.changes[name].get("intrinsic", planned.intrinsic)
    if wanted not in uses:
        changes.refuse(name, f"no intrinsic {wanted!r} for these dtypes{nearest(str(wanted), uses)}")
    use = uses[wanted]
    assert use.intrinsic is not None
    unit = (use.roles.m, use.roles.n, use.roles.k)
    base = replace(planned, intrinsic=wanted, unit=use.intrinsic.unit, unit_shape=unit)
    plan = changes.apply(name, whole(base), changeable)
    if whole(plan) != plan:
        sizes = f"tiles {list(plan.tiles)}: register_tile {list(plan.register_tile)}"
        changes.refuse(name, f"{sizes} of whole {'x'.join(map(str, unit))} does not divide them")
    lanes = tile_of(plan).waves * chip.width
    waves_of(changes, name, chip, lanes, "lanes of tiles over register_tile")
    return replace(plan, groups=tile_of(plan).waves, lanes=lanes)


def changed_product(
    name: str,
    fast: PipelinedContraction,
    block: TensorContraction,
    plan: ContractionSchedule,
    changes: Overrides,
) -> Lowered:
    """Both versions of one tile, the one for any sizes last."""
    chip, ranges, changeable = block.chip, block.ranges, decisions(fast)

    def named(made: Lowered) -> Lowered:
        return fitting(changes, name, chip, replace(made, decisions=changeable, version_of=name))

    guard = 0 if fast.conditions is None else simplify(fast.guard, ranges)
    if guard == 1:
        return named(fast.lower(name, plan))
    if guard == 0:
        return named(block.lower(name, plan))
    return with_fallback(
        named(fast.lower(f"{name}_v0", plan)), guard, named(block.lower(f"{name}_any", plan))
    )


def changed_plain(
    name: str, chip: SimtChip, planned: LaneProductSchedule, dtype: str, changes: Overrides
) -> PlainTile:
    """The tile of plain arithmetic that somebody asked for."""
    plan = changes.apply(name, planned, PLAIN)
    for decision, value in (("rows", plan.rows), ("columns", plan.columns)):
        power_of_two(changes, name, decision, value, MOST)
    use = plain_use(chip.width, side_by_side(chip), plan.rows, plan.columns, dtype)
    (bm, bn, bk), m, n = plan.block, use.roles.m, use.roles.n
    if bm % m or bn % n:
        changes.refuse(
            name, f"block {[bm, bn, bk]}: a {chip.lane.name} group takes {m}x{n} of it, which is no part"
        )
    tile = BlockTile(bm, bn, bk, m, n)
    waves_of(changes, name, chip, tile.waves * chip.width, "lanes of block over rows and columns")
    return PlainTile(use, tile)
