"""Which parts of the blocks' shared memories are known to be written in all blocks of a batch.

Design choice: what is written stays written until a copy is under way to it, so a proof over a range, a look at the
states in order, serves all later accesses inside it.  A proof is tried only where it costs no more than looking at
the states of the access itself.
"""

from __future__ import annotations

from hwsdk.sim.simt.races import Span, meets
from hwsdk.sim.simt.storage import ALLOCATED, VALID, Storage

_KNOWN = 16  # ranges that are remembered


class Filled:
    """stride: bytes of one block's part of the storage."""

    def __init__(self, blocks: int, stride: int) -> None:
        self.blocks, self.stride = blocks, stride
        self._spans: list[Span] = []

    def has(self, span: Span) -> bool:
        """Is the range known to be written (so nothing is under way to it)?"""
        low, high = span
        return any(a <= low and high <= b for a, b in self._spans)

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

    def _add(self, span: Span) -> None:
        for other in [s for s in self._spans if s[0] <= span[1] and span[0] <= s[1]]:
            self._spans.remove(other)  # ranges that touch become one
            span = min(span[0], other[0]), max(span[1], other[1])
        self._spans = [*self._spans, span][-_KNOWN:]

    def lose(self, span: Span) -> None:
        """A copy is under way to the range."""
        self._spans = [s for s in self._spans if not meets(s, span)]
