"""Atoms, sums of products, and their text: the ground of the algebra of dims (`hwsdk.graph.expr`).

Design choice: atoms are interned, one object per operation and arguments, so that equality and hashing of
products run at the speed of identity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter, index
from typing import Any, TypeGuard

from hwsdk.errors import GraphError

NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(?:\.[A-Za-z0-9_$]+)*\Z")
_INFIX = {"floordiv": "//", "mod": "%"}
_TRUTHS = ("ge", "eq")  # atoms whose value is 0 or 1, so that x*x is x


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

# How each operation is made in canonical form.  Filled by the modules that define them; `expr` imports them
# all.
BUILD: dict[str, Callable[..., Dim]] = {}

# Interning tables.  They grow by setdefault alone, which is atomic: (name, args) is one object for all
# threads.
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

    __slots__ = ("_free", "_has_mod", "_hash", "_text", "terms")
    __array_ufunc__ = None  # NumPy integers must leave the arithmetic to us

    terms: tuple[tuple[int, Monomial], ...]

    def __init__(self, terms: tuple[tuple[int, Monomial], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._free: frozenset[str] | None = None
        self._has_mod: bool | None = None
        self._text: str | None = None

    @property
    def has_mod(self) -> bool:
        """Is a term a product with a mod?  Such sums may recombine."""
        if self._has_mod is None:
            self._has_mod = any(is_op(a, "mod") for _, m in self.terms for a in m)
        return self._has_mod

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
        return BUILD["floordiv"](self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return BUILD["floordiv"](other, self)

    def __mod__(self, other: Dim) -> Dim:
        return BUILD["mod"](self, other)

    def __rmod__(self, other: int) -> Dim:
        return BUILD["mod"](other, self)


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


@lru_cache(maxsize=1 << 15)
def _monomial_key(atoms: Monomial) -> tuple[Any, ...]:
    """Higher degree first, then by text; the constant comes last.  (A graded order: division by it ends.)"""
    return (-len(atoms), *[a.text for a in atoms])


def make(poly: Mapping[Monomial, int]) -> Dim:
    """The canonical Dim of a map from monomial to coefficient."""
    items = [(c, m) for m, c in poly.items() if c]
    if not items:
        return 0
    if len(items) == 1:
        return Expr((items[0],)) if items[0][1] else items[0][0]
    items.sort(key=lambda item: _monomial_key(item[1]))
    return Expr(tuple(items))


def from_terms(pairs: Iterable[tuple[int, Monomial]]) -> Dim:
    """The canonical sum of (coefficient, sorted atoms) pairs."""
    poly: dict[Monomial, int] = {}
    for c, m in pairs:
        poly[m] = poly.get(m, 0) + c
    return make(poly)


def new_atom(name: str, *args: Dim) -> Expr:
    return Expr(((1, (_op(name, args),)),))


def single_atom(d: Dim) -> Atom | None:
    """The atom, if `d` is exactly one atom with coefficient 1."""
    if isinstance(d, Expr) and len(d.terms) == 1 and d.terms[0][0] == 1 and len(d.terms[0][1]) == 1:
        return d.terms[0][1][0]
    return None


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if not isinstance(b, Expr):
        a, b = b, a
    if not isinstance(b, Expr):
        return as_dim(a) + as_dim(b)
    if not isinstance(a, Expr):
        return _plus_constant(b, as_dim(a))  # type: ignore[arg-type]
    poly = {m: c for c, m in a.terms}
    for c, m in b.terms:
        poly[m] = poly.get(m, 0) + c
    if a.has_mod or b.has_mod:
        _recombine(poly)
    return make(poly)


def _plus_constant(e: Expr, k: int) -> Expr:
    c, m = e.terms[-1]
    if m:
        return Expr((*e.terms, (k, ()))) if k else e
    return Expr((*e.terms[:-1], (c + k, ()))) if c + k else Expr(e.terms[:-1])


def _recombine(poly: dict[Monomial, int]) -> None:
    """k*(x % b) + k*b*(x//b) = k*x;   k*(x % b) + k*b*((x//b) % c) = k*(x % (b*c))."""
    for m, k in list(poly.items()):
        for position, atom in enumerate(m):
            if not k or not is_op(atom, "mod") or poly.get(m) != k:
                continue
            x, b = atom.args
            others = m[:position] + m[position + 1 :]
            if _trade(poly, (k, m), others, multiply(BUILD["floordiv"](x, b), b), x):
                break
            quotient = BUILD["floordiv"](x, b)
            sizes = [a.args[1] for t in poly for a in t if is_op(a, "mod") and a.args[0] == quotient]
            for c in sizes:
                partner = multiply(new_atom("mod", quotient, c), b)
                if _trade(poly, (k, m), others, partner, BUILD["mod"](x, multiply(b, c))):
                    break


def _trade(
    poly: dict[Monomial, int], term: tuple[int, Monomial], others: Monomial, partner: Dim, result: Dim
) -> bool:
    """Replace `term` and k*others*partner by k*others*result if all terms of the partner are there."""
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
    return make(poly)


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    merged = sorted(a + b, key=_atom_key)
    if any(is_op(x, *_TRUTHS) for x in merged):
        merged = [x for i, x in enumerate(merged) if not (i and x is merged[i - 1] and is_op(x, *_TRUTHS))]
    return tuple(merged)


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
