"""Races: accesses of different lanes to the same cell of memory with nothing between them that orders them.

Design choice: each lane carries a tag, its number and two clocks.  The first counts the barriers of its block, the
second the synchronisations of its warp since then.  A cell remembers the tags of its last writer and of two readers.
Two accesses are ordered if the clock of the block advanced between them, or, in one warp, that of the warp; so a race
is reported from what the program says and not from the order in which lanes happened to run.  A program without races
is never accused, unless it orders blocks by fences and atomics of its own, which are not followed; with three and more
readers of one cell, or barriers of a part of the block, a race may be missed.

Reads are the most frequent accesses and mostly meet no write before the next barrier.  So they are only noted, and go
into the table when a write comes to the same range of addresses; a barrier that all blocks of the batch pass together
forgets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Array, Lanes

LANE_SHIFT, BLOCK_SHIFT = 30, 12
BLOCK_CLOCK = ((1 << LANE_SHIFT) - 1) & ~((1 << BLOCK_SHIFT) - 1)
WARP_CLOCK = (1 << BLOCK_SHIFT) - 1

#: First byte and the one after the last, of addresses that an access or several may touch.
Span = tuple[int, int]
ANYWHERE: Span = (0, 1 << 62)
_NOWHERE: Span = (1 << 62, 0)
_NOTED = 1 << 20  # reads that wait


def meets(a: Span, b: Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _hull(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


class Place(Protocol):
    """Offsets that are worked out when they are needed."""

    def offsets(self, lanes: Lanes) -> Array: ...


@dataclass(frozen=True)
class _Read:
    """A read that is not in the table yet; tags: of all lanes of the batch at that time."""

    offsets: Array | Place
    size: int
    tags: Array
    lanes: Lanes
    span: Span


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
        self._published: Array = np.zeros(
            0, np.int64
        )  # number of each lane's last `publish`, by lane of the launch
        self._publishing = 0  # how often any has
        self._when: Array | None = None  # how often, when a cell was written
        self._written = self._read = _NOWHERE  # since all blocks passed a barrier
        self._noted: list[_Read] = []
        self._waiting = 0

    def note(self, offsets: Array | Place, size: int, tags: Array, lanes: Lanes, span: Span) -> bool:
        """Remember a read that meets no write so far; False if it must be checked with `read`.  offsets: one per
        active lane or one for all, never changed afterwards; tags: of all lanes."""
        if not self.one_block or self.atomic is not None or meets(self._written, span):
            return False
        self._noted.append(_Read(offsets, size, tags, lanes, span))
        self._waiting += tags.size
        if self._waiting > _NOTED:
            self._settle()
        return True

    def passed(self) -> None:
        """All lanes of all blocks of the batch passed a barrier: what was before is ordered before what comes."""
        self._noted.clear()
        self._waiting = 0
        self._written = self._read = _NOWHERE

    def _settle(self) -> None:
        """Put the noted reads into the table."""
        noted, self._noted, self._waiting = self._noted, [], 0
        for each in noted:
            tags = each.tags if each.lanes is None else each.tags[each.lanes]
            where = each.offsets if isinstance(each.offsets, np.ndarray) else each.offsets.offsets(each.lanes)
            cells, tags = self._cells(np.broadcast_to(where, tags.shape), each.size, tags)
            self._remember(cells, tags)
            self._read = _hull(self._read, each.span)

    def read(
        self, offsets: Array, size: int, tags: Array, strong: bool = False, span: Span = ANYWHERE
    ) -> None:
        """Fault if another lane wrote; remember the readers.  strong: like an atomic, it may meet atomics."""
        cells, tags = self._cells(offsets, size, tags)
        if meets(self._written, span):
            self._check(cells, tags, self.writer, "reads", "writes")
        if strong:
            return
        self._read = _hull(self._read, span)
        if self.atomic is not None:
            self._check(cells, tags, self.atomic, "reads", "changes atomically")
        self._remember(cells, tags)

    def _remember(self, cells: Array, tags: Array) -> None:
        old = self.reader[cells]
        keep = (old != 0) & (((old ^ tags) >> LANE_SHIFT) != 0)
        if keep.any():
            self.other[cells[keep]] = old[keep]
        self.reader[cells] = tags
        lost = self.reader[cells] != tags
        if lost.any():
            self.other[cells[lost]] = tags[lost]

    def write(self, offsets: Array, size: int, tags: Array, span: Span = ANYWHERE) -> None:
        cells, tags = self._cells(offsets, size, tags)
        self._check_all(cells, tags, "writes", span)
        if self.atomic is not None:
            self._check(cells, tags, self.atomic, "writes", "changes atomically")
        self.writer[cells] = tags
        self._stamp(cells)
        self._written = _hull(self._written, span)
        lost = self.writer[cells] != tags
        if lost.any():
            at = int(np.flatnonzero(lost)[0])
            self._fault(cells, tags, self.writer[cells], at, "writes", "writes in the same instruction")

    def arrived(self, offsets: Array, size: int, tags: Array) -> None:
        """What copies wrote counts as written by their lanes from now on."""
        cells, tags = self._cells(offsets, size, tags)
        self.writer[cells] = tags
        self._stamp(cells)
        self._written = ANYWHERE

    def _stamp(self, cells: Array) -> None:
        if self._when is not None:
            self._when[cells] = self._publishing

    def publish(self, tags: Array) -> None:
        """What the lanes have written may be read by others than instructions of lanes."""
        if self._when is None:
            self._when = np.zeros(self.cells, np.int64)
            self._published = np.full(int(tags.max() >> LANE_SHIFT) + 1, -1)
        self._publishing += 1
        who = (tags >> LANE_SHIFT) - 1
        if who.max() >= self._published.size:
            self._published = np.concatenate([self._published, np.full(int(who.max()), -1)])
        self._published[who] = self._publishing

    def unpublished(self, offsets: Array, size: int) -> tuple[int, int] | None:
        """(offset, lane of the launch) of a cell that was written and not published since."""
        cells, _ = self._cells(offsets, size, offsets)
        writer = (self.writer[cells] >> LANE_SHIFT) - 1
        bad = writer >= 0
        if self._when is not None:
            known = bad & (writer < self._published.size)
            bad[known] = self._published[writer[known]] <= self._when[cells[known]]
        if not bad.any():
            return None
        at = int(np.argmax(bad))
        return int(cells[at]) << self.shift, int(writer[at])

    def change(self, offsets: Array, size: int, tags: Array, span: Span = ANYWHERE) -> None:
        """An atomic operation: it may meet other atomics, but no plain access."""
        cells, tags = self._cells(offsets, size, tags)
        self._check_all(cells, tags, "changes atomically", span)
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

    def _check_all(self, cells: Array, tags: Array, verb: str, span: Span) -> None:
        if any(meets(each.span, span) for each in self._noted):
            self._settle()
        if meets(self._written, span):
            self._check(cells, tags, self.writer, verb, "writes")
        if meets(self._read, span):
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
