"""Constraints: unification, elimination, ranges, multiples, and what is checked at run time."""

from __future__ import annotations

import pytest

from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import maximum, minimum, sym

a, b, h, m, n, s = map(sym, "abhmns")


def declared(*names: str, **ranges: tuple[int, int | None]) -> Constraints:
    c = Constraints()
    for name in names:
        c.declare(name)
    for name, (low, high) in ranges.items():
        c.declare(name, low, high)
    return c


def test_the_symbol_that_came_first_stays() -> None:
    c = declared("n", "m")
    c.unify(m, n, "add")
    assert c.resolve(m * 2 + 1) == 2 * n + 1
    assert c.symbols() == ("n",)
    assert c.equal(m, n)


def test_equations_are_solved() -> None:
    c = declared("n", "s", "h")
    c.unify(s, 5, "five")
    assert c.resolve(s) == 5
    c.unify(3 * h, 6 * n + 9, "triples")
    assert c.resolve(h) == 2 * n + 3
    c.unify((n + 1) // 2, 4 * sym("q"), "half")
    assert c.equal((n + 1) // 2, 4 * sym("q"))


def test_products_are_not_divided_by_symbols() -> None:
    c = declared("a", "n", "m")
    c.unify(a * n, a * m, "reshape")  # a may be 0
    assert c.solutions == {}
    assert c.equalities == [(a * n, a * m)]
    assert c.equal(a * n, a * m)
    assert c.equal(2 * a * n, 2 * a * m)
    assert not c.equal(n, m)
    assert c.violations({"a": 0, "n": 1, "m": 2}) == []
    assert c.violations({"a": 1, "n": 1, "m": 2}) == [
        "a*n is 1 and a*m is 2, but they must be equal (reshape)"
    ]


def test_equal_sizes_look_equal() -> None:
    c = declared("h")
    small, large = (h + 31) // 32, (h + 7) // 8
    c.unify(2 * large, 8 * small, "concat")
    assert c.resolve(large) == 4 * small
    assert c.violations({"h": 32}) == []
    assert "concat" in c.violations({"h": 8})[0]


def test_contradictions_are_refused() -> None:
    c = declared("n", s=(1, 4))
    for x, y in ((n, n + 1), (s, 9), (3, 4), (2 * n, 2 * s + 1), (n + 1, 0)):
        with pytest.raises(GraphError, match=r"never|would be|no integers|empty range"):
            c.unify(x, y, "why")
    with pytest.raises(GraphError, match=r"why: .* never be equal"):
        declared("n", s=(1, 4)).unify(s + n, n, "why")
    even = Constraints()
    even.declare("s", multiple=2)
    with pytest.raises(GraphError, match="s would be 3, which its declaration excludes"):
        even.unify(s, 3, "why")


def test_ranges_follow_the_survivor() -> None:
    c = declared(n=(0, 100), m=(1, 12))
    c.unify(m, n, "same")
    assert c.range_of(n) == (1, 12)
    assert c.range_of(3 * n + 1) == (4, 37)


def test_nonnegative_narrows_ranges() -> None:
    c = declared("h", "s", "n")
    assert c.nonnegative(h - 2, "window") == h - 2
    assert c.ranges["h"] == (2, None)
    c.nonnegative(512 - s, "table")
    assert c.ranges["s"] == (0, 512)
    c.nonnegative((n + 1) // 4 - 3, "strided")
    assert c.ranges["n"] == (11, None)
    c.nonnegative(3 - n // 8, "at most")
    assert c.ranges["n"] == (11, 31)
    with pytest.raises(GraphError, match=r"late: .* always negative"):
        c.nonnegative(5 - n, "late")


def test_nonnegative_of_several_symbols_is_checked_later() -> None:
    c = declared("a", "b")
    c.nonnegative(a - b, "crop")
    assert c.violations({"a": 1, "b": 2}) == ["a - b is -1, but must not be negative (crop)"]
    assert c.violations({"a": 2, "b": 2}) == []


def test_guards_say_what_ranges_cannot() -> None:
    c = declared("a", "b", s=(1, 4))
    c.unify(a * b, 6, "product")
    c.nonnegative(a - b, "crop")
    c.unify(s, a + 1, "shift")
    assert c.ranges["a"] == (0, 3)
    assert [(str(g), r) for g, r in c.guards()] == [("eq(a*b, 6)", "product"), ("ge(a, b)", "crop")]
    assert c.simplify(maximum(0, a - b)) == a - b


def test_multiples() -> None:
    c = Constraints()
    c.declare("n", 0, 4096, multiple=64)
    assert c.simplify(n % 16) == 0
    assert c.simplify(n // 64 * 64) == n
    assert c.simplify((n + 31) // 32 * 32) == n
    assert c.violations({"n": 65}) == ["n is 65, but must be a multiple of 64"]


def test_simplify_uses_ranges() -> None:
    c = declared(n=(0, 32))
    assert c.simplify(minimum(n, 64)) == n
    assert c.simplify(maximum(0, n + 3)) == n + 3


def test_violations_of_ranges() -> None:
    c = declared(n=(1, 8), m=(3, None))
    assert c.violations({"n": 9, "m": 2}) == ["n is 9, but must be 1..8", "m is 2, but must be at least 3"]


def test_frozen_constraints_learn_nothing() -> None:
    c = declared("n", "m").copy(frozen=True)
    with pytest.raises(GraphError, match="r: n and m are not known to be equal"):
        c.unify(n, m, "r")
    with pytest.raises(GraphError, match="fixed"):
        c.declare("q")
    c.copy().unify(n, m, "r")


def test_bad_declarations() -> None:
    with pytest.raises(GraphError, match="empty range"):
        declared(n=(4, 3))
    with pytest.raises(GraphError, match="multiple"):
        Constraints().declare("n", multiple=0)
