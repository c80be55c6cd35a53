"""Each op's reference against a formula written down separately, with symbolic dims and sizes 0 and 1."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import GraphBuilder
from hwsdk.graph.ops import OPS
from tests.graph.run_op import run_op

rng = np.random.default_rng(7)


def floats(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(kind)


def ints(*shape: int, low: int = -4, high: int = 4) -> np.ndarray:
    return rng.integers(low, high, shape)


# ---------------------------------------------------------------------------------------- elementwise, moving
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (2, 0, 3)])
def test_elementwise(shape: tuple[int, ...]) -> None:
    x, y = floats(*shape), floats(*shape)
    np.testing.assert_array_equal(run_op("add", x, y), x + y)
    np.testing.assert_array_equal(run_op("select", x > 0, x, y), np.where(x > 0, x, y))
    np.testing.assert_array_equal(run_op("lt", x, y), x < y)


def test_cast_and_bitcast() -> None:
    x = np.array([1.5, -2.5, 300, np.nan], np.float32)
    assert run_op("cast", x, dtype="i8").tolist() == [1, -2, 127, 0]
    np.testing.assert_array_equal(run_op("bitcast", x, dtype="u32"), x.view(np.uint32))
    with pytest.raises(GraphError, match="same whole number of bytes"):
        run_op("bitcast", x, dtype="f64")


def test_broadcast_in_dim() -> None:
    n = sym("d0_0")
    x = floats(3)
    np.testing.assert_array_equal(
        run_op("broadcast_in_dim", x, shape=(2, n, 4), dims=(1,)),
        np.broadcast_to(x[None, :, None], (2, 3, 4)),
    )
    y = floats(3, 1)
    got = run_op("broadcast_in_dim", y, fixed=[(0, 1)], shape=(n, 5), dims=(0, 1))
    np.testing.assert_array_equal(got, np.broadcast_to(y, (3, 5)))
    with pytest.raises(GraphError, match="increasing"):
        run_op("broadcast_in_dim", y, shape=(3, 3), dims=(1, 0))
    with pytest.raises(GraphError, match="dims has 1 entries, not 2"):
        run_op("broadcast_in_dim", y, shape=(3, 3), dims=(1,))


def test_reshape() -> None:
    x = floats(2, 3, 8)
    b, s = sym("d0_0"), sym("d0_1")
    np.testing.assert_array_equal(
        run_op("reshape", x, fixed=[(0, 2)], shape=(b, s, 2, 4)), x.reshape(2, 3, 2, 4)
    )
    np.testing.assert_array_equal(run_op("reshape", x, fixed=[(0, 2)], shape=(b * s, 8)), x.reshape(6, 8))
    with pytest.raises(GraphError, match="element counts"):
        run_op("reshape", x, symbolic=False, shape=(5, 5))


def test_transpose_reverse_concat() -> None:
    x, y = floats(2, 3, 4), floats(2, 1, 4)
    np.testing.assert_array_equal(run_op("transpose", x, perm=(2, 0, 1)), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(run_op("reverse", x, axes=(0, 2)), x[::-1, :, ::-1])
    np.testing.assert_array_equal(run_op("concat", x, y, x, axis=1), np.concatenate([x, y, x], 1))
    np.testing.assert_array_equal(run_op("concat", x, x[:, :0], axis=-2), x)
    with pytest.raises(GraphError, match="permutation"):
        run_op("transpose", x, perm=(0, 0, 1))
    with pytest.raises(GraphError, match="axis 3 is out of range"):
        run_op("concat", x, y, axis=3)


@pytest.mark.parametrize(
    "start, limit, step", [(0, 7, 1), (2, 7, 1), (1, 7, 3), (3, 3, 1), (5, 2, 1), (6, 7, 9)]
)
def test_slice(start: int, limit: int, step: int) -> None:
    x = floats(7, 2)
    got = run_op("slice", x, starts=(start, 0), limits=(limit, sym("d0_1")), strides=(step, 1))
    np.testing.assert_array_equal(got, x[start:limit:step])


def test_slice_with_symbolic_ends() -> None:
    n = sym("d0_0")
    x = floats(7)
    np.testing.assert_array_equal(
        run_op("slice", x, starts=(n // 2,), limits=(n - 1,), strides=(2,)), x[3:6:2]
    )
    with pytest.raises(GraphError, match="start of axis 0"):
        run_op("slice", x, starts=(-1,), limits=(3,), strides=(1,))
    with pytest.raises(GraphError, match="at most the size"):
        run_op("slice", x, starts=(0,), limits=(n + 1,), strides=(1,))
    with pytest.raises(GraphError, match="not positive"):
        run_op("slice", x, starts=(0,), limits=(n,), strides=(0,))


NUMPY_PAD = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("low, high", [((0, 1), (2, 0)), ((3, 3), (4, 5)), ((0, 0), (0, 0))])
def test_pad_modes(mode: str, low: tuple[int, int], high: tuple[int, int]) -> None:
    x = floats(3, 4)
    got = run_op("pad", x, low=low, high=high, mode=mode)
    np.testing.assert_array_equal(got, np.pad(x, list(zip(low, high)), mode=NUMPY_PAD[mode]))


def test_pad_constant() -> None:
    x = ints(3, 4)
    got = run_op("pad", x, low=(1, -1), high=(-2, 3), value=9)
    np.testing.assert_array_equal(got, np.pad(x, [(1, 0), (0, 3)], constant_values=9)[:2, 1:])
    np.testing.assert_array_equal(
        run_op("pad", x[:0], low=(2, 0), high=(0, 0), value=1), np.ones((2, 4), int)
    )
    with pytest.raises(GraphError, match="always negative"):
        run_op("pad", x, symbolic=False, low=(-2, 0), high=(-2, 0))
    with pytest.raises(GraphError, match="cannot crop"):
        run_op("pad", x, low=(-1, 0), high=(0, 0), mode="edge")


def test_makers() -> None:
    b = GraphBuilder("makers")
    n = b.input("x", "f32", (sym("n"),)).shape[0]
    from hwsdk.graph.interpret import interpret

    b.output(b.node("iota", dtype="i32", shape=(2, n), axis=1), "iota")
    b.output(b.node("full", dtype="u8", shape=(n,), value=-1), "full")
    b.output(b.node("dims", exprs=(n, 2 * n + 1, 7)), "dims")
    out = interpret(b.finish(), {"x": np.zeros(3, np.float32)})
    assert out["iota"].tolist() == [[0, 1, 2]] * 2
    assert out["full"].tolist() == [255] * 3
    assert out["dims"].tolist() == [3, 7, 7]


# ----------------------------------------------------------------------------------------- gather and scatter
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_gather(axis: int, shape: tuple[int, ...]) -> None:
    data, index = floats(4, 5, 3), ints(*shape, low=-3, high=3)
    np.testing.assert_array_equal(
        run_op("gather", data, index, axis=axis), np.take(data, index, axis, mode="wrap")
    )


def test_gather_is_safe_outside() -> None:
    data = floats(3)
    got = run_op("gather", data, np.array([99, -99]), axis=0)
    np.testing.assert_array_equal(got, data[[2, 0]])
    assert run_op("gather", data[:0], np.array([0, 1]), axis=0).tolist() == [0, 0]


def test_gather_elements() -> None:
    data, index = floats(3, 4), ints(3, 2, low=-4, high=4)
    np.testing.assert_array_equal(
        run_op("gather_elements", data, index, axis=1), np.take_along_axis(data, index % 4, 1)
    )


def test_gather_nd() -> None:
    data, index = floats(2, 3, 4), np.array([[[0, 1], [-1, 2]], [[1, 0], [1, -1]]])
    wanted = np.stack([[data[tuple(i)] for i in row] for row in index])
    np.testing.assert_array_equal(run_op("gather_nd", data, index, fixed=[(1, 2)]), wanted)
    batched = np.stack([np.stack([data[b][tuple(i)] for i in index[b]]) for b in range(2)])
    np.testing.assert_array_equal(run_op("gather_nd", data, index, fixed=[(1, 2)], batch_dims=1), batched)
    with pytest.raises(GraphError, match="known number"):
        run_op("gather_nd", data, index)


@pytest.mark.parametrize("combiner", ["none", "add", "mul", "max", "min"])
def test_scatter(combiner: str) -> None:
    apply = {"none": lambda p, q: q, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[
        combiner
    ]
    data, index, updates = floats(5, 3), np.array([[1], [-1], [1], [77]]), floats(4, 3)
    wanted = data.copy()
    for (i,), u in zip(index, updates):
        if -5 <= i < 5:
            wanted[i] = apply(wanted[i], u)
    got = run_op("scatter_nd", data, index, updates, fixed=[(1, 1)], combiner=combiner)
    np.testing.assert_array_equal(got, wanted)
    where, values = np.array([[0, -1, 2], [3, 3, 3]]), floats(2, 3)
    wanted = data.copy()
    for i, j in np.ndindex(2, 3):
        wanted[where[i, j], j] = apply(wanted[where[i, j], j], values[i, j])
    got = run_op("scatter_elements", data, where, values, axis=0, combiner=combiner)
    np.testing.assert_array_equal(got, wanted)


# ------------------------------------------------------------------------------------------------------ order
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(descending: bool) -> None:
    x = np.array([[2, 1, 2, 3, 1], [0, 0, 0, 5, 5]], np.float32)
    values, order = run_op("sort", x, axis=1, descending=descending)
    for row, v, o in zip(x, values, order):
        wanted = sorted(range(5), key=lambda i: (-row[i] if descending else row[i], i))
        assert o.tolist() == wanted
        assert v.tolist() == row[wanted].tolist()


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16, np.int64])
def test_top_k(kind: Any) -> None:
    x = np.array([3, 9, 9, -2], kind)
    values, order = run_op("top_k", x, axis=0, k=3)
    assert values.astype(float).tolist() == [9, 9, 3]
    assert order.tolist() == [1, 2, 0]
    assert run_op("top_k", x, axis=0, k=2, largest=False)[1].tolist() == [3, 0]
    with pytest.raises(GraphError, match="at least 5 elements"):
        run_op("top_k", x, symbolic=False, axis=0, k=5)


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


# ----------------------------------------------------------------------------------------------------- tables
def test_every_op_is_documented_by_a_test() -> None:
    """Ops that are not scalar functions appear in this file by name."""
    from hwsdk.graph.scalar import SCALAR

    text = Path(__file__).read_text()
    assert [n for n in OPS if n not in SCALAR and f'"{n}"' not in text] == []


@pytest.mark.parametrize("name", [n for n in DTYPES if DTYPES[n].numpy is not None and n != "f8e8m0"])
def test_moving_ops_take_every_dtype(name: str) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], np.int8).astype(numpy_dtype(name))
    assert run_op("transpose", x, perm=(1, 0)).tolist() == x.T.tolist()
    assert run_op("concat", x, x, axis=0).shape == (4, 3)
    assert run_op("gather", x, np.array([1]), axis=1).tolist() == x[:, [1]].tolist()
    assert run_op("pad", x, low=(1, 0), high=(0, 0)).astype(float)[0].tolist() == [0, 0, 0]
    assert run_op("slice", x, starts=(1, 0), limits=(2, 2), strides=(1, 1)).tolist() == x[1:2, :2].tolist()
    assert run_op("reduce", x, kind="max", axes=(1,)).astype(float).tolist() == [1, 1]
    assert run_op("sort", x, axis=1)[1].tolist() == [[0, 1, 2], [1, 0, 2]]
