"""Convolutions.

Design choice: ONNX is channels-first and the graph channels-last, so each convolution stands between two
transposes; a graph pass cancels them between neighbours, and a constant weight is transposed at import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsdk.errors import ModelError
from hwsdk.frontends import neural, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, constant_int, importer
from hwsdk.frontends.onnx.operators.contract import centred_pair
from hwsdk.frontends.operands import binary
from hwsdk.graph import dims as d
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim
from hwsdk.graph.ops_reduce import window_output


def channels_last(x: Array) -> Array:
    """[n, c, *spatial] to [n, *spatial, c]."""
    return shaping.transpose(x, (0, *range(2, x.ndim), 1))


def channels_first(x: Array) -> Array:
    """[n, *spatial, c] to [n, c, *spatial]."""
    return shaping.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


@dataclass(frozen=True)
class Window:
    """The geometry that convolutions and pools share, one entry per spatial axis."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[Dim, Dim], ...]


def window_of(node: Node, spatial: Sequence[Dim], size: Sequence[int]) -> Window:
    """Reads strides, dilations, pads and auto_pad for windows of `size` over `spatial`."""
    rank = len(spatial)
    strides, dilations = node.ints("strides", (1,) * rank), node.ints("dilations", (1,) * rank)
    for name, values in (("kernel_shape", size), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or min(values, default=1) < 1:
            raise ModelError(f"{name} {list(values)} for {rank} spatial axes")
    auto = node.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        constraints = node.model.constraints
        pads = tuple(
            _same(s, (k - 1) * g + 1, step, auto == "SAME_UPPER", constraints)
            for s, k, step, g in zip(spatial, size, strides, dilations, strict=True)
        )
        return Window(tuple(size), strides, dilations, pads)
    given = node.ints("pads", (0,) * (2 * rank)) if auto != "VALID" else (0,) * (2 * rank)
    if auto not in ("NOTSET", "VALID", "") or len(given) != 2 * rank:
        raise ModelError(f"auto_pad {auto!r} with pads {list(given)} for {rank} spatial axes")
    return Window(tuple(size), strides, dilations, tuple((given[i], given[i + rank]) for i in range(rank)))


def _same(size: Dim, extent: int, stride: int, upper: bool, constraints: Constraints) -> tuple[Dim, Dim]:
    """Padding for ceil(size / stride) windows; the odd element goes to the upper or the lower end."""
    count = d.ceildiv(size, stride)
    total = constraints.simplify(d.maximum((count - 1) * stride + extent - size, 0))
    small = d.floordiv(total, 2)
    return (small, total - small) if upper else (total - small, small)


def fitting(node: Node, x: Array, window: Window) -> Window:
    """The window, once `x` [n, c, *spatial] is known to be large enough for it.

    Fewer elements than a window spans give an empty result, as the formula of the specification says; where that
    formula gives less than 0 there is no result: ModelError, or a constraint with this reason for symbolic sizes.
    """
    constraints = node.model.constraints
    for axis, (size, stride, gap, (low, high)) in enumerate(
        zip(window.size, window.strides, window.dilations, window.pads, strict=True), 2
    ):
        count = constraints.simplify(window_output(x.shape[axis], size, stride, low, high, gap))
        span = f"a window that spans {(size - 1) * gap + 1}"
        padded = f"axis {axis}, padded by {low} and {high}"
        if isinstance(count, int) and count < 0:
            raise ModelError(f"{span} does not fit {x!r} along {padded}")
        constraints.nonnegative(count, f"node {node.name}: {span} along {padded}")
    return window


def kernel_shape(node: Node, weight: Array) -> tuple[int, ...]:
    """The window of a weight [out, in, *window]; the attribute, if it is there, says what symbolic dims are."""
    given = node.ints("kernel_shape")
    if given is None:
        return tuple(constant_int(s, "the window of a weight") for s in weight.shape[2:])
    own = weight.shape[2:]
    if len(own) != len(given) or any(isinstance(s, int) and s != k for s, k in zip(own, given, strict=True)):
        raise ModelError(f"kernel_shape {given} and the weight {weight!r} differ")
    for s, k in zip(own, given, strict=True):
        node.model.constraints.unify(s, k, f"node {node.name}: kernel_shape {list(given)}")
    return tuple(given)


def _checked(node: Node, x: Array, weight: Array) -> None:
    if x.ndim < 3 or weight.ndim != x.ndim:
        raise ModelError(f"a convolution of {x!r} with {weight!r}")


@importer("Conv")
def _conv(node: Node) -> Array:
    x, weight = node.x(0), node.x(1)
    _checked(node, x, weight)
    return convolved(node, x, weight, node.optional(2))


def convolved(node: Node, x: Array, weight: Array, bias: Array | None) -> Array:
    window = fitting(node, x, window_of(node, x.shape[2:], kernel_shape(node, weight)))
    last = shaping.transpose(weight, (*range(2, weight.ndim), 1, 0))
    result = neural.conv(
        channels_last(x), last, bias, strides=window.strides, pads=window.pads, dilations=window.dilations,
        groups=node.integer("group", 1),
    )  # fmt: skip
    return channels_first(result)


@importer("ConvInteger")
def _conv_integer(node: Node) -> Array:
    """Zero points are taken off first, so that padding means the zero point."""
    x, weight = node.x(0), node.x(1)
    _checked(node, x, weight)
    return convolved(node, *centred_pair(x, node.optional(2), weight, node.optional(3)), None)


@importer("ConvTranspose")
def _conv_transpose(node: Node) -> Array:
    """The weight is [in, out/groups, *window]; the graph wants [*window, in/groups, out]."""
    x, weight = node.x(0), node.x(1)
    _checked(node, x, weight)
    groups = node.integer("group", 1)
    size = kernel_shape(node, weight)
    inputs, outs = (
        constant_int(weight.shape[0], "the channels"),
        constant_int(weight.shape[1], "the channels"),
    )
    if groups < 1 or inputs % groups:
        raise ModelError(f"{inputs} channels do not divide into {groups} groups")
    rank = len(size)
    split = shaping.to_shape(weight, (groups, inputs // groups, outs, *size))
    last = shaping.transpose(split, (*range(3, 3 + rank), 1, 0, 2))
    last = shaping.to_shape(last, (*size, inputs // groups, groups * outs))
    strides, dilations, extra, pads = _transposed_geometry(node, x.shape[2:], size)
    result = node.model.emit(
        "conv_transpose", (channels_last(x), last), strides=strides, dilations=dilations,
        output_padding=extra,         low=tuple(p[0] for p in pads), high=tuple(p[1] for p in pads), groups=groups,
    )  # fmt: skip
    if node.has(2):
        result = binary("add", result, node.x(2))
    return channels_first(result)


def _transposed_geometry(
    node: Node, spatial: Sequence[Dim], size: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[Dim, Dim]]]:
    """Strides, dilations, output padding and pads; a wanted output shape or SAME decides the pads."""
    rank = len(size)
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilations = node.ints("strides", ones), node.ints("dilations", ones)
    extra, wanted = node.ints("output_padding", zeros), node.ints("output_shape")
    auto = node.text("auto_pad", "NOTSET")
    given = node.ints("pads", zeros + zeros)
    if any(len(v) != rank for v in (strides, dilations, extra)) or len(given) != 2 * rank:
        raise ModelError(f"strides, dilations, output_padding or pads do not fit {rank} spatial axes")
    if auto in ("NOTSET", "VALID", "") and wanted is None:
        pads: list[tuple[Dim, Dim]] = [
            (given[i], given[i + rank]) if auto != "VALID" else (0, 0) for i in range(rank)
        ]
        return strides, dilations, extra, pads
    pads = []
    for i, s in enumerate(spatial):
        target: Dim = wanted[-rank:][i] if wanted is not None else s * strides[i]
        total = (s - 1) * strides[i] + extra[i] + (size[i] - 1) * dilations[i] + 1 - target
        cut = node.model.constraints.simplify(d.maximum(total, 0))
        small = d.floordiv(cut, 2)
        low = small if auto == "SAME_UPPER" else cut - small
        # A shape larger than the natural one is filled up at the end: a negative pad there.
        pads.append((low, (total if wanted is not None else cut) - low))
    return strides, dilations, extra, pads
