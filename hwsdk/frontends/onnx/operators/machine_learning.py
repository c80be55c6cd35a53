"""The few operators of the domain ai.onnx.ml that stand in front of networks.

Design choice: only those that are arithmetic on numbers; trees and label encoders are another kind of
program.
"""

from __future__ import annotations

import numpy as np

from hwsdk.errors import ModelError
from hwsdk.frontends import reducing
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.operands import binary, cast_to, select, unary

_DOMAIN = "ai.onnx.ml"


def _vector(node: Node, name: str, default: float) -> Array:
    return node.model.constant(np.asarray(node.attributes.get(name, [default]), np.float32))


@importer("Scaler", domain=_DOMAIN)
def _scaler(node: Node) -> Array:
    """(x - offset) * scale in f32."""
    x = cast_to(node.x(), "f32")
    return binary("mul", binary("sub", x, _vector(node, "offset", 0.0)), _vector(node, "scale", 1.0))


@importer("Binarizer", domain=_DOMAIN)
def _binarizer(node: Node) -> Array:
    x = node.x()
    return cast_to(binary("gt", x, node.real("threshold", 0.0)), x.dtype)


@importer("Normalizer", domain=_DOMAIN)
def _normalizer(node: Node) -> Array:
    x, norm = cast_to(node.x(), "f32"), node.text("norm", "MAX")
    axis = x.ndim - 1
    if norm == "MAX":
        total = reducing.max(x, axis, True)
    elif norm == "L1":
        total = reducing.sum(unary("abs", x), axis, True)
    elif norm == "L2":
        total = unary("sqrt", reducing.sum(binary("mul", x, x), axis, True))
    else:
        raise ModelError(f"the norm {norm!r} is none of MAX, L1, L2")
    return select(binary("eq", total, 0.0), x, binary("div", x, total))


@importer("LinearRegressor", domain=_DOMAIN)
def _linear_regressor(node: Node) -> Array:
    if node.text("post_transform", "NONE") != "NONE":
        raise ModelError(f"post_transform {node.text('post_transform')!r}")
    targets = node.integer("targets", 1)
    weights = np.asarray(node.required("coefficients"), np.float32).reshape(targets, -1)
    result = reducing.matmul(cast_to(node.x(), "f32"), weights.T.copy())
    return (
        binary("add", result, _vector(node, "intercepts", 0.0)) if "intercepts" in node.attributes else result
    )
