"""What a launch did, counted: instructions by class, bytes per memory, transactions, bank conflicts, barriers.

Design choice: counts only; what they cost in time is for whoever knows the chip's rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SpaceStats:
    """One memory.  accesses are lanes times instructions; transactions: sectors touched by a warp's access (global
    memory), or passes over the banks (shared memory)."""

    read_bytes: int = 0
    written_bytes: int = 0
    accesses: int = 0
    transactions: int = 0

    def __add__(self, other: SpaceStats) -> SpaceStats:
        return SpaceStats(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.accesses + other.accesses,
            self.transactions + other.transactions,
        )


@dataclass(frozen=True)
class Stats:
    """instructions: executed by a lane, by class; warp_instructions: issued to a warp, by class; bank_conflicts:
    passes over the banks beyond the unavoidable ones; barriers: arrivals of a whole block; steps: scheduler."""

    launches: int = 0
    blocks: int = 0
    instructions: Mapping[str, int] = field(default_factory=dict)
    warp_instructions: Mapping[str, int] = field(default_factory=dict)
    spaces: Mapping[str, SpaceStats] = field(default_factory=dict)
    bank_conflicts: int = 0
    barriers: int = 0
    steps: int = 0

    @property
    def lane_instructions(self) -> int:
        return sum(self.instructions.values())

    def __add__(self, other: Stats) -> Stats:
        names = {**self.spaces, **other.spaces}
        none = SpaceStats()
        return Stats(
            self.launches + other.launches,
            self.blocks + other.blocks,
            Counter(self.instructions) + Counter(other.instructions),
            Counter(self.warp_instructions) + Counter(other.warp_instructions),
            {n: self.spaces.get(n, none) + other.spaces.get(n, none) for n in names},
            self.bank_conflicts + other.bank_conflicts,
            self.barriers + other.barriers,
            self.steps + other.steps,
        )


class Tally:
    """The counters of a launch while it runs."""

    def __init__(self, segments: int) -> None:
        self.lanes = [0] * segments  # lanes that ran each segment
        self.warps = [0] * segments
        self.spaces: dict[str, list[int]] = {}
        self.bank_conflicts = 0
        self.barriers = 0
        self.steps = 0

    def access(self, space: str, read: int, written: int, lanes: int, transactions: int) -> None:
        entry = self.spaces.setdefault(space, [0, 0, 0, 0])
        entry[0] += read
        entry[1] += written
        entry[2] += lanes
        entry[3] += transactions
