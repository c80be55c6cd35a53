"""Asynchronous copies from global to shared memory, in groups that each lane commits and waits for.

Design choice: the bytes are read when the copy starts and written when the lane waits for its group; in between the
destination has the state PENDING, so that whoever touches it is at fault, and the source is remembered, so that a
store to it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.registers import numbers
from hwsdk.sim.simt.storage import ALLOCATED, PENDING, UNSIGNED, VALID

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

_OPEN = np.iinfo(np.int64).max


@dataclass
class Copy:
    """One instruction's copies.  lanes, offsets (in shared storage), sources (addresses), data (lane, byte), group
    (number in its lane, or not committed yet)."""

    lanes: Array
    offsets: Array
    sources: Array
    data: Array
    read_bytes: Array
    group: Array


class Copies:
    """Those of a batch that no wait has completed."""

    def __init__(self, lanes: int) -> None:
        self.groups = np.zeros(lanes, np.int64)  # committed by each lane
        self.pending: list[Copy] = []

    def start(self, lanes: Array, offsets: Array, sources: Array, data: Array, read_bytes: Array) -> None:
        group = np.full(lanes.size, _OPEN)
        self.pending.append(Copy(lanes, offsets, sources, data, read_bytes, group))

    def commit(self, frame: Frame, lanes: Lanes) -> None:
        """What the lanes have started becomes their next group."""
        chosen = _mask(frame, lanes)
        for copy in self.pending:
            mine = (copy.group == _OPEN) & chosen[copy.lanes]
            copy.group[mine] = self.groups[copy.lanes[mine]]
        self.groups[numbers(frame, lanes)] += 1

    def wait(self, frame: Frame, lanes: Lanes, allowed: int) -> None:
        """Data of all but the latest `allowed` groups of each lane arrives."""
        chosen = _mask(frame, lanes)
        left = []
        for copy in self.pending:
            done = chosen[copy.lanes] & (copy.group < self.groups[copy.lanes] - allowed)
            if done.any():
                _arrive(frame, copy, done)
                if done.all():
                    continue
                _keep(copy, ~done)
            left.append(copy)
        self.pending = left

    def check_store(self, frame: Frame, lanes: Lanes, addresses: Array, size: int) -> None:
        """A store to global memory must not change what a copy is reading."""
        for copy in self.pending:
            start, stop = copy.sources, copy.sources + copy.read_bytes
            low, high = int(start.min()), int(stop.max())
            near = np.flatnonzero((addresses < high) & (addresses + size > low))
            for at in near.tolist():
                address = int(addresses[at])
                if ((start < address + size) & (stop > address)).any():
                    lane = int(numbers(frame, lanes)[at]) if addresses.size > 1 else None
                    raise Fault(
                        FaultKind.IN_FLIGHT, "store to the source of a copy before the wait for it", lane
                    )


def _mask(frame: Frame, lanes: Lanes) -> Array:
    chosen = np.ones(frame.lanes, bool)
    if lanes is not None:
        chosen[:] = False
        chosen[lanes] = True
    return chosen


def _arrive(frame: Frame, copy: Copy, done: Array) -> None:
    lanes, offsets, data = copy.lanes, copy.offsets, copy.data
    if not done.all():
        lanes, offsets, data = lanes[done], offsets[done], data[done]
    size = data.shape[1]
    wide = data.view(UNSIGNED[min(size, 8)])
    frame.shared.scatter(offsets, [wide[:, j] for j in range(wide.shape[1])])
    frame.shared.set_states(offsets, size, ALLOCATED | VALID)
    if frame.shared_races is not None:  # from now on the lane's own, and others' after a barrier
        frame.shared_races.arrived(offsets, size, frame.tags[lanes])


def _keep(copy: Copy, which: Array) -> None:
    for name in ("lanes", "offsets", "sources", "data", "read_bytes", "group"):
        setattr(copy, name, getattr(copy, name)[which])


def mark_pending(frame: Frame, offsets: Array, size: int) -> None:
    frame.shared.set_states(offsets, size, ALLOCATED | PENDING)
