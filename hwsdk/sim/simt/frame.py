"""The state of a batch of blocks while a kernel runs: registers of all lanes, memories, clocks, counters.

Design choice: lanes of all blocks of the batch are one axis, each block padded to whole warps, so that a warp is a row
of a reshape and instructions never see the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwsdk.sim.simt.chip import Checks, SimtChip
from hwsdk.sim.simt.copies import Copies
from hwsdk.sim.simt.filled import Filled
from hwsdk.sim.simt.global_memory import GlobalMemory
from hwsdk.sim.simt.group_products import GroupProducts
from hwsdk.sim.simt.layout import SharedLayout
from hwsdk.sim.simt.program import Array, Program
from hwsdk.sim.simt.races import RaceTable, first_tags
from hwsdk.sim.simt.stats import Tally
from hwsdk.sim.simt.storage import Storage
from hwsdk.sim.simt.sums import Lazy

_FILL = {0: np.array([False]), 1: np.array([0xFF], np.uint8), 2: np.array([0xFFFF], np.uint16)}
_FILL |= {4: np.array([0xFFFFFFFF], np.uint32), 8: np.array([2**64 - 1], np.uint64)}


class Shape:
    """Grid and block of a launch.  padded: lanes of a block with the missing ones of its last warp."""

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, int, int], warp_lanes: int) -> None:
        self.grid, self.block = grid, block
        self.block_lanes = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.padded = -(-self.block_lanes // warp_lanes) * warp_lanes

    def block_index(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def thread_index(self, lane: int) -> tuple[int, int, int]:
        x, y, _ = self.block
        return lane % x, lane // x % y, lane // (x * y)


class Frame:
    """first: number of the batch's first block in the launch; blocks: how many."""

    def __init__(
        self,
        program: Program,
        chip: SimtChip,
        checks: Checks,
        shape: Shape,
        first: int,
        blocks: int,
        memory: GlobalMemory,
        global_races: RaceTable | None,
        layout: SharedLayout,
        local: SharedLayout,
        parameters: Storage,
        symbols: Mapping[str, int],
        tally: Tally,
    ) -> None:
        self.program, self.chip, self.checks, self.shape = program, chip, checks, shape
        self.first, self.blocks = first, blocks
        self.memory, self.global_races, self.layout = memory, global_races, layout
        self.parameters, self.symbols, self.tally = parameters, symbols, tally
        self.lanes = blocks * shape.padded
        self.all_lanes = np.arange(self.lanes)
        self.warp_of = self.all_lanes // chip.warp_lanes
        self.registers: list[Array | Lazy] = [_FILL[w] for w in program.registers]
        self.exited = np.zeros(self.lanes, bool)
        self.exited.reshape(blocks, -1)[:, shape.block_lanes :] = True
        self.tags = first_tags(self.all_lanes + first * shape.padded)
        self.shared = Storage(blocks * layout.stride)
        self.shared.state[: blocks * layout.stride].reshape(blocks, -1)[:] = layout.state
        self.filled = Filled(blocks, layout.stride)
        self.shared_base = np.repeat(np.arange(blocks) * layout.stride, shape.padded)
        self.shared_races = (
            RaceTable(self.shared.size_bytes, program.granule_bytes, shape.padded, chip.warp_lanes, True)
            if checks.shared_races and layout.stride
            else None
        )
        self.local_stride = local.stride
        self.local_base = self.all_lanes * local.stride
        self.local = Storage(self.lanes * local.stride)
        self.local.state[: self.lanes * local.stride].reshape(self.lanes, -1)[:] = local.state
        self.copies = Copies(self.lanes)
        self.products = GroupProducts(self)
        self.special = _special(self)
        self.carry: Array = np.zeros(1, bool)  # of additions with carry

    @property
    def everyone(self) -> Array | None:
        """The lanes that exist."""
        return np.flatnonzero(~self.exited) if self.exited.any() else None

    def where(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Indices of the block and of the thread of a lane of the batch."""
        padded = self.shape.padded
        return self.shape.block_index(self.first + lane // padded), self.shape.thread_index(lane % padded)


def _special(frame: Frame) -> dict[str, Array]:
    """Indices and sizes as 32-bit numbers."""
    shape, warp = frame.shape, frame.chip.warp_lanes
    lane = frame.all_lanes % shape.padded
    block = frame.first + frame.all_lanes // shape.padded
    (bx, by, bz), (gx, gy, gz) = shape.block, shape.grid
    values: dict[str, Array] = {
        "thread.x": lane % bx,
        "thread.y": lane // bx % by,
        "thread.z": lane // (bx * by),
        "block.x": block % gx,
        "block.y": block // gx % gy,
        "block.z": block // (gx * gy),
        "lane": lane % warp,
        "warp": lane // warp,
    }
    sizes = dict(zip(("block_size.x", "block_size.y", "block_size.z"), (bx, by, bz)))
    sizes |= dict(zip(("grid_size.x", "grid_size.y", "grid_size.z"), (gx, gy, gz)))
    sizes |= {"warp_size": warp, "warps": shape.padded // warp, "dynamic_shared": frame.layout.dynamic_bytes}
    sizes |= {"shared_total": frame.layout.used_bytes}
    values |= {name: np.array([size]) for name, size in sizes.items()}
    return {name: value.astype(np.uint32) for name, value in values.items()}
