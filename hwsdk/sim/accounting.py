"""From what a launch counted to its Stats.

Rules:
    time      iterations go to the next free worker in order; a launch takes as long as the last worker, but
              at least as long as its bytes take to cross into each place that workers share, plus
              fork_cycles; launch_us is added to the seconds
    moved     bytes that really cross into a place: copies move whole granules; a buffer behind a cache
              crosses once

Design choice: generated code only counts; everything that needs a formula is here, once, after the run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hwsdk.dtypes import DTYPES
from hwsdk.sim.chip import Chip
from hwsdk.sim.launch import Launch
from hwsdk.sim.stats import PlaceStats, Stats, UnitStats


def launch_stats(launch: Launch) -> Stats:
    """The statistics of a launch that is over."""
    chip = launch.chip
    accessed, moved = _bytes(launch)
    places = {} if chip is None else {n: _place(launch, n, accessed, moved) for n in chip.memories}
    for verb, name in accessed:
        del verb
        places.setdefault(
            name, PlaceStats(accessed.get(("read", name), 0), accessed.get(("written", name), 0))
        )
    unwritten = {}
    for cell in launch.params:
        if launch.check and cell.name in launch.program.kernel.outputs:
            unwritten[cell.name] = cell.size - int((cell.valid & 1).sum())
    statements = sum(e.statements * c for e, c in zip(launch.program.entries, launch.counters))
    if chip is None:
        return Stats(
            1,
            launch.iterations,
            places=places,
            kernels=(launch.program.kernel.name,),
            unwritten=unwritten,
            statements=statements,
        )
    units = _units(launch, chip)
    cycles, bound_by = _time(launch, chip, places, units)
    seconds = cycles / (chip.clock_ghz * 1e9) + chip.target.runtime.launch_us * 1e-6
    workers = min(chip.workers, max(1, launch.iterations))
    return Stats(
        1,
        launch.iterations,
        workers,
        cycles,
        seconds,
        places,
        units,
        bound_by,
        (launch.program.kernel.name,),
        unwritten,
        statements,
    )


Bytes = dict[tuple[str, str], int]


def _bytes(launch: Launch) -> tuple[Bytes, Bytes]:
    """(accessed, moved) by (read or written, place)."""
    accessed, moved = _use_bytes(launch)
    by_buffer: Bytes = {}
    for entry, count in zip(launch.program.entries, launch.counters):
        if count:
            for verb, table in (("read", entry.read), ("written", entry.written)):
                for place, size in table.items():
                    accessed[verb, place] = accessed.get((verb, place), 0) + size * count
            for key, size in entry.by_buffer.items():
                by_buffer[key] = by_buffer.get(key, 0) + size * count
    cached = launch.chip.cached if launch.chip is not None else frozenset()
    sizes = {c.name: c.size * c.itemsize for c in launch.params}
    homes = {b.name: b.place for b in launch.program.buffers}
    registers = (
        {m.name for m in launch.chip.memories.values() if m.kind == "registers"} if launch.chip else set()
    )
    for (verb, name), size in by_buffer.items():
        home = homes[name]
        if home in registers:
            continue
        once = min(size, sizes.get(name, size)) if home in cached else size
        moved[verb, home] = moved.get((verb, home), 0) + once
    return accessed, moved


def _use_bytes(launch: Launch) -> tuple[Bytes, Bytes]:
    """The same for intrinsics alone; only copies move bytes between places."""
    accessed: Bytes = {}
    moved: Bytes = {}
    for use in launch.uses.values():
        operands = [use.intrinsic.operands[n] for n in use.views]
        for plan in use.plans.values():
            count = launch.plans.get(plan, 0)
            for verb, numbers in (("read", use.reads), ("written", use.writes)):
                for i in numbers if count else ():
                    key, place = (verb, use.places[i]), plan.places[i]
                    size = DTYPES[operands[i].dtype].size_bytes
                    accessed[key] = accessed.get(key, 0) + count * place.size * size
                    if use.cost.unit.kind == "dma":
                        bytes_moved = use.chip.moved(use.places[i], place, size)
                        moved[key] = moved.get(key, 0) + count * bytes_moved
    return accessed, moved


def _place(launch: Launch, name: str, accessed: Bytes, moved: Bytes) -> PlaceStats:
    room = launch.capacity.rooms.get(name)
    return PlaceStats(
        accessed.get(("read", name), 0),
        accessed.get(("written", name), 0),
        moved.get(("read", name), 0) + moved.get(("written", name), 0),
        launch.capacity.peak.get(name, 0),
        None if room is None else room.capacity,
    )


def _units(launch: Launch, chip: Chip) -> dict[str, UnitStats]:
    uses: dict[str, int] = {}
    operations: dict[str, int] = {}
    busy = dict(launch.counted.busy)
    intrinsics: dict[str, dict[str, int]] = {}
    for use in launch.uses.values():
        unit = use.cost.unit.name
        for plan in use.plans.values():
            count = launch.plans.get(plan, 0)
            if count:
                uses[unit] = uses.get(unit, 0) + count
                operations[unit] = operations.get(unit, 0) + count * plan.operations
                names = intrinsics.setdefault(unit, {})
                names[use.intrinsic.name] = names.get(use.intrinsic.name, 0) + count
    for entry, count in zip(launch.program.entries, launch.counters):
        if count:
            for name, n in entry.uses.items():
                uses[name] = uses.get(name, 0) + n * count
            for name, n in entry.ops.items():
                operations[name] = operations.get(name, 0) + n * count
            for (unit, name), n in entry.intrinsics.items():
                names = intrinsics.setdefault(unit, {})
                names[name] = names.get(name, 0) + n * count
            for name, cycles in entry.busy.items():
                busy[name] = busy.get(name, 0.0) + cycles * count
    return {
        u.name: UnitStats(
            uses.get(u.name, 0),
            operations.get(u.name, 0),
            busy.get(u.name, 0.0),
            u.count,
            intrinsics.get(u.name, {}),
        )
        for u in chip.target.units
    }


def makespan(durations: Sequence[float], workers: int) -> float:
    """Iterations in order, each to the worker that is free first."""
    if workers <= 1:
        return sum(durations)
    free = [0.0] * min(workers, max(1, len(durations)))
    for time in durations:
        heapq.heapreplace(free, free[0] + time)
    return max(free)


def _time(
    launch: Launch, chip: Chip, places: dict[str, PlaceStats], units: dict[str, UnitStats]
) -> tuple[float, str]:
    """(cycles, what bounds them)."""
    cycles = makespan(launch.counted.durations, chip.workers)
    busiest = {
        n: u.busy_cycles / u.instances / min(chip.workers, max(1, launch.iterations))
        for n, u in units.items()
    }
    for name, place in places.items():
        memory = chip.memories.get(name)
        if memory is None or memory.kind not in ("dram", "host") or not memory.read_bytes_per_cycle:
            continue
        busiest[name] = place.moved_bytes / memory.read_bytes_per_cycle
    bound_by = max(busiest, key=lambda n: busiest[n], default="") if any(busiest.values()) else ""
    shared = max((busiest[n] for n in busiest if n in places), default=0.0)
    return max(cycles, shared) + chip.fork_cycles, bound_by
