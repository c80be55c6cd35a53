"""Integer arithmetic on arrays of fixed width that NumPy does not have as one function.

Design choice: every function keeps the dtype of its operands and wraps as the hardware does; shifts by the width and
more give what shifting everything out gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Array

_WIDER = {"i1": "i2", "u1": "u2", "i2": "i4", "u2": "u4", "i4": "i8", "u4": "u8"}


def wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(_WIDER[f"{dtype.kind}{dtype.itemsize}"])


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


def bits(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize * 8


def multiply_wide(a: Array, b: Array) -> Array:
    wide = wider(a.dtype)
    result: Array = a.astype(wide) * b.astype(wide)
    return result


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        result: Array = (multiply_wide(a, b) >> bits(a.dtype)).astype(a.dtype)
        return result
    high = _high_u64(a.view(np.uint64), b.view(np.uint64))
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, b.view(np.uint64), zero) - np.where(b < 0, a.view(np.uint64), zero)
    return high.view(a.dtype)


def _high_u64(a: Array, b: Array) -> Array:
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    result: Array = a1 * b1 + (middle >> shift) + (other >> shift)
    return result


def _divisor(b: Array) -> None:
    if (b == 0).any():
        raise Fault(FaultKind.DIVISION, "the divisor is 0")


def divide(a: Array, b: Array) -> Array:
    """Rounded to zero."""
    _divisor(b)
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    result: Array = quotient + inexact.astype(a.dtype)
    return result


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend."""
    _divisor(b)
    return np.fmod(a, b)


def shift_left(a: Array, amount: Array) -> Array:
    """amount: uint32."""
    width = bits(a.dtype)
    shifted = a << np.minimum(amount, width - 1).astype(a.dtype)
    result: Array = np.where(amount >= width, a.dtype.type(0), shifted)
    return result


def shift_right(a: Array, amount: Array) -> Array:
    """Arithmetic for signed numbers."""
    width = bits(a.dtype)
    shifted: Array = a >> np.minimum(amount, width - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(amount >= width, a.dtype.type(0), shifted)


def count_ones(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """uint32 counts."""
    width = bits(a.dtype)
    return (width - highest_bit(a.view(unsigned(a.dtype))).astype(np.int64) - 1).astype(np.uint32)


def highest_bit(a: Array) -> Array:
    """Position of the highest one of unsigned numbers as int32, -1 for 0."""
    filled = a.copy()
    step = 1
    while step < bits(a.dtype):
        filled |= filled >> a.dtype.type(step)
        step *= 2
    return np.bitwise_count(filled).astype(np.int32) - 1


def find_leading(a: Array, shift_amount: bool) -> Array:
    """Position of the highest bit that differs from the sign, 0xFFFFFFFF if none; or its distance from the top."""
    magnitude = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    at = highest_bit(magnitude.view(unsigned(a.dtype)))
    if shift_amount:
        at = np.where(at < 0, at, bits(a.dtype) - 1 - at).astype(np.int32)
    return at.view(np.uint32)


def reverse_bits(a: Array) -> Array:
    width = bits(a.dtype)
    octets = np.ascontiguousarray(a).view(np.uint8).reshape(-1, width // 8)
    flipped = np.packbits(np.unpackbits(octets, axis=1, bitorder="little"), axis=1, bitorder="big")
    return np.ascontiguousarray(flipped[:, ::-1]).view(a.dtype).reshape(-1)


def extract_field(a: Array, start: Array, length: Array) -> Array:
    """Bits start .. start + length - 1, zero- or sign-extended.  start, length: uint32, of which 8 bits count."""
    width = bits(a.dtype)
    start, length = start & np.uint32(255), length & np.uint32(255)
    plain = unsigned(a.dtype)
    value = shift_right(a.view(plain), start)
    inside = np.minimum(length, np.where(start < width, np.uint32(width) - start, np.uint32(0)))
    mask = shift_left(np.ones(1, plain), inside) - plain.type(1)
    field: Array = value & mask
    if a.dtype.kind == "u":
        return field
    top = np.minimum(start + length - np.uint32(1), np.uint32(width - 1))
    sign = (shift_right(a.view(plain), top) & plain.type(1)) != 0
    result: Array = np.where(sign & (length != 0), field | ~mask, field).view(a.dtype)
    return result


def insert_field(a: Array, b: Array, start: Array, length: Array) -> Array:
    """b with `length` bits from `start` on replaced by the lowest bits of a.  Unsigned."""
    start, length = start & np.uint32(255), length & np.uint32(255)
    mask = shift_left(shift_left(np.ones(1, a.dtype), length) - a.dtype.type(1), start)
    result: Array = (b & ~mask) | (shift_left(a, start) & mask)
    return result


def permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Four of the eight bytes of (b, a), each chosen by four bits of the selector; the fourth repeats the sign."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result = np.zeros(1, np.uint32)
    for byte in range(4):
        choice = (selector >> np.uint32(4 * byte)) & np.uint32(15)
        picked = (both >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(
            np.uint32
        ) & np.uint32(255)
        sign = np.where(picked & np.uint32(128), np.uint32(255), np.uint32(0))
        picked = np.where(choice & np.uint32(8), sign, picked).astype(np.uint32)
        result = result | (picked << np.uint32(8 * byte))
    return result


def funnel_shift(low: Array, high: Array, amount: Array, left: bool, wrap: bool) -> Array:
    """32 bits out of the 64 of (high, low)."""
    amount = amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))
    both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    wide = amount.astype(np.uint64)
    result = (both << wide) >> np.uint64(32) if left else both >> wide
    return result.astype(np.uint32)


def three_input_logic(table: int) -> Callable[[Array, Array, Array], Array]:
    """Any function of three bits, bitwise; bit 4 a + 2 b + c of the table is its value."""

    def run(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(1, a.dtype)
        for row in range(8):
            if table >> row & 1:
                term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
                result = result | term
        return result

    return run


def add_saturating(a: Array, b: Array) -> Array:
    """int32."""
    return np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)


def subtract_saturating(a: Array, b: Array) -> Array:
    return np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)


def clamp_to(values: Array, dtype: np.dtype[Any]) -> Array:
    """Integers clamped to the range of another integer type."""
    info = np.iinfo(dtype)
    here = np.iinfo(values.dtype)
    low, high = max(info.min, here.min), min(info.max, here.max)
    kind = values.dtype.type
    return np.clip(values, kind(low), kind(high)).astype(dtype)


def dot_bytes(a: Array, b: Array, c: Array, a_dtype: Any, b_dtype: Any) -> Array:
    """c + sum of products of the four bytes of a and b; wraps at 32 bits."""
    total = c.astype(np.int64)
    for byte in range(4):
        shift = np.uint32(8 * byte)
        x = (a >> shift).astype(np.uint8).view(a_dtype).astype(np.int64)
        y = (b >> shift).astype(np.uint8).view(b_dtype).astype(np.int64)
        total = total + x * y
    return (total & 0xFFFFFFFF).astype(np.uint32)
