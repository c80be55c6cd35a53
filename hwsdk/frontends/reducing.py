"""NumPy's functions that gather, sort, reduce and multiply matrices.

Design choice: these names shadow Python's own `sum`, `max`, `any`; inside this module Python's are
`builtins.max` and so on.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from hwsdk.dtypes import dtype as dtype_of
from hwsdk.errors import GraphError
from hwsdk.frontends import shapes
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.operands import binary, broadcast_to, call, cast_to, divide, model_of
from hwsdk.frontends.shaping import to_shape
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim

Axes = int | Sequence[int] | None


# --------------------------------------------------------------------------------------------- gather, sort
@call
def take(x: Array, indices: Any, axis: int = 0) -> Array:
    """Entries of one axis: shape x.shape[:axis] + indices.shape + x.shape[axis+1:].

    Negative indices count from the end.
    """
    places = x.model.lift(indices)
    return x.model.emit("gather", (x, places), axis=shapes.axis_of(axis, x.ndim))


@call
def take_along_axis(x: Array, indices: Array, axis: int) -> Array:
    """out[i, j, …] = x[indices[i, j, …], j, …] for axis 0, and so on; shape of `indices`."""
    return x.model.emit("gather_elements", (x, indices), axis=shapes.axis_of(axis, x.ndim))


@call
def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Sorted along an axis (stable)."""
    return x.model.emit_all("sort", (x,), axis=shapes.axis_of(axis, x.ndim), descending=descending)[0]


@call
def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Indices (i64) that sort along an axis (stable)."""
    return x.model.emit_all("sort", (x,), axis=shapes.axis_of(axis, x.ndim), descending=descending)[1]


@call
def top_k(x: Array, k: Dim, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """The k greatest (or least) along an axis, in order, and their indices (i64)."""
    values, indices = x.model.emit_all("top_k", (x,), axis=shapes.axis_of(axis, x.ndim), k=k, largest=largest)
    return values, indices


@call
def cumsum(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running sum along an axis."""
    return x.model.emit(
        "cumulative",
        (x,),
        kind="sum",
        axis=shapes.axis_of(axis, x.ndim),
        exclusive=exclusive,
        reverse=reverse,
    )


# ----------------------------------------------------------------------------------------------- reductions
def reduce(kind: str, x: Array, axis: Axes, keepdims: bool) -> Array:
    """One reduction; over no axes it is the identity."""
    axes = shapes.axes_of(axis, x.ndim)
    return x.model.emit("reduce", (x,), kind=kind, axes=axes, keepdims=keepdims) if axes else x


@call
def sum(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Sum over axes (all if None), in the dtype of `x`."""
    return reduce("sum", x, axis, keepdims)


@call
def prod(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Product over axes (all if None)."""
    return reduce("prod", x, axis, keepdims)


@call
def max(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Greatest element over axes (all if None)."""
    return reduce("max", x, axis, keepdims)


@call
def min(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Least element over axes (all if None)."""
    return reduce("min", x, axis, keepdims)


@call
def any(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """True where any element over the axes is."""
    return reduce("any", x, axis, keepdims)


@call
def all(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """True where all elements over the axes are."""
    return reduce("all", x, axis, keepdims)


@call
def argmax(x: Array, axis: int, keepdims: bool = False) -> Array:
    """Index (i64) of the first greatest element along an axis."""
    return reduce("argmax", x, axis, keepdims)


@call
def argmin(x: Array, axis: int, keepdims: bool = False) -> Array:
    """Index (i64) of the first least element along an axis."""
    return reduce("argmin", x, axis, keepdims)


@call
def mean(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Mean over axes (all if None); `x` must be of floats."""
    axes = shapes.axes_of(axis, x.ndim)
    return divide(reduce("sum", x, axes, keepdims), count(x, axes))


def count(x: Array, axes: Sequence[int]) -> Array:
    """Number of elements along axes as a scalar of the dtype of `x`."""
    total = d.product([x.shape[a] for a in axes])
    wide = x.dtype if dtype_of(x.dtype).bits >= 32 else "f32"
    return cast_to(x.model.size(total, wide), x.dtype)


@call
def var(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Mean of the squared distance from the mean over axes (all if None)."""
    axes = shapes.axes_of(axis, x.ndim)
    centred = binary("sub", x, mean(x, axes, True))
    return mean(binary("mul", centred, centred), axes, keepdims)


# ------------------------------------------------------------------------------------------------- products
@call
def matmul(a: Any, b: Any, dtype: str | None = None) -> Array:
    """Matrix product of the last two axes, NumPy's rules for vectors and for broadcasting the leading axes.

    dtype: of the result, if not that of the operands; with one, i8 and u8 may meet.
    """
    model = model_of(a, b)
    left, right = model.lift(a), model.lift(b)
    mixed = dtype is not None and {left.dtype, right.dtype} <= {"i8", "u8"}
    if left.dtype != right.dtype and not mixed:
        raise GraphError(f"dtypes differ: {left!r} and {right!r}; convert with astype")
    if not left.ndim or not right.ndim:
        raise GraphError(f"a scalar in a matrix product: {left!r} and {right!r}")
    contract = ((left.ndim - 1, builtins.max(right.ndim - 2, 0)),)
    if (left.ndim <= 2 and right.ndim <= 2) or right.ndim <= 2:
        return dot(left, right, (), contract, dtype)
    lead = shapes.broadcast(
        [left.shape[:-2], right.shape[:-2]], model.constraints, "leading dims of a matrix product"
    )
    if left.ndim == 1:
        left, contract = broadcast_to(left, (*lead, left.shape[0])), ((len(lead), len(lead)),)
    else:
        left, contract = broadcast_to(left, (*lead, *left.shape[-2:])), ((len(lead) + 1, len(lead)),)
    right = broadcast_to(right, (*lead, *right.shape[-2:]))
    return dot(left, right, tuple((i, i) for i in range(len(lead))), contract, dtype)


def dot(
    a: Array,
    b: Array,
    batch: Sequence[tuple[int, int]],
    contract: Sequence[tuple[int, int]],
    out: str | None = None,
) -> Array:
    """The general product: axes of `batch` and `contract` are (axis of a, axis of b).

    Result: batch dims, the other dims of a, the other dims of b.
    """
    for i, j in (*batch, *contract):
        shapes.equal(a.shape[i], b.shape[j], a.model.constraints, "inner dims of a product")
    if a.ndim == len(contract) and b.ndim == len(contract):  # a scalar: keep an axis of 1 through the product
        moved = tuple((i + 1, j) for i, j in contract)
        wide = a.model.emit(
            "dot_general", (to_shape(a, (1, *a.shape)), b), contract=moved, dtype=out or a.dtype
        )
        return to_shape(wide, ())
    return a.model.emit(
        "dot_general", (a, b), batch=tuple(batch), contract=tuple(contract), dtype=out or a.dtype
    )


@call
def gather_nd(x: Array, indices: Array, batch_dims: int = 0) -> Array:
    """Slices of `x` at coordinates: indices[..., :] names a place in the first axes."""
    return x.model.emit("gather_nd", (x, indices), batch_dims=batch_dims)
