"""Scattering: a copy of the data, then the updates in order.

Design choice: one task, because updates may meet; indices outside the data are ignored, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.inline import both, linear
from hwsdk.codegen.loop_ir import (
    Binary,
    Body,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, compare
from hwsdk.codegen.lower.node_loops import Context
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import product, sym


def lower_scatter_nd(c: Context) -> list[Lowered]:
    """out[index[r]] = update[r] for every row r of the indices."""
    data, indices, updates = c.node.inputs
    shape, rows = c.shape(data), c.shape(indices)[:-1]
    depth = c.shape(indices)[-1]
    if not isinstance(depth, int):
        raise UnsupportedError(f"node {c.node.name}: the last dim of scatter_nd's indices must be constant")
    lets: list[Stmt] = []
    places: list[Index] = []
    guard: Value | None = None
    for d in range(depth):
        raw = Load(c.dtype(indices), c.namer.buffer[indices], (sym("r") * depth + d,))
        spot, inside = place(lets, f"i{d}", raw, shape[d])
        places.append(spot)
        guard = both(guard, inside)
    inner = product(shape[depth:])
    start = linear(tuple(places), shape[:depth]) * inner
    update = Load(c.dtype(updates), c.namer.buffer[updates], (sym("r") * inner + sym("e"),))
    step: Body = (For("e", inner, (put(c, start + sym("e"), update),)),)
    body: Body = (*lets, step[0] if guard is None else If(guard, step))
    return _scattered(c, (For("r", product(rows), body),))


def lower_scatter_elements(c: Context) -> list[Lowered]:
    """out[.., index[p], ..] = update[p] along one axis, for every position p of the indices."""
    data, indices, updates = c.node.inputs
    axis = c.node.attrs["axis"] % len(c.shape(data))
    shape, space = c.shape(data), c.shape(indices)
    at = tuple(sym(f"x{d}") for d in range(len(space)))
    lets: list[Stmt] = []
    raw = Load(c.dtype(indices), c.namer.buffer[indices], (linear(at, space),))
    spot, inside = place(lets, "place", raw, shape[axis])
    target = (*at[:axis], spot, *at[axis + 1 :])
    update = Load(c.dtype(updates), c.namer.buffer[updates], (linear(at, space),))
    body: Body = (*lets, If(inside, (put(c, linear(target, shape), update),)))
    for d in reversed(range(len(space))):
        body = (For(f"x{d}", space[d], body),)
    return _scattered(c, body)


def place(lets: list[Stmt], name: str, raw: Value, extent: Index) -> tuple[Index, Value]:
    """An index from memory (negative: from the end), and the condition that it is inside."""
    wide = raw if raw.dtype == "i64" else Cast("i64", raw)
    size = FromIndex("i64", extent)
    negative = Binary("bool", "lt", wide, Const("i64", 0))
    lets.append(Let(name, Select("i64", negative, Binary("i64", "add", wide, size), wide)))
    return sym(name), Binary("bool", "and", compare("ge", sym(name), 0), compare("lt", sym(name), extent))


def put(c: Context, offset: Index, update: Value) -> Store:
    combiner = c.node.attrs.get("combiner", "none")
    if combiner == "none":
        return Store("o0", (offset,), update)
    return Store("o0", (offset,), Binary(update.dtype, combiner, Load(update.dtype, "o0", (offset,)), update))


def _scattered(c: Context, updates: Sequence[Stmt]) -> list[Lowered]:
    data = c.node.inputs[0]
    total = product(c.shape(data))
    copy = For(
        "n", total, (Store("o0", (sym("n"),), Load(c.dtype(data), c.namer.buffer[data], (sym("n"),))),)
    )
    body: Body = (For("task", 1, (copy, *updates), "parallel", c.level),)
    return [c.done(body, 1, total + product(c.shape(c.node.inputs[1])) * 8)]
