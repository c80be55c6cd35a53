"""Random graphs: text round trip, and every pass keeps graph and values valid.  A failure names its seed."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.graph.passes import PASSES, trace_passes
from hwsdk.graph.text import parse_graph, print_graph
from hwsdk.graph.verify import verify
from tests.graph.random_graphs import NoSizes, random_graph, random_inputs

SEEDS = range(*map(int, os.environ.get("HWSDK_GRAPH_SEEDS", "0 60").split()))


def assert_close(one: dict[str, np.ndarray], two: dict[str, np.ndarray], what: str) -> None:
    for name, array in one.items():
        scale = float(np.max(np.abs(array), initial=1.0, where=np.isfinite(array)))
        assert array.shape == two[name].shape, what
        np.testing.assert_allclose(two[name], array, rtol=1e-4, atol=1e-5 * scale, err_msg=what)


@pytest.mark.parametrize("seed", SEEDS)
def test_round_trip_and_passes(seed: int) -> None:
    graph = random_graph(seed)
    if len(graph.constraints.equalities) > 1:
        pytest.skip("interlocking equalities are beyond what the constraints can prove")
    verify(graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, graph.constants)) == text
    rng = np.random.default_rng(seed)
    try:
        feeds = [random_inputs(graph, rng) for _ in range(3)]
    except NoSizes:
        pytest.skip("operands met whose sizes are never equal")
    wanted = [interpret(graph, feed) for feed in feeds]
    after: Graph = graph
    for name, after in trace_passes(graph, verify=True):
        for feed, out in zip(feeds, wanted):
            assert_close(
                out, interpret(after, feed), f"seed {seed}, after {name}:\n{text}\n{print_graph(after)}"
            )
    assert after.output_names == graph.output_names


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_alone(name: str) -> None:
    for seed in range(1000, 1010):
        graph = random_graph(seed)
        (after,) = [g for _, g in trace_passes(graph, [name], verify=True)]
        feed = random_inputs(graph, np.random.default_rng(seed))
        assert_close(interpret(graph, feed), interpret(after, feed), f"seed {seed}, pass {name}")
