"""Integers that describe shapes, followed through the ONNX graph as dims instead of data.

Exporters compute reshape targets with nodes (Shape, Gather, Concat, Mul, …).  Each rule here does what such a
node does, on object arrays of dims; a rule that cannot say gives None and the node is imported as data.

Design choice: most rules are the NumPy function itself, since NumPy moves objects as well as numbers;
arithmetic and comparisons are those of dims, decided by ranges where they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from hwsdk.frontends.onnx.node import SHAPE_VALUE_LIMIT, Dims, Node, as_dim, object_array
from hwsdk.graph import dims as d
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, Expr

Rule = Callable[..., Dims | Sequence[Dims] | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule: `(node, *inputs as object arrays or None)` to one or more object arrays, or None."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def each(function: Callable[..., Any], *arrays: Dims) -> Dims:
    """An elementwise function of objects under broadcasting."""
    together = np.broadcast_arrays(*arrays)
    values = [function(*items) for items in zip(*(a.reshape(-1) for a in together), strict=True)]
    return object_array(values, together[0].shape)


# ----------------------------------------------------------------------------------------------- arithmetic
def _decided(condition: Dim, constraints: Constraints) -> Dim:
    return constraints.simplify(condition)


def _truncated_quotient(a: Any, b: Any) -> Any:
    """Integer division of ONNX: toward zero, which is the floor for sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    return d.floordiv(a, b)


@rule("Add")
def _add(node: Node, a: Dims, b: Dims) -> Dims:
    return each(lambda x, y: x + y, a, b)


@rule("Sub")
def _sub(node: Node, a: Dims, b: Dims) -> Dims:
    return each(lambda x, y: x - y, a, b)


@rule("Mul")
def _mul(node: Node, a: Dims, b: Dims) -> Dims:
    return each(lambda x, y: x * y, a, b)


@rule("Div")
def _div(node: Node, a: Dims, b: Dims) -> Dims | None:
    constraints = node.model.constraints
    for x, y in zip(*(v.reshape(-1) for v in np.broadcast_arrays(a, b)), strict=True):
        low = [constraints.range_of(v)[0] for v in (x, y)]
        symbolic = isinstance(x, Expr) or isinstance(y, Expr)
        if symbolic and any(v is None or v < 0 for v in low):
            return None  # the sign is not known, so the floor may not be the truncation
    return each(_truncated_quotient, a, b)


@rule("Mod")
def _mod(node: Node, a: Dims, b: Dims) -> Dims | None:
    if node.integer("fmod", 0) or any(isinstance(y, int) and y == 0 for y in b.reshape(-1)):
        return None
    return each(d.mod, a, b)


@rule("Neg")
def _neg(node: Node, a: Dims) -> Dims:
    return each(lambda x: -x, a)


@rule("Abs")
def _abs(node: Node, a: Dims) -> Dims:
    return each(lambda x: node.model.constraints.simplify(d.maximum(x, -x)), a)


@rule("Min")
def _min(node: Node, *arrays: Dims) -> Dims:
    return reduce(
        lambda a, b: each(lambda x, y: node.model.constraints.simplify(d.minimum(x, y)), a, b), arrays
    )


@rule("Max")
def _max(node: Node, *arrays: Dims) -> Dims:
    return reduce(
        lambda a, b: each(lambda x, y: node.model.constraints.simplify(d.maximum(x, y)), a, b), arrays
    )


@rule("Sum")
def _sum(node: Node, *arrays: Dims) -> Dims:
    return reduce(lambda a, b: each(lambda x, y: x + y, a, b), arrays)


def _comparison(function: Callable[[Dim, Dim], Dim]) -> Rule:
    def compare(node: Node, a: Dims, b: Dims) -> Dims:
        return each(lambda x, y: _decided(function(x, y), node.model.constraints), a, b)

    return compare


for _name, _function in {
    "Equal": d.eq, "Greater": d.gt, "Less": d.lt, "GreaterOrEqual": d.ge, "LessOrEqual": d.le,
}.items():  # fmt: skip
    RULES[_name] = _comparison(_function)


