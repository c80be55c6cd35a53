"""The numbers of a target that the timeline needs, gathered once per machine.

Design choice: everything is in cycles of the worker's clock; a unit with a clock of its own is converted
here, and a number that the description leaves unknown gets the neutral value, so that no formula asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from hwsdk.codegen.loop_ir import LoopKernel, parallel_loop
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.sim.places import Interned, Place, PlaceMaker
from hwsdk.target_desc.model import Level, Memory, Target, Unit


@dataclass(frozen=True)
class UseCost:
    """Of one intrinsic: cycles between starts, until a dependent may start, until the next accumulation may
    start."""

    unit: Unit
    owner: str  # the unit whose silicon it uses
    interval: float
    latency: float
    chain: float
    asynchronous: bool
    setup: float = 0.0
    fetch: float = 0.0  # after the last byte left, until it is there
    bytes_per_cycle: float = inf


class Chip:
    """A target seen by one kernel: `level` is where the iterations of its parallel loop run."""

    def __init__(self, target: Target, kernel: LoopKernel) -> None:
        self.target = target
        self.intrinsics = compiled(target)
        self.memories: dict[str, Memory] = {m.name: m for m in target.memories}
        self.units: dict[str, Unit] = {u.name: u for u in target.units}
        self.levels: dict[str, Level] = {x.name: x for x in target.levels}
        loop = parallel_loop(kernel)
        self.level = None if loop is None else loop.level
        self._costs: dict[str, UseCost] = {}
        self._places: Interned = {}
        self._makers: dict[tuple[str, str], PlaceMaker] = {}

    @cached_property
    def workers(self) -> int:
        """Instances of the level that runs iterations."""
        if self.level not in self.levels:
            return self.target.workers()
        total = 1
        for level in self.target.levels:
            total *= level.count or 1
            if level.name == self.level:
                break
        return total

    @cached_property
    def clock_ghz(self) -> float:
        """Of the level that runs iterations, or the nearest outer one that states a clock."""
        clock = 0.0
        for level in self.target.levels:
            clock = level.clock_ghz or clock
            if level.name == self.level:
                break
        return clock or 1.0

    @cached_property
    def fork_cycles(self) -> float:
        """To start all workers."""
        level = self.levels.get(self.level or "")
        return level.fork_cycles if level is not None else 0.0

    @cached_property
    def cached(self) -> frozenset[str]:
        """Places that lie behind a cache: what is accessed twice may cross into them once."""
        names = [m.name for m in self.target.memories]
        caches = [i for i, m in enumerate(self.target.memories) if m.kind == "cache"]
        outer = [n for i, n in enumerate(names) if caches and i < caches[-1]]
        return frozenset(n for n in outer if self.memories[n].kind in ("dram", "cache"))

    @cached_property
    def reorders(self) -> bool:
        """Do its cores reorder instructions, so that units overlap as data allows?"""
        return self.target.codegen.model == "simd"

    def ratio(self, unit: Unit) -> float:
        """Worker cycles in one cycle of the unit."""
        return self.clock_ghz / unit.clock_ghz if unit.clock_ghz else 1.0

    def instances(self, unit: Unit) -> int:
        """Of a unit in one worker."""
        return unit.count

    def cost(self, name: str) -> UseCost:
        """The numbers of an intrinsic."""
        if name not in self._costs:
            self._costs[name] = self._cost(self.intrinsics[name])
        return self._costs[name]

    def _cost(self, intrinsic: CompiledIntrinsic) -> UseCost:
        spec = intrinsic.spec
        unit = self.units[spec.unit]
        ratio = self.ratio(unit)
        interval = ratio / spec.cost.issue_per_cycle if spec.cost.issue_per_cycle else ratio
        latency = max(interval, (spec.cost.latency_cycles or 0.0) * ratio)
        chain = (spec.cost.chain_cycles or 0.0) * ratio or latency
        if unit.kind != "dma":
            return UseCost(
                unit, unit.shares or unit.name, interval, latency, chain, unit.completion is not None
            )
        places = [self.memories[o.place] for o in intrinsic.operands.values() if o.place in self.memories]
        stated = spec.cost.latency_cycles
        behind = max((m.latency_cycles or 0.0 for m in places), default=0.0)
        setup = unit.setup_cycles * ratio
        fetch = max(0.0, stated * ratio - setup) if stated is not None else behind
        rate = (unit.bytes_per_cycle or inf) / ratio
        asynchronous = unit.completion is not None and unit.copies != "blocking"
        return UseCost(
            unit, unit.shares or unit.name, interval, latency, chain, asynchronous, setup, fetch, rate
        )

    def place_maker(self, intrinsic: str, operand: str) -> PlaceMaker:
        """Where the operand's elements lie, for any extents and strides."""
        key = (intrinsic, operand)
        if key not in self._makers:
            self._makers[key] = PlaceMaker(self.intrinsics[intrinsic], operand, self._places)
        return self._makers[key]

    def place(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Place:
        """The strided place, one object for equal ones."""
        found = self._places.get((shape, strides))
        if found is None:
            found = self._places[shape, strides] = Place(shape, strides, None)
        return found

    def moved(self, memory: str, place: Place, itemsize: int) -> int:
        """Bytes that a copy moves in a memory: whole granules."""
        count, length = place.runs
        found = self.memories.get(memory)
        granule = 1 if found is None else found.granule_bytes or 1
        return count * -(-length * itemsize // granule) * granule

    def bandwidth(self, place: str, write: bool) -> float:
        """Bytes per cycle of one instance, unknown: infinite."""
        memory = self.memories[place]
        rate = memory.write_bytes_per_cycle if write else memory.read_bytes_per_cycle
        rate = rate or memory.read_bytes_per_cycle or inf
        return min(rate, memory.reader_bytes_per_cycle or inf)
