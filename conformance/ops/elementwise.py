"""Rows for elementwise operations: one for each scalar operation that the graph knows, taken from its own
table.

Design choice: a scalar operation added to the table is under test at once; only domains that avoid undefined
results (division by zero of integers, shifts beyond the width) are stated here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import sym
from hwsdk.graph.scalar import SCALAR

from .spec import ALL, FLOATS, LINE, NUMBERS, Make, Spec

STEPPED = frozenset({"floordiv", "mod", "fmod"})
EXACT = frozenset("add sub mul div neg abs sqrt floor ceil round trunc sign max min fmod mod".split())
# second operand, for integers and for floats: what keeps the result defined
SECOND_INTEGER = {
    "div": "nonzero",
    "floordiv": "nonzero",
    "mod": "nonzero",
    "fmod": "nonzero",
    "pow": "positive",
}
SECOND_INTEGER |= {"shl": "shift", "shr": "shift"}
FIRST_FLOAT = {"pow": "positive", "mod": "plain", "fmod": "plain", "floordiv": "plain"}
SECOND_FLOAT = {"pow": "plain", "mod": "nonzero", "fmod": "nonzero", "floordiv": "nonzero"}


def elementwise() -> tuple[Spec, ...]:
    """A row per scalar operation, then select, cast and clamp."""
    rows = [_row(name) for name in SCALAR if SCALAR[name].arity in (1, 2)]
    return (*rows, *SELECT, *CASTS)


def _row(name: str) -> Spec:
    op = SCALAR[name]
    dtypes = tuple(d for d in ALL if DTYPES[d].kind in op.kinds)
    function = "" if name in EXACT else name
    make = _unary(name) if op.arity == 1 else _binary(name)
    return Spec(name, make, dtypes, LINE, function=function, stepped=name in STEPPED)


def _unary(name: str) -> Callable[[Make], Any]:
    return lambda m: m.node(name, m.x("x", "n", domain="any"))


def _binary(name: str) -> Callable[[Make], Any]:
    def make(m: Make) -> Any:
        floats = DTYPES[m.dtype].kind == "f"
        first = FIRST_FLOAT.get(name, "any") if floats else "small" if name == "pow" else "any"
        second = (SECOND_FLOAT if floats else SECOND_INTEGER).get(name, "any")
        return m.node(name, m.x("x", "n", domain=first), m.x("y", "n", domain=second))

    return make


def _select(m: Make) -> Any:
    cond = m.x("c", "n", dtype="bool")
    return m.node("select", cond, m.x("x", "n", domain="any"), m.x("y", "n", domain="any"))


def _masked_plane(m: Make) -> Any:
    """A row condition, a column bias and a plane: broadcasts in both directions around a select."""
    shape = (sym("m"), sym("n"))
    cond = m.node("broadcast_in_dim", m.x("c", "m", dtype="bool"), shape=shape, dims=(0,))
    bias = m.node("broadcast_in_dim", m.x("b", "n"), shape=shape, dims=(1,))
    return m.node("select", cond, m.node("add", m.x("x", "m", "n"), bias), bias)


SELECT = (
    Spec("select", _select),
    Spec(
        "select_broadcast", _masked_plane, NUMBERS,
        tuple({"m": m, "n": n} for m, n in ((0, 3), (3, 0), (1, 1), (2, 7), (17, 31), (64, 64), (101, 257))),
    ),
)  # fmt: skip


def _cast(to: str) -> Callable[[Make], Any]:
    return lambda m: m.node("cast", m.x("x", "n", domain="any"), dtype=m.type(to))


CASTS = tuple(
    Spec(f"cast_to_{to}", _cast(to), tuple(d for d in ALL if d != to), LINE) for to in (*FLOATS, *ALL[2:])
)
