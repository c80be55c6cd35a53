"""Algebra on special values: a graph before and after the rules gives the same bits.

Random expressions over the ops that have arithmetic rules run on every pair of special values (zeros of both
signs, infinities, NaN, extremes, subnormals).  Any NaN equals any NaN.  Rules that say they round differently
are left out of the random expressions; `ROUNDED` holds each to its bound.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.frontends.arrays import Model
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value
from hwsdk.graph.interpret import interpret
from hwsdk.graph.passes import run_passes
from hwsdk.graph.passes.rewriting import Rewriting
from hwsdk.graph.passes.signs import Sign, sign_of

FLOATS, INTEGERS = ("f32", "f16", "bf16", "f64"), ("i8", "u8", "i32", "u32", "i64")
PASS_NAMES = ("simplify", "cse", "fold")


def specials(kind: str) -> np.ndarray:
    """The values of a dtype at which algebra breaks."""
    storage = numpy_dtype(kind)
    if dtype(kind).kind == "b":
        return np.array([False, True])
    if dtype(kind).kind != "f":
        info = np.iinfo(storage)
        near = [v for v in (0, 1, -1, 2, -2, 3, 7, -7, info.min, info.min + 1, info.max) if v >= info.min]
        return np.array(near, storage)
    limits = ml_dtypes.finfo(storage)
    extremes = [float(limits.max), float(limits.smallest_normal), float(limits.smallest_subnormal)]
    plain = [0.0, 1.0, 2.0, 0.5, 1.5, 3.0, np.inf, *extremes]
    return np.array([*plain, *(-v for v in plain), np.nan]).astype(storage)


def feed(kind: str) -> dict[str, np.ndarray]:
    """Every pair of special values as x and y; every pair of booleans as c."""
    x, y = np.meshgrid(specials(kind), specials(kind))
    flat = {"x": x.reshape(-1), "y": y.reshape(-1)}
    return {**flat, "c": (np.arange(x.size) % 2).astype(bool)}


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iub":
        return a == b
    raw = f"u{a.dtype.itemsize}"
    return (a.view(raw) == b.view(raw)) | (np.isnan(a) & np.isnan(b))


def steps_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Numbers of the dtype from a to b, infinity being the one after the greatest."""
    bits = 8 * a.dtype.itemsize

    def place(x: np.ndarray) -> np.ndarray:
        raw = x.view(f"i{bits // 8}").astype(np.int64)
        return np.where(raw < 0, -(raw & ((1 << (bits - 1)) - 1)), raw)

    return np.where(same_bits(a, b), 0, np.abs(place(a) - place(b)))


def run_both(
    build: Callable[[GraphBuilder, Value, Value, Value], Value], kind: str
) -> tuple[np.ndarray, ...]:
    """(x, y, result before, result after) of one expression."""
    before = graph_of(build, kind)
    after = run_passes(before, PASS_NAMES, verify=True)
    values = feed(kind)
    return values["x"], values["y"], interpret(before, values)["r"], interpret(after, values)["r"]


def graph_of(build: Callable[[GraphBuilder, Value, Value, Value], Value], kind: str) -> Graph:
    b = GraphBuilder("g")
    size = (specials(kind).size ** 2,)
    x, y, c = b.input("x", kind, size), b.input("y", kind, size), b.input("c", "bool", size)
    b.output(build(b, x, y, c), "r")
    return b.finish()


def full(b: GraphBuilder, like: Value, number: float) -> Value:
    return b.node("full", shape=like.shape, dtype=like.dtype, value=number)


# ------------------------------------------------------------------------------------------- random expressions
def exact_numbers(kind: str) -> list[float]:
    """Constants with which no documented rounding happens: divisors are powers of two."""
    if dtype(kind).kind != "f":
        return [int(v) for v in specials(kind)]
    limits = ml_dtypes.finfo(numpy_dtype(kind))
    ends = [float(limits.max), float(limits.smallest_normal), float(limits.smallest_subnormal)]
    return [s * v for v in (0.0, 1.0, 2.0, 0.5, np.inf, *ends) for s in (1, -1)] + [np.nan]


