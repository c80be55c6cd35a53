"""Polynomials over run-time integers, and what is known about their values.

Design choice: a leaf is an object with its SSA name, the scope depth where it is defined and its range; a polynomial is
a plain dict from products of leaves to coefficients, so adding offsets costs little and equal offsets are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Range = tuple[int | None, int | None]
Monomial = tuple["Leaf", ...]
Poly = Mapping[Monomial, int]

ANY: Range = (None, None)


class Leaf:
    """A run-time integer.  kind: scalar, lane (the number of the lane) or vector (a value for each lane).

    `op` is (name, arguments) of a division, minimum ...: one that depends on the lane can be evaluated for one lane.
    """

    __slots__ = ("depth", "kind", "op", "order", "range", "text")
    _next = 0

    def __init__(
        self,
        text: str,
        depth: int,
        range_: Range = ANY,
        kind: str = "scalar",
        op: tuple[str, tuple[Poly, ...]] | None = None,
    ) -> None:
        self.text = text
        self.depth = depth
        self.range = range_
        self.kind = kind
        self.op = op
        self.order = Leaf._next
        Leaf._next += 1


def constant(value: int) -> Poly:
    return {(): value} if value else {}


def single(leaf: Leaf) -> Poly:
    return {(leaf,): 1}


def as_int(p: Poly) -> int | None:
    """The value, if it is a constant."""
    if not p:
        return 0
    if len(p) == 1:
        ((m, c),) = p.items()
        return None if m else c
    return None


def add(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """a + factor*b."""
    out = dict(a)
    for m, c in b.items():
        total = out.get(m, 0) + c * factor
        if total:
            out[m] = total
        else:
            out.pop(m, None)
    return out


def multiply(a: Poly, b: Poly) -> Poly:
    out: dict[Monomial, int] = {}
    for ma, ca in a.items():
        for mb, cb in b.items():
            m = ma + mb if not ma or not mb else tuple(sorted(ma + mb, key=lambda leaf: leaf.order))
            out[m] = out.get(m, 0) + ca * cb
    return {m: c for m, c in out.items() if c}


def lane_dependent(p: Poly) -> bool:
    return any(leaf.kind != "scalar" for m in p for leaf in m)


def key_of(p: Poly) -> frozenset[tuple[Monomial, int]]:
    return frozenset(p.items())


def depth_of(p: Iterable[Monomial]) -> int:
    return max((leaf.depth for m in p for leaf in m), default=0)


# ----------------------------------------------------------------------------------------------------------- ranges
def _multiply_ranges(a: Range, b: Range) -> Range:
    """Only what the emitter asks for: exact for finite ranges and for non-negative factors, else unknown."""
    (al, ah), (bl, bh) = a, b
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return al * bl, None if ah is None or bh is None else ah * bh
    if None in (al, ah, bl, bh):
        return ANY
    products = [x * y for x in (al, ah) for y in (bl, bh)]  # type: ignore[operator]
    return min(products), max(products)


def _scale(r: Range, c: int) -> Range:
    low = None if r[0] is None else r[0] * c
    high = None if r[1] is None else r[1] * c
    return (low, high) if c >= 0 else (high, low)


def interval(p: Poly) -> Range:
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        r: Range = (1, 1)
        for leaf in m:
            r = _multiply_ranges(r, leaf.range)
        lo, hi = _scale(r, c)
        low = None if low is None or lo is None else low + lo
        high = None if high is None or hi is None else high + hi
    return low, high
