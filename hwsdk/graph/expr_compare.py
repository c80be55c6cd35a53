"""Extremes and comparisons of dims in canonical form.

Design choice: a comparison is a dim of value 0 or 1, written as `ge` or `eq` of two sums without common
terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from hwsdk.errors import GraphError
from hwsdk.graph.expr_terms import (
    BUILD,
    Dim,
    Monomial,
    add,
    as_dim,
    constant_term,
    from_terms,
    is_op,
    multiply,
    new_atom,
    single_atom,
)


# ----------------------------------------------------------------------------------- extremes and comparisons
def minimum(*args: Dim) -> Dim:
    """The least of the arguments."""
    return _extreme("min", args)


def maximum(*args: Dim) -> Dim:
    """The greatest of the arguments."""
    return _extreme("max", args)


def _extreme(name: str, args: Iterable[Dim]) -> Dim:
    """Flattened and sorted; of two arguments that differ by a constant one is dropped."""
    kept: list[Dim] = []
    todo = [as_dim(a) for a in args]
    if not todo:
        raise GraphError(f"{name} of nothing")
    while todo:
        item = todo.pop()
        inner = single_atom(item)
        if is_op(inner, name):
            todo += inner.args
            continue
        for i, other in enumerate(kept):
            gap = item - other
            if isinstance(gap, int):
                if (gap < 0) == (name == "min"):
                    kept[i] = item
                break
        else:
            kept.append(item)
    return kept[0] if len(kept) == 1 else new_atom(name, *sorted(kept, key=str))


def ge(a: Dim, b: Dim) -> Dim:
    """1 if a >= b, else 0.   g*x + c >= 0  is  x + floor(c/g) >= 0."""
    d = add(a, multiply(-1, b))
    if isinstance(d, int):
        return int(d >= 0)
    g = gcd(*(c for c, m in d.terms if m))
    return new_atom("ge", *_sides((c // g, m) for c, m in d.terms))


def eq(a: Dim, b: Dim) -> Dim:
    """1 if a = b, else 0.   g*x + c = 0 has no solution unless g divides c."""
    d = add(a, multiply(-1, b))
    if isinstance(d, int):
        return int(d == 0)
    g = gcd(*(c for c, m in d.terms if m))
    if constant_term(d) % g:
        return 0
    g = g if d.terms[0][0] > 0 else -g
    return new_atom("eq", *_sides((c // g, m) for c, m in d.terms))


def _sides(pairs: Iterable[tuple[int, Monomial]]) -> tuple[Dim, Dim]:
    """Positive terms on the left, negative terms negated on the right."""
    pairs = tuple(pairs)
    return from_terms((c, m) for c, m in pairs if c > 0), from_terms((-c, m) for c, m in pairs if c < 0)


def gt(a: Dim, b: Dim) -> Dim:
    """1 if a > b, else 0."""
    return ge(a, add(b, 1))


def le(a: Dim, b: Dim) -> Dim:
    """1 if a <= b, else 0."""
    return ge(b, a)


def lt(a: Dim, b: Dim) -> Dim:
    """1 if a < b, else 0."""
    return ge(b, add(a, 1))


def ne(a: Dim, b: Dim) -> Dim:
    """1 if a differs from b, else 0."""
    return add(1, multiply(-1, eq(a, b)))


def both(*conditions: Dim) -> Dim:
    """1 if all 0/1-valued conditions are 1."""
    result: Dim = 1
    for c in conditions:
        result = multiply(result, c)
    return result


def either(a: Dim, b: Dim) -> Dim:
    """1 if one of two 0/1-valued conditions is 1."""
    return add(add(a, b), multiply(-1, multiply(a, b)))


BUILD.update(min=minimum, max=maximum, ge=ge, eq=eq)
