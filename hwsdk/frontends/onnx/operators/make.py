"""Operators that make tensors: constants, ranges, identity matrices, one-hot, triangles.

Design choice: sizes are dims, so nothing here depends on data; what would (a range of run-time numbers) is
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy
from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import shapes
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.node import Node, as_dim, importer
from hwsdk.frontends.operands import binary, broadcast_to, cast_to, number, select
from hwsdk.frontends.shaping import expand_dims, iota, to_shape
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim


@importer("Constant")
def _constant(node: Node) -> Array:
    kinds = {
        "value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, kind in kinds.items():
        if name in node.attributes:
            array = np.asarray(node.attributes[name], kind)
            from_numpy(array.dtype)
            return Array(node.model, constant=array, name=node.outputs[0] or None)
    raise UnsupportedError(f"a constant given as {', '.join(node.attributes) or 'nothing'}")


@importer("ConstantOfShape")
def _constant_of_shape(node: Node) -> Array:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    shape = tuple(node.dims(0, "the shape"))
    return node.model.emit("full", (), shape=shape, dtype=from_numpy(value.dtype), value=number(value))


@importer("Range")
def _range(node: Node) -> Array:
    """start + step*[0, 1, …]; floats only when all three are constants."""
    constants = [node.constant(i) for i in range(3)]
    if all(c is not None for c in constants):
        start, limit, step = (c.reshape(-1)[0] for c in constants if c is not None)
        count = max(0, int(np.ceil((limit - start) / step)))
        values = (start + np.arange(count) * step).astype(constants[0].dtype)  # type: ignore[union-attr]
        return Array(node.model, constant=values)
    start_dim, limit_dim, step_dim = (node.dim(i, n) for i, n in enumerate(("start", "limit", "delta")))
    if not isinstance(step_dim, int) or not step_dim:
        raise UnsupportedError(f"a range with the step {step_dim}")
    kind = node.tensor(0).dtype if node.tensor(0).array is None else node.x(0).dtype
    distance = limit_dim - start_dim if step_dim > 0 else start_dim - limit_dim
    count_dim = node.model.constraints.simplify(d.maximum(d.ceildiv(distance, abs(step_dim)), 0))
    line = node.model.emit("iota", (), dtype=kind, shape=(count_dim,), axis=0)
    if step_dim != 1:
        line = binary("mul", line, step_dim)
    return line if start_dim == 0 else binary("add", line, node.model.size(start_dim, kind))


@importer("EyeLike")
def _eye_like(node: Node) -> Array:
    x = node.x()
    if x.ndim != 2:
        raise ModelError(f"EyeLike of {x!r}, which is not a matrix")
    kind = (
        reader.dtype_name(node.integer("dtype"), "the type") if node.integer("dtype") is not None else x.dtype
    )
    rows, columns = (iota(node.model, x.shape, axis) for axis in (0, 1))
    return cast_to(binary("eq", binary("add", rows, node.integer("k", 0)), columns), kind)


@importer("Trilu")
def _trilu(node: Node) -> Array:
    """Keeps the part of the last two axes above (or below) diagonal k."""
    x, upper = node.x(0), node.integer("upper", 1)
    rows, columns = (iota(node.model, x.shape, axis) for axis in (x.ndim - 2, x.ndim - 1))
    k: Any = 0
    if node.has(1):
        known = node.tensor(1).known()
        k = as_dim(known.reshape(-1)[0]) if known is not None else to_shape(node.x(1), ())
    shifted = binary("add", rows, k) if not isinstance(k, int) or k else rows
    keep = binary("ge" if upper else "le", columns, shifted)
    zero = False if x.dtype == "bool" else 0
    return select(keep, x, zero)


@importer("OneHot")
def _one_hot(node: Node) -> Array:
    """values[1] where the index meets its place on the new axis, else values[0].

    Negative indices count from the end.
    """
    indices, values = node.x(0), node.x(2)
    known = node.tensor(1).known()
    if known is None and node.constant(1) is not None:  # depth may be a float
        depth: Dim = int(number(node.required_constant(1, "the depth")))
    else:
        depth = node.dim(1, "the depth")
    axis = shapes.axis_of(node.integer("axis", -1), indices.ndim + 1)
    index = cast_to(indices, "i64") if indices.dtype != "i64" else indices
    index = select(binary("lt", index, 0), binary("add", index, depth), index)
    shape = (*index.shape[:axis], depth, *index.shape[axis:])
    hit = binary("eq", iota(node.model, shape, axis), broadcast_to(expand_dims(index, axis), shape))
    off, on = (
        to_shape(node.model.emit("slice", (values,), starts=(i,), limits=(i + 1,), strides=(1,)), ())
        for i in (0, 1)
    )
    return select(hit, on, off)


@importer("HannWindow", "HammingWindow", "BlackmanWindow")
def _signal_window(node: Node) -> Array:
    size = node.required_constant(0, "the size").reshape(-1)[0]
    kind = reader.dtype_name(node.integer("output_datatype", 1), "the type")
    weights = {
        "HannWindow": (0.5, 0.5, 0.0),
        "HammingWindow": (25 / 46, 21 / 46, 0.0),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }
    a, b, c = weights[node.op]
    angle = 2 * np.pi * np.arange(int(size)) / (size if node.integer("periodic", 1) else size - 1)
    return node.model.constant(a - b * np.cos(angle) + c * np.cos(2 * angle), kind)
