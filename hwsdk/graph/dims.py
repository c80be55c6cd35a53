"""Dims: integer expressions over named symbols.  This is the module that everybody imports.

    Dim = int | Expr          + - * // % on Expr; floordiv mod ceildiv minimum maximum
    ge gt le lt eq ne         comparisons: dims with value 0 or 1; both, either
    str / parse               text and back
    evaluate                  with ints or NumPy integer arrays
    bounds simplify           under ranges of the symbols (ends: int, Dim, or None for unbounded)

Design choice: comparisons are dims too, so a guard, a mask and a size are one language, evaluated by one
function and emitted by one printer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from hwsdk.errors import GraphError
from hwsdk.graph.expr import (
    BUILD,
    NAME,
    Atom,
    Dim,
    Expr,
    Op,
    Symbol,
    add,
    as_dim,
    both,
    ceildiv,
    constant_term,
    either,
    eq,
    floordiv,
    free_symbols,
    ge,
    gt,
    is_op,
    le,
    lt,
    maximum,
    minimum,
    mod,
    multiply,
    ne,
    single_atom,
    sym,
    symbol,
    terms,
)
from hwsdk.graph.expr_ranges import Range, Ranges, bounds, coefficient, is_nonnegative, simplify
from hwsdk.graph.expr_text import parse

__all__ = [
    "NAME",
    "Atom",
    "Dim",
    "Expr",
    "Op",
    "Range",
    "Ranges",
    "Symbol",
    "add",
    "as_dim",
    "both",
    "bounds",
    "ceildiv",
    "coefficient",
    "constant_term",
    "either",
    "eq",
    "evaluate",
    "floordiv",
    "free_symbols",
    "ge",
    "gt",
    "is_nonnegative",
    "is_op",
    "le",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "ne",
    "parse",
    "product",
    "replace_atoms",
    "simplify",
    "single_atom",
    "substitute",
    "sym",
    "symbol",
    "terms",
]

Number = int | np.ndarray[Any, np.dtype[np.int64]]


def product(dims: Any) -> Dim:
    """The product of some dims (1 for none): the element count of a shape."""
    result: Dim = 1
    for d in dims:
        result = multiply(result, d)
    return result


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """d with every symbol in `values` replaced, all at once."""
    return d if isinstance(d, int) or d.free.isdisjoint(values) else _substitute(d, values, {})


def _substitute(d: Dim, values: Mapping[str, Dim], memo: dict[Atom, Dim]) -> Dim:
    if isinstance(d, int) or d.free.isdisjoint(values):
        return d
    result: Dim = 0
    for c, m in d.terms:
        part: Dim = c
        for atom in m:
            if atom not in memo:
                memo[atom] = _substitute_atom(atom, values, memo)
            part = multiply(part, memo[atom])
        result = add(result, part)
    return result


def _substitute_atom(atom: Atom, values: Mapping[str, Dim], memo: dict[Atom, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return as_dim(values[atom.name]) if atom.name in values else Expr(((1, (atom,)),))
    if atom.free.isdisjoint(values):
        return Expr(((1, (atom,)),))
    return BUILD[atom.name](*(_substitute(a, values, memo) for a in atom.args))


def replace_atoms(d: Dim, values: Mapping[Atom, Dim]) -> Dim:
    """d with every occurrence of some atoms replaced, those inside of other atoms included."""
    if isinstance(d, int) or not values:
        return d
    result: Dim = 0
    for c, m in d.terms:
        part: Dim = c
        for atom in m:
            part = multiply(part, _replace_atom(atom, values))
        result = add(result, part)
    return result


def _replace_atom(atom: Atom, values: Mapping[Atom, Dim]) -> Dim:
    if atom in values:
        return values[atom]
    if isinstance(atom, Symbol):
        return Expr(((1, (atom,)),))
    if (nested := _through_nested(atom, values)) is not None:
        return nested
    args = [replace_atoms(a, values) for a in atom.args]
    return Expr(((1, (atom,)),)) if tuple(args) == atom.args else BUILD[atom.name](*args)


def _through_nested(atom: Op, values: Mapping[Atom, Dim]) -> Dim | None:
    """(p + c*j)//(c*k) is (p//c + j)//k: the replaced atom p//c may hide in a division by a multiple of c."""
    p, b = atom.args[0], atom.args[-1]
    if atom.name != "floordiv" or not isinstance(b, int):
        return None
    for inner, value in values.items():
        c = inner.args[-1] if is_op(inner, "floordiv") else None
        if isinstance(inner, Op) and isinstance(c, int) and 1 < c < b and b % c == 0:
            j = add(p, multiply(-1, inner.args[0]))
            if all(k % c == 0 for k, _ in terms(j)):
                return floordiv(add(value, floordiv(j, c)), b // c)
    return None


def evaluate(d: Dim, values: Mapping[str, Number], known: dict[Atom, Any] | None = None) -> Any:
    """The value of d: a Python int, or an int64 array where `values` has arrays (broadcast together).

    known: operations that were evaluated at these values before; those of d are added.
    GraphError names a symbol without value, or the division by zero.
    """
    if not isinstance(d, Expr):
        return d
    known = {} if known is None else known
    total: Any = 0
    for c, m in d.terms:
        part: Any = c
        for atom in m:
            x = _evaluate_atom(atom, values, known)
            part = x if part is c and c == 1 else part * x
        total = total + part
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, Number], known: dict[Atom, Any]) -> Any:
    if isinstance(atom, Symbol):
        try:
            value = values[atom.name]
        except KeyError:
            raise GraphError(f"dimension {atom.name!r} has no value") from None
        return value if type(value) is int else _as_number(value)
    if atom not in known:
        known[atom] = _applied(atom, [evaluate(a, values, known) for a in atom.args])
    return known[atom]


def _applied(atom: Op, args: Sequence[Any]) -> Any:
    if atom.name in ("floordiv", "mod", "ceildiv"):
        return _divide(atom, *args)
    if atom.name in ("ge", "eq"):
        a, b = args
        truth = a >= b if atom.name == "ge" else a == b
        return truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(truth)
    if any(isinstance(a, np.ndarray) for a in args):
        return reduce(np.minimum if atom.name == "min" else np.maximum, args)
    return (min if atom.name == "min" else max)(args)


def _as_number(value: Any) -> Any:
    return value.astype(np.int64, copy=False) if isinstance(value, np.ndarray) else int(value)


def _divide(atom: Op, a: Any, b: Any) -> Any:
    if not np.all(b) if isinstance(b, np.ndarray) else b == 0:
        raise GraphError(f"division by zero in dimension {atom.text!r}")
    if atom.name == "floordiv":
        return a // b
    return a % b if atom.name == "mod" else -(-a // b)
