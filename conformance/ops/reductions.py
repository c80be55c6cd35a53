"""Rows for reductions, windows, running sums, sorting, and the two stitched patterns that every transformer
has.

Design choice: `terms` states how many values one result accumulates; the tolerance follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.graph.dims import sym

from .spec import FLOATS, FULL_PLANE, INTEGERS, LINE, NUMBERS, PLANE, Make, Sizes, Spec, sizes

M, N = sym("m"), sym("n")
AXES: dict[str, tuple[tuple[int, ...], Callable[[Sizes], int]]] = {
    "last": ((1,), lambda s: s["n"]),
    "first": ((0,), lambda s: s["m"]),
    "all": ((0, 1), lambda s: s["m"] * s["n"]),
}


def _reduce(kind: str, axes: tuple[int, ...], domain: str) -> Callable[[Make], Any]:
    return lambda m: m.node("reduce", m.x("x", "m", "n", domain=domain), kind=kind, axes=axes, keepdims=False)


def _reductions() -> list[Spec]:
    rows = []
    for kind in ("sum", "max", "min", "prod", "any", "all"):
        dtypes = ("bool",) if kind in ("any", "all") else NUMBERS
        domain = "any" if kind in ("max", "min") else "unit" if kind == "prod" else "plain"
        for where, (axes, terms) in AXES.items():
            counted = terms if kind in ("sum", "prod") else None
            rows.append(Spec(f"reduce_{kind}_{where}", _reduce(kind, axes, domain), dtypes, PLANE, counted))
    for kind in ("argmax", "argmin"):
        for where in ("last", "first"):
            make = _reduce(kind, AXES[where][0], "plain")
            rows.append(Spec(f"reduce_{kind}_{where}", make, NUMBERS, FULL_PLANE))
    return rows


def _keepdims(m: Make) -> Any:
    return m.node("reduce", m.x("x", "m", "n"), kind="sum", axes=(1,), keepdims=True)


def _row(m: Make, x: Any, kind: str) -> Any:
    """A reduction over the last axis, broadcast back."""
    return m.node(
        "broadcast_in_dim", m.node("reduce", x, kind=kind, axes=(1,), keepdims=False), shape=(M, N), dims=(0,)
    )


def _softmax(m: Make) -> Any:
    x = m.x("x", "m", "n")
    e = m.node("exp", m.node("sub", x, _row(m, x, "max")))
    return m.node("div", e, _row(m, e, "sum"))


def _softmax_terms(s: Sizes) -> int:
    return s["n"] + 8  # the sum, and a few roundings of exp's argument


def _window(kind: str) -> Callable[[Make], Any]:
    def make(m: Make) -> Any:
        ones = (1, 1, 1, 1)
        return m.node(
            "reduce_window", m.x("x", 2, "m", "n", 5), kind=kind, window=(1, 3, 2, 1), strides=(1, 2, 1, 1),
            low=(0, 1, 0, 0), high=(0, 1, 1, 0), dilations=ones,
        )  # fmt: skip

    return make


def _cumulative(kind: str, exclusive: bool, reverse: bool) -> Callable[[Make], Any]:
    domain = "unit" if kind == "prod" else "plain"
    return lambda m: m.node(
        "cumulative",
        m.x("x", "m", "n", domain=domain),
        kind=kind,
        axis=1,
        exclusive=exclusive,
        reverse=reverse,
    )


def _sort(descending: bool) -> Callable[[Make], Any]:
    return lambda m: tuple(m.node("sort", m.x("x", "m", "n"), axis=1, descending=descending))


def _top_k(largest: bool) -> Callable[[Make], Any]:
    return lambda m: tuple(m.node("top_k", m.x("x", "m", "n"), axis=1, k=3, largest=largest))


WINDOWS = sizes("m n", (1, 1), (2, 2), (7, 13), (16, 16), (31, 17), (64, 33))
SMALL = sizes("m n", (0, 3), (3, 0), (1, 1), (2, 2), (7, 13), (3, 127), (33, 64), (5, 1009))
TOP = sizes("m n", (0, 3), (1, 3), (2, 5), (7, 13), (33, 64), (5, 1009))
REDUCTIONS = (
    *_reductions(),
    Spec("reduce_keepdims", _keepdims, NUMBERS, PLANE, lambda s: s["n"]),
    Spec("reduce_line", lambda m: m.node("reduce", m.x("x", "n"), kind="sum", axes=(0,), keepdims=False),
         NUMBERS, LINE, lambda s: s["n"]),
    Spec("softmax", _softmax, ("f32",), FULL_PLANE, _softmax_terms, relative=True, function="exp"),
    *(Spec(f"reduce_window_{k}", _window(k), (*FLOATS, *INTEGERS), WINDOWS, (lambda s: 6) if k == "sum" else None)
      for k in ("sum", "max", "min")),
    Spec("cumulative_sum", _cumulative("sum", False, False), NUMBERS, SMALL, lambda s: s["n"]),
    Spec("cumulative_sum_exclusive_reverse", _cumulative("sum", True, True), NUMBERS, SMALL, lambda s: s["n"]),
    Spec("cumulative_prod", _cumulative("prod", False, False), ("f32", "i64"), SMALL, lambda s: s["n"]),
    Spec("cumulative_max", _cumulative("max", False, False), NUMBERS, SMALL),
    Spec("sort", _sort(False), NUMBERS, SMALL),
    Spec("sort_descending", _sort(True), NUMBERS, SMALL),
    Spec("top_k", _top_k(True), NUMBERS, TOP),
    Spec("top_k_smallest", _top_k(False), NUMBERS, TOP),
)  # fmt: skip
