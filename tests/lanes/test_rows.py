"""Reductions on lanes: rows of every length, few long ones, columns; what memory moves and how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.lower.lowered import versions
from hwsdk.codegen.lower.simt.schedules import LaneRowSchedule
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of, target
from tests.codegen.test_compiler_ops import layer_norm, softmax
from tests.lanes.ptx_run import PtxRun

N, M, K = sym("n"), sym("m"), sym("k")
RNG = np.random.default_rng(0)


def reduced(*axes: int, kind: str = "sum") -> Any:
    return lambda b, x: b.node("reduce", [x], kind=kind, axes=axes, keepdims=False)


CASES: dict[str, tuple[str, tuple[Any, ...], Any, list[tuple[int, ...]]]] = {
    "softmax": (
        "f32",
        (N, M),
        softmax,
        [(0, 4), (3, 1), (7, 3), (2, 128), (2, 129), (2, 1028), (1, 5003), (1, 8196)],
    ),
    "softmax f16": ("f16", (N, M), softmax, [(3, 1), (2, 129), (2, 1024), (1, 20000)]),
    "softmax f64": ("f64", (N, M), softmax, [(3, 1), (2, 129), (1, 3001)]),
    "layer norm of 40": ("f32", (N, 40), layer_norm, [(0, 40), (1, 40), (7, 40), (101, 40)]),
    "layer norm of 37": ("f32", (N, 37), layer_norm, [(1, 37), (101, 37)]),
    "layer norm of 768": ("f32", (N, 768), layer_norm, [(1, 768), (7, 768)]),
    "sum of all": ("f32", (N, M), reduced(0, 1), [(0, 3), (1, 1), (7, 3), (301, 211)]),
    "max of all": ("i32", (N,), reduced(0, kind="max"), [(1,), (5,), (70001,)]),
    "any": ("bool", (N, M), reduced(1, kind="any"), [(1, 1), (7, 3), (3, 2000)]),
    "sum of i64": ("i64", (N, M), reduced(1), [(1, 1), (3, 2003)]),
    "columns": ("f32", (N, M), reduced(0), [(0, 3), (1, 1), (7, 3), (3001, 5), (300, 64)]),
    "middle": ("f32", (N, K, M), reduced(1), [(1, 1, 1), (2, 700, 3), (2, 0, 3)]),
    "longest column": ("f32", (N, 1), reduced(0, kind="max"), [(1, 1), (5003, 1)]),
}


def given(case: str) -> tuple[Graph, list[np.ndarray]]:
    dtype, shape, build, sizes = CASES[case]
    arrays = [RNG.standard_normal(s) * 3 for s in sizes]
    made = [a > 2.9 if dtype == "bool" else a.astype(numpy_dtype(dtype)) for a in arrays]
    return graph_of([(dtype, shape)], build), made


def bound(case: str) -> float:
    """NumPy adds columns one after the other: its own error is half an ulp per step."""
    return 2.0**-10 if CASES[case][0] == "f16" else 2.0**-17


@pytest.mark.parametrize("chip", ["lanes", "cuda-sm80"])
@pytest.mark.parametrize("case", CASES)
def test_rows_of_every_length(case: str, chip: str) -> None:
    graph, arrays = given(case)
    run = api.Simulation(api.compile_stages(graph, target(chip)))
    for x in arrays:
        assert_same(run(x0=x), interpret(graph, {"x0": x}), bound(case))


@pytest.mark.parametrize(
    "case", ["softmax", "softmax f16", "layer norm of 40", "sum of all", "any", "columns"]
)
def test_the_text_that_ships_agrees(case: str) -> None:
    graph, arrays = given(case)
    run = PtxRun(graph, load_target("cuda-sm80"))
    for x in arrays:
        assert_same(run({"x0": x}), interpret(graph, {"x0": x}), bound(case))


def moved(graph: Graph, chip: str, x: np.ndarray) -> tuple[int, int]:
    """(bytes that main memory moves, workgroups of all launches)."""
    run = api.Simulation(api.compile_stages(graph, target(chip)))
    run(x0=x)
    main = next(m.name for m in target(chip).memories if m.kind == "dram")
    return run.stats.places[main].moved_bytes, run.stats.iterations


@pytest.mark.parametrize("build", [softmax, layer_norm])
@pytest.mark.parametrize("shape", [(64, 40), (16, 768), (4, 8192)])
def test_a_row_is_read_once_and_written_once(build: Any, shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    found, _ = moved(graph_of([("f32", (N, shape[1]))], build), "cuda-sm80", x)
    assert found <= 2 * x.nbytes * 1.01


@pytest.mark.parametrize("axes", [(0, 1), (0,)])
def test_a_long_reduction_has_many_workgroups(axes: tuple[int, ...]) -> None:
    x = RNG.standard_normal((30000, 8)).astype(np.float32)
    found, groups = moved(graph_of([("f32", (N, M))], reduced(*axes)), "cuda-sm80", x)
    assert groups > 20
    assert found <= 1.25 * x.nbytes


def test_short_rows_share_a_lockstep_group() -> None:
    made = api.compile_stages(graph_of([("f32", (N, 40))], softmax), target("cuda-sm80"))
    (plan,) = (v.schedule for item in made.lowered for v in versions(item))
    assert isinstance(plan, LaneRowSchedule)
    assert (plan.lanes, plan.rows, plan.wide, plan.steps) == (4, 32, 4, 3)
    assert "4 lanes per row" in str(plan)
    assert {r.decision for r in plan.why} == {"lanes", "rows", "wide", "steps"}


def test_wide_accesses_only_where_every_row_is_aligned() -> None:
    made = api.compile_stages(graph_of([("f32", (N, M))], softmax), target("cuda-sm80"))
    plans = [(v.schedule, str(v.guard)) for item in made.lowered for v in versions(item)]
    for plan, guard in plans:
        assert isinstance(plan, LaneRowSchedule)
        assert (plan.wide == 4) == ("%4" in guard.replace(" ", ""))


def test_a_pad_is_one_launch() -> None:
    """Its border and its middle are blocks of their own; each has workgroups of its own."""
    attrs = {"low": (1, 0), "high": (2, 3), "mode": "constant", "value": 0.5}
    graph = graph_of([("f32", (N, M))], lambda b, x: b.node("pad", [b.node("tanh", [x])], **attrs))
    run = api.Simulation(api.compile_stages(graph, target("lanes")))
    for size in ((0, 3), (1, 1), (7, 30)):
        x = RNG.standard_normal(size).astype(np.float32)
        assert_same(run(x0=x), interpret(graph, {"x0": x}), 2.0**-20)
        assert len(run.stats.kernels) <= 2


def test_windows_need_no_padded_copy() -> None:
    """Lanes leave out what is not there one by one."""
    attrs = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1), "groups": 8}
    inputs = [("f32", (1, N, M, 8)), ("f32", (3, 3, 1, 8))]
    graph = graph_of(inputs, lambda b, x, w: b.node("conv", [x, w], **attrs))
    made = api.compile_stages(graph, target("lanes"))
    assert len(made.lowered) == 1
    for size in ((1, 1), (5, 7)):
        x = {"x0": RNG.standard_normal((1, *size, 8)), "x1": RNG.standard_normal((3, 3, 1, 8))}
        x = {k: v.astype(np.float32) for k, v in x.items()}
        assert_same(api.Simulation(made)(**x), interpret(graph, x), 2.0**-20)
