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
from typing import Any

import numpy as np

from hwsdk.sim.cells import Array
from hwsdk.sim.chip import Chip, UseCost
from hwsdk.sim.places import Spot
from hwsdk.sim.repeats import Repeat


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
        self,
        cost: UseCost,
        maker: int,
        interval: float,
        spots: Sequence[Spot],
        reads: list[int],
        writes: list[int],
    ) -> float:
        """A use of a unit that is no copy engine; returns when its results are there.

        maker: number of the intrinsic; interval: how long it keeps its unit; reads, writes: positions in
        spots.
        """
        free = self._unit(cost)
        start = max(self.clock[0], free[0])
        for i in reads:
            spot = spots[i]
            if i in writes:
                early = cost.latency - cost.chain if _chained(spot, maker) else 0.0
                start = _after_ready(spot, start + early) - early
                start = _after_read(spot, start)
            else:
                start = _after_ready(spot, start)
        for i in writes:
            if i not in reads:
                start = _after_read(spots[i], start)
                start = _after_ready(spots[i], start + cost.latency) - cost.latency
        heapq.heapreplace(free, start + interval)
        name = cost.unit.name
        self.busy[name] = self.busy.get(name, 0.0) + interval
        finish = start + max(cost.latency, interval)
        for i in reads:
            if i not in writes:
                _note_read(spots[i], start + interval)
        for i in writes:
            _note_written(spots[i], finish, maker if i in reads else 0)
        self.end = max(self.end, finish)
        self.settled = max(self.settled, finish)
        return finish

    def many(
        self,
        cost: UseCost,
        interval: float,
        spots: Sequence[Spot],
        reads: list[int],
        writes: list[int],
        repeat: Repeat,
    ) -> None:
        """`use` for uses that touch nothing of one another; no operand is both read and written."""
        free, clock, latency = self._unit(cost), self.clock[0], cost.latency
        earliest = max(clock, free[0])
        ready = [x for i in reads if (x := _each(spots[i], "ready", earliest, repeat.count))]
        behind = []
        for i in writes:
            read = _each(spots[i], "read", earliest, repeat.count)
            behind.append((read, _each(spots[i], "ready", earliest + latency, repeat.count)))
        starts = []
        for k in range(repeat.count):
            start = max(clock, free[0])
            for times in ready:
                start = max(start, times[k])
            for read, written in behind:
                start = start if read is None else max(start, read[k])
                start = start + latency if written is None else max(start + latency, written[k])
                start -= latency
            heapq.heapreplace(free, start + interval)
            starts.append(start)
        busy = self.busy.get(cost.unit.name, 0.0)
        for _ in starts:
            busy += interval
        self.busy[cost.unit.name] = busy
        finishes = [start + max(latency, interval) for start in starts]
        for i in reads:
            _note_reads(spots[i], [start + interval for start in starts], repeat.still[i], repeat.apart[i])
        for i in writes:
            _note_writes(spots[i], finishes)
        self.end = max(self.end, *finishes)
        self.settled = max(self.settled, *finishes)

    def _unit(self, cost: UseCost) -> list[float]:
        free = self.free.get(cost.owner)
        if free is None:
            free = self.free[cost.owner] = [0.0] * self.chip.units[cost.owner].count
        return free

    # ---------------------------------------------------------------------------------------- copies
    def copy(self, cost: UseCost, spots: Sequence[Spot], reads: list[int], writes: list[int]) -> float:
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
        for i in reads:
            start = _after_ready(spots[i], start)
        for i in writes:
            start = _after_read(spots[i], _after_ready(spots[i], start))
        end = self._transfer(
            cost, start, [(spots[i], False) for i in reads] + [(spots[i], True) for i in writes]
        )
        heapq.heapreplace(free, end)
        self.busy[cost.unit.name] = self.busy.get(cost.unit.name, 0.0) + (end - start)
        there = end + cost.fetch
        for i in reads:
            _note_read(spots[i], end)
        for i in writes:
            _note_written(spots[i], there, 0)
        self.end = max(self.end, there)
        heapq.heappush(flying, there)
        if not cost.asynchronous:
            self.clock[0] = max(self.clock[0], there)
        return there

    def _transfer(self, cost: UseCost, start: float, operands: list[tuple[Spot, bool]]) -> float:
        """When the last byte leaves, if the engine starts at `start`; the ports of the places are then
        taken."""
        begin, rate, size = start + cost.setup, cost.bytes_per_cycle, 0
        ports: dict[str, float] = {}
        for spot, write in operands:
            place = spot.cell.place
            moved = self.chip.moved(place, spot.place, spot.cell.itemsize)
            bandwidth = self.chip.bandwidth(place, write)
            size, rate = max(size, moved), min(rate, bandwidth)
            ports[place] = ports.get(place, 0.0) + moved / bandwidth
            begin = max(begin, self.port.get(place, 0.0))
        for place, time in ports.items():
            self.port[place] = begin + time
        return begin + size / rate

    # ---------------------------------------------------------------------------------------- syncs
    def wait(self, until: float, cost: float) -> None:
        """The stream goes on at `until`, and spends `cost`."""
        self.clock[0] = max(self.clock[0], until) + cost

    def finish(self) -> float:
        """When everything of the iteration is over."""
        return max(self.clock[0], self.end)