@rule("Not")
def _not(node: Node, a: Dims) -> Dims:
    return each(lambda x: 1 - x, a)


@rule("And")
def _and(node: Node, a: Dims, b: Dims) -> Dims:
    return each(lambda x, y: x * y, a, b)


@rule("Or")
def _or(node: Node, a: Dims, b: Dims) -> Dims:
    return each(lambda x, y: x + y - x * y, a, b)


@rule("Where")
def _where(node: Node, condition: Dims, a: Dims, b: Dims) -> Dims:
    return each(
        lambda c, x, y: (x if c else y) if isinstance(c, int) else c * x + (1 - c) * y, condition, a, b
    )


@rule("Cast")
def _cast(node: Node, a: Dims) -> Dims | None:
    target = node.integer("to")
    if target in (6, 7, 12, 13):
        return a
    if target == 9:
        return each(lambda x: _decided(1 - d.eq(x, 0), node.model.constraints), a)
    return None


# ------------------------------------------------------------------------------------------------- movement
@rule("Identity")
def _identity(node: Node, a: Dims) -> Dims:
    return a


@rule("Gather")
def _gather(node: Node, a: Dims, indices: Dims) -> Dims | None:
    where = _numbers(indices)
    return None if where is None else _objects(np.take(a, where, axis=node.integer("axis", 0)))


@rule("Concat")
def _concat(node: Node, *arrays: Dims) -> Dims:
    return np.concatenate(arrays, axis=node.integer("axis", 0))


@rule("Slice")
def _slice(node: Node, a: Dims, *bounds: Dims | None) -> Dims | None:
    if bounds:
        found = [None if b is None else _numbers(b) for b in (*bounds, None, None)[:4]]
        if any(f is None for f, b in zip(found, bounds, strict=False) if b is not None):
            return None
        starts, ends, axes, steps = found
    else:
        starts, ends, axes, steps = (node.ints(n) for n in ("starts", "ends", "axes", "none"))
    if starts is None or ends is None:
        return None
    index = [slice(None)] * a.ndim
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        step = 1 if steps is None else int(steps[i])
        stop = None if step < 0 and int(end) < -a.shape[i if axes is None else axes[i]] else int(end)
        index[i if axes is None else int(axes[i])] = slice(int(start), stop, step)
    return a[tuple(index)]


