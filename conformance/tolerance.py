"""How far a right answer may be from the reference.  Derived, never tuned.

    |got - want|  <=  u_out * |want|                     the result is rounded to its dtype
                    + 2 * ulp * u * |want|               a function with a stated accuracy of `ulp` units
                    + (g(K) * u_acc + 2 * u_in) * M      K terms are accumulated; M is the sum of their magnitudes
                    + 2 (steps - 1) * u_out * M          values on the way are rounded to the dtype too
                    + tiny                               results below the smallest normal number may be flushed

u = 2^-p is half a unit in the last place (p: bits of the significand), of the result (out), of the
accumulator (acc), and of the type to which operands are rounded first (in; 0 when they are not).  g(K) =
min(K, 4 sqrt(K)): K bounds the error of any order of summation, and with rounding errors that do not conspire
it stays below 4 sqrt(K) except with a probability of about 1e-3 per element of the worst case (N. Higham and
T. Mary, 2019).  The reference is computed in f64 and rounded once, so that it adds nothing but its last
rounding, which the first line covers.

Design choice: a tolerance is a formula over what is known about the operation, and prints as one; the one way
to allow more is an override with a reason, which the report lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES

from .data import float_limits
from .model import Mismatch

Array = np.ndarray[Any, Any]
SIGNIFICAND = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}
FUNCTION_ULP = 4.0  # what the core's own functions promise where a description states nothing
SMALLEST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "tf32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}


def unit(dtype: str) -> float:
    """Half a unit in the last place, relative; 0 for exact types."""
    return 2.0 ** -SIGNIFICAND[dtype] if dtype in SIGNIFICAND else 0.0


def growth(terms: int) -> float:
    """g(K): by how much the rounding errors of K accumulated terms can add up."""
    return min(float(terms), 4.0 * math.sqrt(terms))


@dataclass(frozen=True)
class Tolerance:
    """The bound for one result.  `terms` and `operands` matter only to operations that accumulate."""

    dtype: str
    accumulator: str = ""
    operands: str = ""  # dtype to which operands are rounded before use; empty: they are not
    terms: int = 0
    ulp: float = 0.0
    steps: int = 1  # roundings to `dtype`, the last one included
    factor: float = 1.0  # an override; the reason is in the report

    def bound(self, want: Array, magnitude: Array | None = None) -> Array:
        """The largest allowed |got - want| for each element."""
        size = np.abs(want.astype(np.float64))
        weight = size if magnitude is None else np.abs(magnitude.astype(np.float64))
        accumulated = growth(self.terms) * unit(self.accumulator or self.dtype) + 2 * unit(self.operands)
        accumulated += 2 * (self.steps - 1) * unit(self.dtype)
        rounding = unit(self.dtype) * (2 + 2 * self.ulp)  # 2: the result's own rounding and the reference's
        with np.errstate(invalid="ignore", over="ignore"):
            total = rounding * size + accumulated * weight + SMALLEST_NORMAL.get(self.dtype, 0.0)
        return np.asarray(total * self.factor)

    def __str__(self) -> str:
        parts = [f"{self.dtype} rounding"]
        if self.ulp:
            parts.append(f"{self.ulp:g} ulp")
        if self.terms:
            parts.append(f"{self.terms} terms in {self.accumulator or self.dtype}")
        if self.steps > 1:
            parts.append(f"{self.steps} roundings")
        if self.operands:
            parts.append(f"operands in {self.operands}")
        if self.factor != 1:
            parts.append(f"x {self.factor:g} (override)")
        return ", ".join(parts)


def compare(
    what: str, got: Array, want: Array, tolerance: Tolerance, magnitude: Array | None = None
) -> float:
    """The largest error as a fraction of its bound; Mismatch when it exceeds 1 or when a shape, dtype or NaN
    differs.

    Integers and booleans must be equal.  NaN must be NaN, an infinity the same infinity; where the reference
    is within its bound of the largest finite number either side of overflow is right.
    """
    if got.shape != want.shape:
        raise Mismatch(f"{what}: shape {got.shape}, expected {want.shape}")
    if DTYPES[tolerance.dtype].numpy != got.dtype:
        raise Mismatch(f"{what}: dtype {got.dtype}, expected {tolerance.dtype}")
    if tolerance.dtype not in SIGNIFICAND:
        _report(what, got, want, got != want, tolerance)
        return 0.0
    exact = want.astype(np.float64)
    have = got.astype(np.float64)
    bound = tolerance.bound(want, magnitude)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(have - exact)
        same = (have == exact) | (np.isnan(have) & np.isnan(exact))
        near = error <= bound
        overflow = np.isinf(have) & (np.abs(exact) + bound >= _largest(tolerance.dtype)) & (have * exact > 0)
        good = same | (near & np.isfinite(have) & np.isfinite(exact)) | overflow
    _report(what, got, want, ~good, tolerance)
    ratio = np.divide(error, bound, out=np.zeros_like(bound), where=~same & np.isfinite(error) & (bound > 0))
    return float(ratio.max(initial=0.0))


def _largest(dtype: str) -> float:
    numpy = DTYPES[dtype].numpy
    return float_limits(numpy)[1] if numpy is not None else 3.4e38


def _report(what: str, got: Array, want: Array, bad: Array, tolerance: Tolerance) -> None:
    count = int(np.count_nonzero(bad))
    if not count:
        return
    place = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
    first = f"at {list(place)} got {got[place]!s}, expected {want[place]!s}"
    raise Mismatch(f"{what}: {count} of {bad.size} elements differ; first {first} (allowed: {tolerance})")
