"""Resize and Upsample, axis by axis.

Design choice: an axis is resampled by gathers at computed positions, weighted where the mode interpolates; no
primitive of its own.  Nearest-neighbour by a whole factor, by far the most common, is a broadcast (or a
strided slice) and a reshape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hwsdk.dtypes import dtype
from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import reducing, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.onnx.operators.layout import shapes_axes
from hwsdk.frontends.onnx.shape_values import scaled_size
from hwsdk.frontends.operands import binary, broadcast_to, cast_to, select, unary
from hwsdk.graph.dims import Dim

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_HALF = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")


@dataclass(frozen=True)
class Resampling:
    """How one axis is resampled; `scale` is None where it is out / size."""

    mode: str
    coordinate: str
    nearest: str
    cubic: float
    exclude_outside: bool
    axis: int = 0
    size: Dim = 0
    out: Dim = 0
    scale: float | None = None
    region: tuple[float, float] = (0.0, 1.0)


@importer("Upsample")
def _upsample(node: Node) -> Array:
    """The predecessor of Resize: coordinates are asymmetric, nearest rounds down."""
    x = node.x(0)
    mode = _MODES.get(node.text("mode", "nearest"))
    if mode is None:
        raise UnsupportedError(f"mode {node.text('mode')!r}")
    scales = (
        node.attributes.get("scales")
        if node.version < 9
        else node.required_constant(1, "the scales").tolist()
    )
    if scales is None:
        raise ModelError("the scales are missing")
    return _resampled(
        x, range(x.ndim), list(scales), None, Resampling(mode, "asymmetric", "floor", -0.75, False)
    )


@importer("Resize")
def _resize(node: Node) -> Array:
    x = node.x(0)
    old = node.version < 11
    mode = _MODES.get(node.text("mode", "nearest"))
    how = Resampling(
        mode or "", node.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
        node.text("nearest_mode", "floor" if old else "round_prefer_floor"),
        node.real("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside", 0)),
    )  # fmt: skip
    if mode is None or how.coordinate not in (*_HALF, "asymmetric", "align_corners", "tf_crop_and_resize"):
        raise UnsupportedError(f"mode {node.text('mode')!r} with coordinates {how.coordinate!r}")
    axes = shapes_axes(node.ints("axes"), x.ndim)
    scales, sizes = _targets(node, 1 if old else 2)
    if sizes is not None and node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        sizes, scales = _kept_aspect(node, [x.shape[a] for a in axes], sizes)
    if len(axes) != len(sizes if sizes is not None else scales or ()):
        raise ModelError(f"{len(sizes or scales or ())} sizes or scales for {len(axes)} axes")
    if node.integer("antialias", 0) and mode != "nearest" and (scales is None or min(scales) < 1):
        raise UnsupportedError("antialias when it shrinks")
    regions = None
    if how.coordinate == "tf_crop_and_resize":
        regions = [float(v) for v in node.required_constant(1, "the region")]
    return _resampled(x, axes, scales, sizes, how, regions, node.real("extrapolation_value", 0.0))


def _targets(node: Node, first: int) -> tuple[list[float] | None, list[Dim] | None]:
    """Scales or sizes, whichever is given and not empty."""
    scales = node.constant(first) if node.has(first) else None
    if scales is not None and scales.size:
        return [float(s) for s in scales], None
    if node.has(first) and scales is None:
        raise UnsupportedError(f"the scales ({node.tensor(first).name!r}) are not constants")
    if node.has(first + 1):
        return None, node.dims(first + 1, "the sizes")
    raise ModelError("neither scales nor sizes are given")


def _kept_aspect(node: Node, old: Sequence[Dim], sizes: Sequence[Dim]) -> tuple[list[Dim], list[float]]:
    """One scale for all axes: the least or the greatest of those asked for."""
    if not all(isinstance(s, int) for s in (*old, *sizes)):
        raise UnsupportedError("keep_aspect_ratio_policy with symbolic sizes")
    ratios = [Fraction(int(s), int(o)) for s, o in zip(sizes, old, strict=True)]  # type: ignore[arg-type]
    scale = min(ratios) if node.text("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    return [int(scale * int(o) + Fraction(1, 2)) for o in old], [float(scale)] * len(old)  # type: ignore[arg-type]


def _resampled(
    x: Array, axes: Sequence[int], scales: list[float] | None, sizes: Sequence[Dim] | None, how: Resampling,
    regions: Sequence[float] | None = None, outside: float = 0.0,
) -> Array:  # fmt: skip
    simplify = x.model.constraints.simplify
    masks: list[tuple[int, Array]] = []
    kind = x.dtype
    if how.mode != "nearest":
        if dtype(kind).kind != "f":
            raise UnsupportedError(f"mode {how.mode} on {kind}")
        x = cast_to(x, "f32") if dtype(kind).bits < 32 else x
    for i, axis in enumerate(axes):
        size = x.shape[axis]
        scale = scales[i] if scales is not None else None
        if scale is not None and scale <= 0:
            raise ModelError(f"scale {scale}")
        out = (
            simplify(sizes[i]) if sizes is not None else scaled_size(size, scale or 1.0, x.model.constraints)
        )
        region = (regions[i], regions[i + len(axes)]) if regions is not None else (0.0, 1.0)
        one = replace(how, axis=axis, size=size, out=out, scale=scale, region=region)
        if out == size and scale in (None, 1.0) and region == (0.0, 1.0):
            continue
        whole = _by_whole_factor(x, one)
        if whole is not None:
            x = whole
            continue
        at = _positions(x, one)
        if regions is not None:
            masks.append((axis, _inside(at, one)))
        x = _at_positions(x, at, one)
    for axis, mask in masks:
        shape: list[Dim] = [1] * x.ndim
        shape[axis] = mask.shape[0]
        x = select(shaping.to_shape(mask, shape), x, outside)
    return cast_to(x, kind)


def _by_whole_factor(x: Array, one: Resampling) -> Array | None:
    """Nearest neighbour by a factor k, or 1/k: every element k times, or every k-th element."""
    if one.mode != "nearest":
        return None
    plain = one.coordinate == "asymmetric" and one.nearest == "floor"
    centred = one.coordinate in _HALF and one.nearest.startswith("round")
    factor = (
        _whole(one.out, one.size) if one.scale is None else int(one.scale) if one.scale.is_integer() else None
    )
    axis, shape = one.axis, x.shape
    if factor and (plain or centred) and one.out == one.size * factor:
        spread = shaping.to_shape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        spread = broadcast_to(spread, (*shape[: axis + 1], factor, *shape[axis + 1 :]))
        return shaping.to_shape(spread, (*shape[:axis], one.out, *shape[axis + 1 :]))
    if plain and one.scale is not None and (1 / one.scale).is_integer():
        step = int(1 / one.scale)
        return shaping.slice_axis(x, axis, 0, one.out * step, step)
    return None


def _whole(out: Dim, size: Dim) -> int | None:
    """k where out = k*size."""
    return next((k for k in range(1, 17) if out == size * k), None)


def _positions(x: Array, one: Resampling) -> Array:
    """Where each output lies in the source, as f32 [out]."""
    model = x.model
    size, out = model.size(one.size, "f32"), model.size(one.out, "f32")
    at = model.emit("iota", (), dtype="f32", shape=(one.out,), axis=0)
    scale = model.lift(float(one.scale), "f32") if one.scale is not None else binary("div", out, size)
    steps = binary("max", binary("sub", out, 1.0), 1.0)
    if one.coordinate == "asymmetric":
        return binary("div", at, scale)
    if one.coordinate == "align_corners":
        return binary("div", binary("mul", at, binary("sub", size, 1.0)), steps)
    if one.coordinate == "tf_crop_and_resize":
        start, end = one.region
        span = binary("mul", binary("sub", size, 1.0), end - start)
        moved = binary(
            "add",
            binary("div", binary("mul", at, span), steps),
            binary("mul", binary("sub", size, 1.0), start),
        )
        middle = binary("mul", binary("sub", size, 1.0), 0.5 * (start + end))
        return select(binary("gt", out, 1.0), moved, middle)
    half = binary("sub", binary("div", binary("add", at, 0.5), scale), 0.5)
    if one.coordinate == "pytorch_half_pixel":
        return select(binary("gt", out, 1.0), half, 0.0)
    if one.coordinate == "half_pixel_symmetric":
        adjustment = binary("div", out, binary("mul", scale, size))
        return binary("add", half, binary("mul", binary("mul", size, 0.5), binary("sub", 1.0, adjustment)))
    return half


def _inside(at: Array, one: Resampling) -> Array:
    last = binary("sub", at.model.size(one.size, "f32"), 1.0)
    return binary("and", binary("ge", at, 0.0), binary("le", at, last))


def _rounded(at: Array, rule: str) -> Array:
    if rule == "floor" or rule == "ceil":
        return unary(rule, at)
    if rule == "round_prefer_floor":
        return unary("ceil", binary("sub", at, 0.5))
    if rule == "round_prefer_ceil":
        return unary("floor", binary("add", at, 0.5))
    raise UnsupportedError(f"nearest_mode {rule!r}")


def _at_positions(x: Array, at: Array, one: Resampling) -> Array:
    """The gathers of one axis, weighted and added."""
    if one.mode == "nearest":
        return _taken(x, _rounded(at, one.nearest), one)
    last = binary("sub", x.model.size(one.size, "f32"), 1.0)
    if one.mode == "linear":
        at = binary("max", binary("min", at, last), 0.0)
        low = unary("floor", at)
        far = binary("sub", at, low)
        places, weights = [low, binary("add", low, 1.0)], [binary("sub", 1.0, far), far]
    else:
        low = unary("floor", at)
        places = [binary("add", low, float(i)) for i in (-1, 0, 1, 2)]
        weights = _cubic(binary("sub", at, low), one.cubic)
    if one.exclude_outside and one.mode == "cubic":
        inside = [binary("and", binary("ge", p, 0.0), binary("le", p, last)) for p in places]
        weights = [select(i, w, 0.0) for i, w in zip(inside, weights, strict=True)]
        total = _sum(weights)
        weights = [binary("div", w, total) for w in weights]
    shape: list[Dim] = [1] * x.ndim
    shape[one.axis] = one.out
    parts = [
        binary("mul", _taken(x, p, one), cast_to(shaping.to_shape(w, shape), x.dtype))
        for p, w in zip(places, weights, strict=True)
    ]
    return _sum(parts)


def _sum(parts: Sequence[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = binary("add", total, part)
    return total


def _taken(x: Array, places: Array, one: Resampling) -> Array:
    """Gather at float places, clamped to the axis (a negative index would count from the end)."""
    last = binary("sub", x.model.size(one.size, "f32"), 1.0)
    index = cast_to(binary("max", binary("min", places, last), 0.0), "i64")
    return reducing.take(x, index, one.axis)


def _cubic(t: Array, a: float) -> list[Array]:
    """Weights of the four neighbours of a position that is t beyond the second of them."""

    def near(v: Array) -> Array:  # ((a + 2)*v - (a + 3))*v*v + 1
        return binary(
            "add", binary("mul", binary("sub", binary("mul", v, a + 2), a + 3), binary("mul", v, v)), 1.0
        )

    def far(v: Array) -> Array:  # ((a*v - 5*a)*v + 8*a)*v - 4*a
        inner = binary("add", binary("mul", binary("sub", binary("mul", v, a), 5 * a), v), 8 * a)
        return binary("sub", binary("mul", inner, v), 4 * a)

    rest = binary("sub", 1.0, t)
    return [far(binary("add", t, 1.0)), near(t), near(rest), far(binary("add", rest, 1.0))]
