"""Reductions: over axes, over windows, running.

Design choice: a reduction over nothing gives the neutral element of its kind; f16, bf16 and narrower floats
accumulate in f32 and are rounded once; integer sums wrap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, from_numpy
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, floordiv
from hwsdk.graph.opdef import Array, Attr, Attrs, OpDef, Typed, Value, axis_of, table, want_kind, want_length
from hwsdk.graph.scalar import convert, neutral

REDUCE_KINDS = ("sum", "max", "min", "prod", "any", "all", "argmax", "argmin")
_KINDS = {
    "sum": "fiu",
    "prod": "fiu",
    "max": "fiub",
    "min": "fiub",
    "any": "b",
    "all": "b",
    "argmax": "fiub",
    "argmin": "fiub",
}
_UFUNC: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def accumulation_dtype(name: str) -> str:
    """The dtype in which values of dtype `name` are added up: f32 for narrower floats, else itself."""
    d = dtype(name)
    return "f32" if d.kind == "f" and d.bits < 32 else name


def _accumulated(x: Array) -> tuple[Array, str]:
    """x in its accumulation dtype, and the name of its own dtype."""
    name = from_numpy(x.dtype)
    wide = "i8" if name == "i4" else "u8" if name == "u4" else accumulation_dtype(name)
    return convert(x, wide), name


# ----------------------------------------------------------------------------------------------------- reduce
def _infer_reduce(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, kind = inputs[0], attrs["kind"]
    want_kind(x, _KINDS[kind], f"reduce {kind}")
    axes = [axis_of(a, x.rank, "reduce") for a in attrs["axes"]]
    if len(set(axes)) != len(axes):
        raise GraphError(f"reduce: axes {attrs['axes']} repeat")
    if kind.startswith("arg") and len(axes) != 1:
        raise GraphError(f"reduce {kind} needs one axis, not {len(axes)}")
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if attrs["keepdims"] or i not in axes]
    return (("i64" if kind.startswith("arg") else x.dtype, tuple(shape)),)


def _reduce(attrs: Mapping[str, Any], x: Array) -> Array:
    kind, keep = attrs["kind"], attrs["keepdims"]
    axes = tuple(a % x.ndim for a in attrs["axes"])
    if kind.startswith("arg"):
        return _arg_reduce(
            kind,
            convert(x, "f32") if x.dtype.itemsize < 4 and dtype(from_numpy(x.dtype)).kind == "f" else x,
            axes[0],
            keep,
        )
    wide, name = _accumulated(x)
    start = np.array(neutral(kind, name)).astype(wide.dtype)
    result = _UFUNC[kind].reduce(wide, axis=axes, keepdims=keep, initial=start, dtype=wide.dtype)
    return convert(np.asarray(result), name)


def _arg_reduce(kind: str, x: Array, axis: int, keep: bool) -> Array:
    """The first of equal extremes; the first NaN if there is one; 0 for an empty axis."""
    if not x.shape[axis]:
        result = np.zeros([s for i, s in enumerate(x.shape) if i != axis], np.int64)
    else:
        result = (np.argmax if kind == "argmax" else np.argmin)(x, axis).astype(np.int64)
    return np.expand_dims(result, axis) if keep else result


# ---------------------------------------------------------------------------------------------------- windows
def window_output(size: Dim, window: Dim, stride: Dim, low: Dim, high: Dim, dilation: Dim) -> Dim:
    """(size + low + high - ((window - 1)*dilation + 1)) // stride + 1: how many windows fit."""
    return floordiv(size + low + high - (window - 1) * dilation - 1, stride) + 1


def window_count(size: int, window: int, stride: int, low: int, high: int, dilation: int) -> int:
    """`window_output` of known sizes."""
    return (size + low + high - (window - 1) * dilation - 1) // stride + 1


