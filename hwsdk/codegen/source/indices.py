"""Index arithmetic in C-family text: polynomials over variables, divisions as variables of their own.

Design choice: an index of LoopIR becomes the same canonical expression over the *text's* variables, so equal
indices are equal texts and constants of unrolled loops fold away.  What is no polynomial (division, minimum ...) is
computed once, in the outermost block in which its operands are known; sums and products are left to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.source.dialect import integer_constant
from hwsdk.codegen.source.operations import Operations
from hwsdk.codegen.source.writer import Writer, unbracketed
from hwsdk.errors import CodegenError, nearest
from hwsdk.graph.dims import (
    Expr,
    Op,
    Range,
    Symbol,
    bounds,
    coefficient,
    free_symbols,
    is_nonnegative,
    substitute,
    sym,
)

_CALLED = {"floordiv": "quotient", "mod": "rest", "ceildiv": "quotient", "min": "least", "max": "most"}


class Indices:
    """What the names of LoopIR mean here, as expressions over variables of the text."""

    def __init__(
        self, writer: Writer, ops: Operations, type_: str, error: Callable[[str], CodegenError]
    ) -> None:
        self.w = writer
        self.ops = ops
        self.type = type_
        self.error = error
        self.names: dict[str, Index] = {}
        self.depths: dict[str, int] = {}
        self.ranges: dict[str, Range] = {}
        self.texts: dict[str, str] = {}  # of variables that are elements of arrays

    def resolve(self, index: Index) -> Index:
        """The index over variables of the text."""
        if isinstance(index, int):
            return index
        unknown = sorted(free_symbols(index) - self.names.keys())
        if unknown:
            raise self.error(f"{unknown[0]!r} is not bound here{nearest(unknown[0], self.names)}")
        return substitute(index, self.names)

    def declare(
        self, wanted: str, range_: Range = (None, None), depth: int | None = None, text: str = ""
    ) -> Expr:
        """A new variable of the text, known from this depth on."""
        name = self.w.name(wanted)
        self.depths[name] = self.w.depth if depth is None else depth
        self.ranges[name] = range_
        self.texts[name] = text or name
        return sym(name)

    def bind(self, name: str, index: Index) -> None:
        """A name of LoopIR means this index from here on."""
        self.define(name, self.resolve(index))

    def define(self, name: str, value: Index) -> None:
        """The same for a resolved index: it becomes a variable, unless it is one already or a constant."""
        if isinstance(value, Expr) and not _single(value, Symbol):
            range_ = bounds(value, self.ranges)
            if _single(value, Op):
                text = self._atom(value.terms[0][1][0], name)
                self.ranges.setdefault(text, range_)
                value = sym(text)
            else:
                variable = self.declare(name, range_)
                self.w.line(f"const {self.type} {variable} = {unbracketed(self.text(value))};")
                value = variable
        self.names[name] = value

    def nonnegative(self, d: Index) -> bool:
        return is_nonnegative(d, self.ranges)

    def depends(self, d: Index, names: frozenset[str]) -> bool:
        """Does the resolved index depend on one of these variables?"""
        return bool(free_symbols(d) & names)

    def stride(self, d: Index, variable: str) -> Index | None:
        """How far a step of the variable goes; None where that is not one number."""
        return coefficient(d, variable)

    # ----------------------------------------------------------------------------------------------------- text
    def text(self, d: Index) -> str:
        """A resolved index as an expression, bracketed where it is more than one word."""
        if isinstance(d, int):
            return integer_constant(d)
        parts: list[str] = []
        for factor, atoms in d.terms:
            words = [self._atom(a) for a in atoms]
            size = abs(factor)
            if size != 1 or not words:
                words.insert(0, integer_constant(size))
            sign = "-" if factor < 0 else "+"
            product = " * ".join(words)
            if parts:
                parts.append(f" {sign} {product}")
            else:
                parts.append(product if sign == "+" else f"-{product}")
        joined = "".join(parts)
        return joined if joined.isidentifier() or joined.isdigit() else f"({joined})"

    def _atom(self, atom: Symbol | Op, wanted: str = "") -> str:
        if isinstance(atom, Symbol):
            return self.texts.get(atom.name, atom.name)
        found = self.w.remembered(atom)
        if found is not None:
            return found
        depth = max((self.depths[n] for n in atom.free), default=0)
        args = [self.text(a) for a in atom.args]  # first: they may define variables themselves
        text = self._operation(atom, args)
        name = self.w.name(wanted or _CALLED.get(atom.name, atom.name))
        self.depths[name] = depth
        self.w.line_at(depth, f"const {self.type} {name} = {unbracketed(text)};")
        self.w.blocks[depth].memo[atom] = name
        return name

    def _operation(self, atom: Op, args: list[str]) -> str:
        if atom.name in ("ge", "eq"):
            return f"({args[0]} {'>=' if atom.name == 'ge' else '=='} {args[1]})"
        if atom.name in ("min", "max"):
            text = unbracketed(args[0])
            for other in args[1:]:
                text = self.ops.call(f"{atom.name}.index", text, unbracketed(other))
            return text
        args = [unbracketed(a) for a in args]
        if atom.name == "ceildiv" and isinstance(atom.args[1], int) and atom.args[1] > 0:
            rounded = atom.args[0] + (atom.args[1] - 1)
            if self.nonnegative(rounded):
                return self.ops.call("divide.index", unbracketed(self.text(rounded)), args[1])
        name = atom.name
        if name in ("floordiv", "mod") and self.nonnegative(atom.args[0]):
            name = "divide" if name == "floordiv" else "rest"
        return self.ops.call(f"{name}.index", *args)


def _single(d: Expr, kind: type[Symbol] | type[Op]) -> bool:
    """Is it one variable, or one operation?"""
    factor, atoms = d.terms[0]
    return len(d.terms) == 1 and factor == 1 and len(atoms) == 1 and isinstance(atoms[0], kind)
