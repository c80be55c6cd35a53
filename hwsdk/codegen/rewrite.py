"""Rewriting values, statements and blocks: one walker that every transformation of code generation uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from hwsdk.codegen.blocks import Block
from hwsdk.codegen.loop_ir import FromIndex, Index, Let, Load, Ref, Value, value_children

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


def substitute_index(mapping: Mapping[str, Index]) -> IndexMap:
    from hwsdk.graph.dims import substitute

    return lambda i: i if isinstance(i, int) else substitute(i, mapping)
