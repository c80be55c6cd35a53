"""The plain-Python evaluator of intrinsic semantics, against results worked out by hand or by NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hwsdk.conformance.oracle import Oracle

BF16 = ml_dtypes.bfloat16


def test_matrix_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5)).astype(BF16), rng.standard_normal((5, 3)).astype(BF16)
    c = rng.standard_normal((4, 3)).astype(np.float32)
    dtypes = {"d": "f32", "c": "f32", "a": "bf16", "b": "bf16"}
    oracle = Oracle(
        "d[m, n] = c[m, n] + sum[k](f32(a[m, k]) * f32(b[k, n]))",
        dtypes,
        {"m": 4, "n": 3, "k": 5},
        "free",
        False,
    )
    got = oracle.run({"a": a, "b": b, "c": c, "d": np.zeros((4, 3), np.float32)})["d"]
    np.testing.assert_allclose(got, c + a.astype(np.float32) @ b.astype(np.float32), rtol=1e-6)


def test_rounding_each_differs_from_fused() -> None:
    x = np.float32(1 + 2**-12)
    operands = {"d": np.zeros(1, np.float32), "x": np.array([x]), "y": np.array([-1], np.float32)}
    dtypes = dict.fromkeys(operands, "f32")
    program = "d[n] = x[n] * x[n] + y[n]"
    each = Oracle(program, dtypes, {"n": 1}, "each", False).run(operands)["d"][0]
    fused = Oracle(program, dtypes, {"n": 1}, "fused", False).run(operands)["d"][0]
    assert each == np.float32(x * x) - 1
    assert fused == np.float32(float(x) * float(x) - 1)
    assert each != fused


@pytest.mark.parametrize(
    "expr, x, want",
    [
        ("i8.sat.rne(x[n])", [2.5, 3.5, -300.0, 127.4], [2, 4, -128, 127]),
        ("i8(x[n])", [2.9, -2.9, 0.0, 1.0], [2, -2, 0, 1]),
        ("i8.sat.floor(x[n])", [2.9, -2.1, 500.0, 0.5], [2, -3, 127, 0]),
    ],
)
def test_casts(expr: str, x: list[float], want: list[int]) -> None:
    operands = {"d": np.zeros(4, np.int8), "x": np.array(x, np.float32)}
    got = Oracle(f"d[n] = {expr}", {"d": "i8", "x": "f32"}, {"n": 4}, "each", False).run(operands)["d"]
    assert got.tolist() == want


def test_where_leaves_the_rest_alone() -> None:
    operands = {"d": np.full(4, 9, np.int32), "x": np.arange(4, dtype=np.int32)}
    dtypes = dict.fromkeys(operands, "i32")
    got = Oracle("d[n] = x[n] where n < 2", dtypes, {"n": 4}, "each", False).run(operands)["d"]
    assert got.tolist() == [0, 1, 9, 9]


def test_select_touches_only_the_chosen_side() -> None:
    operands = {"d": np.zeros(4, np.int32), "x": np.arange(2, dtype=np.int32)}
    dtypes = dict.fromkeys(operands, "i32")
    got = Oracle("d[n] = select(n < 2, x[n], 7)", dtypes, {"n": 4}, "each", False).run(operands)["d"]
    assert got.tolist() == [0, 1, 7, 7]


def test_reductions_extrema_and_statements_in_order() -> None:
    operands = {
        "m": np.zeros((), np.float32),
        "d": np.zeros(3, np.float32),
        "x": np.array([1, 5, 2], np.float32),
    }
    dtypes = dict.fromkeys(operands, "f32")
    got = Oracle("m[] = max[n](x[n]); d[n] = x[n] - m[]", dtypes, {"n": 3}, "each", False).run(operands)
    assert got["m"] == 5
    assert got["d"].tolist() == [-4, 0, -3]
    operands["x"][1] = np.nan
    assert np.isnan(Oracle("m[] max= max[n](x[n])", dtypes, {"n": 3}, "each", False).run(operands)["m"])


def test_integers_wrap_and_shuffles_index() -> None:
    operands = {"d": np.zeros(4, np.int8), "x": np.array([100, -100, 3, 4], np.int8)}
    dtypes = dict.fromkeys(operands, "i8")
    got = Oracle("d[n] = x[n ^ 1] + x[n ^ 1]", dtypes, {"n": 4}, "each", False).run(operands)["d"]
    assert got.tolist() == [56, -56, 8, 6]


def test_denormals_may_be_flushed() -> None:
    tiny = np.array([1e-40], np.float32)
    operands = {"d": np.ones(1, np.float32), "x": tiny}
    dtypes = dict.fromkeys(operands, "f32")
    assert Oracle("d[n] = x[n]", dtypes, {"n": 1}, "each", True).run(operands)["d"] == 0
    assert Oracle("d[n] = x[n]", dtypes, {"n": 1}, "each", False).run(operands)["d"] == tiny


def test_outside_the_extent_is_an_error() -> None:
    operands = {"d": np.zeros(2, np.float32), "x": np.zeros(2, np.float32)}
    with pytest.raises(IndexError, match="outside"):
        Oracle("d[n] = x[n + 1]", dict.fromkeys(operands, "f32"), {"n": 2}, "each", False).run(operands)
