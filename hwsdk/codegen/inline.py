"""One element of a graph value as an expression over what is already in memory.

Design choice: pull, not push.  A region is built by asking for the element of its result at a symbolic index;
every shape op on the way only rewrites the index, every elementwise op adds one scalar operation, and the
walk stops at *leaves*: values that are materialised.  So layout ops cost nothing and need no code of their
own below the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hwsdk.codegen.inline_resize import resized
from hwsdk.codegen.loop_ir import (
    Binary,
    Cast,
    Const,
    FromIndex,
    Index,
    Let,
    Load,
    Select,
    Ternary,
    Unary,
    Value,
)
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Expr, Ranges, bounds, floordiv, maximum, minimum, mod, simplify, sym
from hwsdk.graph.graph import Graph, Node
from hwsdk.graph.scalar import SCALAR, uniform

INDEX_OPS = frozenset(
    (
        *("broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "pad", "iota", "full", "dims"),
        *("gather", "gather_elements", "gather_nd", "resize"),
    )
)
ELEMENTWISE = frozenset({*SCALAR, "select", "cast", "bitcast"})


def literal(dtype: str, x: float) -> Const:
    """A number that an attribute of the graph states, as a constant of this dtype."""
    return Const(dtype, float(x) if DTYPES[dtype].kind == "f" else int(x))


def fusible(node: Node) -> bool:
    """May an element of the node's result be computed where it is used?"""
    return node.op in INDEX_OPS or node.op in ELEMENTWISE


def strides_of(shape: Sequence[Index]) -> tuple[Index, ...]:
    """Row-major strides in elements."""
    out: list[Index] = []
    step: Index = 1
    for extent in reversed(shape):
        out.append(step)
        step = step * extent
    return tuple(reversed(out))


def linear(index: Sequence[Index], shape: Sequence[Index]) -> Index:
    """Row-major offset in elements."""
    total: Index = 0
    for i, step in zip(index, strides_of(shape), strict=True):
        total = total + i * step
    return total


def both(a: Value | None, b: Value | None) -> Value | None:
    """Conjunction of two guards; None is true."""
    if a is None or b is None:
        return a if b is None else b
    return Binary("bool", "and", a, b)


