"""One element of a resized value: source positions and weights as scalar arithmetic.

Design choice: the formulas are those of the graph op's reference, per axis; interpolation multiplies out into one
weighted sum over the taps of all axes, so a resize is an index op like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product as cross
from typing import TYPE_CHECKING, Any

from hwsdk.codegen.loop_ir import Binary, Cast, Const, FromIndex, Index, Select, Unary, Value
from hwsdk.graph.graph import Node

if TYPE_CHECKING:
    from hwsdk.codegen.inline import Inliner

F = "f64"


def resized(inliner: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    """Element `index` of resize(x)."""
    source = inliner.graph.values[node.inputs[0]]
    attrs = node.attrs
    taps: list[list[tuple[Index, Value | None]]] = []
    for axis, (size, out) in enumerate(zip(source.shape, attrs["shape"], strict=True)):
        same = out == size and (not attrs["scales"] or attrs["scales"][axis] == 1)
        taps.append([(index[axis], None)] if same else _taps(inliner, attrs, axis, index[axis], size, out))
    total: Value | None = None
    wide = "f64" if source.dtype == "f64" else "f32"
    for combination in cross(*taps):
        value = inliner.element(node.inputs[0], tuple(place for place, _ in combination), where)
        if attrs["mode"] == "nearest":
            return value
        value = value if value.dtype == wide else Cast(wide, value)
        for _, weight in combination:
            if weight is not None:
                value = Binary(wide, "mul", value, weight if wide == F else Cast(wide, weight))
        total = value if total is None else Binary(wide, "add", total, value)
    assert total is not None
    return total if source.dtype == wide else Cast(source.dtype, total)


def _c(value: float) -> Value:
    return Const(F, value)


def _b(op: str, x: Value, y: Value) -> Value:
    return Binary(F, op, x, y)


def _position(attrs: Mapping[str, Any], axis: int, at: Index, size: Index, out: Index) -> Value:
    """Where an output position lies in the source (see `ops_resize.source_positions`)."""
    n, m, i = FromIndex(F, size), FromIndex(F, out), FromIndex(F, at)
    stated = float(attrs["scales"][axis]) if attrs["scales"] else 0.0
    scale: Value = _c(stated) if stated else _b("div", m, n)
    one, half = _c(1.0), _c(0.5)
    match attrs["coordinate"]:
        case "asymmetric":
            return _b("div", i, scale)
        case "align_corners":
            ratio = _b("div", _b("sub", n, one), Binary(F, "max", _b("sub", m, one), one))
            return Select(F, Binary("bool", "gt", m, one), _b("mul", i, ratio), _c(0.0))
    x = _b("sub", _b("div", _b("add", i, half), scale), half)
    if attrs["coordinate"] == "pytorch_half_pixel":
        return Select(F, Binary("bool", "gt", m, one), x, _c(0.0))
    if attrs["coordinate"] == "half_pixel_symmetric":
        shift = _b("mul", _b("mul", n, half), _b("sub", one, _b("div", m, _b("mul", scale, n))))
        return _b("add", shift, x)
    return x


def _taps(
    inliner: Inliner, attrs: Mapping[str, Any], axis: int, at: Index, size: Index, out: Index
) -> list[tuple[Index, Value | None]]:
    x = _position(attrs, axis, at, size, out)
    last = _b("sub", FromIndex(F, size), _c(1.0))
    if attrs["mode"] == "nearest":
        return [(inliner.position(_clamped(_nearest(attrs["nearest_mode"], x), last), size), None)]
    if attrs["mode"] == "linear":
        x = Binary(F, "max", Binary(F, "min", x, last), _c(0.0))
        low = Unary(F, "floor", x)
        t = _b("sub", x, low)
        pairs = [(low, _b("sub", _c(1.0), t)), (_b("add", low, _c(1.0)), t)]
    else:
        pairs = _cubic(attrs, x, last)
    return [(inliner.position(_clamped(place, last), size), weight) for place, weight in pairs]


def _nearest(mode: str, x: Value) -> Value:
    match mode:
        case "round_prefer_floor":
            return Unary(F, "ceil", _b("sub", x, _c(0.5)))
        case "round_prefer_ceil":
            return Unary(F, "floor", _b("add", x, _c(0.5)))
    return Unary(F, mode, x)


def _clamped(x: Value, last: Value) -> Value:
    return Cast("i64", Binary(F, "max", Binary(F, "min", x, last), _c(0.0)))


def _cubic(attrs: Mapping[str, Any], x: Value, last: Value) -> list[tuple[Value, Value]]:
    """Four taps with Keys' kernel of parameter a."""
    a = float(attrs["cubic_coeff"])
    low = Unary(F, "floor", x)
    t = _b("sub", x, low)

    def near(v: Value) -> Value:
        inner = _b("sub", _b("mul", _c(a + 2), v), _c(a + 3))
        return _b("add", _b("mul", _b("mul", inner, v), v), _c(1.0))

    def far(v: Value) -> Value:
        inner = _b("add", _b("mul", _b("sub", _b("mul", _c(a), v), _c(5 * a)), v), _c(8 * a))
        return _b("sub", _b("mul", inner, v), _c(4 * a))

    rest = _b("sub", _c(1.0), t)
    weights = [far(_b("add", t, _c(1.0))), near(t), near(rest), far(_b("add", rest, _c(1.0)))]
    places = [_b("add", low, _c(float(i))) for i in (-1, 0, 1, 2)]
    if attrs["exclude_outside"]:
        kept = []
        for place, weight in zip(places, weights, strict=True):
            inside = Binary(
                "bool", "and", Binary("bool", "ge", place, _c(0.0)), Binary("bool", "le", place, last)
            )
            kept.append(Select(F, inside, weight, _c(0.0)))
        total = _b("add", _b("add", kept[0], kept[1]), _b("add", kept[2], kept[3]))
        weights = [_b("div", w, total) for w in kept]
    return list(zip(places, weights, strict=True))
