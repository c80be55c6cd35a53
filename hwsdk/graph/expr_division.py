"""floordiv, mod and ceildiv of dims in canonical form.

Design choice: whatever divides exactly is taken out of an operation at once, so that an operation is left
only for a true remainder and two ways of writing one index meet in one form.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from hwsdk.graph.expr_terms import (
    BUILD,
    Dim,
    Expr,
    Monomial,
    Op,
    add,
    as_dim,
    constant_term,
    from_terms,
    is_op,
    make,
    multiply,
    new_atom,
    single_atom,
    terms,
)


# --------------------------------------------------------------------------------------------------- division
def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b)."""
    return _division("floordiv", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """a - b*floor(a / b): the sign is that of b."""
    return _division("mod", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """ceil(a / b); for an integer b it is written as a floordiv."""
    a, b = as_dim(a), as_dim(b)
    if isinstance(b, int) and b:
        return floordiv(a + b - 1, b) if b > 0 else floordiv(-a - b - 1, -b)
    return _division("ceildiv", a, b)


def _division(name: str, a: Dim, b: Dim) -> Dim:
    a, b = as_dim(a), as_dim(b)
    if isinstance(b, int):
        if not b:
            return new_atom(name, a, b)  # has no value: evaluation says so
        if isinstance(a, int):
            return a // b if name == "floordiv" else a % b
        if b < 0:
            return floordiv(-a, -b) if name == "floordiv" else -mod(-a, -b)
        if b == 1:
            return a if name == "floordiv" else 0
        return _by_constant(name, a, b)
    if a == 0:
        return 0
    return _by_expression(name, a, b)


@lru_cache(maxsize=1 << 14)  # index arithmetic asks the same few questions again and again
def _by_constant(name: str, a: Expr, b: int) -> Dim:
    """a = q*b + r:  a//b = q + r//b,  a%b = r%b;   then g = gcd(coefficients of r, b) is divided out."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    g = b
    constant = 0
    for c, m in a.terms:
        # Coefficients keep their sign (bounds stay tight); the constant goes to [0, b).
        q = c // b if not m or c > 0 else -(-c // b)
        quotient[m] = q
        if m:
            rest[m] = c - q * b
            g = gcd(g, c)
        else:
            constant = c - q * b
    if g > 1:
        rest = {m: c // g for m, c in rest.items()}
    rest[()] = constant // g
    r = make(rest)
    b //= g
    if name == "floordiv":
        return add(make(quotient), _floordiv_atom(r, b))
    return add(multiply(g, _mod_atom(r, b)), constant % g)


def _floordiv_atom(r: Dim, b: int) -> Dim:
    """r//b for a reduced r.

    (x//m + k)//b = (x + k*m)//(m*b);   (x % m)//b = (x//b) % (m//b) if b divides m.
    """
    if b == 1 or isinstance(r, int):
        return r if b == 1 else r // b
    k = constant_term(r)
    inner = single_atom(r - k)
    if isinstance(inner, Op) and isinstance(inner.args[-1], int):
        x, m = inner.args[0], inner.args[-1]
        if inner.name == "floordiv" and m > 0:
            return floordiv(x + k * m, m * b)
        if inner.name == "mod" and k == 0 and m > 0 and m % b == 0:
            return mod(floordiv(x, b), m // b)
    return new_atom("floordiv", r, b)


def _mod_atom(r: Dim, b: int) -> Dim:
    """r % b for a reduced r.   (c*(x % m) + y) % b = (c*x + y) % b if b divides c*m."""
    if b == 1 or isinstance(r, int):
        return 0 if b == 1 else r % b
    for c, m in r.terms:
        if len(m) == 1 and is_op(m[0], "mod"):
            x, size = m[0].args
            if isinstance(size, int) and size and c * size % b == 0:
                return mod(r + c * (x - from_terms([(1, m)])), b)
    return new_atom("mod", r, b)


@lru_cache(maxsize=1 << 12)
def _by_expression(name: str, a: Dim, b: Expr) -> Dim:
    """a = q*b + r, then common factors of r and b cancel:  (x*r)//(x*b) = r//b,  (x*r)%(x*b) = x*(r%b)."""
    if all(c < 0 for c, _ in b.terms):
        return -mod(-a, -b) if name == "mod" else _by_expression(name, -a, -b)
    q, r = _long_division(a, b)
    q = 0 if name == "mod" else q
    if r == 0:
        return q
    factor = _common_factor((*terms(r), *b.terms))
    if factor != 1:
        r, b_left = _cancel(r, factor), _cancel(b, factor)
        reduced = _division(name, r, b_left) if name != "ceildiv" else ceildiv(r, b_left)
        return multiply(factor, reduced) if name == "mod" else add(q, reduced)
    return add(q, new_atom(name, r, b))


def _long_division(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """Polynomial division by the leading term of b; kept only when it makes the remainder shorter."""
    lead_c, lead_m = b.terms[0]
    quotient: Dim = 0
    rest = a
    for _ in range(len(terms(a)) * 4):
        for c, m in terms(rest):
            left = None if c % lead_c else _without(m, lead_m)
            if left is not None:
                step = from_terms([(c // lead_c, left)])
                quotient, rest = add(quotient, step), add(rest, -multiply(step, b))
                break
        else:
            break
    if len(terms(rest)) >= len(terms(a)):
        return 0, a
    return quotient, rest


def _without(m: Monomial, part: Monomial) -> Monomial | None:
    """m / part, or None if part does not divide m."""
    left = list(m)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _common_factor(pairs: tuple[tuple[int, Monomial], ...]) -> Dim:
    """The greatest monomial (coefficient included) that divides all terms."""
    g = 0
    common = list(pairs[0][1])
    for c, m in pairs:
        g = gcd(g, c)
        left = list(m)
        kept = []
        for atom in common:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = kept
    return from_terms([(g, tuple(common))])


def _cancel(d: Dim, factor: Dim) -> Dim:
    ((fc, fm),) = terms(factor)
    return from_terms([(c // fc, _without(m, fm) or ()) for c, m in terms(d)])


BUILD.update(floordiv=floordiv, mod=mod, ceildiv=ceildiv)
