"""Constant folding: a node whose operands are all constants becomes a constant.

Design choice: only results that are not much larger than what they are made from are folded, so that a scalar
spread over a million elements stays a broadcast and an artifact does not swell.
"""

from __future__ import annotations

import math

import numpy as np

from hwsdk.dtypes import dtype
from hwsdk.errors import HwsdkError
from hwsdk.graph.dims import Expr
from hwsdk.graph.opdef import Array, Value
from hwsdk.graph.ops import op_def
from hwsdk.graph.ops_elementwise import ELEMENTWISE
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule, full_like

SMALL = 1024  # elements that are always worth folding
_VIEWS = ("broadcast_in_dim", "iota", "full")  # cheaper to compute than to load


def fold(r: Rewriting, m: Match) -> Value | None:
    if not m.inputs or not any(r.array(v) is not None for v in m.inputs):
        return None
    arrays = [a for a in (_known(r, v) for v in m.inputs) if a is not None]
    if len(arrays) != len(m.inputs) or any(isinstance(d, Expr) for d in m.type.shape):
        return None
    elements = math.prod(d for d in m.type.shape if isinstance(d, int))
    if m.op in _VIEWS or elements > max(SMALL, 2 * sum(a.size for a in arrays)):
        return None
    try:
        (result,) = op_def(m.op).reference(m.attrs, arrays, {})
    except HwsdkError:  # needs a dim, or has no value: it will be reported when it runs
        return None
    return r.constant(result)


def _known(r: Rewriting, value: Value) -> Array | None:
    """The array of a constant, or of a number that is spread over a small static shape."""
    array = r.array(value)
    number = r.uniform(value) if array is None else None
    if number is None:
        return array
    shape = tuple(d for d in value.shape if isinstance(d, int))
    small = len(shape) == value.rank and math.prod(shape) <= SMALL
    return np.broadcast_to(np.asarray(number), shape) if small else None


# f of numbers that are the same everywhere is the same number everywhere
def fold_uniform(r: Rewriting, m: Match) -> Value | None:
    numbers = [r.uniform(v) for v in m.inputs]
    if not numbers or any(n is None for n in numbers):
        return None
    (result,) = op_def(m.op).reference(m.attrs, [np.asarray(n) for n in numbers], {})
    if dtype(m.type.dtype).kind == "f" and not bool(np.isfinite(result.astype(np.float64))):
        return None  # `full` holds no NaN payload
    return full_like(r, m.type.shape, m.type.dtype, result[()])


FOLD_RULES: dict[str, list[Rule]] = {
    "*": [fold],
    **{name: [fold_uniform] for name in ELEMENTWISE if name != "bitcast"},
}
