"""Floating-point arithmetic with one rounding, in every rounding mode, for formats that NumPy lacks too.

Design choice: results of narrow formats go through float64 rounded to odd, from which any rounding to fewer bits is
exact; only the few elements where plain float64 could round twice are treated that way.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from hwsdk.sim.simt.program import Array

F16, F32, F64 = (np.dtype(d) for d in (np.float16, np.float32, np.float64))
U16, U32, U64 = (np.dtype(d) for d in (np.uint16, np.uint32, np.uint64))

#: rounding modes: to nearest even, to zero, down, up, to nearest with ties away from zero
MODES = ("rn", "rz", "rm", "rp", "rna")


# ------------------------------------------------------------------------------------------------ brain floats
def from_bf16(bits: Array) -> Array:
    """uint16 bits to float32, exactly."""
    result: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return result


def to_bf16(values: Array, mode: str = "rn") -> Array:
    """float32 or float64 to uint16 bits."""
    if values.dtype == F64:
        values = to_f32(values, "odd")
    return (_shorten(values, 16, mode) >> np.uint32(16)).astype(np.uint16)


def to_tf32(values: Array, mode: str = "rna") -> Array:
    """float32 to float32 with a mantissa of 10 bits."""
    return _shorten(values, 13, mode).view(np.float32)


def _shorten(values: Array, drop: int, mode: str) -> Array:
    """float32 as bits whose lowest `drop` bits are zero after rounding."""
    bits = values.view(np.uint32)
    mask = np.uint32((1 << drop) - 1)
    half = np.uint32(1 << (drop - 1))
    negative = bits >> np.uint32(31) != 0
    if mode == "rn":
        add = half - np.uint32(1) + ((bits >> np.uint32(drop)) & np.uint32(1))
    elif mode == "rna":
        add = np.full(bits.shape, half)
    elif mode == "rz":
        add = np.zeros(bits.shape, np.uint32)
    else:
        add = np.where(negative == (mode == "rm"), mask, np.uint32(0))
    rounded = (bits + add) & ~mask
    quiet = (bits & ~mask) | np.uint32(1 << 22)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    result: Array = np.where(special, np.where(np.isnan(values), quiet, bits & ~mask), rounded)
    return result


# ------------------------------------------------------------------------------------------------ rounding
def to_odd(near: Array, error: Array) -> Array:
    """float64 `near`, the nearest to near + error: the neighbour with an odd mantissa if error is not zero."""
    bits = near.view(np.int64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(near) & ~np.isnan(error)
    if not fix.any():
        return near
    away = (error > 0) == (near > 0)
    moved = np.where(fix, np.where(away, bits + 1, bits - 1), bits)
    result: Array = moved.view(np.float64)
    return result


def to_f32(values: Array, mode: str = "rn") -> Array:
    """float64 to float32; mode "odd" keeps that digits were lost in the last bit."""
    return _narrow(values, np.float32, np.int32, mode)


def to_f16(values: Array, mode: str = "rn") -> Array:
    """float32 or float64 to float16."""
    return _narrow(values, np.float16, np.int16, mode)


def _narrow(values: Array, narrow: Any, integer: Any, mode: str) -> Array:
    near = values.astype(narrow)
    if mode == "rn":
        return near
    if mode == "rna":
        raise ValueError("ties away from zero are for short formats")
    back = near.astype(values.dtype)
    bits = near.view(integer)
    one = bits.dtype.type(1)
    if mode == "odd":
        even = (bits & one) == 0
        step = np.where(np.abs(back) < np.abs(values), one, -one)
        fix = (back != values) & even & np.isfinite(values)
        odd: Array = np.where(fix, bits + np.where(np.isinf(near), -one, step), bits).view(narrow)
        return odd
    too_far = {
        "rz": np.abs(back) > np.abs(values),
        "rm": back > values,
        "rp": back < values,
    }[mode]
    grows = {"rz": np.zeros(bits.shape, bool), "rm": values < 0, "rp": values > 0}[mode]
    step = np.where(grows, one, -one)
    # a result of the other sign's zero: the smallest number towards the right side
    moved = np.where(too_far, bits + step, bits)
    result: Array = moved.view(narrow)
    return result


def rounded(values: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """float64, rounded to odd where it is not exact, to a narrower format."""
    return to_f32(values, mode) if dtype == F32 else to_f16(values, mode)


# ------------------------------------------------------------------------------------------------ arithmetic
def sum_with_error(a: Array, b: Array) -> tuple[Array, Array]:
    """The nearest float64 to a + b, and what is missing."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fma_wide(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of narrow operands in float64, rounded to odd.  The product of two float32 is exact."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return to_odd(*sum_with_error(product, c.astype(np.float64)))


