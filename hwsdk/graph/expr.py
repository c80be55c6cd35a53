"""The algebra of dims: integer expressions over named symbols, always in canonical form.

    expr_terms      atoms, sums of products, text   expr_division   floordiv, mod, ceildiv
    expr_compare    min, max, ge, eq                expr_ranges     bounds and simplification under ranges
    expr_text       reading text back

Design choice: an expression is a polynomial with integer coefficients over atoms.  An atom is a symbol or an
operation that a polynomial cannot express.  Every constructor normalises, so equal polynomials are equal by
value, and a result without symbols is a plain int.

Division by zero has no value.  A rewrite may remove such a division (x*n//n is x), never introduce one.
"""

from __future__ import annotations

from hwsdk.graph.expr_compare import both, either, eq, ge, gt, le, lt, maximum, minimum, ne
from hwsdk.graph.expr_division import ceildiv, floordiv, mod
from hwsdk.graph.expr_terms import (
    BUILD,
    NAME,
    Atom,
    Dim,
    Expr,
    Monomial,
    Op,
    Symbol,
    add,
    as_dim,
    constant_term,
    free_symbols,
    from_terms,
    is_op,
    multiply,
    single_atom,
    sym,
    symbol,
    terms,
)

__all__ = [
    "BUILD", "NAME", "Atom", "Dim", "Expr", "Monomial", "Op", "Symbol", "add", "as_dim", "both", "ceildiv",
    "constant_term", "either", "eq", "floordiv", "free_symbols", "from_terms", "ge", "gt", "is_op", "le",
    "lt", "maximum", "minimum", "mod", "multiply", "ne", "single_atom", "sym", "symbol", "terms",
]  # fmt: skip
