"""Element by element: every scalar op, select, cast, bitcast.  No implicit broadcasting: shapes are equal.

Design choice: the rows of arity 1 to 3 are generated from the scalar table, which is their definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.opdef import (
    Array,
    Attr,
    Attrs,
    OpDef,
    Typed,
    Value,
    same_dtype,
    same_shape,
    table,
    want_kind,
)
from hwsdk.graph.scalar import SCALAR, ScalarOp, convert, np_scalar

_COMMUTATIVE = frozenset(("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"))


def _scalar_row(op: ScalarOp) -> OpDef:
    def infer(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
        result = same_dtype(inputs, op.name)
        for value in inputs:
            want_kind(value, op.kinds, op.name)
        return ((result if op.result == "same" else op.result, same_shape(inputs, constraints, op.name)),)

    def compute(attrs: Mapping[str, Any], *arrays: Array) -> Array:
        return np_scalar(op.name, *arrays)

    return OpDef(op.name, (op.arity, op.arity), infer, compute, commutative=op.name in _COMMUTATIVE)


def _infer_select(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    want_kind(inputs[0], "b", "select")
    return ((same_dtype(inputs[1:], "select"), same_shape(inputs, constraints, "select")),)


def _select(attrs: Mapping[str, Any], condition: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(condition, x, y))


def _infer_cast(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    numpy_dtype(attrs["dtype"])
    return ((attrs["dtype"], inputs[0].shape),)


def _infer_bitcast(attrs: Attrs, inputs: Sequence[Value], constraints: Constraints) -> Typed:
    source, target = dtype(inputs[0].dtype), dtype(attrs["dtype"])
    if source.bits != target.bits or source.bits < 8:
        raise GraphError(
            f"bitcast from {source.name} to {target.name}: both need the same whole number of bytes"
        )
    return ((target.name, inputs[0].shape),)


ELEMENTWISE: dict[str, OpDef] = {name: _scalar_row(op) for name, op in SCALAR.items()} | table(
    OpDef("select", (3, 3), _infer_select, _select),
    OpDef("cast", (1, 1), _infer_cast, lambda a, x: convert(x, a["dtype"]), {"dtype": Attr("dtype")}),
    OpDef(
        "bitcast",
        (1, 1),
        _infer_bitcast,
        lambda a, x: x.view(numpy_dtype(a["dtype"])),
        {"dtype": Attr("dtype")},
    ),
)
