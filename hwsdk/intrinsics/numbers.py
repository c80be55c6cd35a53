"""How values are stored, converted and rounded: the arithmetic below the evaluator.

Design choice: integers are computed in their own NumPy type, so wrapping modulo 2^n is what the machine does; floats
are computed in f64 and rounded, or exactly with error-free transformations where one rounding is promised.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.intrinsics.syntax import SemanticsError

Array = np.ndarray[Any, Any]
_F64 = np.dtype(np.float64)


def storage(dtype: str) -> np.dtype[Any]:
    """NumPy type of an operand's array; tf32 is held in f32."""
    return np.dtype(np.float32) if dtype == "tf32" else numpy_dtype(dtype)


def working(dtype: str) -> np.dtype[Any]:
    """NumPy type in which values of `dtype` are computed."""
    entry = DTYPES[dtype]
    if entry.kind in "iu" and entry.bits < 8:
        return np.dtype(np.int8 if entry.kind == "i" else np.uint8)
    return storage(dtype)


def limits(dtype: str) -> tuple[int, int]:
    """Least and greatest integer of an integer dtype."""
    entry = DTYPES[dtype]
    if entry.kind == "i":
        return -(1 << entry.bits - 1), (1 << entry.bits - 1) - 1
    return 0, (1 << entry.bits) - 1


def smallest_normal(dtype: str) -> float:
    return float(_info(dtype).smallest_normal)


def _info(dtype: str) -> Any:
    return ml_dtypes.finfo(storage(dtype))  # type: ignore[no-untyped-call]


def wrapped(values: Array, dtype: str) -> Array:
    """Reduce integers that were computed in a wider or signed type modulo 2^bits of `dtype`."""
    bits, signed = DTYPES[dtype].bits, DTYPES[dtype].kind == "i"
    work = working(dtype)
    if values.dtype == work and bits >= 8:
        return values
    out = values.astype(work)
    if bits < 8:
        out = out & np.uint8(15) if not signed else ((out & np.int8(15)) ^ np.int8(8)) - np.int8(8)
    return out


def flushed(values: Array, dtype: str) -> Array:
    """Denormal floats become zero."""
    small = np.abs(values.astype(np.float64)) < smallest_normal(dtype)
    return np.where(small, np.copysign(np.zeros((), values.dtype), values), values).astype(values.dtype)


# -------------------------------------------------------------------------------------------------------- conversions
def convert(values: Array, dtype: str, modifiers: tuple[str, ...] = ()) -> Array:
    """The cast of the language: floats round to nearest even; integers wrap, or clamp with `sat`."""
    values = np.asarray(values)
    kind = DTYPES[dtype].kind
    if kind == "f":
        return _to_float(values, dtype, "sat" in modifiers)
    if kind == "b":
        return values.astype(bool)
    if values.dtype.kind in "iub" or values.dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        return _integer_to_integer(values, dtype, "sat" in modifiers)
    return _float_to_integer(values, dtype, modifiers)


