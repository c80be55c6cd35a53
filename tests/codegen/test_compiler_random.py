"""Random graphs with symbolic dims, compiled once and run at several sizes, against the interpreter of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.graph.interpret import interpret
from tests.codegen.compiled import assert_same, runner, tolerance
from tests.graph import random_graphs


def _compare(seed: int, name: str) -> None:
    graph, rng = random_graphs.random_graph(seed), np.random.default_rng(seed)
    run = runner(graph, name)
    for _ in range(3):
        try:
            given = random_graphs.random_inputs(graph, rng, random_graphs.random_sizes(graph, rng))
        except random_graphs.NoSizes:
            return
        relative = max(1e-4, 4 * tolerance(name, 4))
        assert_same(run(given), interpret(graph, given), relative)


@pytest.mark.parametrize("seed", range(20))
def test_machine_code(seed: int) -> None:
    _compare(seed, "x86")


@pytest.mark.parametrize("seed", range(12))
def test_staged_on_the_machine(seed: int) -> None:
    _compare(seed, "npu")


@pytest.mark.parametrize("seed", range(12))
def test_lanes_on_the_machine(seed: int) -> None:
    _compare(seed, "lanes")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1060, 20))
def test_more_machine_code(start: int) -> None:
    for seed in range(start, start + 20):
        _compare(seed, "x86")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2000, 2040, 20))
def test_more_staged(start: int) -> None:
    for seed in range(start, start + 20):
        _compare(seed, "npu")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(3000, 3040, 20))
def test_more_lanes(start: int) -> None:
    for seed in range(start, start + 20):
        _compare(seed, "lanes")