class Inliner:
    """Builds the value of one block.  `lets` collects the integers that gathers read, in order of use.
    `stored`: constants that are read from memory even where all their elements are equal.
    """

    def __init__(
        self, graph: Graph, is_leaf: Callable[[str], bool], ranges: Ranges, prefix: str = "g"
    ) -> None:
        self.graph = graph
        self.is_leaf = is_leaf
        self.ranges = dict(ranges)
        self.lets: list[Let] = []
        self.prefix = prefix
        self.stored: frozenset[str] = frozenset()
        self._memo: dict[tuple[str, tuple[Index, ...], int], Value] = {}
        self._keep: list[Value] = []  # guards stay alive, so that their ids stay theirs
        self._guards: dict[tuple[Index, Index, Index], Value | None] = {}

    # ------------------------------------------------------------------------------------------------ public
    def element(self, name: str, index: tuple[Index, ...], where: Value | None = None) -> Value:
        """Element `index` of graph value `name`; memory is not touched where `where` is false."""
        key = (name, index, id(where))
        found = self._memo.get(key)
        if found is None:
            if where is not None:
                self._keep.append(where)
            found = self._memo[key] = self._make(name, index, where)
        return found

    def inside(self, index: Index, low: Index, high: Index) -> Value | None:
        """Guard low <= index < high; None when the ranges prove it."""
        key = (index, low, high)
        if key not in self._guards:
            self._guards[key] = self._guard(index, low, high)
        return self._guards[key]

    # ------------------------------------------------------------------------------------------------- parts
    def _guard(self, index: Index, low: Index, high: Index) -> Value | None:
        guard: Value | None = None
        least, _ = bounds(self._tidy(index - low), self.ranges)
        if least is None or least < 0:
            guard = Binary("bool", "ge", FromIndex("i64", self._tidy(index - low)), Const("i64", 0))
        _, most = bounds(self._tidy(index - high), self.ranges)
        if most is None or most >= 0:
            upper = Binary("bool", "lt", FromIndex("i64", self._tidy(index - high)), Const("i64", 0))
            guard = both(guard, upper)
        return guard

    def _tidy(self, index: Index) -> Index:
        return index if isinstance(index, int) else simplify(index, self.ranges)

    def _make(self, name: str, index: tuple[Index, ...], where: Value | None) -> Value:
        info = self.graph.values[name]
        constant = self.graph.constants.get(name)
        if constant is not None and name not in self.stored and constant.size and _splat(constant):
            return Const(
                info.dtype,
                constant.reshape(-1)[0].item() if info.dtype != "bf16" else float(constant.reshape(-1)[0]),
            )
        index = tuple(0 if e == 1 else self._tidy(i) for i, e in zip(index, info.shape, strict=True))
        if self.is_leaf(name):
            return Load(info.dtype, name, index, where)
        node = self.graph.producer(name)
        if node is None:
            raise CodegenError(f"value {name} is neither computed nor in memory")
        if node.op in ELEMENTWISE:
            return self._elementwise(node, info.dtype, index, where)
        rule = _RULES.get(node.op)
        if rule is None:
            raise CodegenError(f"node {node.name}: {node.op} cannot be fused into its user")
        return rule(self, node, index, where)

    def _elementwise(self, node: Node, dtype: str, index: tuple[Index, ...], where: Value | None) -> Value:
        args = [self.element(i, index, where) for i in node.inputs]
        if node.op == "select":
            return Select(dtype, *args)
        if node.op == "cast":
            return args[0] if args[0].dtype == dtype else Cast(dtype, args[0])
        if node.op == "bitcast":
            return Cast(dtype, args[0], "bits")
        match len(args):
            case 1:
                return Unary(dtype, node.op, *args)
            case 2:
                return Binary(dtype, node.op, *args)
        return Ternary(dtype, node.op, *args)

    def _bind(self, value: Value, extent: Index) -> Index:
        """A loaded integer as an index in [0, extent): negative ones count from the end, the rest is clamped."""
        wide = value if value.dtype == "i64" else Cast("i64", value)
        zero = Const("i64", 0)
        size = FromIndex("i64", extent)
        wrapped = Select("i64", Binary("bool", "lt", wide, zero), Binary("i64", "add", wide, size), wide)
        top = Binary("i64", "sub", size, Const("i64", 1))
        safe = Binary("i64", "max", Binary("i64", "min", wrapped, top), zero)
        name = f"{self.prefix}{len(self.lets)}"
        self.lets.append(Let(name, safe))
        self.ranges[name] = (0, extent - 1)
        return sym(name)

    def position(self, value: Value, extent: Index) -> Index:
        """A value used as an index into a non-empty extent: a constant or an index expression stays one, anything
        else is bound."""
        if isinstance(value, Const):
            at = int(value.value)
            return self._held(at, extent) if at >= 0 else self._tidy(maximum(extent + at, 0))
        if isinstance(value, FromIndex):
            low, _ = bounds(value.index, self.ranges)
            if low is not None and low >= 0:
                return self._held(value.index, extent)
        key = ("", (), id(value))
        known = self._memo.get(key)
        if known is None:
            self._keep.append(value)
            at_symbol = self._bind(value, extent)
            assert isinstance(at_symbol, Expr)
            known = self._memo[key] = FromIndex("i64", at_symbol)
        assert isinstance(known, FromIndex)
        return known.index

    def _held(self, index: Index, extent: Index) -> Index:
        """An index that is not negative, clamped to the last element unless it is known to be inside."""
        _, most = bounds(self._tidy(index - extent), self.ranges)
        return index if most is not None and most < 0 else self._tidy(minimum(index, extent - 1))

    def looked_up(
        self, data: str, index: tuple[Index, ...], axes: Sequence[int], where: Value | None
    ) -> Value:
        """An element that indices along `axes` name; 0 where one of these axes is empty."""
        guard: Value | None = None
        for axis in axes:
            extent = self.graph.values[data].shape[axis]
            least, _ = self.graph.constraints.range_of(extent)  # nothing loops over it: it may be 0 here
            if least is None or least < 1:
                some = Binary("bool", "ge", FromIndex("i64", extent), Const("i64", 1))
                guard = both(guard, some)
        value = self.element(data, index, both(where, guard))
        return value if guard is None else Select(value.dtype, guard, value, literal(value.dtype, 0))


def _splat(array: np.ndarray) -> bool:
    return array.size == 1 or (array.size <= 1 << 16 and uniform(array))


