"""Every kernel family on both kinds of chip: one compile with symbolic dims, then sizes 0, 1, primes and larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk.graph.dims import sym
from tests.codegen.compiled import check, graph_of

N, M, K = sym("n"), sym("m"), sym("k")
RNG = np.random.default_rng(0)
TARGETS = ("x86", "npu", "lanes")
Array = np.ndarray[Any, Any]


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def with_nan(x: Array) -> Array:
    x = x.copy()
    x.reshape(-1)[::3] = np.nan
    return x


def wide(b: Any, x: Any, shape: tuple[Any, ...], *dims: int) -> Any:
    return b.node("broadcast_in_dim", [x], shape=shape, dims=dims)


def softmax(b: Any, x: Any) -> Any:
    shape, axis = x.shape, len(x.shape) - 1
    keep = tuple(range(len(shape)))
    top = b.node("reduce", [x], kind="max", axes=(axis,), keepdims=True)
    e = b.node("exp", [b.node("sub", [x, wide(b, top, shape, *keep)])])
    total = b.node("reduce", [e], kind="sum", axes=(axis,), keepdims=True)
    return b.node("div", [e, wide(b, total, shape, *keep)])


def layer_norm(b: Any, x: Any) -> Any:
    shape, axis = x.shape, len(x.shape) - 1
    keep = tuple(range(len(shape)))
    count = b.node(
        "cast", [b.node("reshape", [b.node("dims", [], exprs=(shape[axis],))], shape=())], dtype="f32"
    )
    mean = b.node("reduce", [x], kind="sum", axes=(axis,), keepdims=True)
    mean = b.node("div", [mean, wide(b, count, mean.shape)])
    d = b.node("sub", [x, wide(b, mean, shape, *keep)])
    var = b.node("reduce", [b.node("mul", [d, d])], kind="sum", axes=(axis,), keepdims=True)
    var = b.node("div", [var, wide(b, count, var.shape)])
    eps = wide(b, b.constant(np.float32(1e-5)), var.shape)
    return b.node("mul", [d, wide(b, b.node("rsqrt", [b.node("add", [var, eps])]), shape, *keep)])


def attention(b: Any, q: Any, k: Any, v: Any) -> Any:
    scores = b.node("dot_general", [q, k], batch=((0, 0),), contract=((2, 2),))
    scale = wide(b, b.constant(np.float32(0.25)), scores.shape)
    return b.node(
        "dot_general", [softmax(b, b.node("mul", [scores, scale])), v], batch=((0, 0),), contract=((2, 1),)
    )


def dot(b: Any, x: Any, w: Any) -> Any:
    return b.node("dot_general", [x, w], contract=((1, 0),))


def conv(b: Any, x: Any, w: Any, **attrs: Any) -> Any:
    plain = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
    return b.node("conv", [x, w], **{**plain, **attrs})


def pool(b: Any, x: Any, kind: str) -> Any:
    return b.node(
        "reduce_window", [x], kind=kind, window=(1, 3, 3, 1), strides=(1, 2, 2, 1), low=(0, 1, 1, 0), high=(0, 1, 1, 0),
        dilations=(1, 1, 1, 1),
    )  # fmt: skip


IMAGE = ("f32", (1, N, M, 5))
CASES: dict[str, tuple[list[tuple[str, tuple[Any, ...]]], Any, list[tuple[Array, ...]]]] = {
    "product": (
        [("f32", (N, K)), ("f32", (K, M))],
        dot,
        [
            (f32(5, 4), f32(4, 5)),
            (f32(1, 1), f32(1, 1)),
            (f32(3, 0), f32(0, 3)),
            (f32(0, 3), f32(3, 0)),
            (f32(37, 129), f32(129, 41)),
        ],
    ),
    "product with a transposed operand": (
        [("f32", (N, M)), ("f32", (N, K))],
        lambda b, x, w: b.node("dot_general", [x, w], contract=((0, 0),)),
        [(f32(5, 4), f32(5, 3)), (f32(31, 17), f32(31, 19))],
    ),
    "product of a value with itself": (
        [("f32", (N, M))],
        lambda b, x: b.node("dot_general", [x, x], contract=((1, 1),)),
        [(f32(5, 4),), (f32(23, 9),)],
    ),
    "matrix times vector": (
        [("f32", (N, M)), ("f32", (M,))],
        dot,
        [(f32(5, 4), f32(4)), (f32(33, 17), f32(17))],
    ),
    "outer product": (
        [("f32", (N,)), ("f32", (M,))],
        lambda b, x, w: b.node("dot_general", [x, w], contract=()),
        [(f32(5), f32(4))],
    ),
    "integer product": (
        [("i64", (N, M)), ("i64", (M, N))],
        dot,
        [(RNG.integers(-9, 9, (5, 4)), RNG.integers(-9, 9, (4, 5)))],
    ),
    "i8 product": (
        [("i8", (N, M)), ("i8", (M, N))],
        dot,
        [(RNG.integers(-99, 99, (19, 33)).astype(np.int8), RNG.integers(-99, 99, (33, 19)).astype(np.int8))],
    ),
    "softmax": ([("f32", (N, M))], softmax, [(f32(3, 7),), (f32(1, 1),), (f32(0, 4),), (f32(5, 131),)]),
    "layer norm": ([("f32", (N, 2, M))], layer_norm, [(f32(3, 2, 7),), (f32(1, 2, 2),), (f32(2, 2, 97),)]),
    "attention": (
        [("f32", (N, M, 16)), ("f32", (N, K, 16)), ("f32", (N, K, 24))],
        attention,
        [
            (f32(2, 5, 16), f32(2, 7, 16), f32(2, 7, 24)),
            (f32(1, 1, 16), f32(1, 1, 16), f32(1, 1, 24)),
            (f32(3, 67, 16), f32(3, 41, 16), f32(3, 41, 24)),
        ],
    ),
    "convolution": (
        [IMAGE, ("f32", (3, 3, 5, 7))],
        conv,
        [
            (f32(1, 5, 4, 5), f32(3, 3, 5, 7)),
            (f32(1, 1, 1, 5), f32(3, 3, 5, 7)),
            (f32(1, 13, 17, 5), f32(3, 3, 5, 7)),
        ],
    ),
    "strided convolution": (
        [IMAGE, ("f32", (3, 3, 5, 9))],
        lambda b, x, w: conv(b, x, w, strides=(2, 2)),
        [(f32(1, 7, 9, 5), f32(3, 3, 5, 9))],
    ),
    "depthwise convolution": (
        [IMAGE, ("f32", (3, 3, 1, 5))],
        lambda b, x, w: conv(b, x, w, groups=5),
        [(f32(1, 7, 9, 5), f32(3, 3, 1, 5))],
    ),
    "depthwise convolution in strips": (
        [("f32", (1, N, M, 16)), ("f32", (3, 3, 1, 16))],
        lambda b, x, w: b.node("neg", [conv(b, x, w, groups=16)]),
        [(f32(1, h, w, 16), f32(3, 3, 1, 16)) for h, w in ((1, 1), (2, 9), (9, 23), (3, 40))],
    ),
    "strided depthwise convolution in strips": (
        [("f32", (1, N, M, 16)), ("f32", (5, 3, 1, 16))],
        lambda b, x, w: conv(b, x, w, groups=16, strides=(1, 2), low=(2, 1), high=(2, 0)),
        [(f32(1, h, w, 16), f32(5, 3, 1, 16)) for h, w in ((1, 2), (7, 31), (3, 40))],
    ),
    "max pool in strips": (
        [("f32", (1, N, M, 24))],
        lambda b, x: pool(b, x, "max"),
        [(f32(1, 7, 41, 24),), (f32(1, 1, 1, 24),)],
    ),
    "grouped convolution": (
        [("f32", (1, N, M, 4)), ("f32", (3, 3, 2, 6))],
        lambda b, x, w: conv(b, x, w, groups=2),
        [(f32(1, 5, 4, 4), f32(3, 3, 2, 6))],
    ),
    "transposed convolution without overlap": (
        [IMAGE, ("f32", (2, 2, 5, 4))],
        lambda b, x, w: b.node(
            "conv_transpose",
            [x, w],
            strides=(2, 2),
            low=(0, 0),
            high=(0, 0),
            dilations=(1, 1),
            output_padding=(0, 0),
        ),
        [(f32(1, 3, 4, 5), f32(2, 2, 5, 4))],
    ),
    "transposed convolution with overlap": (
        [IMAGE, ("f32", (3, 3, 5, 4))],
        lambda b, x, w: b.node(
            "conv_transpose",
            [x, w],
            strides=(2, 1),
            low=(1, 0),
            high=(1, 1),
            dilations=(1, 1),
            output_padding=(1, 0),
        ),
        [(f32(1, 3, 4, 5), f32(3, 3, 5, 4))],
    ),
    "max pool": ([IMAGE], lambda b, x: pool(b, x, "max"), [(f32(1, 7, 9, 5),), (f32(1, 1, 1, 5),)]),
    "sum pool of a computed value": (
        [IMAGE],
        lambda b, x: pool(b, b.node("exp", [x]), "sum"),
        [(f32(1, 7, 9, 5),)],
    ),
    "sum over outer axes": (
        [("f32", (N, M, 3))],
        lambda b, x: b.node("reduce", [x], kind="sum", axes=(0, 1)),
        [(f32(5, 4, 3),), (f32(0, 4, 3),)],
    ),
    "product over dims around a kept one": (
        [("f32", (1, N, 2, M))],
        lambda b, x: b.node("reduce", [x], kind="prod", axes=(0, 1, 3)),
        [(f32(1, n, 2, m),) for n, m in ((0, 1), (0, 5), (3, 0), (3, 7))],
    ),
    "sum of everything": (
        [("f32", (N, M))],
        lambda b, x: b.node("reduce", [x], kind="sum", axes=(0, 1)),
        [(f32(5, 4),), (f32(0, 4),), (f32(1, 1),)],
    ),
    "reflecting pad": (
        [("f32", (N, M))],
        lambda b, x: b.node("pad", [x], low=(1, 2), high=(2, 0), mode="reflect"),
        [(f32(5, 4),)],
    ),
    "pads of integers and truths": (
        [("i32", (N, M)), ("bool", (N,)), ("u8", (M,))],
        lambda b, x, t, u: (
            b.node("pad", [x], low=(1, 2), high=(2, 0), value=3.0),
            b.node("pad", [t], low=(1,), high=(2,), value=1.0),
            b.node("pad", [u], low=(0,), high=(3,), value=200.0),
        ),
        [
            (
                np.arange(12, dtype=np.int32).reshape(3, 4),
                np.array([True, False, True]),
                np.arange(4, dtype=np.uint8),
            )
        ],
    ),
    "constant pad": (
        [("f32", (N, M))],
        lambda b, x: b.node("pad", [x], low=(1, 2), high=(2, 0), value=3.0),
        [(f32(5, 4),), (f32(0, 0),)],
    ),
    "cropping pad": (
        [("f32", (N, M))],
        lambda b, x: b.node("pad", [x], low=(-1, 2), high=(2, -1), value=3.0),
        [(f32(5, 4),)],
    ),
    "sort": (
        [("f32", (N, M))],
        lambda b, x: b.node("sort", [x], axis=1),
        [(f32(2, 7),), (with_nan(f32(3, 10)),), (f32(0, 3),), (f32(3, 0),)],
    ),
    "descending sort": (
        [("f32", (N, M))],
        lambda b, x: b.node("sort", [x], axis=0, descending=True),
        [(np.round(f32(9, 7)),), (with_nan(f32(13, 2)),)],
    ),
    "top k": (
        [("i64", (N, 20))],
        lambda b, x: b.node("top_k", [x], axis=1, k=3),
        [(RNG.integers(0, 9, (2, 20)),)],
    ),
    "argmax": (
        [("f32", (N, M, 3))],
        lambda b, x: b.node("reduce", [x], kind="argmax", axes=(1,)),
        [(f32(5, 4, 3),), (with_nan(f32(5, 4, 3)),)],
    ),
    "exclusive sum from the end": (
        [("f32", (N, M))],
        lambda b, x: b.node("cumulative", [x], kind="sum", axis=1, reverse=True, exclusive=True),
        [(f32(5, 4),)],
    ),
    "scatter rows": (
        [("f32", (N, M)), ("i64", (3, 1)), ("f32", (3, M))],
        lambda b, x, i, u: b.node("scatter_nd", [x, i, u], combiner="add"),
        [(f32(5, 4), np.array([[1], [1], [-1]]), f32(3, 4))],
    ),
    "scatter elements": (
        [("f32", (N, M)), ("i64", (2, M)), ("f32", (2, M))],
        lambda b, x, i, u: b.node("scatter_elements", [x, i, u], axis=0),
        [(f32(5, 4), RNG.integers(-5, 5, (2, 4)), f32(2, 4))],
    ),
    "gather": (
        [("f32", (N, M)), ("i64", (K,))],
        lambda b, x, i: b.node("gather", [x, i], axis=0),
        [(f32(5, 4), np.array([0, -1, 4, 2])), (f32(1, 9), np.array([0])), (f32(0, 4), np.array([3, 0]))],
    ),
    "gathers from what may be empty": (
        [("f32", (N, 4)), ("i64", (K, 4)), ("i64", (M, 1))],
        lambda b, x, i, j: (
            b.node("gather_elements", [x, i], axis=0),
            b.node("gather_nd", [x, j]),
        ),
        [(f32(n, 4), RNG.integers(-4, 5, (2, 4)), RNG.integers(-4, 5, (3, 1))) for n in (0, 1, 3)],
    ),
    "indices that are constants or counts": (
        [("f32", (N, 3)), ("f32", (K,))],
        lambda b, x, y: (
            b.node("gather", [x, b.constant(np.array(5))], axis=0),
            b.node("gather", [x, b.constant(np.array(-5))], axis=0),
            b.node("gather", [x, b.node("iota", [], shape=(K,), dtype="i64", axis=0)], axis=0),
        ),
        [(f32(n, 3), f32(k)) for n, k in ((3, 6), (9, 2), (1, 1), (0, 2))],
    ),
    "axes counted from the end": (
        [("f32", (N, M)), ("f32", (N, 3))],
        lambda b, x, y: (
            b.node("reduce", [x], kind="max", axes=(-1,)),
            b.node("concat", [x, y], axis=-1),
            b.node("cumulative", [x], kind="sum", axis=-2),
        ),
        [(f32(5, 4), f32(5, 3)), (f32(1, 17), f32(1, 3))],
    ),
    **{
        f"resize {mode}": (
            [("f32", (1, N, M, 3))],
            lambda b, x, mode=mode: b.node("resize", [x], shape=(1, N * 2, M + 1, 3), mode=mode),
            [(f32(1, 5, 4, 3),), (f32(1, 1, 1, 3),)],
        )
        for mode in ("nearest", "linear", "cubic")
    },
    "concatenation": (
        [("f32", (N, M)), ("f32", (N, 3))],
        lambda b, x, y: b.node("concat", [x, b.node("neg", [y])], axis=1),
        [(f32(5, 4), f32(5, 3)), (f32(1, 0), f32(1, 3))],
    ),
    "one input twice among the outputs": (
        [("f32", (N,))],
        lambda b, x: (x, x, b.node("neg", [x])),
        [(f32(5),)],
    ),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_definition(name: str, case: str) -> None:
    inputs, build, arrays = CASES[case]
    graph = graph_of(inputs, build)
    check(graph, name, [{f"x{i}": a for i, a in enumerate(given)} for given in arrays], terms=160)