def _to_float(values: Array, dtype: str, saturate: bool) -> Array:
    if dtype == "tf32":  # f32 with 10 bits of mantissa, to nearest even
        raw = values.astype(np.float32)
        bits = raw.view(np.uint32)
        short = ((bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(
            np.float32
        )
        return np.where(np.isfinite(raw), short, raw)
    target = storage(dtype)
    if values.dtype == target and not saturate:
        return values
    if saturate:
        top = float(_info(dtype).max)
        wide = values.astype(np.float64)
        values = np.where(np.isnan(wide), wide, np.clip(wide, -top, top))
    if values.dtype == _F64 and target.itemsize <= 2:
        values = _odd_f32(values)  # casts to narrow types go through f32; rounding to odd keeps them right
    elif target.itemsize <= 2 and values.dtype.kind in "iu" and values.dtype.itemsize > 2:
        values = _odd_f32(values.astype(np.float64))
    with np.errstate(all="ignore"):
        return values.astype(target)


def _odd_f32(values: Array) -> Array:
    """f64 to f32, an inexact result with its last bit set: a later rounding to a narrow type is then correct."""
    with np.errstate(all="ignore"):
        near = values.astype(np.float32)
        error = values - near
    inexact = np.isfinite(near) & (error != 0)
    if not inexact.any():
        return near
    bits = near.view(np.int32)
    away = (error > 0) == (near > 0)  # the exact value lies further from zero than `near`
    even = (bits & 1) == 0
    stepped = np.where(
        near == 0, np.where(error > 0, 1, np.int32(-2147483647)), np.where(away, bits + 1, bits - 1)
    )
    return np.where(inexact & even, stepped.astype(np.int32), bits).view(np.float32)


def _integer_to_integer(values: Array, dtype: str, saturate: bool) -> Array:
    if values.dtype.kind not in "iub":
        values = values.astype(np.int8 if values.dtype == np.dtype(ml_dtypes.int4) else np.uint8)
    if not saturate:
        return wrapped(values, dtype)
    low, high = limits(dtype)
    info = np.iinfo(values.dtype) if values.dtype != bool else None
    if info is not None:
        values = np.clip(values, max(low, int(info.min)), min(high, int(info.max)))
    return wrapped(values, dtype)


def _float_to_integer(values: Array, dtype: str, modifiers: tuple[str, ...]) -> Array:
    low, high = limits(dtype)
    mode = next((m for m in modifiers if m != "sat"), "rtz")
    rounding = {"rtz": np.trunc, "rne": np.rint, "floor": np.floor, "ceil": np.ceil}[mode]
    with np.errstate(all="ignore"):
        whole = rounding(values.astype(np.float64))
    above, below = whole >= float(high) + 1, whole < low
    if "sat" not in modifiers and bool(np.any(above | below | np.isnan(whole))):
        raise SemanticsError(f"a value does not fit {dtype}; the result is undefined without .sat")
    inside = np.where(above | below | np.isnan(whole), 0.0, whole)
    wide = inside.astype(np.uint64 if dtype == "u64" else np.int64)
    wide = np.where(above, wide.dtype.type(high), np.where(below, wide.dtype.type(low), wide))
    return wrapped(wide, dtype)


# ------------------------------------------------------------------------------------------------ one rounding: x*y + z
def fused(x: Array, y: Array, z: Array, dtype: str) -> Array:
    """x*y + z rounded once."""
    with np.errstate(all="ignore"):
        if dtype != "f64":  # the product of two narrower floats is exact in f64
            product = x.astype(np.float64) * y
            return convert(sum_odd(product, z.astype(np.float64)), dtype)
        return _fused_f64(*np.broadcast_arrays(*(v.astype(np.float64) for v in (x, y, z))))


def sum_odd(a: Array, b: Array) -> Array:
    """a + b with an inexact result rounded to odd, so that one more rounding gives the right answer."""
    near = a + b
    t = near - a
    error = (a - (near - t)) + (b - t)
    bits = near.view(np.int64)
    fix = np.isfinite(near) & np.isfinite(error) & (error != 0) & ((bits & 1) == 0)
    if not np.any(fix):
        return near
    away = (error > 0) == (near > 0)
    return np.where(fix, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def _fused_f64(x: Array, y: Array, z: Array) -> Array:
    """Boldo and Melquiond's emulation where no exponent is extreme; exact fractions for the few others."""
    high, low = _two_product(x, y)
    t_high, t_low = _two_sum(z, low)
    v_high, v_low = _two_sum(high, t_high)
    out = np.array(v_high + sum_odd(t_low, v_low))
    safe = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    for part in (x, y, x * y, z):
        size = np.abs(part)
        safe &= (size == 0) | ((size > 1e-140) & (size < 1e140))
    for place in np.argwhere(~safe):
        at = tuple(place)
        out[at] = _fused_one(float(x[at]), float(y[at]), float(z[at]))
    return out


def _fused_one(x: float, y: float, z: float) -> float:
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        product = np.float64(x) * np.float64(y)  # no product of finite numbers is infinite before rounding
        return float(z if np.isfinite(x) and np.isfinite(y) else product + z)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return float(np.float64(x) * np.float64(y) + np.float64(z)) if (x == 0 or y == 0) else 0.0
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high
