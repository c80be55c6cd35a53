"""What is known about a dim when its symbols have ranges: bounds, proofs, and simplification under ranges.

Design choice: a range's ends may themselves be dims (an iterator runs over [0, n-1]).  Bounds come from interval
arithmetic; where a symbol occurs in several terms, exact relaxations of single terms (b*(x//b) <= x, min(x, y) <= x,
a symbol replaced by the end of its range) are tried within a budget, and the best bound found is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from hwsdk.graph import expr
from hwsdk.graph.expr import Atom, Dim, Expr, Op, Symbol, terms

Range = tuple[Dim | None, Dim | None]
Ranges = Mapping[str, Range]
Interval = tuple[int | None, int | None]

_BUDGET = 24  # relaxations tried for one bound


def bounds(d: Dim, ranges: Ranges) -> Interval:
    """(low, high) with low <= d <= high for all values of the symbols in their ranges; None: not bounded."""
    if isinstance(d, int):
        return d, d
    low, high = _interval(d, ranges)
    if not _has_correlation(d, ranges):
        return low, high
    other_low = _low(d, ranges, [_BUDGET], 0)
    other_high = _negated(_low(expr.multiply(-1, d), ranges, [_BUDGET], 0))
    return _tighter(low, other_low, max), _tighter(high, other_high, min)


def is_nonnegative(d: Dim, ranges: Ranges) -> bool:
    """Is d >= 0 proved?"""
    if isinstance(d, int):
        return d >= 0
    low = _interval(d, ranges)[0]
    if (low is None or low < 0) and _has_correlation(d, ranges):
        low = _low(d, ranges, [_BUDGET], 0)
    return low is not None and low >= 0


def _negated(x: int | None) -> int | None:
    return None if x is None else -x


def _tighter(a: int | None, b: int | None, choose: type | object) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return choose(a, b)  # type: ignore[operator, no-any-return]


# ---------------------------------------------------------------------------------------------- interval arithmetic
def _interval(d: Dim, ranges: Ranges) -> Interval:
    """Term by term; exact when no symbol occurs twice."""
    low: int | None = 0
    high: int | None = 0
    for c, m in terms(d):
        term: Interval = (c, c)
        for atom in dict.fromkeys(m):
            part = _atom_interval(atom, ranges)
            term = _product(term, part if m.count(atom) == 1 else _power(part, m.count(atom)))
        low = None if low is None or term[0] is None else low + term[0]
        high = None if high is None or term[1] is None else high + term[1]
        if low is None and high is None:
            break
    return low, high


def _end(x: Dim | None, ranges: Ranges, side: int) -> int | None:
    return x if x is None or isinstance(x, int) else bounds(x, ranges)[side]


def _atom_interval(atom: Atom, ranges: Ranges) -> Interval:
    if isinstance(atom, Symbol):
        low, high = ranges.get(atom.name, (None, None))
        return _end(low, ranges, 0), _end(high, ranges, 1)
    parts = [bounds(a, ranges) for a in atom.args]
    if atom.name in ("min", "max"):
        return _extreme_interval(atom.name, parts)
    if atom.name in ("ge", "eq"):
        low, high = bounds(expr.add(atom.args[0], expr.multiply(-1, atom.args[1])), ranges)
        if atom.name == "ge":
            return int(low is not None and low >= 0), int(high is None or high >= 0)
        return int(low == high == 0), int((low is None or low <= 0) and (high is None or high >= 0))
    a, b = parts
    if b[0] is None or b[0] < 1:
        return None, None
    if atom.name == "mod":
        return _mod_interval(a, (b[0], b[1]))
    if atom.name == "ceildiv":  # -floor(-a / b)
        low, high = _floordiv_interval((_negated(a[1]), _negated(a[0])), (b[0], b[1]))
        return _negated(high), _negated(low)
    return _floordiv_interval(a, (b[0], b[1]))


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


def _flip(a: Interval) -> Interval:
    return _negated(a[1]), _negated(a[0])


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


# ------------------------------------------------------------------------------------------------------ relaxations
def _has_correlation(d: Expr, ranges: Ranges) -> bool:
    """Does a symbol occur in two terms, or does a range depend on other symbols?"""
    seen: set[str] = set()
    for _, m in d.terms:
        for atom in dict.fromkeys(m):
            if not seen.isdisjoint(atom.free):
                return True
            seen |= atom.free
    return any(isinstance(end, Expr) for s in seen for end in ranges.get(s, ()))


def _low(d: Dim, ranges: Ranges, budget: list[int], depth: int) -> int | None:
    """The best lower bound found: the interval's, or that of an expression that is at most d."""
    best = _interval(d, ranges)[0]
    if isinstance(d, int) or depth > 6 or not _has_correlation(d, ranges):
        return best
    for weaker in _at_most(d, ranges):
        if budget[0] <= 0:
            break
        budget[0] -= 1
        best = _tighter(best, _low(weaker, ranges, budget, depth + 1), max)
    return best


