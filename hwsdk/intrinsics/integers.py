"""Integer expressions: extents over symbols, layouts over coordinates, addresses over scalars.

Design choice: the same function evaluates over Python integers and over NumPy grids, so an extent, a place and a
whole layout are one piece of code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hwsdk.errors import nearest
from hwsdk.intrinsics.syntax import Binary, Expr, Name, Number, SemanticsError, Unary, parse_expr

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b,
}


def integer(expr: Expr | str, values: Mapping[str, Any]) -> Any:
    """The value of an integer expression; `values` gives names integers or integer arrays."""
    tree = parse_expr(expr) if isinstance(expr, str) else expr
    try:
        return _value(tree, values)
    except OverflowError:
        raise SemanticsError("an integer expression is out of range") from None


def _value(expr: Expr, values: Mapping[str, Any]) -> Any:
    match expr:
        case Number(value=int(value)):
            return value
        case Name(name=name):
            if name not in values:
                raise SemanticsError(f"unknown name {name!r}{nearest(name, values) if values else ''}")
            return values[name]
        case Unary(op="-", x=x):
            return -_value(x, values)
        case Binary(op=op, x=x, y=y) if op in OPERATORS:
            left, right = _value(x, values), _value(y, values)
            if op in ("//", "%") and np.any(np.asarray(right) == 0):
                raise SemanticsError("division by zero")
            return OPERATORS[op](left, right)
    raise SemanticsError(f"{_shown(expr)} is not allowed in an integer expression (use + - * // % ^)")


def _shown(expr: Expr) -> str:
    match expr:
        case Number(value=value):
            return repr(value)
        case Binary(op=op) | Unary(op=op):
            return repr(op)
    return type(expr).__name__.lower()


def extent(size: int | str, symbols: Mapping[str, int]) -> int:
    """The number of elements that an extent stands for."""
    value = int(integer(size, symbols)) if isinstance(size, str) else size
    if not 0 < value < 1 << 31:
        raise SemanticsError(f"{value} is not between 1 and 2147483647")
    return value
