"""Values that are shapes: integer arithmetic on sizes is done on dims, by the host, and never by a kernel.

Design choice: a small integer value is followed as an array of dims.  Where all operands of a node are known
that way, the node becomes a `dims` node; when nothing else reads it, the chain that computed it disappears.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.graph import dims as d
from hwsdk.graph.opdef import Array, Value
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule

LIMIT = 64  # elements of a value that is followed


def known_dims(r: Rewriting, value: Value) -> Array | None:
    """An object array of the dims that the elements of an integer value are, if that is known."""
    if value.dtype not in ("i64", "i32"):
        return None
    array = r.array(value)
    if array is not None:
        return _objects(array.tolist(), array.shape) if array.size <= LIMIT else None
    node = r.producer(value, "dims", "full", "reshape", "cast")
    if node is None:
        return None
    if node.op == "dims":
        return _objects(list(node.attrs["exprs"]), (len(node.attrs["exprs"]),))
    shape = _static(value)
    if shape is None or math.prod(shape) > LIMIT:
        return None
    if node.op == "full":
        return _objects([int(node.attrs["value"])] * math.prod(shape), shape)
    inner = known_dims(r, node.inputs[0])
    return None if inner is None else inner.reshape(shape)


def _static(value: Value) -> tuple[int, ...] | None:
    shape = tuple(x for x in value.shape if isinstance(x, int))
    return shape if len(shape) == value.rank else None


def _objects(items: list[Any], shape: tuple[int, ...]) -> Array:
    result = np.empty(math.prod(shape), object)
    flat = np.array(items, object).reshape(-1) if items != [] else np.empty(0, object)
    result[:] = flat
    return result.reshape(shape)


_BINARY: dict[str, Callable[[d.Dim, d.Dim], d.Dim]] = {
    "add": d.add,
    "sub": lambda a, b: a - b,
    "mul": d.multiply,
    "div": d.floordiv,  # truncates towards zero, so only for operands that are not negative
    "floordiv": d.floordiv,
    "mod": d.mod,
    "max": d.maximum,
    "min": d.minimum,
}


def _arithmetic(r: Rewriting, m: Match, known: list[Array]) -> Array | None:
    if m.op == "div" and not all(_is_nonnegative(r, x) for a in known for x in a.flat):
        return None
    flat = [_BINARY[m.op](a, b) for a, b in zip(known[0].flat, known[1].flat, strict=True)]
    return _objects(flat, known[0].shape)


def _is_nonnegative(r: Rewriting, x: d.Dim) -> bool:
    low = r.constraints.range_of(x)[0]
    return low is not None and low >= 0


def _reshaped(r: Rewriting, m: Match, known: list[Array]) -> Array | None:
    shape = _static(m.type)
    return None if shape is None else known[0].reshape(shape)


def _gathered(r: Rewriting, m: Match, known: list[Array]) -> Array | None:
    index = [x for x in known[1].flat if isinstance(x, int)]
    size = known[0].shape[m.attrs["axis"]]
    if len(index) != known[1].size or not all(-size <= i < size for i in index):
        return None
    place = np.array(index, np.int64).reshape(known[1].shape)
    return np.asarray(known[0].take(place, m.attrs["axis"]), object)


def _sliced(r: Rewriting, m: Match, known: list[Array]) -> Array | None:
    parts = list(zip(m.attrs["starts"], m.attrs["limits"], m.attrs["strides"], strict=True))
    if not all(isinstance(x, int) for p in parts for x in p):
        return None
    return np.asarray(known[0][tuple(slice(*p) for p in parts)])


def _reduced(r: Rewriting, m: Match, known: list[Array]) -> Array | None:
    if m.attrs["kind"] not in ("prod", "sum"):
        return None
    total = (np.multiply if m.attrs["kind"] == "prod" else np.add).reduce
    return np.asarray(total(known[0], axis=m.attrs["axes"], keepdims=m.attrs["keepdims"]), object)


# How the result of an op follows from its operands as dims; None where it does not.
_EVALUATE: dict[str, Callable[[Rewriting, Match, list[Array]], Array | None]] = {
    **dict.fromkeys(_BINARY, _arithmetic),
    "neg": lambda r, m, known: _objects([-x for x in known[0].flat], known[0].shape),
    "reshape": _reshaped,
    "cast": _reshaped,
    "concat": lambda r, m, known: np.concatenate(known, m.attrs["axis"]),
    "transpose": lambda r, m, known: known[0].transpose(m.attrs["perm"]),
    "gather": _gathered,
    "slice": _sliced,
    "reduce": _reduced,
}


def _is_normal(r: Rewriting, m: Match) -> bool:
    """The normal form is dims, then a cast if it is not i64, then a reshape if it has not one axis."""
    if m.op == "reshape":
        cast = r.producer(m.inputs[0], "cast")
        return r.producer(cast.inputs[0] if cast else m.inputs[0], "dims") is not None
    return m.op == "cast" and r.producer(m.inputs[0], "dims") is not None


def shape_to_host(r: Rewriting, m: Match) -> Value | None:
    """op(dims) = dims of the computed expressions."""
    if m.type.dtype not in ("i64", "i32"):
        return None
    shape = _static(m.type)
    if shape is None or math.prod(shape) > LIMIT:
        return None
    if all(r.producer(v, "dims", "reshape", "cast") is None for v in m.inputs):
        return None  # no size takes part; constants are folded elsewhere
    known = [known_dims(r, v) for v in m.inputs]
    arrays = [k for k in known if k is not None]
    result = _EVALUATE[m.op](r, m, arrays) if len(arrays) == len(known) else None
    if result is None:
        return None
    exprs = tuple(r.constraints.simplify(x) for x in result.flat)
    if _is_normal(r, m):
        return None
    value = r.emit("dims", exprs=exprs)
    if m.type.dtype != "i64":
        value = r.emit("cast", (value,), dtype=m.type.dtype)
    return value if len(shape) == 1 else r.emit("reshape", (value,), shape=shape)


SHAPE_VALUE_RULES: dict[str, list[Rule]] = {name: [shape_to_host] for name in _EVALUATE}