def _infer_reduce_window(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x = inputs[0]
    want_kind(x, _KINDS[attrs["kind"]], "reduce_window")
    for name in ("window", "strides", "low", "high", "dilations"):
        want_length(attrs[name], x.rank, f"reduce_window: {name}")
        least = 0 if name in ("low", "high") else 1
        if name not in ("low", "high") and any(v < least for v in attrs[name] if isinstance(v, int)):
            raise GraphError(f"reduce_window: {name} {attrs[name]} must be positive")
    sizes = (attrs[n] for n in ("window", "strides", "low", "high", "dilations"))
    shape = (window_output(s, *rest) for s, *rest in zip(x.shape, *sizes, strict=True))
    return ((x.dtype, tuple(constraints.nonnegative(d, f"reduce_window: sizes of {x.name}") for d in shape)),)


def _reduce_window(attrs: Mapping[str, Any], x: Array) -> Array:
    wide, name = _accumulated(x)
    kind = attrs["kind"]
    start = np.array(neutral(kind, name)).astype(wide.dtype)
    sizes = [attrs[n] for n in ("window", "strides", "low", "high", "dilations")]
    shape = [window_count(s, *rest) for s, *rest in zip(x.shape, *sizes, strict=True)]
    out = np.full(shape, start, wide.dtype)
    if not out.size:
        return convert(out, name)
    padded = pad_constant(wide, attrs["low"], attrs["high"], start)
    for place in np.ndindex(*attrs["window"]):
        begin = [p * d for p, d in zip(place, attrs["dilations"], strict=True)]
        part = tuple(
            slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begin, shape, attrs["strides"], strict=True)
        )
        out = _UFUNC[kind](out, padded[part])
    return convert(out, name)


def pad_constant(x: Array, low: Sequence[int], high: Sequence[int], value: Any) -> Array:
    """x with `low` and `high` elements of `value` around each axis; negative counts crop."""
    grown = np.pad(x, [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)], constant_values=value)
    return grown[
        tuple(slice(max(0, -a), n - max(0, -b)) for n, a, b in zip(grown.shape, low, high, strict=True))
    ]


# ---------------------------------------------------------------------------------------------------- running
def _infer_cumulative(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    want_kind(inputs[0], _KINDS[attrs["kind"]], "cumulative")
    axis_of(attrs["axis"], inputs[0].rank, "cumulative")
    return ((inputs[0].dtype, inputs[0].shape),)


def _cumulative(attrs: Mapping[str, Any], x: Array) -> Array:
    wide, name = _accumulated(x)
    axis = attrs["axis"] % x.ndim
    wide = np.flip(wide, axis) if attrs["reverse"] else wide
    result = _UFUNC[attrs["kind"]].accumulate(wide, axis, dtype=wide.dtype)
    if attrs["exclusive"] and x.shape[axis]:
        first = [1 if i == axis else s for i, s in enumerate(x.shape)]
        start = np.full(first, neutral(attrs["kind"], name)).astype(wide.dtype)
        result = np.concatenate([start, result.take(range(x.shape[axis] - 1), axis)], axis)
    return convert(np.flip(result, axis) if attrs["reverse"] else result, name)


_INTS = Attr("ints")
_DIMS = Attr("dims")
_WINDOW_KIND = Attr("str", choices=("sum", "max", "min"))
REDUCE = table(
    OpDef(
        "reduce",
        (1, 1),
        _infer_reduce,
        _reduce,
        {"kind": Attr("str", choices=REDUCE_KINDS), "axes": Attr("axes"), "keepdims": Attr("bool", False)},
    ),
    OpDef(
        "reduce_window",
        (1, 1),
        _infer_reduce_window,
        _reduce_window,
        {
            "kind": _WINDOW_KIND,
            "window": _DIMS,
            "strides": _INTS,
            "low": _DIMS,
            "high": _DIMS,
            "dilations": _INTS,
        },
    ),
    OpDef(
        "cumulative",
        (1, 1),
        _infer_cumulative,
        _cumulative,
        {
            "kind": Attr("str", choices=("sum", "prod", "max", "min")),
            "axis": Attr("axis"),
            "exclusive": Attr("bool", False),
            "reverse": Attr("bool", False),
        },
    ),
)
