"""NumPy's functions that make arrays and move their elements: reshape, transpose, concatenate, pad, indexing.

Design choice: names, argument order and defaults are NumPy's; a size or a bound may be a symbolic dim
anywhere. Constants are reshaped and transposed at once and leave no node.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwsdk.errors import GraphError
from hwsdk.frontends import shapes
from hwsdk.frontends.arrays import Array, Model
from hwsdk.frontends.operands import broadcast_to, call, model_of
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim, Expr

Axes = int | Sequence[int] | None


# -------------------------------------------------------------------------------------------- making arrays
@call
def full(model: Model, shape: Sequence[Dim], value: float | int | bool, dtype: str = "f32") -> Array:
    """An array of one value."""
    scalar = model.lift(value, dtype)
    return broadcast_to(scalar, shape) if len(shape) else scalar


@call
def arange(model: Model, n: Dim, dtype: str = "i64") -> Array:
    """[0, 1, …, n-1]."""
    return model.emit("iota", (), dtype=dtype, shape=(n,), axis=0)


@call
def iota(model: Model, shape: Sequence[Dim], axis: int, dtype: str = "i64") -> Array:
    """The index along `axis` at every place of `shape`."""
    return model.emit("iota", (), dtype=dtype, shape=tuple(shape), axis=shapes.axis_of(axis, len(shape)))


# --------------------------------------------------------------------------------------------------- shapes
@call
def reshape(x: Array, shape: Sequence[Dim]) -> Array:
    """The same elements in another shape; one entry may be -1."""
    wanted = shapes.reshaped(
        x.shape, (shape,) if isinstance(shape, int | Expr) else shape, x.model.constraints
    )
    return to_shape(x, wanted)


def to_shape(x: Array, wanted: Sequence[Dim]) -> Array:
    """Reshape without -1; a constant is reshaped at once."""
    wanted = tuple(wanted)
    if wanted == x.shape:
        return x
    if x.constant is not None and all(isinstance(s, int) for s in wanted):
        if d.product(wanted) != x.size:
            raise GraphError(f"{x!r} cannot have the shape {shapes.text(wanted)}")
        return Array(x.model, constant=x.constant.reshape(wanted))
    return x.model.emit("reshape", (x,), shape=wanted)


@call
def transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    """Axes in the order `axes`; reversed if None.  out.shape[i] = x.shape[axes[i]]."""
    order = (
        tuple(reversed(range(x.ndim)))
        if axes is None
        else tuple(shapes.axis_of(int(a), x.ndim) for a in axes)
    )
    if sorted(order) != list(range(x.ndim)):
        raise GraphError(f"{tuple(axes or ())} is not an order of the {x.ndim} axes of {x!r}")
    if order == tuple(range(x.ndim)):
        return x
    if x.constant is not None:
        return Array(x.model, constant=np.asarray(x.constant.transpose(order), order="C"))
    return x.model.emit("transpose", (x,), perm=order)


@call
def swapaxes(x: Array, a: int, b: int) -> Array:
    """Two axes exchanged."""
    order = list(range(x.ndim))
    a, b = shapes.axis_of(a, x.ndim), shapes.axis_of(b, x.ndim)
    order[a], order[b] = b, a
    return transpose(x, order)


@call
def moveaxis(x: Array, source: int, target: int) -> Array:
    """One axis moved to another place; the others keep their order."""
    source, target = shapes.axis_of(source, x.ndim), shapes.axis_of(target, x.ndim)
    order = [a for a in range(x.ndim) if a != source]
    order.insert(target, source)
    return transpose(x, order)


@call
def expand_dims(x: Array, axis: Axes) -> Array:
    """New axes of size 1 at the places `axis` of the result."""
    wanted = [axis] if isinstance(axis, int) else list(axis or ())
    rank = x.ndim + len(wanted)
    places = shapes.axes_of(wanted, rank)
    rest = iter(x.shape)
    return to_shape(x, tuple(1 if i in places else next(rest) for i in range(rank)))


@call
def squeeze(x: Array, axis: Axes = None) -> Array:
    """Without the axes of size 1 (all of them, or those named)."""
    if axis is None:
        drop = tuple(i for i, s in enumerate(x.shape) if s == 1)
    else:
        drop = shapes.axes_of(axis, x.ndim)
        for i in drop:
            shapes.equal(x.shape[i], 1, x.model.constraints, f"squeeze of axis {i}")
    return to_shape(x, tuple(s for i, s in enumerate(x.shape) if i not in drop))


@call
def expand(x: Array, shape: Sequence[Dim]) -> Array:
    """`x` broadcast to `shape` (dims of 1 and new leading dims)."""
    return broadcast_to(x, shape)


@call
def concatenate(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Joined along an existing axis; the other dims must agree."""
    if not arrays:
        raise GraphError("nothing to join")
    model = model_of(*arrays)
    parts = [model.lift(a) for a in arrays]
    axis = shapes.axis_of(axis, parts[0].ndim)
    if any(p.ndim != parts[0].ndim for p in parts):
        raise GraphError(f"ranks differ: {', '.join(map(repr, parts))}")
    return parts[0] if len(parts) == 1 else model.emit("concat", parts, axis=axis)


