"""The NumPy-like builder against NumPy: every function with symbolic dims, at several sizes, and its errors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hwsdk.frontends.builder as hb
from hwsdk.errors import GraphError, InputError, ModelError
from hwsdk.frontends import load
from hwsdk.graph.dims import sym
from hwsdk.graph.interpret import interpret
from hwsdk.graph.verify import verify


def run(build: Callable[..., Any], *arrays: Any, shapes: list[Any] | None = None) -> Any:
    """`build` as a model whose inputs have symbolic dims (or the given shapes), applied to the arrays."""
    m = hb.Model("test")
    inputs = []
    for i, array in enumerate(arrays):
        shape = shapes[i] if shapes else [f"n{i}_{a}" if s > 1 else s for a, s in enumerate(array.shape)]
        kind = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool"}[array.dtype.name]
        inputs.append(m.input(f"x{i}", kind, shape))
    result = build(*inputs)
    results = result if isinstance(result, tuple | list) else (result,)
    for i, r in enumerate(results):
        m.output(f"y{i}", r)
    graph = m.graph()
    verify(graph)
    found = interpret(graph, {f"x{i}": a for i, a in enumerate(arrays)})
    values = [found[f"y{i}"] for i in range(len(results))]
    return values if isinstance(result, tuple | list) else values[0]


def floats(*shape: int, low: float = -3, high: float = 3) -> Any:
    return np.random.default_rng(sum(shape) + len(shape)).uniform(low, high, shape).astype(np.float32)


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


NAMES = (
    "abs negative sign exp exp2 expm1 log log2 log1p sqrt reciprocal tanh sin cos tan arcsin arccos arctan "
    "sinh cosh arcsinh arccosh arctanh floor ceil round trunc isnan isinf square"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_elementwise(name: str) -> None:
    low, high = {
        "log": (0.1, 9), "log2": (0.1, 9), "log1p": (-0.5, 9), "sqrt": (0, 9), "arcsin": (-0.9, 0.9),
        "arccos": (-0.9, 0.9), "arctanh": (-0.9, 0.9), "arccosh": (1.1, 9), "reciprocal": (0.1, 3),
    }.get(name, (-3, 3))  # fmt: skip
    x = floats(3, 5, low=low, high=high)
    close(run(getattr(hb, name), x), getattr(np, name)(x))


@pytest.mark.parametrize("name", "add subtract multiply maximum minimum arctan2 fmod remainder".split())
def test_binary_functions_broadcast(name: str) -> None:
    for a, b in (((3, 5), (3, 5)), ((3, 1), (1, 5)), ((2, 3, 5), (5,)), ((), (4,))):
        x, y = floats(*a), floats(*b) + np.float32(0.01)
        close(run(getattr(hb, name), x, y), getattr(np, name)(x, y))


def test_operators_take_numbers_and_arrays_on_either_side() -> None:
    x, w = floats(3, 5), floats(5)
    close(run(lambda a: 2 * a + w - a / 4 + 1, x), 2 * x + w - x / 4 + 1)
    close(run(lambda a: w + a, x), w + x)
    close(run(lambda a: 1 / (a * a + 1) - a**2 + (-a), x), 1 / (x * x + 1) - x**2 - x)
    close(run(lambda a: abs(a) ** 1.5, x), np.abs(x) ** 1.5)
    i = np.arange(-6, 6).reshape(3, 4)
    for function in (
        lambda a: a // 4,
        lambda a: a % 4,
        lambda a: a << 2,
        lambda a: a >> 1,
        lambda a: ~a & 3 | a ^ 5,
    ):
        close(run(function, i), function(i))
    for function in (
        lambda a: a < 1,
        lambda a: a <= 1,
        lambda a: a > 1,
        lambda a: a >= 1,
        lambda a: a == 1,
        lambda a: a != 1,
    ):
        close(run(function, i), function(i))
    close(run(lambda a: ~(a > 0) | (a == 3), i), ~(i > 0) | (i == 3))


def test_shapes_and_movement() -> None:
    x = floats(2, 3, 4)
    n = "abc"
    close(run(lambda a: a.reshape(-1, a.shape[-1]), x), x.reshape(-1, 4))
    close(run(lambda a: a.reshape(a.shape[0], -1), x), x.reshape(2, -1))
    close(run(lambda a: hb.reshape(a, (a.shape[1], a.shape[0] * a.shape[2])), x), x.reshape(3, 8))
    close(run(lambda a: a.T, x), x.T)
    close(run(lambda a: a.transpose(1, 0, 2), x), x.transpose(1, 0, 2))
    close(run(lambda a: hb.swapaxes(a, -1, 0), x), np.swapaxes(x, -1, 0))
    close(run(lambda a: hb.moveaxis(a, 0, -1), x), np.moveaxis(x, 0, -1))
    close(run(lambda a: hb.expand_dims(a, (0, -1)), x), np.expand_dims(x, (0, -1)))
    close(run(lambda a: hb.squeeze(a), floats(2, 1, 3, 1)), floats(2, 1, 3, 1).squeeze())
    close(run(lambda a: hb.squeeze(a, 1), floats(2, 1, 1)), floats(2, 1, 1).squeeze(1))
    close(run(lambda a: hb.concatenate([a, a * 2], 1), x), np.concatenate([x, x * 2], 1))
    close(run(lambda a: hb.stack([a, a], -1), x), np.stack([x, x], -1))
    close(run(lambda a: hb.tile(a, (1, 2, 3)), x), np.tile(x, (1, 2, 3)))
    close(run(lambda a: hb.tile(a, (2, 1, 1, 2)), x), np.tile(x, (2, 1, 1, 2)))
    close(run(lambda a: hb.flip(a, (0, 2)), x), np.flip(x, (0, 2)))
    close(run(lambda a: hb.expand(a, (a.shape[0], 5)), floats(2, 1)), np.broadcast_to(floats(2, 1), (2, 5)))
    for mode in ("edge", "reflect", "wrap"):
        close(
            run(lambda a, m=mode: hb.pad(a, ((1, 0), (0, 2), (1, 1)), m), x),
            np.pad(x, ((1, 0), (0, 2), (1, 1)), mode),
        )
    close(run(lambda a: hb.pad(a, ((1, 0), (0, 2), (1, 1)), value=7), x),
          np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=7))  # fmt: skip
    for found, expected in zip(run(lambda a: hb.split(a, 2, 2), x), np.split(x, 2, 2), strict=True):
        close(found, expected)
    for found, expected in zip(
        run(lambda a: hb.split(a, (1, a.shape[2] - 1), 2), x), np.split(x, [1], 2), strict=True
    ):
        close(found, expected)
    del n


INDICES: list[Any] = [
    0, -1, slice(None), slice(1, None), slice(None, -1), slice(-2, None), slice(None, None, 2), slice(None, None, -1),
    slice(2, None, -2), slice(5, 2), slice(-9, 9), (slice(None), 1), (Ellipsis, 0), (0, Ellipsis, slice(1, 3)),
    (None, 1),
    (slice(None), None, slice(1, 2)), (Ellipsis, slice(None, None, -3)), (0, 1, 2), (),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index: Any) -> None:
    x = floats(3, 4, 5)
    close(run(lambda a: a[index], x), x[index])


def test_slices_may_end_at_dims_and_indices_may_be_arrays() -> None:
    x = floats(4, 6)
    close(run(lambda a: a[:, a.shape[1] // 2 :], x), x[:, 3:])
    close(run(lambda a: a[: a.shape[0] - 1, 1], x), x[:-1, 1])
    table, index = floats(9, 4), np.array([[0, 8, -1], [3, 3, 1]])
    close(run(hb.embedding, table, index), table[index])
    close(run(lambda a, i: a[:, i], x, np.array([1, 0])), x[:, [1, 0]])
    close(run(lambda a, i: hb.take_along_axis(a, i, 1), x, np.argsort(x, 1)), np.sort(x, 1))


def test_reductions() -> None:
    x = floats(2, 3, 4)
    for name in ("sum", "prod", "max", "min", "mean", "var"):
        for axis in (None, 0, -1, (0, 2)):
            for keep in (False, True):
                found = run(lambda a, f=name, x=axis, k=keep: getattr(hb, f)(a, x, k), x)
                close(found, getattr(np, name)(x, axis=axis, keepdims=keep))
    close(run(lambda a: a.sum(0) / a.shape[0], x), x.mean(0))
    close(run(lambda a: hb.argmax(a, -1), x), x.argmax(-1))
    close(run(lambda a: hb.argmin(a, 1, True), x), x.argmin(1, keepdims=True))
    close(run(lambda a: hb.any(a > 1, 0), x), (x > 1).any(0))
    close(run(lambda a: hb.all(a > -2), x), (x > -2).all())
    close(run(lambda a: hb.cumsum(a, 1), x), x.cumsum(1))
    close(run(lambda a: hb.sort(a, 1), x), np.sort(x, 1))
    close(run(lambda a: hb.argsort(a, 1), x), np.argsort(x, 1, kind="stable"))
    values, indices = run(lambda a: hb.top_k(a, 2, 2), x, shapes=[("a", "b", 4)])
    order = np.argsort(-x, 2, kind="stable")[..., :2]
    close(values, np.take_along_axis(x, order, 2))
    close(indices, order)


def test_reductions_over_nothing() -> None:
    x = np.zeros((0, 3), np.float32)
    assert run(lambda a: hb.sum(a, 0), x, shapes=[("n", 3)]).tolist() == [0, 0, 0]
    assert run(lambda a: hb.max(a, 0), x, shapes=[("n", 3)]).tolist() == [-math.inf] * 3


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((4,), (4,)),
     ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((3, 4), (2, 4, 5)), ((1, 7), (7, 1))],
)  # fmt: skip
def test_matrix_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = floats(*a), floats(*b)
    close(run(lambda p, q: p @ q, x, y), x @ y)
    close(run(lambda p: p @ y, x), x @ y)


def test_networks() -> None:
    x = floats(3, 8)
    e = np.exp(x - x.max(-1, keepdims=True))
    close(run(hb.softmax, x), e / e.sum(-1, keepdims=True))
    close(run(lambda a: hb.log_softmax(a, 0), x), x - np.log(np.exp(x).sum(0, keepdims=True)))
    close(run(hb.relu, x), np.maximum(x, 0))
    close(run(hb.sigmoid, x * 40), 1 / (1 + np.exp(-x.astype(np.float64) * 40)))
    close(run(hb.silu, x), x / (1 + np.exp(-x)))
    close(run(hb.softplus, x * 50), np.logaddexp(0, x * 50))
    erf = np.vectorize(math.erf)(x / math.sqrt(2))
    close(run(hb.gelu, x), 0.5 * x * (1 + erf))
    close(
        run(lambda a: hb.gelu(a, True), x),
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    )
    scale, bias = floats(8), floats(8)
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    close(run(lambda a: hb.layer_norm(a, scale, bias), x), norm * scale + bias)
    close(run(lambda a: hb.rms_norm(a, scale), x), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale)
    q, k, v = floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 6)
    scores = np.exp(q @ k.transpose(0, 2, 1) / 2)
    shapes = [("b", "n", 4), ("b", "m", 4), ("b", "m", 6)]
    close(run(hb.attention, q, k, v, shapes=shapes), scores / scores.sum(-1, keepdims=True) @ v)
    mask = np.tril(np.ones((3, 5), bool))
    masked = np.where(mask, scores, 0)
    close(run(lambda *t: hb.attention(*t, mask=mask), q, k, v, shapes=[("b", 3, 4), ("b", 5, 4), ("b", 5, 6)]),
          masked / masked.sum(-1, keepdims=True) @ v)  # fmt: skip
    close(run(lambda a: hb.where(a > 0, a, 0.0), x), np.where(x > 0, x, 0))
    close(run(lambda a: hb.clip(a, -1, 1), x), np.clip(x, -1, 1))


def _windows(x: Any, size: int, stride: int, pad: int, fill: float) -> Any:
    wide = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (1, 2))
    return view[:, ::stride, ::stride]  # [n, oh, ow, c, size, size]


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (2, 1), (3, 1)])
def test_convolution_and_pools(stride: int, pad: int) -> None:
    x, w, b = floats(2, 7, 9, 4), floats(3, 3, 4, 5), floats(5)
    shape = [("n", "h", "w", 4)]
    expected = np.einsum("nhwcij,ijco->nhwo", _windows(x, 3, stride, pad, 0), w) + b
    found = run(lambda a: hb.conv2d(a, w, b, strides=stride, pads=pad), x, shapes=shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    grouped = run(lambda a: hb.conv(a, w[:, :, :2, :4], strides=stride, pads=pad, groups=2), x, shapes=shape)
    parts = [np.einsum("nhwcij,ijco->nhwo", _windows(x[..., g], 3, stride, pad, 0), w[:, :, :2, o])
             for g, o in ((slice(0, 2), slice(0, 2)), (slice(2, 4), slice(2, 4)))]  # fmt: skip
    np.testing.assert_allclose(grouped, np.concatenate(parts, -1), rtol=1e-5, atol=1e-5)
    top = run(lambda a: hb.max_pool(a, 3, stride, pad), x, shapes=shape)
    close(top, _windows(x, 3, stride, pad, -np.inf).max((-1, -2)))
    total = _windows(x, 3, stride, pad, 0).sum((-1, -2))
    counted = _windows(np.ones_like(x), 3, stride, pad, 0).sum((-1, -2))
    close(run(lambda a: hb.avg_pool(a, 3, stride, pad), x, shapes=shape), total / counted)
    close(run(lambda a: hb.avg_pool(a, 3, stride, pad, count_pads=True), x, shapes=shape), total / 9)


# ------------------------------------------------------------------------------------------ dims, constants, errors
def test_dims_have_names_ranges_and_arithmetic() -> None:
    m = hb.Model("m")
    m.dim("seq", 1, 512)
    x = m.input("x", "f32", ("batch", "seq", 8))
    assert [str(s) for s in x.shape] == ["batch", "seq", "8"]
    assert m.constraints.ranges == {"seq": (1, 512), "batch": (0, None)}
    assert str(m.dim("width", multiple=8)) == "width"
    assert m.constraints.multiples == {"width": 8}
    assert str(x.reshape(-1, 8).shape[0]) == "batch*seq"
    assert x.reshape(x.shape[0], -1).shape[1] == 8 * sym("seq")
    assert str(x[:, 1:].shape[1]) == "seq - 1"
    y = m.input("y", "f32", ("2*k", 3))
    assert str(hb.max_pool(y.reshape(1, -1, 1, 3), (2, 1)).shape[1]) == "k"


def test_dims_that_meet_are_one_and_other_sizes_are_refused() -> None:
    m = hb.Model("m")
    x, y = m.input("x", "f32", ("a", 4)), m.input("y", "f32", ("b", 4))
    m.output("z", x + y)
    graph = load(m)
    assert [str(v.shape[0]) for v in graph.inputs] == ["a", "a"]
    with pytest.raises(InputError, match="axis 0"):
        interpret(graph, {"x": np.ones((2, 4), np.float32), "y": np.ones((1, 4), np.float32)})


def test_constants_that_are_only_moved_leave_one_constant_and_no_node() -> None:
    m = hb.Model("m")
    w = m.constant(floats(3, 4), name="w")
    x = m.input("x", "f32", ("n", 3))
    m.output("y", x @ w.T.reshape(4, 3).T)
    graph = m.graph()
    assert [n.op for n in graph.nodes] == ["dot_general"]
    assert len(graph.constants) == 1


def test_python_floats_become_f32_and_arrays_keep_their_type() -> None:
    m = hb.Model("m")
    assert m.constant([1.0, 2.0]).dtype == "f32"
    assert m.constant([1, 2]).dtype == "i64"
    assert m.constant(np.ones(2)).dtype == "f64"
    assert m.constant(np.ones(2), "bf16").dtype == "bf16"
    x = m.input("x", "bf16", ("n",))
    assert (x * 2 + 0.5).dtype == "bf16"
    assert x.astype("f32").dtype == "f32"
    assert (x.astype("i32") + 1).dtype == "i32"


ERRORS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x @ np.ones((5, 2), np.float32), r"^matmul\(f32\[n, 4\], float32\[5, 2\]\): .*4 and 5 can never"),
    (lambda x: x + np.ones(3, np.float32), r"^operator\('add', f32\[n, 4\], .*can never be equal"),
    (lambda x: x + np.ones(4), r"dtypes differ: f32\[n, 4\] and f64\[4\]; convert with astype"),
    (lambda x: x.reshape(-1, -1), r"^reshape\(.*-1 occurs more than once"),
    (lambda x: hb.reshape(x[0], (3,)), "can never be equal|elements"),
    (lambda x: x.transpose(0, 0), r"^transpose\(.*is not an order of the 2 axes"),
    (lambda x: x[:, 4], r"^getitem\(.*index 4 is outside axis 1"),
    (lambda x: x[0, 0, 0], "3 indices for"),
    (lambda x: x["a"], "cannot index with 'a'"),
    (lambda x: hb.sum(x, 2), r"^sum\(f32\[n, 4\], 2\): axis 2 is outside a shape of rank 2"),
    (lambda x: hb.sum(x, (0, -2)), "an axis occurs twice"),
    (lambda x: hb.concatenate([]), "nothing to join"),
    (lambda x: hb.concatenate([x, x[0]]), "ranks differ"),
    (lambda x: hb.conv2d(x, np.ones((1, 1, 4, 4), np.float32)), r"^conv2d\(.*is not \[batch, height, width"),
    (lambda x: hb.sqrt(x.astype("i64")), r"^sqrt\(i64\[n, 4\]\)"),
    (lambda x: x.astype("i64") / 2, "true division of"),
    (lambda x: x.astype("i64") * 0.5, "the number 0.5 meets an array of i64"),
    (lambda x: x.astype("u8") + 256, "the number 256 does not fit u8"),
    (lambda x: x.astype("f17"), "unknown dtype 'f17'; did you mean"),
    (lambda x: hb.where(x, x, x), "a condition must be bool"),
    (lambda x: hb.tanh(np.ones(3)), "no operand is an Array"),
    (lambda x: x + hb.Model("other").input("y", "f32", (4,)), "belongs to another model"),
    (lambda x: bool(x), "has no truth value"),
    (lambda x: len(x), "may be symbolic"),
    (lambda x: list(x), "cannot iterate"),
    (lambda x: hb.attention(x, x.reshape(-1, 2), x), r"^attention\(.*4 and 2 can never be equal"),
    (lambda x: hb.softmax(x, 3), r"^softmax\(f32\[n, 4\], 3\): axis 3"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors_name_the_call(use: Callable[[Any], Any], message: str) -> None:
    m = hb.Model("m")
    with pytest.raises(ModelError, match=message):
        use(m.input("x", "f32", ("n", 4)))


def test_models_without_outputs_and_names_used_twice_are_refused() -> None:
    m = hb.Model("m")
    x = m.input("x", "f32", ("n",))
    with pytest.raises(GraphError, match="no output"):
        m.graph()
    m.output("y", x)
    with pytest.raises(GraphError, match="two outputs are called 'y'"):
        m.output("y", x)
    with pytest.raises(GraphError, match="'x' is defined twice"):
        m.input("x", "f32", ("n",))
    with pytest.raises(GraphError, match="input 'z': dimension 'batch size'"):
        m.input("z", "f32", ("batch size",))
    with pytest.raises(GraphError, match="input 'z': 'float'"):
        m.input("z", "f32", (1.5,))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"the empty range 9\.\.3"):
        m.dim("k", 9, 3)


def test_every_public_function_is_documented() -> None:
    for name in hb.__all__:
        item = getattr(hb, name)
        assert inspect.getdoc(item), name
