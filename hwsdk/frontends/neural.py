"""Functions of neural networks on Arrays: activations, softmax, normalisation, convolution, pooling,
attention.

Design choice: everything is written in the graph's primitives, in the form that fusion knows (softmax as max,
exp, sum; normalisation as two means).  Images are channels-last: `[batch, *spatial, channels]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hwsdk.dtypes import dtype as dtype_of
from hwsdk.errors import GraphError
from hwsdk.frontends import reducing, shapes
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.operands import binary, broadcast_to, call, cast_to, divide, select, unary
from hwsdk.frontends.shaping import swapaxes, to_shape
from hwsdk.graph.dims import Dim

Pads = Sequence[tuple[Dim, Dim]]


# ---------------------------------------------------------------------------------------------- activations
@call
def relu(x: Array) -> Array:
    """max(x, 0)."""
    return binary("max", x, 0)


@call
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); where exp overflows to infinity the result is the right 0."""
    return unary("reciprocal", binary("add", unary("exp", unary("neg", x)), 1.0))


@call
def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return binary("mul", x, sigmoid(x))


@call
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), written so that nothing overflows:  max(x, 0) + log1p(exp(-|x|))."""
    return binary("add", binary("max", x, 0), unary("log1p", unary("exp", unary("neg", unary("abs", x)))))


@call
def gelu(x: Array, approximate: bool = False) -> Array:
    """x * P(X <= x) for a standard normal X; `approximate` uses tanh instead of erf."""
    if approximate:
        cube = binary("mul", binary("mul", x, x), x)
        inner = binary("mul", binary("add", x, binary("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        bell = unary("tanh", inner)
    else:
        bell = unary("erf", binary("mul", x, math.sqrt(0.5)))
    return binary("mul", binary("mul", x, 0.5), binary("add", bell, 1.0))


def widened(x: Array) -> Array:
    """`x` in a float type wide enough for sums: at least f32."""
    return x if dtype_of(x.dtype).bits >= 32 else cast_to(x, "f32")


@call
def softmax(x: Array, axis: int | Sequence[int] = -1) -> Array:
    """exp(x) / sum(exp(x)) along axes; shape of `x`."""
    wide = widened(x)
    weights = unary("exp", binary("sub", wide, reducing.reduce("max", wide, axis, True)))
    return cast_to(divide(weights, reducing.reduce("sum", weights, axis, True)), x.dtype)


@call
def log_softmax(x: Array, axis: int | Sequence[int] = -1) -> Array:
    """log(softmax(x)); shape of `x`."""
    wide = widened(x)
    centred = binary("sub", wide, reducing.reduce("max", wide, axis, True))
    total = reducing.reduce("sum", unary("exp", centred), axis, True)
    return cast_to(binary("sub", centred, unary("log", total)), x.dtype)


# -------------------------------------------------------------------------------------------- normalisation
@call
def layer_norm(
    x: Array, scale: Any = None, bias: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias along axes; shape of `x`."""
    result = normalised(widened(x), shapes.axes_of(axis, x.ndim), epsilon)[0]
    return scaled(cast_to(result, x.dtype), scale, bias)


