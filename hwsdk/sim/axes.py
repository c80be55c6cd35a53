"""Which loops the machine may run as array axes: vector loops by their meaning, other loops where it changes
nothing.

A serial or unrolled loop may run in lockstep when its iterations are independent: its body holds only lets,
stores, allocs and loops of the same kind; and whatever it stores to is its own, or is touched in it only at
one index, which differs between any two iterations.  Then no iteration can see what another did, and
"statement by statement" equals "iteration by iteration".

Design choice: this is only speed.  The proof is syntactic and gives up early; what it refuses is simply run
as a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    Index,
    Let,
    Load,
    LoopKernel,
    Reduce,
    Stmt,
    Store,
    Value,
    value_children,
    walk,
)
from hwsdk.graph.dims import coefficient, free_symbols

Access = tuple[Index, ...]


def lockstep_loops(kernel: LoopKernel) -> frozenset[int]:
    """The ids of the For statements that run as axes: all vector loops, and the provably independent ones."""
    found = {id(s) for s in walk(kernel.body) if isinstance(s, For) and s.kind == "vector"}
    _inner_first(kernel.body, found)
    return frozenset(found)


def _inner_first(body: Body, found: set[int]) -> None:
    from hwsdk.codegen.loop_ir import substatements

    for stmt in body:
        for inner in substatements(stmt):
            _inner_first(inner, found)
        if (
            isinstance(stmt, For)
            and stmt.kind in ("serial", "unroll")
            and stmt.extent != 1
            and independent(stmt, found)
        ):
            found.add(id(stmt))


@dataclass
class _Touched:
    """What a loop's body does: the index of each store, every other access, names it binds, extents of inner
    loops."""

    stores: dict[str, Access]
    loads: list[tuple[str, Access, bool]]  # buffer, index, inside a reduction
    bound: set[str]
    inner: dict[str, int | None]
    private: set[str] = field(default_factory=set)  # buffers of an iteration's own
    ok: bool = True


def independent(loop: For, lockstep: Iterable[int]) -> bool:
    """Are the iterations independent by the rule of this module?  `lockstep`: inner loops already known to be
    axes."""
    touched = _Touched({}, [], {loop.var}, {})
    _collect(loop.body, frozenset(lockstep), touched)
    if not touched.ok or not touched.stores:
        return False
    for buffer, index, reduced in touched.loads:
        if (
            buffer in touched.stores
            and buffer not in touched.private
            and (reduced or touched.stores[buffer] != index)
        ):
            return False
    shared = [i for b, i in touched.stores.items() if b not in touched.private]
    return all(_distinct(index, loop.var, touched) for index in shared)


def _collect(body: Body, lockstep: frozenset[int], touched: _Touched) -> None:
    for stmt in body:
        match stmt:
            case Let(name=name, value=value):
                touched.ok &= name not in touched.bound  # one text of an index must mean one index
                touched.bound.add(name)
                touched.loads.extend(_loads(value))
            case Alloc(buffer=b):
                shape = frozenset().union(*(free_symbols(e) for e in (*b.shape, *(b.strides or ()))))
                touched.ok &= shape.isdisjoint(touched.bound) and b.name not in touched.stores
                touched.ok &= b.strides is None and all(b.name != name for name, _, _ in touched.loads)
                touched.private.add(b.name)
            case Store(buffer=buffer, index=index, value=value, where=where):
                same = touched.stores.setdefault(buffer, index) == index
                touched.ok &= same or buffer in touched.private
                touched.loads.extend(_loads(value))
                touched.loads.extend(_loads(where) if where is not None else ())
            case For() if id(stmt) in lockstep:
                _collect_loop(stmt, lockstep, touched)
            case _:
                touched.ok = False


def _collect_loop(loop: For, lockstep: frozenset[int], touched: _Touched) -> None:
    uniform = free_symbols(loop.extent) | free_symbols(loop.active if loop.active is not None else 0)
    touched.ok &= uniform.isdisjoint(touched.bound) and loop.var not in touched.bound
    touched.bound.add(loop.var)
    touched.inner[loop.var] = loop.extent if isinstance(loop.extent, int) else None
    _collect(loop.body, lockstep, touched)


def _loads(root: Value, reduced: bool = False) -> Iterator[tuple[str, Access, bool]]:
    """Every load in a value: buffer, index, whether it stands inside a reduction."""
    stack, seen = [(root, reduced)], set()
    while stack:
        value, inside = stack.pop()
        if (id(value), inside) in seen:
            continue
        seen.add((id(value), inside))
        if isinstance(value, Load):
            yield value.buffer, value.index, inside
        stack.extend((c, inside or isinstance(value, Reduce)) for c in value_children(value))


def _distinct(index: Access, var: str, touched: _Touched) -> bool:
    """Do two iterations of `var` always store to different elements, whatever the inner loops do?"""
    return any(_dim_distinct(i, var, touched) for i in index)


def _dim_distinct(index: Index, var: str, touched: _Touched) -> bool:
    step = coefficient(index, var)
    if not isinstance(step, int) or step == 0:
        return False
    reach = 0
    for name in free_symbols(index) & touched.bound - {var}:
        extent, c = touched.inner.get(name), coefficient(index, name)
        if extent is None or not isinstance(c, int):
            return False
        reach += abs(c) * max(0, extent - 1)
    return reach < abs(step)


def nesting(loop: For, lockstep: Mapping[int, object] | frozenset[int]) -> int:
    """How many axes a loop nest needs: the loop itself and the deepest chain of axes inside."""
    return 1 + _deepest(loop.body, lockstep)


def _deepest(body: Iterable[Stmt], lockstep: Mapping[int, object] | frozenset[int]) -> int:
    return max((nesting(s, lockstep) for s in body if isinstance(s, For) and id(s) in lockstep), default=0)
