"""Index arithmetic: polynomials over run-time integers, turned into 64-bit instructions as far out as possible.

Design choice: an index is a polynomial over *leaves* (dims, loop variables, integer Lets, divisions ...), each of which
knows the scope depth at which it is defined and its range.  A sum is emitted in groups of equal depth, outermost first,
and each partial sum once, in the scope where it becomes known.  So inside the innermost loop only the last addition is
left, and the addressing mode of the machine takes that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hwsdk.codegen.llvm_index_ops import EMIT, SIMPLIFY, range_of_operation
from hwsdk.codegen.llvm_poly import (
    Leaf,
    Monomial,
    Poly,
    Range,
    add,
    as_int,
    constant,
    depth_of,
    interval,
    key_of,
    lane_dependent,
    multiply,
    single,
)
from hwsdk.codegen.llvm_text import Function
from hwsdk.codegen.loop_ir import Index
from hwsdk.errors import CodegenError, nearest
from hwsdk.graph.dims import Op, Symbol


class Indexer:
    """Bindings of names to polynomials, what is known about them, and their emission into a function."""

    def __init__(self, function: Function, hide: bool = True) -> None:
        self.function = function
        self.hide = hide  # the origin of pointers that a loop moves
        self.names: dict[str, Poly] = {}
        self.facts: list[
            tuple[Poly, int, int]
        ] = []  # polynomial without constant >= number, from this depth on
        self.lanes = 0
        self._leaves: dict[str, Leaf] = {}

    # ------------------------------------------------------------------------------------------------ polynomials
    def poly(self, index: Index) -> Poly:
        """The polynomial of an index under the current bindings."""
        if isinstance(index, int):
            return constant(index)
        out: dict[Monomial, int] = {}
        for coefficient, atoms in index.terms:
            product: Poly = self._atom(atoms[0]) if atoms else {(): 1}
            for atom in atoms[1:]:
                product = multiply(product, self._atom(atom))
            for m, c in product.items():
                out[m] = out.get(m, 0) + c * coefficient
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
        """Bounds here; with a depth, bounds that hold as far out as that: what is put there may run before a guard."""
        low, high = interval(p)
        rest = {m: c for m, c in p.items() if m}
        for fact, least, since in self.facts:
            if depth is not None and since > depth:
                continue
            gap = add(rest, fact, -1)
            lo = interval(gap)[0] if len(gap) <= len(rest) else None
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
        simple = SIMPLIFY[name](self, args)
        if simple is not None:
            return simple
        if any(lane_dependent(a) for a in args):
            depth = max(depth_of(a) for a in args)
            return single(Leaf("", depth, range_of_operation(self, name, args), "vector", (name, args)))
        key = (name, *map(key_of, args))
        depth = max(depth_of(a) for a in args)
        found = self.function.remembered(("leaf", key), depth)
        if found is not None:
            return single(self._leaves[found])
        text = EMIT[name](self, args)
        leaf = Leaf(text, depth, range_of_operation(self, name, args), "scalar", (name, args))
        self.function.home(depth)[0].memo[("leaf", key)] = text
        self._leaves[text] = leaf
        return single(leaf)

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
                total = self.function.once(
                    ("sum", key_of(partial)), depth, f"add{flags} i64 {total}, {piece}"
                )
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
                total = self.function.once(
                    ("sum", key_of(partial)), depth, f"add{flags} i64 {total}, {piece}"
                )
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
        if self.function.scope.kind != "loop" or not self.hide:
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
            found = self.function.op(
                f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
            )
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
