"""What is known about the sign of a float value: a small lattice, derived from the nodes behind the value.

    ANY  >  NOT_BELOW_ZERO (x >= 0; -0 is possible)  >  NON_NEGATIVE (+0 or more)  >  POSITIVE (more than 0)

Every level allows NaN as well: whoever asks must give NaN for NaN.

Design choice: one row per op says what the levels of the operands make of the result, floats that underflow to
+0 included.  A walk of bounded depth finds the level; where it ends, or an op has no row, the answer is ANY,
which is always true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from hwsdk.dtypes import dtype
from hwsdk.graph.opdef import Array, Value
from hwsdk.graph.passes.rewriting import Match, Rewriting

_DEPTH = 24  # nodes on a path that are looked at
_LARGEST = 1 << 20  # elements of a constant that are looked at


class Sign(IntEnum):
    """The greater, the more is known."""

    ANY = 0
    NOT_BELOW_ZERO = 1
    NON_NEGATIVE = 2
    POSITIVE = 3


def sign_of(r: Rewriting, value: Value) -> Sign:
    """The best level that is proved for every element of the value."""
    return _find(r, value, _DEPTH, {})


def _find(r: Rewriting, value: Value, depth: int, known: dict[str, Sign]) -> Sign:
    if value.name not in known:
        known[value.name] = _derive(r, value, depth, known)
    return known[value.name]


def _derive(r: Rewriting, value: Value, depth: int, known: dict[str, Sign]) -> Sign:
    array = r.array(value)
    number = r.uniform(value) if array is None else None
    if array is not None or number is not None:
        return _of_array(np.asarray(number) if array is None else array)
    if dtype(value.dtype).kind in "ub":
        return Sign.NON_NEGATIVE
    node = r.producer(value)
    if node is None or depth == 0:
        return Sign.ANY
    if node.op in _SPECIAL:
        return _SPECIAL[node.op](r, node, [_find(r, v, depth - 1, known) for v in node.inputs])
    if node.op not in _ROWS or dtype(value.dtype).kind != "f":
        return Sign.ANY
    return _ROWS[node.op]([_find(r, v, depth - 1, known) for v in node.inputs])


def _of_array(array: Array) -> Sign:
    if array.size > _LARGEST:
        return Sign.ANY
    wide = array.astype(np.float64)
    if bool(np.all((wide > 0) | np.isnan(wide))):
        return Sign.POSITIVE
    if bool(np.all(~np.signbit(wide) | np.isnan(wide))):
        return Sign.NON_NEGATIVE
    return Sign.NOT_BELOW_ZERO if bool(np.all((wide >= 0) | np.isnan(wide))) else Sign.ANY


def _at_most_non_negative(levels: Sequence[Sign]) -> Sign:
    """A product, a rounding or a narrower dtype may take a positive number to +0."""
    return min(*levels, Sign.NON_NEGATIVE)


def _sum(levels: Sequence[Sign]) -> Sign:
    """-0 + -0 = -0, -0 + 0 = 0;  a positive term leaves the sum positive."""
    return max(levels) if min(levels) > Sign.ANY else Sign.ANY


def _inverse(levels: Sequence[Sign]) -> Sign:
    """1/-0 is -inf, 1/inf is 0."""
    return Sign.NON_NEGATIVE if levels[0] >= Sign.NON_NEGATIVE else Sign.ANY


def _quotient(levels: Sequence[Sign]) -> Sign:
    return min(levels[0], _inverse(levels[1:]))


def _larger(levels: Sequence[Sign]) -> Sign:
    """max(-0, 0) may be either."""
    if max(levels) == Sign.POSITIVE or min(levels) == max(levels):
        return max(levels)
    return min(max(levels), max(min(levels), Sign.NOT_BELOW_ZERO))


def _reduced(r: Rewriting, m: Match, levels: Sequence[Sign]) -> Sign:
    """Over nothing: a sum is 0, a product 1, the least inf, the greatest -inf."""
    if dtype(m.type.dtype).kind != "f":
        return Sign.ANY
    kind, (level,) = m.attrs["kind"], levels
    if kind in ("sum", "prod"):
        return _at_most_non_negative(levels)
    if kind == "max":
        sizes = [m.inputs[0].shape[a] for a in m.attrs["axes"]]
        return level if all((r.constraints.range_of(s)[0] or 0) >= 1 for s in sizes) else Sign.ANY
    return level if kind == "min" else Sign.ANY


def _squared(r: Rewriting, m: Match, levels: Sequence[Sign]) -> Sign:
    if dtype(m.type.dtype).kind != "f":
        return Sign.ANY
    return Sign.NON_NEGATIVE if m.inputs[0] == m.inputs[1] else _at_most_non_negative(levels)


def _converted(r: Rewriting, m: Match, levels: Sequence[Sign]) -> Sign:
    """Integers that wrap may change sign, so only a float result says something."""
    return _at_most_non_negative(levels) if dtype(m.type.dtype).kind == "f" else Sign.ANY


def _sizes(r: Rewriting, m: Match, levels: Sequence[Sign]) -> Sign:
    lows = [r.constraints.range_of(e)[0] for e in m.attrs["exprs"]]
    return Sign.NON_NEGATIVE if all(low is not None and low >= 0 for low in lows) else Sign.ANY


_ROWS: dict[str, Callable[[Sequence[Sign]], Sign]] = {
    "abs": lambda s: max(s[0], Sign.NON_NEGATIVE),
    "exp": lambda s: Sign.NON_NEGATIVE,
    "exp2": lambda s: Sign.NON_NEGATIVE,
    "cosh": lambda s: Sign.POSITIVE,
    "sqrt": lambda s: max(s[0], Sign.NOT_BELOW_ZERO),
    "rsqrt": _inverse,
    "reciprocal": _inverse,
    "div": _quotient,
    "add": _sum,
    "max": _larger,
    "min": min,
    "select": lambda s: min(s[1:]),
    "pow": lambda s: Sign.NON_NEGATIVE if s[0] >= Sign.NON_NEGATIVE else Sign.ANY,
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _at_most_non_negative),
}
_SPECIAL: dict[str, Callable[[Rewriting, Match, Sequence[Sign]], Sign]] = {
    "mul": _squared,
    "cast": _converted,
    "reduce": _reduced,
    "dims": _sizes,
    **dict.fromkeys(
        ("broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "concat"),
        lambda r, m, levels: min(levels),
    ),
}
