"""resize: resampling by nearest neighbour, linear or cubic interpolation, separable over the axes.

Design choice: one function gives, for an axis, the source positions and weights of every output position; the
meaning of all modes is that table, and code generation may compile from it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.opdef import Array, Attr, Attrs, OpDef, Typed, Value, table, want_kind, want_length
from hwsdk.graph.ops_reduce import accumulation_dtype
from hwsdk.graph.scalar import convert

COORDINATES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")
NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.asarray(np.ceil(x - 0.5)),
    "round_prefer_ceil": lambda x: np.asarray(np.floor(x + 0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _infer_resize(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x = inputs[0]
    want_length(attrs["shape"], x.rank, "resize: shape")
    if attrs["scales"]:
        want_length(attrs["scales"], x.rank, "resize: scales")
        if any(s <= 0 for s in attrs["scales"]):
            raise GraphError(f"resize: scales {attrs['scales']} must be positive")
    if attrs["mode"] != "nearest":
        want_kind(x, "f", f"resize {attrs['mode']}")
    return ((x.dtype, attrs["shape"]),)


def source_positions(size: int, out: int, scale: float, coordinate: str) -> Array:
    """Where each output position lies in the source, as a float.

    A stated scale also states the length of the output, scale*size, which need not be whole; 0 means
    out/size.
    """
    scale = scale or (out / size if size else 1.0)
    at = np.arange(out, dtype=np.float64)
    if coordinate == "asymmetric":
        return at / scale
    if coordinate == "align_corners":
        length = scale * size
        return at * ((size - 1) / (length - 1)) if length != 1 else at * 0
    if coordinate == "pytorch_half_pixel" and out == 1:
        return at * 0
    shift = size / 2 * (1 - out / (scale * size)) if coordinate == "half_pixel_symmetric" and size else 0.0
    return shift + (at + 0.5) / scale - 0.5


def taps(attrs: Mapping[str, Any], axis: int, size: int, out: int) -> tuple[Array, Array]:
    """(positions, weights), each [out, taps], with positions in [0, size)."""
    scale = float(attrs["scales"][axis]) if attrs["scales"] else 0.0
    x = source_positions(size, out, scale, attrs["coordinate"])
    if attrs["mode"] == "nearest":
        place, weight = NEAREST[attrs["nearest_mode"]](x)[:, None], np.ones((out, 1))
    elif attrs["mode"] == "linear":
        x = np.clip(x, 0, size - 1)
        low = np.floor(x)
        place, weight = np.stack([low, low + 1], 1), np.stack([1 - (x - low), x - low], 1)
    else:
        place, weight = _cubic(x, attrs["cubic_coeff"])
    if attrs["exclude_outside"] and attrs["mode"] == "cubic":
        weight = np.where((place >= 0) & (place < size), weight, 0)
        weight = weight / weight.sum(1, keepdims=True)
    return np.clip(place, 0, size - 1).astype(np.int64), weight


def _cubic(x: Array, a: float) -> tuple[Array, Array]:
    low = np.floor(x)
    t = x - low
    near = [((a + 2) * v - (a + 3)) * v * v + 1 for v in (t, 1 - t)]
    far = [((a * v - 5 * a) * v + 8 * a) * v - 4 * a for v in (t + 1, 2 - t)]
    return np.stack([low + i for i in (-1, 0, 1, 2)], 1), np.stack([far[0], near[0], near[1], far[1]], 1)


def _resize(attrs: Mapping[str, Any], x: Array) -> Array:
    name = from_numpy(x.dtype)
    weighted = attrs["mode"] != "nearest"
    y = convert(x, "f64" if name == "f64" else accumulation_dtype(name)) if weighted else x
    for axis, out in enumerate(attrs["shape"]):
        size = y.shape[axis]
        if out == size and (not attrs["scales"] or attrs["scales"][axis] == 1):
            continue
        if not size and out:
            raise GraphError(f"resize: axis {axis} is empty, so there is nothing to resample")
        place, weight = taps(attrs, axis, size, out)
        rank = [-1 if i == axis else 1 for i in range(y.ndim)]
        parts = [y.take(place[:, k], axis) for k in range(place.shape[1])]
        if weighted:
            parts = [p * weight[:, k].astype(y.dtype).reshape(rank) for k, p in enumerate(parts)]
        y = parts[0]
        for part in parts[1:]:
            y = y + part
    return convert(y, name)


RESIZE = table(
    OpDef(
        "resize",
        (1, 1),
        _infer_resize,
        _resize,
        {
            "shape": Attr("dims"),
            "scales": Attr("numbers", ()),
            "mode": Attr("str", "nearest", ("nearest", "linear", "cubic")),
            "coordinate": Attr("str", "half_pixel", COORDINATES),
            "nearest_mode": Attr("str", "round_prefer_floor", tuple(NEAREST)),
            "cubic_coeff": Attr("number", -0.75),
            "exclude_outside": Attr("bool", False),
        },
    ),
)
