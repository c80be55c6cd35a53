"""From a region of the graph to a kernel: iteration spaces with scalar bodies.

Design choice: every block iterates over the dims of the value that it writes, and everything else is pulled
in by `inline.Inliner`.  Div and mod that reshapes leave on an iter are removed by splitting that iter, so
that accesses are affine whenever the model's shapes allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.build_rows import RowBuilder
from hwsdk.codegen.inline import Inliner, literal
from hwsdk.codegen.iters import split_kernel
from hwsdk.codegen.loop_ir import Binary, Cast, Const, Index, Let, Load, Ref, Select, Value
from hwsdk.codegen.neutral import neutral
from hwsdk.codegen.regions import Region
from hwsdk.codegen.rewrite import Rewriter, block_values, loads
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Range, Ranges, sym
from hwsdk.graph.graph import Graph, Node


@dataclass(frozen=True)
class Demand(Exception):
    """These values must be materialised before the kernel can be built."""

    values: frozenset[str]


def build_kernel(graph: Graph, region: Region, memory: frozenset[str], name: str, ranges: Ranges) -> Kernel:
    """The kernel of one region.  Raises Demand when an operand must be in memory first."""
    builder = RegionBuilder(graph, region, memory, name, dict(ranges))
    return split_kernel(builder.build(), builder.ranges)


def space(
    shape: Sequence[Index], prefix: str, kind: str = "parallel"
) -> tuple[tuple[Iter, ...], tuple[Index, ...]]:
    """Iters over a shape and the index they give; extents of 1 need no iter."""
    iters = tuple(Iter(f"{prefix}{a}", e, kind) for a, e in enumerate(shape) if e != 1)
    return iters, tuple(0 if e == 1 else sym(f"{prefix}{a}") for a, e in enumerate(shape))


@dataclass
class RegionBuilder:
    """What the builders of all region kinds share: inliners over the graph, and the kernel around finished blocks."""

    graph: Graph
    region: Region
    memory: frozenset[str]
    name: str
    ranges: dict[str, Range]
    _lets: list[Let] = field(default_factory=list)  # of the operands of an anchor

    def build(self) -> Kernel:
        anchor = self.graph.node(self.region.anchor)
        match self.region.kind:
            case "map" if anchor.op == "concat":
                blocks = self._concat(anchor)
            case "map" if anchor.op == "pad" and _plain_pad(anchor):
                blocks = self._padded(anchor)
            case "map":
                blocks = [self._map(out) for out in anchor.outputs]
            case "row":
                return RowBuilder(self).kernel(anchor)
            case "library":
                return self._library(anchor)
            case _:
                blocks = [self._anchored(anchor)]
        return self.kernel(blocks)

    # ----------------------------------------------------------------------------------------------- pieces
    def inliner(self, leaves: Iterable[str], iters: Iterable[Iter]) -> Inliner:
        for i in iters:
            self.ranges[i.name] = (0, i.extent - 1)
        known = frozenset(leaves)
        return Inliner(self.graph, known.__contains__, self.ranges)

    def _tensor(self, name: str) -> Tensor:
        info = self.graph.values[name]
        return Tensor(name, info.dtype, info.shape)

    def kernel(self, blocks: Sequence[Block], temps: Iterable[str] = ()) -> Kernel:
        written = {b.output for b in blocks}
        kept = set(temps)
        read: dict[str, None] = {}
        for b in blocks:
            for load in loads(*block_values(b)):
                if load.buffer not in written:
                    read.setdefault(load.buffer)
        return Kernel(
            self.name,
            self.region.kind,
            tuple(blocks),
            tuple(map(self._tensor, read)),
            tuple(self._tensor(n) for n in dict.fromkeys(b.output for b in blocks) if n not in kept),
            tuple(self._tensor(n) for n in dict.fromkeys(b.output for b in blocks) if n in kept),
            self.region.nodes,
        )

    # -------------------------------------------------------------------------------------------------- map
    def _map(self, out: str) -> Block:
        iters, index = space(self.graph.values[out].shape, "i")
        inliner = self.inliner(self.memory - {out}, iters)
        value = inliner.element(out, index)
        return Block(out, iters, out, index, value, tuple(inliner.lets))

    def _concat(self, node: Node) -> list[Block]:
        """One block per operand, each writing its slice of the result."""
        axis = node.attrs["axis"]
        offset: Index = 0
        blocks: list[Block] = []
        for position, source in enumerate(node.inputs):
            shape = self.graph.values[source].shape
            iters, index = space(shape, "i")
            inliner = self.inliner(self.memory, iters)
            target = tuple(i + offset if a == axis else i for a, i in enumerate(index))
            blocks.append(
                Block(
                    f"{node.outputs[0]}.{position}",
                    iters,
                    node.outputs[0],
                    target,
                    inliner.element(source, index),
                    tuple(inliner.lets),
                )
            )
            offset = offset + shape[axis]
        return blocks

    def _padded(self, node: Node) -> list[Block]:
        """The margins, then the operand in the middle: no element asks where it is."""
        out, source = node.outputs[0], node.inputs[0]
        shape, low, high = self.graph.values[source].shape, node.attrs["low"], node.attrs["high"]
        value = literal(self.graph.values[out].dtype, node.attrs["value"])
        blocks: list[Block] = []
        for axis in range(len(shape)):
            for start, size in ((0, low[axis]), (low[axis] + shape[axis], high[axis])):
                if size == 0:
                    continue
                # earlier axes only where the operand is, later ones over their whole padded length
                extents = [
                    e if a < axis else size if a == axis else low[a] + e + high[a]
                    for a, e in enumerate(shape)
                ]
                starts = [low[a] if a < axis else start if a == axis else 0 for a in range(len(shape))]
                blocks.append(self._margin(f"{out}.margin{len(blocks)}", out, extents, starts, value))
        iters, index = space(shape, "i")
        inliner = self.inliner(self.memory - {out}, iters)
        at = tuple(i + s for i, s in zip(index, low, strict=True))
        blocks.append(Block(out, iters, out, at, inliner.element(source, index), tuple(inliner.lets)))
        return blocks

    def _margin(self, name: str, out: str, extents: list[Index], starts: list[Index], value: Value) -> Block:
        iters, index = space(extents, "i")
        self.inliner((), iters)
        return Block(name, iters, out, tuple(i + s for i, s in zip(index, starts, strict=True)), value)

    # ------------------------------------------------------------------------ contraction, window: one anchor
    def _anchored(self, anchor: Node) -> Block:
        core, result = anchor.outputs[0], self.region.outputs[0]
        iters, index = space(self.graph.values[result].shape, "i")
        inliner = self.inliner((self.memory | {core}) - ({result} if result != core else set()), iters)
        finish = (
            inliner.element(result, index)
            if result != core
            else Load(self.graph.values[core].dtype, core, index)
        )
        uses = [x for x in loads(finish, *(x.value for x in inliner.lets)) if x.buffer == core]
        at = uses[0].index
        if any(u.index != at for u in uses):
            raise CodegenError(
                f"node {anchor.name}: its result is used at several positions in one fused region"
            )
        rules = {
            "dot_general": self._dot,
            "conv": self._conv,
            "reduce": self._reduce,
            "reduce_window": self._pool,
        }
        reduce, value, combiner, accumulator = rules[anchor.op](anchor, at, iters)
        finish = Rewriter(value=lambda v: self._as_result(v, core, accumulator))(finish)
        plain = isinstance(finish, Ref)
        return Block(
            core,
            (*iters, *reduce),
            result,
            index,
            value,
            tuple(inliner.lets) + tuple(self._lets),
            combiner,
            accumulator,
            None if plain else finish,
        )

    def _as_result(self, value: Value, core: str, accumulator: str) -> Value | None:
        if not (isinstance(value, Load) and value.buffer == core):
            return None
        acc = Ref(accumulator, "acc")
        return acc if value.dtype == accumulator else Cast(value.dtype, acc)

    def _operand(self, name: str, index: tuple[Index, ...], iters: Iterable[Iter], pure: bool) -> Value:
        """An element of an operand; `pure` operands must be a plain load, else they are demanded in memory."""
        inliner = self.inliner(self.memory, iters)
        inliner.prefix = f"h{len(self._lets)}_"
        if pure:
            inliner.stored = frozenset({name})
        value = inliner.element(name, index)
        if pure and (not isinstance(value, Load) or inliner.lets):
            raise Demand(frozenset({name}))
        self._lets.extend(inliner.lets)
        return value

    def _dot(
        self, node: Node, at: tuple[Index, ...], iters: tuple[Iter, ...]
    ) -> tuple[tuple[Iter, ...], Value, str, str]:
        a, b = node.inputs
        shapes = [self.graph.values[n].shape for n in (a, b)]
        batch, contract = node.attrs["batch"], node.attrs["contract"]
        index: list[list[Index]] = [[0] * len(s) for s in shapes]
        position = 0
        for pair in batch:
            for side, axis in enumerate(pair):
                index[side][axis] = at[position]
            position += 1
        for side in (0, 1):
            bound = {p[side] for p in (*batch, *contract)}
            for axis in range(len(shapes[side])):
                if axis not in bound:
                    index[side][axis] = at[position]
                    position += 1
        reduce: list[Iter] = []
        for number, pair in enumerate(contract):
            extent = shapes[0][pair[0]]
            it = Iter(f"k{number}", extent, "reduce")
            if extent != 1:
                reduce.append(it)
            for side, axis in enumerate(pair):
                index[side][axis] = sym(it.name) if extent != 1 else 0
        every = (*iters, *reduce)
        left, right = (self._operand(n, tuple(i), every, True) for n, i in zip((a, b), index, strict=True))
        accumulator = self._accumulator(node, left.dtype)
        return tuple(reduce), _product(left, right, accumulator), "sum", accumulator

    def _accumulator(self, node: Node, operand: str) -> str:
        stated = node.attrs.get("accumulate")
        if isinstance(stated, str):
            return stated
        if operand in ("f16", "bf16"):
            return "f32"
        out = self.graph.values[node.outputs[0]].dtype
        return "i32" if operand in ("i8", "u8") and out == "i32" else out if out != "bool" else operand

    def _conv(
        self, node: Node, at: tuple[Index, ...], iters: tuple[Iter, ...]
    ) -> tuple[tuple[Iter, ...], Value, str, str]:
        x, w = node.inputs
        shape, weights = self.graph.values[x].shape, self.graph.values[w].shape
        rank = len(shape) - 2
        groups = node.attrs.get("groups", 1)
        per_group = weights[-2]
        reduce = [Iter(f"t{d}", weights[d], "reduce") for d in range(rank) if weights[d] != 1]
        taps: list[Index] = [sym(f"t{d}") if weights[d] != 1 else 0 for d in range(rank)]
        channel: Index = 0
        if per_group != 1:
            reduce.append(Iter("k0", per_group, "reduce"))
            channel = sym("k0")
        inliner = self.inliner(self.memory, (*iters, *reduce))
        inliner.prefix, inliner.stored = "h", frozenset({x})
        index: list[Index] = [at[0]]
        guard: Value | None = None
        for d in range(rank):
            low = node.attrs["low"][d]
            i = at[1 + d] * node.attrs["strides"][d] + taps[d] * node.attrs["dilations"][d] - low
            if low != 0 or node.attrs["high"][d] != 0:
                more = inliner.inside(i, 0, shape[1 + d])
                guard = (
                    more if guard is None else guard if more is None else Binary("bool", "and", guard, more)
                )
            index.append(i)
        outputs = weights[-1] // groups if groups != 1 else weights[-1]
        group: Index = 0 if groups == 1 else at[-1] // outputs
        index.append(group * per_group + channel)
        left = inliner.element(x, tuple(index), guard)
        if not isinstance(left, Load) or inliner.lets:
            raise Demand(frozenset({x}))
        right = self._operand(w, (*taps, channel, at[-1]), (*iters, *reduce), True)
        accumulator = self._accumulator(node, left.dtype)
        return tuple(reduce), _product(left, right, accumulator), "sum", accumulator

    def _reduce(
        self, node: Node, at: tuple[Index, ...], iters: tuple[Iter, ...]
    ) -> tuple[tuple[Iter, ...], Value, str, str]:
        source = node.inputs[0]
        shape = self.graph.values[source].shape
        axes = set(node.attrs["axes"])
        rest = (
            iter(at) if not node.attrs.get("keepdims") else iter(i for a, i in enumerate(at) if a not in axes)
        )
        reduce = tuple(Iter(f"k{a}", e, "reduce") for a, e in enumerate(shape) if a in axes and e != 1)
        index = tuple(
            (0 if e == 1 else sym(f"k{a}")) if a in axes else next(rest) for a, e in enumerate(shape)
        )
        value = self._operand(source, index, (*iters, *reduce), False)
        accumulator = "f32" if value.dtype in ("f16", "bf16") else value.dtype
        value = value if value.dtype == accumulator else Cast(accumulator, value)
        return reduce, value, node.attrs["kind"], accumulator

    def _pool(
        self, node: Node, at: tuple[Index, ...], iters: tuple[Iter, ...]
    ) -> tuple[tuple[Iter, ...], Value, str, str]:
        source = node.inputs[0]
        shape = self.graph.values[source].shape
        window = node.attrs["window"]
        reduce = tuple(Iter(f"t{a}", e, "reduce") for a, e in enumerate(window) if e != 1)
        inliner = self.inliner(self.memory, (*iters, *reduce))
        inliner.prefix = "h"
        index: list[Index] = []
        guard: Value | None = None
        for a, e in enumerate(shape):
            tap: Index = sym(f"t{a}") if window[a] != 1 else 0
            i = at[a] * node.attrs["strides"][a] + tap * node.attrs["dilations"][a] - node.attrs["low"][a]
            if node.attrs["low"][a] != 0 or node.attrs["high"][a] != 0:
                more = inliner.inside(i, 0, e)
                guard = (
                    more if guard is None else guard if more is None else Binary("bool", "and", guard, more)
                )
            index.append(i)
        value = inliner.element(source, tuple(index), guard)
        self._lets.extend(inliner.lets)
        accumulator = "f32" if value.dtype in ("f16", "bf16") else value.dtype
        value = value if value.dtype == accumulator else Cast(accumulator, value)
        zero_outside = node.attrs["kind"] == "sum" and isinstance(value, Load)  # a guarded load is zero there
        if guard is not None and not zero_outside:
            outside = Const(accumulator, neutral(node.attrs["kind"], accumulator))
            value = Select(accumulator, guard, value, outside)
        return reduce, value, node.attrs["kind"], accumulator

    # ----------------------------------------------------------------------------------------------- library
    def _library(self, node: Node) -> Kernel:
        inputs = tuple(self._tensor(i) for i in dict.fromkeys(node.inputs))
        return Kernel(
            self.name, "library", (), inputs, tuple(map(self._tensor, node.outputs)), (), self.region.nodes
        )


def _plain_pad(node: Node) -> bool:
    """Constant margins of a fixed, not negative size?"""
    sizes = (*node.attrs["low"], *node.attrs["high"])
    return node.attrs["mode"] == "constant" and all(isinstance(s, int) and s >= 0 for s in sizes)


def _product(left: Value, right: Value, accumulator: str) -> Value:
    a = left if left.dtype == accumulator else Cast(accumulator, left)
    b = right if right.dtype == accumulator else Cast(accumulator, right)
    return Binary(accumulator, "mul", a, b)
