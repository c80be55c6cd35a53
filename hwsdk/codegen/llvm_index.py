"""Index arithmetic: polynomials over run-time integers, turned into 64-bit instructions as far out as possible.

Design choice: an index is a polynomial over *leaves* (dims, loop variables, integer Lets, divisions ...), each of which
knows the scope depth at which it is defined and its range.  A sum is emitted in groups of equal depth, outermost first,
and each partial sum once, in the scope where it becomes known.  So inside the innermost loop only the last addition is
left, and the addressing mode of the machine takes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hwsdk.codegen.llvm_text import Function
from hwsdk.codegen.loop_ir import Index
from hwsdk.errors import CodegenError, nearest
from hwsdk.graph.dims import Op, Symbol

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
def _mul_range(a: Range, b: Range) -> Range:
    """Only what the emitter asks for: exact for finite ranges and for non-negative factors, else unknown."""
    (al, ah), (bl, bh) = a, b
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return al * bl, None if ah is None or bh is None else ah * bh
    if None in (al, ah, bl, bh):
        return ANY
    products = [x * y for x in (al, ah) for y in (bl, bh)]  # type: ignore[operator]
    return min(products), max(products)


def _scale_range(r: Range, c: int) -> Range:
    low = None if r[0] is None else r[0] * c
    high = None if r[1] is None else r[1] * c
    return (low, high) if c >= 0 else (high, low)


def _interval(p: Poly) -> Range:
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        r: Range = (1, 1)
        for leaf in m:
            r = _mul_range(r, leaf.range)
        lo, hi = _scale_range(r, c)
        low = None if low is None or lo is None else low + lo
        high = None if high is None or hi is None else high + hi
    return low, high


class Indexer:
    """Bindings of names to polynomials, what is known about them, and their emission into a function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[str, Poly] = {}
        self.facts: list[tuple[Poly, int, int]] = []  # polynomial without constant >= number, from this depth on
        self.lanes = 0
        self._leaves: dict[str, Leaf] = {}

    # ------------------------------------------------------------------------------------------------ polynomials
    def poly(self, index: Index) -> Poly:
        """The polynomial of an index under the current bindings."""
        if isinstance(index, int):
            return constant(index)
        out: dict[Monomial, int] = {}
        for coefficient, atoms in index.terms:
            product: Poly = {(): coefficient}
            for atom in atoms:
                product = multiply(product, self._atom(atom))
            for m, c in product.items():
                out[m] = out.get(m, 0) + c
        return {m: c for m, c in out.items() if c}

    def _atom(self, atom: Symbol | Op) -> Poly:
        if isinstance(atom, Symbol):
            try:
                return self.names[atom.name]
            except KeyError:
                known = nearest(atom.name, self.names)
                raise CodegenError(f"{self.function.name}: {atom.name!r} is not bound here{known}") from None
        return self.apply(atom.name, tuple(self.poly(a) for a in atom.args))

    def range(self, p: Poly, depth: int | None = None) -> Range:
        """Bounds here; with a depth, bounds that hold as far out as that (what is emitted there may run before a guard)."""
        low, high = _interval(p)
        rest = {m: c for m, c in p.items() if m}
        for fact, least, since in self.facts:
            if depth is not None and since > depth:
                continue
            gap = add(rest, fact, -1)
            lo = _interval(gap)[0] if len(gap) <= len(rest) else None
            if lo is not None:
                found = lo + least + p.get((), 0)
                low = found if low is None else max(low, found)
        return low, high

    def at_least(self, p: Poly, bound: int, depth: int | None = None) -> bool:
        low = self.range(p, depth)[0]
        return low is not None and low >= bound

    def know(self, p: Poly, least: int) -> None:
        """Record that p >= least holds from here on (in the current bindings)."""
        offset = p.get((), 0)
        rest = {m: c for m, c in p.items() if m}
        if len(rest) > 1:
            self.facts = [*self.facts, (rest, least - offset, self.function.scope.depth)]

    # -------------------------------------------------------------------------------------------------- operations
    def apply(self, name: str, args: tuple[Poly, ...]) -> Poly:
        """An operation that is not polynomial, simplified as far as the ranges allow."""
        simple = _SIMPLIFY[name](self, args)
        if simple is not None:
            return simple
        if any(lane_dependent(a) for a in args):
            depth = max(depth_of(a) for a in args)
            return single(Leaf("", depth, self._op_range(name, args), "vector", (name, args)))
        key = (name, *map(key_of, args))
        depth = max(depth_of(a) for a in args)
        found = self.function.remembered(("leaf", key), depth)
        if found is not None:
            return single(self._leaves[found])
        text = _EMIT[name](self, args)
        leaf = Leaf(text, depth, self._op_range(name, args), "scalar", (name, args))
        self.function.home(depth)[0].memo[("leaf", key)] = text
        self._leaves[text] = leaf
        return single(leaf)

    def _op_range(self, name: str, args: tuple[Poly, ...]) -> Range:
        depth = max(depth_of(a) for a in args)
        ranges = [self.range(a, depth) for a in args]
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
        if name == "floordiv" and dlow and dlow == dhigh:
            return tuple(None if x is None else x // dlow for x in (low, high))  # type: ignore[return-value]
        return ANY

    # ------------------------------------------------------------------------------------------------------- lanes
    def at_lane(self, p: Poly, lane: int) -> Poly:
        """The polynomial for one lane."""
        out: Poly = {}
        for m, c in p.items():
            product: Poly = {(): c}
            for leaf in m:
                product = multiply(product, self._leaf_at(leaf, lane))
            out = add(out, product)
        return out

    def _leaf_at(self, leaf: Leaf, lane: int) -> Poly:
        if leaf.kind == "scalar":
            return single(leaf)
        if leaf.kind == "lane":
            return constant(lane)
        if leaf.op is not None:
            name, args = leaf.op
            return self.apply(name, tuple(self.at_lane(a, lane) for a in args))
        key = ("lane of", leaf.text, lane)
        text = self.function.remembered(key, leaf.depth)
        if text is None:
            text = self.function.op(f"extractelement <{self.lanes} x i64> {leaf.text}, i64 {lane}")
            self.function.scope.memo[key] = text
            self._leaves[text] = Leaf(text, leaf.depth, leaf.range)
        return single(self._leaves[text])

    # ---------------------------------------------------------------------------------------------------- emission
    def groups(self, p: Poly) -> Iterator[tuple[int, dict[Monomial, int]]]:
        """The terms by depth, outermost first; the constant is not among them."""
        by_depth: dict[int, dict[Monomial, int]] = {}
        for m, c in p.items():
            if m:
                by_depth.setdefault(max(leaf.depth for leaf in m), {})[m] = c
        yield from sorted(by_depth.items())

    def scalar(self, p: Poly) -> str:
        """The value as an i64: a constant or the name of an instruction."""
        known = as_int(p)
        if known is not None:
            return str(known)
        total = ""
        partial: dict[Monomial, int] = {}
        for depth, group in self.groups(p):
            partial |= group
            if not total:
                total = self.group(group, depth)
            else:
                flags = self._flags(partial)
                piece = self.group(group, depth)
                total = self.function.once(("sum", key_of(partial)), depth, f"add{flags} i64 {total}, {piece}")
        offset = p.get((), 0)
        if offset:
            total = self.function.once(("sum", key_of(p)), depth_of(p), f"add nsw i64 {total}, {offset}")
        return total

    def group(self, terms: Mapping[Monomial, int], depth: int) -> str:
        """A sum of terms that all become known at `depth`."""
        flags = self._flags(terms)
        total = ""
        partial: dict[Monomial, int] = {}
        for m, c in terms.items():
            piece = self._term(m, c, depth, flags)
            partial[m] = c
            if total:
                total = self.function.once(("sum", key_of(partial)), depth, f"add{flags} i64 {total}, {piece}")
            else:
                total = piece
        return total

    def _flags(self, terms: Mapping[Monomial, int]) -> str:
        positive = all(c > 0 for c in terms.values()) and all(
            leaf.range[0] is not None and leaf.range[0] >= 0 for m in terms for leaf in m
        )
        return " nuw nsw" if positive else " nsw"

    def _term(self, m: Monomial, c: int, depth: int, flags: str) -> str:
        """One product.  Factors known further out are multiplied there."""
        factors = sorted(m, key=lambda leaf: (leaf.depth, leaf.order))
        text = factors[0].text
        have: Monomial = (factors[0],)
        scaled = c == 1
        for leaf in factors[1:]:
            if not scaled and leaf.depth > have[-1].depth:  # the coefficient joins the outer factors
                text = self.function.once(("term", have, c), have[-1].depth, f"mul{flags} i64 {text}, {c}")
                scaled = True
            have = (*have, leaf)
            key = ("term", have, c if scaled else 1)
            text = self.function.once(key, leaf.depth, f"mul{flags} i64 {text}, {leaf.text}")
        if not scaled:
            text = self.function.once(("term", have, c), depth, f"mul{flags} i64 {text}, {c}")
        return text

    def pointer(self, base: str, p: Poly) -> str:
        """base + p bytes; partial sums of outer scopes are kept as pointers."""
        address = base
        partial: dict[Monomial, int] = {}
        for depth, group in self.groups(p):
            if depth == self.function.scope.depth and partial:
                address = self._stream(address, depth)
            partial |= group
            piece = self.group(group, depth)
            key = ("pointer", base, key_of(partial))
            address = self.function.once(key, depth, f"getelementptr i8, ptr {address}, i64 {piece}")
        offset = p.get((), 0)
        if not offset:
            return address
        key = ("pointer", base, key_of(p))
        found = self.function.scope.memo.get(key)
        if found is None:  # stays beside its use, where it becomes a displacement
            found = self.function.op(f"getelementptr i8, ptr {address}, i64 {offset}")
            self.function.scope.memo[key] = found
        return found

    def _stream(self, address: str, depth: int) -> str:
        """An invariant pointer to which a loop adds, with its origin hidden.

        Otherwise the code generator derives the rows of a tile from each other in every iteration, to save registers.
        """
        if self.function.scope.kind != "loop":
            return address
        text = f'call ptr asm "", "=r,0"(ptr {address})'
        return self.function.once(("hidden", address), depth - 1, text)

    def vector(self, p: Poly, lanes: int) -> str:
        """The value of every lane as <lanes x i64>."""
        kind = f"<{lanes} x i64>"
        total = ""
        uniform = {m: c for m, c in p.items() if not lane_dependent({m: c})}
        if uniform or not p:
            total = self._splat(self.scalar(uniform), lanes)
        for m, c in p.items():
            if m in uniform:
                continue
            piece = f"splat (i64 {c})" if c != 1 else ""
            for leaf in m:
                factor = self._leaf_vector(leaf, lanes)
                piece = self.function.op(f"mul {kind} {piece}, {factor}") if piece else factor
            total = self.function.op(f"add {kind} {total}, {piece}") if total else piece
        return total

    def _splat(self, scalar: str, lanes: int) -> str:
        if not scalar.startswith("%"):
            return f"splat (i64 {scalar})"
        kind = f"<{lanes} x i64>"
        key = ("splat", scalar, lanes)
        found = self.function.remembered(key, 0)
        if found is None:
            first = self.function.op(f"insertelement {kind} poison, i64 {scalar}, i64 0")
            found = self.function.op(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
            self.function.scope.memo[key] = found
        return found

    def _leaf_vector(self, leaf: Leaf, lanes: int) -> str:
        if leaf.kind == "scalar":
            return self._splat(leaf.text, lanes)
        if leaf.kind == "lane":
            return "<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">"
        if leaf.op is None:
            return leaf.text
        kind = f"<{lanes} x i64>"
        vector = "poison"
        for i in range(lanes):
            one = self.scalar(self._leaf_at(leaf, i))
            vector = self.function.op(f"insertelement {kind} {vector}, i64 {one}, i64 {i}")
        return vector


# --------------------------------------------------------------------------------------------- operations, by name
def _extreme_range(name: str, ranges: list[Range]) -> Range:
    lows, highs = [r[0] for r in ranges], [r[1] for r in ranges]
    pick = min if name == "min" else max
    some_low = [x for x in lows if x is not None]
    some_high = [x for x in highs if x is not None]
    if name == "min":
        return (pick(some_low) if len(some_low) == len(lows) else None), (pick(some_high) if some_high else None)
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


def _simple_extreme(name: str) -> object:
    def simple(indexer: Indexer, args: tuple[Poly, ...]) -> Poly | None:
        kept: list[Poly] = []
        for a in args:
            beaten = [k for k in kept if _not_above(indexer, *((k, a) if name == "min" else (a, k)))]
            if not beaten:
                kept = [k for k in kept if not _not_above(indexer, *((a, k) if name == "min" else (k, a)))] + [a]
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


_SIMPLIFY = {
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


_EMIT = {
    "floordiv": lambda i, a: _divide(i, a, "floordiv"),
    "mod": lambda i, a: _divide(i, a, "mod"),
    "ceildiv": _emit_ceildiv,
    "min": lambda i, a: _emit_extreme(i, a, "min"),
    "max": lambda i, a: _emit_extreme(i, a, "max"),
    "ge": lambda i, a: _emit_compare(i, a, "sge"),
    "eq": lambda i, a: _emit_compare(i, a, "eq"),
}
