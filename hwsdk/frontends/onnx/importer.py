"""The walk over an ONNX graph: sorts it, refuses what is unsupported, and turns node after node into
primitives.

For each node the first of these that applies gives its outputs: a shape rule, if all inputs are integers
known as dims; NumPy at import, if all inputs are small constants; the importer of the operator.

Design choice: findings are collected, not thrown.  A node that cannot be imported poisons its outputs, the
walk goes on, and one error at the end lists everything that the model asks for and does not get.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwsdk.errors import HwsdkError, ModelError, UnsupportedError
from hwsdk.frontends.arrays import Array, Model
from hwsdk.frontends.dim_options import DimOptions
from hwsdk.frontends.onnx import reader, shape_values
from hwsdk.frontends.onnx.node import IMPORTERS, Node, Tensor
from hwsdk.graph import dims as d
from hwsdk.graph.dims import Dim
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret

FOLD_LIMIT = 16384  # elements up to which nodes of constants are computed at import
MALFORMED = (
    ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, ZeroDivisionError,
    MemoryError, AssertionError, RecursionError,
)  # fmt: skip
_UNNAMED = frozenset(("", "?", "-1", "None"))


def describe(node: Any, index: int) -> str:
    """How messages call a node."""
    return f"node {node.name!r}" if node.name else f"node #{index}"


def kind_of(node: Any) -> str:
    """The operator with its domain."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def sorted_nodes(nodes: Sequence[Any], given: Iterable[str], outputs: Sequence[str]) -> list[tuple[int, Any]]:
    """The nodes that the outputs need, each after what it reads, otherwise in the order of the file."""
    known = set(given)
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producer or name in known:
                raise ModelError(
                    f"{describe(node, index)} ({node.op_type}) defines {name!r}, which is defined already"
                )
            producer[name] = index
    needed: dict[int, list[int]] = {}
    waiting = [(name, "the model's output") for name in outputs]
    while waiting:
        name, reader_name = waiting.pop()
        if name in known:
            continue
        if name not in producer:
            raise ModelError(f"{reader_name} reads {name!r}, which nothing defines")
        index = producer[name]
        if index not in needed:
            node = nodes[index]
            reads = [i for i in node.input if i] + list(outer_names(node))
            needed[index] = [producer[i] for i in reads if i not in known and i in producer]
            waiting += [(i, f"{describe(node, index)} ({node.op_type})") for i in reads]
    return [(i, nodes[i]) for i in _in_order(needed, nodes)]


def _in_order(needs: dict[int, list[int]], nodes: Sequence[Any]) -> list[int]:
    left = {i: len(set(n)) for i, n in needs.items()}
    users: dict[int, list[int]] = {}
    for index, sources in needs.items():
        for source in set(sources):
            users.setdefault(source, []).append(index)
    ready = [i for i, n in left.items() if not n]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, user)
    if len(order) < len(needs):
        stuck = min(set(needs) - set(order))
        raise ModelError(f"{describe(nodes[stuck], stuck)} ({nodes[stuck].op_type}) is part of a cycle")
    return order


def outer_names(node: Any) -> set[str]:
    """Names that the subgraphs of a node read from outside."""
    found: set[str] = set()
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {v.name for v in (*graph.input, *graph.initializer)}
            own |= {o for n in graph.node for o in n.output}
            reads = {i for n in graph.node for i in n.input if i} | {o.name for o in graph.output}
            for inner in graph.node:
                reads |= outer_names(inner)
            found |= reads - own
    return found


