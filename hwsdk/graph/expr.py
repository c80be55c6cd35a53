"""The algebra of dims: integer expressions over named symbols, always in canonical form.

Design choice: an expression is a polynomial with integer coefficients over atoms.  An atom is a symbol or an
operation that a polynomial cannot express (floordiv, mod, ceildiv, min, max, ge, eq).  Every constructor normalises,
so equal polynomials are equal by value, and results without symbols are plain ints.  Atoms are interned: equality
and hashing of monomials run at the speed of identity.

Division by zero has no value.  A rewrite may remove such a division (x*n//n is x), never introduce one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import gcd
from operator import attrgetter, index
from typing import Any, TypeGuard

from hwsdk.errors import GraphError

NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(?:\.[A-Za-z0-9_$]+)*\Z")
_INFIX = {"floordiv": "//", "mod": "%"}
_TRUTHS = ("ge", "eq")  # atoms whose value is 0 or 1, so that x*x is x
OPS = frozenset(("floordiv", "mod", "ceildiv", "min", "max", "ge", "eq"))


class Symbol:
    """A named integer.  One object per name; make it with `symbol(name)`."""

    __slots__ = ("free", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = name
        self.free = frozenset((name,))

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"

    def __reduce__(self) -> tuple[Callable[..., Symbol], tuple[str]]:
        return symbol, (self.name,)


class Op:
    """An operation that is no polynomial of its canonical arguments.  One object per (name, args)."""

    __slots__ = ("args", "free", "name", "text")

    def __init__(self, name: str, args: tuple[Dim, ...]) -> None:
        self.name = name
        self.args = args
        self.free = frozenset().union(*(a.free for a in args if isinstance(a, Expr)))
        if sign := _INFIX.get(name):
            self.text = sign.join(_operand_text(a) for a in args)
        else:
            self.text = f"{name}({', '.join(map(str, args))})"

    def __repr__(self) -> str:
        return f"Op({self.text})"

    def __reduce__(self) -> tuple[Callable[..., Op], tuple[str, tuple[Dim, ...]]]:
        return _op, (self.name, self.args)


Atom = Symbol | Op
Monomial = tuple[Atom, ...]

# Interning tables.  They grow by setdefault alone, which is atomic: (name, args) is one object for all threads.
_SYMBOLS: dict[str, Symbol] = {}
_OPS: dict[tuple[str, tuple[Any, ...]], Op] = {}


def is_op(atom: object, *names: str) -> TypeGuard[Op]:
    """Is it an operation of one of these names?"""
    return isinstance(atom, Op) and atom.name in names


def symbol(name: str) -> Symbol:
    """The atom for a name."""
    found = _SYMBOLS.get(name)
    if found is None:
        if not NAME.match(name):
            raise GraphError(f"{name!r} is not a name for a dimension (letters, digits, '_', '.', '$')")
        found = _SYMBOLS.setdefault(name, Symbol(name))
    return found


def _op(name: str, args: tuple[Dim, ...]) -> Op:
    found = _OPS.get((name, args))
    return found if found is not None else _OPS.setdefault((name, args), Op(name, args))


class Expr:
    """A polynomial that is not a constant: `terms` is a canonical tuple of (coefficient, atoms)."""

    __slots__ = ("_free", "_hash", "_text", "terms")
    __array_ufunc__ = None  # NumPy integers must leave the arithmetic to us

    terms: tuple[tuple[int, Monomial], ...]

    def __init__(self, terms: tuple[tuple[int, Monomial], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._free: frozenset[str] | None = None
        self._text: str | None = None

    @property
    def free(self) -> frozenset[str]:
        """The names of the symbols in it."""
        if self._free is None:
            self._free = frozenset().union(*(a.free for _, m in self.terms for a in m))
        return self._free

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __reduce__(self) -> tuple[Callable[..., Dim], tuple[tuple[tuple[int, Monomial], ...]]]:
        return from_terms, (self.terms,)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _expr_text(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    def __radd__(self, other: int) -> Dim:
        return add(self, other)

    def __sub__(self, other: Dim) -> Dim:
        return add(self, multiply(-1, other))

    def __rsub__(self, other: int) -> Dim:
        return add(multiply(-1, self), other)

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other)

    def __rmul__(self, other: int) -> Dim:
        return multiply(self, other)

    def __neg__(self) -> Dim:
        return multiply(-1, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        return mod(other, self)


Dim = int | Expr


def as_dim(value: Any) -> Dim:
    """`value` as a Dim: Expr as it is, anything integral as a Python int; TypeError otherwise."""
    return value if type(value) is int or isinstance(value, Expr) else index(value)


def sym(name: str) -> Expr:
    """The expression that is just the symbol `name`."""
    return Expr(((1, (symbol(name),)),))


def terms(d: Dim) -> tuple[tuple[int, Monomial], ...]:
    """The sum of products: (coefficient, atoms) pairs; the constant has no atoms; 0 has no terms."""
    if isinstance(d, Expr):
        return d.terms
    return ((d, ()),) if d else ()


def constant_term(d: Dim) -> int:
    """The part of `d` without atoms."""
    if isinstance(d, int):
        return d
    c, m = d.terms[-1]
    return 0 if m else c


def free_symbols(d: Dim) -> frozenset[str]:
    """The names of all symbols in `d`."""
    return d.free if isinstance(d, Expr) else frozenset()


# ------------------------------------------------------------------------------------------------ polynomials
_atom_key = attrgetter("text")


def _monomial_key(term: tuple[int, Monomial]) -> tuple[Any, ...]:
    """Higher degree first, then by text; the constant comes last.  (A graded order: division by it ends.)"""
    atoms = term[1]
    return (-len(atoms), *[a.text for a in atoms])


def _make(poly: Mapping[Monomial, int]) -> Dim:
    """The canonical Dim of a map from monomial to coefficient."""
    items = [(c, m) for m, c in poly.items() if c]
    if not items:
        return 0
    if len(items) == 1:
        return Expr((items[0],)) if items[0][1] else items[0][0]
    items.sort(key=_monomial_key)
    return Expr(tuple(items))


def from_terms(pairs: Iterable[tuple[int, Monomial]]) -> Dim:
    """The canonical sum of (coefficient, sorted atoms) pairs."""
    poly: dict[Monomial, int] = {}
    for c, m in pairs:
        poly[m] = poly.get(m, 0) + c
    return _make(poly)


def _atom(name: str, *args: Dim) -> Expr:
    return Expr(((1, (_op(name, args),)),))


def single_atom(d: Dim) -> Atom | None:
    """The atom, if `d` is exactly one atom with coefficient 1."""
    if isinstance(d, Expr) and len(d.terms) == 1 and d.terms[0][0] == 1 and len(d.terms[0][1]) == 1:
        return d.terms[0][1][0]
    return None


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    a, b = as_dim(a), as_dim(b)
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    poly = {m: c for c, m in terms(a)}
    for c, m in terms(b):
        poly[m] = poly.get(m, 0) + c
    if any(is_op(x, "mod") for m in poly for x in m):
        _recombine(poly)
    return _make(poly)


def _recombine(poly: dict[Monomial, int]) -> None:
    """k*(x % b) + k*b*(x//b) = k*x;   k*(x % b) + k*b*((x//b) % c) = k*(x % (b*c))."""
    for m, k in list(poly.items()):
        for position, atom in enumerate(m):
            if not k or not is_op(atom, "mod") or poly.get(m) != k:
                continue
            x, b = atom.args
            others = m[:position] + m[position + 1 :]
            if _trade(poly, (k, m), others, multiply(floordiv(x, b), b), x):
                break
            quotient = floordiv(x, b)
            sizes = [a.args[1] for t in poly for a in t if is_op(a, "mod") and a.args[0] == quotient]
            for c in sizes:
                partner = multiply(_atom("mod", quotient, c), b)
                if _trade(poly, (k, m), others, partner, mod(x, multiply(b, c))):
                    break


def _trade(
    poly: dict[Monomial, int], term: tuple[int, Monomial], others: Monomial, partner: Dim, result: Dim
) -> bool:
    """Replace `term` and k*others*partner by k*others*result if the polynomial has all terms of the partner."""
    k, m = term
    factor = from_terms([(k, others)])
    wanted = terms(multiply(factor, partner))
    if not wanted or any(not _contains(poly.get(w, 0), c) for c, w in wanted):
        return False
    for c, w in ((k, m), *wanted):
        poly[w] = poly.get(w, 0) - c
    for c, w in terms(multiply(factor, result)):
        poly[w] = poly.get(w, 0) + c
    return True


def _contains(have: int, want: int) -> bool:
    """Can `want` be taken out of `have` without changing its sign?"""
    return have >= want > 0 or have <= want < 0


def multiply(a: Dim, b: Dim) -> Dim:
    """a * b."""
    a, b = as_dim(a), as_dim(b)
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if isinstance(b, int):
        if b == 1:
            return a
        return Expr(tuple((c * b, m) for c, m in a.terms)) if b else 0
    poly: dict[Monomial, int] = {}
    for ca, ma in a.terms:
        for cb, mb in b.terms:
            m = _times(ma, mb)
            poly[m] = poly.get(m, 0) + ca * cb
    return _make(poly)


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    merged = sorted(a + b, key=_atom_key)
    if any(is_op(x, *_TRUTHS) for x in merged):
        merged = [x for i, x in enumerate(merged) if not (i and x is merged[i - 1] and is_op(x, *_TRUTHS))]
    return tuple(merged)


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
            return _atom(name, a, b)  # has no value: evaluation says so
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
    r = _make(rest)
    b //= g
    if name == "floordiv":
        return add(_make(quotient), _floordiv_atom(r, b))
    return add(multiply(g, _mod_atom(r, b)), constant % g)


def _floordiv_atom(r: Dim, b: int) -> Dim:
    """r//b for a reduced r.  (x//m + k)//b = (x + k*m)//(m*b);  (x % m)//b = (x//b) % (m//b) if b divides m."""
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
    return _atom("floordiv", r, b)


def _mod_atom(r: Dim, b: int) -> Dim:
    """r % b for a reduced r.   (c*(x % m) + y) % b = (c*x + y) % b if b divides c*m."""
    if b == 1 or isinstance(r, int):
        return 0 if b == 1 else r % b
    for c, m in r.terms:
        if len(m) == 1 and is_op(m[0], "mod"):
            x, size = m[0].args
            if isinstance(size, int) and size and c * size % b == 0:
                return mod(r + c * (x - from_terms([(1, m)])), b)
    return _atom("mod", r, b)


def _by_expression(name: str, a: Dim, b: Expr) -> Dim:
    """a = q*b + r, then common factors of r and b cancel:  (x*r)//(x*b) = r//b,  (x*r)%(x*b) = x*(r%b)."""
    if all(c < 0 for c, _ in b.terms):
        return -mod(-a, -b) if name == "mod" else _by_expression(name, -a, -b)  # type: ignore[arg-type]
    q, r = _long_division(a, b)
    q = 0 if name == "mod" else q
    if r == 0:
        return q
    factor = _common_factor((*terms(r), *b.terms))
    if factor != 1:
        r, b_left = _cancel(r, factor), _cancel(b, factor)
        reduced = _division(name, r, b_left) if name != "ceildiv" else ceildiv(r, b_left)
        return multiply(factor, reduced) if name == "mod" else add(q, reduced)
    return add(q, _atom(name, r, b))


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
    return kept[0] if len(kept) == 1 else _atom(name, *sorted(kept, key=str))


def ge(a: Dim, b: Dim) -> Dim:
    """1 if a >= b, else 0.   g*x + c >= 0  is  x + floor(c/g) >= 0."""
    d = add(a, multiply(-1, b))
    if isinstance(d, int):
        return int(d >= 0)
    g = gcd(*(c for c, m in d.terms if m))
    return _atom("ge", *_sides((c // g, m) for c, m in d.terms))


def eq(a: Dim, b: Dim) -> Dim:
    """1 if a = b, else 0.   g*x + c = 0 has no solution unless g divides c."""
    d = add(a, multiply(-1, b))
    if isinstance(d, int):
        return int(d == 0)
    g = gcd(*(c for c, m in d.terms if m))
    if constant_term(d) % g:
        return 0
    g = g if d.terms[0][0] > 0 else -g
    return _atom("eq", *_sides((c // g, m) for c, m in d.terms))


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


BUILD: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv, "mod": mod, "ceildiv": ceildiv, "min": minimum, "max": maximum, "ge": ge, "eq": eq,
}


# ------------------------------------------------------------------------------------------------------- text
def _expr_text(e: Expr) -> str:
    """Positive terms first, so that a difference reads as one."""
    out = ""
    for c, m in sorted(e.terms, key=lambda t: (not t[1], t[0] < 0)):
        alone = len(m) == 1 and (c == 1 or (c == -1 and out != ""))
        factors = [f"({a.text})" if not alone and is_op(a, "floordiv", "mod") else a.text for a in m]
        body = "*".join([str(abs(c)), *factors] if abs(c) != 1 or not m else factors)
        out += (" - " if c < 0 else " + ") + body if out else ("-" if c < 0 else "") + body
    return out


def _operand_text(d: Dim) -> str:
    """Operands of // and %: whatever is not a name, a number or a call stands in parentheses."""
    atom = single_atom(d)
    plain = atom is not None and not is_op(atom, "floordiv", "mod")
    return str(d) if plain or (isinstance(d, int) and d >= 0) else f"({d})"
