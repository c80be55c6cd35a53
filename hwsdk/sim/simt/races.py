"""Races: accesses of different lanes to the same cell of memory with nothing between them that orders them.

Design choice: each lane carries a tag, its number and two clocks.  The first counts the barriers of its block, the
second the synchronisations of its warp since then.  A cell remembers the tags of its last writer and of two readers.
Two accesses are ordered if the clock of the block advanced between them, or, in one warp, that of the warp; so a race
is reported from what the program says and not from the order in which lanes happened to run.  A program without races
is never accused, unless it orders blocks by fences and atomics of its own, which are not followed; with three and more
readers of one cell, or barriers of a part of the block, a race may be missed.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Array

LANE_SHIFT, BLOCK_SHIFT = 30, 12
BLOCK_CLOCK = ((1 << LANE_SHIFT) - 1) & ~((1 << BLOCK_SHIFT) - 1)
WARP_CLOCK = (1 << BLOCK_SHIFT) - 1


class RaceTable:
    """Cells of `granule_bytes`.  lanes_per_block counts whole warps; one_block: all lanes that may touch a cell are
    of one block."""

    def __init__(
        self, size_bytes: int, granule_bytes: int, lanes_per_block: int, warp_lanes: int, one_block: bool
    ) -> None:
        self.shift = granule_bytes.bit_length() - 1
        self.granule = granule_bytes
        self.cells = -(-size_bytes // granule_bytes) + 1
        self.lanes_per_block, self.warp_lanes, self.one_block = lanes_per_block, warp_lanes, one_block
        self.writer = np.zeros(self.cells, np.int64)
        self.reader = np.zeros(self.cells, np.int64)
        self.other = np.zeros(self.cells, np.int64)
        self.atomic: Array | None = None

    def read(self, offsets: Array, size: int, tags: Array, strong: bool = False) -> None:
        """Fault if another lane wrote; remember the readers.  strong: like an atomic, it may meet atomics."""
        cells, tags = self._cells(offsets, size, tags)
        self._check(cells, tags, self.writer, "reads", "writes")
        if strong:
            return
        if self.atomic is not None:
            self._check(cells, tags, self.atomic, "reads", "changes atomically")
        old = self.reader[cells]
        keep = (old != 0) & (((old ^ tags) >> LANE_SHIFT) != 0)
        if keep.any():
            self.other[cells[keep]] = old[keep]
        self.reader[cells] = tags
        lost = self.reader[cells] != tags
        if lost.any():
            self.other[cells[lost]] = tags[lost]

    def write(self, offsets: Array, size: int, tags: Array) -> None:
        cells, tags = self._cells(offsets, size, tags)
        self._check_all(cells, tags, "writes")
        if self.atomic is not None:
            self._check(cells, tags, self.atomic, "writes", "changes atomically")
        self.writer[cells] = tags
        lost = self.writer[cells] != tags
        if lost.any():
            at = int(np.flatnonzero(lost)[0])
            self._fault(cells, tags, self.writer[cells], at, "writes", "writes in the same instruction")

    def change(self, offsets: Array, size: int, tags: Array) -> None:
        """An atomic operation: it may meet other atomics, but no plain access."""
        cells, tags = self._cells(offsets, size, tags)
        self._check_all(cells, tags, "changes atomically")
        if self.atomic is None:
            self.atomic = np.zeros(self.cells, np.int64)
        self.atomic[cells] = tags

    def written(self, offsets: Array, size: int) -> int | None:
        """Position of a lane whose cells were written since the table was made, or None."""
        cells, _ = self._cells(offsets, size, np.zeros(offsets.size, np.int64))
        hit = self.writer[cells] != 0
        return int(np.flatnonzero(hit)[0] % offsets.size) if hit.any() else None

    def _cells(self, offsets: Array, size: int, tags: Array) -> tuple[Array, Array]:
        cells = offsets.astype(np.int64, copy=False) >> self.shift
        extra = size >> self.shift
        if extra <= 1:
            return cells, tags
        return np.concatenate([cells + j for j in range(extra)]), np.tile(tags, extra)

    def _check_all(self, cells: Array, tags: Array, verb: str) -> None:
        self._check(cells, tags, self.writer, verb, "writes")
        self._check(cells, tags, self.reader, verb, "reads")
        self._check(cells, tags, self.other, verb, "reads")

    def _check(self, cells: Array, mine: Array, table: Array, verb: str, their_verb: str) -> None:
        theirs = table[cells]
        foreign = (theirs != 0) & (((theirs ^ mine) >> LANE_SHIFT) != 0)
        if not foreign.any():
            return
        bad = foreign & self._unordered(mine, theirs)
        if bad.any():
            self._fault(cells, mine, theirs, int(np.flatnonzero(bad)[0]), verb, their_verb)

    def _unordered(self, mine: Array, theirs: Array) -> Array:
        result: Array = (theirs & BLOCK_CLOCK) >= (mine & BLOCK_CLOCK)
        me, other = (mine >> LANE_SHIFT) - 1, (theirs >> LANE_SHIFT) - 1
        if not self.one_block:
            result |= me // self.lanes_per_block != other // self.lanes_per_block
        if result.any():
            same_warp = me // self.warp_lanes == other // self.warp_lanes
            result &= ~(same_warp & ((theirs & WARP_CLOCK) < (mine & WARP_CLOCK)))
        return result

    def _fault(
        self, cells: Array, mine: Array, theirs: Array, at: int, verb: str, their_verb: str
    ) -> NoReturn:
        me, other = (int(mine[at]) >> LANE_SHIFT) - 1, (int(theirs[at]) >> LANE_SHIFT) - 1
        address = int(cells[at]) << self.shift
        raise RaceFault(me, other, address, self.granule, verb, their_verb)


class RaceFault(Fault):
    """me and other are lane numbers in the launch; address: first byte of the cell, an offset in the table."""

    def __init__(self, me: int, other: int, address: int, granule: int, verb: str, their_verb: str) -> None:
        self.me, self.other, self.address, self.granule = me, other, address, granule
        self.verb, self.their_verb = verb, their_verb
        super().__init__(FaultKind.RACE, f"this lane {verb} {address:#x}, which lane {other} {their_verb}")


def first_tags(lanes: Array) -> Array:
    """Tags at the start: lane numbers in the launch, clocks zero."""
    return (lanes.astype(np.int64) + 1) << LANE_SHIFT


def after_barrier(tags: Array, clock: Array | int) -> Array:
    """The block's clock set; the warps' start again."""
    saturated = np.minimum(clock, (BLOCK_CLOCK >> BLOCK_SHIFT) - 1)
    return (tags >> LANE_SHIFT << LANE_SHIFT) | (saturated << BLOCK_SHIFT)


def block_clock(tags: Array) -> Array:
    result: Array = (tags & BLOCK_CLOCK) >> BLOCK_SHIFT
    return result


def after_warp_sync(tags: Array, chosen: Array, warp_lanes: int) -> Array:
    """Lanes `chosen` (a mask over all of the batch) synchronised inside their warps."""
    clocks = (tags & WARP_CLOCK).reshape(-1, warp_lanes)
    latest = np.minimum(clocks.max(1, keepdims=True) + 1, WARP_CLOCK)
    fresh = (tags & ~np.int64(WARP_CLOCK)) | np.broadcast_to(latest, clocks.shape).reshape(-1)
    result: Array = np.where(chosen, fresh, tags)
    return result
