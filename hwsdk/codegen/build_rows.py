"""Blocks of a row region: reductions over rows, the maps before and after them, and what is kept between.

Design choice: a value gets a block of its own only if it is reduced, broadcast back along the row, read outside, or
needed by several blocks and dear to compute; everything else is computed again where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        order = {o: i for i, n in enumerate(self.builder.graph.nodes) for o in n.outputs}
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
        while True:
            counts: dict[str, int] = {}
            for root in roots:
                for value in self._computed_in(root, roots):
                    counts[value] = counts.get(value, 0) + 1
            shared = [
                v
                for v, c in counts.items()
                if c > 1
                and v not in roots
                and squeeze(self.builder.graph.values[v].shape) == size
                and self._cost(v, roots) > TEMPORARY_COST
                and self._is_arithmetic(v)
            ]
            if not shared:
                return sorted(roots, key=lambda v: order[v])
            roots.add(max(shared, key=lambda v: order[v]))

    def _is_arithmetic(self, value: str) -> bool:
        producer = self.builder.graph.producer(value)
        return producer is not None and producer.op in ELEMENTWISE

    def _computed_in(self, root: str, roots: set[str]) -> set[str]:
        """Values that the block of `root` computes on the way."""
        seen: set[str] = set()
        producer = self.builder.graph.producer(root)
        stack = list(producer.inputs) if producer else []
        while stack:
            v = stack.pop()
            node = self.builder.graph.producer(v)
            if v in seen or v in roots or v in self.builder.memory or node is None:
                continue
            seen.add(v)
            stack.extend(node.inputs)
        return seen

    def _cost(self, value: str, roots: set[str]) -> int:
        total = 0
        for v in {value} | self._computed_in(value, roots):
            node = self.builder.graph.producer(v)
            assert node is not None
            if node.op in ELEMENTWISE:
                total += 10 if node.op in TRANSCENDENTAL else 3 if node.op in ("div", "sqrt", "rsqrt") else 1
            total += sum(
                i in self.builder.memory and i not in self.builder.graph.constants for i in node.inputs
            )
        return total

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
