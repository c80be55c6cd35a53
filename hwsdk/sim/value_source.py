"""Values as Python text: each node once per statement, in operand order, into a variable of its own.

Design choice: a node is evaluated where it is first needed and remembered for the statement only, because a
store in between may change what a load gives.  (A Let is the way to keep a value.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwsdk.codegen.loop_ir import (
    Binary,
    Cast,
    Const,
    FromIndex,
    Load,
    Reduce,
    Ref,
    Select,
    Ternary,
    Unary,
    Value,
    value_children,
)
from hwsdk.codegen.neutral import COMBINE
from hwsdk.errors import CodegenError
from hwsdk.graph.scalar import neutral
from hwsdk.sim import operation_source as operations
from hwsdk.sim.access_source import Accesses
from hwsdk.sim.plain_cost import Tally
from hwsdk.sim.source import NONE, Scope, Symbol, Writer


@dataclass(frozen=True)
class Text:
    """A value in generated code.  axes: where it may vary; fresh: not a view of a buffer that a store may
    change."""

    text: str
    axes: frozenset[int] = NONE
    fresh: bool = True


class Values:
    """Emits the values of one statement at a time; `start` forgets the nodes of the statement before."""

    def __init__(self, writer: Writer, accesses: Accesses, constants: dict[str, Any]) -> None:
        self.writer, self.accesses, self.constants = writer, accesses, constants
        self.known: dict[int, Text] = {}
        self.tally = Tally(None)
        self.scope = Scope()

    def start(self, scope: Scope, tally: Tally) -> None:
        self.known, self.scope, self.tally = {}, scope, tally

    def value(self, root: Value) -> Text:
        """Code for the value and everything below it (without recursion: values may be deep)."""
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.known:
                stack.pop()
                continue
            waiting = (
                []
                if isinstance(node, Reduce)
                else [c for c in value_children(node) if id(c) not in self.known]
            )
            if waiting:
                stack.extend(reversed(waiting))
                continue
            self.known[id(node)] = self.node(node)
            stack.pop()
        return self.known[id(root)]

    def node(self, node: Value) -> Text:
        match node:
            case Const(dtype=dtype, value=x):
                return Text(self.constant(operations.constant(x, dtype)))
            case Ref(name=name):
                symbol = self.scope.symbols[name]
                return Text(symbol.value, symbol.axes)
            case FromIndex(dtype=dtype, index=index):
                return self.from_index(dtype, *self.scope.index(index))
            case Load():
                return self.load(node)
            case Reduce():
                return self.reduce(node)
        return self.compute(node)

    def constant(self, x: Any) -> str:
        name = f"K{len(self.constants)}"
        self.constants[name] = x
        return name

    def from_index(self, dtype: str, text: str, axes: frozenset[int]) -> Text:
        self.tally.operation("cast", dtype, self.lanes(axes))
        return self.kept(operations.from_index(text, dtype, not axes), axes)

    def kept(self, text: str, axes: frozenset[int]) -> Text:
        return Text(self.writer.temp(text), axes)

    def lanes(self, axes: frozenset[int]) -> tuple[Any, ...]:
        """The axes of the scope over which an operation is repeated."""
        return tuple((a, a.position in axes) for a in self.scope.axes)

    def compute(self, node: Value) -> Text:
        parts = [self.known[id(c)] for c in value_children(node)]
        texts = [p.text for p in parts]
        axes = NONE.union(*(p.axes for p in parts))
        scalar = not axes
        match node:
            case Unary(op=op, x=x) | Binary(op=op, x=x) | Ternary(op=op, x=x):
                text = operations.operation(op, x.dtype, texts, scalar)
                self.tally.operation(op, x.dtype, self.lanes(axes))
            case Cast(dtype=dtype, x=x, mode=mode):
                if x.dtype == dtype:
                    return parts[0]
                text = operations.cast(texts[0], x.dtype, dtype, mode, scalar)
                self.tally.operation("cast", dtype, self.lanes(axes))
                if mode == "bits" and not parts[0].fresh:
                    return Text(self.writer.temp(text), axes, fresh=False)
            case Select(dtype=dtype):
                c, x_text, y_text = texts
                uniform = not parts[0].axes
                text = f"{x_text} if {c} else {y_text}" if uniform else f"np_where({c}, {x_text}, {y_text})"
                self.tally.operation("select", dtype, self.lanes(axes))
                if uniform:
                    return Text(self.writer.temp(text), axes, parts[1].fresh and parts[2].fresh)
            case _:
                raise CodegenError(f"{type(node).__name__} is not a value of LoopIR")
        return self.kept(text, axes)

    # ------------------------------------------------------------ loads
    def load(self, node: Load) -> Text:
        where = None if node.where is None else self.known[id(node.where)]
        if where is not None and where.axes:
            return self.gather(node, where)
        if where is None:
            return self.plain_load(node)
        result = self.writer.name("t")
        zero = self.constant(operations.constant(0 if node.dtype != "bool" else False, node.dtype))
        with self.writer.nested(f"if {where.text}:"):
            loaded = self.plain_load(node)
            self.writer.line(f"{result} = {loaded.text}")
        self.writer.line(f"else: {result} = {zero}")
        return Text(result, loaded.axes, fresh=False)

    def plain_load(self, node: Load) -> Text:
        var = self.scope.buffers[node.buffer]
        region = self.accesses.locate(self.scope, var, node.index)
        if region is None:
            return self.gather(node, None)
        self.tally.access("read", var.buffer, self.lanes(region.axes))
        text = self.accesses.load(var, region)
        return Text(self.writer.temp(text), region.axes, fresh=region.form == "point")

    def gather(self, node: Load, where: Text | None) -> Text:
        var = self.scope.buffers[node.buffer]
        index, axes = self.indices(var.full(node.index))
        axes |= where.axes if where is not None else NONE
        mask = where.text if where is not None else "None"
        counter = self.tally.masked("read", var.buffer, self.lanes(axes), gathered=True)
        text = f"gather({var.cell}, {index}, {mask}, {self.me(var.shared)}, C, {counter})"
        return self.kept(text, axes)

    def indices(self, index: tuple[Any, ...]) -> tuple[str, frozenset[int]]:
        parts = [self.scope.index(i) for i in index]
        return f"({''.join(p[0] + ', ' for p in parts)})", NONE.union(*(p[1] for p in parts))

    def me(self, shared: bool) -> str:
        return "me" if self.accesses.race and shared else "0"

    # ------------------------------------------------------------ reductions
    def reduce(self, node: Reduce) -> Text:
        """var = 0, 1, ... in order, each combined with what came before."""
        if node.extent == 0:
            return Text(self.constant(operations.constant(neutral(node.op, node.dtype), node.dtype)))
        before, scope = self.known, self.scope
        self.known, self.scope = dict(before), scope.inner()
        variable, total = self.writer.name("x"), self.writer.name("t")
        self.scope.symbols[node.var] = Symbol(variable)
        outer = self.tally.repeat(node.extent)
        with self.writer.nested(f"for {variable} in range({node.extent}):"):
            part = self.value(node.value)
            combined = operations.operation(COMBINE[node.op], node.dtype, [total, part.text], not part.axes)
            self.writer.line(f"{total} = {part.text} if {variable} == 0 else {combined}")
            self.tally.operation(COMBINE[node.op], node.dtype, self.lanes(part.axes))
        self.tally.repeat(outer)
        self.known, self.scope = before, scope
        return Text(total, part.axes, fresh=node.extent > 1 or part.fresh)
