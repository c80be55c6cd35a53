"""The graph: values in static single assignment over the primitive ops, and the builder that makes it.

Design choice: a graph is frozen and always complete (every value has a dtype and a symbolic shape).  Only the
builder makes graphs; it runs each op's shape rule as the node is added, so an error names the node that
caused it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy, numpy_dtype
from hwsdk.errors import GraphError, HwsdkError
from hwsdk.graph.constraints import SIZE_LIMIT, Constraints
from hwsdk.graph.dims import Dim, Expr, as_dim, free_symbols, terms
from hwsdk.graph.opdef import Array, Attrs, Typed, Value, canonical_attrs, map_dims
from hwsdk.graph.ops import op_def

__all__ = ["Array", "Attrs", "Graph", "GraphBuilder", "Node", "Value"]


@dataclass(frozen=True)
class Node:
    """One use of an op.  `inputs` and `outputs` are names of values."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Graph:
    """nodes are in topological order; `outputs` are value names, `output_names` their public names."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    values: Mapping[str, Value]
    constraints: Constraints
    output_names: tuple[str, ...]

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {out: node for node in self.nodes for out in node.outputs}

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {out: place for place, node in enumerate(self.nodes) for out in node.outputs}

    @cached_property
    def _users(self) -> dict[str, tuple[Node, ...]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def node(self, name: str) -> Node:
        """The node of that name; KeyError if there is none."""
        return self._nodes[name]

    def producer(self, name: str) -> Node | None:
        """The node that defines a value; None for inputs and constants."""
        return self._producers.get(name)

    def place(self, name: str) -> int:
        """The position of the node that defines a value; KeyError for inputs and constants."""
        return self._places[name]

    def users(self, name: str) -> tuple[Node, ...]:
        """The nodes that read a value, each once, in order."""
        return self._users.get(name, ())

    def value(self, name: str) -> Value:
        """The value of that name; GraphError if there is none."""
        try:
            return self.values[name]
        except KeyError:
            raise GraphError(f"graph {self.name}: no value {name!r}") from None


class GraphBuilder:
    """Builds one graph, node by node.

    `constraints` may be given (a pass continues with those of the graph that it rewrites).
    """

    def __init__(self, name: str, constraints: Constraints | None = None) -> None:
        self.name = name
        self.constraints = constraints.copy() if constraints is not None else Constraints()
        self.values: dict[str, Value] = {}
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._constants: dict[str, Array] = {}
        self._outputs: dict[str, str] = {}  # public name -> value
        self._taken: dict[str, int] = {}
        self._node_names: set[str] = set()
        self._reserved: set[str] = set()
        self._producers: dict[str, Node] = {}

    # ------------------------------------------------------------------------------------------------- values
    def fresh(self, stem: str) -> str:
        """A value name that is not taken yet: `stem`, or `stem.1`, `stem.2` ..."""
        stem = stem or "v"
        name = stem
        while name in self.values or name in self._node_names or name in self._reserved:
            self._taken[stem] = self._taken.get(stem, 0) + 1
            name = f"{stem}.{self._taken[stem]}"
        return name

    def _define(self, value: Value) -> Value:
        if value.name in self.values:
            raise GraphError(f"graph {self.name}: value {value.name!r} is defined twice")
        self.values[value.name] = value
        return value

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """A graph input; its symbols are declared with the range 0 .. unbounded unless they were before."""
        numpy_dtype(dtype)
        dims = tuple(as_dim(d) for d in shape)
        for d in dims:
            for symbol in sorted(free_symbols(d)):
                if symbol not in self.constraints.ranges:
                    self.constraints.declare(symbol)
            if isinstance(d, int) and d < 0:
                raise GraphError(f"input {name!r}: dimension {d} is negative")
            if any(abs(c) >= SIZE_LIMIT for c, _ in terms(d)):
                raise GraphError(f"input {name!r}: dimension {d} does not fit 64 bits")
        value = self._define(Value(name, dtype, dims))
        self._inputs.append(value)
        return value

    def constant(self, array: Any, name: str | None = None) -> Value:
        """A constant; the array is kept (not copied) and made read-only."""
        array = np.asarray(array)
        kind = from_numpy(array.dtype)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        value = self._define(Value(self.fresh(name or "const"), kind, tuple(array.shape)))
        self._constants[value.name] = array
        return value

    def constant_as(self, name: str, array: Array) -> Value:
        """Take over a constant of another graph under the name that it has there."""
        self._constants[name] = array
        return self._define(Value(name, from_numpy(array.dtype), tuple(array.shape)))

    def constant_of(self, value: Value) -> Array | None:
        """The array of a constant value; None for others."""
        return self._constants.get(value.name)

    def producer(self, value: Value) -> Node | None:
        """The node that defines a value; None for inputs and constants."""
        return self._producers.get(value.name)

    def reserve(self, names: Iterable[str]) -> None:
        """Names that `fresh` must not give away: those of a graph whose nodes will be copied."""
        self._reserved.update(names)

    def release(self, name: str) -> None:
        """A reserved name may be given away after all."""
        self._reserved.discard(name)

    # -------------------------------------------------------------------------------------------------- nodes
    def copy(self, node: Node, inputs: Sequence[Value], results: Sequence[Value]) -> tuple[Value, ...]:
        """Take over a node of another graph, with the names and types that it has there."""
        if node.name in self._node_names:
            raise GraphError(f"graph {self.name}: two nodes are called {node.name!r}")
        self._node_names.add(node.name)
        return self._record(node.name, node.op, inputs, results, Attrs(node.attrs))

    def node(
        self,
        op: str,
        inputs: Sequence[Value] = (),
        *,
        name: str | None = None,
        outputs: Sequence[str] | None = None,
        **attrs: Any,
    ) -> Any:
        """Add a node; returns its value, or a tuple of values for an op with several results.

        `name` names the node and is the stem of its outputs' names, unless `outputs` gives these.
        """
        label = self.fresh(name or op)
        before = self.constraints.copy()
        try:
            entry = op_def(op)
            least, most = entry.inputs
            if len(inputs) < least or (most is not None and len(inputs) > most):
                raise GraphError(
                    f"{op} takes {least if most == least else f'{least} or more'} operands, not {len(inputs)}"
                )
            for value in inputs:
                if self.values.get(value.name) is not value:
                    raise GraphError(f"operand {value} is not a value of this graph")
            found = canonical_attrs(entry, attrs, inputs)
            results = entry.infer(found, inputs, self.constraints)
        except HwsdkError as e:
            self.constraints.restore(before)  # a refused node leaves no facts behind
            raise type(e)(f"graph {self.name}: node {label} ({op}): {e}") from None
        return self._append(label, op, inputs, results, found, outputs)

    def _append(
        self,
        label: str,
        op: str,
        inputs: Sequence[Value],
        results: Typed,
        attrs: Attrs,
        outputs: Sequence[str] | None,
    ) -> Any:
        self._node_names.add(label)
        if outputs is None:
            outputs = [label] if len(results) == 1 else [f"{label}.{i}" for i in range(len(results))]
            self._node_names.discard(label)
            outputs = [self.fresh(o) for o in outputs]
            self._node_names.add(label)
        made = [Value(out, kind, tuple(shape)) for out, (kind, shape) in zip(outputs, results, strict=True)]
        values = self._record(label, op, inputs, made, attrs)
        return values[0] if len(values) == 1 else values

    def _record(
        self, label: str, op: str, inputs: Sequence[Value], results: Iterable[Value], attrs: Attrs
    ) -> tuple[Value, ...]:
        values = tuple(map(self._define, results))
        node = Node(label, op, tuple(v.name for v in inputs), tuple(v.name for v in values), attrs)
        self._nodes.append(node)
        self._producers.update((v.name, node) for v in values)
        return values

    def output(self, value: Value, name: str | None = None) -> None:
        """Make a value an output of the graph under a public name."""
        public = name or value.name
        if self.values.get(value.name) is not value:
            raise GraphError(f"graph {self.name}: output {public!r} is not a value of this graph")
        if public in self._outputs:
            raise GraphError(f"graph {self.name}: two outputs are called {public!r}")
        self._outputs[public] = value.name

    def finish(self) -> Graph:
        """The graph, with every dim rewritten by what was learnt about it."""
        resolve = self.constraints.simplify
        memo: dict[Expr, Dim] = {}

        def settle(d: Dim) -> Dim:
            if isinstance(d, int):
                return d
            if d not in memo:
                memo[d] = resolve(d)
            return memo[d]

        values = {n: Value(n, v.dtype, tuple(map(settle, v.shape))) for n, v in self.values.items()}
        nodes = tuple(Node(n.name, n.op, n.inputs, n.outputs, map_dims(n.attrs, settle)) for n in self._nodes)
        return Graph(
            self.name,
            tuple(values[v.name] for v in self._inputs),
            tuple(self._outputs.values()),
            nodes,
            dict(self._constants),
            values,
            self.constraints.copy(frozen=True),
            tuple(self._outputs),
        )
