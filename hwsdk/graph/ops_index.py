"""Ops that look elements up or put them in order: gather, scatter, sort, top_k.

Design choice: a negative index counts from the end; an index that is still outside is clamped by gathers and
dropped by scatters, so that no input can touch foreign memory.  Updates that meet add up in the accumulation
dtype and are rounded once.  Sorting is stable and NaN is greater than
every number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, from_numpy
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.opdef import Array, Attr, Attrs, OpDef, Typed, Value, axis_of, same_dtype, table, want_kind
from hwsdk.graph.ops_reduce import accumulation_dtype
from hwsdk.graph.scalar import convert

COMBINERS = ("none", "add", "mul", "max", "min")


def _wrapped(index: Array, size: int) -> Array:
    index = index.astype(np.int64)
    return np.asarray(np.where(index < 0, index + size, index))


def _clamped(index: Array, size: int) -> Array:
    return np.clip(_wrapped(index, size), 0, max(size - 1, 0))


# ----------------------------------------------------------------------------------------------------- gather
def _infer_gather(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    data, index = inputs
    want_kind(index, "iu", "gather")
    axis = axis_of(attrs["axis"], data.rank, "gather")
    return ((data.dtype, data.shape[:axis] + index.shape + data.shape[axis + 1 :]),)


def _gather(attrs: Mapping[str, Any], data: Array, index: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    if not data.shape[axis]:
        return np.zeros(data.shape[:axis] + index.shape + data.shape[axis + 1 :], data.dtype)
    return np.take(data, _clamped(index, data.shape[axis]), axis)


def _check_elements(
    data: Value, others: Sequence[Value], axis: int, constraints: Constraints, what: str
) -> None:
    axis = axis_of(axis, data.rank, what)
    for other in others:
        if other.rank != data.rank:
            raise GraphError(f"{what}: operands have ranks {data.rank} and {other.rank}")
    for i in range(data.rank if len(others) > 1 else 0):
        constraints.unify(others[0].shape[i], others[1].shape[i], f"{what}: axis {i} of indices and updates")


def _infer_gather_elements(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    data, index = inputs
    want_kind(index, "iu", "gather_elements")
    _check_elements(data, (index,), attrs["axis"], constraints, "gather_elements")
    return ((data.dtype, index.shape),)


def _element_places(index: Array, axis: int) -> list[Array]:
    """The coordinates of every element of `index`, as open grids."""
    return [np.asarray(g) for g in np.ogrid[tuple(slice(s) for s in index.shape)]]


def _gather_elements(attrs: Mapping[str, Any], data: Array, index: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    if not data.size:
        return np.zeros(index.shape, data.dtype)
    places = [np.minimum(g, s - 1) for g, s in zip(_element_places(index, axis), data.shape, strict=True)]
    places[axis] = _clamped(index, data.shape[axis])
    return np.asarray(data[tuple(places)])


def _nd_depth(data: Value, index: Value, batch: int, what: str) -> int:
    want_kind(index, "iu", what)
    depth = index.shape[-1] if index.rank else None
    if not isinstance(depth, int):
        raise GraphError(f"{what}: the last axis of the indices {index} must be a known number")
    if not 0 <= batch < max(index.rank, 1) or batch + depth > data.rank:
        raise GraphError(
            f"{what}: {index} has {depth} coordinates after {batch} batch axes, {data} has rank {data.rank}"
        )
    return depth


def _infer_gather_nd(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    data, index = inputs
    batch = attrs["batch_dims"]
    depth = _nd_depth(data, index, batch, "gather_nd")
    for i in range(batch):
        constraints.unify(data.shape[i], index.shape[i], f"gather_nd: batch axis {i}")
    return ((data.dtype, index.shape[:-1] + data.shape[batch + depth :]),)


def _gather_nd(attrs: Mapping[str, Any], data: Array, index: Array) -> Array:
    batch, depth = attrs["batch_dims"], index.shape[-1]
    shape = index.shape[:-1] + data.shape[batch + depth :]
    if not all(data.shape[: batch + depth]):
        return np.zeros(shape, data.dtype)
    grids = np.ogrid[tuple(slice(s) for s in index.shape[:-1])]
    places = [np.asarray(g) for g in grids[:batch]]
    places += [_clamped(index[..., i], data.shape[batch + i]) for i in range(depth)]
    return np.asarray(data[tuple(places)]).reshape(shape)


# ---------------------------------------------------------------------------------------------------- scatter
def _infer_scatter_nd(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    data, index, updates = inputs
    depth = _nd_depth(data, index, 0, "scatter_nd")
    expected = index.shape[:-1] + data.shape[depth:]
    if updates.rank != len(expected):
        raise GraphError(f"scatter_nd: updates {updates} must have rank {len(expected)}")
    for i, (a, b) in enumerate(zip(updates.shape, expected, strict=True)):
        constraints.unify(a, b, f"scatter_nd: axis {i} of updates")
    return ((same_dtype((data, updates), "scatter_nd"), data.shape),)


def _combine(data: Array, places: tuple[Array, ...], updates: Array, combiner: str) -> Array:
    """data with updates at places (integer coordinates, already in range), one after the other."""
    name = from_numpy(data.dtype)
    if combiner == "none":
        out = data.copy()
        out[places] = updates
        return out
    wide = accumulation_dtype(name)
    out = convert(data, wide).copy()
    added = convert(updates, wide)
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[combiner]
    ufunc.at(out, places, added)
    return convert(out, name)


def _scatter_nd(attrs: Mapping[str, Any], data: Array, index: Array, updates: Array) -> Array:
    depth = index.shape[-1]
    rows = index.reshape(-1, depth) if depth else np.zeros((int(np.prod(index.shape[:-1])), 0), np.int64)
    values = updates.reshape(len(rows), *data.shape[depth:])
    columns = [_wrapped(rows[:, i], data.shape[i]) for i in range(depth)]
    inside = np.ones(len(rows), bool)
    for column, size in zip(columns, data.shape, strict=False):
        inside &= (column >= 0) & (column < size)
    if not depth:  # every update replaces or is combined with the whole
        return np.asarray(
            _combine(data[None], (np.zeros(len(rows), np.int64),), values, attrs["combiner"])[0]
        )
    return _combine(data, tuple(c[inside] for c in columns), values[inside], attrs["combiner"])


def _infer_scatter_elements(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    data, index, updates = inputs
    want_kind(index, "iu", "scatter_elements")
    _check_elements(data, (index, updates), attrs["axis"], constraints, "scatter_elements")
    return ((same_dtype((data, updates), "scatter_elements"), data.shape),)


def _scatter_elements(attrs: Mapping[str, Any], data: Array, index: Array, updates: Array) -> Array:
    axis = attrs["axis"] % data.ndim
    places = [np.broadcast_to(g, index.shape) for g in _element_places(index, axis)]
    places[axis] = _wrapped(index, data.shape[axis])
    inside = np.ones(index.shape, bool)
    for place, size in zip(places, data.shape, strict=True):
        inside &= (place >= 0) & (place < size)
    return _combine(data, tuple(p[inside] for p in places), updates[inside], attrs["combiner"])


# ------------------------------------------------------------------------------------------------------ order
def _order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort x, equal elements in their old order."""
    d = dtype(from_numpy(x.dtype))
    x = convert(x, "f32") if d.kind == "f" and d.bits < 32 else convert(x, "i8") if d.bits == 4 else x
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


