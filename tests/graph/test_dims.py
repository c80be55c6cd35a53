"""Dims: canonical forms, text, evaluation, bounds and simplification, against Python's integers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.errors import GraphError
from hwsdk.graph import dims as d

a, b, h, i, j, n, t, w, x = map(d.sym, "abhijntwx")
k = d.sym("k")

SAME = [
    ((h * 64 + i * 128) // 64, "h + 2*i"),
    ((a * 6 + b * 3) // 3, "2*a + b"),
    ((a * 4 + 3) // 4, "a"),
    ((a * b) // b, "a"),
    ((n * 384) // n, "384"),
    ((a * b * 12) // (b * 4), "3*a"),
    ((a * n + a) // (n + 1), "a"),
    ((a * n + x) // n, "a + x//n"),
    ((a * n + x) % n, "x % n"),
    (x - x, "0"),
    ((x // 4) // 8, "x//32"),
    ((x // 4 + 1) // 2, "(x + 4)//8"),
    ((x % 64) // 16, "(x//16) % 4"),
    ((x % 12) % 4, "x % 4"),
    (x // 4 * 4 + x % 4, "x"),
    (x % 4 + 4 * ((x // 4) % 3) + 12 * (x // 12), "x"),
    ((a * w + x) // w * w + (a * w + x) % w, "a*w + x"),
    ((h + 2 - 3) // 2 + 1, "(h + 1)//2"),
    (d.ceildiv(n, 64), "(n + 63)//64"),
    (d.minimum(a, a + 3, b, a + 1), "min(a, b)"),
    (d.maximum(d.maximum(a, 3), 5), "max(5, a)"),
    (d.ge(2 * a, 2 * b + 1), "ge(a, b + 1)"),
    (d.eq(2 * a, 2 * b + 1), "0"),
    (d.eq(b, a), "eq(a, b)"),
    (d.ge(a, b) * d.ge(a, b), "ge(a, b)"),
    (d.lt(a, b), "ge(b, a + 1)"),
    (d.both(d.ge(a, 0), 1), "ge(a, 0)"),
]


@pytest.mark.parametrize("dim, text", SAME, ids=[s for _, s in SAME])
def test_canonical_forms(dim: d.Dim, text: str) -> None:
    assert dim == d.parse(text)


NONNEGATIVE = {"n": (0, None), "w": (1, None), "h": (0, None)}
SIMPLE = [
    ((h * 64 + i) // 64, {"i": (0, 63)}, h),
    ((h * 64 + i) % 64, {"i": (0, 63)}, i),
    ((h * 32 + i) // 64, {"i": (0, 31)}, h // 2),
    ((h * 32 + i) % 64, {"i": (0, 31)}, h % 2 * 32 + i),
    ((a * w + i) // w, {"i": (0, w - 1), "w": (1, None)}, a),
    ((a * w + i) % w, {"i": (0, w - 1), "w": (1, None)}, i),
    (d.minimum(n, 64), {"n": (0, 32)}, n),
    (d.minimum(n, n + t), {"t": (0, None)}, n),
    (d.maximum(0, n - 5), {"n": (5, None)}, n - 5),
    (d.ge(n, 3), {"n": (4, None)}, 1),
    (d.ge(n, 3), {"n": (0, 2)}, 0),
    (d.ceildiv(i, n), {"i": (1, n), "n": (1, None)}, 1),
    ((i - 1) % 8, {"i": (1, 8)}, i - 1),
    # splitting a tile of 64 over n, with its last part cut, stays inside n
    (
        d.maximum(0, n - 1 - 64 * t - j),
        {"t": (0, d.ceildiv(n, 64) - 1), "j": (0, d.minimum(64, n - 64 * t) - 1)},
        None,
    ),
]


@pytest.mark.parametrize("dim, ranges, wanted", SIMPLE, ids=[str(s[0]) for s in SIMPLE])
def test_simplify_under_ranges(dim: d.Dim, ranges: d.Ranges, wanted: d.Dim | None) -> None:
    assert d.simplify(dim, ranges) == (n - 1 - 64 * t - j if wanted is None else wanted)


def test_bounds() -> None:
    assert d.bounds(2 * a - b, {"a": (1, 3), "b": (0, 4)}) == (-2, 6)
    assert d.bounds(a * b, {"a": (0, 3), "b": (-2, None)}) == (-6, None)
    assert d.bounds(a * a, {}) == (0, None)
    assert d.bounds(d.ceildiv(n, 64) * 64 - n, {"n": (0, None)}) == (0, 63)
    assert d.bounds(n % 8, {}) == (0, 7)
    assert d.bounds(n // 8, {"n": (0, 17)}) == (0, 2)
    assert d.bounds(d.sym("unknown"), {}) == (None, None)
    assert d.bounds(7, {}) == (7, 7)


def test_coefficient() -> None:
    assert d.coefficient(n * i + 3 * i + j, "i") == n + 3
    assert d.coefficient(n * i, "j") == 0
    assert d.coefficient(i * i, "i") is None
    assert d.coefficient(i // 2 + i, "i") is None
    assert d.coefficient(5, "i") == 0


def test_terms_are_a_sum_of_products() -> None:
    dim = 3 * a * b - n + 7
    assert d.terms(dim)[-1] == (7, ())
    assert d.terms(0) == ()
    assert d.terms(4) == ((4, ()),)


def test_substitute_all_at_once() -> None:
    assert d.substitute(a + 2 * b, {"a": b, "b": a}) == b + 2 * a
    assert d.substitute((h * 64 + i) // 64, {"i": 0}) == h
    atom = d.single_atom(n // 4)
    assert atom is not None
    assert d.replace_atoms(n // 4 + (n // 4 + b) // 2, {atom: 2 * a}) == 3 * a + b // 2


def test_evaluate_with_arrays() -> None:
    got = d.evaluate(h * 64 + i % 3, {"h": np.arange(3)[:, None], "i": np.arange(4)})
    np.testing.assert_array_equal(got, np.arange(3)[:, None] * 64 + np.arange(4) % 3)
    assert d.evaluate(d.minimum(n, 5), {"n": np.int64(9)}) == 5
    assert d.evaluate(d.ge(n, 3), {"n": np.array([1, 3])}).tolist() == [0, 1]


def test_errors_name_the_dim() -> None:
    with pytest.raises(GraphError, match="'q' has no value"):
        d.evaluate(d.sym("q"), {})
    with pytest.raises(GraphError, match=r"division by zero in dimension 'a//n'"):
        d.evaluate(a // n, {"a": 1, "n": 0})
    with pytest.raises(GraphError, match="division by zero"):
        d.evaluate(d.floordiv(3, 0), {})
    with pytest.raises(GraphError, match="not a name"):
        d.sym("a b")
    with pytest.raises(TypeError):
        a + 1.5  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "a b",
        "(a",
        "a)",
        "f(a)",
        "min()",
        "floordiv(a)",
        "a $$$ @",
        "1.5",
        "a..b",
        "9" * 99,
        "(" * 99,
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(GraphError, match=r"dimension|name"):
        d.parse(text)


def test_numpy_integers_are_dims() -> None:
    assert np.int64(3) * a == 3 * a
    assert a + np.int32(2) == a + 2
    assert isinstance(d.as_dim(np.int64(3)), int)


def test_pickle_keeps_identity_of_atoms() -> None:
    dim = d.minimum((h * 64 + i) // 63, n) % 7
    assert pickle.loads(pickle.dumps(dim)) == dim  # noqa: S301 - our own bytes


# ------------------------------------------------------------------------------------------------- properties
Case = tuple[d.Dim, "object"]
_NAMES = ("a", "b", "c", "n")


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[d.Dim, object]:
    """A dim and a Python function that computes the same from {name: value}."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.booleans()):
            value = draw(st.sampled_from([-7, -1, 0, 1, 2, 3, 4, 8, 64]))
            return value, lambda v: value
        name = draw(st.sampled_from(_NAMES))
        return d.sym(name), lambda v: v[name]
    p, fp = draw(expressions(depth - 1))
    q, fq = draw(expressions(depth - 1))
    op = draw(st.sampled_from(sorted(_OPERATIONS)))
    if op in ("floordiv", "mod", "ceildiv") and draw(st.integers(0, 3)):
        q = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 64, -4]))
        divisor = q
        return _OPERATIONS[op][0](p, q), lambda v: _OPERATIONS[op][1](fp(v), divisor)
    return _OPERATIONS[op][0](p, q), lambda v: _OPERATIONS[op][1](fp(v), fq(v))


