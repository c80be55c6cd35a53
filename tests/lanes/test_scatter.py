"""Scattering on lanes: duplicates in their order, places outside, few and many lines."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk import api
from hwsdk.codegen.lower.lowered import versions
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of, target
from tests.lanes.ptx_run import PtxRun

N, M, U, V = (sym(x) for x in "nmuv")
RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def rows(combiner: str, depth: int = 1) -> Graph:
    """Slices of x0[n, m] (depth 1) or elements of it (depth 2)."""
    updates = (U, M) if depth == 1 else (U,)
    inputs = [("f32", (N, M)), ("i64", (U, depth)), ("f32", updates)]
    return graph_of(inputs, lambda b, x, i, u: b.node("scatter_nd", [x, i, u], combiner=combiner))


def elements(axis: int, combiner: str = "none") -> Graph:
    inputs = [("f32", (N, M)), ("i32", (U, V)), ("f32", (U, V))]
    return graph_of(
        inputs, lambda b, x, i, u: b.node("scatter_elements", [x, i, u], axis=axis, combiner=combiner)
    )


def row_arrays(n: int, m: int, u: int, depth: int, spread: int = 0) -> dict[str, Array]:
    limits = [n, m][:depth]
    index = (
        np.stack([RNG.integers(-e - spread, e + spread, u) for e in limits], -1)
        if u
        else np.zeros((0, depth))
    )
    x, y = RNG.standard_normal((n, m)), RNG.standard_normal((u, m) if depth == 1 else u)
    return {"x0": x.astype(np.float32), "x1": index.astype(np.int64), "x2": y.astype(np.float32)}


def element_arrays(n: int, m: int, u: int, v: int, axis: int) -> dict[str, Array]:
    extent = (n, m)[axis]
    x, y = RNG.standard_normal((n, m)), RNG.standard_normal((u, v))
    index = RNG.integers(-extent, extent, (u, v)) if extent else np.zeros((u, v))
    return {"x0": x.astype(np.float32), "x1": index.astype(np.int32), "x2": y.astype(np.float32)}


ROWS = [(1, 1, 1), (7, 3, 20), (5, 70, 9), (3, 0, 2), (4, 3, 0)]
ELEMENTS = [(1, 1, 1, 1), (7, 3, 5, 2), (20, 13, 20, 13), (5, 9, 0, 2)]


@pytest.mark.parametrize("combiner", ["none", "add", "max"])
@pytest.mark.parametrize("depth", [1, 2])
def test_slices_and_elements(depth: int, combiner: str) -> None:
    graph = rows(combiner, depth)
    run = api.Simulation(api.compile_stages(graph, target("lanes")))
    for n, m, u in ROWS:
        if depth == 2 and not n * m:
            continue
        x = row_arrays(n, m, u, depth)
        assert_same(run(**x), interpret(graph, x), 2.0**-20)


@pytest.mark.parametrize("combiner", ["none", "add"])
@pytest.mark.parametrize("axis", [0, 1])
def test_along_an_axis(axis: int, combiner: str) -> None:
    graph = elements(axis, combiner)
    made = api.compile_stages(graph, target("lanes"))
    assert {v.loop.name for item in made.lowered for v in versions(item)} == {
        "k0_library_lines",
        "k0_library",
    }
    run = api.Simulation(made)
    for sizes in ELEMENTS:
        x = element_arrays(*sizes, axis)
        assert_same(run(**x), interpret(graph, x), 2.0**-20)


def test_many_lines_take_a_lane_each() -> None:
    graph = elements(0, "add")
    run = api.Simulation(api.compile_stages(graph, target("lanes")))
    x = element_arrays(3, 4100, 2, 4099, 0)
    assert_same(run(**x), interpret(graph, x), 2.0**-20)
    assert run.stats.kernels == ("k0_library_lines",)


@pytest.mark.parametrize(
    "graph", [rows("add", 2), rows("none"), elements(1)], ids=["elements", "rows", "axis"]
)
def test_the_text_that_ships_agrees(graph: Graph) -> None:
    run = PtxRun(graph, load_target("cuda-sm80"))
    axis = "i32" in str([v.dtype for v in graph.inputs])
    depth = 0 if axis else int(str(graph.inputs[1].shape[1]))
    for n, m, u in ROWS[1:3]:
        x = element_arrays(n, m, n, m, 1) if axis else row_arrays(n, m, u, depth)
        assert_same(run(x), interpret(graph, x), 2.0**-20)


@cache
def compiled(combiner: str) -> tuple[Graph, Any]:
    graph = rows(combiner, 2)
    return graph, api.Simulation(api.compile_stages(graph, target("lanes")))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["none", "add", "mul", "min"]), st.integers(1, 9), st.integers(1, 9), st.integers(0, 80)
)
def test_any_places_in_their_order(combiner: str, n: int, m: int, u: int) -> None:
    graph, run = compiled(combiner)
    x = row_arrays(n, m, u, 2)
    assert_same(run(**x), interpret(graph, x), 2.0**-16)


def test_the_result_is_divided_among_workgroups() -> None:
    run = api.Simulation(api.compile_stages(rows("add", 2), target("cuda-sm80")))
    run(**row_arrays(300, 200, 3, 2))
    assert run.stats.iterations > 100
