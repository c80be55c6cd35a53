"""Random graphs of the conformance suite: text round trip, and every pass keeps graph and values valid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hwsdk.conformance import data
from hwsdk.conformance.error_bounds import Known, bounds
from hwsdk.conformance.l4_random import DTYPES_USED, compare
from hwsdk.conformance.random_graphs import Sample
from hwsdk.conformance.random_steps import sample
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.graph.passes import PASSES, trace_passes
from hwsdk.graph.text import parse_graph, print_graph
from hwsdk.graph.verify import verify
from hwsdk.target_desc import load_target

SEEDS = range(*map(int, os.environ.get("HWSDK_GRAPH_SEEDS", "0 60").split()))
TARGET = load_target("x86-64-v3", detect=False)  # says how operations round
Arrays = dict[str, np.ndarray[Any, Any]]
Truth = dict[str, tuple[str, Known]]  # by output: its dtype, its value and how far off it may be


def feeds(made: Sample, seed: int) -> Iterator[tuple[Arrays, Truth]]:
    """Inputs at every size of the graph, with what they lead to."""
    graph = made.graph
    for sizes in made.sizes:
        inputs = {}
        for v in graph.inputs:
            shape = tuple(int(evaluate(d, sizes)) for d in v.shape)
            rng = data.generator(seed, v.name, tuple(sizes.items()))
            inputs[v.name] = data.draw(rng, v.dtype, shape, made.domains[v.name])
        known = bounds(graph, inputs, TARGET)
        outputs = zip(graph.output_names, graph.outputs, strict=True)
        yield inputs, {name: (graph.values[value].dtype, known[value]) for name, value in outputs}


def assert_close(graph: Graph, inputs: Arrays, truth: Truth, what: str) -> None:
    got = interpret(graph, inputs)
    assert got.keys() == truth.keys()
    for name, (dtype, known) in truth.items():
        compare(f"{what}: {name}", got[name], known, dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_round_trip_and_passes(seed: int) -> None:
    made = sample(seed, DTYPES_USED)
    graph = made.graph
    verify(graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, graph.constants)) == text
    given = list(feeds(made, seed))
    for inputs, truth in given:
        assert_close(graph, inputs, truth, f"seed {seed}")
    for name, after in trace_passes(graph, verify=True):
        for inputs, truth in given:
            assert_close(after, inputs, truth, f"seed {seed}, after {name}:\n{text}\n{print_graph(after)}")
        assert after.output_names == graph.output_names


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_alone(name: str) -> None:
    for seed in range(1000, 1010):
        made = sample(seed, DTYPES_USED)
        (after,) = [g for _, g in trace_passes(made.graph, [name], verify=True)]
        for inputs, truth in feeds(made, seed):
            assert_close(after, inputs, truth, f"seed {seed}, pass {name}")
