"""Proofs that one offset is never below another: fast and incomplete, for the expressions that arena plans
are made of.

Offsets are sums of sizes and maxima of such sums.  A difference of two offsets is proved to be >= 0 by three
rules:

    all terms positive                         c*x*y >= 0
    c*max(a, b) + r    c > 0: one of c*a + r, c*b + r will do;    c < 0: both must hold
    -c*(x//n) + r      x//n <= x - (n-1) if that is >= 0 (coarse), and x//n <= x/n (high)
    c*(x//n) + r       x//n >= (x - (n-1))/n (low)

Design choice: the general prover of dims answers these too, a hundred times slower when the answer is no; an
arena plan asks hundreds of questions, and a proof that is missed costs some reuse, never correctness.
"""

from __future__ import annotations

from fractions import Fraction

from hwsdk.graph.dims import Atom, Dim, Op, Ranges, add, bounds, multiply, terms
from hwsdk.graph.expr import from_terms, is_op

_DEPTH = 8  # rewrites in one proof
_MODES = ("coarse", "high", "low")
_Term = tuple[Fraction, tuple[Atom, ...]]


class Prover:
    """Answers for symbols in these ranges; each question once."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._answers: dict[Dim, bool] = {}
        self._signs: dict[Atom, bool] = {}

    def covers(self, a: Dim, b: Dim) -> bool:
        """Is a >= b proved for all sizes?"""
        gap = add(a, multiply(-1, b))
        if gap not in self._answers:
            self._answers[gap] = self._proved(gap, _DEPTH)
        return self._answers[gap]

    def _proved(self, gap: Dim, depth: int) -> bool:
        if self._positive(gap):
            return True
        if depth == 0:
            return False
        for c, m in terms(gap):
            for i, atom in enumerate(m):
                if is_op(atom, "max"):
                    others = from_terms([(1, m[:i] + m[i + 1 :])])
                    if not self._positive(others):
                        return False
                    rest = add(gap, from_terms([(-c, m)]))
                    choices = (add(rest, multiply(c, multiply(others, x))) for x in atom.args)
                    return (any if c > 0 else all)(self._proved(x, depth - 1) for x in choices)
        return self._by_relaxing(gap)

    def _positive(self, gap: Dim) -> bool:
        """Is every term positive on its own?"""
        return all(c >= 0 and all(map(self._sign, m)) for c, m in terms(gap))

    def _sign(self, atom: Atom) -> bool:
        """Is the atom never negative?"""
        if atom not in self._signs:
            low, _ = bounds(from_terms([(1, (atom,))]), self._ranges)
            self._signs[atom] = low is not None and low >= 0
        return self._signs[atom]

    def _by_relaxing(self, gap: Dim) -> bool:
        """Are all terms positive once divisions are replaced by something that makes the sum smaller?"""
        for mode in _MODES:
            total: dict[tuple[Atom, ...], Fraction] = {}
            for c, m in terms(gap):
                for d, atoms in self._smaller(Fraction(c), m, mode):
                    total[atoms] = total.get(atoms, Fraction(0)) + d
            if all(c >= 0 and all(map(self._sign, m)) for m, c in total.items()):
                return True
        return False

    def _smaller(self, c: Fraction, m: tuple[Atom, ...], mode: str) -> list[_Term]:
        """Terms whose sum is at most c*m."""
        if (c > 0) != (mode == "low") or not all(map(self._sign, m)):
            return [(c, m)]
        for i, atom in enumerate(m):
            if isinstance(atom, Op) and atom.name == "floordiv" and isinstance(atom.args[1], int):
                x, n = atom.args[0], atom.args[1]
                whole = add(x, 1 - n)
                if n <= 0 or (mode == "coarse" and not self._positive(whole)):
                    continue
                others = from_terms([(1, m[:i] + m[i + 1 :])])
                scale = c if mode == "coarse" else c / n
                parts = terms(x if mode == "high" else whole)
                return [(scale * d, terms(multiply(others, from_terms([(1, k)])))[0][1]) for d, k in parts]
        return [(c, m)]