@rule("Split")
def _split(node: Node, a: Dims, sizes: Dims | None = None) -> list[Dims] | None:
    axis = node.integer("axis", 0)
    lengths = node.ints("split") if sizes is None else _numbers(sizes)
    if lengths is None:
        parts = len(node.outputs)
        each_size = -(-a.shape[axis] // parts)
        lengths = [min(each_size, a.shape[axis] - i * each_size) for i in range(parts)]
    return np.split(a, np.cumsum([int(v) for v in lengths])[:-1], axis)


@rule("Unsqueeze")
def _unsqueeze(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    where = node.ints("axes") if axes is None else _numbers(axes)
    if where is None:
        return None
    rank = a.ndim + len(where)
    return np.expand_dims(a, tuple(int(i) % rank for i in where))


@rule("Squeeze")
def _squeeze(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    where = node.ints("axes") if axes is None else _numbers(axes)
    return np.squeeze(a) if where is None else np.squeeze(a, tuple(int(i) for i in where))


@rule("Reshape")
def _reshape(node: Node, a: Dims, target: Dims) -> Dims | None:
    wanted = _numbers(target)
    if wanted is None:
        return None
    return a.reshape(
        [a.shape[i] if v == 0 and not node.integer("allowzero", 0) else v for i, v in enumerate(wanted)]
    )


@rule("Flatten")
def _flatten(node: Node, a: Dims) -> Dims:
    axis = node.integer("axis", 1)
    return (
        a.reshape(int(np.prod(a.shape[:axis])), -1) if a.size else a.reshape(int(np.prod(a.shape[:axis])), 0)
    )


@rule("Transpose")
def _transpose(node: Node, a: Dims) -> Dims:
    return a.transpose(node.ints("perm", tuple(reversed(range(a.ndim)))))


@rule("Expand")
def _expand(node: Node, a: Dims, target: Dims) -> Dims | None:
    wanted = _numbers(target)
    return (
        None
        if wanted is None
        else _small(np.broadcast_shapes(a.shape, tuple(wanted)), lambda s: np.broadcast_to(a, s))
    )


@rule("Tile")
def _tile(node: Node, a: Dims, repeats: Dims) -> Dims | None:
    times = _numbers(repeats)
    if times is None or a.size * int(np.prod(times)) > SHAPE_VALUE_LIMIT:
        return None
    return np.tile(a, times)


@rule("Range")
def _range(node: Node, start: Dims, limit: Dims, step: Dims) -> Dims | None:
    first, last, by = (as_dim(v.reshape(-1)[0]) for v in (start, limit, step))
    count = _quotient_up(last - first, by)
    if count is None or not 0 <= count <= SHAPE_VALUE_LIMIT:
        return None
    return object_array([first + i * by for i in range(count)], (count,))


def _quotient_up(distance: Dim, by: Dim) -> int | None:
    if isinstance(distance, int) and isinstance(by, int) and by:
        return max(0, -(-distance // by))
    return None


@rule("ReduceProd")
def _reduce_prod(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    return _reduced(node, a, axes, lambda x, y: x * y, 1)


@rule("ReduceSum")
def _reduce_sum(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    return _reduced(node, a, axes, lambda x, y: x + y, 0)


@rule("ReduceMax")
def _reduce_max(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    return _reduced(node, a, axes, lambda x, y: node.model.constraints.simplify(d.maximum(x, y)), None)


@rule("ReduceMin")
def _reduce_min(node: Node, a: Dims, axes: Dims | None = None) -> Dims | None:
    return _reduced(node, a, axes, lambda x, y: node.model.constraints.simplify(d.minimum(x, y)), None)


def _reduced(
    node: Node, a: Dims, axes: Dims | None, function: Callable[[Any, Any], Any], start: int | None
) -> Dims | None:
    where = node.ints("axes") if axes is None else _numbers(axes)
    whole = where is None or {int(i) % max(a.ndim, 1) for i in where} == set(range(a.ndim))
    if not whole or (start is None and not a.size) or (axes is not None and not axes.size):
        return None
    values = list(a.reshape(-1)) if start is None else [start, *a.reshape(-1)]
    return object_array([reduce(function, values)], (1,) * a.ndim if node.integer("keepdims", 1) else ())


@rule("ScatterElements", "ScatterND")
def _scatter(node: Node, a: Dims, indices: Dims, updates: Dims) -> Dims | None:
    where = _numbers(indices)
    if where is None or a.ndim != 1 or node.text("reduction", "none") != "none":
        return None
    result = a.copy()
    for place, value in zip(where.reshape(-1), updates.reshape(-1), strict=True):
        result[int(place)] = value
    return result


# ------------------------------------------------------------------------------------------ what they share
def _numbers(a: Dims | None) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """An object array as integers, if no symbol is in it."""
    if a is None or any(isinstance(v, Expr) for v in a.reshape(-1)):
        return None
    return np.array([int(v) for v in a.reshape(-1)], np.int64).reshape(a.shape)


def _objects(a: Any) -> Dims:
    """`np.take` of one element gives the bare object: back to a 0-d array."""
    return a if isinstance(a, np.ndarray) else object_array([a], ())


def _small(shape: tuple[int, ...], make: Callable[[tuple[int, ...]], Dims]) -> Dims | None:
    return make(shape) if int(np.prod(shape)) <= SHAPE_VALUE_LIMIT else None


def shape_of(node: Node) -> Dims:
    """The Shape operator, with its start and end."""
    sizes = node.x(0).shape
    start, end = node.integer("start", 0), node.integer("end", len(sizes))
    wanted = sizes[slice(start, end)]
    return object_array([node.model.constraints.simplify(s) for s in wanted], (len(wanted),))


def scaled_size(size: Dim, scale: float, constraints: Constraints) -> Dim:
    """floor(size * scale), exactly."""
    ratio = Fraction(scale)
    return constraints.simplify(d.floordiv(size * ratio.numerator, ratio.denominator))
