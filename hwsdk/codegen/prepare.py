"""The last graph rewrites before fusion: what code generation wants said explicitly.

Design choice: these are not optimisations but normal forms, so that later rooms have fewer cases: padding of
a convolution is a pad of its own, transposed convolution is a convolution of a dilated input, updates that meet
add up in the accumulation dtype, and every output is a value that some kernel writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hwsdk.codegen.neutral import neutral
from hwsdk.graph.dims import product
from hwsdk.graph.graph import Graph, GraphBuilder, Node
from hwsdk.graph.opdef import Value
from hwsdk.graph.ops_contract import contraction_dtypes
from hwsdk.graph.ops_reduce import accumulation_dtype
from hwsdk.graph.scalar import convert


def prepare(graph: Graph, pads: str = "products", wide_bytes: bool = False) -> Graph:
    """The graph in the normal form that `fusion.partition` expects.

    pads: which windows get their padding as a pad of its own.  "all": for chips whose vectors cannot leave out
    elements; "products": all but depthwise convolutions and poolings; "none".  wide_bytes: products of bytes get
    operands of the accumulation dtype, for chips that would widen each element at each use.
    """
    return _Preparer(graph, pads, wide_bytes).run()


class _Preparer:
    def __init__(self, graph: Graph, pads: str, wide_bytes: bool) -> None:
        self.graph = graph
        self.pads, self.wide_bytes = pads, wide_bytes
        self.builder = GraphBuilder(graph.name, graph.constraints.copy())
        self.map: dict[str, Value] = {}

    def run(self) -> Graph:
        for value in self.graph.inputs:
            self.map[value.name] = self.builder.input(value.name, value.dtype, value.shape)
        for name, array in self.graph.constants.items():
            self.map[name] = self.builder.constant(array, name)
        for node in self.graph.nodes:
            made = self._node(node)
            for name, value in zip(node.outputs, made, strict=True):
                self.map[name] = value
        taken: set[str] = set()
        fixed = {v.name for v in self.graph.inputs} | set(self.graph.constants)
        for name, public in zip(self.graph.outputs, self.graph.output_names, strict=True):
            value = self.map[name]
            if name in fixed or value.name in taken:
                value = self.builder.node("reshape", [value], shape=value.shape, name=f"{public}.copy")
            taken.add(value.name)
            self.builder.output(value, public)
        return self.builder.finish()

    def _node(self, node: Node) -> tuple[Value, ...]:
        inputs = [self.map[i] for i in node.inputs]
        if self.wide_bytes and node.op in ("dot_general", "conv"):
            inputs = self._widened(node, inputs)
        if node.op == "conv" and self._padded(node) and self._apart(node):
            return (self._explicit_padding(node, inputs),)
        if node.op == "reduce_window" and self._padded(node) and self.pads == "all":
            return (self._explicit_pool(node, inputs[0]),)
        if node.op == "conv_transpose":
            return (self._as_convolution(node, inputs),)
        if node.op in ("scatter_nd", "scatter_elements") and node.attrs["combiner"] in ("add", "mul"):
            return (self._accumulating(node, inputs),)
        made = self.builder.node(node.op, inputs, name=node.name, **node.attrs)
        return made if isinstance(made, tuple) else (made,)

    def _one(self, op: str, inputs: list[Value], **attrs: Any) -> Value:
        """A node with one result."""
        made = self.builder.node(op, inputs, **attrs)
        assert isinstance(made, Value)
        return made

    def _widened(self, node: Node, inputs: list[Value]) -> list[Value]:
        """Operands that are bytes, in the dtype of the sums; the result is the same to the bit."""
        a, b = (v.dtype for v in inputs)
        if not {a, b} <= {"i8", "u8"}:
            return inputs
        wide, out = contraction_dtypes(a, b, node.attrs["accumulate"], node.attrs["dtype"])
        return inputs if wide != "i32" or out != wide else [self._cast(v, wide) for v in inputs]

    def _cast(self, value: Value, dtype: str) -> Value:
        array = self.builder.constant_of(value)
        if array is not None:
            return self.builder.constant(convert(array, dtype))
        return self._one("cast", [value], dtype=dtype)

    def _accumulating(self, node: Node, inputs: list[Value]) -> Value:
        """Memory holds the running sums (or products), so it holds them in the accumulation dtype."""
        data, index, updates = inputs
        wide = accumulation_dtype(data.dtype)
        if wide == data.dtype:
            return self._one(node.op, inputs, name=node.name, **node.attrs)
        data, updates = (
            self._one("cast", [v], dtype=wide, name=f"{node.name}.{part}")
            for v, part in ((data, "data"), (updates, "updates"))
        )
        total = self._one(node.op, [data, index, updates], name=node.name, **node.attrs)
        return self._one("cast", [total], dtype=inputs[0].dtype, name=f"{node.name}.rounded")

    def _padded(self, node: Node) -> bool:
        return any(p != 0 for p in (*node.attrs["low"], *node.attrs["high"]))

    def _apart(self, node: Node) -> bool:
        """Is the padding of a convolution a pad of its own?"""
        return self.pads == "all" or (self.pads == "products" and not self._depthwise(node))

    def _depthwise(self, node: Node) -> bool:
        return node.attrs.get("groups", 1) > 1 and self.graph.values[node.inputs[1]].shape[-2] == 1

    def _explicit_padding(self, node: Node, inputs: list[Value]) -> Value:
        low, high = (0, *node.attrs["low"], 0), (0, *node.attrs["high"], 0)
        x = self._one(
            "pad", [inputs[0]], low=low, high=high, mode="constant", value=0.0, name=f"{node.name}.pad"
        )
        zero = (0,) * len(node.attrs["low"])
        return self._one("conv", [x, inputs[1]], name=node.name, **{**node.attrs, "low": zero, "high": zero})

    def _explicit_pool(self, node: Node, x: Value) -> Value:
        value = neutral(node.attrs["kind"], x.dtype)
        low, high = node.attrs["low"], node.attrs["high"]
        x = self._one("pad", [x], low=low, high=high, mode="constant", value=value, name=f"{node.name}.pad")
        zero = (0,) * len(low)
        return self._one("reduce_window", [x], name=node.name, **{**node.attrs, "low": zero, "high": zero})

    def _as_convolution(self, node: Node, inputs: list[Value]) -> Value:
        """conv_transpose(x, w, s, p) = conv(x with s-1 zeros between elements and (k-1)*d - p around, w
        reversed).
        """
        x, w = inputs
        rank = len(x.shape) - 2
        if self._tiles(node, w, rank):
            return self._as_product(node, x, w, rank)
        strides, dilations = node.attrs["strides"], node.attrs["dilations"]
        extra = node.attrs["output_padding"]
        x = self._dilate(x, strides, node.name)
        window = w.shape[:rank]
        reach = [(k - 1) * d for k, d in zip(window, dilations, strict=True)]
        low = tuple(r - p for r, p in zip(reach, node.attrs["low"], strict=True))
        high = tuple(r - p + e for r, p, e in zip(reach, node.attrs["high"], extra, strict=True))
        x = self._one(
            "pad",
            [x],
            low=(0, *low, 0),
            high=(0, *high, 0),
            mode="constant",
            value=0.0,
            name=f"{node.name}.pad",
        )
        flipped = self._one("reverse", [w], axes=tuple(range(rank)), name=f"{node.name}.flip")
        zero = (0,) * rank
        return self._one(
            "conv",
            [x, flipped],
            strides=(1,) * rank,
            low=zero,
            high=zero,
            dilations=dilations,
            groups=node.attrs.get("groups", 1),
            name=node.name,
        )

    def _tiles(self, node: Node, w: Value, rank: int) -> bool:
        """Does every input element make a window of outputs of its own?"""
        attrs = node.attrs
        plain = not any((*attrs["low"], *attrs["high"], *attrs["output_padding"])) and attrs["groups"] == 1
        return plain and set(attrs["dilations"]) == {1} and tuple(attrs["strides"]) == tuple(w.shape[:rank])

    def _as_product(self, node: Node, x: Value, w: Value, rank: int) -> Value:
        """Windows that do not meet: x[n, i.., c] * w[c, t.., o], then each window to its place."""
        name = node.name
        window, out = w.shape[:rank], w.shape[-1]
        order = (rank, *range(rank), rank + 1)
        flat = self._one("transpose", [w], perm=order, name=f"{name}.weights")
        flat = self._one("reshape", [flat], shape=(w.shape[rank], product(window) * out))
        types = {k: node.attrs[k] for k in ("accumulate", "dtype")}
        y = self._one("dot_general", [x, flat], contract=((rank + 1, 0),), name=name, **types)
        space = x.shape[1 : 1 + rank]
        y = self._one("reshape", [y], shape=(x.shape[0], *space, *window, out))
        pairs = [axis for d in range(rank) for axis in (1 + d, 1 + rank + d)]
        y = self._one("transpose", [y], perm=(0, *pairs, 1 + 2 * rank))
        grown = tuple(e * k for e, k in zip(space, window, strict=True))
        return self._one("reshape", [y], shape=(x.shape[0], *grown, out), name=f"{name}.windows")

    def _dilate(self, x: Value, strides: Iterable[int], name: str) -> Value:
        """x[n, h, w, c] -> [n, (h-1)*s+1, ..., c]: a unit dim beside each spatial dim, padded to s, merged,
        cut.
        """
        for axis, s in enumerate(strides, start=1):
            if s == 1:
                continue
            shape = x.shape
            wide = self._one("reshape", [x], shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
            rank = len(shape) + 1
            high = tuple(s - 1 if a == axis + 1 else 0 for a in range(rank))
            wide = self._one("pad", [wide], low=(0,) * rank, high=high, mode="constant", value=0.0)
            merged = self._one("reshape", [wide], shape=(*shape[:axis], shape[axis] * s, *shape[axis + 1 :]))
            limits = tuple(shape[axis] * s - (s - 1) if a == axis else e for a, e in enumerate(shape))
            x = self._one(
                "slice",
                [merged],
                starts=(0,) * len(shape),
                limits=limits,
                strides=(1,) * len(shape),
                name=f"{name}.dilate{axis}",
            )
        return x