def _at_most(d: Expr, ranges: Ranges) -> Iterator[Dim]:
    """Expressions that are nowhere greater than d, each with one atom fewer."""
    for c, m in d.terms:
        if len(m) == 1 and isinstance(m[0], Op):
            for replacement, scale in _relaxed(m[0], c, ranges):
                yield expr.add(d, expr.add(expr.multiply(-c, _single(m[0])), expr.multiply(scale, replacement)))
    yield from _at_range_ends(d, ranges)


def _single(atom: Atom) -> Expr:
    return Expr(((1, (atom,)),))


def _relaxed(atom: Op, c: int, ranges: Ranges) -> Iterator[tuple[Dim, int]]:
    """(x, s) with s*x <= c*atom.

    max(x, y) >= x;  -min(x, y) >= -x;  b*(x//b) >= x - b + 1;  -b*(x//b) >= -x;  -(x % b) >= -x for x >= 0.
    """
    if (atom.name, c > 0) in (("max", True), ("min", False)):
        for a in atom.args:
            yield a, c
    elif atom.name == "floordiv" and isinstance(b := atom.args[1], int) and b > 0 and c % b == 0:
        yield (expr.add(atom.args[0], 1 - b) if c > 0 else atom.args[0]), c // b
    elif atom.name == "mod" and c < 0 and is_nonnegative(atom.args[0], ranges):
        yield atom.args[0], c


def _at_range_ends(d: Expr, ranges: Ranges) -> Iterator[Dim]:
    """Replace one symbol by an end of its range.  Symbols whose own range mentions others go first."""
    mentioned = frozenset().union(
        *(expr.free_symbols(e) for s in d.free for e in ranges.get(s, ()) if e is not None)
    )
    for name in sorted(d.free - mentioned) or sorted(d.free):
        low, high = ranges.get(name, (None, None))
        factor = coefficient(d, name)
        if factor is None or factor == 0:
            continue
        low_factor, high_factor = (factor, factor) if isinstance(factor, int) else _interval(factor, ranges)
        end = low if low_factor is not None and low_factor >= 0 else None
        end = high if end is None and high_factor is not None and high_factor <= 0 else end
        if end is not None and name not in expr.free_symbols(end):
            yield expr.add(d, expr.multiply(factor, expr.add(end, expr.multiply(-1, expr.sym(name)))))


def coefficient(d: Dim, name: str) -> Dim | None:
    """c if d = c*name + rest with c and rest free of `name` (0: absent); None if d is not affine in `name`."""
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
    return expr._from_terms(found)


# --------------------------------------------------------------------------------------------------- simplification
def simplify(d: Dim, ranges: Ranges) -> Dim:
    """An expression equal to d wherever the symbols lie in their ranges, with divisions and extremes decided."""
    return d if isinstance(d, int) or not any(isinstance(a, Op) for _, m in d.terms for a in m) else _simplify(
        d, ranges, {}
    )


