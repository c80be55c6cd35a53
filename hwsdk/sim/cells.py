"""Storage of the machine: one Cell for every live buffer, with what is known about each of its elements.

    state     one byte per element: bit 0 initialised, bit 1 an asynchronous copy is writing it, the rest
              counts the asynchronous copies that are reading it
    writers   which iteration of the parallel loop wrote (read) it since the last barrier: a tag of 1..254,
              255 for
    readers   an older iteration or several; only for buffers that iterations share

Design choice: states are bytearrays with a NumPy view over them.  A vector of 16 elements is checked by
`bytearray.count` in 0.1 microseconds, ten times faster than by a NumPy reduction; long accesses use the view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Buffer
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import SimulationError

Array = np.ndarray[Any, np.dtype[Any]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

VALID, PENDING, READING = 1, 2, 4  # READING is one asynchronous reader; up to 63 of them
MAX_READERS = 63


class Cell:
    """One live buffer.  `flat` is its storage, `raw` the same bytes, `valid` the states as an array."""

    __slots__ = (
        "asynchronous",
        "dtype",
        "flat",
        "itemsize",
        "maker",
        "maker_since",
        "name",
        "number",
        "param",
        "place",
        "raw",
        "read",
        "read_peak",
        "readers",
        "readers_view",
        "ready",
        "ready_peak",
        "shape",
        "size",
        "spots",
        "state",
        "strides",
        "tags",
        "taken",
        "tracked",
        "valid",
        "writers",
        "writers_view",
        "writes",
    )

    def __init__(
        self, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...], flat: Array, valid: int | None
    ):
        self.name, self.place = buffer.name, buffer.place
        self.shape, self.strides = shape, strides
        self.flat, self.size, self.dtype = flat, flat.size, flat.dtype
        self.itemsize = flat.dtype.itemsize
        self.raw: Bytes = flat.view(np.uint8)
        self.state = bytearray(0) if valid is None else bytearray(b"\1" if valid else b"\0") * flat.size
        self.valid = _view(self.state)
        self.writers = self.readers = bytearray(0)
        self.writers_view = self.readers_view = _view(self.writers)
        self.tags: list[str] = []
        self.number = -1  # of the buffer in the program
        self.taken = 0  # bytes of its place
        self.asynchronous = False  # a copy that was not waited for may be at work on it
        self.param = False  # bound by the caller; several may share storage
        self.tracked = True  # something may write it: the timeline follows its elements
        self.spots: dict[tuple[int, int], Any] = {}  # operands of intrinsics, made ready
        self.start_times()

    def start_times(self) -> None:
        """The timeline's knowledge: nothing yet.

        ready, read: when each element is there, and was read last.  writes counts writes by intrinsics; since
        number maker_since, all were accumulations by `maker`.
        """
        self.ready: Array | None = None
        self.read: Array | None = None
        self.ready_peak = self.read_peak = 0.0  # the latest of all elements
        self.writes = self.maker_since = self.maker = 0
        self.spots.clear()

    def share(self) -> None:
        """Start to watch what iterations of the parallel loop do to the elements."""
        self.writers, self.readers = bytearray(self.size), bytearray(self.size)
        self.writers_view, self.readers_view = _view(self.writers), _view(self.readers)

    def forget(self, older: bool) -> None:
        """A barrier orders all accesses (older False); or the tags are used up and become "an older
        iteration"."""
        for view in (self.writers_view, self.readers_view):
            view[view > 0] = 255 if older else 0

    def iteration(self, tag: int) -> str:
        """The iteration behind a tag, for messages."""
        return self.tags[tag - 1] if 0 < tag <= len(self.tags) else "another iteration"

    def element(self, offset: int) -> str:
        """`name[i, j]` of an offset in elements."""
        index, rest = [0] * len(self.shape), offset
        for axis in sorted(range(len(self.shape)), key=lambda a: -self.strides[a]):
            step = self.strides[axis]
            index[axis] = min(rest // step, max(self.shape[axis] - 1, 0)) if step > 0 else 0
            rest -= index[axis] * step
        text = f"{self.name}[{', '.join(map(str, index))}]"
        return text if rest == 0 else f"{text} + {rest} elements"


def _view(state: bytearray) -> Bytes:
    return np.frombuffer(state, np.uint8) if state else np.zeros(0, np.uint8)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a dense array."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of storage that a buffer needs."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))


def storage_of(array: Array, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The flat storage behind an array that is bound to a param; SimulationError if it does not fit."""
    wanted = numpy_dtype(buffer.dtype)
    if array.dtype != wanted:
        raise SimulationError(f"param {buffer.name} is {buffer.dtype}, the array bound to it {array.dtype}")
    need = span(shape, strides)
    if array.flags.c_contiguous and (
        array.size == need or (buffer.strides is not None and array.size >= need)
    ):
        return array.reshape(-1)
    if array.shape == shape and array.strides == tuple(s * wanted.itemsize for s in strides):
        return np.lib.stride_tricks.as_strided(array, (need,), (wanted.itemsize,))
    dense = "" if array.flags.c_contiguous else " and is not dense"
    raise SimulationError(
        f"param {buffer.name} has shape {list(shape)} and strides {list(strides)},"
        f" the array bound to it has shape {list(array.shape)}{dense}"
    )


def bytes_of(shape: Sequence[int], strides: Sequence[int], itemsize: int, align: int, row: int) -> int:
    """What a buffer takes of its place: rounded up to `align`; `row` is the size of a register, 0 elsewhere.

    In registers every row of the last axis begins a register.
    """
    if row and len(shape) > 0:
        rows = math.prod(shape[:-1])
        return rows * -(-shape[-1] * itemsize // row) * row
    size = span(shape, strides) * itemsize
    return -(-size // align) * align if align > 1 else size
