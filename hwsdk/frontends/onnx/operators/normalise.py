"""Normalisation operators.

Design choice: statistics are made in at least f32.  A batch normalisation with constant statistics is one
multiplication and one addition, computed at import.
"""

from __future__ import annotations

import numpy as np

from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import neural, reducing, shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.operands import binary, cast_to, select, unary
from hwsdk.graph import dims as d


def _per_channel(x: Array, rank: int) -> Array:
    """A vector [c] as [1, c, 1, …] of `rank` axes."""
    return shaping.to_shape(x, (1, *x.shape, *(1,) * (rank - 2))) if x.ndim == 1 else x


@importer("BatchNormalization")
def _batch_normalization(node: Node) -> Array | tuple[Array, ...]:
    x, epsilon = node.x(0), node.real("epsilon", 1e-5)
    if node.integer("training_mode", 0) or (node.version < 14 and len([o for o in node.outputs if o]) > 1):
        return _batch_statistics(node, x, epsilon)
    if node.version < 9 and not node.integer("spatial", 1):
        raise UnsupportedError("BatchNormalization with spatial=0")
    constants = [node.constant(i) for i in range(1, 5)]
    if all(c is not None for c in constants):
        scale, bias, mean, variance = (np.asarray(c, np.float64) for c in constants)
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + epsilon)
        kind = numpy_dtype(x.dtype)
        pair = [
            _per_channel(Array(node.model, constant=v.astype(kind)), x.ndim)
            for v in (factor, bias - mean * factor)
        ]
        return binary("add", binary("mul", x, pair[0]), pair[1])
    scale_, bias_, mean_, variance_ = (cast_to(_per_channel(node.x(i), x.ndim), x.dtype) for i in range(1, 5))
    factor_ = binary("mul", scale_, unary("rsqrt", binary("add", variance_, epsilon)))
    return binary("add", binary("mul", binary("sub", x, mean_), factor_), bias_)


def _batch_statistics(node: Node, x: Array, epsilon: float) -> tuple[Array, ...]:
    """Training: statistics of this batch, and the running ones moved toward them."""
    axes = (0, *range(2, x.ndim))
    momentum = node.real("momentum", 0.9)
    mean, variance = reducing.mean(x, axes), reducing.var(x, axes)
    inverse = unary("rsqrt", binary("add", variance, epsilon))
    centred = binary("sub", x, _per_channel(mean, x.ndim))
    factor = binary("mul", _per_channel(inverse, x.ndim), _per_channel(cast_to(node.x(1), x.dtype), x.ndim))
    result = neural.scaled(centred, factor, _per_channel(cast_to(node.x(2), x.dtype), x.ndim))
    running = [
        binary(
            "add",
            binary("mul", node.x(i), momentum),
            binary("mul", cast_to(now, node.x(i).dtype), 1 - momentum),
        )
        for i, now in ((3, mean), (4, variance))
    ]
    return (result, *running)


@importer("LayerNormalization")
def _layer_normalization(node: Node) -> tuple[Array, ...]:
    """Over all axes from `axis` on; mean and 1/deviation are optional outputs."""
    x = node.x(0)
    kind = reader.dtype_name(node.integer("stash_type", 1), "the stash type")
    wide = cast_to(x, kind) if x.dtype != "f64" else x
    axes = tuple(range(shapes.axis_of(node.integer("axis", -1), x.ndim), x.ndim))
    result, mean, inverse = neural.normalised(wide, axes, node.real("epsilon", 1e-5))
    return neural.scaled(cast_to(result, x.dtype), node.x(1), node.optional(2)), mean, inverse


@importer("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(node: Node) -> Array:
    x, scale = node.x(0), node.x(1)
    kind = reader.dtype_name(node.integer("stash_type", 1), "the stash type")
    wide = cast_to(x, kind) if x.dtype != "f64" else x
    axes = tuple(range(shapes.axis_of(node.integer("axis", -1), x.ndim), x.ndim))
    result = neural.rms_norm(wide, None, axes, node.real("epsilon", 1e-5))
    return binary("mul", cast_to(result, scale.dtype), scale)


@importer("InstanceNormalization")
def _instance_normalization(node: Node) -> Array:
    x = node.x(0)
    wide = neural.widened(x)
    result = neural.normalised(wide, tuple(range(2, x.ndim)), node.real("epsilon", 1e-5))[0]
    return neural.scaled(
        cast_to(result, x.dtype), _per_channel(node.x(1), x.ndim), _per_channel(node.x(2), x.ndim)
    )


@importer("GroupNormalization")
def _group_normalization(node: Node) -> Array:
    """Scale and bias belong to groups before version 21 and to channels since."""
    x, groups = node.x(0), node.required("num_groups")
    wide = neural.widened(x)
    size = d.floordiv(x.shape[1], groups)
    split = shaping.to_shape(wide, (x.shape[0], groups, size * d.product(x.shape[2:])))
    split = neural.normalised(split, (2,), node.real("epsilon", 1e-5))[0]
    result = cast_to(split, x.dtype)
    scale, bias = node.x(1), node.x(2)
    if node.version < 21:
        result = neural.scaled(result, shaping.expand_dims(scale, 1), shaping.expand_dims(bias, 1))
        return shaping.to_shape(result, x.shape)
    return neural.scaled(
        shaping.to_shape(result, x.shape), _per_channel(scale, x.ndim), _per_channel(bias, x.ndim)
    )


@importer("LpNormalization")
def _lp_normalization(node: Node) -> Array:
    x, p, axis = node.x(), node.integer("p", 2), node.integer("axis", -1)
    if p not in (1, 2):
        raise ModelError(f"p is {p}, which is neither 1 nor 2")
    powers = unary("abs", x) if p == 1 else binary("mul", x, x)
    norm = reducing.sum(powers, axis, True)
    norm = norm if p == 1 else unary("sqrt", norm)
    safe = binary("eq", norm, 0.0)
    return select(safe, 0.0, binary("div", x, select(safe, 1.0, norm)))


@importer("MeanVarianceNormalization")
def _mean_variance_normalization(node: Node) -> Array:
    x = node.x()
    axes = node.ints("axes", (0, 2, 3))
    mean = reducing.mean(x, axes, True)
    centred = binary("sub", x, mean)
    deviation = unary("sqrt", reducing.mean(binary("mul", centred, centred), axes, True))
    return binary("div", centred, binary("add", deviation, 1e-9))


@importer("LRN")
def _lrn(node: Node) -> Array:
    """x / (bias + alpha/size * sum of squares over a window of channels) ** beta."""
    x, size = node.x(), node.required("size")
    alpha, beta, bias = node.real("alpha", 1e-4), node.real("beta", 0.75), node.real("bias", 1.0)
    low = (size - 1) // 2
    window, around = [1] * x.ndim, [0] * x.ndim
    window[1] = size
    lows, highs = list(around), list(around)
    lows[1], highs[1] = low, size - 1 - low
    total = node.model.emit(
        "reduce_window", (binary("mul", x, x),), kind="sum", window=tuple(window), strides=(1,) * x.ndim,
        dilations=(1,) * x.ndim, low=tuple(lows), high=tuple(highs),
    )  # fmt: skip
    return binary("div", x, binary("pow", binary("add", binary("mul", total, alpha / size), bias), beta))
