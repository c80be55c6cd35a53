"""The verifier: does a graph keep the rules of the graph language?

Design choice: it trusts nothing that the builder computed.  Every shape rule runs again against the graph's
frozen constraints, so a pass that changed a shape, or used a fact that was never recorded, is named with its
node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hwsdk.dtypes import from_numpy
from hwsdk.errors import GraphError, HwsdkError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, Expr, coefficient, free_symbols
from hwsdk.graph.graph import Graph, Node, Value
from hwsdk.graph.opdef import Typed, canonical_attrs
from hwsdk.graph.ops import op_def


def verify(graph: Graph) -> None:
    """Raise GraphError, naming the node or value, if the graph is not valid."""
    constraints = graph.constraints.copy(frozen=True)
    defined = _check_sources(graph)
    bound = bindable_symbols(graph)
    names: set[str] = set()
    for node in graph.nodes:
        if node.name in names:
            raise GraphError(f"graph {graph.name}: two nodes are called {node.name!r}")
        names.add(node.name)
        try:
            _check_node(graph, node, defined, constraints)
            for d in _dims_of(graph, node):
                if missing := free_symbols(d) - bound:
                    raise GraphError(f"dimension {min(missing)!r} is not given by any input")
        except HwsdkError as e:
            raise GraphError(f"graph {graph.name}: node {node.name} ({node.op}): {e}") from None
        defined.update(node.outputs)
    _check_outputs(graph, defined)


def _check_sources(graph: Graph) -> set[str]:
    defined: set[str] = set()
    for value in graph.inputs:
        if value.name in defined or graph.values.get(value.name) != value:
            raise GraphError(f"graph {graph.name}: input {value.name!r} is not defined exactly once")
        defined.add(value.name)
    for name, array in graph.constants.items():
        typed = graph.values.get(name)
        if name in defined or typed is None:
            raise GraphError(f"graph {graph.name}: constant {name!r} is not defined exactly once")
        if typed.dtype != from_numpy(array.dtype) or typed.shape != array.shape:
            raise GraphError(
                f"graph {graph.name}: constant {typed} is an array {array.dtype}{list(array.shape)}"
            )
        defined.add(name)
    return defined


def _check_node(graph: Graph, node: Node, defined: set[str], constraints: Constraints) -> None:
    entry = op_def(node.op)
    least, most = entry.inputs
    if len(node.inputs) < least or (most is not None and len(node.inputs) > most):
        raise GraphError(
            f"takes {least if most == least else f'{least} or more'} operands, not {len(node.inputs)}"
        )
    for name in node.inputs:
        if name not in defined:
            known = "is defined later" if name in graph.values else "is not defined"
            raise GraphError(f"operand {name!r} {known}")
    operands = [graph.values[n] for n in node.inputs]
    attrs = canonical_attrs(entry, node.attrs, operands)
    if dict(attrs) != dict(node.attrs):
        raise GraphError(f"attributes {dict(node.attrs)} are not in canonical form {dict(attrs)}")
    results = entry.infer(attrs, operands, constraints)
    _check_results(graph, node, results, defined, constraints)


def _check_results(
    graph: Graph, node: Node, results: Typed, defined: set[str], constraints: Constraints
) -> None:
    if len(results) != len(node.outputs):
        raise GraphError(f"has {len(results)} results, but {len(node.outputs)} outputs")
    for name, (kind, shape) in zip(node.outputs, results, strict=True):
        if name in defined:
            raise GraphError(f"output {name!r} is defined twice")
        value = graph.values.get(name)
        if value is None:
            raise GraphError(f"output {name!r} has no type")
        same = value.dtype == kind and value.rank == len(shape)
        if not same or not all(map(constraints.equal, value.shape, shape)):
            raise GraphError(f"output is {value}, but the op gives {Value(name, kind, tuple(shape))}")


def _dims_of(graph: Graph, node: Node) -> Iterator[Dim]:
    for name in node.outputs:
        yield from graph.values[name].shape
    yield from attribute_dims(node.attrs)


def attribute_dims(attrs: Mapping[str, Any]) -> Iterator[Expr]:
    """The symbolic dims in the attributes of a node."""
    todo = list(attrs.values())
    while todo:
        item = todo.pop()
        if isinstance(item, Expr):
            yield item
        elif isinstance(item, tuple):
            todo += item


def bindable_symbols(graph: Graph) -> set[str]:
    """The symbols whose value follows from the sizes of the inputs.

    A symbol that is itself a dim of an input is known; others follow when a dim is affine in them and all
    else is known.
    """
    dims = [d for value in graph.inputs for d in value.shape if isinstance(d, Expr)]
    known: set[str] = set()
    changed = True
    while changed:
        changed = False
        for d in dims:
            unknown = d.free - known
            if len(unknown) == 1 and isinstance(coefficient(d, next(iter(unknown))), int):
                known |= unknown
                changed = True
    return known


def _check_outputs(graph: Graph, defined: set[str]) -> None:
    if len(graph.outputs) != len(graph.output_names) or len(set(graph.output_names)) != len(
        graph.output_names
    ):
        raise GraphError(
            f"graph {graph.name}: outputs need one different name each, not {graph.output_names}"
        )
    for name in graph.outputs:
        if name not in defined:
            raise GraphError(f"graph {graph.name}: output {name!r} is not defined")
