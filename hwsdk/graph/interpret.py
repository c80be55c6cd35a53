"""The graph interpreter: runs the NumPy reference of every node.  It is the definition of what a graph means.

Design choice: inputs are checked completely before anything runs; an error says which input, which axis,
which size, and what asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy
from hwsdk.errors import GraphError, HwsdkError, InputError, nearest
from hwsdk.graph.dims import Expr, coefficient, evaluate, free_symbols, sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.opdef import Array
from hwsdk.graph.ops import op_def


def interpret(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The outputs by public name, for inputs by name."""
    arrays = check_inputs(graph, inputs)
    env = bind_symbols(graph, arrays)
    values: dict[str, Array] = {**graph.constants, **arrays}
    last_use = _last_uses(graph)
    for position, node in enumerate(graph.nodes):
        try:
            results = op_def(node.op).reference(node.attrs, [values[n] for n in node.inputs], env)
            for name, result in zip(node.outputs, results, strict=True):
                _check_result(graph, name, result, env)
                values[name] = result
        except HwsdkError as e:
            raise type(e)(f"node {node.name} ({node.op}): {e}") from None
        for name in node.inputs:
            if last_use[name] == position:
                values.pop(name, None)
    return {
        public: np.asarray(values[name])
        for public, name in zip(graph.output_names, graph.outputs, strict=True)
    }


def _last_uses(graph: Graph) -> dict[str, int]:
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    return last | {name: len(graph.nodes) for name in graph.outputs}


def _check_result(graph: Graph, name: str, result: Array, env: Mapping[str, int]) -> None:
    value = graph.values[name]
    shape = tuple(evaluate(d, env) for d in value.shape)
    if result.shape != shape or from_numpy(result.dtype) != value.dtype:
        raise GraphError(
            f"the reference of {value} gave {result.dtype}{list(result.shape)}, not {list(shape)}"
        )


def check_inputs(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs as arrays; InputError if one is missing, unknown, or of another dtype or rank."""
    names = [v.name for v in graph.inputs]
    if unknown := [n for n in inputs if n not in names]:
        raise InputError(f"the model has no input {unknown[0]!r}{nearest(unknown[0], names)}")
    if missing := [n for n in names if n not in inputs]:
        raise InputError(
            f"input {missing[0]!r} is missing; the model takes {', '.join(map(str, graph.inputs))}"
        )
    arrays: dict[str, Array] = {}
    for value in graph.inputs:
        array = np.asarray(inputs[value.name])
        try:
            kind = from_numpy(array.dtype)
        except HwsdkError:
            kind = str(array.dtype)
        if kind != value.dtype:
            raise InputError(f"input {value.name!r} is {kind}, but the model takes {value}")
        if array.ndim != value.rank:
            raise InputError(
                f"input {value.name!r} has shape {list(array.shape)}, but the model takes {value}"
            )
        arrays[value.name] = array
    return arrays


def bind_symbols(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The value of every symbol, from the shapes of the inputs; InputError if they break a constraint."""
    sizes = [
        (v.name, axis, d, int(np.shape(inputs[v.name])[axis]))
        for v in graph.inputs
        for axis, d in enumerate(v.shape)
    ]
    env: dict[str, int] = {}
    origin: dict[str, str] = {}
    for plain in (
        True,
        False,
        False,
    ):  # symbols that are dims themselves first, then those that follow from others
        for name, axis, d, size in sizes:
            unknown = free_symbols(d) - env.keys()
            if len(unknown) == 1 and (not plain or d == sym(next(iter(unknown)))):
                symbol = next(iter(unknown))
                solved = _solved(d, symbol, size, env)
                if solved is not None:
                    env[symbol] = solved
                    origin[symbol] = f"axis {axis} of input {name!r}"
    for name, axis, d, size in sizes:
        _check_size(graph, name, axis, d, size, env, origin)
    if broken := graph.constraints.violations(env):
        where = [f"{s} is {origin[s]}" for s in env if any(s in _words(b) for b in broken)]
        raise InputError("; ".join([*broken, *where]))
    return env


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c in "_.$" else " " for c in text).split())


def _solved(d: Any, symbol: str, size: int, env: Mapping[str, int]) -> int | None:
    factor = coefficient(d, symbol)
    if not isinstance(factor, int) or not isinstance(d, Expr):
        return None
    rest = evaluate(d, {**env, symbol: 0})
    return int((size - rest) // factor)


def _check_size(
    graph: Graph, name: str, axis: int, d: Any, size: int, env: Mapping[str, int], origin: Mapping[str, str]
) -> None:
    if not free_symbols(d) <= env.keys():
        raise InputError(f"input {name!r}: axis {axis} is {size}, which does not determine {d}")
    expected = evaluate(d, env)
    if size == expected:
        return
    text = f"input {name!r}: axis {axis} is {size}, but must be {expected}"
    if isinstance(d, Expr):
        sources = ", ".join(
            f"{s} = {env[s]} from {origin[s]}" for s in sorted(free_symbols(d)) if s in origin
        )
        text += f" = {d} ({sources})"
        reasons = [
            r for s, r in graph.constraints.solution_reasons.items() if graph.constraints.solutions[s] == d
        ]
        text += f"; {reasons[0]}" if reasons else ""
    raise InputError(text)