_OPERATIONS = {
    "add": (d.add, lambda p, q: p + q),
    "sub": (lambda p, q: d.add(p, d.multiply(-1, q)), lambda p, q: p - q),
    "mul": (d.multiply, lambda p, q: p * q),
    "floordiv": (d.floordiv, lambda p, q: p // q),
    "mod": (d.mod, lambda p, q: p % q),
    "ceildiv": (d.ceildiv, lambda p, q: -(-p // q)),
    "min": (d.minimum, min),
    "max": (d.maximum, max),
    "ge": (d.ge, lambda p, q: int(p >= q)),
    "eq": (d.eq, lambda p, q: int(p == q)),
    "lt": (d.lt, lambda p, q: int(p < q)),
}


@settings(max_examples=150, deadline=None)
@given(expressions(), st.data())
def test_agrees_with_python(case: tuple[d.Dim, object], data: st.DataObject) -> None:
    dim, function = case
    assert d.parse(str(dim)) == dim
    ranges: dict[str, d.Range] = {}
    values: dict[str, int] = {}
    for name in ("n", "a", "b", "c"):
        low = data.draw(st.integers(-6, 6))
        value = data.draw(st.integers(low, low + 30))
        ends: list[d.Dim | None] = [value + data.draw(st.integers(0, 5)), None]
        if name != "n" and value <= values["n"]:
            ends.append(d.sym("n"))  # an end that is itself a dim
        values[name] = value
        ranges[name] = (data.draw(st.sampled_from([low, None])), data.draw(st.sampled_from(ends)))
    try:
        wanted = function(values)  # type: ignore[operator]
    except ZeroDivisionError:
        return
    assert d.evaluate(dim, values) == wanted
    arrays = {name: np.array([v, v]) for name, v in values.items()}
    assert np.all(d.evaluate(dim, arrays) == wanted)
    assert d.evaluate(d.simplify(dim, ranges), values) == wanted
    low, high = d.bounds(dim, ranges)
    assert low is None or low <= wanted
    assert high is None or wanted <= high
    assert d.substitute(dim, dict(values)) == wanted