class OnnxImporter:
    """Imports one model; `run` gives the graph."""

    def __init__(self, proto: Any, folder: Path | None, options: DimOptions) -> None:
        self.proto = proto
        self.folder = folder
        self.options = options
        self.versions = reader.opsets(proto)
        self.model = Model(_plain(proto.graph.name) or "model")
        self.tensors: dict[str, Tensor] = {}
        self.poisoned: set[str] = set()
        self.findings: list[str] = []

    # --------------------------------------------------------------------------------------------- the whole
    def run(self) -> Graph:
        """The graph; ModelError for a malformed model, UnsupportedError listing all that is unsupported."""
        graph = self.proto.graph
        initialisers = {t.name: t for t in graph.initializer}
        inputs = [v for v in graph.input if v.name not in initialisers]
        outputs = [v.name for v in graph.output]
        if graph.sparse_initializer:
            self.findings.append("sparse initializers")
        nodes = sorted_nodes(graph.node, {*initialisers, *(v.name for v in inputs)}, outputs)
        self._report_missing(nodes)
        self._add_inputs(inputs)
        wanted = {i for _, n in nodes for i in (*n.input, *outer_names(n))} | set(outputs)
        for name, tensor in initialisers.items():
            if name in wanted:
                self._attempt(
                    f"initializer {name!r}", [name], functools.partial(self._constant, name, tensor)
                )
        for index, node in nodes:
            self._import_node(node, index)
        self._stop_if_unsupported()
        for name in outputs:
            self.model.output(name, self.tensors[name].data(self.model))
        return self.model.graph()

    def _report_missing(self, nodes: Sequence[tuple[int, Any]]) -> None:
        """Lists all operators without importer at once."""
        for index, node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            if (domain, node.op_type) not in IMPORTERS and kind_of(node) != "If":
                control = ": it loops as often as data or sizes say, and the graph has no loops"
                why = control if kind_of(node) in ("Loop", "Scan") else ""
                self.findings.append(f"{describe(node, index)}: operator {kind_of(node)}{why}")
        self._stop_if_unsupported()

    def _stop_if_unsupported(self) -> None:
        if not self.findings:
            return
        unique = list(dict.fromkeys(self.findings))
        lines = "".join(f"\n  {f}" for f in unique)
        raise UnsupportedError(f"the model uses what is not supported ({len(unique)}):{lines}")

    def _attempt(self, what: str, outputs: Sequence[str], action: Callable[[], None]) -> None:
        """Runs an action; unsupported findings are noted and poison the outputs, anything malformed stops."""
        try:
            action()
        except UnsupportedError as error:
            self.findings.append(f"{what}: {error}" if not str(error).startswith(what) else str(error))
            self.poisoned.update(outputs)
        except HwsdkError as error:
            raise type(error)(str(error) if str(error).startswith(what) else f"{what}: {error}") from error
        except MALFORMED as error:
            raise ModelError(f"{what}: malformed ({type(error).__name__}: {error})") from error

    # ---------------------------------------------------------------------------------- inputs and constants
    def _add_inputs(self, inputs: Sequence[Any]) -> None:
        symbols = _symbols(dim.dim_param for v in inputs for dim in v.type.tensor_type.shape.dim)
        taken = set(symbols.values())
        fresh = (f"d{i}" for i in range(1 << 30) if f"d{i}" not in taken)
        placed: list[tuple[Any, list[Dim]]] = []
        axes: list[tuple[str, int, Dim, tuple[str, ...]]] = []
        for value in inputs:
            if not value.type.HasField("tensor_type"):
                raise UnsupportedError(
                    f"input {value.name!r} is not a tensor (sequences, maps and optionals are unsupported)"
                )
            if not value.type.tensor_type.HasField("shape"):
                raise UnsupportedError(f"input {value.name!r} has no shape: its rank must be known")
            sizes = []
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                size = self._declared(dim, value.name, axis, symbols, fresh)
                other = (dim.dim_param,) if dim.dim_param not in _UNNAMED else ()
                size = self.options.dim(value.name, axis, size, other)
                axes.append((value.name, axis, size, other))
                sizes.append(size)
            placed.append((value, sizes))
        for symbol in sorted(frozenset().union(*(d.free_symbols(a[2]) for a in axes))):
            self.model.constraints.declare(symbol)
        self.options.declare(self.model.constraints, axes)
        for value, sizes in placed:
            kind = reader.dtype_name(value.type.tensor_type.elem_type, f"input {value.name!r}")
            self.tensors[value.name] = Tensor(value.name, self.model.input(value.name, kind, sizes))

    @staticmethod
    def _declared(dim: Any, name: str, axis: int, symbols: Mapping[str, str], fresh: Iterable[str]) -> Dim:
        """A dim as the model declares it; unnamed, empty and -1 dims become fresh symbols."""
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            return int(dim.dim_value)
        if dim.dim_value < -1:
            raise ModelError(f"input {name!r}: axis {axis} has the size {dim.dim_value}")
        if dim.dim_param in _UNNAMED:
            return d.sym(next(iter(fresh)))
        return d.sym(symbols[dim.dim_param])

    def _constant(self, name: str, tensor: Any) -> None:
        array = reader.to_array(tensor, self.folder, f"initializer {name!r}")
        self.tensors[name] = Tensor(name, Array(self.model, constant=array, name=name))

    # ------------------------------------------------------------------------------------------------- nodes
    def _import_node(self, node: Any, index: int) -> None:
        outputs = list(node.output)
        if any(i in self.poisoned for i in (*node.input, *outer_names(node))):
            self.poisoned.update(outputs)
            return
        what = f"{describe(node, index)} ({kind_of(node)})"
        self._attempt(what, outputs, lambda: self._bind(node, index))

    def _branch(self, node: Any, index: int) -> list[Tensor]:
        """If: the branch that is taken, when the condition is known at import."""
        known = self.tensors[node.input[0]].known()
        if known is None or known.size != 1 or not isinstance(taken := known.reshape(-1)[0], int):
            raise UnsupportedError(
                "the condition depends on data; only a branch that is known at import can be taken"
            )
        graphs = {a.name: a.g for a in node.attribute}
        graph = graphs["then_branch" if taken else "else_branch"]
        for tensor in graph.initializer:
            self._constant(tensor.name, tensor)
        outputs = [o.name for o in graph.output]
        nodes = sorted_nodes(graph.node, self.tensors, outputs)
        self._report_missing(nodes)
        for position, inner in nodes:
            self._import_node(inner, position)
        self._stop_if_unsupported()
        return [self.tensors[name] for name in outputs]

    def _bind(self, node: Any, index: int) -> None:
        results = (
            self._branch(node, index) if kind_of(node) == "If" else self._evaluate(self.view(node, index))
        )
        missing = [o for o in node.output[len(results) :] if o]
        if missing:
            raise UnsupportedError(f"output {missing[0]!r} is not computed")
        for name, result in zip(node.output, results, strict=False):
            if not name:
                continue
            bound = Tensor(name, result) if isinstance(result, Array) else replace(result, name=name)
            if bound.array is None and bound.is_number():
                bound.data(self.model)  # no symbol left: an ordinary constant
            self.tensors[name] = bound

    def view(self, node: Any, index: int) -> Node:
        """What the importer of the operator sees."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self.versions.get(domain, 1)
        least, most = reader.arity(node.op_type, version, domain)
        if not least <= len(node.input) <= most:
            raise ModelError(f"{len(node.input)} inputs; the operator takes {least} to {most}")
        attributes = {a.name: reader.attribute_value(a) for a in node.attribute}
        for key, value in attributes.items():
            if hasattr(value, "data_type"):
                attributes[key] = reader.to_array(value, self.folder, f"attribute {key!r}")
        inputs = [self.tensors[i] if i else None for i in node.input]
        return Node(
            name=_plain(node.name) or f"{node.op_type}_{index}",
            op=node.op_type,
            domain=domain,
            version=version,
            model=self.model,
            inputs=inputs,
            outputs=list(node.output),
            attributes=attributes,
        )

    def _evaluate(self, node: Node) -> list[Array | Tensor]:
        found = self._as_dims(node)
        if found is None:
            found = self._folded(node)
        if found is None:
            with self.model.scope(node.name):
                found = _listed(IMPORTERS[node.domain, node.op](node))
        return found

    @staticmethod
    def _as_dims(node: Node) -> list[Array | Tensor] | None:
        """The node's shape rule, if its inputs are integers known as dims and at least one is symbolic."""
        rule = shape_values.RULES.get(node.op)
        if rule is None or node.domain or not any(t is not None and t.constant is None for t in node.inputs):
            return None
        known = [None if t is None else t.known() for t in node.inputs]
        if any(k is None and t is not None for k, t in zip(known, node.inputs, strict=True)):
            return None
        made = rule(node, *known)
        if made is None:
            return None
        return [
            Tensor("", None, m, _dims_dtype(node)) for m in ([made] if isinstance(made, np.ndarray) else made)
        ]

    @staticmethod
    def _folded(node: Node) -> list[Array | Tensor] | None:
        """The node computed now, if it has inputs, all are constants, and all is small."""
        constants = [t.constant for t in node.inputs if t is not None]
        if not constants or any(c is None or c.size > FOLD_LIMIT for c in constants):
            return None
        scratch = Model("folded")
        trial = Node(**{**vars(node), "model": scratch})
        results = _listed(IMPORTERS[node.domain, node.op](trial))
        arrays = [r.data(scratch) if isinstance(r, Tensor) else r for r in results]
        if any(not isinstance(a.size, int) or a.size > FOLD_LIMIT for a in arrays):
            return None
        computed = {}
        for i, array in enumerate(arrays):
            if array.constant is None:
                scratch.output(f"out{i}", array)
                computed[i] = f"out{i}"
        values = interpret(scratch.graph(), {}) if computed else {}
        return [
            Array(node.model, constant=np.asarray(values[computed[i]]) if i in computed else a.constant)
            for i, a in enumerate(arrays)
        ]


_BOOLEAN = frozenset(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or"))


def _dims_dtype(node: Node) -> str:
    """Element type of what a shape rule gives."""
    if node.op in _BOOLEAN:
        return "bool"
    if node.op == "Cast":
        return reader.DTYPE_OF[node.integer("to")]
    like = node.tensor(1 if node.op == "Where" else 0)
    return like.dtype if like.array is None else like.array.dtype


def _listed(result: Any) -> list[Array | Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _plain(name: str) -> str:
    """A name of ONNX as a name of the graph: letters, digits, dots and underscores."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_")


def _symbols(names: Iterable[str]) -> dict[str, str]:
    """The symbol of each dim name: itself where that is possible; different names get different symbols."""
    wanted = {n: _symbol_name(n) for n in names if n not in _UNNAMED}
    found: dict[str, str] = {}
    for name, symbol in sorted(wanted.items(), key=lambda item: item[0] != item[1]):
        others = found.values()
        free = (f"{symbol}_{i}" if i else symbol for i in itertools.count() if i != 1)
        found[name] = next(s for s in free if s not in others)
    return found


def _symbol_name(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.$]+", "_", name)
    return plain if d.NAME.match(plain) else f"d_{plain}"
