"""Ops that reduce, multiply or resample: each reference against a formula written down separately."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.errors import GraphError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import GraphBuilder
from tests.graph.run_op import run_op

rng = np.random.default_rng(8)


def floats(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(kind)


def ints(*shape: int, low: int = -4, high: int = 4) -> np.ndarray:
    return rng.integers(low, high, shape)


# ------------------------------------------------------------------------------------------------- reductions
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(), (0,), (1, 2), (-1,), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduce(kind: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = ints(2, 3, 4)
    got = run_op("reduce", x, kind=kind, axes=axes, keepdims=keepdims)
    np.testing.assert_array_equal(got, getattr(np, kind)(x, axis=axes, keepdims=keepdims))


def test_reduce_over_nothing_is_neutral() -> None:
    x = floats(2, 0)
    for kind, wanted in (("sum", 0), ("prod", 1), ("max", -math.inf), ("min", math.inf)):
        assert run_op("reduce", x, kind=kind, axes=(1,)).tolist() == [wanted] * 2
    assert run_op("reduce", x > 0, kind="all", axes=(1,)).tolist() == [True] * 2
    assert run_op("reduce", x > 0, kind="any", axes=(1,)).tolist() == [False] * 2
    assert run_op("reduce", ints(0), kind="max", axes=(0,)) == -(2**63)
    assert run_op("reduce", x, kind="argmax", axes=(1,)).tolist() == [0, 0]


def test_arg_reductions_take_the_first() -> None:
    x = np.array([[1, 5, 5], [2, 2, 1]], np.float16)
    assert run_op("reduce", x, kind="argmax", axes=(1,)).tolist() == [1, 0]
    assert run_op("reduce", x, kind="argmin", axes=(1,), keepdims=True).tolist() == [[0], [2]]
    with pytest.raises(GraphError, match="needs one axis"):
        run_op("reduce", x, kind="argmax", axes=(0, 1))


def test_narrow_floats_accumulate_in_f32() -> None:
    x = np.ones(1000, ml_dtypes.bfloat16)
    assert float(run_op("reduce", x, kind="sum", axes=(0,))) == 1000
    assert float(run_op("cumulative", x, kind="sum", axis=0)[-1]) == 1000
    assert (
        int(run_op("reduce", np.full(300, 100, np.int8), kind="sum", axes=(0,))) == (30000 + 128) % 256 - 128
    )


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize(
    "size, window, stride, low, high, dilation",
    [
        (7, 3, 1, 0, 0, 1),
        (7, 3, 2, 1, 1, 1),
        (8, 2, 2, 0, 0, 1),
        (9, 3, 1, 2, 0, 2),
        (1, 3, 1, 1, 1, 1),
        (5, 1, 3, 0, 0, 1),
        (6, 3, 2, -1, 1, 1),
        (0, 3, 1, 1, 1, 1),
    ],
)
def test_reduce_window(
    kind: str, size: int, window: int, stride: int, low: int, high: int, dilation: int
) -> None:
    x = floats(2, size)
    got = run_op(
        "reduce_window",
        x,
        kind=kind,
        window=(1, window),
        strides=(1, stride),
        low=(0, low),
        high=(0, high),
        dilations=(1, dilation),
    )
    out = (size + low + high - (window - 1) * dilation - 1) // stride + 1
    start = {"sum": 0, "max": -math.inf, "min": math.inf}[kind]
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
    wanted = np.full((2, out), start, np.float32)
    for o, k in itertools.product(range(out), range(window)):
        place = o * stride + k * dilation - low
        if max(0, -low) <= place < size:
            wanted[:, o] = combine(wanted[:, o], x[:, place])
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_cumulative(exclusive: bool, reverse: bool, size: int) -> None:
    x = ints(3, size)
    for kind, start, step in (("sum", 0, np.add), ("prod", 1, np.multiply), ("max", -(2**63), np.maximum)):
        wanted = np.zeros_like(x)
        total = np.full(3, start)
        for i in reversed(range(size)) if reverse else range(size):
            if exclusive:
                wanted[:, i] = total
            total = step(total, x[:, i])
            if not exclusive:
                wanted[:, i] = total
        got = run_op("cumulative", x, kind=kind, axis=1, exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(got, wanted)


# ----------------------------------------------------------------------------------------------- contractions
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1, 1, 1, 1), (2, 0, 4, 5), (2, 3, 0, 5), (0, 3, 4, 5)])
def test_dot_general(sizes: tuple[int, int, int, int]) -> None:
    b, m, k, n = sizes
    x, y = floats(b, m, k), floats(n, k, b)
    got = run_op("dot_general", x, y, batch=((0, 2),), contract=((2, 1),))
    np.testing.assert_allclose(got, np.einsum("bmk,nkb->bmn", x, y), rtol=1e-5, atol=1e-6)
    got = run_op("dot_general", x, y, contract=())
    np.testing.assert_allclose(got, np.einsum("abc,def->abcdef", x, y), rtol=1e-6)


def test_dot_dtypes() -> None:
    i8, u8 = ints(3, 4).astype(np.int8), ints(4, 2, low=0).astype(np.uint8)
    got = run_op("dot_general", i8, u8, contract=((1, 0),))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, i8.astype(int) @ u8.astype(int))
    half = floats(3, 64, kind=ml_dtypes.bfloat16)
    got = run_op("dot_general", half, half, contract=((1, 1),))
    wanted = (half.astype(np.float32) @ half.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, wanted)
    assert run_op("dot_general", half, half, contract=((1, 1),), dtype="f32").dtype == np.float32
    assert run_op("dot_general", ints(2, 2), ints(2, 2), contract=((1, 0),)).dtype == np.int64
    with pytest.raises(GraphError, match="dtypes f32 and f64"):
        run_op("dot_general", floats(2, 2), floats(2, 2, kind=np.float64), contract=((1, 0),))
    with pytest.raises(GraphError, match="must be different"):
        run_op("dot_general", floats(2, 2), floats(2, 2), batch=((0, 0),), contract=((0, 1),))


CONVOLUTIONS = [
    # spatial, window, channels, groups, out, stride, low, high, dilation
    ((7,), (3,), 4, 1, 5, (1,), (0,), (0,), (1,)),
    ((8, 6), (3, 2), 4, 2, 6, (2, 1), (1, 0), (1, 1), (1, 2)),
    ((5, 5), (3, 3), 3, 3, 3, (1, 1), (1, 1), (1, 1), (1, 1)),
    ((4, 4), (1, 1), 2, 1, 3, (3, 3), (0, 0), (0, 0), (1, 1)),
    ((3, 3, 3), (2, 2, 2), 1, 1, 2, (1, 1, 1), (0, 1, 0), (0, 0, 0), (1, 1, 1)),
    ((6,), (3,), 2, 1, 2, (1,), (-1,), (2,), (1,)),
    ((0,), (3,), 2, 1, 2, (1,), (2,), (2,), (1,)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv(case: tuple[Any, ...]) -> None:
    spatial, window, channels, groups, out, stride, low, high, dilation = case
    x, w = floats(2, *spatial, channels), floats(*window, channels // groups, out)
    fixed = [(1, i) for i in range(w.ndim)] + [(0, x.ndim - 1)]
    got = run_op(
        "conv", x, w, fixed=fixed, strides=stride, low=low, high=high, dilations=dilation, groups=groups
    )
    sizes = [
        (s + a + b - (k - 1) * e - 1) // t + 1
        for s, k, t, a, b, e in zip(spatial, window, stride, low, high, dilation)
    ]
    wanted = np.zeros((2, *sizes, out))
    per_group, per_out = channels // groups, out // groups
    for place in np.ndindex(*sizes):
        for tap in np.ndindex(*window):
            at = [p * t + k * e - a for p, t, k, e, a in zip(place, stride, tap, dilation, low)]
            if all(max(0, -a) <= q < s for q, s, a in zip(at, spatial, low)):
                for o in range(out):
                    g = o // per_out
                    wanted[(slice(None), *place, o)] += (
                        x[(slice(None), *at, slice(g * per_group, (g + 1) * per_group))]
                        @ w[(*tap, slice(None), o)]
                    )
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "stride, low, high, dilation, extra", [(1, 0, 0, 1, 0), (2, 1, 1, 1, 1), (3, 0, 2, 2, 0), (2, 4, 4, 1, 0)]
)
def test_conv_transpose(groups: int, stride: int, low: int, high: int, dilation: int, extra: int) -> None:
    x, w = floats(2, 6, 4), floats(3, 4 // groups, 4)
    got = run_op(
        "conv_transpose",
        x,
        w,
        fixed=[(1, 0), (1, 1), (1, 2), (0, 2)],
        strides=(stride,),
        low=(low,),
        high=(high,),
        dilations=(dilation,),
        output_padding=(extra,),
        groups=groups,
    )
    size = (6 - 1) * stride + 2 * dilation + 1 - low - high + extra
    wanted = np.zeros((2, size, 4))
    for i, k, c, o in itertools.product(range(6), range(3), range(4), range(4)):
        place = i * stride + k * dilation - low
        if 0 <= place < size and c // (4 // groups) == o // (4 // groups):
            wanted[:, place, o] += x[:, i, c] * w[k, c % (4 // groups), o]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_conv_errors() -> None:
    x, w = floats(1, 5, 3), floats(3, 2, 4)
    base = {"strides": (1,), "low": (0,), "high": (0,), "dilations": (1,)}
    with pytest.raises(GraphError, match="channels of x0"):
        run_op("conv", x, w, symbolic=False, **base)
    with pytest.raises(GraphError, match="strides has 2 entries, not 1"):
        run_op("conv", x, x, symbolic=False, **{**base, "strides": (1, 1)})
    with pytest.raises(GraphError, match="always negative"):
        run_op("conv", x[:, :1], floats(9, 3, 4), symbolic=False, **base)


def test_a_small_window_bounds_the_input() -> None:
    b = GraphBuilder("valid")
    x = b.input("x", "f32", (1, sym("h"), 3))
    y = b.node("conv", [x, b.constant(floats(5, 3, 2))], strides=(1,), low=(0,), high=(0,), dilations=(1,))
    assert y.shape == (1, sym("h") - 4, 2)
    assert b.constraints.ranges["h"] == (4, None)


# ----------------------------------------------------------------------------------------------------- resize
@pytest.mark.parametrize("coordinate", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("size, out", [(4, 8), (5, 3), (1, 4), (4, 1), (4, 4)])
def test_resize_linear(coordinate: str, size: int, out: int) -> None:
    x = floats(2, size)
    got = run_op("resize", x, shape=(sym("d0_0"), out), mode="linear", coordinate=coordinate)
    scale = out / size
    wanted = np.zeros((2, out))
    for i in range(out):
        at = {
            "half_pixel": (i + 0.5) / scale - 0.5,
            "pytorch_half_pixel": (i + 0.5) / scale - 0.5 if out > 1 else 0,
            "align_corners": i * (size - 1) / (out - 1) if out > 1 else 0,
            "asymmetric": i / scale,
        }[coordinate]
        at = min(max(at, 0), size - 1)
        low = math.floor(at)
        wanted[:, i] = x[:, low] * (1 - at + low) + x[:, min(low + 1, size - 1)] * (at - low)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_resize_by_a_scale_that_gives_no_whole_length() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 4)
    got = run_op("resize", x, shape=(1, 2), scales=(1, 0.6), mode="linear", coordinate="align_corners")
    np.testing.assert_allclose(got, [[1, 1 + 3 / 1.4]], rtol=1e-6)


def test_resize_nearest_and_cubic() -> None:
    x = floats(1, 4)
    got = run_op("resize", x, shape=(1, 8), mode="nearest", coordinate="asymmetric", nearest_mode="floor")
    np.testing.assert_array_equal(got, np.repeat(x, 2, 1))
    same = run_op("resize", x, shape=(1, 4), mode="cubic")
    np.testing.assert_array_equal(same, x)
    constant = run_op("resize", np.ones((1, 5), np.float32), shape=(1, 9), mode="cubic", exclude_outside=True)
    np.testing.assert_allclose(constant, 1, rtol=1e-6)
