"""Scans, positions of extremes and sorting on lanes, against NumPy: every length, ties, NaN, few long lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk import api
from hwsdk.codegen.host_interpreter import resolve
from hwsdk.codegen.lower.lowered import versions
from hwsdk.codegen.lower.simt.schedules import LaneLineSchedule
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import InputError, UnsupportedError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of, target
from tests.lanes.ptx_run import PtxRun

N, M = sym("n"), sym("m")
RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def cumulative(axis: int, kind: str = "sum", **more: bool) -> Any:
    return lambda b, x: b.node("cumulative", [x], kind=kind, axis=axis, **more)


def arg(axis: int, kind: str = "argmax") -> Any:
    return lambda b, x: b.node("reduce", [x], kind=kind, axes=(axis,), keepdims=False)


def sort(axis: int, descending: bool = False) -> Any:
    return lambda b, x: b.node("sort", [x], axis=axis, descending=descending)


def top_k(axis: int, k: int, largest: bool = True) -> Any:
    return lambda b, x: b.node("top_k", [x], axis=axis, k=k, largest=largest)


CASES: dict[str, tuple[str, tuple[Any, ...], Any, list[tuple[int, ...]]]] = {
    "sums": ("f32", (N, M), cumulative(1), [(0, 4), (4, 0), (1, 1), (7, 3), (3, 129), (1, 1500)]),
    "sums along the outer axis": ("f32", (N, M), cumulative(0), [(7, 3), (40, 33), (300, 2)]),
    "sums before": ("f16", (N, M), cumulative(1, exclusive=True), [(4, 0), (7, 3), (3, 129)]),
    "sums from the end": ("i64", (N, M), cumulative(1, reverse=True), [(7, 3), (1, 1500)]),
    "sums after": ("i32", (N, M), cumulative(1, exclusive=True, reverse=True), [(7, 3), (3, 129)]),
    "maxima so far": ("f64", (N, M), cumulative(1, "max"), [(7, 3), (1, 1031)]),
    "one long line": ("f32", (N,), cumulative(0), [(0,), (7,), (70003,)]),
    "one long line before": ("i64", (N,), cumulative(0, exclusive=True), [(1,), (40009,)]),
    "one long line from the end": ("i64", (N,), cumulative(0, reverse=True), [(1,), (40009,)]),
    "greatest": ("f32", (N, M), arg(1), [(0, 4), (1, 1), (7, 3), (3, 129), (1, 5003)]),
    "least": ("i32", (N, M), arg(1, "argmin"), [(7, 3), (1, 2003)]),
    "greatest along the outer axis": ("f16", (N, M), arg(0), [(7, 3), (130, 45), (1500, 2)]),
    "greatest of i64": ("i64", (N, M), arg(1), [(7, 3), (2, 300)]),
    "sorted": ("f32", (N, M), sort(1), [(0, 4), (4, 0), (1, 1), (7, 3), (3, 129)]),
    "sorted down": ("i32", (N, M), sort(1, True), [(7, 3), (2, 257)]),
    "sorted along the outer axis": ("f16", (N, M), sort(0), [(7, 3), (70, 9)]),
    "sorted lines of 40": ("i64", (N, 40), sort(1), [(0, 40), (7, 40)]),
    "the first five": ("f32", (N, M), top_k(1, 5), [(1, 5), (7, 5), (3, 129)]),
}
SHOWN = (
    "sums",
    "sums from the end",
    "one long line",
    "greatest",
    "greatest of i64",
    "sorted",
    "the first five",
)


def arrays(case: str) -> list[Array]:
    """Few different numbers, so that there are ties, and some NaN."""
    dtype, _, _, sizes = CASES[case]
    out = []
    for size in sizes:
        x = np.round(RNG.standard_normal(size) * 4)
        if dtype.startswith("f") and "sums" not in case and "line" not in case:
            x.reshape(-1)[2::7] = np.nan
        out.append(x.astype(numpy_dtype(dtype)))
    return out


def graph(case: str) -> Graph:
    dtype, shape, build, _ = CASES[case]
    return graph_of([(dtype, shape)], build)


@pytest.mark.parametrize("chip", ["lanes", "cuda-sm80"])
@pytest.mark.parametrize("case", CASES)
def test_lines_of_every_length(case: str, chip: str) -> None:
    run = api.Simulation(api.compile_stages(graph(case), target(chip)))
    for x in arrays(case):
        assert_same(
            run(x0=x), interpret(graph(case), {"x0": x}), 2.0**-9 if CASES[case][0] == "f16" else 2.0**-17
        )


@pytest.mark.parametrize("case", SHOWN)
def test_the_text_that_ships_agrees(case: str) -> None:
    run = PtxRun(graph(case), load_target("cuda-sm80"))
    for x in arrays(case)[:5]:
        assert_same(run({"x0": x}), interpret(graph(case), {"x0": x}), 2.0**-17)


@pytest.mark.parametrize("build", [sort(1), top_k(1, 9)])
def test_lines_longer_than_the_scratchpad_are_merged(build: Any) -> None:
    small = [replace(m, size_bytes=1024) if m.kind == "scratchpad" else m for m in target("lanes").memories]
    g = graph_of([("f32", (N, M))], build)
    run = api.Simulation(api.compile_stages(g, replace(target("lanes"), memories=tuple(small))))
    for size, merges in ((64, 0), (65, 1), (130, 2), (300, 3)):
        for x in (RNG.standard_normal((2, size)), np.round(RNG.standard_normal((1, size)))):
            x = x.astype(np.float32)
            assert_same(run(x0=x), interpret(g, {"x0": x}), 0.0)
        assert sum("merge" in name for name in run.stats.kernels) == merges


@pytest.mark.parametrize("build", [sort(1), top_k(1, 9), arg(1)])
def test_lines_with_more_elements_than_positions_are_refused(build: Any) -> None:
    made = api.compile_stages(graph_of([("i8", (N, M))], build), target("lanes"))
    most = 1 << 31
    resolve(made.assembled.program, [(1, most)], 1)
    with pytest.raises(InputError, match=f"input 'x0': dim 1 .* is {most + 1}, .*positions .* have 31 bits"):
        resolve(made.assembled.program, [(1, most + 1)], 1)
    api.compile_stages(graph_of([("i8", (1, most))], build), target("lanes"))
    with pytest.raises(UnsupportedError, match=f"31 bits on lanes, and it has {most + 1} elements"):
        api.compile_stages(graph_of([("i8", (1, most + 1))], build), target("lanes"))


def test_longer_lines_cost_no_square() -> None:
    run = api.Simulation(api.compile_stages(graph_of([("f32", (N, 256))], sort(1)), target("cuda-sm80")))
    run(x0=RNG.standard_normal((4, 256)).astype(np.float32))
    assert (
        run.stats.places["shared"].read_bytes < 4 * 256 * 8 * 64
    )  # elements * (key and place) * (36 stages, some more)


def test_a_long_line_has_many_workgroups() -> None:
    made = api.compile_stages(graph_of([("f32", (N,))], cumulative(0)), target("cuda-sm80"))
    plans = [v.schedule for item in made.lowered for v in versions(item)]
    assert all(isinstance(p, LaneLineSchedule) and p.split > 100 for p in plans)
    run = api.Simulation(made)
    run(x0=np.ones(100000, np.float32))
    assert run.stats.iterations > 40


@cache
def compiled(name: str) -> tuple[Graph, Callable[..., Any]]:
    builds = {"sort": sort(1), "top": top_k(1, 3, False), "sum": cumulative(1, exclusive=True), "arg": arg(1)}
    g = graph_of([("f32", (N, M))], builds[name])
    return g, api.Simulation(api.compile_stages(g, target("lanes")))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["sort", "top", "sum", "arg"]),
    st.integers(1, 4),
    st.integers(3, 70),
    st.integers(0, 2**32 - 1),
)
def test_any_values(name: str, rows: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    odd = np.array(
        [0.0, -0.0, 1.0, 2.0, -3.0, 7.5] + ([np.inf, -np.inf, np.nan] if name != "sum" else []), np.float32
    )
    x = rng.choice(odd, (rows, length))
    g, run = compiled(name)
    assert_same(run(x0=x), interpret(g, {"x0": x}), 2.0**-20)
