"""The engine of all rewriting passes: a graph is rebuilt node by node through rules.

Design choice: `emit` is a smart constructor.  It tries the rules on a node before the node exists; a rule
returns the value to use instead, or None for no change, and builds what it needs through `emit` again.  So
one forward walk brings every new node into normal form, and rules never edit a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim
from hwsdk.graph.graph import Graph, GraphBuilder, Node
from hwsdk.graph.opdef import Array, Value, canonical_attrs
from hwsdk.graph.ops import op_def
from hwsdk.graph.ops_shape import fill_value
from hwsdk.graph.scalar import uniform

_DEPTH = 200  # rules that call each other without end are a mistake in a rule, reported as such


@dataclass(frozen=True)
class Match:
    """A node that is about to be made: op, operands, canonical attributes; `type` of its only result."""

    op: str
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    type: Value


Rule = Callable[["Rewriting", Match], Value | None]
Rules = Mapping[str, Sequence[Rule]]  # by op; "*" for every op


class Rewriting:
    """One rebuild of one graph."""

    def __init__(self, graph: Graph, rules: Rules) -> None:
        self.graph = graph
        self.rules = rules
        self.builder = GraphBuilder(graph.name, graph.constraints)
        self.builder.reserve([*graph.values, *(n.name for n in graph.nodes)])
        self.map: dict[str, Value] = {}
        self.stem = ""
        self.depth = 0
        self.changed = False
        self._made: dict[tuple[Any, ...], Value] = {}
        self._uniform: dict[str, Any] = {}
        self._origins: dict[str, list[str]] = {}

    @property
    def constraints(self) -> Constraints:
        return self.builder.constraints

    def run(self) -> Graph:
        """The rewritten graph."""
        for value in self.graph.inputs:
            self._set(value.name, self.builder.input(value.name, value.dtype, value.shape))
        for node in self.graph.nodes:
            self._visit(node)
        for name, public in zip(self.graph.outputs, self.graph.output_names, strict=True):
            self.builder.output(self.operand(name), public)
        return self.builder.finish()

    def operand(self, name: str) -> Value:
        """What a value of the old graph became."""
        if name not in self.map:
            self._set(name, self.builder.constant_as(name, self.graph.constants[name]))
        return self.map[name]

    def _set(self, old: str, new: Value) -> None:
        self.map[old] = new
        self._origins.setdefault(new.name, []).append(old)

    def _visit(self, node: Node) -> None:
        self.stem = node.name
        inputs = tuple(map(self.operand, node.inputs))
        results = [self.graph.values[n] for n in node.outputs]
        if len(results) == 1:
            self.builder.release(node.name)
            self.builder.release(node.outputs[0])
            found = self._apply(Match(node.op, inputs, node.attrs, results[0]))
            if found is not None:
                self.changed = True
                self._set(node.outputs[0], found)
                return
        same = all(v.shape == self.graph.values[n].shape for v, n in zip(inputs, node.inputs, strict=True))
        if same and not any(n in self.builder.values for n in node.outputs):
            made = self.builder.copy(node, inputs, results)
        else:
            fresh = self.builder.node(node.op, inputs, name=node.name, **node.attrs)
            made = fresh if isinstance(fresh, tuple) else (fresh,)
        for name, value in zip(node.outputs, made, strict=True):
            self._set(name, value)

    def _apply(self, match: Match) -> Value | None:
        for rule in (*self.rules.get(match.op, ()), *self.rules.get("*", ())):
            found = rule(self, match)
            if found is not None:
                self._check(rule, match, found)
                return found
        return None

    def _check(self, rule: Rule, match: Match, found: Value) -> None:
        want = match.type
        same = found.dtype == want.dtype and found.rank == want.rank
        if not same or not all(map(self.constraints.equal, found.shape, want.shape)):
            name = getattr(rule, "__name__", "?")
            raise GraphError(f"rule {name} at node {self.stem} turned {match.op} of type {want} into {found}")

    # ----------------------------------------------------------------------------------------- what rules use
    def emit(self, op: str, inputs: Sequence[Value] = (), **attrs: Any) -> Value:
        """The value of a node, after the rules; an equal node made before is used again."""
        entry = op_def(op)
        found = canonical_attrs(entry, attrs, inputs)
        key = (op, tuple(v.name for v in inputs), found)
        if key in self._made:
            return self._made[key]
        ((kind, shape),) = entry.infer(found, inputs, self.constraints)
        self.depth += 1
        if self.depth > _DEPTH:
            raise GraphError(f"rewriting of node {self.stem} ({op}) does not end")
        value = self._apply(Match(op, tuple(inputs), found, Value("", kind, tuple(shape))))
        self.depth -= 1
        if value is None:
            value = self.builder.node(op, inputs, name=self.stem, **found)
        self._made[key] = value
        return value

    def constant(self, array: Array) -> Value:
        """A new constant."""
        return self.builder.constant(np.asarray(array, order="C"), f"{self.stem}.const")

    def producer(self, value: Value, *ops: str) -> Match | None:
        """The node behind a value as a Match, if it is one of these ops (any op if none is given)."""
        node = self.builder.producer(value)
        if node is None or len(node.outputs) != 1 or (ops and node.op not in ops):
            return None
        return Match(node.op, tuple(self.builder.values[n] for n in node.inputs), node.attrs, value)

    def array(self, value: Value) -> Array | None:
        """The array of a constant."""
        return self.builder.constant_of(value)

    def uniform(self, value: Value) -> Any | None:
        """The element (a NumPy scalar) of a value all of whose elements are the same known number."""
        if value.name not in self._uniform:
            self._uniform[value.name] = self._find_uniform(value)
        return self._uniform[value.name]

    def _find_uniform(self, value: Value) -> Any | None:
        array = self.array(value)
        if array is not None:
            flat = array.reshape(-1)
            known = 0 < flat.size <= 1 << 16 and uniform(flat) and flat[0] == flat[0]
            return flat[0] if known else None
        node = self.producer(value, "broadcast_in_dim", "reshape", "transpose", "full")
        if node is None:
            return None
        if node.op == "full":
            return fill_value(node.attrs["value"], numpy_dtype(value.dtype))[()]
        return self.uniform(node.inputs[0])

    def single_use(self, value: Value) -> bool:
        """Is the value read once in the old graph?  (Values that a rule has made count as read once.)"""
        old = self._origins.get(value.name, [])
        uses = sum(u.inputs.count(n) for n in old for u in self.graph.users(n))
        return uses + sum(self.graph.outputs.count(n) for n in old) <= 1


def full_like(r: Rewriting, shape: Sequence[Dim], kind: str, number: Any) -> Value:
    """A `full` of a number that `Rewriting.uniform` gave."""
    plain = bool(number) if kind == "bool" else int(number) if dtype(kind).kind in "iu" else float(number)
    return r.emit("full", shape=shape, dtype=kind, value=plain)
