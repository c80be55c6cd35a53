"""Gather and scatter operators.

Design choice: they map one to one onto the graph's primitives; indices may be i32 or i64.
"""

from __future__ import annotations

import numpy as np

from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import reducing, shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, constant_int, importer
from hwsdk.frontends.operands import binary, broadcast_to, select

_COMBINERS = {"none": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@importer("Gather")
def _gather(node: Node) -> Array:
    """A single constant index is a slice, which costs nothing and keeps its bounds known."""
    x, index = node.x(0), node.constant(1)
    axis = shapes.axis_of(node.integer("axis", 0), x.ndim)
    if index is not None and index.size == 1:
        at, size = int(index.reshape(-1)[0]), x.shape[axis]
        if isinstance(size, int) and not -size <= at < size:
            raise ModelError(f"index {at} is outside axis {axis} of {x!r}")
        start = at if at >= 0 else size + at
        reason = f"index {at} lies inside axis {axis}"
        node.model.constraints.nonnegative(size - start - 1 if at >= 0 else start, reason)
        part = shaping.slice_axis(x, axis, start, start + 1)
        return shaping.to_shape(part, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
    return reducing.take(x, node.x(1), axis)


@importer("GatherElements")
def _gather_elements(node: Node) -> Array:
    return reducing.take_along_axis(node.x(0), node.x(1), node.integer("axis", 0))


@importer("GatherND")
def _gather_nd(node: Node) -> Array:
    _coordinates(node)
    return reducing.gather_nd(node.x(0), node.x(1), node.integer("batch_dims", 0))


def _coordinates(node: Node) -> None:
    """The number of coordinates decides the rank of the result, so it must be a number."""
    if not node.x(1).ndim:
        raise ModelError("the indices are a scalar")
    constant_int(node.x(1).shape[-1], "the last dim of the indices")


def _combiner(node: Node) -> str:
    found = _COMBINERS.get(node.text("reduction", "none"))
    if found is None:
        raise UnsupportedError(f"reduction {node.text('reduction')!r}")
    return found


@importer("ScatterND")
def _scatter_nd(node: Node) -> Array:
    _coordinates(node)
    return node.model.emit("scatter_nd", (node.x(0), node.x(1), node.x(2)), combiner=_combiner(node))


@importer("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Array:
    x = node.x(0)
    axis = shapes.axis_of(node.integer("axis", 0), x.ndim)
    return node.model.emit("scatter_elements", (x, node.x(1), node.x(2)), axis=axis, combiner=_combiner(node))


@importer("Compress")
def _compress(node: Node) -> Array:
    """The number of kept entries must be known, so the condition is a constant."""
    x = node.x(0)
    keep = np.flatnonzero(node.required_constant(1, "the condition"))
    axis = node.integer("axis")
    if axis is None:
        x, axis = shaping.to_shape(x, (x.size,)), 0
    return reducing.take(x, keep.astype(np.int64), axis)


@importer("ReverseSequence")
def _reverse_sequence(node: Node) -> Array:
    """Along time, entry i of a sequence of length n comes from n-1-i while i < n."""
    x, lengths = node.x(0), node.x(1)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    shape = [x.shape[a] if a == batch else 1 for a in range(x.ndim)]
    at = shaping.iota(node.model, x.shape, time)
    limit = broadcast_to(shaping.to_shape(lengths, shape), x.shape)
    index = select(binary("lt", at, limit), binary("sub", binary("sub", limit, 1), at), at)
    return reducing.take_along_axis(x, index, time)


@importer("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _array_feature_extractor(node: Node) -> Array:
    x, index = node.x(0), node.x(1)
    picked = reducing.take(x, shaping.to_shape(index, (index.size,)), x.ndim - 1)
    return picked if x.ndim > 1 else shaping.to_shape(picked, (1, index.size))
