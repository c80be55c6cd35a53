"""Elementwise operators: arithmetic, comparisons, logic, bits, casts, Where, Clip.

Design choice: operators that are one primitive under broadcasting are rows of a table; only the others have
code.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from hwsdk.dtypes import dtype
from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.node import Importer, Node, Tensor, importer
from hwsdk.frontends.onnx.shape_values import shape_of
from hwsdk.frontends.operands import binary, cast_to, number, select, unary

_UNARY = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "IsNaN": "isnan", "Log": "log", "Not": "not", "Round": "round", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "Reciprocal": "reciprocal", "Abs": "abs",
    "Neg": "neg", "BitwiseNot": "bitnot",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor",
    "Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge",
    "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
}  # fmt: skip
_VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}


def _unary_importer(op: str) -> Importer:
    return lambda node: unary(op, node.x())


def _binary_importer(op: str) -> Importer:
    return lambda node: binary(op, node.x(0), node.x(1))


def _variadic_importer(op: str) -> Importer:
    return lambda node: functools.reduce(lambda a, b: binary(op, a, b), node.arrays())


for _name, _op in _UNARY.items():
    importer(_name)(_unary_importer(_op))
for _name, _op in _BINARY.items():
    importer(_name)(_binary_importer(_op))
for _name, _op in _VARIADIC.items():
    importer(_name)(_variadic_importer(_op))


@importer("Identity")
def _identity(node: Node) -> Any:
    found = node.tensor(0)
    return Tensor("", found.array, found.dims, found.dtype) if found.array is None else node.x()


@importer("Mean")
def _mean(node: Node) -> Array:
    arrays = node.arrays()
    return binary("div", functools.reduce(lambda a, b: binary("add", a, b), arrays), float(len(arrays)))


@importer("Pow")
def _pow(node: Node) -> Array:
    """The result has the base's type.

    An exponent that is the constant 2 or 0.5 has a primitive of its own.
    """
    base, exponent = node.x(0), node.x(1)
    fixed = node.constant(1)
    power = number(fixed) if fixed is not None and fixed.size == 1 and fixed.ndim <= base.ndim else None
    if power == 2:
        return binary("mul", base, base)
    floats = dtype(base.dtype).kind == "f"
    if power == 0.5 and floats:
        return unary("sqrt", base)
    if floats or dtype(exponent.dtype).kind != "f":
        return binary("pow", base, cast_to(exponent, base.dtype))
    return cast_to(binary("pow", cast_to(base, "f64"), cast_to(exponent, "f64")), base.dtype)


@importer("Mod")
def _mod(node: Node) -> Array:
    return binary("fmod" if node.integer("fmod", 0) else "mod", node.x(0), node.x(1))


@importer("BitShift")
def _bit_shift(node: Node) -> Array:
    direction = node.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction {direction!r} is neither LEFT nor RIGHT")
    return binary("shl" if direction == "LEFT" else "shr", node.x(0), node.x(1))


@importer("IsInf")
def _is_inf(node: Node) -> Array:
    x, positive, negative = node.x(), node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    if positive and negative:
        return unary("isinf", x)
    if not positive and not negative:
        return unary("isinf", binary("mul", select(unary("isinf", x), 0.0, x), 0.0))
    return binary("eq", x, math.inf if positive else -math.inf)


@importer("Clip")
def _clip(node: Node) -> Array:
    """Bounds are attributes before version 11 and optional inputs since."""
    x = node.x()
    if node.version < 11:
        low: Any = node.real("min")
        high: Any = node.real("max")
    else:
        low, high = node.optional(1), node.optional(2)
    if low is not None:
        x = binary("max", x, low)
    return x if high is None else binary("min", x, high)


@importer("Where")
def _where(node: Node) -> Array:
    return select(node.x(0), node.x(1), node.x(2))


@importer("Cast")
def _cast(node: Node) -> Array:
    return _converted(node, node.x(), reader.dtype_name(node.required("to"), "the target type"))


@importer("CastLike")
def _cast_like(node: Node) -> Array:
    return _converted(node, node.x(0), node.x(1).dtype)


def _converted(node: Node, x: Array, target: str) -> Array:
    """Floats of 8 bits saturate by default in ONNX, which rounding to nearest does not."""
    if target == "f8e8m0" and dtype(x.dtype).kind == "f" and x.dtype != target:
        return _power_of_two(node, x)
    limit = _LARGEST.get(target)
    if limit is not None and target != x.dtype and dtype(x.dtype).kind == "f" and node.integer("saturate", 1):
        wide = cast_to(x, "f32") if dtype(x.dtype).bits < 32 else x
        x = select(unary("isnan", wide), wide, binary("max", binary("min", wide, limit), -limit))
    return cast_to(x, target)


def _power_of_two(node: Node, x: Array) -> Array:
    """To a bare exponent, from the bits of f32: up, down or to the nearest.

    NaN is 255, and so is infinity unless saturating.
    """
    bits = node.model.emit("bitcast", (cast_to(x, "f32"),), dtype="u32")
    exponent = binary("and", binary("shr", bits, 23), 255)
    fraction = binary("and", bits, (1 << 23) - 1)
    least = {"up": 1, "nearest": 1 << 22, "down": 1 << 24}.get(node.text("round_mode", "up"))
    if least is None:
        raise ModelError(f"round_mode {node.text('round_mode')!r}")
    rounded = binary("add", exponent, cast_to(binary("ge", fraction, least), "u32"))
    limit = 254 if node.integer("saturate", 1) else 255
    bounded = select(unary("isnan", cast_to(x, "f32")), 255, binary("min", rounded, limit))
    return node.model.emit("bitcast", (cast_to(bounded, "u8"),), dtype="f8e8m0")


_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f4e2m1": 6.0}


@importer("BitCast")
def _bit_cast(node: Node) -> Array:
    x, target = node.x(), reader.dtype_name(node.required("to"), "the target type")
    if dtype(x.dtype).bits != dtype(target).bits:
        raise UnsupportedError(f"a bit cast from {x.dtype} to {target}, of another size")
    return x.model.emit("bitcast", (x,), dtype=target)


@importer("Shape")
def _shape(node: Node) -> Tensor:
    return Tensor("", None, shape_of(node))


@importer("Size")
def _size(node: Node) -> Array:
    return node.model.size(node.model.constraints.simplify(node.x().size))


@importer("Dropout")
def _dropout(node: Node) -> tuple[Array, ...]:
    """At inference it is the identity; the mask is all true."""
    training = node.constant(2) if node.has(2) else None
    if node.has(2) and (training is None or bool(training.reshape(-1)[0])):
        ratio = node.constant(1)
        if ratio is None or float(ratio.reshape(-1)[0]) != 0:
            raise UnsupportedError("training mode")
    x = node.x()
    if not node.wants(1):
        return (x,)
    mask = node.model.emit("full", (), shape=x.shape, dtype="bool", value=True)
    return x, mask
