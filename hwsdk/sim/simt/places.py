"""Accesses whose lanes all point into one memory, checked as a whole.

    found = load(frame, lanes, addresses, access)      None where lanes must be looked at one by one (`spaces`)

Design choice: nearly all accesses are right, and right ones can be recognised from the range and the alignment of their
addresses.  Those are facts of a root (`sums`), so that a loop which moves an address by a number does not look at the
lanes again.  Whatever is not plainly right is left to `spaces`, which says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.races import Span
from hwsdk.sim.simt.storage import ALLOCATED, READ_MASK, READ_WANT, VALID, WRITE_MASK, WRITE_WANT
from hwsdk.sim.simt.sums import Root, Sum
from hwsdk.sim.simt.windows import BASES, WINDOW_SHIFT, WINDOWS, Access, Space

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame


class Place:
    """Where a Sum points: elements index + first of a storage, bytes `span` of the space.  lanes: those that the sum
    speaks of; None: of all lanes of the batch."""

    __slots__ = (
        "_base",
        "delta",
        "first",
        "lanes",
        "root",
        "shift",
        "size",
        "space",
        "span",
        "storage",
        "window",
    )

    def __init__(self, frame: Frame, lanes: Lanes, addresses: Sum, access: Access) -> None:
        """ValueError where the addresses are of several memories, misaligned or outside."""
        self.root, delta, self.lanes = addresses.root, addresses.delta, lanes
        low, high, bits = self.root.facts()
        unit, self.size = access.dtype.itemsize, access.size
        if (bits | delta) & (self.size - 1) or low + delta < 0 or (bits | delta) & (unit - 1):
            raise ValueError
        space, window = access.space, 0
        if space is Space.GENERIC:
            number = (low + delta) >> WINDOW_SHIFT
            if number >= len(WINDOWS) or (high + delta) >> WINDOW_SHIFT != number:
                raise ValueError
            space = WINDOWS[number]
            window = BASES[space]
        self.span: Span = low + delta - window, high + delta - window + self.size
        if delta >= window:  # the number says which memory it is, not the root
            delta, window = delta - window, 0
        self.space, self.window, self.delta = space, window, delta
        base: Array | None = None
        if space is Space.SHARED:
            self.storage, base, stride = frame.shared, frame.shared_base, frame.layout.stride
        elif space is Space.LOCAL:
            self.storage, base, stride = frame.local, frame.local_base, frame.local_stride
        elif space is Space.GLOBAL:
            self.storage, stride = frame.memory.storage, frame.memory.storage.size_bytes
        else:
            raise ValueError
        self._base = base if base is None or lanes is None else base.take(lanes)
        self.shift = unit.bit_length() - 1
        self.first = delta >> self.shift
        if self.span[1] > stride or self.first < 0:
            raise ValueError

    def index(self, lanes: Lanes) -> Array:
        """Of active lanes, in elements, less `first`."""
        found = self.root.index(self.space, self.window, self._base, self.shift)
        return found if lanes is None or self.lanes is not None else found.take(lanes)

    def offsets(self, lanes: Lanes) -> Array:
        """Of active lanes in the storage, in bytes."""
        found = self.root.offsets(self.space, self.window, self._base)
        found = found if lanes is None or self.lanes is not None else found.take(lanes)
        return found + self.delta if self.delta else found

    def addresses(self, lanes: Lanes) -> Array:
        """Of active lanes in the space."""
        found = self.root.array.view(f"u{self.root.array.dtype.itemsize}").astype(np.int64)
        found = found if lanes is None or self.lanes is not None else found.take(lanes)
        result: Array = found + (self.delta - self.window)
        return result

    def written(self, frame: Frame, lanes: Lanes) -> bool:
        """Has everything it points to been written, with nothing under way to it?"""
        if self.space is Space.SHARED:
            filled = frame.filled
            if filled.has(self.span):
                return True
            if self.lanes is None and filled.knows(self.root, self.delta, self.size):
                return True
            if filled.proves(self.storage, self.span, self.root.array.size * self.size):
                return True
        whole = self.storage.all_states(self.offsets(None), self.size, READ_MASK, READ_WANT)
        if self.lanes is None:
            if whole and self.space is Space.SHARED:
                frame.filled.learn(self.root, self.delta, self.size)
            if not whole and lanes is not None:
                return self.storage.all_states(self.offsets(lanes), self.size, READ_MASK, READ_WANT)
        return whole


def place_of(frame: Frame, lanes: Lanes, addresses: Sum | Array, access: Access) -> Place | None:
    """None where the lanes must be looked at one by one."""
    if isinstance(addresses, Sum):
        try:
            return Place(frame, None, addresses, access)
        except ValueError:
            if lanes is None:
                return None
            addresses = addresses.active(lanes)
    if addresses.shape[0] == 1:
        return None
    try:
        return Place(frame, frame.all_lanes if lanes is None else lanes, Sum(Root(addresses)), access)
    except ValueError:
        return None


def load(frame: Frame, lanes: Lanes, place: Place, access: Access) -> list[Array] | None:
    """One array per element of the vector."""
    if place.space is Space.GLOBAL:
        if not frame.memory.is_sealed(place.span):
            return None
    elif not place.written(frame, lanes):
        return None
    if place.space is Space.SHARED and frame.shared_races is not None:
        if access.strong or access.constant:
            return None
        if not frame.shared_races.note(place, access.size, frame.tags, lanes, place.span):
            return None
    view, index, first = place.storage.view(access.dtype), place.index(lanes), place.first
    return [view[first + j :].take(index) for j in range(access.count)]


def may_write(frame: Frame, lanes: Lanes, place: Place) -> tuple[bool, bool]:
    """(may the bytes be written?  have they been?)  Of shared and local memory."""
    if place.space is Space.SHARED:
        filled = frame.filled
        if filled.has(place.span) or (
            place.lanes is None and filled.knows(place.root, place.delta, place.size)
        ):
            return True, True
    return place.storage.all_states(place.offsets(lanes), place.size, WRITE_MASK, WRITE_WANT), False


def put(lanes: Lanes, place: Place, values: list[Array], written: bool) -> None:
    """Write the elements; written: they have been before."""
    view = place.storage.view(values[0].dtype) if values else None
    if view is None:
        return
    index, first = place.index(lanes), place.first
    for j, value in enumerate(values):
        view[first + j :][index] = value
    if not written:
        place.storage.set_states(place.offsets(lanes), place.size, ALLOCATED | VALID)
