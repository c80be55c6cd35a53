"""Quantisation operators, written as arithmetic.

Design choice: q = saturate(round(x / scale) + zero) and x = (q - zero) * scale in f32, with scale and zero
point per tensor, per axis or per block; the code generator recognises the pattern, no operator of its own is
needed.
"""

from __future__ import annotations

from typing import Any

from hwsdk.dtypes import dtype
from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import reducing, shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.onnx.operators.contract import centred_pair, integer_matmul
from hwsdk.frontends.onnx.operators.window import convolved
from hwsdk.frontends.operands import binary, broadcast_to, cast_to, select, unary
from hwsdk.graph.dims import Dim


def limits(name: str) -> tuple[float, float]:
    """Least and greatest value of an integer type."""
    kind = dtype(name)
    return (
        (-(2.0 ** (kind.bits - 1)), 2.0 ** (kind.bits - 1) - 1)
        if kind.kind == "i"
        else (0.0, 2.0**kind.bits - 1)
    )


def _spread(parameter: Array, like: Array, axis: int, block: int) -> Array:
    """A scale or zero point shaped to meet `like`: scalar, vector along an axis, or blocks along an axis."""
    if parameter.ndim == 0 or parameter.shape == (1,):
        return shaping.to_shape(parameter, ())
    axis = shapes.axis_of(axis, like.ndim)
    if not block:
        if parameter.ndim != 1:
            raise ModelError(f"a scale {parameter!r} for {like!r}")
        shape: list[Dim] = [1] * like.ndim
        shape[axis] = parameter.shape[0]
        return shaping.to_shape(parameter, shape)
    wide = shaping.expand_dims(parameter, axis + 1)
    wide = broadcast_to(wide, (*parameter.shape[: axis + 1], block, *parameter.shape[axis + 1 :]))
    merged = shaping.to_shape(
        wide, (*parameter.shape[:axis], parameter.shape[axis] * block, *parameter.shape[axis + 1 :])
    )
    return shaping.slice_axis(merged, axis, 0, like.shape[axis])


def quantised(x: Array, scale: Array, zero: Array | None, target: str) -> Array:
    """round(x / scale) + zero, saturated to `target`."""
    ratio = binary("div", x, cast_to(scale, x.dtype))
    if dtype(target).kind == "f":
        largest = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f4e2m1": 6.0}.get(target)
        if largest is None:
            raise UnsupportedError(f"quantisation to {target}")
        return cast_to(binary("max", binary("min", ratio, largest), -largest), target)
    whole = unary("round", cast_to(ratio, "f32"))
    if zero is not None:
        whole = binary("add", whole, cast_to(zero, "f32"))
    low, high = limits(target)
    return cast_to(binary("max", binary("min", whole, high), low), target)


@importer("QuantizeLinear")
def _quantize_linear(node: Node) -> Array:
    x = node.x(0)
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    zero = node.optional(2)
    given = node.integer("output_dtype", 0)
    target = zero.dtype if zero is not None else reader.dtype_name(given, "the output") if given else "u8"
    scale = _spread(node.x(1), x, axis, block)
    wide = x if dtype(x.dtype).kind == "f" else cast_to(x, "f32")
    return quantised(wide, scale, None if zero is None else _spread(zero, x, axis, block), target)


@importer("DequantizeLinear")
def _dequantize_linear(node: Node) -> Array:
    x, axis, block = node.x(0), node.integer("axis", 1), node.integer("block_size", 0)
    given = node.integer("output_dtype", 0)
    target = reader.dtype_name(given, "the output") if given else node.x(1).dtype
    scale = _spread(node.x(1), x, axis, block)
    integers = dtype(x.dtype).kind in "iu"
    if node.has(2):
        zero = _spread(node.x(2), x, axis, block)
        wide = "i32" if integers else "f32"
        x = binary("sub", cast_to(x, wide), cast_to(zero, wide))
    return cast_to(binary("mul", cast_to(x, "f32"), cast_to(scale, "f32")), target)


@importer("DynamicQuantizeLinear")
def _dynamic_quantize_linear(node: Node) -> tuple[Array, Array, Array]:
    """Scale and zero point from the range of the whole tensor, which always includes 0."""
    x = node.x()
    low = binary("min", reducing.min(x), 0.0)
    high = binary("max", reducing.max(x), 0.0)
    scale = binary("div", binary("sub", high, low), 255.0)
    safe = select(binary("eq", scale, 0.0), 1.0, scale)
    zero = unary("round", binary("max", binary("min", binary("div", unary("neg", low), safe), 255.0), 0.0))
    point = cast_to(zero, "u8")
    return quantised(x, safe, point, "u8"), scale, point


@importer("QLinearMatMul")
def _qlinear_matmul(node: Node) -> Array:
    a, b = node.x(0), node.x(3)
    total = integer_matmul(a, b, node.optional(2), node.optional(5))
    a_scale = _spread(node.x(1), a, a.ndim - 2 if a.ndim > 1 else 0, 0)
    b_scale = _spread(node.x(4), b, b.ndim - 1, 0)
    return _requantised(node, total, binary("mul", cast_to(a_scale, "f32"), cast_to(b_scale, "f32")), 6)


def _requantised(node: Node, total: Array, scale: Array, at: int) -> Array:
    out_scale, zero = shaping.to_shape(node.x(at), ()), node.x(at + 1)
    real = binary("mul", cast_to(total, "f32"), binary("div", scale, cast_to(out_scale, "f32")))
    return quantised(real, node.model.lift(1.0, "f32"), shaping.to_shape(zero, ()), zero.dtype)


@importer("QLinearConv")
def _qlinear_conv(node: Node) -> Array:
    x, weight = node.x(0), node.x(3)
    bias = node.optional(8)
    total = convolved(node, *centred_pair(x, node.optional(2), weight, node.optional(5)), bias)
    w_scale: Any = node.x(4)
    if w_scale.ndim == 1 and w_scale.shape != (1,):
        w_scale = shaping.to_shape(w_scale, (1, w_scale.shape[0], *(1,) * (x.ndim - 2)))
    else:
        w_scale = shaping.to_shape(w_scale, ())
    return _requantised(node, total, binary("mul", w_scale, shaping.to_shape(node.x(1), ())), 6)
