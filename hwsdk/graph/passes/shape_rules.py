"""Rewrite rules of ops that move elements: compose, cancel, and prefer the form that later rooms read most
easily.

Normal forms: a broadcast's operand has no axis that is known to be 1; a permutation that moves only such axes
is a reshape; what has one value everywhere is a `full`.

Design choice: a rule is a function with its algebra in the line above; the table at the end says which op it
serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwsdk.graph.dims import Dim, product
from hwsdk.graph.opdef import Value
from hwsdk.graph.ops_elementwise import ELEMENTWISE
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule, full_like


def _same(r: Rewriting, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(map(r.constraints.equal, a, b))


# move(full(v)) = full(v) of the new shape
def moved_full(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "full")
    return r.emit("full", **{**inner.attrs, "shape": m.type.shape}) if inner else None


# -------------------------------------------------------------------------------------------------- transpose
# transpose by (0, 1, ...) = x;  transpose(transpose(x, p), q) = transpose(x, p[q])
def compose_transposes(r: Rewriting, m: Match) -> Value | None:
    perm = m.attrs["perm"]
    if perm == tuple(range(len(perm))):
        return m.inputs[0]
    inner = r.producer(m.inputs[0], "transpose")
    return (
        r.emit("transpose", inner.inputs, perm=tuple(inner.attrs["perm"][p] for p in perm)) if inner else None
    )


# a permutation that keeps the order of all axes but those of size 1 moves nothing: it is a reshape
def transpose_of_units(r: Rewriting, m: Match) -> Value | None:
    moved = [p for p in m.attrs["perm"] if m.inputs[0].shape[p] != 1]
    return r.emit("reshape", m.inputs, shape=m.type.shape) if moved == sorted(moved) else None


# ---------------------------------------------------------------------------------------------------- reshape
# reshape to the own shape = x;  reshape(reshape(x)) = reshape(x)
def compose_reshapes(r: Rewriting, m: Match) -> Value | None:
    x = m.inputs[0]
    if _same(r, x.shape, m.type.shape):
        return x
    inner = r.producer(x, "reshape")
    if inner and r.constraints.equal(product(inner.inputs[0].shape), product(m.type.shape)):
        return r.emit("reshape", inner.inputs, shape=m.type.shape)
    return None


def without_units(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape without the axes that are known to be 1."""
    return tuple(d for d in shape if d != 1)


# reduce that keeps its axes = reshape(reduce): sizes of 1 are put back at the end, where they often vanish
def drop_kept(r: Rewriting, m: Match) -> Value | None:
    if not m.attrs["keepdims"] or not m.attrs["axes"]:
        return None
    small = r.emit("reduce", m.inputs, **{**m.attrs, "keepdims": False})
    return r.emit("reshape", (small,), shape=m.type.shape)


# f(reshape(x), reshape(y)) = reshape(f(x, y)) if the reshapes only add, drop or move axes of size 1
def sink_units(r: Rewriting, m: Match) -> Value | None:
    numbers = [r.uniform(v) for v in m.inputs]
    inner = [r.producer(v, "reshape") if n is None else None for v, n in zip(m.inputs, numbers, strict=True)]
    shapes = [i.inputs[0].shape for i in inner if i]
    if (
        not shapes
        or any(s != shapes[0] for s in shapes)
        or without_units(shapes[0]) != without_units(m.type.shape)
    ):
        return None
    operands: list[Value] = []
    for value, number, source in zip(m.inputs, numbers, inner, strict=True):
        if number is not None:
            operands.append(full_like(r, shapes[0], value.dtype, number))
        elif source:
            operands.append(source.inputs[0])
        elif r.array(value) is not None or r.producer(value, "broadcast_in_dim"):
            operands.append(r.emit("reshape", (value,), shape=shapes[0]))
        else:
            return None
    attrs = {"dtype": m.type.dtype} if m.op in ("cast", "bitcast") else {}
    return r.emit("reshape", (r.emit(m.op, operands, **attrs),), shape=m.type.shape)


# reshape(broadcast(x)) that only adds or drops axes of size 1 = broadcast(x)
def reshape_of_broadcast(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "broadcast_in_dim")
    if not inner or not _same(r, without_units(m.inputs[0].shape), without_units(m.type.shape)):
        return None
    places = [i for i, d in enumerate(m.type.shape) if d != 1]
    order = [i for i, d in enumerate(inner.attrs["shape"]) if d != 1]
    if not all(d in order for d in inner.attrs["dims"]):
        return None
    dims = tuple(places[order.index(d)] for d in inner.attrs["dims"])
    return r.emit("broadcast_in_dim", inner.inputs, shape=m.type.shape, dims=dims)


