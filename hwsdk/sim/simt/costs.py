"""What an access costs: sectors of global memory that a warp touches, passes over the banks of shared memory.

Design choice: the common patterns (ascending addresses; all of a pass within one row of the banks; all blocks of a
batch alike) are recognised with a comparison; only the rest is sorted and counted.
"""

from __future__ import annotations

import numpy as np

from hwsdk.sim.simt.chip import SimtChip
from hwsdk.sim.simt.program import Array


def sectors(addresses: Array, warps: Array, size: int, chip: SimtChip) -> int:
    """Distinct sectors, counted per warp.  addresses: of accesses of `size` bytes, naturally aligned; warps: number
    of each lane's warp, ascending."""
    if addresses.size == 0:
        return 0
    sector = addresses.astype(np.int64) // chip.sector_bytes
    wide = -(-size // chip.sector_bytes)
    key = (warps << 44) + sector
    step = key[1:] - key[:-1]
    if (step < 0).any():
        key = np.sort(key)
        step = key[1:] - key[:-1]
    return (int(np.count_nonzero(step)) + 1) * wide


def passes(
    addresses: Array, size: int, lanes_per_block: int | None, warp_lanes: int, chip: SimtChip
) -> tuple[int, int]:
    """(passes needed, passes of a conflict-free access) for whole warps.

    addresses: bytes in the block's memory, one per lane; lanes_per_block: where the lanes are whole blocks, so that
    equal blocks are counted once; None otherwise.
    """
    row = chip.banks * chip.bank_bytes
    group = max(1, min(warp_lanes, row // size))
    repeat = 1
    if lanes_per_block is not None and addresses.size > lanes_per_block:
        blocks = addresses.reshape(-1, lanes_per_block)
        if (blocks == blocks[0]).all():
            repeat, addresses = len(blocks), blocks[0]
    if addresses.size % group:
        return _loose_passes(addresses, size, chip), 1
    groups = addresses.reshape(-1, group)
    ideal = len(groups) * max(1, group * size // row)
    spread = groups.max(1) - groups.min(1)
    rough = groups[spread.astype(np.int64) + size > row]
    extra = _degrees(rough, size, chip) if len(rough) else 0
    return (ideal + extra) * repeat, ideal * repeat


def _words(group: Array, size: int, chip: SimtChip) -> Array:
    first = group.astype(np.int64) // chip.bank_bytes
    more = -(-size // chip.bank_bytes)
    return (first[..., None] + np.arange(more)).reshape(*group.shape[:-1], -1)


def _degree(group: Array, size: int, chip: SimtChip) -> int:
    """The most distinct words that one bank must give."""
    return int(np.bincount(np.unique(_words(group, size, chip)) % chip.banks).max())


def _degrees(groups: Array, size: int, chip: SimtChip) -> int:
    """The sum of degree - 1 over many groups."""
    words = np.sort(_words(groups, size, chip), axis=1)
    fresh = np.ones(words.shape, bool)
    fresh[:, 1:] = words[:, 1:] != words[:, :-1]
    rows = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    counts = np.bincount((rows * chip.banks + words % chip.banks)[fresh], minlength=len(words) * chip.banks)
    return int((counts.reshape(-1, chip.banks).max(1) - 1).sum())


def _loose_passes(addresses: Array, size: int, chip: SimtChip) -> int:
    """A part of a warp: one group."""
    return _degree(addresses, size, chip) if addresses.size else 0
