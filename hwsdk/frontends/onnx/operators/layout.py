"""Operators that move elements: reshape, transpose, slice, concatenate, pad and their kin.

Design choice: sizes and bounds are dims (`node.dims`), so exporters' shape arithmetic becomes expressions
here and never run-time data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, constant_int, importer
from hwsdk.frontends.operands import broadcast_to, number, select
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim


@importer("Reshape")
def _reshape(node: Node) -> Array:
    x, target = node.x(0), node.dims(1, "the target shape")
    wanted = shapes.reshaped(
        x.shape, target, node.model.constraints, zero_copies=not node.integer("allowzero", 0)
    )
    return shaping.to_shape(x, wanted)


@importer("Flatten")
def _flatten(node: Node) -> Array:
    x, axis = node.x(), node.integer("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise ModelError(f"axis {axis} is outside a shape of rank {x.ndim}")
    axis += x.ndim if axis < 0 else 0
    return shaping.to_shape(x, (d.product(x.shape[:axis]), d.product(x.shape[axis:])))


@importer("Transpose")
def _transpose(node: Node) -> Array:
    return shaping.transpose(node.x(), node.ints("perm"))


@importer("Unsqueeze")
def _unsqueeze(node: Node) -> Array:
    axes = node.axes(1)
    if axes is None:
        raise ModelError("the axes are missing")
    return shaping.expand_dims(node.x(0), axes)


@importer("Squeeze")
def _squeeze(node: Node) -> Array:
    return shaping.squeeze(node.x(0), node.axes(1))


@importer("Expand")
def _expand(node: Node) -> Array:
    x, target = node.x(0), node.dims(1, "the target shape")
    return broadcast_to(x, shapes.broadcast([x.shape, target], node.model.constraints, "expand"))


@importer("Tile")
def _tile(node: Node) -> Array:
    return shaping.tile(node.x(0), node.dims(1, "the repeats"))


@importer("Concat")
def _concat(node: Node) -> Array:
    return shaping.concatenate(node.arrays(), node.required("axis"))


@importer("Split")
def _split(node: Node) -> tuple[Array, ...]:
    """Given sizes, or equal parts where the last may be smaller."""
    x = node.x(0)
    axis = shapes.axis_of(node.integer("axis", 0), x.ndim)
    sizes: Sequence[Dim] | None = node.dims(1, "the sizes") if node.has(1) else node.ints("split")
    if sizes is not None:
        return tuple(shaping.split(x, list(sizes), axis))
    parts, size = node.integer("num_outputs"), x.shape[axis]
    if parts is None and not isinstance(size, int):  # before num_outputs, parts had to be equal
        return tuple(shaping.split(x, len(node.outputs), axis))
    if (parts or len(node.outputs)) != len(node.outputs):
        raise ModelError(f"num_outputs is {parts} and there are {len(node.outputs)} outputs")
    chunk = d.ceildiv(size, len(node.outputs))
    points = [node.model.constraints.simplify(d.minimum(i * chunk, size)) for i in range(len(node.outputs))]
    return tuple(shaping.cut(x, [*points, size], axis))


@importer("Slice")
def _slice(node: Node) -> Array:
    """Bounds are attributes before version 10 and inputs since; each is clamped to its axis."""
    x = node.x(0)
    if node.version < 10:
        starts: Sequence[Dim] | None = node.ints("starts")
        ends: Sequence[Dim] | None = node.ints("ends")
        axes, steps = node.ints("axes"), None
    else:
        starts, ends = node.dims(1, "the starts"), node.dims(2, "the ends")
        axes = node.axes(3) if node.has(3) else None
        steps = [constant_int(s, "a step") for s in node.dims(4, "the steps")] if node.has(4) else None
    if starts is None or ends is None or len(starts) != len(ends):
        raise ModelError("starts and ends are missing or of different length")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if len(axes) != len(starts) or len(steps) != len(starts):
        raise ModelError("axes and steps are not as many as starts")
    low: list[Dim] = [0] * x.ndim
    high, stride = list(x.shape), [1] * x.ndim
    backwards = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = shapes.axis_of(axis, x.ndim)
        low[axis], high[axis] = shapes.slice_bounds(start, end, step, x.shape[axis], node.model.constraints)
        stride[axis] = abs(step)
        backwards += [axis] if step < 0 else []
    x = shaping.flip(x, backwards) if backwards else x
    if low == [0] * x.ndim and tuple(high) == x.shape and stride == [1] * x.ndim:
        return x
    return node.model.emit("slice", (x,), starts=tuple(low), limits=tuple(high), strides=tuple(stride))


_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@importer("Pad")
def _pad(node: Node) -> Array:
    """Widths are an attribute before version 11 and an input since; negative widths crop."""
    x = node.x(0)
    mode = _PAD_MODES.get(node.text("mode", "constant"))
    if mode is None:
        raise UnsupportedError(f"padding mode {node.text('mode')!r}")
    widths: Sequence[Dim] | None = node.ints("pads") if node.version < 11 else node.dims(1, "the pads")
    axes = node.axes(3) if node.has(3) else None
    places = shapes_axes(axes, x.ndim)
    if widths is None or len(widths) != 2 * len(places):
        raise ModelError(f"{len(widths or ())} pads for {len(places)} axes")
    low: list[Dim] = [0] * x.ndim
    high: list[Dim] = [0] * x.ndim
    for i, axis in enumerate(places):
        low[axis], high[axis] = widths[i], widths[i + len(places)]
    if mode != "constant":
        x, low, high = _cropped(x, low, high)
        return shaping.pad(x, list(zip(low, high, strict=True)), mode)
    return _padded_with(node, x, list(zip(low, high, strict=True)))


def shapes_axes(axes: Sequence[int] | None, rank: int) -> list[int]:
    """Axes counted from the front in the order given; all of them if None."""
    return list(range(rank)) if axes is None else [shapes.axis_of(a, rank) for a in axes]


def _cropped(x: Array, low: list[Dim], high: list[Dim]) -> tuple[Array, list[Dim], list[Dim]]:
    """Negative widths as a slice, and what is left to pad."""
    crop = [
        (min(a, 0) if isinstance(a, int) else 0, min(b, 0) if isinstance(b, int) else 0)
        for a, b in zip(low, high, strict=True)
    ]
    if any(c != (0, 0) for c in crop):
        starts = tuple(-a for a, _ in crop)
        limits = tuple(s + b for s, (_, b) in zip(x.shape, crop, strict=True))
        x = x.model.emit("slice", (x,), starts=starts, limits=limits, strides=(1,) * x.ndim)
    return (
        x,
        [a - c for a, (c, _) in zip(low, crop, strict=True)],
        [b - c for b, (_, c) in zip(high, crop, strict=True)],
    )


def _padded_with(node: Node, x: Array, widths: list[tuple[Dim, Dim]]) -> Array:
    """Constant padding; a value that is computed at run time is selected through a padded mask."""
    zero: Any = False if x.dtype == "bool" else 0
    if node.version < 11:
        return shaping.pad(x, widths, value=node.real("value", 0.0))
    if not node.has(2):
        return shaping.pad(x, widths, value=zero)
    fixed = node.constant(2)
    if fixed is not None:
        return shaping.pad(x, widths, value=number(fixed) if fixed.size else zero)
    inside = shaping.pad(broadcast_to(node.model.lift(True), x.shape), widths, value=False)
    return select(inside, shaping.pad(x, widths, value=zero), shaping.to_shape(node.x(2), ()))


@importer("DepthToSpace")
def _depth_to_space(node: Node) -> Array:
    x, block = node.x(), node.required("blocksize")
    n, c, *spatial = x.shape
    depth = d.floordiv(c, block ** len(spatial))
    blocks = (block,) * len(spatial)
    rank = len(spatial)
    if node.text("mode", "DCR") == "DCR":
        split = shaping.to_shape(x, (n, *blocks, depth, *spatial))
        order = [0, rank + 1, *(v for i in range(rank) for v in (rank + 2 + i, 1 + i))]
    else:
        split = shaping.to_shape(x, (n, depth, *blocks, *spatial))
        order = [0, 1, *(v for i in range(rank) for v in (rank + 2 + i, 2 + i))]
    return shaping.to_shape(shaping.transpose(split, order), (n, depth, *(s * block for s in spatial)))


@importer("SpaceToDepth")
def _space_to_depth(node: Node) -> Array:
    x, block = node.x(), node.required("blocksize")
    n, c, *spatial = x.shape
    small = [d.floordiv(s, block) for s in spatial]
    split = shaping.to_shape(x, (n, c, *(v for s in small for v in (s, block))))
    rank = len(spatial)
    blocks, places = (3 + 2 * i for i in range(rank)), (2 + 2 * i for i in range(rank))
    crd = node.text("mode", "DCR") == "CRD"
    order = [0, 1, *blocks, *places] if crd else [0, *blocks, 1, *places]
    return shaping.to_shape(shaping.transpose(split, order), (n, c * block**rank, *small))


@importer("CenterCropPad")
def _center_crop_pad(node: Node) -> Array:
    x, target = node.x(0), node.dims(1, "the shape")
    for axis, wanted in zip(shapes_axes(node.ints("axes"), x.ndim), target, strict=True):
        size = x.shape[axis]
        if not isinstance(size, int) or not isinstance(wanted, int):
            raise UnsupportedError(f"axis {axis} goes from {size} to {wanted}: crop and pad need numbers")
        low = abs(wanted - size) // 2
        if wanted < size:
            x = shaping.slice_axis(x, axis, low, low + wanted)
        else:
            widths: list[tuple[Dim, Dim]] = [(0, 0)] * x.ndim
            widths[axis] = (low, wanted - size - low)
            x = shaping.pad(x, widths, value=False if x.dtype == "bool" else 0)
    return x
