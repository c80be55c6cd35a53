"""Ops that move or make elements without computing on them: reshape, transpose, slice, pad, iota and their
kin.

Design choice: every size, start and limit is a dim, so one graph describes all shapes; what must hold between
them is recorded as a constraint, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, ceildiv, maximum, product
from hwsdk.graph.opdef import Array, Attr, Attrs, OpDef, Typed, Value, axis_of, same_dtype, table, want_length


def _infer_broadcast(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    (x,), shape, dims = inputs, attrs["shape"], attrs["dims"]
    want_length(dims, x.rank, "broadcast_in_dim: dims")
    if list(dims) != sorted({axis_of(d, len(shape), "broadcast_in_dim") for d in dims}):
        raise GraphError(f"broadcast_in_dim: dims {dims} must be increasing axes of the result")
    for axis, place in enumerate(dims):
        if x.shape[axis] != 1:
            reason = (
                f"broadcast_in_dim: axis {axis} of {x.name} is not 1, so it equals axis {place} of the result"
            )
            constraints.unify(x.shape[axis], shape[place], reason)
    return ((x.dtype, shape),)


def _broadcast(attrs: Mapping[str, Any], x: Array) -> Array:
    shape = [1] * len(attrs["shape"])
    for axis, place in enumerate(attrs["dims"]):
        shape[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(shape), attrs["shape"])


def _infer_reshape(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, shape = inputs[0], attrs["shape"]
    constraints.unify(
        product(x.shape), product(shape), f"reshape: element counts of {x} and [{', '.join(map(str, shape))}]"
    )
    return ((x.dtype, shape),)


def _infer_transpose(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, perm = inputs[0], attrs["perm"]
    if sorted(perm) != list(range(x.rank)):
        raise GraphError(f"transpose: {perm} is no permutation of the {x.rank} axes of {x.name}")
    return ((x.dtype, tuple(x.shape[p] for p in perm)),)


def _infer_slice(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x = inputs[0]
    starts, limits, strides = attrs["starts"], attrs["limits"], attrs["strides"]
    for name in ("starts", "limits", "strides"):
        want_length(attrs[name], x.rank, f"slice: {name}")
    shape: list[Dim] = []
    for axis, (low, high, step) in enumerate(zip(starts, limits, strides, strict=True)):
        if constraints.range_of(step)[1] is not None and (constraints.range_of(step)[1] or 0) < 1:
            raise GraphError(f"slice: stride {step} of axis {axis} is not positive")
        size = constraints.simplify(maximum(0, ceildiv(high - low, step)))
        if size != 0:  # what is read must exist
            constraints.nonnegative(low, f"slice: start of axis {axis} of {x}")
            constraints.nonnegative(
                x.shape[axis] - high, f"slice: {high} is at most the size of axis {axis} of {x}"
            )
        shape.append(constraints.simplify(size))
    return ((x.dtype, tuple(shape)),)


def _slice(attrs: Mapping[str, Any], x: Array) -> Array:
    for axis, (low, high) in enumerate(zip(attrs["starts"], attrs["limits"], strict=True)):
        if low < high and not (low >= 0 and high <= x.shape[axis]):
            raise GraphError(f"slice {low}..{high} of axis {axis} lies outside 0..{x.shape[axis]}")
    parts = zip(attrs["starts"], attrs["limits"], attrs["strides"], strict=True)
    return x[tuple(slice(low, high, step) if high > low else slice(0, 0) for low, high, step in parts)]


def _infer_reverse(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    for axis in attrs["axes"]:
        axis_of(axis, inputs[0].rank, "reverse")
    return ((inputs[0].dtype, inputs[0].shape),)


def _infer_concat(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    first = inputs[0]
    axis = axis_of(attrs["axis"], first.rank, "concat")
    shape = list(first.shape)
    for other in inputs[1:]:
        if other.rank != first.rank:
            raise GraphError(f"concat: operands have ranks {first.rank} and {other.rank}")
        for i in range(first.rank):
            if i != axis:
                shape[i] = constraints.unify(
                    shape[i], other.shape[i], f"concat: axis {i} of {first.name} and {other.name}"
                )
    total: Dim = 0
    for value in inputs:
        total = total + value.shape[axis]
    shape[axis] = total
    return ((same_dtype(inputs, "concat"), tuple(shape)),)


def _infer_pad(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, low, high = inputs[0], attrs["low"], attrs["high"]
    want_length(low, x.rank, "pad: low")
    want_length(high, x.rank, "pad: high")
    shape = []
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        if attrs["mode"] != "constant" and any((constraints.range_of(d)[1] or 0) < 0 for d in (a, b)):
            raise GraphError(f"pad: mode {attrs['mode']} cannot crop, and axis {axis} has {a} and {b}")
        shape.append(constraints.nonnegative(x.shape[axis] + a + b, f"pad: size of axis {axis} of {x.name}"))
    return ((x.dtype, tuple(shape)),)


def _pad(attrs: Mapping[str, Any], x: Array) -> Array:
    low, high, mode = attrs["low"], attrs["high"], attrs["mode"]
    if mode == "constant":
        shape = [s + a + b for s, a, b in zip(x.shape, low, high, strict=True)]
        out = np.full(shape, fill_value(attrs["value"], x.dtype), x.dtype)
        if out.size:
            source = tuple(
                slice(max(0, -a), s + min(0, b)) for s, a, b in zip(x.shape, low, high, strict=True)
            )
            target = tuple(slice(max(0, a), n - max(0, b)) for n, a, b in zip(shape, low, high, strict=True))
            part = x[source]
            out[target] = part if part.size else out[target]
        return out
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        if (a or b) and not x.shape[axis]:
            raise GraphError(f"pad: axis {axis} is empty, so mode {mode} has nothing to repeat")
        x = x.take(_padded_index(x.shape[axis], a, b, mode), axis)
    return x


def _padded_index(size: int, low: int, high: int, mode: str) -> Array:
    """Where each padded position comes from."""
    place = np.arange(-low, size + high)
    if mode == "wrap":
        return place % max(size, 1)
    if mode == "reflect" and size > 1:
        place = np.abs((place + (size - 1)) % (2 * (size - 1)) - (size - 1))
    return np.clip(place, 0, max(size - 1, 0))


def fill_value(value: Any, to: Any) -> Any:
    """A Python number as an element; integers wrap and floats saturate as in `cast`."""
    if np.dtype(to).kind in "iu" and isinstance(value, int):
        bits = np.dtype(to).itemsize * 8
        value &= (1 << bits) - 1
        return np.array(value, np.uint64).astype(f"u{bits // 8}").view(to)
    return np.array(value).astype(to)


def _infer_iota(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    axis_of(attrs["axis"], len(attrs["shape"]), "iota")
    numpy_dtype(attrs["dtype"])
    return ((attrs["dtype"], attrs["shape"]),)


def _iota(attrs: Mapping[str, Any]) -> Array:
    shape, axis = attrs["shape"], attrs["axis"] % len(attrs["shape"])
    line = np.arange(shape[axis]).astype(numpy_dtype(attrs["dtype"]))
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def _infer_full(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    numpy_dtype(attrs["dtype"])
    return ((attrs["dtype"], attrs["shape"]),)


def _full(attrs: Mapping[str, Any]) -> Array:
    to = numpy_dtype(attrs["dtype"])
    return np.broadcast_to(fill_value(attrs["value"], to), attrs["shape"])


_DIMS = Attr("dims")
SHAPE = table(
    OpDef("broadcast_in_dim", (1, 1), _infer_broadcast, _broadcast, {"shape": _DIMS, "dims": Attr("ints")}),
    OpDef("reshape", (1, 1), _infer_reshape, lambda a, x: x.reshape(a["shape"]), {"shape": _DIMS}),
    OpDef("transpose", (1, 1), _infer_transpose, lambda a, x: x.transpose(a["perm"]), {"perm": Attr("ints")}),
    OpDef("slice", (1, 1), _infer_slice, _slice, {"starts": _DIMS, "limits": _DIMS, "strides": _DIMS}),
    OpDef(
        "reverse",
        (1, 1),
        _infer_reverse,
        lambda a, x: np.flip(x, a["axes"]) if a["axes"] else x,
        {"axes": Attr("axes")},
    ),
    OpDef(
        "concat",
        (1, None),
        _infer_concat,
        lambda a, *xs: np.concatenate(xs, a["axis"]),
        {"axis": Attr("axis")},
    ),
    OpDef(
        "pad",
        (1, 1),
        _infer_pad,
        _pad,
        {
            "low": _DIMS,
            "high": _DIMS,
            "mode": Attr("str", "constant", ("constant", "edge", "reflect", "wrap")),
            "value": Attr("number", 0),
        },
    ),
    OpDef("iota", (0, 0), _infer_iota, _iota, {"dtype": Attr("dtype"), "shape": _DIMS, "axis": Attr("axis")}),
    OpDef(
        "full", (0, 0), _infer_full, _full, {"shape": _DIMS, "dtype": Attr("dtype"), "value": Attr("number")}
    ),
    OpDef(
        "dims",
        (0, 0),
        lambda a, i, c: (("i64", (len(a["exprs"]),)),),
        lambda a: np.array(a["exprs"], np.int64),
        {"exprs": _DIMS},
    ),
)