def _chained(spot: Spot, maker: int) -> bool:
    """Was every element written last by the accumulation `maker`?  (Since it wrote this spot, only it
    wrote.)"""
    cell = spot.cell
    return spot.maker == maker == cell.maker and spot.written >= cell.maker_since


def _view(spot: Spot, times: Array) -> Array:
    assert spot.place.strides is not None
    return spot.place.view(times, times.dtype, times.itemsize, spot.base)


def _inside(spot: Spot) -> Any:
    where = spot.offsets()
    return where[(where >= 0) & (where < spot.cell.size)]


def _after_ready(spot: Spot, time: float) -> float:
    """The later of `time` and when the last of the elements is there."""
    cell = spot.cell
    if cell.ready is None or cell.ready_peak <= time or not spot.place.size:
        return time
    if spot.ready is None and spot.data is not None:
        spot.ready = _view(spot, cell.ready)
    return max(time, _latest(spot, spot.ready if spot.ready is not None else cell.ready[_inside(spot)]))


def _after_read(spot: Spot, time: float) -> float:
    """The later of `time` and when the last of the elements has been read."""
    cell = spot.cell
    if cell.read is None or cell.read_peak <= time or not spot.place.size:
        return time
    if spot.read_times is None and spot.data is not None:
        spot.read_times = _view(spot, cell.read)
    return max(
        time, _latest(spot, spot.read_times if spot.read_times is not None else cell.read[_inside(spot)])
    )


def _latest(spot: Spot, times: Array) -> float:
    if spot.place.dense and times.size and times.ndim == 1:
        return float(times.item(times.argmax()))  # three times faster than a reduction, where it applies
    return float(np.maximum.reduce(times, axis=None, initial=0.0))


def _each(spot: Spot, which: str, time: float, count: int) -> list[float] | None:
    """Of each use: when its elements are there (or were read last); None if that is never after `time`."""
    cell = spot.cell
    times, peak = (cell.ready, cell.ready_peak) if which == "ready" else (cell.read, cell.read_peak)
    if times is None or peak <= time:
        return None
    if which == "ready" and spot.finishes is not None and spot.written == cell.writes:
        return spot.finishes  # the last to write the cell was just here
    view = _times(spot, which)
    found: list[float] = np.maximum.reduce(view.reshape(count, -1), axis=1, initial=0.0).tolist()
    return found


def _times(spot: Spot, which: str) -> Array:
    """The view of the cell's times (which are there), kept with the spot."""
    if which == "ready":
        if spot.ready is None:
            assert spot.cell.ready is not None
            spot.ready = _view(spot, spot.cell.ready)
        return spot.ready
    if spot.read_times is None:
        assert spot.cell.read is not None
        spot.read_times = _view(spot, spot.cell.read)
    return spot.read_times


def _note_reads(spot: Spot, times: list[float], still: bool, apart: bool) -> None:
    """`_note_read` of uses one after another."""
    if still:
        _note_read(spot, max(times))
        return
    cell = spot.cell
    if not cell.tracked:
        return
    if cell.read is None:
        cell.read = np.zeros(cell.size)
    view = _times(spot, "read")
    column = np.array(times).reshape(-1, *[1] * (view.ndim - 1))
    if apart and min(times) >= cell.read_peak:
        view[...] = column
    elif apart:
        np.maximum(view, column, out=view)
    else:
        for row, time in zip(view, times):
            np.maximum(row, time, out=row)
    cell.read_peak = max(cell.read_peak, *times)


def _note_writes(spot: Spot, times: list[float]) -> None:
    """`_note_written` of uses one after another, none of them an accumulation."""
    cell = spot.cell
    if cell.ready is None:
        cell.ready = np.zeros(cell.size)
    if cell.maker != 0:
        cell.maker, cell.maker_since = 0, cell.writes + 1
    cell.writes += len(times)
    spot.maker, spot.written, spot.finishes = 0, cell.writes, times
    view = _times(spot, "ready")
    view[...] = np.array(times).reshape(-1, *[1] * (view.ndim - 1))
    cell.ready_peak = max(cell.ready_peak, *times)


def _note_read(spot: Spot, time: float) -> None:
    cell = spot.cell
    if not cell.tracked or not spot.place.size:
        return
    if cell.read is None:
        cell.read = np.zeros(cell.size)
    if spot.read_times is None and spot.data is not None:
        spot.read_times = _view(spot, cell.read)
    if spot.read_times is not None and time >= cell.read_peak:
        spot.read_times.fill(time)
    elif spot.read_times is not None:
        np.maximum(spot.read_times, time, out=spot.read_times)
    else:
        where = _inside(spot)
        cell.read[where] = np.maximum(cell.read[where], time)
    cell.read_peak = max(cell.read_peak, time)


def _note_written(spot: Spot, time: float, maker: int) -> None:
    cell = spot.cell
    if not spot.place.size:
        return
    if cell.ready is None:
        cell.ready = np.zeros(cell.size)
    cell.writes += 1
    if cell.maker != maker:
        cell.maker, cell.maker_since = maker, cell.writes
    spot.maker, spot.written, spot.finishes = maker, cell.writes, None
    if spot.ready is None and spot.data is not None:
        spot.ready = _view(spot, cell.ready)
    if spot.ready is not None:
        spot.ready.fill(time)
    else:
        cell.ready[_inside(spot)] = time
    cell.ready_peak = max(cell.ready_peak, time)
