"""What is known about a dim when its symbols have ranges: bounds, proofs, and simplification under ranges.

Design choice: a range's ends may themselves be dims (an iterator runs over [0, n-1]).  Bounds come from
interval arithmetic; where a symbol occurs in several terms, exact relaxations of single terms (b*(x//b) <= x,
a minimum is at most each argument, a symbol replaced by the end of its range) are tried within a budget; the
best bound found counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd

from hwsdk.graph import expr
from hwsdk.graph.expr import Atom, Dim, Expr, Monomial, Op, Symbol, terms

Range = tuple[Dim | None, Dim | None]
Ranges = Mapping[str, Range]
Interval = tuple[int | None, int | None]

_BUDGET = 60  # relaxations tried for one question, nested ones included
_DEPTH = 6


def bounds(d: Dim, ranges: Ranges) -> Interval:
    """(low, high) with low <= d <= high for all values of the symbols in their ranges; None: not bounded."""
    return (d, d) if isinstance(d, int) else _Knowledge(ranges).bounds(d)


def is_nonnegative(d: Dim, ranges: Ranges) -> bool:
    """Is d >= 0 proved?"""
    return d >= 0 if isinstance(d, int) else _Knowledge(ranges).is_nonnegative(d)


def simplify(d: Dim, ranges: Ranges) -> Dim:
    """An expression equal to d wherever the symbols lie in their ranges, with less to compute."""
    if isinstance(d, int) or not any(isinstance(a, Op) for _, m in d.terms for a in m):
        return d
    return _Simplifier(ranges).simplify(d)


def coefficient(d: Dim, name: str) -> Dim | None:
    """c if d = c*name + rest with c and rest free of `name` (0: absent); None if d is not of that form."""
    if not isinstance(d, Expr) or name not in d.free:
        return 0
    found = []
    for c, m in d.terms:
        if not any(name in a.free for a in m):
            continue
        rest = tuple(a for a in m if name not in a.free)
        if len(rest) != len(m) - 1 or not all(isinstance(a, Symbol) for a in m if name in a.free):
            return None
        found.append((c, rest))
    return expr.from_terms(found)


class _Knowledge:
    """Ranges, with what was derived from them remembered; lives for one question."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.known: dict[Expr, Interval] = {}
        self.budget = _BUDGET

    def is_nonnegative(self, d: Dim) -> bool:
        """Is d >= 0 proved?"""
        low = self.bounds(d)[0]
        return low is not None and low >= 0

    def bounds(self, d: Dim) -> Interval:
        """The tightest interval found for d."""
        if isinstance(d, int):
            return d, d
        found = self.known.get(d)
        if found is None:
            self.known[d] = found = self.interval(d)  # first, so that nested questions about d end
            if self.is_correlated(d):
                low = _tighter(found[0], self.low(d, 0), max)
                high = _tighter(found[1], _negated(self.low(-d, 0)), min)
                self.known[d] = found = low, high
        return found

    def interval(self, d: Dim) -> Interval:
        """Term by term; exact when no symbol occurs twice."""
        low: int | None = 0
        high: int | None = 0
        for c, m in terms(d):
            term: Interval = (c, c)
            for atom in dict.fromkeys(m):
                part = self.atom_interval(atom)
                term = _product(term, part if m.count(atom) == 1 else _power(part, m.count(atom)))
            low = None if low is None or term[0] is None else low + term[0]
            high = None if high is None or term[1] is None else high + term[1]
            if low is None and high is None:
                break
        return low, high

    def end(self, x: Dim | None, side: int) -> int | None:
        return x if x is None or isinstance(x, int) else self.bounds(x)[side]

    def atom_interval(self, atom: Atom) -> Interval:
        if isinstance(atom, Symbol):
            low, high = self.ranges.get(atom.name, (None, None))
            return self.end(low, 0), self.end(high, 1)
        if atom.name in ("ge", "eq"):
            low, high = self.bounds(expr.add(atom.args[0], expr.multiply(-1, atom.args[1])))
            if atom.name == "ge":
                return int(low is not None and low >= 0), int(high is None or high >= 0)
            return int(low == high == 0), int((low is None or low <= 0) and (high is None or high >= 0))
        parts = [self.bounds(a) for a in atom.args]
        if atom.name in ("min", "max"):
            return _extreme_interval(atom.name, parts)
        a, (b_low, b_high) = parts
        if b_low is None or b_low < 1:
            return None, None
        if atom.name == "mod":
            return _mod_interval(a, (b_low, b_high))
        if atom.name == "ceildiv":  # -floor(-a / b)
            return _flip(_floordiv_interval(_flip(a), (b_low, b_high)))
        return _floordiv_interval(a, (b_low, b_high))

    def is_correlated(self, d: Expr) -> bool:
        """Does a symbol occur in two terms, or does a range depend on other symbols?"""
        seen: set[str] = set()
        for _, m in d.terms:
            for atom in dict.fromkeys(m):
                if not seen.isdisjoint(atom.free):
                    return True
                seen |= atom.free
        return any(isinstance(end, Expr) for s in seen for end in self.ranges.get(s, ()))

    def low(self, d: Dim, depth: int) -> int | None:
        """The best lower bound found: the interval's, or that of an expression that is nowhere greater than
        d.
        """
        best = self.interval(d)[0]
        if isinstance(d, int) or depth > _DEPTH or not self.is_correlated(d):
            return best
        for weaker, times in self.at_most(d):
            if self.budget <= 0:
                break
            self.budget -= 1
            low = self.low(weaker, depth + 1)
            best = _tighter(best, None if low is None else -(-low // times), max)
        return best

    def at_most(self, d: Expr) -> Iterator[tuple[Dim, int]]:
        """(e, t) with e <= t*d everywhere; e has one atom fewer."""
        for c, m in d.terms:
            if len(m) == 1 and isinstance(m[0], Op):
                rest = expr.add(d, expr.multiply(-c, _single(m)))
                for replacement, scale, times in self.relaxed(m[0], c):
                    yield expr.add(expr.multiply(times, rest), expr.multiply(scale, replacement)), times
        for end in self.at_range_ends(d):
            yield end, 1

    def relaxed(self, atom: Op, c: int) -> Iterator[tuple[Dim, int, int]]:
        """(x, s, t) with s*x <= t*c*atom.

        max(x, y) >= x;  -min(x, y) >= -x;  b*(x//b) >= x - b + 1;  -b*(x//b) >= -x;  -(x % b) >= -x if x >=
        0.
        """
        if (atom.name, c > 0) in (("max", True), ("min", False)):
            for a in atom.args:
                yield a, c, 1
        elif atom.name == "floordiv" and isinstance(b := atom.args[1], int) and b > 0:
            times = b // gcd(b, c)
            yield (expr.add(atom.args[0], 1 - b) if c > 0 else atom.args[0]), c * times // b, times
        elif atom.name == "mod" and c < 0 and all(map(self.is_nonnegative, (atom.args[0], atom.args[1]))):
            yield atom.args[0], c, 1  # a divisor of 0 has no value, so 0 may be allowed here

    def at_range_ends(self, d: Expr) -> Iterator[Dim]:
        """Replace one symbol by an end of its range.  Symbols whose own range mentions others go first."""
        mentioned: set[str] = set()
        for s in d.free:
            for e in self.ranges.get(s, ()):
                mentioned |= expr.free_symbols(e) if e is not None else frozenset()
        for name in sorted(d.free - mentioned) or sorted(d.free):
            low, high = self.ranges.get(name, (None, None))
            factor = coefficient(d, name)
            if factor is None or factor == 0:
                continue
            sign = self.interval(factor)
            end = low if sign[0] is not None and sign[0] >= 0 else None
            end = high if end is None and sign[1] is not None and sign[1] <= 0 else end
            if end is not None and name not in expr.free_symbols(end):
                yield expr.add(d, expr.multiply(factor, expr.add(end, expr.multiply(-1, expr.sym(name)))))


def _single(m: Monomial) -> Expr:
    return Expr(((1, m),))


# ---------------------------------------------------------------------------------------- interval arithmetic
def _negated(x: int | None) -> int | None:
    return None if x is None else -x


def _flip(a: Interval) -> Interval:
    return _negated(a[1]), _negated(a[0])


def _tighter(a: int | None, b: int | None, choose: Callable[[int, int], int]) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return choose(a, b)


def _extreme_interval(name: str, parts: list[Interval]) -> Interval:
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    known_lows, known_highs = [x for x in lows if x is not None], [x for x in highs if x is not None]
    if name == "min":
        return (min(known_lows) if None not in lows else None), min(known_highs, default=None)
    return max(known_lows, default=None), (max(known_highs) if None not in highs else None)


def _floordiv_interval(a: Interval, b: tuple[int, int | None]) -> Interval:
    def divide(x: int, towards_zero: bool) -> int:
        if towards_zero:
            return x // b[1] if b[1] is not None else (0 if x >= 0 else -1)
        return x // b[0]

    return (
        None if a[0] is None else divide(a[0], a[0] >= 0),
        None if a[1] is None else divide(a[1], a[1] < 0),
    )


def _mod_interval(a: Interval, b: tuple[int, int | None]) -> Interval:
    if a[0] is not None and a[0] >= 0 and a[1] is not None and a[1] < b[0]:
        return a
    if b[0] == b[1] and a[0] is not None and a[1] is not None and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    high = None if b[1] is None else b[1] - 1
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        high = a[1] if high is None else min(high, a[1])
    return 0, high


def _product(a: Interval, b: Interval) -> Interval:
    if (0, 0) in (a, b):
        return 0, 0
    if None not in a and None not in b:
        corners = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(corners), max(corners)
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None  # one of the highs is None, and neither is the constant 0
    if a[1] is not None and a[1] <= 0:
        return _flip(_product(_flip(a), b)) if not (b[0] is None and b[1] is None) else (None, None)
    if b[1] is not None and b[1] <= 0:
        return _flip(_product(a, _flip(b))) if not (a[0] is None and a[1] is None) else (None, None)
    return _mixed_product(a, b)


def _mixed_product(a: Interval, b: Interval) -> Interval:
    """One factor is at least 0, the other has both signs: only the ends that stay finite are known."""
    if not (a[0] is not None and a[0] >= 0):
        a, b = b, a
    if not (a[0] is not None and a[0] >= 0) or a[1] is None:
        return None, None
    return (None if b[0] is None else min(0, a[1] * b[0])), (None if b[1] is None else max(0, a[1] * b[1]))


def _power(a: Interval, n: int) -> Interval:
    result = a
    for _ in range(n - 1):
        result = _product(result, a)
    if n % 2 == 0:
        result = max(result[0] or 0, 0), result[1]
    return result


# --------------------------------------------------------------------------------------------- simplification
class _Simplifier(_Knowledge):
    """Bottom-up rebuilding; every atom is decided once."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__(ranges)
        self.memo: dict[Atom, Dim] = {}

    def simplify(self, d: Dim) -> Dim:
        result: Dim = 0
        for c, m in terms(d):
            product: Dim = c
            for atom in m:
                if atom not in self.memo:
                    self.memo[atom] = self.atom(atom) if isinstance(atom, Op) else _single((atom,))
                product = expr.multiply(product, self.memo[atom])
            result = expr.add(result, product)
        return result

    def proves(self, d: Dim) -> bool:
        """Is d >= 0 proved, with a budget of its own?"""
        self.budget = _BUDGET
        return self.is_nonnegative(d)

    def atom(self, atom: Op) -> Dim:
        rebuilt = expr.BUILD[atom.name](*(self.simplify(a) for a in atom.args))
        again = expr.single_atom(rebuilt)
        if not isinstance(again, Op):
            return rebuilt
        if again.name in ("min", "max"):
            return self.extreme(again)
        if again.name in ("ge", "eq"):
            self.budget = _BUDGET
            low, high = self.atom_interval(again)
            return low if low == high and low is not None else rebuilt
        return self.division(again)

    def extreme(self, atom: Op) -> Dim:
        """min(x, y) = x if y - x >= 0."""
        kept = list(atom.args)
        sign = 1 if atom.name == "min" else -1
        for loser in atom.args:
            others = [k for k in kept if k is not loser]
            if any(self.proves(expr.multiply(sign, expr.add(loser, expr.multiply(-1, k)))) for k in others):
                kept = others
        return expr.BUILD[atom.name](*kept)

    def division(self, atom: Op) -> Dim:
        a, b = atom.args
        if isinstance(b, int):
            return self.by_constant(atom, a, b) if b > 0 else _single((atom,))
        if not self.proves(b - 1):
            return _single((atom,))
        if atom.name == "ceildiv":
            return 1 if self.proves(expr.add(a, -1)) and self.proves(b - a) else _single((atom,))
        # a = k*b + r with 0 <= r < b; multiples of b were already taken out of a.
        for k in (0, -1):
            r = expr.add(a, expr.multiply(-k, b))
            if self.proves(r) and self.proves(b - 1 - r):
                return k if atom.name == "floordiv" else r
        return _single((atom,))

    def by_constant(self, atom: Op, a: Dim, b: int) -> Dim:
        """(g*q + r)//(g*b) = q//b and (g*q + r)%(g*b) = g*(q%b) + r  if 0 <= r < g."""
        self.budget = _BUDGET
        low, high = self.bounds(a)
        if low is not None and high is not None and low // b == high // b:
            return low // b if atom.name == "floordiv" else expr.add(a, -(low // b) * b)
        pairs = terms(a)
        for g in sorted({gcd(c, b) for c, m in pairs if m} - {1, b}, reverse=True):
            rest = expr.from_terms((c % g if not m else c, m) for c, m in pairs if not m or c % g)
            low, high = self.bounds(rest)
            if low is None or high is None or low // g != high // g:
                continue
            q = expr.floordiv(expr.add(a, expr.multiply(-1, rest)), g)  # exact: g divides every coefficient
            q, rest = expr.add(q, low // g), expr.add(rest, -(low // g) * g)
            if atom.name == "floordiv":
                return self.simplify(expr.floordiv(q, b // g))
            return expr.add(expr.multiply(g, self.simplify(expr.mod(q, b // g))), rest)
        return _single((atom,))
