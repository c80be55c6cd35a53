"""Operators, functions and reductions of the semantics language as NumPy calls.

Design choice: an operation is chosen once, when a program is compiled: (name, dtype, exact?) -> a function of
arrays that already rounds or wraps.  `exact` means that values travel as f64 and are rounded where they are
assigned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics.numbers import Array, convert, wrapped
from hwsdk.intrinsics.signature import INDEX, is_float, is_integer
from hwsdk.intrinsics.syntax import SemanticsError

Apply = Callable[..., Array]

ACCUMULATE: dict[str, Any] = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}

_OPERATORS: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.remainder,
    "^": np.bitwise_xor, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip
_CORRECT = ("max", "min", "abs", "floor", "ceil", "round")  # exact in the type itself
_FUNCTIONS: dict[str, Any] = {
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin,
    "cos": np.cos, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
_REDUCE: dict[str, Any] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def _narrow(dtype: str) -> bool:
    """Does an operation on this type need a step after NumPy's (sub-byte integers, tf32)?"""
    return dtype == "tf32" or (is_integer(dtype) and DTYPES[dtype].bits < 8)


def apply_operator(op: str, dtype: str, exact: bool) -> Apply:
    """An operator on values of `dtype`; comparisons and logic give bool."""
    ufunc = np.negative if op == "-" else _OPERATORS[op]
    if op == "-":
        return _signed_minus(dtype, exact)
    if dtype == INDEX and op in ("//", "%"):
        return lambda x, y: _checked_division(ufunc, x, y)
    if op in ("+", "*", "/", "//", "%", "^") and _narrow(dtype) and not (exact and is_float(dtype)):
        fix = convert if is_float(dtype) else wrapped
        return lambda x, y: fix(ufunc(x, y), dtype)
    return ufunc


def _signed_minus(dtype: str, exact: bool) -> Apply:
    """One argument negates, two subtract."""
    fix = (
        None if not _narrow(dtype) or (exact and is_float(dtype)) else convert if is_float(dtype) else wrapped
    )

    def apply(x: Array, *rest: Array) -> Array:
        out = np.asarray(np.subtract(x, rest[0]) if rest else np.negative(x))
        return fix(out, dtype) if fix is not None else out

    return apply


def _checked_division(ufunc: Any, x: Array, y: Array) -> Array:
    if np.any(np.asarray(y) == 0):
        raise SemanticsError("division by zero in an index")
    return ufunc(x, y)  # type: ignore[no-any-return]


def apply_function(function: str, dtype: str, exact: bool) -> Apply:
    """A function on values of `dtype`, computed in f64 and rounded once unless it is exact in the type."""
    ufunc = _FUNCTIONS[function]
    if exact or function in _CORRECT or not is_float(dtype):
        if is_integer(dtype) and function == "abs" and _narrow(dtype):
            return lambda x: wrapped(np.abs(x), dtype)
        return ufunc  # type: ignore[no-any-return]
    return lambda *args: convert(np.asarray(ufunc(*(np.asarray(a).astype(np.float64) for a in args))), dtype)


def reduce_values(kind: str, dtype: str, exact: bool) -> Callable[[Array, tuple[int, ...]], Array]:
    """A reduction that keeps the reduced axes.  Floats that round at each step are added in the order of the dims."""
    ufunc = _REDUCE[kind]
    if kind == "sum" and is_float(dtype) and not exact:
        return lambda values, axes: _in_order(values, axes, dtype)

    def apply(values: Array, axes: tuple[int, ...]) -> Array:
        if kind in ("max", "min") and 0 in (values.shape[a] for a in axes):
            raise SemanticsError(f"{kind} of nothing has no value")
        extra = {"dtype": values.dtype} if kind == "sum" else {}
        out = ufunc.reduce(values, axis=axes, keepdims=True, **extra)
        return wrapped(out, dtype) if _narrow(dtype) and is_integer(dtype) else np.asarray(out)

    return apply


def _in_order(values: Array, axes: tuple[int, ...], dtype: str) -> Array:
    rest = [a for a in range(values.ndim) if a not in axes]
    terms = values.transpose(*axes, *rest).reshape(-1, *(values.shape[a] for a in rest))
    total = np.zeros(terms.shape[1:], values.dtype)
    for term in terms:
        total = convert(np.asarray(total + term), dtype)
    return total.reshape([1 if a in axes else values.shape[a] for a in range(values.ndim)])
