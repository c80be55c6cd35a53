"""Blocks of a row region: reductions over rows, the maps before and after them, and what is kept between.

Design choice: a value gets a block of its own only if it is reduced, broadcast back along the row, read outside, or
needed by several blocks and dear to compute; everything else is computed again where it is needed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hwsdk.codegen.blocks import Block, Iter, Kernel
from hwsdk.codegen.fusion import reduced_axes, squeeze
from hwsdk.codegen.inline import ELEMENTWISE, INDEX_OPS
from hwsdk.codegen.loop_ir import Cast, Index, Ref
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Node

if TYPE_CHECKING:
    from hwsdk.codegen.build import RegionBuilder

TRANSCENDENTAL = frozenset(
    (
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log1p",
            "pow",
            "erf",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        ),
        *("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2"),
    )
)
TEMPORARY_COST = 4  # scalar operations and loads above which a row value is kept instead of computed again


@dataclass(frozen=True)
class RowBuilder:
    builder: RegionBuilder

    def kernel(self, anchor: Node) -> Kernel:
        """The kernel of a row region: a block per reduction, per broadcast statistic, per kept row and per output."""
        full = self.builder.graph.values[anchor.inputs[0]].shape
        axes = reduced_axes(self.builder.graph, anchor)
        roots = self._roots(full, axes)
        blocks = [self._block(r, full, axes, roots) for r in roots]
        return self.builder.kernel(blocks, set(roots) - set(self.builder.region.outputs))

    def _roots(self, full: tuple[Index, ...], axes: tuple[int, ...]) -> list[str]:
        """Values that get a block of their own, in order: reductions, statistics that are broadcast, outputs,
        and row-long values that several blocks would compute at a cost.
        """
        members = [self.builder.graph.node(n) for n in self.builder.region.nodes]
        roots = {o for m in members if m.op == "reduce" for o in m.outputs} | set(self.builder.region.outputs)
        size = squeeze(full)
        for m in members:
            source = m.inputs[0]
            grows = m.op in INDEX_OPS and squeeze(self.builder.graph.values[m.outputs[0]].shape) == size
            if (
                grows
                and squeeze(self.builder.graph.values[source].shape) != size
                and source not in self.builder.memory
            ):
                producer = self.builder.graph.producer(source)
                while (
                    producer is not None
                    and producer.op in INDEX_OPS
                    and producer.name in self.builder.region.nodes
                ):
                    source = producer.inputs[0]
                    producer = self.builder.graph.producer(source)
                if producer is not None and producer.name in self.builder.region.nodes:
                    roots.add(source)
        return self._with_shared(roots, size)

    def _with_shared(self, roots: set[str], size: tuple[Index, ...]) -> list[str]:
        """The roots and the row-long values that several of their blocks would compute at a cost, in order.

        Last value first: what becomes a root changes only who computes the values before it.
        """
        graph = self.builder.graph
        owners: dict[str, set[str]] = {r: {r} for r in roots}  # some of the blocks that compute a value
        waiting = [(-graph.place(r), r) for r in roots]
        heapify(waiting)
        while waiting:
            _, value = heappop(waiting)
            whole = squeeze(graph.values[value].shape) == size
            several = len(owners[value]) > 1 and whole and self._is_arithmetic(value)
            if several and self._is_costly(value, roots):
                roots.add(value)
                owners[value] = {value}
            for operand in self._operands(value, roots):
                if operand not in owners:
                    owners[operand] = set()
                    heappush(waiting, (-graph.place(operand), operand))
                if len(owners[operand]) < 2:
                    owners[operand] |= owners[value]
        return sorted(roots, key=graph.place)

    def _operands(self, value: str, roots: Container[str]) -> list[str]:
        """What a block computes on the way to a value, one step."""
        graph, memory = self.builder.graph, self.builder.memory
        node = graph.producer(value)
        inputs = node.inputs if node is not None else ()
        return [v for v in inputs if v not in roots and v not in memory and graph.producer(v) is not None]

    def _is_arithmetic(self, value: str) -> bool:
        producer = self.builder.graph.producer(value)
        return producer is not None and producer.op in ELEMENTWISE

    def _is_costly(self, value: str, roots: set[str]) -> bool:
        """Do the operations and loads behind a value cost more than keeping it?"""
        graph, memory = self.builder.graph, self.builder.memory
        total = 0
        seen = {value}
        stack = [value]
        while stack and total <= TEMPORARY_COST:
            v = stack.pop()
            node = graph.producer(v)
            assert node is not None
            if node.op in ELEMENTWISE:
                total += 10 if node.op in TRANSCENDENTAL else 3 if node.op in ("div", "sqrt", "rsqrt") else 1
            total += sum(i in memory and i not in graph.constants for i in node.inputs)
            more = [i for i in self._operands(v, roots) if i not in seen]
            seen.update(more)
            stack.extend(more)
        return total > TEMPORARY_COST

    def _block(self, root: str, full: tuple[Index, ...], axes: tuple[int, ...], roots: list[str]) -> Block:
        node = self.builder.graph.producer(root)
        assert node is not None
        rows = [Iter(f"p{a}", e) for a, e in enumerate(full) if e != 1 and a not in axes]
        inner = [Iter(f"r{a}", full[a]) for a in axes]
        at = {it.name[1:]: sym(it.name) for it in (*rows, *inner)}
        leaves = (self.builder.memory | set(roots)) - {root}
        if node.op == "reduce":
            reduce = tuple(replace(i, kind="reduce") for i in inner)
            index = tuple(at.get(str(a), 0) for a in range(len(full)))
            inliner = self.builder.inliner(leaves, (*rows, *inner))
            value = inliner.element(node.inputs[0], index)
            accumulator = "f32" if value.dtype in ("f16", "bf16") else value.dtype
            out = self.builder.graph.values[root]
            finish = None if accumulator == out.dtype else Cast(out.dtype, Ref(accumulator, "acc"))
            value = value if value.dtype == accumulator else Cast(accumulator, value)
            where = self._index(out.shape, rows)
            return Block(
                root,
                (*rows, *reduce),
                root,
                where,
                value,
                tuple(inliner.lets),
                node.attrs["kind"],
                accumulator,
                finish,
            )
        shape = self.builder.graph.values[root].shape
        whole = squeeze(shape) == squeeze(full)
        iters = [*rows, *inner] if whole else rows
        index = self._index(shape, iters)
        inliner = self.builder.inliner(leaves, iters)
        value = inliner.element(root, index)
        return Block(root, tuple(iters), root, index, value, tuple(inliner.lets))

    def _index(self, shape: tuple[Index, ...], iters: Sequence[Iter]) -> tuple[Index, ...]:
        """The iters in order, one for each real dim of the shape."""
        rest = iter(iters)
        return tuple(0 if e == 1 else sym(next(rest).name) for e in shape)
