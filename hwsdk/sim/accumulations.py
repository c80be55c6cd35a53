"""Loops that only accumulate onto elements that stay where they are: one pass over arrays instead of a Python
loop.

    for k < n { let t = ...; c[i] = c[i] + f(k) }      (perhaps with lanes i in between)

All f(k) are computed at once and then combined in order, one after the other, as the loop would do.

Design choice: the sum is NumPy's `accumulate`, not its `sum`: it rounds after every step, in the order of the
loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsdk.codegen.loop_ir import Binary, Body, For, Index, Let, Load, LoopKernel, Stmt, Store, Value, walk
from hwsdk.codegen.rewrite import subvalues
from hwsdk.graph.dims import coefficient, free_symbols

OPERATIONS = {"add": "add", "sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum"}
_EXACT = frozenset(("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"))


@dataclass(frozen=True)
class Accumulation:
    """The one store of such a loop, and what is combined with it at each step."""

    loop: For
    store: Store
    op: str
    part: Value


def accumulations(kernel: LoopKernel, lockstep: frozenset[int]) -> dict[int, Accumulation]:
    """By the id of the For statement."""
    found = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, For) and stmt.kind in ("serial", "unroll") and id(stmt) not in lockstep:
            accumulation = _accumulation(stmt, lockstep)
            if accumulation is not None:
                found[id(stmt)] = accumulation
    return found


def _accumulation(loop: For, lockstep: frozenset[int]) -> Accumulation | None:
    inner: list[str] = []
    bound = {loop.var}
    body: Body = loop.body
    while len(body) == 1 and isinstance(body[0], For) and id(body[0]) in lockstep:
        nested = body[0]
        extents = free_symbols(nested.extent) | free_symbols(
            nested.active if nested.active is not None else 0
        )
        if not extents.isdisjoint(bound) or nested.var in bound:
            return None
        inner.append(nested.var)
        bound.add(nested.var)
        body = nested.body
    *lets, last = body or (None,)
    if not isinstance(last, Store) or last.where is not None or last.value.dtype not in _EXACT:
        return None
    names = {x.name for x in lets if isinstance(x, Let)}
    if (
        len(names) != len(lets)
        or not names.isdisjoint(bound)
        or not _stays(last.index, loop.var, inner, names)
    ):
        return None
    split = _split(last)
    if split is None or any(last.buffer == b for b in _loaded([*lets], split[1])):
        return None
    return Accumulation(loop, last, *split)


def _stays(index: tuple[Index, ...], var: str, inner: list[str], lets: set[str]) -> bool:
    """Is the element the same at every step, and regular over the lanes?"""
    for i in index:
        free = free_symbols(i)
        if var in free or not free.isdisjoint(lets):
            return False
        if any(coefficient(i, name) is None for name in inner):
            return False
    return True


def _split(store: Store) -> tuple[str, Value] | None:
    """value = element op part, or part op element."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in OPERATIONS:
        return None
    if _is_element(value.x, store):
        return value.op, value.y
    if _is_element(value.y, store) and value.op != "sub":
        return value.op, value.x
    return None


def _is_element(value: Value, store: Store) -> bool:
    same = isinstance(value, Load) and value.buffer == store.buffer and value.index == store.index
    return same and isinstance(value, Load) and value.where is None


def _loaded(lets: list[Stmt], part: Value) -> Iterator[str]:
    roots = [part, *(x.value for x in lets if isinstance(x, Let))]
    return (v.buffer for v in subvalues(*roots) if isinstance(v, Load))
