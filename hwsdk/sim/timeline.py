"""The clock of one worker: when each use of an intrinsic starts and ends.

Rules:
    order       the stream dispatches in program order; a unit starts its uses in that order, one every
                1/issue_per_cycle cycles per instance; units run beside one another; units that share silicon
                count as one
    operands    a use starts when what it reads is there (latency_cycles after the producer started;
                chain_cycles if it only accumulates onto the same intrinsic) and what it overwrites has been
                read
    plain work  moves the clock of the stream; a plain access to what intrinsics work on first waits for all
                of them
    copies      the stream spends 1/issue_per_cycle on the descriptor, and stalls while `in_flight` copies are
                under way; an engine is busy for setup + bytes / rate, rate = min(bytes_per_cycle, bandwidth
                of both places); the port of a place carries one copy at a time at its own bandwidth; the data
                is there after latency_cycles - setup_cycles more; partial granules move whole
    syncs       a wait moves the stream to the end of what it waits for; barriers and fences to the end of
                everything

Design choice: times are kept per element, beside the states, so that double buffers, accumulator tiles and
sub-tiles need no rules of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from hwsdk.sim.cells import Array, Cell, Integers
from hwsdk.sim.chip import Chip, UseCost
from hwsdk.sim.places import Place

Operand = tuple[Cell, Place, int]  # cell, elements, base


class Timeline:
    """Times of one iteration on one worker.  `clock[0]` is the stream's time, shared with generated code."""

    def __init__(self, chip: Chip, clock: list[float]) -> None:
        self.chip, self.clock = chip, clock
        self.free: dict[str, list[float]] = {}  # unit -> when each instance is free
        self.port: dict[str, float] = {}  # place -> when its port is free
        self.flying: dict[str, list[float]] = {}  # unit -> ends of its copies
        self.busy: dict[str, float] = {}
        self.end = 0.0  # of everything so far
        self.settled = 0.0  # of everything but asynchronous work

    # ---------------------------------------------------------------------------------------- uses
    def use(
        self, cost: UseCost, number: int, reads: Sequence[Operand], writes: Sequence[Operand], interval: float
    ) -> float:
        """A use of a unit that is no copy engine; returns when its results are there.

        `number` identifies the intrinsic, `interval` is how long the use keeps its unit.
        """
        free = self._unit(cost)
        start = max(self.clock[0], free[0])
        for cell, place, base in reads:
            if cell.ready is not None:
                accumulates = any(w[0] is cell and w[2] == base for w in writes)
                start = max(
                    start,
                    self._chained(cell, place, base, number)
                    if accumulates
                    else _latest(cell.ready, place, base),
                )
        for cell, place, base in writes:
            if cell.last_read is not None:
                start = max(start, _latest(cell.last_read, place, base))
            if cell.ready is not None and not any(r[0] is cell and r[2] == base for r in reads):
                start = max(start, _latest(cell.ready, place, base) - cost.latency)
        heapq.heapreplace(free, start + interval)
        self.busy[cost.unit.name] = self.busy.get(cost.unit.name, 0.0) + interval
        finish = start + max(cost.latency, interval)
        self.note(reads, writes, start + interval, finish)
        for cell, place, base in writes:
            if any(r[0] is cell and r[2] == base for r in reads):
                if cell.chain is None or cell.producer is None:
                    cell.chain, cell.producer = np.zeros(cell.size), np.zeros(cell.size, np.int64)
                _put(cell.chain, place, base, start + cost.chain)
                _put(cell.producer, place, base, number)
            elif cell.producer is not None:
                _put(cell.producer, place, base, 0)
        self.end = max(self.end, finish)
        self.settled = max(self.settled, finish)
        return finish

    def _chained(self, cell: Cell, place: Place, base: int, number: int) -> float:
        assert cell.ready is not None
        if cell.chain is None or cell.producer is None or (_part(cell.producer, place, base) != number).any():
            return _latest(cell.ready, place, base)
        return _latest(cell.chain, place, base)

    def note(self, reads: Sequence[Operand], writes: Sequence[Operand], read: float, written: float) -> None:
        """Operands were read by one time and are there at another."""
        for cell, place, base in reads:
            if not cell.tracked:
                continue
            if cell.last_read is None:
                cell.last_read = np.zeros(cell.size)
            _raise(cell.last_read, place, base, read)
        for cell, place, base in writes:
            if cell.ready is None:
                cell.ready = np.zeros(cell.size)
            _put(cell.ready, place, base, written)

    def _unit(self, cost: UseCost) -> list[float]:
        free = self.free.get(cost.owner)
        if free is None:
            free = self.free[cost.owner] = [0.0] * self.chip.units[cost.owner].count
        return free

    # ---------------------------------------------------------------------------------------- copies
    def copy(self, cost: UseCost, reads: Sequence[Operand], writes: Sequence[Operand]) -> float:
        """A copy by an engine; returns when its data is there.  A blocking one holds the stream until
        then."""
        self.clock[0] += cost.interval
        flying = self.flying.setdefault(cost.unit.name, [])
        while flying and flying[0] <= self.clock[0]:
            heapq.heappop(flying)
        if cost.unit.in_flight is not None and len(flying) >= cost.unit.in_flight:
            self.clock[0] = max(self.clock[0], heapq.heappop(flying))
        free = self._unit(cost)
        start = max(self.clock[0], free[0])
        for cell, place, base in reads:
            start = max(start, _latest(cell.ready, place, base))
        for cell, place, base in writes:
            start = max(start, _latest(cell.ready, place, base), _latest(cell.last_read, place, base))
        begin, rate = start + cost.setup, cost.bytes_per_cycle
        ports: dict[str, float] = {}
        size = 0
        for operands, write in ((reads, False), (writes, True)):
            for cell, place, _ in operands:
                moved = self.moved(cell, place)
                bandwidth = self.chip.bandwidth(cell.place, write)
                size = max(size, moved)
                rate = min(rate, bandwidth)
                ports[cell.place] = ports.get(cell.place, 0.0) + moved / bandwidth
                begin = max(begin, self.port.get(cell.place, 0.0))
        end = begin + size / rate
        for place_name, time in ports.items():
            self.port[place_name] = begin + time
        heapq.heapreplace(free, end)
        self.busy[cost.unit.name] = self.busy.get(cost.unit.name, 0.0) + (end - start)
        there = end + cost.fetch
        self.note(reads, writes, end, there)
        self.end = max(self.end, there)
        heapq.heappush(flying, there)
        if not cost.asynchronous:
            self.clock[0] = max(self.clock[0], there)
        return there

    def moved(self, cell: Cell, place: Place) -> int:
        """Bytes that cross into the place: whole granules."""
        count, length = place.runs
        size = length * cell.itemsize
        granule = self.chip.memories[cell.place].granule_bytes or 1 if cell.place in self.chip.memories else 1
        return count * -(-size // granule) * granule

    # ---------------------------------------------------------------------------------------- syncs
    def wait(self, until: float, cost: float) -> None:
        """The stream goes on at `until`, and spends `cost`."""
        self.clock[0] = max(self.clock[0], until) + cost

    def finish(self) -> float:
        """When everything of the iteration is over."""
        return max(self.clock[0], self.end)


def _dense(times: Array, place: Place, base: int) -> bool:
    """Can the elements be seen as a view?  (A masked use may reach beyond its buffer.)"""
    return place.strides is not None and base + place.low >= 0 and base + place.high < times.size


def _inside(times: Array, place: Place, base: int) -> Integers:
    where = place.at(base)
    return where[(where >= 0) & (where < times.size)]


def _part(times: Array, place: Place, base: int) -> Array:
    if _dense(times, place, base):
        return place.view(times, times.dtype, times.itemsize, base)
    return np.asarray(times[_inside(times, place, base)])


def _latest(times: Array | None, place: Place, base: int) -> float:
    return 0.0 if times is None or not place.size else float(_part(times, place, base).max(initial=0.0))


def _put(times: Array, place: Place, base: int, value: float) -> None:
    if _dense(times, place, base):
        place.view(times, times.dtype, times.itemsize, base)[...] = value
    else:
        times[_inside(times, place, base)] = value


def _raise(times: Array, place: Place, base: int, value: float) -> None:
    if _dense(times, place, base):
        view = place.view(times, times.dtype, times.itemsize, base)
        np.maximum(view, value, out=view)
    else:
        where = _inside(times, place, base)
        times[where] = np.maximum(times[where], value)
