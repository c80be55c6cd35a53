"""Constant folding: a node whose operands are all constants becomes a constant.

Design choice: only results that are not much larger than what they are made from are folded, so that a scalar
spread over a million elements stays a broadcast and an artifact does not swell.
"""

from __future__ import annotations

import math

from hwsdk.errors import HwsdkError
from hwsdk.graph.dims import Expr
from hwsdk.graph.opdef import Value
from hwsdk.graph.ops import op_def
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule

SMALL = 1024  # elements that are always worth folding
_VIEWS = ("broadcast_in_dim", "iota", "full")  # cheaper to compute than to load


def fold(r: Rewriting, m: Match) -> Value | None:
    arrays = [a for a in map(r.array, m.inputs) if a is not None]
    if len(arrays) != len(m.inputs) or not m.inputs or any(isinstance(d, Expr) for d in m.type.shape):
        return None
    elements = math.prod(d for d in m.type.shape if isinstance(d, int))
    if m.op in _VIEWS or elements > max(SMALL, 2 * sum(a.size for a in arrays)):
        return None
    try:
        (result,) = op_def(m.op).reference(m.attrs, arrays, {})
    except HwsdkError:  # needs a dim, or has no value: it will be reported when it runs
        return None
    return r.constant(result)


FOLD_RULES: dict[str, list[Rule]] = {"*": [fold]}
