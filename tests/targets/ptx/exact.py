"""Exact arithmetic to compare with: any real number rounded to a binary format, by rational numbers alone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
DTYPES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


def value(bits: int, name: str) -> float:
    """What the bits mean (every format is a subset of float64)."""
    digits, low, high = FORMATS[name]
    width = digits + (high - low + 1).bit_length()
    field, mantissa = bits >> (digits - 1) & ((1 << (width - digits)) - 1), bits & ((1 << (digits - 1)) - 1)
    sign = -1.0 if bits >> (width - 1) else 1.0
    if field == (1 << (width - digits)) - 1:
        return math.nan if mantissa else sign * math.inf
    if field == 0:
        return sign * math.ldexp(mantissa, low - digits + 1)
    return sign * math.ldexp(mantissa | 1 << (digits - 1), field - 1 + low - digits + 1)


def rounded(number: Fraction, name: str, mode: str = "rn", negative_zero: bool = False) -> float:
    """`number` in the format; overflow as IEEE 754 has it."""
    digits, low, high = FORMATS[name]
    if number == 0:
        return -0.0 if negative_zero else 0.0
    size = abs(number)
    exponent = max(low, size.numerator.bit_length() - size.denominator.bit_length() - 1)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - digits + 1)
    count = size / step
    down = count.numerator // count.denominator
    rest = count - down
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": number < 0 and rest > 0,
        "rp": number > 0 and rest > 0,
    }[mode]
    result = (down + up) * step
    sign = -1.0 if number < 0 else 1.0
    if result >= Fraction(2) ** (high + 1):
        grows = mode in ("rn", "rna") or (mode == "rp" and number > 0) or (mode == "rm" and number < 0)
        return sign * (
            math.inf if grows else float((2 - Fraction(1, 1 << (digits - 1))) * Fraction(2) ** high)
        )
    return sign * float(result)


def values(bits: npt.NDArray[Any], name: str) -> list[float]:
    return [value(int(b), name) for b in bits.tolist()]


def same(a: float, b: float) -> bool:
    """Equal with the sign of zero, all NaN alike."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def samples(name: str, count: int, seed: int) -> npt.NDArray[Any]:
    """Bits of special values, of random ones near 1, and of any."""
    digits, low, high = FORMATS[name]
    width = digits + (high - low + 1).bit_length()
    rng = np.random.default_rng(seed)
    infinity = ((1 << (width - digits)) - 1) << (digits - 1)
    one = -low << (digits - 1)
    special = [
        0,
        1,
        2,
        one,
        one + 1,
        one - 1,
        infinity,
        infinity - 1,
        infinity | 1 << (digits - 2),
        1 << (digits - 1),
    ]
    special += [(1 << (digits - 1)) - 1]
    special += [s | 1 << (width - 1) for s in special]
    near = rng.integers(0, 1 << (digits + 2), count // 2).astype(object) + (one - (1 << digits))
    near = [int(n) | (int(s) << (width - 1)) for n, s in zip(near, rng.integers(0, 2, count // 2))]
    free = (
        [int(n) for n in rng.integers(0, 1 << 63, count, dtype=np.uint64) >> np.uint64(63 - width)]
        if width < 64
        else []
    )
    free = free or [int(n) for n in rng.integers(0, 2**64, count, dtype=np.uint64)]
    chosen = (special + near + free)[:count]
    order = rng.permutation(len(chosen))
    return np.array([chosen[i] for i in order], DTYPES[name])
