"""Index maps of shape ops against NumPy."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen.inline import linear, reshape_index, strides_of
from hwsdk.graph.dims import evaluate, sym


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes with the same number of elements."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def grouped() -> tuple[int, ...]:
        out, pool = [], draw(st.permutations(factors))
        while pool:
            size = draw(st.integers(1, len(pool)))
            out.append(math.prod(pool[:size]))
            pool = pool[size:]
        return tuple(out)

    return grouped(), grouped()


@given(reshapes())
@settings(max_examples=60, deadline=None)
def test_reshape_shows_the_element_that_numpy_shows(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    index = tuple(0 if e == 1 else sym(f"i{a}") for a, e in enumerate(target))
    ranges = {f"i{a}": (0, e - 1) for a, e in enumerate(target)}
    found = reshape_index(source, target, index, ranges)
    numbers = np.arange(math.prod(source)).reshape(source)
    for at in np.ndindex(*target):
        values = {f"i{a}": i for a, i in enumerate(at)}
        assert numbers[tuple(evaluate(f, values) for f in found)] == numbers.reshape(target)[at]


def test_symbolic_groups_need_no_division() -> None:
    n, m = sym("n"), sym("m")
    index = tuple(sym(f"i{a}") for a in range(4))
    ranges = {"n": (1, None), "m": (1, None), **{f"i{a}": (0, None) for a in range(4)}}
    found = reshape_index((n, m, 384), (n, m, 12, 32), index, ranges)
    assert found == (sym("i0"), sym("i1"), 32 * sym("i2") + sym("i3"))


def test_linear_is_row_major() -> None:
    n = sym("n")
    assert strides_of((2, n, 3)) == (3 * n, 3, 1)
    assert linear((sym("a"), sym("b"), 1), (2, n, 3)) == 3 * n * sym("a") + 3 * sym("b") + 1