UNARY = {
    "f": ["neg", "abs", "sqrt", "reciprocal", "floor", "ceil", "round", "trunc", "sign", "exp"],
    "i": ["neg", "abs", "sign", "bitnot"],
    "u": ["neg", "sign", "bitnot"],
}
BINARY = {
    "f": ["add", "sub", "mul", "div", "max", "min", "pow"],
    "i": ["add", "sub", "mul", "div", "floordiv", "max", "min", "and", "or", "pow"],
    "u": ["add", "sub", "mul", "div", "floordiv", "max", "min", "and", "or", "pow"],
}
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, Callable[[GraphBuilder, Value, Value, Value], Value], str]:
    """(dtype, a function that builds it, its text)."""
    kind = draw(st.sampled_from(FLOATS + INTEGERS))
    family = dtype(kind).kind

    def value(depth: int) -> tuple:
        if depth == 0:
            return (draw(st.sampled_from(["x", "y", "number"])), draw(st.sampled_from(exact_numbers(kind))))
        op = draw(st.sampled_from(["unary", "binary", "constant", "square", "select", "cast"]))
        if op == "unary":
            return (draw(st.sampled_from(UNARY[family])), value(depth - 1))
        if op == "constant":
            number = ("number", draw(st.sampled_from(constants(kind))))
            sides = [value(depth - 1), number]
            return (draw(st.sampled_from(BINARY[family])), *(sides if draw(st.booleans()) else sides[::-1]))
        if op == "square":
            inner = value(depth - 1)
            return ("mul", inner, inner)
        if op == "select":
            return ("select", condition(depth - 1), value(depth - 1), value(depth - 1))
        if op == "cast":
            return ("cast", value(depth - 1), draw(st.sampled_from(FLOATS + INTEGERS)))
        return (draw(st.sampled_from(BINARY[family])), value(depth - 1), value(depth - 1))

    def condition(depth: int) -> tuple:
        op = draw(st.sampled_from(["c", "compare", "not", "and"])) if depth > 0 else "c"
        if op == "not":
            return ("not", condition(depth - 1))
        if op == "and":
            return (draw(st.sampled_from(["and", "or"])), condition(depth - 1), condition(depth - 1))
        return ("c",) if op == "c" else (draw(st.sampled_from(COMPARE)), value(depth - 1), value(depth - 1))

    tree = value(draw(st.integers(1, 3)))
    return kind, lambda b, x, y, c: built(b, tree, {"x": x, "y": y, "c": c}, kind), str(tree)


def constants(kind: str) -> list[float]:
    """`exact_numbers`, and the exponents that have rules and round as pow does."""
    exponents = {"f": [0.5, -0.5], "i": [], "u": []}[dtype(kind).kind]
    return exact_numbers(kind) + (exponents if kind != "f64" else exponents[:1])


def built(b: GraphBuilder, tree: tuple, leaves: dict[str, Value], kind: str) -> Value:
    op, *rest = tree
    if op in leaves:
        return leaves[op]
    if op == "number":
        return full(b, leaves["x"], rest[0])
    if op == "cast":  # there and back
        there = b.node("cast", [built(b, rest[0], leaves, kind)], dtype=rest[1])
        return b.node("cast", [there], dtype=kind)
    return b.node(op, [built(b, t, leaves, kind) for t in rest])


def rounds(text: str, kind: str) -> bool:
    """Does a rule that rounds differently serve this expression?"""
    return ("reciprocal" in text or "div" in text or "pow" in text) and "sqrt" in text and kind != "f64"


@settings(max_examples=600, deadline=None)
@given(expressions())
def test_rules_keep_every_bit(case: tuple[str, Callable[..., Value], str]) -> None:
    kind, build, text = case
    if rounds(text, kind):
        return
    x, y, before, after = run_both(build, kind)
    wrong = ~same_bits(before, after)
    if wrong.any():
        i = int(np.argmax(wrong))
        pytest.fail(f"{kind} {text} at x={x[i]!r} y={y[i]!r}: {before[i]!r} became {after[i]!r}")