# -------------------------------------------------------------------------------------------------- broadcast
# broadcast to the own shape = x;  broadcast(broadcast(x)) = broadcast(x);  operands lose their axes of size 1
def compose_broadcasts(r: Rewriting, m: Match) -> Value | None:
    x, dims, shape = m.inputs[0], m.attrs["dims"], m.attrs["shape"]
    if dims == tuple(range(len(shape))) and _same(r, x.shape, shape):
        return x
    if 1 in x.shape:
        kept = [i for i, d in enumerate(x.shape) if d != 1]
        small = r.emit("reshape", (x,), shape=tuple(x.shape[i] for i in kept))
        return r.emit("broadcast_in_dim", (small,), shape=shape, dims=tuple(dims[i] for i in kept))
    inner = r.producer(x, "broadcast_in_dim")
    if inner:
        return r.emit(
            "broadcast_in_dim", inner.inputs, shape=shape, dims=tuple(dims[d] for d in inner.attrs["dims"])
        )
    return None


# broadcast of an operand without unit axes that adds only unit axes is a reshape
def broadcast_of_units(r: Rewriting, m: Match) -> Value | None:
    if _same(r, m.inputs[0].shape, without_units(m.type.shape)):
        return r.emit("reshape", m.inputs, shape=m.type.shape)
    return None


# transpose(broadcast(x)) = broadcast(x) to other axes, if x keeps the order of its axes or is a constant
def transpose_of_broadcast(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "broadcast_in_dim")
    if not inner:
        return None
    places = [m.attrs["perm"].index(d) for d in inner.attrs["dims"]]
    if places != sorted(places) and r.array(inner.inputs[0]) is None:
        return None
    order = sorted(range(len(places)), key=lambda i: places[i])
    small = r.emit("transpose", inner.inputs, perm=tuple(order))
    return r.emit("broadcast_in_dim", (small,), shape=m.type.shape, dims=tuple(sorted(places)))


# ------------------------------------------------------------------------------------ slice, concat, pad, ...
# slice of everything = x;  slice(slice(x, a, step 1), b) = slice(x, a + b)
def compose_slices(r: Rewriting, m: Match) -> Value | None:
    x = m.inputs[0]
    starts, limits, strides = m.attrs["starts"], m.attrs["limits"], m.attrs["strides"]
    if all(s == 0 for s in starts) and all(s == 1 for s in strides) and _same(r, limits, x.shape):
        return x
    inner = r.producer(x, "slice")
    if not inner or any(s != 1 for s in inner.attrs["strides"]):
        return None
    shift = inner.attrs["starts"]
    return r.emit(
        "slice", inner.inputs, starts=tuple(a + b for a, b in zip(shift, starts, strict=True)),
        limits=tuple(a + b for a, b in zip(shift, limits, strict=True)), strides=strides,
    )  # fmt: skip


# slice(concat(x, y)) that lies inside one operand = slice of that operand
def slice_of_concat(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "concat")
    if not inner:
        return None
    axis = inner.attrs["axis"] % m.type.rank
    low, high = m.attrs["starts"][axis], m.attrs["limits"][axis]
    start: Dim = 0
    for part in inner.inputs:
        end = start + part.shape[axis]
        if _at_most(r, start, low) and _at_most(r, high, end):
            starts, limits = list(m.attrs["starts"]), list(m.attrs["limits"])
            starts[axis], limits[axis] = low - start, high - start
            return r.emit("slice", (part,), starts=starts, limits=limits, strides=m.attrs["strides"])
        start = end
    return None


def _at_most(r: Rewriting, a: Dim, b: Dim) -> bool:
    low = r.constraints.range_of(b - a)[0]
    return low is not None and low >= 0


# concat(x) = x;  empty operands go;  concat(concat(x, y), z) = concat(x, y, z)
def flatten_concat(r: Rewriting, m: Match) -> Value | None:
    axis = m.attrs["axis"] % m.type.rank
    parts: list[Value] = []
    for value in m.inputs:
        inner = r.producer(value, "concat")
        if inner and inner.attrs["axis"] % m.type.rank == axis:
            parts += inner.inputs
        elif value.shape[axis] != 0:
            parts.append(value)
    if len(parts) == 1 and _same(r, parts[0].shape, m.type.shape):
        return parts[0]
    return r.emit("concat", parts, axis=axis) if parts and tuple(parts) != m.inputs else None


