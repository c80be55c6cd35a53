"""Random inputs that satisfy the constraints of a graph written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Graph

Rng = np.random.Generator


def random_array(rng: Rng, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers of any dtype."""
    if dtype(kind).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype(kind).kind == "f":
        return rng.standard_normal(shape).astype(np.float32).astype(numpy_dtype(kind))
    low = 0 if dtype(kind).kind == "u" else -3
    return rng.integers(low, 4, shape).astype(numpy_dtype(kind))


def random_sizes(graph: Graph, rng: Rng) -> Mapping[str, int]:
    """Values of the symbols that break no constraint; small, 0 and 1 among them."""
    for _ in range(500):
        env = {}
        for name in graph.constraints.symbols():
            low, high = graph.constraints.ranges[name]
            step = graph.constraints.multiples.get(name, 1)
            top = low + 5 * step if high is None else min(high, low + 5 * step)
            env[name] = int(rng.integers(low, top + 1)) // step * step
        if not graph.constraints.violations(env):
            return env
    raise AssertionError("the constraints of the graph exclude everything small")


def random_inputs(graph: Graph, rng: Rng) -> dict[str, np.ndarray]:
    """Inputs of sizes that the graph allows."""
    env = random_sizes(graph, rng)
    return {
        v.name: random_array(rng, v.dtype, tuple(evaluate(d, env) for d in v.shape)) for v in graph.inputs
    }
