"""Rewriting values, statements and blocks: one walker that every transformation of code generation uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from hwsdk.codegen.blocks import Block
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    Outline,
    Ref,
    Stmt,
    Store,
    Switch,
    Value,
    View,
    value_children,
)

IndexMap = Callable[[Index], Index]
ValueMap = Callable[[Value], Value | None]


class Rewriter:
    """Rebuilds values with every index mapped and, where `value` returns one, every node replaced.

    Sharing is kept: a node that is used twice is rebuilt once.
    """

    def __init__(self, index: IndexMap | None = None, value: ValueMap | None = None) -> None:
        self._index = index
        self._value = value
        self._memo: dict[int, tuple[Value, Value]] = {}

    def index(self, i: Index) -> Index:
        return i if self._index is None or isinstance(i, int) else self._index(i)

    def __call__(self, value: Value) -> Value:
        known = self._memo.get(id(value))
        if known is not None:
            return known[1]
        new = self._value(value) if self._value is not None else None
        if new is None:
            new = self._rebuild(value)
        self._memo[id(value)] = (value, new)
        return new

    def maybe(self, value: Value | None) -> Value | None:
        return None if value is None else self(value)

    def _rebuild(self, value: Value) -> Value:
        changes: dict[str, Any] = {}
        for f in fields(value):
            old = getattr(value, f.name)
            new = old
            if isinstance(old, Value):
                new = self(old)
            elif f.name == "index":
                new = tuple(self.index(i) for i in old) if isinstance(old, tuple) else self.index(old)
            if new is not old and (isinstance(old, Value) or new != old):
                changes[f.name] = new
        return replace(value, **changes) if changes else value


def rewrite_block(block: Block, rewriter: Rewriter, **changes: Any) -> Block:
    """The block with every index and value passed through the rewriter."""
    return replace(
        block,
        index=tuple(rewriter.index(i) for i in block.index),
        lets=tuple(Let(x.name, rewriter(x.value)) for x in block.lets),
        value=rewriter(block.value),
        finish=rewriter.maybe(block.finish),
        where=rewriter.maybe(block.where),
        **changes,
    )


def subvalues(*roots: Value | None) -> Iterator[Value]:
    """Every node once, users before what they use."""
    seen: set[int] = set()
    stack = [r for r in reversed(roots) if r is not None]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        stack.extend(value_children(value))


def block_values(block: Block) -> Iterator[Value]:
    return subvalues(*(x.value for x in block.lets), block.value, block.finish, block.where)


def loads(*roots: Value | None) -> list[Load]:
    return [v for v in subvalues(*roots) if isinstance(v, Load)]


def indices(values: Iterable[Value]) -> Iterator[Index]:
    """Every index expression inside the given values (not recursive)."""
    for v in values:
        if isinstance(v, Load):
            yield from v.index
        elif isinstance(v, FromIndex):
            yield v.index


def refs(*roots: Value | None) -> frozenset[str]:
    return frozenset(v.name for v in subvalues(*roots) if isinstance(v, Ref))


class Renamer:
    """Moves a body into another kernel: buffers and outlines get other names, accesses of some buffers are
    shifted.

    buffer: new name of a buffer.  shift: by old name, what is subtracted from the (single) index of its
    accesses.
    """

    def __init__(self, buffer: Callable[[str], str], shift: Mapping[str, Index], prefix: str) -> None:
        self._buffer, self._shift, self._prefix = buffer, shift, prefix
        self._values = Rewriter(value=self._load)

    def __call__(self, body: Body) -> Body:
        return tuple(self._stmt(s) for s in body)

    def _at(self, buffer: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        return (index[0] - self._shift[buffer],) if buffer in self._shift else index

    def _load(self, value: Value) -> Value | None:
        if not isinstance(value, Load):
            return None
        where = self._values.maybe(value.where)
        return Load(value.dtype, self._buffer(value.buffer), self._at(value.buffer, value.index), where)

    def _view(self, view: View) -> View:
        return View(self._buffer(view.buffer), self._at(view.buffer, view.index))

    def _operand(self, operand: View | Index | Value) -> View | Index | Value:
        if isinstance(operand, View):
            return self._view(operand)
        return self._values(operand) if isinstance(operand, Value) else operand

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Let(name=name, value=value):
                return Let(name, self._values(value))
            case Alloc(buffer=buffer):
                return Alloc(replace(buffer, name=self._buffer(buffer.name)))
            case Store(buffer=buffer, index=index, value=value, where=where):
                moved = self._at(buffer, index)
                return Store(self._buffer(buffer), moved, self._values(value), self._values.maybe(where))
            case For(body=body):
                return replace(stmt, body=self(body))
            case Outline(name=name, body=body):
                return Outline(f"{self._prefix}{name}", self(body))
            case If(cond=cond, then=then, orelse=orelse):
                return If(self._values(cond), self(then), self(orelse))
            case Switch(index=index, cases=cases):
                return Switch(index, tuple(self(c) for c in cases))
            case Intrin(name=name, operands=operands, dims=dims):
                return Intrin(name, tuple((n, self._operand(o)) for n, o in operands), dims)
        return stmt
