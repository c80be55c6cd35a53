"""Values of LoopIR as C-family expressions: each node once per statement.

Design choice: a node that is used once and stays short is written where it is used; any other gets a variable.
Nothing is remembered beyond the statement (a Let is the way to keep a value): what is equal, the compiler finds.  The
walk keeps its own stack: fused chains may be thousands of nodes deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hwsdk.codegen.llvm_ops import COMPARISONS
from hwsdk.codegen.loop_ir import (
    Binary,
    Buffer,
    Cast,
    Const,
    FromIndex,
    Index,
    Load,
    Reduce,
    Ref,
    Select,
    Ternary,
    Unary,
    Value,
    value_children,
)
from hwsdk.codegen.math_expand import expand
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.source.indices import Indices
from hwsdk.codegen.source.operations import Operations
from hwsdk.codegen.source.writer import Writer, unbracketed
from hwsdk.errors import CodegenError, nearest

LONGEST = 72  # characters of an expression that gets no variable
UNROLLED = 32  # terms of a reduction that are written one by one
_TRUTHS = COMPARISONS | {"isnan", "isinf", "not"}


@dataclass(frozen=True)
class Place:
    """Where a buffer is.  `pointer`: the pointer's type, empty for a local array; `member`: the field of a union that
    holds the elements of a local array, with its dot."""

    buffer: Buffer
    name: str
    strides: tuple[Index, ...]
    pointer: str = ""
    member: str = ""


class Values:
    """Evaluates values in the function that is being written."""

    def __init__(self, writer: Writer, ops: Operations, indices: Indices) -> None:
        self.w, self.ops, self.index = writer, ops, indices
        self.places: dict[str, Place] = {}
        self.lets: dict[str, str] = {}
        self.let_types: dict[str, str] = {}
        self.known: dict[int, str] = {}
        self.uses: dict[int, int] = {}
        self.expanded: dict[
            int, tuple[Value, Value]
        ] = {}  # by identity, with the node so that it stays valid

    # ------------------------------------------------------------------------------------------------------- places
    def place(self, name: str) -> Place:
        try:
            return self.places[name]
        except KeyError:
            raise self.index.error(
                f"buffer {name!r} is not defined here{nearest(name, self.places)}"
            ) from None

    def offset(self, place: Place, index: Sequence[Index]) -> Index:
        """Linear offset in elements, over variables of the text."""
        if len(index) != len(place.strides):
            raise self.index.error(f"{place.name} has {len(place.strides)} dims, not {len(index)}")
        total: Index = 0
        for i, stride in zip(index, place.strides):
            total = total + self.index.resolve(i) * stride
        return total

    def element(self, name: str, index: Sequence[Index]) -> str:
        """One element of a buffer, as what stands in memory."""
        place = self.place(name)
        at = self.index.text(self.offset(place, index))
        return f"{place.name}{place.member}[{unbracketed(at)}]"

    # ----------------------------------------------------------------------------------------------------- the walk
    def statement(self, roots: Sequence[Value | None]) -> list[str]:
        """Expressions for the values of one statement; None stays an empty text."""
        self.known = {}
        self.uses = self._count([r for r in roots if r is not None])
        return ["" if r is None else self.emit(r) for r in roots]

    def emit(self, root: Value) -> str:
        stack = [root]
        while stack:
            top = stack[-1]
            if id(top) in self.known:
                stack.pop()
                continue
            waiting = [c for c in self._children(top) if id(c) not in self.known]
            if waiting:
                stack += reversed(waiting)
                continue
            text = self._rules[type(top)](self, top)
            self.known[id(top)] = self._named(top, text)
            stack.pop()
        return self.known[id(root)]

    def _named(self, node: Value, text: str) -> str:
        if isinstance(node, Const | Ref | FromIndex) or text.isidentifier():
            return text
        if self.uses.get(id(node), 1) < 2 and len(text) <= LONGEST:
            return text
        name = self.w.name("t")
        self.w.line(f"const {self.ops.d.type(node.dtype)} {name} = {unbracketed(text)};")
        return name

    def _count(self, roots: Sequence[Value]) -> dict[int, int]:
        """How often each node below the roots is used."""
        uses: dict[int, int] = {}
        todo = list(roots)
        while todo:
            node = todo.pop()
            uses[id(node)] = uses.get(id(node), 0) + 1
            if uses[id(node)] == 1:
                todo += self._children(node)
        return uses

    def _children(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, Reduce):
            return ()
        if isinstance(value, Unary | Binary):
            other = self._expansion(value)
            if other is not value:
                return (other,)
        return value_children(value)

    def _expansion(self, value: Unary | Binary) -> Value:
        """The value itself if its operation is written directly, else what it is made of."""
        known = self.expanded.get(id(value))
        if known is None:
            known = (value, value)
            if self._claimed(value) is None and not self.ops.has(value.op, value.x.dtype):
                known = (value, expand(value, value.x.dtype, self.ops.d.target.numerics.functions))
            self.expanded[id(value)] = known
        return known[1]

    def _claimed(self, value: Unary | Binary) -> str | None:
        """The function of the language that the description names for this operation."""
        found = self.ops.d.target.numerics.functions.get(value.op)
        return None if found is None or value.x.dtype != "f32" else found.source

    # -------------------------------------------------------------------------------------------------------- rules
    def _const(self, v: Const) -> str:
        return self.ops.constant(v.value, v.dtype)

    def _ref(self, v: Ref) -> str:
        found = self.lets.get(v.name)
        if found is not None:
            return found
        if v.name in self.index.names:
            return self._index_value(self.index.names[v.name], v.dtype)
        raise self.index.error(f"no value {v.name!r} is bound here")

    def _from_index(self, v: FromIndex) -> str:
        return self._index_value(self.index.resolve(v.index), v.dtype)

    def _index_value(self, index: Index, dtype: str) -> str:
        if isinstance(index, int):
            return self.ops.constant(bool(index) if dtype == "bool" else index, dtype)
        return self.ops.convert(self.index.text(index), "i64", dtype)

    def _load(self, v: Load) -> str:
        text = self.ops.from_stored(self.element(v.buffer, v.index), v.dtype)
        if v.where is None:
            return text
        zero = self.ops.constant(False if v.dtype == "bool" else 0, v.dtype)
        return f"({self.known[id(v.where)]} ? {text} : {zero})"

    def _operation(self, v: Unary | Binary | Ternary) -> str:
        if not isinstance(v, Ternary):
            other = self._expansion(v)
            if other is not v:
                return self.known[id(other)]
            claimed = self._claimed(v)
            if claimed is not None:
                return f"{claimed}({', '.join(self.known[id(c)] for c in value_children(v))})"
        return self.ops.emit(v.op, v.x.dtype, *(self.known[id(c)] for c in value_children(v)))

    def _select(self, v: Select) -> str:
        return f"({self.known[id(v.cond)]} ? {self.known[id(v.x)]} : {self.known[id(v.y)]})"

    def _cast(self, v: Cast) -> str:
        rule = self.ops.reinterpret if v.mode == "bits" else self.ops.convert
        return rule(self.known[id(v.x)], v.x.dtype, v.dtype)

    # --------------------------------------------------------------------------------------------------- reductions
    def _reduce(self, v: Reduce) -> str:
        """Halves combined with halves, as long as the terms are few; else one after the other."""
        if v.extent == 0:
            return self.ops.constant(neutral(v.op, v.dtype), v.dtype)
        if v.extent > UNROLLED:
            return self._reduce_in_order(v)
        parts = [self._part(v, i) for i in range(v.extent)]
        while len(parts) > 1:
            half = len(parts) // 2
            pairs = [self._combined(v, parts[i], parts[i + half]) for i in range(half)]
            parts = pairs + parts[2 * half :]
        return parts[0]

    def _reduce_in_order(self, v: Reduce) -> str:
        total = self.w.name("total")
        first = self.ops.constant(neutral(v.op, v.dtype), v.dtype)
        self.w.line(f"{self.ops.d.type(v.dtype)} {total} = {first};")
        variable = self.index.declare(v.var, (0, v.extent - 1), self.w.depth + 1)
        with self.w.block(f"for ({self.index.type} {variable} = 0; {variable} < {v.extent}; ++{variable})"):
            combined = self.ops.emit(COMBINE[v.op], v.dtype, total, self._part(v, variable))
            self.w.line(f"{total} = {combined};")
        return total

    def _part(self, v: Reduce, at: Index) -> str:
        """The term of one iteration, in a variable."""
        known, uses, names = self.known, self.uses, dict(self.index.names)
        self.known, self.index.names[v.var] = {}, at
        try:
            self.uses = self._count([v.value])
            text = self.emit(v.value)
        finally:
            self.known, self.uses, self.index.names = known, uses, names
        return self._variable(v.dtype, text)

    def _combined(self, v: Reduce, x: str, y: str) -> str:
        return self._variable(v.dtype, self.ops.emit(COMBINE[v.op], v.dtype, x, y))

    def _variable(self, dtype: str, text: str) -> str:
        name = self.w.name("t")
        self.w.line(f"const {self.ops.d.type(dtype)} {name} = {unbracketed(text)};")
        return name

    _rules: ClassVar[dict[type, Callable[[Any, Any], str]]] = {
        Const: _const, Ref: _ref, FromIndex: _from_index, Load: _load, Unary: _operation, Binary: _operation,
        Ternary: _operation, Select: _select, Cast: _cast, Reduce: _reduce,
    }  # fmt: skip


__all__ = ["CodegenError", "Place", "Values"]