_ONE, _BELOW_F32, _HALF_F32 = np.uint64(1), np.uint64(0x1FFFFFFF), np.uint64(0x10000000)
_TINY_F32 = (np.array(2.0**-125).view(np.uint64) << _ONE) - _ONE


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """float32 with one rounding to nearest."""
    total = a.astype(np.float64) * b
    total = total + c
    bits = total.view(np.uint64)
    # halfway between two float32, or too small for a normal one (zero less one is the largest number)
    tie = (bits & _BELOW_F32) == _HALF_F32
    if np.count_nonzero(tie) or np.minimum.reduce((bits << _ONE) - _ONE) < _TINY_F32:
        return fma_wide(a, b, c).astype(np.float32)
    return total.astype(np.float32)


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    return fma_wide(a, b, c).astype(np.float16)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """On uint16 bits."""
    return to_bf16(fma_wide(from_bf16(a), from_bf16(b), from_bf16(c)))


_SPLIT = 134217729.0  # 2**27 + 1


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """float64 with one rounding: exact products and sums, the last sum rounded to odd first (Boldo and Melquiond);
    extreme exponents by rational arithmetic."""
    a, b, c = np.broadcast_arrays(a, b, c)
    high = a * b
    low = _product_error(a, b, high)
    sum_low, error_low = sum_with_error(c, low)
    sum_high, error_high = sum_with_error(high, sum_low)
    result: Array = np.array(sum_high + to_odd(*sum_with_error(error_high, error_low)))
    size_ab, size_c = np.abs(high), np.abs(c)
    limits = (2.0**-900, 2.0**900)
    safe = (size_ab > limits[0]) & (size_ab < limits[1]) & (np.abs(a) < limits[1]) & (np.abs(b) < limits[1])
    safe &= ((size_c > limits[0]) & (size_c < limits[1])) | (c == 0)
    plain = (a == 0) | (b == 0) | ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    result[plain] = (a * b + c)[plain]
    for at in np.flatnonzero(~safe & ~plain).tolist():
        result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return result


def _product_error(a: Array, b: Array, product: Array) -> Array:
    def halves(x: Array) -> tuple[Array, Array]:
        t = _SPLIT * x
        high = t - (t - x)
        return high, x - high

    a_high, a_low = halves(a)
    b_high, b_low = halves(b)
    result: Array = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return result


def _exact_fma(a: float, b: float, c: float) -> float:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        return a * b + c  # the signs of zero follow the plain rule, as the product is exact then
    try:
        return float(total)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def directed(
    function: Callable[[Array, Array], Array], dtype: np.dtype[Any], mode: str
) -> Callable[[Array, Array], Array]:
    """add, subtract, multiply or divide of a narrow format in a rounding mode."""

    def run(a: Array, b: Array) -> Array:
        x, y = a.astype(np.float64), b.astype(np.float64)
        near = function(x, y)
        if function is np.divide:
            error = np.where(np.isfinite(near) & (y != 0), -np.sign(y) * _remainder(near, y, x), 0.0)
        elif function is np.multiply:
            error = np.zeros(1)
        else:
            near, error = sum_with_error(x, y if function is np.add else -y)
        return rounded(to_odd(near, np.broadcast_to(error, near.shape)), dtype, mode)

    return run


