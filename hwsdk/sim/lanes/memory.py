"""Buffers as all lanes of a batch of workgroups see them, and what may be done to their elements when.

A buffer has rows: one for a param, one per workgroup in a scratchpad, one per lane in registers.  Each element knows
whether it holds a value, and in shared places who touched it since when:

    race        two lanes touch one element, one of them writes, and no barrier of their workgroup lies between;
                two workgroups never meet, so one must not touch what another writes in the same launch
    in flight   an element that an asynchronous copy will write may not be touched, one that it reads not be written,
                before the matching wait

Design choice: times are barrier counts.  All workgroups of a batch run in step, so one number dates an access.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hwsdk.errors import SimulationError

Array = np.ndarray[Any, Any]

SEVERAL = -2  # as a reader: more than one lane


class LaneFault(SimulationError):
    """A check failed; the statement is added by whoever runs it."""


@dataclass
class Touched:
    """Per element of a shared buffer: who wrote and read it last (lane of the launch), and at which time."""

    writer: Array
    write_time: Array
    reader: Array
    read_time: Array

    @staticmethod
    def none(size: int) -> Touched:
        return Touched(*(np.full(size, -1, np.int64) for _ in range(4)))


@dataclass
class Cells:
    """rows x size elements, flat.  kind: param, scratch or private."""

    name: str
    kind: str
    place: str
    data: Array  # flat, rows * size
    size: int
    valid: Array  # bool, flat
    writable: bool = True
    touched: Touched | None = None
    flight: Array | None = None  # per element: asynchronous copies that write it (high bits) and read it
    worked_on: str = ""  # registers: the unit whose asynchronous uses write them
    strides: tuple[Array, ...] = ()  # in elements, as index arrays
    shape: tuple[Any, ...] = ()

    @property
    def itemsize(self) -> int:
        return int(self.data.dtype.itemsize)

    def element(self, flat: int) -> str:
        return f"{self.name}[{flat % max(1, self.size)}]"


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def as_indices(numbers: Iterable[int]) -> tuple[Array, ...]:
    """Numbers as indices that all lanes share."""
    return tuple(np.full((1, 1), n, np.int64) for n in numbers)


@dataclass
class Clock:
    """Lanes of one workgroup, and the time: barriers passed since the launch began."""

    group_lanes: int
    time: int = 0


def check_read(cells: Cells, at: Array, lane: Array, clock: Clock) -> None:
    """at: flat elements; lane: who reads each.  LaneFault for what must not be read."""
    if not at.size:
        return
    if cells.flight is not None and (cells.flight[at] >= _WRITING).any():
        bad = int(at[cells.flight[at] >= _WRITING][0])
        raise LaneFault(f"{cells.element(bad)} is read while an asynchronous copy to it was not waited for")
    empty = ~cells.valid[at]
    if empty.any():
        raise LaneFault(f"{cells.element(int(at[empty][0]))} is read before anything was written to it")
    t = cells.touched
    if t is None:
        return
    other = (t.writer[at] >= 0) & (t.writer[at] != lane)
    _raise_if(
        other & _clashes(t.writer[at], t.write_time[at], lane, clock),
        cells,
        at,
        lane,
        t.writer,
        "reads",
        "wrote",
    )
    fresh = t.read_time[at] != clock.time
    same = t.reader[at] == lane
    t.reader[at] = np.where(fresh | same, lane, SEVERAL)
    if np.unique(at).size != at.size:  # several lanes of this very statement
        order = np.argsort(at, kind="stable")
        again = np.flatnonzero((np.diff(at[order]) == 0) & (np.diff(lane[order]) != 0))
        t.reader[at[order][again]] = SEVERAL
    t.read_time[at] = clock.time


def check_write(cells: Cells, at: Array, lane: Array, clock: Clock) -> None:
    """The same for writes, which also mark the elements as holding values."""
    if not at.size:
        return
    if not cells.writable:
        raise LaneFault(f"store to {cells.name}, which is an input")
    if cells.flight is not None and cells.flight[at].any():
        bad = int(at[cells.flight[at] != 0][0])
        raise LaneFault(
            f"{cells.element(bad)} is written while an asynchronous copy of it was not waited for"
        )
    t = cells.touched
    if t is None:
        return
    writer, reader = t.writer[at], t.reader[at]
    clash = (writer >= 0) & (writer != lane) & _clashes(writer, t.write_time[at], lane, clock)
    _raise_if(clash, cells, at, lane, t.writer, "writes", "wrote")
    clash = (reader != -1) & (reader != lane) & (t.read_time[at] == clock.time)
    foreign = (reader >= 0) & (reader // clock.group_lanes != lane // clock.group_lanes)
    _raise_if(clash | foreign, cells, at, lane, t.reader, "writes", "read")
    t.writer[at] = lane
    if (t.writer[at] != lane).any():
        bad = int(at[t.writer[at] != lane][0])
        raise LaneFault(f"race: two lanes write {cells.element(bad)} in one statement")
    t.write_time[at] = clock.time


_WRITING = 1 << 16  # in `flight`: one copy that writes; below: copies that read


def depart(cells: Cells, at: Array, writes: bool) -> None:
    """An asynchronous copy begins to use the elements."""
    if cells.flight is None:
        cells.flight = np.zeros(cells.data.size, np.int64)
    np.add.at(cells.flight, at, _WRITING if writes else 1)


def arrive(cells: Cells, at: Array, writes: bool) -> None:
    """It is done with them."""
    assert cells.flight is not None
    np.subtract.at(cells.flight, at, _WRITING if writes else 1)


def _clashes(who: Array, when: Array, lane: Array, clock: Clock) -> Array:
    """Is there no barrier between that access and now?"""
    foreign = who // clock.group_lanes != lane // clock.group_lanes
    return np.asarray(foreign | (when == clock.time))


def _raise_if(bad: Array, cells: Cells, at: Array, lane: Array, who: Array, does: str, did: str) -> None:
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        other = int(who[at[i]])
        by = "other lanes" if other < 0 else f"lane {other}"
        raise LaneFault(
            f"race: lane {int(lane[i])} {does} {cells.element(int(at[i]))}, which {by} {did} with no barrier between"
        )
