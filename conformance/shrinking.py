"""Makes a failing graph small: fewer outputs, fewer nodes, smaller dims, while it still fails.

A value that becomes an input brings the numbers that the reference computed for it, so the rest of the graph sees what
it saw before.

Design choice: greedy and bounded by time.  A candidate is any graph that can be built again from a part; whether it is
worth anything is said by the one question `fails`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import HwsdkError
from hwsdk.graph.dims import free_symbols, sym
from hwsdk.graph.graph import Graph, GraphBuilder, Node, Value
from hwsdk.graph.interpret import bind_symbols

Array = np.ndarray[Any, Any]
SMALL = (1, 2, 3, 4, 8, 16, 32)


@dataclass(frozen=True)
class Failure:
    """A graph with inputs for which it fails, and what is said then."""

    graph: Graph
    inputs: Mapping[str, Array]
    message: str


Fails = Callable[
    [Graph, Mapping[str, Array]], str
]  # the message; empty where nothing is wrong or nothing can be said
Values = Callable[[Graph, Mapping[str, Array]], Mapping[str, Array]]  # every value of a graph


def shrink(failure: Failure, fails: Fails, values: Values, seconds: float) -> Failure:
    """The smallest failing part that was found in that time."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for graph, inputs in _candidates(failure, values):
            if time.monotonic() > end:
                break
            message = _tried(fails, graph, inputs)
            if message:
                failure, smaller = Failure(graph, inputs, message), True
                break
    return failure


def _tried(fails: Fails, graph: Graph, inputs: Mapping[str, Array]) -> str:
    try:
        bind_symbols(graph, inputs)
    except HwsdkError:
        return ""
    return fails(graph, inputs)


def _candidates(failure: Failure, values: Values) -> Iterator[tuple[Graph, dict[str, Array]]]:
    """From large steps to small ones."""
    graph, inputs = failure.graph, failure.inputs
    known = values(graph, inputs)
    kept = [(name, value) for name, value in zip(graph.output_names, graph.outputs)]
    parts: list[tuple[list[tuple[str, str]], set[str]]] = []
    if len(kept) > 1:
        parts += [([one], set()) for one in kept]
        parts += [([other for other in kept if other is not one], set()) for one in kept]
    places = [name for node in graph.nodes for name in node.outputs]
    ends = {name for _, name in kept}
    parts += [([("y0", name)], set()) for name in places if name not in ends]
    parts += [(kept, {name}) for name in reversed(places) if name not in ends]
    for outputs, cut in parts:
        made = rebuilt(graph, outputs, cut)
        if made is not None and len(made.nodes) < len(graph.nodes) + (len(outputs) < len(kept)):
            yield made, _arrays(made, inputs, known)
    for size in SMALL:
        yield from _smaller(graph, inputs, size)


def _arrays(graph: Graph, inputs: Mapping[str, Array], known: Mapping[str, Array]) -> dict[str, Array]:
    return {v.name: inputs[v.name] if v.name in inputs else known[v.name].astype(numpy_dtype(v.dtype))
            for v in graph.inputs}  # fmt: skip


def rebuilt(graph: Graph, outputs: Sequence[tuple[str, str]], cut: set[str]) -> Graph | None:
    """The part of a graph that these outputs (public name, value) need, where the values in `cut` are inputs; None
    where that is no graph."""
    needed, wanted = [], {name for _, name in outputs}
    for node in reversed(graph.nodes):
        if any(name in wanted and name not in cut for name in node.outputs):
            needed.append(node)
            wanted |= set(node.inputs)
    if not needed:
        return None
    builder = GraphBuilder(graph.name)
    try:
        made = _copied(graph, builder, list(reversed(needed)), wanted, cut)
        for public, name in outputs:
            builder.output(made[name], public)
    except HwsdkError:
        return None
    found = builder.finish()
    bound = {s for v in found.inputs for d in v.shape for s in free_symbols(d)}
    used = {s for v in found.values.values() for d in v.shape for s in free_symbols(d)}
    return found if used <= bound else None


def _copied(
    graph: Graph, builder: GraphBuilder, nodes: Sequence[Node], wanted: set[str], cut: set[str]
) -> dict[str, Value]:
    """The values of the part by their names in the whole."""
    made: dict[str, Value] = {}
    for value in [*graph.inputs, *(graph.values[c] for c in sorted(cut))]:
        if value.name in wanted:
            made[value.name] = builder.input(value.name, value.dtype, value.shape)
    for name, array in graph.constants.items():
        if name in wanted:
            made[name] = builder.constant_as(name, array)
    for node in nodes:
        names = [f"{n}.unused" if n in made else n for n in node.outputs]
        operands = [made[n] for n in node.inputs]
        results = builder.node(node.op, operands, name=node.name, outputs=names, **node.attrs)
        for name, result in zip(node.outputs, results if isinstance(results, tuple) else (results,)):
            made.setdefault(name, result)
    return made


def _smaller(
    graph: Graph, inputs: Mapping[str, Array], size: int
) -> Iterator[tuple[Graph, dict[str, Array]]]:
    """The same graph at a smaller size of one symbol, with the first elements of the inputs."""
    for symbol, now in bind_symbols(graph, inputs).items():
        if size >= now:
            continue
        less = {}
        for value in graph.inputs:
            array = inputs[value.name]
            for axis, d in enumerate(value.shape):
                if d == sym(symbol):
                    array = array.take(range(size), axis)
            less[value.name] = array
        if any(less[name].shape != array.shape for name, array in inputs.items() if name in less):
            yield graph, less
