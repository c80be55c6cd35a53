"""Pooling over windows and over the whole image.

Design choice: a pool is one windowed reduction in channels-last form.  A mean is a sum divided by a count,
and the count is an array only where windows are cut by the border.  A window that lies in the padding alone
has the mean 0, the norm 0 and the maximum -inf.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends import neural, reducing
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.onnx.operators.window import (
    Window,
    channels_first,
    channels_last,
    fitting,
    window_of,
)
from hwsdk.frontends.operands import binary, unary
from hwsdk.graph import dims as d


def _window(node: Node, x: Array) -> Window:
    if x.ndim < 3:
        raise ModelError(f"a pool of {x!r}, which has no spatial axes")
    size = node.ints("kernel_shape")
    if size is None:
        raise ModelError("attribute 'kernel_shape' is missing")
    window = window_of(node, x.shape[2:], size)
    if node.text("auto_pad", "NOTSET").startswith("SAME"):
        for axis, (extent, stride) in enumerate(zip(_extents(window), window.strides, strict=True), 2):
            if extent < stride:
                raise UnsupportedError(
                    f"auto_pad SAME along axis {axis} with a window that spans {extent} and a stride of {stride}: "
                    "its padding would be negative, and no two readings of ONNX agree on that; give pads instead"
                )
    return window


def _extents(window: Window) -> list[int]:
    return [(k - 1) * g + 1 for k, g in zip(window.size, window.dilations, strict=True)]


def _rounded_up(node: Node, x: Array, window: Window) -> Window:
    """The window with the pads for ceil_mode: the last one may hang over the end, but must begin inside the
    input or its padding.
    """
    if not node.integer("ceil_mode", 0):
        return fitting(node, x, window)
    simplify = node.model.constraints.simplify
    pads = []
    for i, (size, extent) in enumerate(zip(x.shape[2:], _extents(window), strict=True)):
        (low, high), stride = window.pads[i], window.strides[i]
        count = d.ceildiv(size + low + high - extent, stride) + 1
        count = simplify(count - d.ge((count - 1) * stride, size + low))
        pads.append((low, simplify((count - 1) * stride + extent - size - low)))
    return fitting(node, x, replace(window, pads=tuple(pads)))


def _reduced(kind: str, last: Array, window: Window) -> Array:
    return neural.window_reduce(kind, last, window.size, window.strides, window.pads, window.dilations)


@importer("MaxPool")
def _max_pool(node: Node) -> Array:
    if node.wants(1):
        raise UnsupportedError("the second output (indices)")
    x = node.x()
    return channels_first(_reduced("max", channels_last(x), _rounded_up(node, x, _window(node, x))))


@importer("AveragePool")
def _average_pool(node: Node) -> Array:
    """What ceil_mode adds beyond the padding never counts; the padding counts with count_include_pad."""
    x = node.x()
    plain, last = _window(node, x), channels_last(x)
    window = _rounded_up(node, x, plain)
    total = _reduced("sum", last, window)
    counted = plain.pads if node.integer("count_include_pad", 0) else ((0, 0),) * len(plain.pads)
    counts = neural.window_counts(last, window.size, window.strides, window.pads, window.dilations, counted)
    return channels_first(binary("div", total, counts))


@importer("LpPool")
def _lp_pool(node: Node) -> Array:
    x, p = node.x(), node.integer("p", 2)
    window = _rounded_up(node, x, _window(node, x))
    total = _reduced("sum", binary("pow", unary("abs", channels_last(x)), float(p)), window)
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