def _simplify(d: Dim, ranges: Ranges, memo: dict[Op, Dim]) -> Dim:
    if isinstance(d, int):
        return d
    result: Dim = 0
    for c, m in d.terms:
        product: Dim = c
        for atom in m:
            if isinstance(atom, Op):
                if atom not in memo:
                    memo[atom] = _simplify_op(atom, ranges, memo)
                product = expr.multiply(product, memo[atom])
            else:
                product = expr.multiply(product, _single(atom))
        result = expr.add(result, product)
    return result


def _simplify_op(atom: Op, ranges: Ranges, memo: dict[Op, Dim]) -> Dim:
    args = [_simplify(a, ranges, memo) for a in atom.args]
    rebuilt = expr.BUILD[atom.name](*args)
    again = expr.single_atom(rebuilt)
    if not isinstance(again, Op) or again.name != atom.name:
        return rebuilt if again is None or isinstance(again, Symbol) else _finish(again, ranges)
    return _finish(again, ranges)


def _finish(atom: Op, ranges: Ranges) -> Dim:
    if atom.name in ("min", "max"):
        return _decide_extreme(atom, ranges)
    if atom.name in ("ge", "eq"):
        low, high = _atom_interval(atom, ranges)
        return low if low == high and low is not None else _single(atom)
    return _decide_division(atom, ranges)


def _decide_extreme(atom: Op, ranges: Ranges) -> Dim:
    """min(x, y) = x if y - x >= 0."""
    kept = list(atom.args)
    for loser in atom.args:
        others = [k for k in kept if k is not loser]
        sign = 1 if atom.name == "min" else -1
        gaps = (expr.multiply(sign, expr.add(loser, expr.multiply(-1, k))) for k in others)
        if any(is_nonnegative(gap, ranges) for gap in gaps):
            kept = others
    return expr.BUILD[atom.name](*kept)


def _decide_division(atom: Op, ranges: Ranges) -> Dim:
    """(g*q + r)//(g*b) = q//b and (g*q + r)%(g*b) = g*(q%b) + r  if 0 <= r < g."""
    a, b = atom.args
    if isinstance(b, int):
        return _decide_by_constant(atom, a, b, ranges) if b > 0 else _single(atom)
    if not is_nonnegative(expr.add(b, -1), ranges):
        return _single(atom)
    # The same rule with g = b: the terms of `a` that b divides were already taken out.
    if atom.name == "ceildiv":
        inside = is_nonnegative(expr.add(a, -1), ranges) and is_nonnegative(b - a, ranges)
        return 1 if inside else _single(atom)
    for k in (0, -1):
        r = expr.add(a, expr.multiply(-k, b))
        if is_nonnegative(r, ranges) and is_nonnegative(b - 1 - r, ranges):
            return k if atom.name == "floordiv" else r
    return _single(atom)


def _decide_by_constant(atom: Op, a: Dim, b: int, ranges: Ranges) -> Dim:
    low, high = bounds(a, ranges)
    if low is not None and high is not None and low // b == high // b:
        k = low // b
        return k if atom.name == "floordiv" else expr.add(a, -k * b)
    pairs = terms(a)
    for g in sorted({gcd(c, b) for c, m in pairs if m} - {1, b}, reverse=True):
        rest = expr._from_terms((c % g if not m else c, m) for c, m in pairs if not m or c % g)
        low, high = bounds(rest, ranges)
        if low is None or high is None or low // g != high // g:
            continue
        q = expr.floordiv(expr.add(a, expr.multiply(-1, rest)), g)  # exact: every coefficient is a multiple of g
        q, rest = expr.add(q, low // g), expr.add(rest, -(low // g) * g)
        if atom.name == "floordiv":
            return simplify(expr.floordiv(q, b // g), ranges)
        return expr.add(simplify(expr.multiply(g, expr.mod(q, b // g)), ranges), rest)
    return _single(atom)
