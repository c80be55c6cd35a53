"""Common subexpressions and dead code.

Design choice: both rebuild the graph through the builder like every pass, so what they leave is complete and
ordered.
"""

from __future__ import annotations

from typing import Any

from hwsdk.graph.graph import Graph, GraphBuilder, Node
from hwsdk.graph.opdef import Array, Attrs, Value


def without_duplicates(graph: Graph) -> Graph:
    """Nodes with equal op, operands and attributes, and constants with equal bytes, become one."""
    builder = GraphBuilder(graph.name, graph.constraints)
    known: dict[str, Value] = {v.name: builder.input(v.name, v.dtype, v.shape) for v in graph.inputs}
    made: dict[Any, tuple[Value, ...]] = {}
    arrays: dict[Any, list[tuple[Array, Value]]] = {}
    for name, array in graph.constants.items():
        alike = arrays.setdefault(_outline(array), [])
        found = next((v for a, v in alike if _same_bytes(a, array)), None)
        if found is None:
            found = builder.constant_as(name, array)
            alike.append((array, found))
        known[name] = found
    for node in graph.nodes:
        inputs = tuple(known[n] for n in node.inputs)
        key = (node.op, tuple(v.name for v in inputs), Attrs(node.attrs))
        if key not in made:
            made[key] = builder.copy(node, inputs, [graph.values[n] for n in node.outputs])
        known.update(zip(node.outputs, made[key], strict=True))
    for name, public in zip(graph.outputs, graph.output_names, strict=True):
        builder.output(known[name], public)
    return builder.finish()


def _outline(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    """What equal arrays have in common and different ones rarely: type, shape, some bytes."""
    return str(array.dtype), array.shape, array.reshape(-1)[:: max(1, array.size // 64)].tobytes()


def _same_bytes(a: Array, b: Array) -> bool:
    return a is b or a.tobytes() == b.tobytes()


def without_dead_code(graph: Graph) -> Graph:
    """Only nodes and constants that an output depends on; inputs stay, they are the signature."""
    live = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.inputs)
    constants = {n: a for n, a in graph.constants.items() if n in live}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    nodes = tuple(reversed(kept))
    names = {v.name for v in graph.inputs} | constants.keys() | {o for n in nodes for o in n.outputs}
    values = {n: v for n, v in graph.values.items() if n in names}
    return Graph(
        graph.name,
        graph.inputs,
        graph.outputs,
        nodes,
        constants,
        values,
        graph.constraints,
        graph.output_names,
    )
