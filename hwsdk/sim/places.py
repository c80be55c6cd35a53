"""Where the elements of an intrinsic's operand lie in a buffer: a strided view if the layout is affine,
offsets if not.

A buffer in registers holds the items of lane 0, then those of lane 1, and so on; a buffer in memory holds
items.

Design choice: what an operand looks like for given extents and strides is a Place, made once; a Place at a
base in a cell is a Spot, kept with the cell.  A use then finds ready-made views of data, states and times
instead of making some twenty of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk.intrinsics import CompiledIntrinsic
from hwsdk.sim.cells import Array, Cell, Integers
from hwsdk.sim.faults import Fault

_LIMIT = 4096  # places kept per operand, spots kept per cell


class Place:
    """Elements of an operand relative to its base.  strides: of the view, or None where `offsets` must be
    used.

    dense: they are one run of neighbours, upwards from the base.
    """

    __slots__ = ("dense", "high", "low", "offsets", "runs", "shape", "size", "strides")

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...] | None, offsets: Integers | None
    ) -> None:
        self.shape, self.strides, self.offsets = shape, strides, offsets
        self.size = math.prod(shape)
        self.low = self.high = 0
        if self.size and strides is not None:
            self.low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape))
            self.high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape))
        elif self.size and offsets is not None:
            self.low, self.high = int(offsets.min()), int(offsets.max())
        self.runs = self._runs()
        self.dense = self.runs == (1, self.size) and self.low == 0

    def _runs(self) -> tuple[int, int]:
        """(how many, elements each) of the dense pieces, for the granules of a transfer."""
        if not self.size:
            return 0, 0
        if self.strides is None:
            return self.size, 1
        length = 1
        for stride, extent in sorted(zip(self.strides, self.shape)):
            if extent > 1 and stride == length:
                length *= extent
        return self.size // length, length

    def view(self, storage: Any, dtype: Any, itemsize: int, base: int) -> Array:
        """The elements in one of a cell's arrays."""
        assert self.strides is not None
        return np.ndarray(
            self.shape, dtype, storage, base * itemsize, tuple(s * itemsize for s in self.strides)
        )

    def at(self, base: int) -> Integers:
        """Offsets of all elements in the cell."""
        if self.offsets is not None:
            return self.offsets + base
        total = np.full(self.shape, base, np.int64)
        for axis, (stride, extent) in enumerate(zip(self.strides or (), self.shape)):
            shape = [1] * len(self.shape)
            shape[axis] = extent
            total += stride * np.arange(extent).reshape(shape)
        return total


class Spot:
    """A Place at a base in a cell.  data, states: views, or None where the elements are no view of the cell.

    whole: all elements lie inside the cell's storage.
    """

    __slots__ = (
        "base", "cell", "data", "finishes", "maker", "place", "read_times", "ready", "states", "whole", "written",
    )  # fmt: skip

    def __init__(self, cell: Cell, place: Place, base: int) -> None:
        self.cell, self.place, self.base = cell, place, base
        self.whole = not place.size or (base + place.low >= 0 and base + place.high < cell.size)
        view = self.whole and place.strides is not None and place.size > 0
        self.data: Array | None = place.view(cell.raw, cell.dtype, cell.itemsize, base) if view else None
        self.states: Any = place.view(cell.state, np.uint8, 1, base) if view and cell.state else None
        self.ready: Array | None = None  # views of the cell's times, kept by the timeline
        self.read_times: Array | None = None
        self.maker, self.written = 0, -1
        self.finishes: list[float] | None = None  # of uses that wrote it as one operation

    def offsets(self) -> Integers:
        """Offsets of all elements in the cell's storage (some may lie outside)."""
        return self.place.at(self.base)

    def require(self, operand: str) -> None:
        """Fault unless all elements lie in the cell's storage."""
        if not self.whole:
            first, last = self.base + self.place.low, self.base + self.place.high
            raise Fault(
                f"out of bounds: operand {operand} touches elements {first}..{last} of {self.cell.name},"
                f" which has {self.cell.size}"
            )

    def read(self) -> Array:
        """The elements; only if `whole`."""
        if self.data is not None:
            return self.data
        if not self.place.size:
            return np.zeros(self.place.shape, self.cell.dtype)
        return np.asarray(self.cell.flat[self.offsets()])

    def write(self, array: Array, mask: Any) -> None:
        """Stores the elements (those of the mask), which are then initialised."""
        if not self.place.size:
            return
        if self.data is not None and mask is None:
            self.data[...] = array
            if self.states is not None:
                self.states[...] = 1
            return
        where = self.touched(mask)
        self.cell.flat[where] = self.spread(array) if mask is None else np.asarray(array)[mask]
        if self.cell.state:
            self.cell.valid[where] = 1

    def touched(self, mask: Any) -> Integers:
        """Offsets of the elements of a mask (None: all)."""
        where = self.offsets()
        return where if mask is None else where[mask]

    def spread(self, array: Array) -> Array:
        """Replicas of an operand hold the same values: further axes of the place."""
        extra = len(self.place.shape) - np.ndim(array)
        if not extra:
            return array
        return np.broadcast_to(np.reshape(array, np.shape(array) + (1,) * extra), self.place.shape)


def spot(cell: Cell, place: Place, base: int) -> Spot:
    """The Spot, made on first use."""
    key = (id(place), base)
    found: Spot | None = cell.spots.get(key)
    if found is None or found.place is not place:
        if len(cell.spots) >= _LIMIT:
            cell.spots.clear()
        found = cell.spots[key] = Spot(cell, place, base)
    return found


Interned = dict[tuple[tuple[int, ...], tuple[int, ...]], Place]  # places that are views, by shape and strides


class PlaceMaker:
    """Makes the places of one operand of one intrinsic.  Equal places are one object, also between
    intrinsics."""

    def __init__(self, intrinsic: CompiledIntrinsic, operand: str, interned: Interned) -> None:
        self.interned = interned
        self.layout = intrinsic.layout(operand)
        self.coords = intrinsic.coords(operand)
        self.registers = intrinsic.in_registers(operand)
        self.affine = self.layout.coefficients() is not None
        self.scalars = self.layout.scalars
        self.known: dict[tuple[int, ...], Place] = {}

    def __call__(self, dims: Mapping[str, int], scalars: Mapping[str, Any]) -> Place:
        key = (*(dims[c] for c in self.layout.axes), *(int(scalars[s]) for s in self.scalars))
        place = self.known.get(key)
        if place is None:
            if len(self.known) >= _LIMIT:
                self.known.clear()
            place = self.known[key] = self.make(dims, {s: int(scalars[s]) for s in self.scalars})
        return place

    def make(self, dims: Mapping[str, int], scalars: Mapping[str, int]) -> Place:
        shape = tuple(dims[c] for c in self.coords)
        if self.affine:
            found = self.layout.strides(scalars) or {}
            strides = tuple(found[c] for c in self.coords)
            return self.interned.setdefault((shape, strides), Place(shape, strides, None))
        grid = self.layout.grid(dims, scalars)
        if self.layout.has_lane and not self.registers:
            raise Fault("an operand with one address per lane is not simulated here")
        offsets = grid.lane * grid.items + grid.item if self.layout.has_lane else grid.item
        return Place(offsets.shape, None, np.asarray(offsets, np.int64))
