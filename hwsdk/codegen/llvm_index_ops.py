"""Operations on indices that are no polynomials: division, remainder, extremes, comparisons.

Design choice: each has a rule that simplifies it under the known ranges and a rule that emits it; both are looked up by
name.  A division may be emitted outside the guard that protects it, so its divisor is kept away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hwsdk.codegen.llvm_poly import (
    ANY,
    Poly,
    Range,
    add,
    as_int,
    constant,
    depth_of,
    key_of,
)

if TYPE_CHECKING:
    from hwsdk.codegen.llvm_index import Indexer

Simplify = Callable[["Indexer", tuple[Poly, ...]], Poly | None]


def _extreme_range(name: str, ranges: list[Range]) -> Range:
    lows, highs = [r[0] for r in ranges], [r[1] for r in ranges]
    pick = min if name == "min" else max
    some_low = [x for x in lows if x is not None]
    some_high = [x for x in highs if x is not None]
    if name == "min":
        return (pick(some_low) if len(some_low) == len(lows) else None), (
            pick(some_high) if some_high else None
        )
    return (pick(some_low) if some_low else None), (pick(some_high) if len(some_high) == len(highs) else None)


def _split(indexer: Indexer, a: Poly, b: Poly) -> tuple[Poly, Poly] | None:
    """a = q*b + r with 0 <= r < b, if the ranges prove it for a positive constant b."""
    divisor = as_int(b)
    if divisor is None or divisor <= 0:
        return None
    quotient = {m: c // divisor for m, c in a.items() if c // divisor}
    rest = {m: c % divisor for m, c in a.items() if c % divisor}
    low, high = indexer.range(rest)
    if low is not None and low >= 0 and high is not None and high < divisor:
        return quotient, rest
    return None


def _simple_floordiv(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
    found = _split(indexer, *args)
    return None if found is None else found[0]


def _simple_mod(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
    found = _split(indexer, *args)
    return None if found is None else found[1]


def _simple_ceildiv(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
    divisor = as_int(args[1])
    if divisor is None or divisor <= 0:
        return None
    return indexer.apply("floordiv", (add(args[0], constant(divisor - 1)), args[1]))


def _simple_extreme(name: str) -> Simplify:
    def simple(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
        kept: list[Poly] = []
        for a in args:
            beaten = [k for k in kept if _not_above(indexer, *((k, a) if name == "min" else (a, k)))]
            if not beaten:
                kept = [
                    k for k in kept if not _not_above(indexer, *((a, k) if name == "min" else (k, a)))
                ] + [a]
        if len(kept) == 1:
            return kept[0]
        return indexer.apply(name, tuple(kept)) if len(kept) < len(args) else None

    return simple


def _not_above(indexer: Indexer, a: Poly, b: Poly) -> bool:
    return indexer.at_least(add(b, a, -1), 0)


def _simple_ge(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
    low, high = indexer.range(add(args[0], args[1], -1))
    if low is not None and low >= 0:
        return constant(1)
    return constant(0) if high is not None and high < 0 else None


def _simple_eq(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
    low, high = indexer.range(add(args[0], args[1], -1))
    if low == 0 == high:
        return constant(1)
    return constant(0) if (low is not None and low > 0) or (high is not None and high < 0) else None


SIMPLIFY: dict[str, Simplify] = {
    "floordiv": _simple_floordiv,
    "mod": _simple_mod,
    "ceildiv": _simple_ceildiv,
    "min": _simple_extreme("min"),
    "max": _simple_extreme("max"),
    "ge": _simple_ge,
    "eq": _simple_eq,
}


def _divide(indexer: Indexer, args: tuple[Poly, ...], want: str) -> str:
    """floor division or modulo; the divisor of code that may be hoisted out of its guard is kept away from zero."""
    f = indexer.function
    a, b = args
    depth = max(depth_of(a), depth_of(b))
    x, y = indexer.scalar(a), indexer.scalar(b)
    tag = (want, key_of(a), key_of(b))
    if not indexer.at_least(b, 1, depth_of(b)):
        y = f.once((tag, 0), depth_of(b), f"call i64 @llvm.smax.i64(i64 {y}, i64 1)")
    if indexer.at_least(a, 0, depth):
        return f.once((tag, 1), depth, f"{'udiv' if want == 'floordiv' else 'urem'} i64 {x}, {y}")
    rest = f.once((tag, 2), depth, f"srem i64 {x}, {y}")
    below = f.once((tag, 3), depth, f"icmp slt i64 {rest}, 0")
    if want == "mod":
        up = f.once((tag, 4), depth, f"add i64 {rest}, {y}")
        return f.once((tag, 5), depth, f"select i1 {below}, i64 {up}, i64 {rest}")
    quotient = f.once((tag, 6), depth, f"sdiv i64 {x}, {y}")
    down = f.once((tag, 7), depth, f"sext i1 {below} to i64")
    return f.once((tag, 8), depth, f"add i64 {quotient}, {down}")


def _emit_ceildiv(indexer: Indexer, args: tuple[Poly, ...]) -> str:
    """ceil(a/b) = -floor(-a/b)."""
    inner = indexer.apply("floordiv", (add({}, args[0], -1), args[1]))
    return indexer.scalar(add({}, inner, -1))


def _emit_extreme(indexer: Indexer, args: tuple[Poly, ...], name: str) -> str:
    f = indexer.function
    depth = 0
    text = ""
    for a in sorted(args, key=depth_of):
        depth = max(depth, depth_of(a))
        piece = indexer.scalar(a)
        call = f"call i64 @llvm.s{name}.i64(i64 {text}, i64 {piece})"
        text = f.once((name, text, piece), depth, call) if text else piece
    return text


def _emit_compare(indexer: Indexer, args: tuple[Poly, ...], name: str) -> str:
    f = indexer.function
    depth = max(map(depth_of, args))
    x, y = map(indexer.scalar, args)
    bit = f.once(("bit", name, x, y), depth, f"icmp {name} i64 {x}, {y}")
    return f.once(("compare", name, x, y), depth, f"zext i1 {bit} to i64")


EMIT: dict[str, Callable[[Indexer, tuple[Poly, ...]], str]] = {
    "floordiv": lambda i, a: _divide(i, a, "floordiv"),
    "mod": lambda i, a: _divide(i, a, "mod"),
    "ceildiv": _emit_ceildiv,
    "min": lambda i, a: _emit_extreme(i, a, "min"),
    "max": lambda i, a: _emit_extreme(i, a, "max"),
    "ge": lambda i, a: _emit_compare(i, a, "sge"),
    "eq": lambda i, a: _emit_compare(i, a, "eq"),
}


def range_of_operation(indexer: Indexer, name: str, args: tuple[Poly, ...]) -> Range:
    """What is known about the result of an operation, wherever its arguments are known."""
    depth = max(depth_of(a) for a in args)
    ranges = [indexer.range(a, depth) for a in args]
    if name in ("ge", "eq"):
        return 0, 1
    if name in ("min", "max"):
        return _extreme_range(name, ranges)
    (low, high), (dlow, dhigh) = ranges
    if name == "mod":
        return (0, None if dhigh is None else dhigh - 1) if dlow is not None and dlow > 0 else ANY
    if dlow is not None and dlow > 0 and low is not None and low >= 0:
        round_up = dlow - 1 if name == "ceildiv" else 0
        least = 0 if dhigh is None else (low + (dhigh - 1 if name == "ceildiv" else 0)) // dhigh
        return least, None if high is None else (high + round_up) // dlow
    if name == "floordiv" and dlow is not None and dlow > 0 and dlow == dhigh:
        return tuple(None if x is None else x // dlow for x in (low, high))  # type: ignore[return-value]
    return ANY
