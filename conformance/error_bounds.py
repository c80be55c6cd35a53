"""How far each element of each value of a graph may be from the truth, where every operation rounds as it may.

    error(y) = what the errors of the operands can do to y  +  what the operation adds

The first part is found by moving one operand at a time by its error (element by element), by the operation itself on
the errors (what only moves or adds elements), or by its magnitudes (products).  The second part is that of `tolerance`.
Where a comparison, a conversion to an integer or an index may go either way, and where a value is not finite, the error
is infinite: nothing can be said about that element, and nothing is.

Design choice: first-order bounds beside a reference in f64, one pair of arrays per value, so that any graph has a bound
and none is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.graph import Graph, Node
from hwsdk.graph.interpret import bind_symbols, check_inputs
from hwsdk.graph.opdef import evaluated
from hwsdk.graph.ops import op_def
from hwsdk.graph.scalar import SCALAR
from hwsdk.target_desc import Target

from .data import float_limits
from .tolerance import FUNCTION_ULP, SMALLEST_NORMAL, growth, unit

Array = np.ndarray[Any, Any]
SLACK = 2.0  # the passes may put the roundings of a chain into another order, and bounds are of first order
EXACT = frozenset("neg abs max min floor ceil round trunc sign".split())
ROUNDED = frozenset("add sub mul div sqrt fma".split())
MOVES = frozenset(
    "reshape transpose broadcast_in_dim slice reverse concat pad gather gather_elements gather_nd".split()
)
INDEXED = frozenset("gather gather_elements gather_nd scatter_nd scatter_elements".split())  # operand 1
SINGULAR = {
    "div": 1,
    "floordiv": 1,
    "mod": 1,
    "fmod": 1,
    "reciprocal": 0,
    "rsqrt": 0,
    "log": 0,
    "log2": 0,
    "pow": 0,
}
PERIODIC = frozenset(("sin", "cos", "tan"))


@dataclass(frozen=True)
class Known:
    """A value in f64 (integers and booleans in their own dtype) and its error; infinite where nothing is known."""

    value: Array
    error: Array


def bounds(graph: Graph, inputs: Mapping[str, Array], target: Target) -> dict[str, Known]:
    """Every value of the graph for these inputs.  InputError if they do not fit the graph."""
    arrays = check_inputs(graph, inputs)
    env = bind_symbols(graph, arrays)
    found = {name: _given(array) for name, array in {**graph.constants, **arrays}.items()}
    for node in graph.nodes:
        operands = [found[name] for name in node.inputs]
        with np.errstate(all="ignore"):
            for name, known in zip(node.outputs, _step(graph, node, operands, env, target), strict=True):
                found[name] = _settled(known, graph.values[name].dtype)
    return found


def _given(array: Array) -> Known:
    wide = array.astype(np.float64) if _is_float(array) else array
    return Known(wide, np.where(np.isfinite(wide), 0.0, np.inf) if _is_float(wide) else np.zeros(array.shape))


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or "float" in array.dtype.name


def _settled(known: Known, dtype: str) -> Known:
    """Nothing is known of a value that is not finite in its dtype, nor of an integer that is not certain."""
    error = np.asarray(known.error, np.float64)
    if DTYPES[dtype].kind != "f":
        return Known(known.value, np.where(error > 0, np.inf, np.where(np.isnan(error), np.inf, 0.0)))
    largest = float_limits(numpy_dtype(dtype))[1]
    fits = np.abs(known.value) + error < largest / 2
    return Known(known.value, np.where(fits, error, np.inf))


# ----------------------------------------------------------------------------------------------------------- one node
def _step(
    graph: Graph, node: Node, operands: Sequence[Known], env: Mapping[str, int], target: Target
) -> list[Known]:
    entry, dtype = op_def(node.op), graph.values[node.outputs[0]].dtype
    attrs = evaluated(node.attrs, env)

    def run(*arrays: Array, **changes: Any) -> tuple[Array, ...]:
        wide = {k: "f64" if isinstance(v, str) and k in ("dtype", "accumulate") and DTYPES[v].kind == "f" else v
                for k, v in {**attrs, **changes}.items()}  # fmt: skip
        return entry.reference(wide, arrays, env)

    values = run(*(o.value for o in operands))
    use = Use(node.op, attrs, dtype, graph.values[node.inputs[0]].dtype if node.inputs else dtype,
              operands, values, run, target)  # fmt: skip
    errors = _rule(node.op)(use)
    if node.op in INDEXED:
        errors = [_where_certain(use, e) for e in errors]
    return [Known(v, np.broadcast_to(e, v.shape)) for v, e in zip(values, errors, strict=True)]


@dataclass(frozen=True)
class Use:
    """One node: `dtype` of its first result, `source` of its first operand.  run: the operation on other arrays."""

    op: str
    attrs: Mapping[str, Any]
    dtype: str
    source: str
    operands: Sequence[Known]
    values: Sequence[Array]
    run: Callable[..., tuple[Array, ...]]
    target: Target

    @property
    def x(self) -> Known:
        return self.operands[0]

    @property
    def rounding(self) -> Array:
        """One rounding of the result to its dtype; results below the smallest normal number may be flushed."""
        u = unit(self.dtype)
        return 2 * u * np.abs(self.values[0].astype(np.float64)) + SMALLEST_NORMAL.get(self.dtype, 0.0)

    def accumulated(self, terms: int, magnitude: Array, narrowed: float = 0.0) -> Array:
        """What adding up `terms` values costs whose magnitudes add up to this.  narrowed: the unit to which operands
        are rounded first."""
        if DTYPES[self.dtype].kind != "f":
            return np.zeros(magnitude.shape)
        wide = "f32" if DTYPES[self.dtype].bits < 32 else self.dtype
        return (growth(terms) * unit(wide) + 2 * narrowed) * np.abs(magnitude) + self.rounding


def _rule(op: str) -> Callable[[Use], list[Array]]:
    if op in MOVES:
        return _moved
    if op in SCALAR:
        return _elementwise
    return _RULES.get(op, _made)


def _made(use: Use) -> list[Array]:
    """No operands (iota, full, dims), or an operation without a rule: its result is certain only if they are."""
    certain = all(not o.error.any() for o in use.operands)
    return [use.rounding if certain else np.full(v.shape, np.inf) for v in use.values]


def _moved(use: Use) -> list[Array]:
    changes = {"value": 0} if use.op == "pad" else {}
    rest = [o.error if i == 0 or use.op == "concat" else o.value for i, o in enumerate(use.operands)]
    return [use.run(*rest, **changes)[0]]


def _where_certain(use: Use, error: Array) -> Array:
    """An index that may be another one: nothing is known of what it reaches (for scatters: of anything)."""
    doubt = use.operands[1].error
    if not doubt.any():
        return error
    if use.op == "gather":
        rank = use.x.value.ndim
        axis = use.attrs["axis"] % rank
        return np.maximum(error, doubt.reshape((1,) * axis + doubt.shape + (1,) * (rank - axis - 1)))
    if use.op == "gather_elements":
        return np.maximum(error, doubt)
    return np.full(error.shape, np.inf)


# -------------------------------------------------------------------------------------------------- element by element
def _elementwise(use: Use) -> list[Array]:
    base = use.values[0]
    floats = DTYPES[use.source].kind == "f"
    total = np.zeros(base.shape)
    for place, operand in enumerate(use.operands):
        if not operand.error.any():
            continue
        if not floats:
            total = np.maximum(total, operand.error)
            continue
        for sign in (-1, 1):
            moved = [o.value + sign * o.error if i == place else o.value for i, o in enumerate(use.operands)]
            change = _difference(use.run(*moved)[0], base)
            total = np.maximum(total, change) if sign == 1 else total + change
    total = np.where(_cliff(use), np.inf, total)
    return [np.where(np.isnan(total), np.inf, total) + _added(use)]


def _difference(a: Array, b: Array) -> Array:
    return np.where(a != b, np.inf, 0.0) if b.dtype == bool else np.abs(a - b)


def _cliff(use: Use) -> Array:
    """Where moving by the error says nothing: a pole within reach, or more than a fraction of a period."""
    none = np.zeros(use.values[0].shape, bool)
    if use.op in PERIODIC:
        return np.asarray(use.x.error > 1)
    if use.op not in SINGULAR or DTYPES[use.source].kind != "f":
        return none
    pole = use.operands[SINGULAR[use.op]]
    return np.asarray(np.abs(pole.value) <= 2 * pole.error)


def _added(use: Use) -> Array | float:
    if DTYPES[use.dtype].kind != "f" or use.op in EXACT:
        return 0.0
    if use.op in ROUNDED:
        return use.rounding
    stated = use.target.numerics.functions.get(use.op)
    ulp = 1.0 if DTYPES[use.dtype].bits < 32 else stated.max_ulp if stated else FUNCTION_ULP
    return use.rounding * (1 + ulp)


def _select(use: Use) -> list[Array]:
    condition, x, y = use.operands
    both = np.abs(x.value.astype(np.float64) - y.value) + np.maximum(x.error, y.error)
    return [np.where(condition.error > 0, both, np.where(condition.value, x.error, y.error))]


def _cast(use: Use) -> list[Array]:
    x = use.x
    to_float = DTYPES[use.dtype].kind == "f"
    if DTYPES[use.source].kind != "f":
        return [x.error + (use.rounding if to_float else 0.0)]
    if to_float:
        return [x.error + (use.rounding if unit(use.dtype) > unit(use.source) else 0.0)]
    moved = [use.run(x.value + sign * x.error)[0] != use.values[0] for sign in (-1, 1)]
    return [np.where(moved[0] | moved[1], np.inf, 0.0)]


# --------------------------------------------------------------------------------------------------- reductions, order
def _axes(use: Use) -> tuple[int, ...]:
    axes = use.attrs["axes"] if "axes" in use.attrs else (use.attrs["axis"],)
    return tuple(a % use.x.value.ndim for a in axes)


def _reduced(use: Use) -> list[Array]:
    kind, x = use.attrs["kind"], use.x
    keep = bool(use.attrs.get("keepdims", False))
    if kind in ("sum", "prod") and DTYPES[use.dtype].kind == "f":
        terms = math.prod(x.value.shape[a] for a in _axes(use))
        return [_summed(use, terms)]
    worst = x.error.max(axis=_axes(use), keepdims=keep, initial=0.0)
    if kind.startswith("arg"):
        ordered = np.sort(x.value.astype(np.float64), axis=_axes(use)[0])
        gaps = _nearest(ordered if kind == "argmin" else np.flip(ordered, _axes(use)[0]), _axes(use)[0])
        first = gaps.take([0], _axes(use)[0]) if gaps.shape[_axes(use)[0]] else np.full(worst.shape, np.inf)
        first = first.reshape(worst.shape)
        return [np.where((worst > 0) & (first <= 2 * worst), np.inf, 0.0)]
    return [worst]


def _summed(use: Use, terms: int) -> Array:
    """Sums add the errors of their terms, products multiply what is left of one."""
    x, size = use.x, np.abs(use.x.value)
    magnitude = use.run(size)[0]
    moved = use.run(x.error)[0] if use.attrs["kind"] == "sum" else use.run(size + x.error)[0] - magnitude
    return np.maximum(moved, 0.0) + use.accumulated(terms, magnitude)


def _running(use: Use) -> list[Array]:
    """cumulative and reduce_window."""
    kind, x = use.attrs["kind"], use.x
    if kind in ("sum", "prod") and DTYPES[use.dtype].kind == "f":
        window = use.attrs.get("window")
        return [_summed(use, math.prod(window) if window else x.value.shape[_axes(use)[0]])]
    return [np.maximum(use.run(x.error, kind="max")[0], 0.0)]


def _nearest(ordered: Array, axis: int) -> Array:
    """Distance of each element of a sorted array to its nearer neighbour."""
    step = np.abs(np.diff(ordered, axis=axis))
    edge = [(0, 0)] * ordered.ndim
    left, right = list(edge), list(edge)
    left[axis], right[axis] = (1, 0), (0, 1)
    if not ordered.shape[axis]:
        return ordered
    return np.asarray(
        np.minimum(np.pad(step, left, constant_values=np.inf), np.pad(step, right, constant_values=np.inf))
    )


def _ordered(use: Use) -> list[Array]:
    (axis,) = _axes(use)
    x = use.x
    worst = x.error.max(axis=axis, keepdims=True, initial=0.0)
    count = use.values[0].shape[axis]
    ordered = np.sort(x.value.astype(np.float64), axis=axis)
    down = use.attrs.get("descending", use.attrs.get("largest", False))
    gaps = _nearest(np.flip(ordered, axis) if down else ordered, axis).take(range(count), axis)
    doubt = np.where((worst > 0) & (gaps <= 2 * worst), np.inf, 0.0)
    return [np.broadcast_to(worst, use.values[0].shape), doubt]


# ------------------------------------------------------------------------------------------------------------ products
def _product(use: Use) -> list[Array]:
    a, b = use.operands
    if DTYPES[use.dtype].kind != "f":
        spread = use.run((a.error > 0) * 1.0, np.ones(b.value.shape), **_WIDE)[0]
        spread = spread + use.run(np.ones(a.value.shape), (b.error > 0) * 1.0, **_WIDE)[0]
        return [np.where(spread > 0, np.inf, 0.0)]
    sizes = np.abs(a.value), np.abs(b.value)
    moved = use.run(sizes[0] + a.error, sizes[1] + b.error)[0] - use.run(*sizes)[0]
    moved = np.maximum(np.where(np.isnan(moved), np.inf, moved), 0.0)
    return [moved + use.accumulated(_terms(use), use.run(*sizes)[0], _narrowed(use))]


_WIDE = {"dtype": "f64", "accumulate": "f64"}


def _terms(use: Use) -> int:
    if use.op == "dot_general":
        return math.prod(use.x.value.shape[i] for i, _ in use.attrs["contract"])
    return math.prod(use.operands[1].value.shape[:-1])


def _narrowed(use: Use) -> float:
    precision = use.target.codegen.default_precision
    narrower = precision and use.source in ("f32", "f16") and unit(precision) > unit(use.source)
    return unit(str(precision)) if narrower else 0.0


def _scattered(use: Use) -> list[Array]:
    x, index, updates = use.operands
    if use.attrs["combiner"] not in ("none", "add"):
        return _made(use)
    moved = use.run(x.error, index.value, updates.error)[0]
    if use.attrs["combiner"] == "none" or DTYPES[use.dtype].kind != "f":
        return [moved]
    count = 1 + int(np.prod(index.value.shape, dtype=np.int64))
    magnitude = use.run(np.abs(x.value), index.value, np.abs(updates.value))[0]
    own = growth(count) * unit(use.dtype) * magnitude  # into memory: rounded at every addition
    return [moved + own + use.rounding]


_RULES: dict[str, Callable[[Use], list[Array]]] = {
    "select": _select, "cast": _cast, "reduce": _reduced, "reduce_window": _running, "cumulative": _running,
    "sort": _ordered, "top_k": _ordered, "dot_general": _product, "conv": _product, "conv_transpose": _product,
    "scatter_nd": _scattered, "scatter_elements": _scattered,
}  # fmt: skip