# -------------------------------------------------------------------------------------- one rule per index op
def _broadcast(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    source = self.graph.values[node.inputs[0]].shape
    picked = tuple(0 if e == 1 else index[d] for d, e in zip(node.attrs["dims"], source, strict=True))
    return self.element(node.inputs[0], picked, where)


def _reshape(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    source = self.graph.values[node.inputs[0]].shape
    target = self.graph.values[node.outputs[0]].shape
    return self.element(node.inputs[0], reshape_index(source, target, index, self.ranges), where)


def reshape_index(
    source: Sequence[Index], target: Sequence[Index], index: Sequence[Index], ranges: Ranges
) -> tuple[Index, ...]:
    """Index into `source` of the element that a reshape shows at `index` of `target`.

    Dims are matched in groups of equal product, so that only the dims which really merge or split meet in one
    expression; extents of 1 take no part.
    """
    out: list[Index] = [0] * len(source)
    have = [i for i, e in enumerate(source) if e != 1]
    want = [i for i, e in enumerate(target) if e != 1]
    a = b = 0
    while a < len(have) or b < len(want):
        end_a, end_b = _group(source, target, have, want, a, b)
        offset: Index = 0
        for i in want[b:end_b]:
            offset = offset * target[i] + index[i]
        dims = have[a:end_a]
        for position, i in enumerate(dims):
            inner: Index = math.prod((source[j] for j in dims[position + 1 :]), start=1)
            value = floordiv(offset, inner) if inner != 1 else offset
            out[i] = mod(value, source[i]) if position else value
            if isinstance(out[i], Expr):
                out[i] = simplify(out[i], ranges)
        a, b = end_a, end_b
    return tuple(out)


def _group(
    source: Sequence[Index], target: Sequence[Index], have: list[int], want: list[int], a: int, b: int
) -> tuple[int, int]:
    """Ends of the smallest groups from a and b whose products agree (everything, when none do)."""
    for end_a in range(a + 1, len(have) + 1):
        left: Index = math.prod((source[i] for i in have[a:end_a]), start=1)
        for end_b in range(b + 1, len(want) + 1):
            right: Index = math.prod((target[i] for i in want[b:end_b]), start=1)
            if left == right:
                return end_a, end_b
    return len(have), len(want)


def _transpose(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    picked: list[Index] = [0] * len(index)
    for out_axis, in_axis in enumerate(node.attrs["perm"]):
        picked[in_axis] = index[out_axis]
    return self.element(node.inputs[0], tuple(picked), where)


def _slice(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    picked = tuple(
        start + i * step
        for start, step, i in zip(node.attrs["starts"], node.attrs["strides"], index, strict=True)
    )
    return self.element(node.inputs[0], picked, where)


def _reverse(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    shape = self.graph.values[node.inputs[0]].shape
    axes = set(node.attrs["axes"])
    picked = tuple(e - 1 - i if a in axes else i for a, (i, e) in enumerate(zip(index, shape, strict=True)))
    return self.element(node.inputs[0], picked, where)


def _pad(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    shape = self.graph.values[node.inputs[0]].shape
    moved = [self._tidy(i - low) for i, low in zip(index, node.attrs["low"], strict=True)]
    mode = node.attrs.get("mode", "constant")
    if mode != "constant":
        fold = _PAD_MODES[mode]
        touched = zip(moved, shape, node.attrs["low"], node.attrs["high"], strict=True)
        return self.element(
            node.inputs[0],
            tuple(i if low == 0 and high == 0 else fold(i, e) for i, e, low, high in touched),
            where,
        )
    guard: Value | None = None
    for i, e in zip(moved, shape, strict=True):
        guard = both(guard, self.inside(i, 0, e))
    value = self.element(node.inputs[0], tuple(moved), both(where, guard))
    if guard is None:
        return value
    return Select(value.dtype, guard, value, literal(value.dtype, node.attrs.get("value", 0)))


_PAD_MODES: dict[str, Callable[[Index, Index], Index]] = {
    "edge": lambda i, e: minimum(maximum(i, 0), e - 1),
    # reflection about both ends, valid for pads below the extent: |i|, then (e-1) - |(e-1) - |i||
    "reflect": lambda i, e: (e - 1) - maximum((e - 1) - maximum(i, -i), maximum(i, -i) - (e - 1)),
    "wrap": lambda i, e: mod(i, e),
}


def _iota(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    return FromIndex(self.graph.values[node.outputs[0]].dtype, index[node.attrs["axis"]])


def _full(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    return literal(self.graph.values[node.outputs[0]].dtype, node.attrs["value"])


def _dims(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    exprs = node.attrs["exprs"]
    if not exprs:
        return Const("i64", 0)
    if not index:
        return FromIndex("i64", exprs[0])
    if isinstance(index[0], int):
        return FromIndex("i64", exprs[index[0]])
    at = FromIndex("i64", index[0])
    value: Value = FromIndex("i64", exprs[-1])
    for k in range(len(exprs) - 2, -1, -1):
        value = Select("i64", Binary("bool", "eq", at, Const("i64", k)), FromIndex("i64", exprs[k]), value)
    return value


def _gather(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    data, indices = node.inputs
    axis = node.attrs["axis"]
    rank = len(self.graph.values[indices].shape)
    picked = self.element(indices, index[axis : axis + rank], where)
    at = self.position(picked, self.graph.values[data].shape[axis])
    return self.looked_up(data, (*index[:axis], at, *index[axis + rank :]), [axis], where)


def _gather_elements(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    data, indices = node.inputs
    axis = node.attrs["axis"]
    at = self.position(self.element(indices, index, where), self.graph.values[data].shape[axis])
    return self.looked_up(data, (*index[:axis], at, *index[axis + 1 :]), [axis], where)


def _gather_nd(self: Inliner, node: Node, index: tuple[Index, ...], where: Value | None) -> Value:
    data, indices = node.inputs
    batch = node.attrs.get("batch_dims", 0)
    outer = len(self.graph.values[indices].shape) - 1
    count = self.graph.values[indices].shape[-1]
    if not isinstance(count, int):
        raise CodegenError(
            f"node {node.name}: the last dim of gather_nd's indices must be constant, it is {count}"
        )
    at = [
        self.position(
            self.element(indices, (*index[:outer], k), where), self.graph.values[data].shape[batch + k]
        )
        for k in range(count)
    ]
    axes = range(batch, batch + count)
    return self.looked_up(data, (*index[:batch], *at, *index[outer:]), axes, where)


_RULES: dict[str, Callable[[Inliner, Node, tuple[Index, ...], Value | None], Value]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "iota": _iota,
    "full": _full,
    "dims": _dims,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "resize": resized,
}
