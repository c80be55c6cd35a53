"""What a launch of lanes cost: bytes, transactions, conflicts, uses; and how long that takes at least.

Rules:
    dram      a lockstep group moves whole granules (`granule_bytes`) however many of its lanes touch one
    scratch   lanes of a lockstep group that touch different words of one bank take turns; the longest queue counts
    time      a roofline: the busiest of units, scratchpad and dram over all workers, plus the start of the launch

Design choice: no timeline.  Lanes hide latency by their number, so what is scarce decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.sim.chip import Chip
from hwsdk.sim.lanes.memory import Array, Cells, LaneFault
from hwsdk.sim.stats import PlaceStats, Stats, UnitStats
from hwsdk.target_desc.model import Memory


@dataclass
class Counters:
    """Sums over a launch."""

    chip: Chip
    width: int  # lanes in lockstep
    statements: int = 0
    turns: int = 0  # cycles of a bank: each lane of the longest queue takes one
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def take(self, cells: Cells, size: int, memory: Memory) -> None:
        """An Alloc begins; LaneFault where its place is full."""
        held = self.held[cells.place] = self.held.get(cells.place, 0) + size
        self.peak[cells.place] = max(self.peak.get(cells.place, 0), held)
        room = memory.usable_bytes
        if memory.kind == "registers" and memory.count is not None and isinstance(memory.width_bytes, int):
            return  # the code generator spills; what a lane holds at once is for it to find out
        if room is not None and held > room:
            raise LaneFault(
                f"{cells.name} does not fit: {held} bytes of {cells.place} are in use, one instance has {room}"
            )

    def free(self, cells: Cells, size: int) -> None:
        self.held[cells.place] -= size

    def access(self, cells: Cells, verb: str, at: Array, lane: Array) -> None:
        """One statement's accesses: elements and the lanes that make them."""
        key = (verb, cells.place)
        self.bytes[key] = self.bytes.get(key, 0) + at.size * cells.itemsize
        if not at.size or cells.kind == "private":
            return
        memory = self.chip.memories[cells.place]
        group = lane // self.width
        if cells.kind == "param":
            granule = memory.granule_bytes or 1
            sector = at * cells.itemsize // granule
            moved = (
                np.unique(group * (cells.data.size * cells.itemsize // granule + 1) + sector).size * granule
            )
            self.moved[cells.place] = self.moved.get(cells.place, 0) + int(moved)
        elif memory.banks and memory.bank_bytes:
            self._banks(at % cells.size * cells.itemsize // memory.bank_bytes, group, memory.banks)

    def _banks(self, word: Array, group: Array, banks: int) -> None:
        pairs = np.unique(np.stack([group, word]), axis=1)
        queues = np.unique(np.stack([pairs[0], pairs[1] % banks]), axis=1, return_counts=True)
        longest = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(longest, queues[0][0], queues[1])
        self.turns += int(longest.sum())

    # --------------------------------------------------------------------------------------------------- statistics
    def stats(self, kernel: LoopKernel, groups: int, unwritten: dict[str, int]) -> Stats:
        """The launch as Stats."""
        chip = self.chip
        workers = max(1, min(chip.workers, groups))
        units = {u.name: self._unit(u.name, u.count) for u in chip.target.units}
        places = {
            name: PlaceStats(
                self.bytes.get(("read", name), 0), self.bytes.get(("written", name), 0), self.moved.get(name, 0),
                self.peak.get(name, 0), m.usable_bytes,
            )
            for name, m in chip.memories.items()
        }  # fmt: skip
        busiest = {n: u.busy_cycles / max(1, u.instances) / workers for n, u in units.items()}
        for name, m in chip.memories.items():
            if m.kind == "dram" and m.read_bytes_per_cycle:
                busiest[name] = places[name].moved_bytes / m.read_bytes_per_cycle
            elif m.kind == "scratchpad" and m.banks:
                busiest[name] = self.turns / workers
        bound_by = max(busiest, key=lambda n: busiest[n], default="")
        cycles = busiest.get(bound_by, 0.0) + chip.fork_cycles
        seconds = cycles / (chip.clock_ghz * 1e9) + chip.target.runtime.launch_us * 1e-6
        return Stats(
            1, groups, workers, cycles, seconds, places, units, bound_by if busiest.get(bound_by) else "",
            (kernel.name,), unwritten, self.statements,
        )  # fmt: skip

    def _unit(self, unit: str, count: int) -> UnitStats:
        mine = {n: c for n, c in self.uses.items() if self.chip.cost(n).unit.name == unit}
        busy = sum(c * self.chip.cost(n).interval for n, c in mine.items())
        ops = sum(c * self.chip.intrinsics[n].ops for n, c in mine.items())
        return UnitStats(sum(mine.values()), ops, busy, count, mine)