def normalised(x: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / deviation, the mean, and 1 / deviation."""
    mean = reducing.mean(x, axes, True)
    centred = binary("sub", x, mean)
    variance = reducing.mean(binary("mul", centred, centred), axes, True)
    inverse = unary("rsqrt", binary("add", variance, epsilon))
    return binary("mul", centred, inverse), mean, inverse


def scaled(x: Array, scale: Any, bias: Any) -> Array:
    """x * scale + bias, where either may be None."""
    if scale is not None:
        x = binary("mul", x, scale)
    return x if bias is None else binary("add", x, bias)


@call
def rms_norm(x: Array, scale: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-5) -> Array:
    """x / sqrt(mean(x*x) + epsilon) * scale along axes; shape of `x`."""
    wide = widened(x)
    power = reducing.mean(binary("mul", wide, wide), axis, True)
    result = binary("mul", wide, unary("rsqrt", binary("add", power, epsilon)))
    return scaled(cast_to(result, x.dtype), scale, None)


# ------------------------------------------------------------------------------------- convolution, pooling
def _pairs(pads: Pads | int | None, rank: int) -> tuple[tuple[Dim, Dim], ...]:
    if pads is None or isinstance(pads, int):
        return ((pads or 0, pads or 0),) * rank
    if len(pads) != rank:
        raise GraphError(f"{len(pads)} pairs of padding for {rank} spatial dims")
    return tuple((low, high) for low, high in pads)


def _each(value: int | Sequence[int], rank: int, what: str) -> tuple[int, ...]:
    found = (value,) * rank if isinstance(value, int) else tuple(int(v) for v in value)
    if len(found) != rank or min(found, default=1) < 1:
        raise GraphError(f"{what} {value!r} for {rank} spatial dims")
    return found


@call
def conv(
    x: Array,
    weight: Any,
    bias: Any = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: Pads | int | None = None,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Convolution, channels last, any number of spatial dims.

    x [n, *spatial, c], weight [*window, c/groups, out], bias [out]; result [n, *spatial_out, out] with
    spatial_out = (spatial + pads - ((window-1)*dilation + 1)) // stride + 1.
    """
    kernel = x.model.lift(weight)
    rank = x.ndim - 2
    if rank < 1 or kernel.ndim != x.ndim:
        raise GraphError(f"convolution of {x!r} with a weight {kernel!r}")
    channels, out = kernel.shape[-2:]
    shapes.equal(x.shape[-1], channels * groups, x.model.constraints, "channels of a convolution")
    if isinstance(out, int) and out % groups:
        raise GraphError(f"{out} output channels do not divide into {groups} groups")
    around = _pairs(pads, rank)
    result = x.model.emit(
        "conv", (x, kernel),
        strides=_each(strides, rank, "strides"), dilations=_each(dilations, rank, "dilations"), groups=groups,
        low=tuple(p[0] for p in around), high=tuple(p[1] for p in around),
    )  # fmt: skip
    return result if bias is None else binary("add", result, bias)


@call
def conv2d(x: Array, weight: Any, bias: Any = None, **options: Any) -> Array:
    """`conv` with two spatial dims: x [n, height, width, c], weight [kh, kw, c/groups, out]."""
    if x.ndim != 4:
        raise GraphError(f"{x!r} is not [batch, height, width, channels]")
    return conv(x, weight, bias, **options)


def window_reduce(
    kind: str, x: Array, window: Sequence[int], strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> Array:
    """One reduction over windows of the spatial dims of a channels-last array."""
    return x.model.emit(
        "reduce_window", (x,), kind=kind,
        window=(1, *window, 1), strides=(1, *strides, 1), dilations=(1, *dilations, 1),
        low=(0, *(p[0] for p in pads), 0), high=(0, *(p[1] for p in pads), 0),
    )  # fmt: skip


@call
def max_pool(
    x: Array,
    window: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    pads: Pads | int | None = None,
    dilations: int | Sequence[int] = 1,
) -> Array:
    """Greatest element of each window, channels last; the stride is the window unless given."""
    rank = x.ndim - 2
    size = _each(window, rank, "window")
    return window_reduce(
        "max", x, size, _each(size if strides is None else strides, rank, "strides"), _pairs(pads, rank),
        _each(dilations, rank, "dilations"),
    )  # fmt: skip


@call
def avg_pool(
    x: Array,
    window: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    pads: Pads | int | None = None,
    dilations: int | Sequence[int] = 1,
    *,
    count_pads: bool = False,
) -> Array:
    """Mean of each window, channels last; padding counts as elements of value 0 only with `count_pads`."""
    rank = x.ndim - 2
    size, around = _each(window, rank, "window"), _pairs(pads, rank)
    steps, gaps = (
        _each(size if strides is None else strides, rank, "strides"),
        _each(dilations, rank, "dilations"),
    )
    total = window_reduce("sum", x, size, steps, around, gaps)
    inside = ((0, 0),) * rank
    return divide(total, window_counts(x, size, steps, around, gaps, around if count_pads else inside))


def window_counts(
    x: Array,
    window: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    counted: Pads,
) -> Array:
    """How many elements each window of a mean has, as an array that broadcasts over the windows of `x`; 1 for a
    window that has none, so that the mean of nothing is 0.

    `counted` is how much of the padding counts.  The count is a product over the axes; an axis where every
    window is whole contributes its window size, any other a sum over windows of ones.
    """
    model, whole, factors = x.model, 1, []
    for axis, size in enumerate(x.shape[1:-1]):
        (low, high), (low_counts, high_counts) = pads[axis], counted[axis]
        if (low, high) == (low_counts, high_counts):
            whole *= window[axis]
            continue
        wide = x.dtype if dtype_of(x.dtype).bits >= 32 else "f32"
        length = size + low_counts + high_counts
        ones = broadcast_to(model.lift(1.0, wide), (length,))
        sums = model.emit(
            "reduce_window", (ones,), kind="sum", window=(window[axis],), strides=(strides[axis],),
            dilations=(dilations[axis],), low=(low - low_counts,), high=(high - high_counts,),
        )  # fmt: skip
        places = [1] * x.ndim
        shape: list[Dim] = [*places]
        shape[axis + 1] = sums.shape[0]
        factors.append(cast_to(to_shape(sums, shape), x.dtype))
    result = model.lift(float(whole), x.dtype)
    for factor in factors:
        result = binary("mul", result, factor)
    return binary("max", result, 1.0) if factors else result


# ------------------------------------------------------------------------------------- lookup and attention
@call
def embedding(table: Any, indices: Array) -> Array:
    """Rows of a table [rows, width] by index: shape indices.shape + [width]."""
    return reducing.take(indices.model.lift(table), indices, 0)


@call
def attention(q: Array, k: Array, v: Array, mask: Any = None, scale: float | None = None) -> Array:
    """softmax(q kᵀ * scale + mask) v over the last two axes.

    q [..., n, width], k [..., m, width], v [..., m, out]; `mask` is added, or selects where it is bool; the
    scale is 1/sqrt(width) unless given.
    """
    width = q.shape[-1]
    if scale is None:
        if not isinstance(width, int):
            raise GraphError(f"{q!r} has a symbolic width; give the scale")
        scale = 1 / math.sqrt(width)
    scores = binary("mul", reducing.matmul(q, swapaxes(k, -1, -2)), scale)
    if mask is not None:
        given = scores.model.lift(mask)
        scores = select(given, scores, -math.inf) if given.dtype == "bool" else binary("add", scores, given)
    return reducing.matmul(softmax(scores, -1), v)
