"""Activation functions and softmax.

Design choice: each is the formula of the standard, written with the frontends' own functions.
"""

from __future__ import annotations

from typing import Any

from hwsdk.errors import ModelError
from hwsdk.frontends import neural, reducing, shapes
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Importer, Node, importer
from hwsdk.frontends.operands import binary, broadcast_to, cast_to, select, unary
from hwsdk.frontends.shaping import expand_dims, iota, to_shape
from hwsdk.graph import dims as d


@importer("Relu")
def _relu(node: Node) -> Array:
    return neural.relu(node.x())


@importer("Sigmoid")
def _sigmoid(node: Node) -> Array:
    return neural.sigmoid(node.x())


@importer("Softplus")
def _softplus(node: Node) -> Array:
    return neural.softplus(node.x())


@importer("Softsign")
def _softsign(node: Node) -> Array:
    x = node.x()
    return binary("div", x, binary("add", unary("abs", x), 1.0))


@importer("LeakyRelu")
def _leaky_relu(node: Node) -> Array:
    x = node.x()
    return select(binary("lt", x, 0.0), binary("mul", x, node.real("alpha", 0.01)), x)


@importer("PRelu")
def _prelu(node: Node) -> Array:
    x, slope = node.x(0), node.x(1)
    return select(binary("lt", x, 0), binary("mul", x, slope), x)


@importer("ThresholdedRelu")
def _thresholded_relu(node: Node) -> Array:
    x = node.x()
    return select(binary("gt", x, node.real("alpha", 1.0)), x, 0.0)


def _exponential(x: Array, alpha: float) -> Array:
    return binary("mul", unary("expm1", x), alpha)


@importer("Elu")
def _elu(node: Node) -> Array:
    x = node.x()
    return select(binary("lt", x, 0.0), _exponential(x, node.real("alpha", 1.0)), x)


@importer("Selu")
def _selu(node: Node) -> Array:
    x = node.x()
    alpha, gamma = node.real("alpha", 1.6732632423543772), node.real("gamma", 1.0507009873554805)
    return binary("mul", select(binary("gt", x, 0.0), x, _exponential(x, alpha)), gamma)


@importer("Celu")
def _celu(node: Node) -> Array:
    x, alpha = node.x(), node.real("alpha", 1.0)
    low = _exponential(binary("div", x, alpha), alpha)
    return binary("add", binary("max", x, 0.0), binary("min", low, 0.0))


@importer("HardSigmoid")
def _hard_sigmoid(node: Node) -> Array:
    return _ramp(node.x(), node.real("alpha", 0.2), node.real("beta", 0.5))


def _ramp(x: Array, alpha: float, beta: float) -> Array:
    return binary("max", binary("min", binary("add", binary("mul", x, alpha), beta), 1.0), 0.0)


@importer("HardSwish")
def _hard_swish(node: Node) -> Array:
    return binary("mul", node.x(), _ramp(node.x(), 1 / 6, 0.5))


@importer("Mish")
def _mish(node: Node) -> Array:
    return binary("mul", node.x(), unary("tanh", neural.softplus(node.x())))


@importer("Swish")
def _swish(node: Node) -> Array:
    x = node.x()
    return binary("mul", x, neural.sigmoid(binary("mul", x, node.real("alpha", 1.0))))


@importer("Gelu")
def _gelu(node: Node) -> Array:
    return neural.gelu(node.x(), node.text("approximate", "none") == "tanh")


@importer("Gelu", domain="com.microsoft")
def _contributed_gelu(node: Node) -> Array:
    return neural.gelu(node.x())


@importer("FastGelu", domain="com.microsoft")
def _fast_gelu(node: Node) -> Array:
    x = node.x(0)
    return neural.gelu(binary("add", x, node.x(1)) if node.has(1) else x, True)


@importer("Shrink")
def _shrink(node: Node) -> Array:
    x, bias, edge = node.x(), node.real("bias", 0.0), node.real("lambd", 0.5)
    wide = cast_to(x, "f32") if x.dtype[0] in "iu" else x
    low = select(binary("lt", wide, -edge), binary("add", wide, bias), 0.0)
    return cast_to(select(binary("gt", wide, edge), binary("sub", wide, bias), low), x.dtype)


def _softmax_axes(node: Node) -> tuple[int, ...]:
    """One axis since version 13; before, all axes from `axis` on."""
    rank = node.x().ndim
    if node.version >= 13:
        return (shapes.axis_of(node.integer("axis", -1), rank),)
    axis = node.integer("axis", 1)
    if not -rank <= axis <= rank:
        raise ModelError(f"axis {axis} is outside a shape of rank {rank}")
    return tuple(range(axis % rank if axis < rank else rank, rank))


def _softmax_importer(function: Any) -> Importer:
    return lambda node: function(node.x(), _softmax_axes(node))


importer("Softmax")(_softmax_importer(neural.softmax))
importer("LogSoftmax")(_softmax_importer(neural.log_softmax))


@importer("Hardmax")
def _hardmax(node: Node) -> Array:
    """1 at the first greatest element, 0 elsewhere."""
    x, axes = node.x(), _softmax_axes(node)
    flat = x if len(axes) == 1 else to_shape(x, (*x.shape[: axes[0]], d.product([x.shape[a] for a in axes])))
    axis = axes[0]
    best = expand_dims(reducing.argmax(flat, axis), axis)
    hit = binary("eq", iota(node.model, flat.shape, axis), broadcast_to(best, flat.shape))
    return to_shape(cast_to(hit, x.dtype), x.shape)
