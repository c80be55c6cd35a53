"""Which symbols a LoopIR kernel takes from outside."""

from __future__ import annotations

from collections.abc import Iterable

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    If,
    Index,
    Intrin,
    Let,
    LoopKernel,
    Outline,
    Stmt,
    Store,
    Switch,
    Value,
    View,
)
from hwsdk.codegen.rewrite import indices, subvalues
from hwsdk.graph.dims import free_symbols


def free_dims(kernel: LoopKernel) -> frozenset[str]:
    """Symbols used in indices, extents and shapes that no loop, Let or Reduce of the kernel binds."""
    used: set[str] = set()
    for buffer in kernel.params:
        for e in buffer.shape:
            used |= free_symbols(e)
    used |= _free(kernel.body)
    return frozenset(used)


def _free(body: Body) -> set[str]:
    used: set[str] = set()
    for stmt in reversed(body):
        if isinstance(stmt, Let):
            used.discard(stmt.name)
        used |= _of_stmt(stmt)
    return used


def _of_values(*values: Value | None) -> set[str]:
    from hwsdk.codegen.loop_ir import Reduce

    nodes = list(subvalues(*values))
    used = _of_indices(indices(nodes))
    return used - {v.var for v in nodes if isinstance(v, Reduce)}


def _of_indices(items: Iterable[Index]) -> set[str]:
    return {s for i in items for s in free_symbols(i)}


def _of_stmt(stmt: Stmt) -> set[str]:
    match stmt:
        case Let(value=value):
            return _of_values(value)
        case Alloc(buffer=buffer):
            return _of_indices(buffer.shape)
        case Store(index=index, value=value, where=where):
            return _of_indices(index) | _of_values(value, where)
        case For(var=var, extent=extent, body=body, active=active):
            own = _of_indices((extent,)) | (_of_indices((active,)) if active is not None else set())
            return own | (_free(body) - {var})
        case If(cond=cond, then=then, orelse=orelse):
            return _of_values(cond) | _free(then) | _free(orelse)
        case Switch(index=index, cases=cases):
            return _of_indices((index,)) | {s for c in cases for s in _free(c)}
        case Outline(body=body):
            return _free(body)
        case Intrin(operands=operands, dims=dims):
            used = _of_indices(e for _, e in dims)
            for _, o in operands:
                used |= (
                    _of_indices(o.index)
                    if isinstance(o, View)
                    else _of_values(o)
                    if isinstance(o, Value)
                    else _of_indices((o,))
                )
            return used
    return set()
