"""Contractions: dot_general, conv, conv_transpose.

Design choice: convolutions are channels last (x is [batch, *spatial, channels], w is [*window,
channels/groups, out]) so that the contracted axis is contiguous; front ends transpose.  Sums are made in
`accumulate` (f32 for narrower floats, i32 for narrow integers, else the operands' dtype) and cast to the
result dtype once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, from_numpy, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim
from hwsdk.graph.opdef import Array, Attr, Attrs, OpDef, Typed, Value, axis_of, table, want_kind, want_length
from hwsdk.graph.ops_reduce import pad_constant, window_count, window_output
from hwsdk.graph.scalar import convert


def contraction_dtypes(
    a: str, b: str, accumulate: str | None = None, out: str | None = None
) -> tuple[str, str]:
    """(accumulator, result) for operand dtypes a and b."""
    x, y = dtype(a), dtype(b)
    if x.kind == "f":
        default = "f32" if x.bits <= 32 else a
        return accumulate or default, out or a
    widest = max(x.bits, y.bits)
    default = "i32" if widest <= 32 and not (x.bits == 32 and x.kind == y.kind == "u") else a
    return accumulate or default, out or accumulate or default


def _result_dtype(attrs: Mapping[str, Any], a: Value, b: Value, what: str) -> str:
    for value in (a, b):
        want_kind(value, "fiu", what)
    kinds = {dtype(v.dtype).kind for v in (a, b)}
    if a.dtype != b.dtype and ("f" in kinds or dtype(a.dtype).bits != dtype(b.dtype).bits):
        raise GraphError(f"{what}: operands have dtypes {a.dtype} and {b.dtype}")
    return contraction_dtypes(a.dtype, b.dtype, attrs["accumulate"], attrs["dtype"])[1]


# -------------------------------------------------------------------------------------------------------- dot
def dot_axes(attrs: Mapping[str, Any], a_rank: int, b_rank: int) -> tuple[list[int], list[int]]:
    """The free axes of a and of b: neither batch nor contracted."""
    pairs = (*attrs["batch"], *attrs["contract"])
    used_a, used_b = [p[0] for p in pairs], [p[1] for p in pairs]
    return [i for i in range(a_rank) if i not in used_a], [i for i in range(b_rank) if i not in used_b]


def _infer_dot(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    a, b = inputs
    pairs = (*attrs["batch"], *attrs["contract"])
    for side, value in ((0, a), (1, b)):
        axes = [p[side] for p in pairs]
        if any(not 0 <= axis_of(x, value.rank, "dot_general") == x for x in axes) or len(set(axes)) != len(
            axes
        ):
            raise GraphError(f"dot_general: axes {axes} of {value} must be different and not negative")
    batch: list[Dim] = []
    for i, j in pairs:
        reason = f"dot_general: axis {i} of {a.name} and axis {j} of {b.name}"
        batch.append(constraints.unify(a.shape[i], b.shape[j], reason))
    free_a, free_b = dot_axes(attrs, a.rank, b.rank)
    shape = [*batch[: len(attrs["batch"])], *(a.shape[i] for i in free_a), *(b.shape[j] for j in free_b)]
    return ((_result_dtype(attrs, a, b, "dot_general"), tuple(shape)),)


def _dot(attrs: Mapping[str, Any], a: Array, b: Array) -> Array:
    names = from_numpy(a.dtype), from_numpy(b.dtype)
    accumulate, out = contraction_dtypes(*names, attrs["accumulate"], attrs["dtype"])
    free_a, free_b = dot_axes(attrs, a.ndim, b.ndim)
    batch = [p[0] for p in attrs["batch"]], [p[1] for p in attrs["batch"]]
    contract = [p[0] for p in attrs["contract"]], [p[1] for p in attrs["contract"]]
    x = convert(a, accumulate).transpose(*batch[0], *free_a, *contract[0])
    y = convert(b, accumulate).transpose(*batch[1], *contract[1], *free_b)
    n, rows, columns = len(batch[0]), len(free_a), len(free_b)
    lead, m, k, c = x.shape[:n], x.shape[n : n + rows], x.shape[n + rows :], y.shape[y.ndim - columns :]
    sizes = [int(np.prod(s, dtype=np.int64)) for s in (lead, m, k, c)]
    result = np.matmul(x.reshape(sizes[0], sizes[1], sizes[2]), y.reshape(sizes[0], sizes[2], sizes[3]))
    return convert(result.reshape((*lead, *m, *c)), out)


# ----------------------------------------------------------------------------------------------- convolutions
def _check_conv(attrs: Attrs, x: Value, w: Value, what: str) -> int:
    spatial = x.rank - 2
    if spatial < 0 or w.rank != x.rank:
        raise GraphError(
            f"{what}: x is [batch, *spatial, channels] and w is [*window, channels, out], not {x} and {w}"
        )
    for name in ("strides", "low", "high", "dilations"):
        want_length(attrs[name], spatial, f"{what}: {name}")
    if any(v < 1 for name in ("strides", "dilations") for v in attrs[name]) or attrs["groups"] < 1:
        raise GraphError(f"{what}: strides, dilations and groups must be positive")
    return spatial


def _infer_conv(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, w = inputs
    spatial = _check_conv(attrs, x, w, "conv")
    groups = attrs["groups"]
    constraints.unify(
        x.shape[-1], w.shape[-2] * groups, f"conv: channels of {x.name} and {w.name} times {groups} groups"
    )
    if isinstance(w.shape[-1], int) and w.shape[-1] % groups:
        raise GraphError(f"conv: {w.shape[-1]} output channels are not divisible by {groups} groups")
    steps = (attrs[n] for n in ("strides", "low", "high", "dilations"))
    sizes = (
        window_output(s, *rest) for s, *rest in zip(x.shape[1:-1], w.shape[:spatial], *steps, strict=True)
    )
    shape = (
        x.shape[0],
        *(constraints.nonnegative(d, f"conv: sizes of {x.name}") for d in sizes),
        w.shape[-1],
    )
    return ((_result_dtype(attrs, x, w, "conv"), shape),)


def _conv(attrs: Mapping[str, Any], x: Array, w: Array) -> Array:
    accumulate, out = contraction_dtypes(
        from_numpy(x.dtype), from_numpy(w.dtype), attrs["accumulate"], attrs["dtype"]
    )
    spatial, groups, strides = x.ndim - 2, attrs["groups"], attrs["strides"]
    a, b = convert(x, accumulate), convert(w, accumulate)
    steps = [attrs[n] for n in ("strides", "low", "high", "dilations")]
    sizes = [window_count(s, *r) for s, *r in zip(x.shape[1:-1], w.shape[:spatial], *steps, strict=True)]
    result = np.zeros((x.shape[0], *sizes, groups, w.shape[-1] // groups), numpy_dtype(accumulate))
    if result.size and w.shape[-2]:
        a = pad_constant(a, (0, *attrs["low"], 0), (0, *attrs["high"], 0), 0)
        a = a.reshape(*a.shape[:-1], groups, w.shape[-2])
        b = b.reshape(*b.shape[:-1], groups, w.shape[-1] // groups)
        for tap in np.ndindex(*w.shape[:spatial]):
            begin = [t * d for t, d in zip(tap, attrs["dilations"], strict=True)]
            part = tuple(
                slice(p, p + (n - 1) * s + 1, s) for p, n, s in zip(begin, sizes, strides, strict=True)
            )
            taps = a[(slice(None), *part)][..., None, :]
            result += np.matmul(taps, b[tap].transpose(1, 0, 2))[..., 0, :]
    return convert(result.reshape(x.shape[0], *sizes, w.shape[-1]), out)


def transposed_output(
    size: Dim, window: Dim, stride: int, low: Dim, high: Dim, dilation: int, extra: int
) -> Dim:
    """(size - 1)*stride + (window - 1)*dilation + 1 - low - high + extra."""
    return (size - 1) * stride + (window - 1) * dilation + 1 - low - high + extra


def transposed_count(
    size: int, window: int, stride: int, low: int, high: int, dilation: int, extra: int
) -> int:
    """`transposed_output` of known sizes."""
    return (size - 1) * stride + (window - 1) * dilation + 1 - low - high + extra


def _infer_conv_transpose(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    x, w = inputs
    spatial = _check_conv(attrs, x, w, "conv_transpose")
    want_length(attrs["output_padding"], spatial, "conv_transpose: output_padding")
    groups = attrs["groups"]
    constraints.unify(x.shape[-1], w.shape[-2] * groups, f"conv_transpose: channels of {x.name} and {w.name}")
    if isinstance(w.shape[-1], int) and w.shape[-1] % groups:
        raise GraphError(
            f"conv_transpose: {w.shape[-1]} output channels are not divisible by {groups} groups"
        )
    steps = (attrs[n] for n in ("strides", "low", "high", "dilations", "output_padding"))
    sizes = (
        transposed_output(s, *rest) for s, *rest in zip(x.shape[1:-1], w.shape[:spatial], *steps, strict=True)
    )
    shape = (
        x.shape[0],
        *(constraints.nonnegative(d, f"conv_transpose: sizes of {x.name}") for d in sizes),
        w.shape[-1],
    )
    return ((_result_dtype(attrs, x, w, "conv_transpose"), shape),)


def _conv_transpose(attrs: Mapping[str, Any], x: Array, w: Array) -> Array:
    """out[n, i*stride + k*dilation - low, o] += x[n, i, c] * w[k, c, o]."""
    accumulate, out = contraction_dtypes(
        from_numpy(x.dtype), from_numpy(w.dtype), attrs["accumulate"], attrs["dtype"]
    )
    spatial, groups = x.ndim - 2, attrs["groups"]
    a = convert(x, accumulate).reshape(*x.shape[:-1], groups, w.shape[-2])
    b = convert(w, accumulate).reshape(*w.shape[:-1], groups, w.shape[-1] // groups)
    steps = [attrs[n] for n in ("strides", "low", "high", "dilations", "output_padding")]
    sizes = [transposed_count(s, *r) for s, *r in zip(x.shape[1:-1], w.shape[:spatial], *steps, strict=True)]
    grown = [
        max(n, 0) + lo + max(hi, 0) for n, lo, hi in zip(sizes, attrs["low"], attrs["high"], strict=True)
    ]
    full = [
        max(g, (s - 1) * st + (k - 1) * d + 1)
        for g, s, st, k, d in zip(
            grown, x.shape[1:-1], attrs["strides"], w.shape[:spatial], attrs["dilations"], strict=True
        )
    ]
    result = np.zeros((x.shape[0], *full, groups, w.shape[-1] // groups), numpy_dtype(accumulate))
    if x.size:
        for tap in np.ndindex(*w.shape[:spatial]):
            begin = [t * d for t, d in zip(tap, attrs["dilations"], strict=True)]
            part = tuple(
                slice(p, p + (n - 1) * s + 1, s)
                for p, n, s in zip(begin, x.shape[1:-1], attrs["strides"], strict=True)
            )
            result[(slice(None), *part)] += np.matmul(a[..., None, :], b[tap].transpose(1, 0, 2))[..., 0, :]
    crop = tuple(slice(lo, lo + n) for lo, n in zip(attrs["low"], sizes, strict=True))
    return convert(result[(slice(None), *crop)].reshape(x.shape[0], *sizes, w.shape[-1]), out)


_DTYPES = {"accumulate": Attr("dtype", None), "dtype": Attr("dtype", None)}
_CONV = {"strides": Attr("ints"), "low": Attr("dims"), "high": Attr("dims"), "dilations": Attr("ints")}
CONTRACT = table(
    OpDef(
        "dot_general",
        (2, 2),
        _infer_dot,
        _dot,
        {"batch": Attr("pairs", ()), "contract": Attr("pairs"), **_DTYPES},
    ),
    OpDef("conv", (2, 2), _infer_conv, _conv, {**_CONV, "groups": Attr("int", 1), **_DTYPES}),
    OpDef(
        "conv_transpose",
        (2, 2),
        _infer_conv_transpose,
        _conv_transpose,
        {**_CONV, "output_padding": Attr("ints"), "groups": Attr("int", 1), **_DTYPES},
    ),
)
