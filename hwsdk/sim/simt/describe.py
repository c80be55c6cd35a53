"""The engine's chip from a target's description: widths, banks, limits, all from the YAML."""

from __future__ import annotations

from hwsdk.errors import TargetError
from hwsdk.sim.simt.chip import SimtChip
from hwsdk.target_desc.model import Level, Memory, Target


def chip_of(target: Target) -> SimtChip:
    """TargetError for a description without lockstep lanes or without a scratchpad of known size."""
    lanes = next((level for level in target.levels if level.lockstep), None)
    if lanes is None or lanes.count is None:
        raise TargetError(f"target {target.name} has no level of lockstep lanes with a count (execution)")
    scratch = next((m for m in target.memories if m.kind == "scratchpad"), None)
    if scratch is None or scratch.usable_bytes is None:
        raise TargetError(f"target {target.name} has no scratchpad of known size (memory)")
    dram = next((m for m in target.memories if m.kind == "dram"), None)
    return SimtChip(
        warp_lanes=lanes.count,
        banks=scratch.banks or SimtChip.banks,
        bank_bytes=scratch.bank_bytes or SimtChip.bank_bytes,
        sector_bytes=_sector(dram),
        shared_bytes=scratch.usable_bytes,
        max_block_lanes=_group_lanes(target.levels),
        max_grid=_grid(target.levels),
        flushing=_flushing(target),
    )


def _sector(dram: Memory | None) -> int:
    return (dram.granule_bytes if dram is not None else None) or SimtChip.sector_bytes


def _group_lanes(levels: tuple[Level, ...]) -> int:
    """Lanes of the largest workgroup: what lies inside the innermost level that has a grid."""
    count = 1
    for level in reversed(levels):
        if level.max_grid:
            break
        count *= level.max or level.count or 1
    return count


def _grid(levels: tuple[Level, ...]) -> tuple[int, int, int]:
    for level in levels:
        if level.max_grid:
            x, y, z = (*level.max_grid, 1, 1)[:3]
            return x, y, z
    return SimtChip.max_grid


def _flushing(target: Target) -> frozenset[str]:
    calls = (i.emit.get("llvm", {}).get("call") for i in target.intrinsics.values() if i.denormals == "flush")
    return frozenset(str(call) for call in calls if call)