HOLDS: dict[Sign, Callable[[np.ndarray], np.ndarray]] = {
    Sign.ANY: lambda v: np.ones(v.shape, bool),
    Sign.NOT_BELOW_ZERO: lambda v: v >= 0,
    Sign.NON_NEGATIVE: lambda v: ~np.signbit(v),
    Sign.POSITIVE: lambda v: v > 0,
}


@settings(max_examples=400, deadline=None)
@given(expressions())
def test_signs_are_true(case: tuple[str, Callable[..., Value], str]) -> None:
    kind, build, text = case
    if dtype(kind).kind != "f":
        return
    graph = graph_of(build, kind)
    level = level_of(graph)
    result = interpret(graph, feed(kind))["r"].astype(np.float64)
    assert bool(np.all(HOLDS[level](result) | np.isnan(result))), f"{kind} {text} is not {level.name}"


def level_of(graph: Graph) -> Sign:
    r = Rewriting(graph, {})
    r.run()
    return sign_of(r, r.operand(graph.outputs[0]))


def power(exponent: float) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.node("pow", [x, full(b, x, exponent)])


def there_and_back(kind: str, last: str) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.node("cast", [b.node("cast", [x], dtype=kind)], dtype=last)


def divided(by: float) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.node("div", [x, full(b, x, by)])


def of_both_zeros(b: GraphBuilder, x: Value) -> Value:
    """min(x / 0, x / -0): the zeros are two constants."""
    quotients = [b.node("div", [x, full(b, x, zero)]) for zero in (0.0, -0.0)]
    return b.node("min", quotients)


@pytest.mark.parametrize(
    "kind, steps, build",
    [
        ("f32", 0, power(0.5)),
        ("f32", 0, power(-0.5)),
        ("f16", 0, power(-1.0)),
        ("f32", 1, power(3.0)),
        ("f64", 1, power(3.0)),
        ("f32", 1, divided(3.0)),
        ("f64", 1, divided(-1e-20)),
        ("f16", 0, divided(2.0**-24)),
        ("bf16", 0, divided(2.0**126)),
        ("f32", 1, lambda b, x: b.node("reciprocal", [b.node("sqrt", [x])])),
        ("f16", 1, lambda b, x: b.node("reciprocal", [b.node("sqrt", [x])])),
        ("i8", 0, there_and_back("f32", "u8")),
        ("u8", 0, there_and_back("f32", "i8")),
        ("i32", 0, there_and_back("f64", "i8")),
        ("f32", 0, of_both_zeros),
    ],
)
def test_rules_that_have_exceptions(kind: str, steps: int, build: Callable[..., Value]) -> None:
    """`steps`: how many numbers of the dtype the rewritten result may be away; 1 is one more (or less) rounding."""
    x, _, before, after = run_both(lambda b, x, y, c: build(b, x), kind)
    if steps == 0:
        away = (~same_bits(before, after)).astype(int)
    else:
        away = steps_between(before, after)
    i = int(np.argmax(away))
    assert away[i] <= steps, f"x={x[i]!r}: {before[i]!r} became {after[i]!r}"


@pytest.mark.parametrize("exponent, op", [(0.5, "sqrt"), (-0.5, "rsqrt")])
def test_power_of_a_variance_is_a_root(exponent: float, op: str) -> None:
    """The variance of layer norm, over a dynamic and over a static row, is provably positive."""
    for size in (sym("n"), 64):
        m = Model("norm")
        x = m.input("x", "f32", (sym("rows"), size))
        for position, variance in enumerate((x.var(-1, True) + 1e-5, (x * x).mean(-1, True) + 1e-5)):
            m.output(f"y{position}", variance**exponent)
        ops = [n.op for n in run_passes(m.graph()).nodes]
        assert "pow" not in ops
        assert ops.count(op) == 2


def test_power_of_any_value_stays() -> None:
    graph = graph_of(lambda b, x, y, c: power(0.5)(b, b.node("add", [x, y])), "f32")
    assert "pow" in [n.op for n in run_passes(graph).nodes]
