"""Where the elements of an intrinsic's operand lie in a buffer: a strided view if the layout is affine,
offsets if not.

A buffer in registers holds the items of lane 0, then those of lane 1, and so on; a buffer in memory holds
items.

Design choice: a Place is made once for given extents and strides and then only moved to a base offset, so
that one use of a 16x16x16 product costs three NumPy views and not 768 offsets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk.intrinsics import CompiledIntrinsic
from hwsdk.sim.cells import Array, Cell, Integers
from hwsdk.sim.faults import Fault

_LIMIT = 4096  # places kept per operand


class Place:
    """Elements of an operand relative to its base.  strides: of the view, or None where `offsets` must be
    used."""

    __slots__ = ("high", "low", "offsets", "runs", "shape", "size", "strides")

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

    def _runs(self) -> tuple[int, int]:
        """(how many, elements each) of the dense pieces, for the granules of a transfer."""
        if self.strides is None:
            return self.size, 1
        length = 1
        for stride, extent in sorted(zip(self.strides, self.shape)):
            if stride == length:
                length *= extent
        return (self.size // length if length else 0), length

    def view(self, storage: Any, dtype: Any, itemsize: int, base: int) -> Array:
        """The elements in one of a cell's arrays (its storage, its states, its times)."""
        assert self.strides is not None
        strides = tuple(s * itemsize for s in self.strides)
        return np.ndarray(self.shape, dtype, storage, base * itemsize, strides)

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

    def inside(self, cell: Cell, base: int) -> bool:
        """Do all elements lie in the cell's storage?"""
        return not self.size or (base + self.low >= 0 and base + self.high < cell.size)

    def require(self, cell: Cell, base: int, operand: str) -> None:
        """Fault unless all elements lie in the cell's storage."""
        if not self.inside(cell, base):
            first, last = base + self.low, base + self.high
            raise Fault(
                f"out of bounds: operand {operand} touches elements {first}..{last} of {cell.name},"
                f" which has {cell.size}"
            )


class PlaceMaker:
    """Makes and keeps the places of one operand of one intrinsic."""

    def __init__(self, intrinsic: CompiledIntrinsic, operand: str) -> None:
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
            strides = self.layout.strides(scalars) or {}
            return Place(shape, tuple(strides[c] for c in self.coords), None)
        grid = self.layout.grid(dims, scalars)
        if self.layout.has_lane and not self.registers:
            raise Fault("an operand with one address per lane is not simulated here")
        offsets = grid.lane * grid.items + grid.item if self.layout.has_lane else grid.item
        return Place(offsets.shape, None, np.asarray(offsets, np.int64))
