"""Bytes with a state per byte: allocated, written, read-only, freed, being written by a copy or read by a product.

Design choice: the state is an array of bytes beside the data, looked at through the same widths, so that checking an
access of n bytes is one gather and one comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.sim.simt.program import Array

ALLOCATED, VALID, READ_ONLY, FREED, PENDING, READING = 1, 2, 4, 8, 16, 32
READ_MASK, READ_WANT = ALLOCATED | VALID | PENDING, ALLOCATED | VALID
WRITE_MASK, WRITE_WANT = ALLOCATED | READ_ONLY | PENDING | READING, ALLOCATED

U8 = np.dtype(np.uint8)
UNSIGNED = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}
_REPEAT = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


def repeated(state: int, unit: int) -> Array:
    """The state of `unit` bytes, as one number."""
    return np.array([state * _REPEAT[unit]], UNSIGNED[unit])


_STATES = {(state, unit): repeated(state, unit) for state in range(64) for unit in (1, 2, 4, 8)}


class Storage:
    """size_bytes is rounded up to 32.  Memory is committed by the operating system when it is touched."""

    def __init__(self, size_bytes: int) -> None:
        size = -(-max(size_bytes, 1) // 32) * 32
        self.size_bytes = size
        self.data = np.zeros(size, np.uint8)
        self.state = np.zeros(size, np.uint8)
        self._views: dict[np.dtype[Any], Array] = {}
        self._states = {n: self.state.view(d) for n, d in UNSIGNED.items()}

    def view(self, dtype: np.dtype[Any]) -> Array:
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.data.view(dtype)
        return found

    def all_states(self, offsets: Array, size: int, mask: int, want: int) -> bool:
        """Do all bytes of accesses of `size` bytes at aligned offsets have state `want` under `mask`?  False as well
        for offsets outside."""
        unit = min(size, 8)
        index = offsets >> _shift(unit, offsets)
        try:
            for step in range(max(1, size // 8)):
                seen = self._states[unit][index + step if step else index]
                if ((seen & _STATES[mask, unit]) != _STATES[want, unit]).any():
                    return False
        except IndexError:
            return False
        return True

    def has_state(self, offsets: Array, size: int, bit: int) -> bool:
        """Has the first byte of every access the bit?  Offsets must be inside."""
        return bool((self.state[offsets] & bit).all())

    def set_states(self, offsets: Array, size: int, state: int) -> None:
        unit = min(size, 8)
        index = offsets >> _shift(unit, offsets)
        for step in range(max(1, size // 8)):
            self._states[unit][index + step if step else index] = _STATES[state, unit]

    def start_reading(self, offsets: Array, size: int) -> None:
        """Until `stop_reading` nobody may write there."""
        for step in range(size // 8):
            self._states[8][(offsets >> 3) + step] |= _STATES[READING, 8]

    def stop_reading(self, offsets: Array, size: int) -> None:
        for step in range(size // 8):
            self._states[8][(offsets >> 3) + step] &= ~_STATES[READING, 8]

    def gather(self, offsets: Array, dtype: np.dtype[Any], count: int) -> list[Array]:
        """`count` consecutive elements at each offset."""
        view = self.view(dtype)
        index = offsets >> _shift(dtype.itemsize, offsets)
        return [view[index + j if j else index] for j in range(count)]

    def scatter(self, offsets: Array, values: list[Array]) -> None:
        """Consecutive elements to each offset; where offsets are equal the last lane wins."""
        for j, value in enumerate(values):
            index = offsets >> _shift(value.dtype.itemsize, offsets)
            self.view(value.dtype)[index + j if j else index] = value

    def first_bad(self, offsets: Array, size: int, mask: int, want: int) -> tuple[int, int, int]:
        """After `all_states` said no: (position of the lane, offset of the byte, its state; 0 outside)."""
        for lane, start in enumerate(offsets.tolist()):
            for at in range(start, start + size):
                state = int(self.state[at]) if 0 <= at < self.size_bytes else 0
                if state & mask != want:
                    return lane, at, state
        return 0, int(offsets[0]), 0


def _shift(unit: int, like: Array) -> Any:
    return like.dtype.type(unit.bit_length() - 1)
