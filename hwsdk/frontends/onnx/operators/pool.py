"""Pooling over windows and over the whole image.

Design choice: a pool is one windowed reduction in channels-last form.  A mean is a sum divided by a count,
and the count is an array only where windows are cut by the border.
"""

from __future__ import annotations

from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import neural, reducing
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.onnx.operators.window import Window, channels_first, channels_last, window_of
from hwsdk.frontends.operands import binary, unary
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim


def _window(node: Node, x: Array) -> Window:
    if x.ndim < 3:
        raise ModelError(f"a pool of {x!r}, which has no spatial axes")
    size = node.ints("kernel_shape")
    if size is None:
        raise ModelError("attribute 'kernel_shape' is missing")
    return window_of(node, x.shape[2:], size)


def _rounded_up(node: Node, x: Array, window: Window) -> tuple[tuple[Dim, Dim], ...]:
    """The pads for ceil_mode: the last window may hang over the end, but must begin inside the input or its
    padding.
    """
    if not node.integer("ceil_mode", 0):
        return window.pads
    simplify = node.model.constraints.simplify
    pads = []
    for i, size in enumerate(x.shape[2:]):
        (low, high), stride = window.pads[i], window.strides[i]
        extent = (window.size[i] - 1) * window.dilations[i] + 1
        count = d.ceildiv(size + low + high - extent, stride) + 1
        count = simplify(count - d.ge((count - 1) * stride, size + low))
        pads.append((low, simplify((count - 1) * stride + extent - size - low)))
    return tuple(pads)


@importer("MaxPool")
def _max_pool(node: Node) -> Array:
    if node.wants(1):
        raise UnsupportedError("the second output (indices)")
    x = node.x()
    window = _window(node, x)
    pads = _rounded_up(node, x, window)
    return channels_first(
        neural.window_reduce("max", channels_last(x), window.size, window.strides, pads, window.dilations)
    )


@importer("AveragePool")
def _average_pool(node: Node) -> Array:
    """What ceil_mode adds beyond the padding never counts; the padding counts with count_include_pad."""
    x = node.x()
    window = _window(node, x)
    pads, last = _rounded_up(node, x, window), channels_last(x)
    total = neural.window_reduce("sum", last, window.size, window.strides, pads, window.dilations)
    counted = window.pads if node.integer("count_include_pad", 0) else ((0, 0),) * len(pads)
    counts = neural.window_counts(last, window.size, window.strides, pads, window.dilations, counted)
    return channels_first(binary("div", total, counts))


@importer("LpPool")
def _lp_pool(node: Node) -> Array:
    x, p = node.x(), node.integer("p", 2)
    window = _window(node, x)
    pads = _rounded_up(node, x, window)
    powers = binary("pow", unary("abs", channels_last(x)), float(p))
    total = neural.window_reduce("sum", powers, window.size, window.strides, pads, window.dilations)
    return channels_first(binary("pow", total, 1.0 / p))


@importer("GlobalAveragePool")
def _global_average_pool(node: Node) -> Array:
    return reducing.mean(node.x(), tuple(range(2, node.x().ndim)), True)


@importer("GlobalMaxPool")
def _global_max_pool(node: Node) -> Array:
    return reducing.max(node.x(), tuple(range(2, node.x().ndim)), True)


@importer("GlobalLpPool")
def _global_lp_pool(node: Node) -> Array:
    x, p = node.x(), float(node.integer("p", 2))
    total = reducing.sum(binary("pow", unary("abs", x), p), tuple(range(2, x.ndim)), True)
    return binary("pow", total, 1.0 / p)