@call
def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Joined along a new axis."""
    return concatenate([expand_dims(a, axis) for a in arrays], axis)


@call
def split(x: Array, sections: int | Sequence[Dim], axis: int = 0) -> list[Array]:
    """Cut along an axis into equal parts (a number) or into parts of the given sizes."""
    axis = shapes.axis_of(axis, x.ndim)
    size = x.shape[axis]
    zero: Dim = 0
    if isinstance(sections, int):
        if isinstance(size, int) and size % sections:
            raise GraphError(f"axis {axis} of {x!r} does not divide into {sections} equal parts")
        part = d.floordiv(size, sections)
        shapes.equal(size, part * sections, x.model.constraints, "split into equal parts")
        sections = [part] * sections
    else:
        total = functools.reduce(d.add, sections, zero)
        shapes.equal(total, size, x.model.constraints, "sizes of a split")
    points = [zero]
    for length in sections[:-1]:
        points.append(points[-1] + length)
    return cut(x, [*points, size], axis)


def cut(x: Array, points: Sequence[Dim], axis: int) -> list[Array]:
    """The parts of an axis between neighbouring points, which ascend from 0 to its size."""
    return [slice_axis(x, axis, low, high) for low, high in itertools.pairwise(points)]


@call
def tile(x: Array, repeats: Sequence[Dim]) -> Array:
    """The whole array repeated along each axis: out.shape[i] = repeats[i] * x.shape[i]."""
    rank = max(x.ndim, len(repeats))
    x = to_shape(x, (1,) * (rank - x.ndim) + x.shape)
    counts = (1,) * (rank - len(repeats)) + tuple(repeats)
    spread, shape, result = [], [], []
    for size, count in zip(x.shape, counts, strict=True):
        if count != 1 and size != 1:
            shape += [count, size]
            spread += [1, size]
        else:
            shape.append(size if count == 1 else count)
            spread.append(size)
        result.append(count * size)
    return to_shape(broadcast_to(to_shape(x, spread), shape), result)


@call
def flip(x: Array, axis: Axes = None) -> Array:
    """Reversed along axes."""
    axes = shapes.axes_of(axis, x.ndim)
    return x.model.emit("reverse", (x,), axes=axes) if axes else x


@call
def pad(
    x: Array, widths: Sequence[tuple[Dim, Dim]], mode: str = "constant", value: float | int | bool = 0
) -> Array:
    """Padded by `(before, after)` per axis; mode constant, edge, reflect or wrap."""
    if len(widths) != x.ndim:
        raise GraphError(f"{len(widths)} pairs of widths for {x!r}")
    if all(w == (0, 0) for w in map(tuple, widths)):
        return x
    low, high = (tuple(w[i] for w in widths) for i in (0, 1))
    return x.model.emit("pad", (x,), low=low, high=high, mode=mode, value=value)


def slice_axis(x: Array, axis: int, start: Dim, limit: Dim, step: int = 1) -> Array:
    """x[start:limit:step] along one axis, bounds already within the axis."""
    if start == 0 and limit == x.shape[axis] and step == 1:
        return x
    starts: list[Dim] = [0] * x.ndim
    limits, strides = list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = start, limit, step
    return x.model.emit("slice", (x,), starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


@call
def getitem(x: Array, index: Any) -> Array:
    """x[index] for integers, slices (ends may be dims), None, Ellipsis and one integer Array."""
    items = list(index) if isinstance(index, tuple) else [index]
    plain = [i for i in items if i is not None and i is not Ellipsis]
    if len(plain) > x.ndim:
        raise GraphError(f"{len(plain)} indices for {x!r}")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise GraphError("an index may have one ellipsis")
    at = dots[0] if dots else len(items)
    items[at : at + len(dots)] = [slice(None)] * (x.ndim - len(plain))
    axis, kept, result = 0, [], x
    for item in items:
        if item is None:
            kept.append(-1)
            continue
        if isinstance(item, Array):
            if len(plain) > 1 and any(isinstance(i, Array) for i in plain if i is not item):
                raise GraphError("one index may be an Array; use gather_nd for more")
            result = result.model.emit("gather", (result, item), axis=axis)
            kept += range(axis, axis + item.ndim)
            axis += item.ndim
            continue
        result, keep = _pick(result, item, axis)
        kept += [axis] if keep else []
        axis += 1
    return to_shape(result, tuple(1 if a < 0 else result.shape[a] for a in kept))


def _pick(x: Array, item: Any, axis: int) -> tuple[Array, bool]:
    """One integer (the axis goes) or slice (it stays)."""
    size, known = x.shape[axis], x.model.constraints
    if isinstance(item, slice):
        step = 1 if item.step is None else int(item.step)
        low, high = shapes.slice_bounds(item.start, item.stop, step, size, known)
        source = flip(x, axis) if step < 0 else x
        return slice_axis(source, axis, low, high, abs(step)), True
    if isinstance(item, bool) or not isinstance(item, int | np.integer | Expr):
        raise GraphError(f"cannot index with {item!r}")
    at = shapes.from_end(item if isinstance(item, Expr) else int(item), size, known)
    if isinstance(size, int) and isinstance(at, int) and not 0 <= at < size:
        raise GraphError(f"index {item} is outside axis {axis} of {x!r}")
    return slice_axis(x, axis, at, at + 1), False