def _infer_sort(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x = inputs[0]
    axis_of(attrs["axis"], x.rank, "sort")
    return ((x.dtype, x.shape), ("i64", x.shape))


def _sort(attrs: Mapping[str, Any], x: Array) -> tuple[Array, Array]:
    axis = attrs["axis"] % x.ndim
    order = _order(x, axis, attrs["descending"])
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def _infer_top_k(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, k = inputs[0], attrs["k"]
    axis = axis_of(attrs["axis"], x.rank, "top_k")
    constraints.nonnegative(x.shape[axis] - k, f"top_k: axis {axis} of {x.name} has at least {k} elements")
    constraints.nonnegative(k, "top_k: k")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return ((x.dtype, shape), ("i64", shape))


def _top_k(attrs: Mapping[str, Any], x: Array) -> tuple[Array, Array]:
    axis = attrs["axis"] % x.ndim
    order = _order(x, axis, attrs["largest"]).take(range(attrs["k"]), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


_AXIS = Attr("axis")
_COMBINER = Attr("str", "none", COMBINERS)
INDEX = table(
    OpDef("gather", (2, 2), _infer_gather, _gather, {"axis": Attr("axis", 0)}),
    OpDef("gather_elements", (2, 2), _infer_gather_elements, _gather_elements, {"axis": _AXIS}),
    OpDef("gather_nd", (2, 2), _infer_gather_nd, _gather_nd, {"batch_dims": Attr("int", 0)}),
    OpDef("scatter_nd", (3, 3), _infer_scatter_nd, _scatter_nd, {"combiner": _COMBINER}),
    OpDef(
        "scatter_elements",
        (3, 3),
        _infer_scatter_elements,
        _scatter_elements,
        {"axis": _AXIS, "combiner": _COMBINER},
    ),
    OpDef("sort", (1, 1), _infer_sort, _sort, {"axis": _AXIS, "descending": Attr("bool", False)}),
    OpDef(
        "top_k",
        (1, 1),
        _infer_top_k,
        _top_k,
        {"axis": _AXIS, "k": Attr("dim"), "largest": Attr("bool", True)},
    ),
)