def _remainder(quotient: Array, divisor: Array, dividend: Array) -> Array:
    """quotient * divisor - dividend with its right sign."""
    product = quotient * divisor
    result: Array = (product - dividend) + _product_error(quotient, divisor, product)
    return result


def directed_sqrt(values: Array, dtype: np.dtype[Any], mode: str) -> Array:
    wide = values.astype(np.float64)
    root = np.sqrt(wide)
    error = np.where(np.isfinite(root), -_remainder(root, root, wide), 0.0)
    return rounded(to_odd(root, error), dtype, mode)


def flush(values: Array) -> Array:
    """float32 with subnormal numbers made zero, the sign kept."""
    bits = values.view(np.uint32)
    small = (bits & np.uint32(0x7F800000)) == 0
    if not small.any():
        return values
    result: Array = np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)
    return result


def saturate(values: Array) -> Array:
    """To 0 .. 1; NaN becomes 0."""
    one = values.dtype.type(1)
    zero = values.dtype.type(0)
    result: Array = np.where(np.isnan(values) | (values <= 0), zero, np.minimum(values, one))
    return result


def minimum(a: Array, b: Array) -> Array:
    """The number if the other is NaN; -0 is less than +0."""
    result = np.fmin(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both, np.where(np.signbit(a), a, b), result) if both.any() else result


def maximum(a: Array, b: Array) -> Array:
    result = np.fmax(a, b)
    both = (a == 0) & (b == 0)
    return np.where(both, np.where(np.signbit(a), b, a), result) if both.any() else result


def or_nan(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """NaN if either operand is."""

    def run(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), function(a, b))

    return run


def in_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of narrow floats evaluated in float64: at most one rounding away from the true value."""

    def run(a: Array) -> Array:
        result: Array = function(a.astype(np.float64)).astype(a.dtype)
        return result

    return run


# ------------------------------------------------------------------------------------------------ to integers
_ROUND: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def integral(values: Array, mode: str) -> Array:
    return _ROUND[mode](values)


def to_integer(values: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Rounded and clamped to the range.  NaN: 0, or the highest bit alone where either side has 64 bits."""
    whole = integral(values.astype(np.float64), mode)
    info = np.iinfo(dtype)
    low, high = float(info.min), float(info.max)
    inside = np.clip(np.nan_to_num(whole, nan=0.0, posinf=high, neginf=low), low, high)
    exact = inside < 2.0 ** (dtype.itemsize * 8 - (dtype.kind == "i"))
    result: Array = np.where(exact, inside, 0.0).astype(dtype)
    if not exact.all():
        result = np.where(exact, result, dtype.type(info.max))
    nan = np.isnan(values)
    if nan.any() and (values.dtype == F64 or dtype.itemsize == 8):
        highest = np.array(1 << (dtype.itemsize * 8 - 1), f"u{dtype.itemsize}").view(dtype)
        result = np.where(nan, highest, result)
    return result


def from_integer(values: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Integers to float16, float32 or float64 with one rounding."""
    if mode == "rn" and dtype != F16:
        result: Array = values.astype(dtype)
        return result
    wide = values.astype(np.float64)
    if values.dtype.itemsize == 8:
        wide = to_odd(wide, _integer_error(values, wide))
    if dtype == F64:
        return _directed_f64(values, mode)
    return rounded(wide, dtype, mode)


def _integer_error(values: Array, near: Array) -> Array:
    """The sign of value - near."""
    back = [int(v) - int(n) for v, n in zip(values.tolist(), near.tolist())]
    return np.array([float((b > 0) - (b < 0)) for b in back])


def _directed_f64(values: Array, mode: str) -> Array:
    near = values.astype(np.float64)
    error = _integer_error(values, near)
    bits = near.view(np.int64)
    down = {"rz": (error < 0) == (near > 0), "rm": error < 0, "rp": error > 0}[mode] & (error != 0)
    grows = {"rz": np.zeros(bits.shape, bool), "rm": near < 0, "rp": near > 0}[mode]
    result: Array = np.where(down, bits + np.where(grows, 1, -1), bits).view(np.float64)
    return result
