"""Derived tolerances: what they allow and what they refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hwsdk.conformance.model import Mismatch
from hwsdk.conformance.tolerance import Tolerance, compare, growth, unit

F32 = Tolerance("f32")


def arrays(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values, np.float32)


def test_growth_is_worst_case_for_few_and_root_for_many() -> None:
    assert [growth(k) for k in (0, 1, 9, 16)] == [0, 1, 9, 16]
    assert growth(10_000) == 400


def test_one_unit_in_the_last_place_is_allowed_and_eight_are_not() -> None:
    want = arrays(1.0, 3.0, -1e20)
    up = np.nextafter(want, np.float32(np.inf))
    assert compare("y", up, want, F32) <= 1
    with pytest.raises(Mismatch, match="3 of 3"):
        compare("y", want * np.float32(1 + 8 * 2**-23), want, F32)


def test_an_accumulation_may_be_further_off() -> None:
    want, got = arrays(1.0), arrays(1.0 + 30 * unit("f32"))
    with pytest.raises(Mismatch):
        compare("y", got, want, F32)
    assert compare("y", got, want, Tolerance("f32", terms=1000)) < 1
    assert compare("y", got, want, Tolerance("f32", operands="bf16")) < 1


def test_cancellation_is_measured_by_its_terms() -> None:
    want, got = arrays(0.0), arrays(1e-5)
    with pytest.raises(Mismatch):
        compare("y", got, want, Tolerance("f32", terms=100))
    assert compare("y", got, want, Tolerance("f32", terms=100), arrays(10.0)) < 1


def test_special_values() -> None:
    inf, nan = float("inf"), float("nan")
    assert compare("y", arrays(inf, -inf, nan), arrays(inf, -inf, nan), F32) == 0
    for got, want in ((inf, -inf), (nan, 1.0), (1.0, nan), (inf, 1.0)):
        with pytest.raises(Mismatch):
            compare("y", arrays(got), arrays(want), F32)
    largest = float(np.finfo(np.float32).max)
    assert compare("y", arrays(inf), arrays(largest), F32) == 0


def test_shapes_and_dtypes_must_agree() -> None:
    with pytest.raises(Mismatch, match="shape"):
        compare("y", arrays(1.0, 2.0), arrays(1.0), F32)
    with pytest.raises(Mismatch, match="dtype"):
        compare("y", np.zeros(1), arrays(0.0), F32)


def test_integers_are_exact() -> None:
    want = np.array([1, 2, 3], np.int8)
    assert compare("y", want.copy(), want, Tolerance("i8")) == 0
    with pytest.raises(Mismatch, match=r"at \[1\] got 3, expected 2"):
        compare("y", np.array([1, 3, 3], np.int8), want, Tolerance("i8"))


def test_narrow_floats() -> None:
    want = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    near = np.array([1.0078125, 2.0], ml_dtypes.bfloat16)
    assert compare("y", near, want, Tolerance("bf16", accumulator="f32")) <= 1
    far = np.array([1.0625, 2.0], ml_dtypes.bfloat16)
    with pytest.raises(Mismatch):
        compare("y", far, want, Tolerance("bf16", accumulator="f32"))


def test_it_prints_what_it_is_made_of() -> None:
    text = str(Tolerance("f32", terms=64, operands="bf16", ulp=2, factor=3))
    for part in ("64 terms", "operands in bf16", "2 ulp", "override"):
        assert part in text
