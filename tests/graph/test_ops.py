"""Ops that work element by element, move or order elements: each reference against a formula written down
separately, with symbolic dims and sizes 0 and 1.
"""

from __future__ import annotations

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


# ----------------------------------------------------------------------------------------------------- tables
def test_every_op_is_documented_by_a_test() -> None:
    """Ops that are not scalar functions appear in these files by name."""
    from hwsdk.graph.scalar import SCALAR

    text = "".join(p.read_text() for p in sorted(Path(__file__).parent.glob("test_ops*.py")))
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
