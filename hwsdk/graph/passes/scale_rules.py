"""Rewrite rules that fold constant scales and shifts (batch normalisation, attention scales) into constant
weights.

Laws: only weights that are constants change; the contraction's result must be read once, so nothing is
computed twice; one rounding moves from the result to the weights.

Design choice: a shift is kept as an `add` behind the contraction, which is where an epilogue wants it.
"""

from __future__ import annotations

import numpy as np

from hwsdk.dtypes import dtype
from hwsdk.graph.opdef import Array, Value
from hwsdk.graph.ops_contract import dot_axes
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule
from hwsdk.graph.scalar import np_scalar

_CONTRACTIONS = ("conv", "dot_general", "conv_transpose")


def _spread_constant(r: Rewriting, value: Value) -> tuple[Array, tuple[int, ...]] | None:
    """(array, axes) if the value is a constant with at most one axis, spread along these axes."""
    array = r.array(value)
    if array is not None and array.ndim == 1:
        return array, (0,)
    number = r.uniform(value)
    if number is not None:
        return np.asarray(number), ()
    node = r.producer(value, "broadcast_in_dim")
    if node is None:
        return None
    array = r.array(node.inputs[0])
    return (array, node.attrs["dims"]) if array is not None and array.ndim <= 1 else None


def _sides(r: Rewriting, m: Match, *ops: str) -> tuple[Match, Value] | None:
    """(node of one of these ops that is read once, the other operand)."""
    for position in (0, 1):
        node = r.producer(m.inputs[position], *ops)
        if node and r.single_use(m.inputs[position]):
            return node, m.inputs[1 - position]
    return None


# contraction(x, w) * c = contraction(x, w*c) for a constant c along an output axis of w
def scale_into_weights(r: Rewriting, m: Match) -> Value | None:
    found = _sides(r, m, *_CONTRACTIONS)
    if not found or dtype(m.type.dtype).kind != "f":
        return None
    node, other = found
    scale = _spread_constant(r, other)
    weights = r.array(node.inputs[1])
    if scale is None or weights is None or weights.dtype != scale[0].dtype:
        return None
    array, axes = scale
    axis = _weight_axis(node, axes[0]) if axes else None
    if axes and axis is None:
        return None
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)]
    scaled = r.constant(np_scalar("mul", weights, array.reshape(shape if axes else ())))
    return r.emit(node.op, (node.inputs[0], scaled), **node.attrs)


def _weight_axis(node: Match, axis: int) -> int | None:
    """The axis of the weights that becomes `axis` of the contraction's result."""
    w = node.inputs[1]
    if node.op != "dot_general":
        return w.rank - 1 if axis == node.type.rank - 1 else None
    free_a, free_b = dot_axes(node.attrs, node.inputs[0].rank, w.rank)
    place = axis - len(node.attrs["batch"]) - len(free_a)
    return free_b[place] if 0 <= place < len(free_b) else None


# (contraction + b) * c = contraction*c + b*c  for constants b and c
def scale_of_shifted(r: Rewriting, m: Match) -> Value | None:
    found = _sides(r, m, "add", "sub")
    if not found or dtype(m.type.dtype).kind != "f" or _spread_constant(r, found[1]) is None:
        return None
    shifted, scale = found
    for position in (0, 1) if shifted.op == "add" else (0,):
        y, shift = shifted.inputs[position], shifted.inputs[1 - position]
        node = r.producer(y, *_CONTRACTIONS)
        if (
            node
            and r.single_use(y)
            and r.array(node.inputs[1]) is not None
            and _spread_constant(r, shift) is not None
        ):
            return r.emit(shifted.op, (r.emit("mul", (y, scale)), r.emit("mul", (shift, scale))))
    return None


# (contraction + a) + b = contraction + (a + b)  for constants a and b;  and with minus
def merge_shifts(r: Rewriting, m: Match) -> Value | None:
    if dtype(m.type.dtype).kind != "f" or _spread_constant(r, m.inputs[1]) is None:
        return None
    inner = r.producer(m.inputs[0], "add", "sub")
    if not inner or not r.single_use(m.inputs[0]) or not r.producer(inner.inputs[0], *_CONTRACTIONS):
        return None
    if _spread_constant(r, inner.inputs[1]) is None:
        return None
    first = inner.inputs[1] if inner.op == "add" else r.emit("neg", (inner.inputs[1],))
    return r.emit("add", (inner.inputs[0], r.emit(m.op, (first, m.inputs[1]))))


SCALE_RULES: dict[str, list[Rule]] = {
    "mul": [scale_of_shifted, scale_into_weights],
    "add": [merge_shifts],
    "sub": [merge_shifts],
}
