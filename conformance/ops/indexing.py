"""Rows for gathers and scatters.

Design choice: indices are drawn inside the extent (negative ones included where the operation wraps them),
because what an index outside gives is not defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .spec import ALL, NUMBERS, Make, Spec, sizes

TABLE = 19  # rows that indices may name


def _gather(axis: int) -> Callable[[Make], Any]:
    def make(m: Make) -> Any:
        shape: tuple[Any, ...] = (TABLE, "n") if axis == 0 else ("n", TABLE)
        return m.node(
            "gather", m.x("x", *shape), m.x("i", "k", 2, dtype="i64", domain=f"index{TABLE}"), axis=axis
        )

    return make


def _embedding(m: Make) -> Any:
    return m.node(
        "gather", m.const("table", TABLE, 24), m.x("i", "b", "k", dtype="i64", domain=f"index{TABLE}"), axis=0
    )


def _gather_elements(m: Make) -> Any:
    return m.node(
        "gather_elements",
        m.x("x", "n", TABLE),
        m.x("i", "n", "k", dtype="i64", domain=f"index{TABLE}"),
        axis=1,
    )


def _gather_nd(m: Make) -> Any:
    return m.node(
        "gather_nd",
        m.x("x", TABLE, TABLE, "n"),
        m.x("i", "k", 2, dtype="i64", domain=f"index{TABLE}"),
        batch_dims=0,
    )


def _scatter_nd(combiner: str) -> Callable[[Make], Any]:
    def make(m: Make) -> Any:
        indices = "distinct" if combiner == "none" else f"index{TABLE}"
        return m.node(
            "scatter_nd", m.x("x", TABLE, "n", domain="small"), m.x("i", "k", 1, dtype="i64", domain=indices),
            m.x("u", "k", "n", domain="small"), combiner=combiner,
        )  # fmt: skip

    return make


def _scatter_elements(m: Make) -> Any:
    return m.node(
        "scatter_elements", m.x("x", TABLE, "n", domain="small"),
        m.x("i", "k", "n", dtype="i64", domain=f"index{TABLE}"),
        m.x("u", "k", "n", domain="small"), axis=0, combiner="add",
    )  # fmt: skip


SIZES = sizes("n k", (0, 2), (3, 0), (1, 1), (2, 3), (7, 13), (64, 16), (127, 31), (1009, 5))
FEW = sizes("n k", (0, 2), (3, 0), (1, 1), (2, 3), (7, 13), (64, 16), (127, 19))
INDEXING = (
    Spec("gather", _gather(0), ALL, SIZES),
    Spec("gather_last", _gather(1), ALL, SIZES),
    Spec("embedding", _embedding, ALL, sizes("b k", (0, 1), (1, 1), (2, 7), (3, 31), (5, 128))),
    Spec("gather_elements", _gather_elements, ALL, SIZES),
    Spec("gather_nd", _gather_nd, ALL, SIZES),
    Spec("scatter_nd", _scatter_nd("none"), NUMBERS, FEW),
    Spec("scatter_nd_add", _scatter_nd("add"), NUMBERS, FEW, lambda s: s["k"] + 1, in_memory=True),
    Spec("scatter_elements_add", _scatter_elements, NUMBERS, FEW, lambda s: s["k"] + 1, in_memory=True),
)