# pad by nothing = x;  pad(pad(x, v, a), v, b) = pad(x, v, a + b) if none of them crops
def compose_pads(r: Rewriting, m: Match) -> Value | None:
    low, high = m.attrs["low"], m.attrs["high"]
    if all(d == 0 for d in (*low, *high)):
        return m.inputs[0]
    inner = r.producer(m.inputs[0], "pad")
    if not inner or any(p.attrs["mode"] != "constant" or _crops(r, p) for p in (m, inner)):
        return None
    if m.attrs["value"] != inner.attrs["value"]:
        return None
    total = {
        n: tuple(a + b for a, b in zip(inner.attrs[n], m.attrs[n], strict=True)) for n in ("low", "high")
    }
    return r.emit("pad", inner.inputs, **{**m.attrs, **total})


def _crops(r: Rewriting, m: Match) -> bool:
    return not all(_at_most(r, 0, d) for d in (*m.attrs["low"], *m.attrs["high"]))


# conv(pad(x, 0), w) = conv(x, w) with larger padding;  the same for max, min and sum windows with their
# neutral element
def padding_into_window(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "pad")
    if not inner or inner.attrs["mode"] != "constant" or _crops(r, inner) or _crops(r, m):
        return None
    low, high = inner.attrs["low"], inner.attrs["high"]
    if m.op == "conv":
        if inner.attrs["value"] != 0 or any(d != 0 for d in (low[0], high[0], low[-1], high[-1])):
            return None
        low, high = low[1:-1], high[1:-1]
    elif inner.attrs["value"] != {"sum": 0, "max": float("-inf"), "min": float("inf")}[m.attrs["kind"]]:
        return None
    total = {
        "low": tuple(a + b for a, b in zip(m.attrs["low"], low, strict=True)),
        "high": tuple(a + b for a, b in zip(m.attrs["high"], high, strict=True)),
    }
    return r.emit(m.op, (inner.inputs[0], *m.inputs[1:]), **{**m.attrs, **total})


# reverse along nothing, or along axes of size 1 = x
def reverse_nothing(r: Rewriting, m: Match) -> Value | None:
    axes = tuple(a for a in m.attrs["axes"] if m.inputs[0].shape[a] != 1)
    if not axes:
        return m.inputs[0]
    return r.emit("reverse", m.inputs, axes=axes) if axes != m.attrs["axes"] else None


# ----------------------------------------------------------------------------------------- reductions, gather
# a reduction over nothing = x;  over axes of size 1 = reshape(x);  window of one element = x
def trivial_reduce(r: Rewriting, m: Match) -> Value | None:
    x = m.inputs[0]
    if m.attrs["kind"].startswith("arg") or any(x.shape[a] != 1 for a in m.attrs["axes"]):
        return None
    return r.emit("reshape", (x,), shape=m.type.shape)


def trivial_window(r: Rewriting, m: Match) -> Value | None:
    a = m.attrs
    plain = all(d == 1 for d in (*a["window"], *a["strides"])) and all(
        d == 0 for d in (*a["low"], *a["high"])
    )
    return m.inputs[0] if plain else None


# gather(x, i) with one known index i = slice of x at i
def gather_of_constant(r: Rewriting, m: Match) -> Value | None:
    x, index = m.inputs
    known = r.array(index)
    if known is None or known.size != 1:
        return None
    axis = m.attrs["axis"] % x.rank
    i: Dim = int(known.reshape(-1)[0])
    i = x.shape[axis] + i if isinstance(i, int) and i < 0 else i
    if not _at_most(r, 0, i) or not _at_most(r, i + 1, x.shape[axis]):
        return None
    starts: list[Any] = [0] * x.rank
    limits = list(x.shape)
    starts[axis], limits[axis] = i, i + 1
    part = r.emit("slice", (x,), starts=starts, limits=limits, strides=(1,) * x.rank)
    return r.emit("reshape", (part,), shape=m.type.shape)


# a slice that is known to be empty has no elements to copy
def empty_slice(r: Rewriting, m: Match) -> Value | None:
    if 0 not in m.type.shape or r.producer(m.inputs[0], "full"):
        return None
    return r.emit("full", shape=m.type.shape, dtype=m.type.dtype, value=0)


SHAPE_RULES: dict[str, list[Rule]] = {
    "transpose": [moved_full, compose_transposes, transpose_of_units, transpose_of_broadcast],
    "reshape": [moved_full, compose_reshapes, reshape_of_broadcast],
    "broadcast_in_dim": [moved_full, compose_broadcasts, broadcast_of_units],
    "slice": [moved_full, empty_slice, compose_slices, slice_of_concat],
    "reverse": [moved_full, reverse_nothing],
    "concat": [flatten_concat],
    "pad": [compose_pads],
    "reduce": [trivial_reduce, drop_kept],
    "reduce_window": [trivial_window, padding_into_window],
    "conv": [padding_into_window],
    "gather": [gather_of_constant],
}
for _name in ELEMENTWISE:
    SHAPE_RULES.setdefault(_name, []).append(sink_units)
