"""Reductions, running sums, sorting.

Design choice: the Reduce family is one importer and one table of what is done before and after the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.dtypes import dtype
from hwsdk.frontends import reducing, shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Importer, Node, constant_int, importer
from hwsdk.frontends.operands import binary, cast_to, select, unary
from hwsdk.graph.dims import Dim

Step = Callable[[Array], Array]


def _square(x: Array) -> Array:
    return binary("mul", x, x)


def _in_float(function: Step) -> Step:
    """Applies a float function to integers through f64, as NumPy does."""

    def apply(x: Array) -> Array:
        return function(x) if dtype(x.dtype).kind == "f" else cast_to(function(cast_to(x, "f64")), x.dtype)

    return apply


def _sqrt(x: Array) -> Array:
    return unary("sqrt", x)


def _log(x: Array) -> Array:
    return unary("log", x)


def _mean(x: Array, axes: Any, keepdims: bool) -> Array:
    if dtype(x.dtype).kind == "f":
        return reducing.mean(x, axes, keepdims)
    total = reducing.sum(x, axes, keepdims)
    return binary(
        "div", total, cast_to(reducing.count(cast_to(x, "f64"), shapes.axes_of(axes, x.ndim)), x.dtype)
    )


def _log_sum_exp(x: Array, axes: Any, keepdims: bool) -> Array:
    """max + log(sum(exp(x - max))); where the maximum is infinite it is not subtracted."""
    kind = x.dtype
    x = x if dtype(kind).kind == "f" else cast_to(x, "f64")
    best = reducing.max(x, axes, True)
    best = select(unary("isinf", best), 0.0, best)
    total = unary("log", reducing.sum(unary("exp", binary("sub", x, best)), axes, True))
    result = binary("add", total, best)
    drop = shapes.axes_of(axes, x.ndim)
    return cast_to(
        result if keepdims else shaping.to_shape(result, [s for i, s in enumerate(x.shape) if i not in drop]),
        kind,
    )


def _extreme(kind: str) -> Callable[[Array, Any, bool], Array]:
    def reduce(x: Array, axes: Any, keepdims: bool) -> Array:
        return reducing.reduce(kind, x, axes, keepdims)

    return reduce


def _around(before: Step | None, after: Step | None) -> Callable[[Array, Any, bool], Array]:
    def reduce(x: Array, axes: Any, keepdims: bool) -> Array:
        total = reducing.sum(before(x) if before else x, axes, keepdims)
        return after(total) if after else total

    return reduce


_REDUCTIONS: dict[str, Callable[[Array, Any, bool], Array]] = {
    "ReduceSum": _around(None, None),
    "ReduceSumSquare": _around(_square, None),
    "ReduceL1": _around(lambda x: unary("abs", x), None),
    "ReduceL2": _around(_square, _in_float(_sqrt)),
    "ReduceLogSum": _around(None, _in_float(_log)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": _mean,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": _extreme("prod"),
}


def _reduce_importer(reduce: Callable[[Array, Any, bool], Array]) -> Importer:
    def run(node: Node) -> Array:
        """No axes means all, or none at all with noop_with_empty_axes.

        The pointwise steps happen in any case.
        """
        x, axes = node.x(0), node.axes(1)
        if not axes:
            axes = () if node.integer("noop_with_empty_axes", 0) else tuple(range(x.ndim))
        return reduce(x, axes, bool(node.integer("keepdims", 1)))

    return run


for _name, _reduce in _REDUCTIONS.items():
    importer(_name)(_reduce_importer(_reduce))


@importer("ArgMax", "ArgMin")
def _arg_extreme(node: Node) -> Array:
    x, keepdims = node.x(), bool(node.integer("keepdims", 1))
    axis = shapes.axis_of(node.integer("axis", 0), x.ndim)
    kind = "argmax" if node.op == "ArgMax" else "argmin"
    if not node.integer("select_last_index", 0):
        return reducing.reduce(kind, x, axis, keepdims)
    first = reducing.reduce(kind, shaping.flip(x, axis), axis, keepdims)
    return binary("sub", node.model.size(x.shape[axis] - 1), first)


@importer("CumSum", "CumProd")
def _cumulative(node: Node) -> Array:
    x = node.x(0)
    axis = shapes.axis_of(constant_int(node.dim(1, "the axis"), "the axis"), x.ndim)
    return node.model.emit(
        "cumulative", (x,), kind="sum" if node.op == "CumSum" else "prod", axis=axis,
        exclusive=bool(node.integer("exclusive", 0)), reverse=bool(node.integer("reverse", 0)),
    )  # fmt: skip


@importer("TopK")
def _top_k(node: Node) -> tuple[Array, Array]:
    x = node.x(0)
    k: Dim = node.dim(1, "k") if node.version >= 10 else node.required("k")
    return reducing.top_k(x, k, node.integer("axis", -1), bool(node.integer("largest", 1)))
