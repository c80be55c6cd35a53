"""Which parts of the blocks' shared memories are known to be written in all blocks of a batch.

Design choice: what is written stays written until a copy is under way to it, so a proof over a range, a look at the
states in order, serves all later accesses inside it.  A proof is tried only where it costs no more than looking at
the states of the access itself.
"""

from __future__ import annotations

import bisect

from hwsdk.sim.simt.races import Span, meets
from hwsdk.sim.simt.storage import ALLOCATED, VALID, Storage
from hwsdk.sim.simt.sums import Root

_KNOWN = 4096


class Filled:
    """stride: bytes of one block's part of the storage."""

    def __init__(self, blocks: int, stride: int) -> None:
        self.blocks, self.stride = blocks, stride
        self._starts: list[int] = []  # of ranges that do not touch, ascending
        self._stops: list[int] = []
        self._known: dict[tuple[Root, int, int], None] = {}  # sums and sizes of accesses

    def has(self, span: Span) -> bool:
        """Is the range known to be written (so nothing is under way to it)?"""
        at = bisect.bisect_right(self._starts, span[0]) - 1
        return at >= 0 and span[1] <= self._stops[at]

    def proves(self, storage: Storage, span: Span, looked_at: int) -> bool:
        """The same, with a look at the states if that is cheap beside `looked_at` bytes."""
        if self.has(span):
            return True
        low, high = span
        if (high - low) * self.blocks > 2 * looked_at:
            return False
        states = storage.state[: self.blocks * self.stride].reshape(self.blocks, self.stride)[:, low:high]
        if not (states == ALLOCATED | VALID).all():
            return False
        self._add(span)
        return True

    def knows(self, root: Root, delta: int, size: int) -> bool:
        """Is what the lanes point to with root + delta known to be written?"""
        return (root, delta, size) in self._known

    def learn(self, root: Root, delta: int, size: int) -> None:
        if len(self._known) < _KNOWN:
            self._known[root, delta, size] = None

    def _add(self, span: Span) -> None:
        low, high = span
        first = bisect.bisect_left(self._stops, low)  # ranges that touch become one
        after = bisect.bisect_right(self._starts, high)
        if first < after:
            low, high = min(low, self._starts[first]), max(high, self._stops[after - 1])
        self._starts[first:after], self._stops[first:after] = [low], [high]

    def lose(self, span: Span) -> None:
        """A copy is under way to the range."""
        self._known.clear()
        kept = [s for s in zip(self._starts, self._stops) if not meets(s, span)]
        self._starts, self._stops = [a for a, _ in kept], [b for _, b in kept]
