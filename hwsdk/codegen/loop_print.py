"""LoopIR as text: the printing half of `loop_text`, where the form is described.

Design choice: what the parser must undo (the operator table, which dtypes are implied) stands here once,
beside the printer that does it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Outline,
    Reduce,
    Ref,
    Select,
    Stmt,
    Store,
    Switch,
    Sync,
    Ternary,
    Unary,
    Value,
    View,
    value_children,
)
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.graph.scalar import SCALAR

REDUCTIONS = ("sum", "max", "min", "prod", "any", "all")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
PRECEDENCE = {**dict.fromkeys(("*", "/"), 3), **dict.fromkeys(("+", "-"), 2)}  # comparisons: 1
_MAX_NESTING = 24  # deeper values are cut by temporaries, so that neither side recurses without bound
_KEYWORDS = frozenset(
    (
        *REDUCTIONS,
        "kernel",
        "param",
        "dim",
        "note",
        "let",
        "alloc",
        "for",
        "unroll",
        "vector",
        "parallel",
        "if",
        "else",
        "switch",
        "case",
        "outline",
        "use",
        "sync",
        "where",
        "active",
        "in",
        "strides",
        "align",
        "out",
        "pending",
        "dims",
        "true",
        "false",
        "nan",
        "inf",
        "index",
        "select",
        "value",
    )
)
NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$]*")


def print_kernel(kernel: LoopKernel) -> str:
    """The kernel as text that `parse_kernel` reads."""
    return "\n".join(_Printer(kernel).kernel(kernel)) + "\n"


def print_statement(stmt: Stmt, *, buffers: Sequence[Buffer] = ()) -> str:
    """The first line of one statement, for messages (bodies and temporaries are left out)."""
    printer = _Printer(None)
    printer.dtypes.update({b.name: b.dtype for b in buffers})
    return next(line for line in printer.statement(stmt) if not line.startswith("%")).removesuffix(" {")


def print_value(value: Value) -> str:
    """One value on one line, for messages; parts that are shared or deep stand as %N."""
    printer = _Printer(None)
    for _ in printer.temporaries(Let("", value)):
        pass
    printer.names.pop(id(value), None)
    return printer.value(value, 0)


def implied_dtype(value: Value, buffers: Mapping[str, str] = {}) -> str | None:
    """The dtype that follows from a value's operands (and the buffers' dtypes); None if it must be stated."""
    match value:
        case Load(buffer=buffer):
            return buffers.get(buffer)
        case Binary(op=op) if op in COMPARISONS:
            return "bool"
        case Unary(op=op) if op in SCALAR and SCALAR[op].result == "bool":
            return "bool"
        case Unary(x=x) | Binary(x=x) | Ternary(x=x) | Select(x=x) | Reduce(value=x):
            return x.dtype
    return None


def _quoted(name: str) -> str:
    plain = NAME.fullmatch(name) and name not in _KEYWORDS and name not in DTYPES and name not in SCALAR
    return name if plain else json.dumps(name)


def _list(items: Sequence[Any]) -> str:
    return "[" + ", ".join(map(str, items)) + "]"


class _Printer:
    def __init__(self, kernel: LoopKernel | None) -> None:
        self.dtypes: dict[str, str] = {}
        self.lets: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.count = 0

    def kernel(self, kernel: LoopKernel) -> Iterator[str]:
        yield f"kernel {_quoted(kernel.name)} {{"
        for p in kernel.params:
            self.dtypes[p.name] = p.dtype
            yield f"  param {self.buffer(p)}{' out' if p.name in kernel.outputs else ''}"
        yield from (f"  dim {_quoted(d)}" for d in kernel.dims)
        yield from (f"  note {json.dumps(n)}" for n in kernel.notes)
        yield from self.body(kernel.body)
        yield "}"

    def buffer(self, b: Buffer) -> str:
        strides = "" if b.strides is None else f" strides {_list(b.strides)}"
        align = f" align {b.align_bytes}" if b.align_bytes else ""
        return f"{_quoted(b.name)}: {b.dtype}{_list(b.shape)} in {_quoted(b.place)}{strides}{align}"

    def body(self, body: Body) -> Iterator[str]:
        for stmt in body:
            yield from ("  " + line for line in self.statement(stmt))

    def statement(self, stmt: Stmt) -> Iterator[str]:
        self.names, self.count = {}, 0
        yield from self.temporaries(stmt)
        match stmt:
            case Let(name=name, value=value):
                text = self.value(value, 0)
                self.lets[name] = value.dtype
                yield f"let {_quoted(name)}: {value.dtype} = {text}"
            case Alloc(buffer=b):
                self.dtypes[b.name] = b.dtype
                yield f"alloc {self.buffer(b)}"
            case Store(buffer=buffer, index=index, value=value, where=where):
                guard = "" if where is None else f" where {self.value(where, 0)}"
                yield f"{_quoted(buffer)}{_list(index)} = {self.value(value, 0)}{guard}"
            case Intrin(name=name, operands=operands, dims=extents):
                args = ", ".join(f"{_quoted(n)} = {self.operand(o)}" for n, o in operands)
                runtime = ", ".join(f"{_quoted(n)} = {e}" for n, e in extents)
                yield f"use {_quoted(name)}({args})" + (f" dims({runtime})" if extents else "")
            case Sync(name=name, pending=pending):
                yield f"sync {_quoted(name)}" + (f" pending {pending}" if pending else "")
            case _:
                yield from self.nest(stmt)

    def nest(self, stmt: Stmt) -> Iterator[str]:
        match stmt:
            case For(var=var, extent=extent, body=body, kind=kind, level=level, active=active):
                head = "for" if kind == "serial" else kind
                on = "" if level is None else f"({_quoted(level)})"
                lanes = "" if active is None else f", active {active}"
                yield f"{head}{on} {_quoted(var)} < {extent}{lanes} {{"
                yield from self.body(body)
            case If(cond=cond, then=then, orelse=orelse):
                yield f"if {self.value(cond, 0)} {{"
                yield from self.body(then)
                if orelse:
                    yield "} else {"
                    yield from self.body(orelse)
            case Switch(index=index, cases=cases):
                yield f"switch {index} {{"
                for case in cases:
                    yield "  case {"
                    yield from ("  " + line for line in self.body(case))
                    yield "  }"
            case Outline(name=name, body=body):
                yield f"outline {_quoted(name)} {{"
                yield from self.body(body)
            case _:
                raise CodegenError(f"{type(stmt).__name__} is not a statement of LoopIR")
        yield "}"

    def operand(self, operand: View | Index | Value) -> str:
        if isinstance(operand, View):
            return f"&{_quoted(operand.buffer)}{_list(operand.index)}"
        return f"value({self.value(operand, 0)})" if isinstance(operand, Value) else str(operand)

    def temporaries(self, stmt: Stmt) -> Iterator[str]:
        """A line for every value of the statement that is used twice or nests too deeply, operands first."""
        roots = statement_values(stmt)
        uses: dict[int, int] = {}
        for value in _postorder(roots):
            for child in value_children(value):
                uses[id(child)] = uses.get(id(child), 0) + 1
        for root in roots:
            uses[id(root)] = uses.get(id(root), 0) + 1
        depth: dict[int, int] = {}
        for value in _postorder(roots):
            below = max((depth[id(c)] for c in value_children(value)), default=0)
            shared = uses[id(value)] > 1 and not isinstance(value, Const | Ref)
            depth[id(value)] = below + 1
            if shared or below >= _MAX_NESTING:
                yield f"%{self.count} = {self.value(value, 0)}"
                self.names[id(value)] = f"%{self.count}"
                self.count += 1
                depth[id(value)] = 0

    # values; `level` is the precedence of what stands around
    def value(self, value: Value, level: int) -> str:
        if name := self.names.get(id(value)):
            return name
        implied = implied_dtype(value, self.dtypes)
        if implied is None and isinstance(value, Load):
            implied = value.dtype  # a message about one value: its buffer is not at hand
        text, own = self.form(value)
        if isinstance(value, Const | FromIndex | Ref | Cast) or implied == value.dtype:
            return f"({text})" if own < level else text
        return f"({text}):{value.dtype}" if own < 9 else f"{text}:{value.dtype}"

    def form(self, value: Value) -> tuple[str, int]:
        """The text of the node, and its precedence (9: never needs parentheses)."""
        match value:
            case Const(dtype=dtype, value=x):
                return f"{_constant(x)}:{dtype}", 9
            case Load(buffer=buffer, index=index, where=where):
                guard = "" if where is None else f"?({self.value(where, 0)})"
                return f"{_quoted(buffer)}{_list(index)}{guard}", 9
            case Ref(dtype=dtype, name=name):
                return _quoted(name) + ("" if self.lets.get(name) == dtype else f":{dtype}"), 9
            case FromIndex(dtype=dtype, index=index):
                return f"index({index}):{dtype}", 9
            case Binary(op=op, x=x, y=y) if op in INFIX:
                own = PRECEDENCE.get(INFIX[op], 1)
                return f"{self.value(x, own)} {INFIX[op]} {self.value(y, own + 1)}", own
            case Unary(op=op) | Binary(op=op) | Ternary(op=op):
                return f"{op}({', '.join(self.value(c, 0) for c in value_children(value))})", 9
            case Select(cond=cond, x=x, y=y):
                return f"select({', '.join(self.value(c, 0) for c in (cond, x, y))})", 9
            case Cast(dtype=dtype, x=x, mode=mode):
                return f"{dtype}{'' if mode == 'value' else '.' + mode}({self.value(x, 0)})", 9
            case Reduce(op=op, var=var, extent=extent, value=x):
                return f"{op}[{_quoted(var)} < {extent}]({self.value(x, 0)})", 9
        raise CodegenError(f"{type(value).__name__} is not a value of LoopIR")


def _constant(x: float | bool) -> str:
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return repr(float(x)) if isinstance(x, float) else str(int(x))


def statement_values(stmt: Stmt) -> list[Value]:
    """The values that stand in a statement itself (not in its bodies)."""
    match stmt:
        case Let(value=value):
            return [value]
        case Store(value=value, where=where):
            return [value] if where is None else [value, where]
        case If(cond=cond):
            return [cond]
        case Intrin(operands=operands):
            return [o for _, o in operands if isinstance(o, Value)]
    return []


def _postorder(roots: Sequence[Value]) -> Iterator[Value]:
    """Every value once, operands first; without recursion, because values may be deep."""
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if ready:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((c, False) for c in reversed(value_children(value)))
