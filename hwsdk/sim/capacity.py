"""How much of each place is taken: live allocations per instance, peaks, and the refusal of what does not
fit.

Scratchpads, accumulators and registers are hard limits: what does not fit is an error.  A cache is not: an
allocation there is ordinary memory that one hopes to find in the cache, so only its peak is recorded.

Design choice: one iteration runs at a time, so the live bytes of a place that several workers share are those
of one iteration times the workers that share one instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hwsdk.codegen.loop_ir import Buffer
from hwsdk.dtypes import DTYPES
from hwsdk.sim.cells import bytes_of
from hwsdk.sim.faults import Fault
from hwsdk.target_desc.model import Memory, Target

HARD = ("scratchpad", "accumulator", "registers")


@dataclass
class Room:
    """One place: bytes of an instance, how many iterations share an instance, rounding of allocations."""

    memory: Memory
    capacity: int | None
    sharers: int
    row_bytes: int

    @cached_property
    def limit(self) -> int | None:
        """What may not be exceeded."""
        return self.capacity if self.memory.kind in HARD else None

    @staticmethod
    def of(memory: Memory, sharers: int) -> Room:
        if memory.kind == "registers":
            width = memory.width_bytes if isinstance(memory.width_bytes, int) else 0
            capacity = memory.count * width if memory.count is not None and width else None
            return Room(memory, capacity, sharers, width)
        size = memory.size_bytes
        return Room(memory, None if size is None else size - memory.reserved_bytes, sharers, 0)


class Capacity:
    """Live and peak bytes of every place of a target while a launch runs."""

    def __init__(self, target: Target | None, level: str | None, iterations: int) -> None:
        memories = target.memories if target is not None else ()
        self.rooms = {m.name: Room.of(m, _sharers(target, m, level, iterations)) for m in memories}
        self.live = dict.fromkeys(self.rooms, 0)
        self.peak = dict.fromkeys(self.rooms, 0)

    def bytes(self, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
        """What the buffer takes of its place, rounding included."""
        room = self.rooms.get(buffer.place)
        align = max(buffer.align_bytes, room.memory.align_bytes or 0 if room else 0)
        size = DTYPES[buffer.dtype].size_bytes
        return bytes_of(shape, strides, size, align, room.row_bytes if room else 0)

    def take(self, place: str, size: int, name: str) -> None:
        """Allocates; Fault if an instance of the place does not hold it beside what is live."""
        while place in self.rooms:
            room = self.rooms[place]
            before = self.live[place]
            self.live[place] = before + size
            total = (before + size) * room.sharers
            if total > self.peak[place]:
                self.peak[place] = total
            if room.limit is not None and total > room.limit:
                shared = f", shared by {room.sharers} workers" if room.sharers > 1 else ""
                raise Fault(
                    f"over capacity: {name} takes {size} bytes of {place}, {before} are live,"
                    f" an instance has {room.capacity}{shared}"
                )
            place = room.memory.shares or ""

    def give(self, place: str, size: int) -> None:
        """Frees."""
        while place in self.rooms:
            self.live[place] -= size
            place = self.rooms[place].memory.shares or ""


def _sharers(target: Target | None, memory: Memory, level: str | None, iterations: int) -> int:
    """Iterations that run at once on one instance of the memory."""
    if target is None or memory.kind not in HARD:
        return 1
    names = [x.name for x in target.levels]
    if level not in names or memory.per not in names:
        return 1
    sharers = 1
    for x in target.levels[names.index(memory.per) + 1 : names.index(level) + 1]:
        sharers *= x.count or 1
    return max(1, min(sharers, iterations))
