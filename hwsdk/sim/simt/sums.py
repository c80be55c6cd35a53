"""Integers of all lanes as one array plus a number that is the same for all.

Design choice: most addresses of a kernel are computed once per lane and then moved by loop counters, which are equal
for all lanes.  Adding such a number changes a Python integer, and what an access needs to know of the array (range,
alignment, element index in a memory) is worked out once for all that are derived from it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.windows import Space


class Lazy(Protocol):
    """What a register may hold instead of an array of one element per lane of the batch.  It never changes."""

    @property
    def value(self) -> Array:
        """As an array, which must not be changed."""


class Live:
    """What a register holds that something beside the instruction stream changes: it is looked at, never kept."""

    def read(self, lanes: Lanes) -> Array:
        """One number per lane of the batch, which must not be changed; Fault if those of `lanes` may not be read."""
        raise NotImplementedError

    @property
    def value(self) -> Array:
        return self.read(None)


class Root:
    """An array of one number per lane of the batch, which nobody changes any more."""

    __slots__ = ("_facts", "_indices", "_offsets", "array")

    def __init__(self, array: Array) -> None:
        self.array = array
        self._facts: tuple[int, int, int] | None = None
        self._offsets: dict[tuple[Space, int], Array] = {}
        self._indices: dict[tuple[Space, int, int], Array] = {}

    def facts(self) -> tuple[int, int, int]:
        """(least, largest, bits that any has), as unsigned numbers."""
        if self._facts is None:
            plain = self.array.view(f"u{self.array.dtype.itemsize}")
            low, high = np.minimum.reduce(plain), np.maximum.reduce(plain)
            self._facts = int(low), int(high), int(np.bitwise_or.reduce(plain))
        return self._facts

    def offsets(self, space: Space, window: int, base: Array | None) -> Array:
        """Of the numbers, less `window`, from each lane's base in a memory, of which a frame has one."""
        found = self._offsets.get((space, window))
        if found is None:
            found = self.array.astype(np.int64)
            if window:
                found -= window
            if base is not None:
                found += base
            self._offsets[space, window] = found
        return found

    def index(self, space: Space, window: int, base: Array | None, shift: int) -> Array:
        """The same in units of 2**shift bytes."""
        found = self._indices.get((space, window, shift))
        if found is None:
            found = self._indices[space, window, shift] = self.offsets(space, window, base) >> shift
        return found


class Sum:
    """root + delta, wrapped to the root's width."""

    __slots__ = ("_value", "delta", "root")

    def __init__(self, root: Root, delta: int = 0) -> None:
        self.root = root
        bits = 8 * root.array.dtype.itemsize
        if not -(1 << bits - 1) <= delta < 1 << bits - 1:
            delta = (delta + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        self.delta = delta
        self._value = root.array if not delta else None

    @property
    def value(self) -> Array:
        """As an array, which must not be changed."""
        if self._value is None:
            array = self.root.array
            plain = array.view(f"u{array.dtype.itemsize}")
            step = plain.dtype.type(self.delta % (1 << 8 * array.dtype.itemsize))
            self._value = (plain + step).view(array.dtype)
        return self._value

    @property
    def bits(self) -> int:
        """Of a number."""
        return 8 * self.root.array.dtype.itemsize

    def plus(self, number: int) -> Sum:
        return Sum(self.root, self.delta + number)

    def active(self, lanes: Lanes) -> Array:
        """The unsigned numbers of the active lanes."""
        plain = self.value.view(f"u{self.root.array.dtype.itemsize}")
        return plain if lanes is None else plain.take(lanes)
