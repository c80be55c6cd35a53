"""What the engine must know about a chip: widths and limits, all of them plain numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SimtChip:
    """warp_lanes: lanes that run in lock step.  banks x bank_bytes: one pass over shared memory.  sector_bytes: what
    global memory moves at once.  shared_bytes: capacity of a block's shared memory.  flushing: operations, as the text
    calls them, that take and give denormal floats as zeros."""

    warp_lanes: int = 32
    banks: int = 32
    bank_bytes: int = 4
    sector_bytes: int = 32
    shared_bytes: int = 49152
    max_block_lanes: int = 1024
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    flushing: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 1 <= self.warp_lanes <= 64:
            raise ValueError(f"warp_lanes is {self.warp_lanes}; masks have 1..64 bits")
        for name in ("warp_lanes", "banks", "bank_bytes", "sector_bytes"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name} is {value}, not a power of two")


@dataclass(frozen=True)
class Checks:
    """What is watched beside bounds, alignment and permission; each costs time."""

    uninitialised: bool = True
    shared_races: bool = True
    global_races: bool = True
    costs: bool = True  # sectors and bank conflicts
    max_steps: int = 50_000_000  # segments run by a batch before it is said to make no progress
