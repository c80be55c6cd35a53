"""Conversions and the fused product against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from hwsdk.intrinsics.numbers import convert, flushed, fused, limits, sum_odd, wrapped
from hwsdk.intrinsics.syntax import SemanticsError


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_integers_wrap_or_clamp() -> None:
    x = np.array([300, -300, 127, -129, 5], np.int32)
    assert convert(x, "i8").tolist() == [44, -44, 127, 127, 5]
    assert convert(x, "i8", ("sat",)).tolist() == [127, -128, 127, -128, 5]
    assert convert(x, "u8", ("sat",)).tolist() == [255, 0, 127, 0, 5]
    assert convert(np.array([7, 8, -9, 15], np.int32), "i4").astype(int).tolist() == [7, -8, 7, -1]
    assert convert(np.array([-1], np.int64), "u64").tolist() == [2**64 - 1]
    assert convert(np.array([2**63], np.uint64), "i64", ("sat",)).tolist() == [2**63 - 1]
    assert wrapped(np.array([17], np.int64), "u4").tolist() == [1]


def test_floats_to_integers() -> None:
    x = f32(2.5, -2.5, 3.5, 1.999)
    assert convert(x, "i32").tolist() == [2, -2, 3, 1]
    assert convert(x, "i32", ("rne",)).tolist() == [2, -2, 4, 2]
    assert convert(x, "i32", ("floor",)).tolist() == [2, -3, 3, 1]
    assert convert(x, "i32", ("ceil",)).tolist() == [3, -2, 4, 2]
    assert convert(f32(np.inf, -np.inf, np.nan, 1e20), "i32", ("sat",)).tolist() == [
        2**31 - 1,
        -(2**31),
        0,
        2**31 - 1,
    ]
    assert convert(f32(1e30), "i64", ("sat",)).tolist() == [2**63 - 1]
    assert convert(f32(1e30), "u64", ("sat",)).tolist() == [2**64 - 1]
    with pytest.raises(SemanticsError, match="does not fit i8"):
        convert(f32(128.0), "i8")
    assert limits("i4") == (-8, 7)


def test_narrow_floats_are_rounded_once() -> None:
    half = 1 + 2.0**-8  # half way between two bf16 numbers
    values = np.array([half, half + 2.0**-40, half - 2.0**-40, -half - 2.0**-40, 2.0**-140])
    want = [1.0, 1 + 2.0**-7, 1.0, -1 - 2.0**-7, 0.0]
    got = convert(values, "bf16").astype(float)
    assert got[:4].tolist() == want[:4]
    assert convert(np.array([65519.99, 65520.0, 1e9]), "f16").astype(float).tolist() == [
        65504.0,
        np.inf,
        np.inf,
    ]
    assert convert(np.array([1e9, -np.inf, np.nan]), "f16", ("sat",)).astype(float).tolist()[:2] == [
        65504.0,
        -65504.0,
    ]
    assert convert(f32(1 + 2.0**-11, 1 + 2.0**-10, np.inf), "tf32").tolist() == [1.0, 1 + 2.0**-10, np.inf]


def test_denormals_can_be_flushed_with_their_sign() -> None:
    tiny = float(ml_dtypes.finfo(np.float32).smallest_normal)
    out = flushed(f32(tiny / 2, -tiny / 2, tiny, np.nan), "f32")
    assert out[:3].tolist() == [0.0, -0.0, tiny]
    assert np.signbit(out[1])
    assert np.isnan(out[3])


def exact(x: float, y: float, z: float, kind: type) -> float:
    if not np.isfinite([x, y, z]).all():
        return float(kind(x) * kind(y) + kind(z))
    value = Fraction(x) * Fraction(y) + Fraction(z)
    if kind is np.float64:
        return float(value)
    low, high = np.float32(float(value)), np.float32(float(value))
    best = min(
        (np.nextafter(low, np.float32(-np.inf)), low, np.nextafter(high, np.float32(np.inf))),
        key=lambda c: (abs(Fraction(float(c)) - value), int(np.float32(c).view(np.int32)) & 1),
    )
    return float(best)


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f64", np.float64)])
def test_fused_is_one_rounding(dtype: str, kind: type) -> None:
    rng = np.random.default_rng(3)
    for spread in (1, 8, 40):
        x, y = (
            kind(rng.standard_normal(200) * np.exp2(rng.integers(-spread, spread, 200))) for _ in range(2)
        )
        near = kind(-(x * y) * (1 + rng.integers(-2, 3, 200) * np.finfo(kind).eps))  # cancellation
        z = np.where(rng.random(200) < 0.5, near, kind(rng.standard_normal(200)))
        got = fused(x, y, z, dtype)
        want = [exact(float(a), float(b), float(c), kind) for a, b, c in zip(x, y, z, strict=True)]
        assert got.dtype == kind
        assert got.tolist() == want


def test_fused_at_the_edges() -> None:
    big, tiny = 1e308, 5e-324
    x = np.array([big, big, tiny, 1.0, np.inf, np.inf, 0.0, 1e-200, 2.0])
    y = np.array([10.0, 10.0, 0.5, np.nan, 0.0, 2.0, -3.0, 1e-200, 3.0])
    z = np.array([1.0, -np.inf, 0.0, 1.0, 1.0, -np.inf, 0.0, 1e-300, -6.0])
    got = fused(x, y, z, "f64")
    assert got[:3].tolist() == [np.inf, -np.inf, 0.0]
    assert np.isnan(got[3:6]).all()
    assert got[6:].tolist() == [0.0, 1e-300, 0.0]


def test_sum_rounded_to_odd() -> None:
    a, b = np.array([1.0, 1.0, -1.0]), np.array([2.0**-60, -(2.0**-60), 2.0**-60])
    out = sum_odd(a, b)
    assert (out.view(np.int64) & 1).tolist() == [1, 1, 1]
    assert np.array_equal(np.abs(out - a) < 2.0**-51, [True] * 3)
