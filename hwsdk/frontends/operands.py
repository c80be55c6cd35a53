"""How operands meet: lifting to Arrays, equal dtypes, broadcasting; and the edge where errors name the call.

Design choice: the graph has no implicit broadcasting and no promotion, so both end here.  Dtypes must agree,
except that Python numbers take the dtype of what they meet.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from hwsdk.dtypes import dtype, from_numpy
from hwsdk.errors import GraphError, ModelError
from hwsdk.frontends import shapes
from hwsdk.frontends.arrays import Array, Model
from hwsdk.graph.dims import Dim, Expr
from hwsdk.graph.scalar import convert

P = ParamSpec("P")
R = TypeVar("R")


def model_of(*operands: Any) -> Model:
    """The model of the first Array among the operands."""
    for operand in operands:
        if isinstance(operand, Array):
            return operand.model
    raise GraphError("no operand is an Array of a model (start from Model.input or Model.constant)")


def operands(*given: Any) -> tuple[Array, ...]:
    """Lifted to Arrays of one dtype and one shape."""
    model = model_of(*given)
    strong = [a for a in given if isinstance(a, Array)] or [model.lift(a) for a in given]
    if not all(a.dtype == strong[0].dtype for a in strong):
        raise GraphError(f"dtypes differ: {' and '.join(map(repr, strong))}; convert with astype")
    lifted = [model.lift(a, strong[0].dtype) for a in given]
    if not all(a.dtype == lifted[0].dtype for a in lifted):
        raise GraphError(f"dtypes differ: {' and '.join(map(repr, lifted))}; convert with astype")
    shape = shapes.broadcast([a.shape for a in lifted], model.constraints, "operands meet")
    return tuple(broadcast_to(a, shape) for a in lifted)


def broadcast_to(array: Array, shape: Sequence[Dim]) -> Array:
    """`array` repeated along dims of 1 and new leading dims, up to `shape`."""
    shape, model = tuple(shape), array.model
    if array.shape == shape:
        return array
    lead = len(shape) - array.ndim
    if lead < 0:
        raise GraphError(f"{array!r} has more dims than {shapes.text(shape)}")
    if array.constant is not None and array.constant.size == 1:
        return model.emit("full", (), shape=shape, dtype=array.dtype, value=number(array.constant))
    same = True
    for size, wanted in zip(array.shape, shape[lead:], strict=True):
        if size == 1 and wanted != 1:
            same = False
        elif size != wanted:
            shapes.equal(size, wanted, model.constraints, f"broadcast of {array!r}")
    if lead == 0 and same:
        return array
    return model.emit("broadcast_in_dim", (array,), shape=shape, dims=tuple(range(lead, len(shape))))


def number(array: Any) -> int | float | bool:
    """The one element of an array as a Python number."""
    kind = dtype(from_numpy(array.dtype)).kind
    item = array.reshape(-1)[0]
    return bool(item) if kind == "b" else float(item) if kind == "f" else int(item)


def unary(op: str, x: Any) -> Array:
    """One elementwise node of one operand."""
    return model_of(x).emit(op, (x,))


def binary(op: str, a: Any, b: Any) -> Array:
    """One elementwise node of two operands under broadcasting."""
    left, right = operands(a, b)
    return left.model.emit(op, (left, right))


def divide(a: Any, b: Any) -> Array:
    """a / b for floats; integers have to say which division they mean."""
    left, right = operands(a, b)
    if dtype(left.dtype).kind != "f":
        raise GraphError(f"true division of {left!r}: convert it to a float (astype) or use //")
    return left.model.emit("div", (left, right))


def select(condition: Any, a: Any, b: Any) -> Array:
    """a where the condition holds, else b, under broadcasting."""
    model = model_of(condition, a, b)
    left, right = operands(a, b) if isinstance(a, Array) or isinstance(b, Array) else _lift_pair(model, a, b)
    test = model.lift(condition)
    if test.dtype != "bool":
        raise GraphError(f"a condition must be bool, not {test!r}")
    shape = shapes.broadcast([test.shape, left.shape, right.shape], model.constraints, "where")
    return model.emit("select", tuple(broadcast_to(x, shape) for x in (test, left, right)))


def _lift_pair(model: Model, a: Any, b: Any) -> tuple[Array, Array]:
    floats = any(isinstance(x, float) for x in (a, b))
    left, right = (model.lift(x, "f32" if floats and isinstance(x, int | float) else None) for x in (a, b))
    left, right = operands(left, right)
    return left, right


def cast_to(array: Array, name: str) -> Array:
    """`array` in dtype `name`; constants convert at once."""
    dtype(name)
    if array.dtype == name:
        return array
    if array.constant is not None:
        return Array(array.model, constant=convert(array.constant, name))
    return array.model.emit("cast", (array,), dtype=name)


def call(function: Callable[P, R]) -> Callable[P, R]:
    """Wraps a public function so that its errors begin with the call: name and operands.

    Of nested calls the outermost is named, which is the one that the user wrote.
    """
    name = function.__name__.strip("_")

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ModelError as error:
            detail = getattr(error, "detail", str(error))
            shown = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in kwargs.items()]
            named = type(error)(f"{name}({', '.join(shown)}): {detail}")
            named.detail = detail  # type: ignore[attr-defined]
            raise named from error

    return wrapped


def _brief(argument: Any) -> str:
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype}{list(argument.shape)}"
    if isinstance(argument, tuple | list) and any(isinstance(a, Expr | Array) for a in argument):
        return f"({', '.join(map(_brief, argument))})"
    text = str(argument) if isinstance(argument, Expr) else repr(argument)
    return text if len(text) < 80 else re.sub(r"\s+", " ", text)[:77] + "…"
