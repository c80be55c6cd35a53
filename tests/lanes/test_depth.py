"""Products whose k is shared by several workgroups: what is compiled, when it runs, what it computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.cli.explaining import _entries
from hwsdk.codegen.host_interpreter import Resolved, choose, resolve
from hwsdk.codegen.loop_ir import For, walk
from hwsdk.codegen.lower.lowered import versions
from hwsdk.codegen.lower.simt import contraction
from hwsdk.codegen.lower.simt.contraction import sample_points
from hwsdk.codegen.planner import Abilities, Contraction, Range, family, plan, predict
from hwsdk.codegen.schedule import ContractionSchedule, from_data, to_data
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.target_desc import Target, load_target

Array = np.ndarray[Any, Any]
ABLE = Abilities(max_buffers=4, split_k=True)


def eager(name: str) -> Target:
    """A chip whose launches cost nothing, so that small products share k, too."""
    chip = load_target(name)
    return replace(chip, levels=tuple(replace(x, fork_cycles=0.0) for x in chip.levels))


def product(
    dtype: str, m: Any, n: Any, k: Any, weights: Array | None = None, after: str = "", batch: bool = False
) -> Graph:
    """y = after(x @ w); after: any of bias, erf (y * erf(y)), residual."""
    b = GraphBuilder("product")
    lead = (sym("b"),) if batch else ()
    x = b.input("x", dtype, (*lead, m, k))
    w = b.input("w", dtype, (*lead, k, n)) if weights is None else b.constant(weights, "w")
    axes = {"batch": ((0, 0),)} if batch else {}
    y = b.node("dot_general", [x, w], contract=((len(lead) + 1, len(lead)),), **axes)
    shape = (*lead, m, n)
    if "bias" in after:
        c = b.input("bias", dtype, (n,))
        y = b.node("add", [y, b.node("broadcast_in_dim", [c], shape=shape, dims=(len(lead) + 1,))])
    if "erf" in after:
        y = b.node("mul", [y, b.node("erf", [y])])
    if "residual" in after:
        y = b.node("add", [y, b.input("residual", dtype, shape)])
    b.output(y, "y")
    return b.finish()


def given(graph: Graph, **sizes: int) -> dict[str, Array]:
    """Random inputs of these sizes."""
    rng = np.random.default_rng(sum(sizes.values()))
    shapes = {v.name: tuple(int(evaluate(d, sizes)) for d in v.shape) for v in graph.inputs}
    kind = numpy_dtype(graph.inputs[0].dtype)
    return {n: rng.standard_normal(s).astype(np.float32).astype(kind) for n, s in shapes.items()}


def agrees(got: Array, inputs: dict[str, Array], weights: Array | None, after: str) -> None:
    """Against NumPy in f64; the bound grows with k and with the rounding of the result."""
    wide = {n: v.astype(np.float64) for n, v in inputs.items()}
    w = wide["w"] if weights is None else weights.astype(np.float64)
    want = wide["x"] @ w + wide.get("bias", 0.0)
    if "erf" in after:
        want = want * np.vectorize(math.erf, otypes=[float])(want)
    want = want + wide.get("residual", 0.0)
    scale = np.abs(wide["x"]) @ np.abs(w) + 1
    unit = float(np.finfo(got.dtype).eps) if got.dtype != np.float32 else 2.0**-23
    bound = 4 * unit * (np.abs(want) + 1) + (w.shape[-2] + 4) * 2.0**-22 * scale
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


def ran(made: api.Compilation, *shapes: tuple[int, ...]) -> tuple[dict[str, int], Resolved]:
    """Workgroups by kernel, of those that have any."""
    program = made.assembled.program
    sizes = resolve(program, list(shapes))
    chosen = [choose(x, sizes)[1] for x in program.launches]
    return {v.symbol: g for v in chosen if (g := sizes.value(v.grid))}, sizes


def shares(grids: dict[str, int]) -> bool:
    return any(name.endswith("_sum") for name in grids)


WEIGHTS = np.random.default_rng(1).standard_normal((1000, 72)).astype(np.float16)
M, N, K = sym("m"), sym("n"), sym("k")
PTX, LLVM = "cuda-sm80", "rocm-gfx90a"


# ------------------------------------------------------------------------------------------------ what is computed
@pytest.mark.parametrize("chip", [pytest.param(PTX, marks=pytest.mark.slow), LLVM])
def test_instructions_of_any_k(chip: str) -> None:
    """Whole parts, a shorter last one, fewer chunks than a part, chunks that are not whole."""
    made = api.compile_stages(graph := product("f16", M, 72, K), eager(chip))
    run = api.instructions(made)
    found = set()
    for m, k in ((1, 1024), (37, 776), (5, 16), (3, 777), (0, 512), (4, 0)):
        inputs = given(graph, m=m, k=k)
        agrees(run(inputs)["y"], inputs, None, "")
        found.add(shares({name: 1 for name, _ in run.launches}))
    assert found == {True, False}


@pytest.mark.parametrize("chip", [PTX, LLVM])
def test_the_epilogue_follows_the_sum(chip: str) -> None:
    after = "bias erf residual"
    made = api.compile_stages(graph := product("f16", M, 72, 1000, WEIGHTS, after), eager(chip))
    run = api.instructions(made)
    for m in (1, 37, 0):
        inputs = given(graph, m=m)
        agrees(run(inputs)["y"], inputs, WEIGHTS, after)
        assert not m or any(name.endswith("_sum") for name, _ in run.launches)


@pytest.mark.parametrize("chip", [PTX, LLVM])
def test_every_matrix_of_a_batch(chip: str) -> None:
    made = api.compile_stages(graph := product("f16", 16, 72, 1000, after="bias", batch=True), eager(chip))
    run = api.instructions(made)
    for b in (1, 3, 0):
        inputs = given(graph, b=b)
        agrees(run(inputs)["y"], inputs, None, "bias")


@pytest.mark.parametrize("chip", [PTX, "dcu-gfx906"])
@pytest.mark.parametrize(("n", "k"), [(72, 1000), (75, 777)])
def test_plain_arithmetic(chip: str, n: int, k: int) -> None:
    weights = np.random.default_rng(2).standard_normal((k, n)).astype(np.float32)
    made = api.compile_stages(graph := product("f32", M, n, k, weights, "bias residual"), load_target(chip))
    run = api.instructions(made)
    for m in (1, 5, 33, 0):
        inputs = given(graph, m=m)
        agrees(run(inputs)["y"], inputs, weights, "bias residual")
        assert not m or any(name.endswith("_sum") for name, _ in run.launches)


def test_plain_arithmetic_of_unknown_sizes() -> None:
    """k decides at run time, and so do blocks."""
    made = api.compile_stages(graph := product("f32", M, N, K, after="bias"), load_target(PTX))
    run = api.instructions(made)
    found = []
    for m, n, k in ((1, 72, 1100), (5, 70, 1027), (70, 72, 10), (2, 0, 77), (2, 5, 0)):
        inputs = given(graph, m=m, n=n, k=k)
        agrees(run(inputs)["y"], inputs, None, "bias")
        found.append(any(name.endswith("_sum") for name, _ in run.launches))
    assert found == [True, True, False, False, False]


@pytest.mark.parametrize(("dtype", "chip"), [("f16", eager(PTX)), ("f32", load_target(PTX))])
def test_the_simulator_agrees_and_finds_no_fault(dtype: str, chip: Target) -> None:
    made = api.compile_stages(graph := product(dtype, 5, 72, 1000, after="bias"), chip)
    assert shares(ran(made, (5, 1000), (1000, 72), (72,))[0])
    inputs = given(graph)
    agrees(api.Simulation(made)(inputs)["y"], inputs, None, "bias")


def test_results_do_not_change_from_run_to_run() -> None:
    made = api.compile_stages(graph := product("f32", 3, 40, 1024), load_target(PTX))
    run, inputs = api.instructions(made), given(graph)
    np.testing.assert_array_equal(run(inputs)["y"], run(inputs)["y"])


# --------------------------------------------------------------------------------------------------- what is compiled
def test_parts_are_added_up_in_their_order() -> None:
    made = api.compile_stages(product("f16", 16, 72, 1000, WEIGHTS, "bias"), eager(PTX))
    first, second = made.lowered
    parts = -(-1000 // first.schedule.k_part)
    assert isinstance(first.schedule, ContractionSchedule)
    assert (first.loop.params[-1].dtype, first.args[-1]) == ("f32", second.args[0])
    assert first.grid == parts * -(-16 // first.schedule.tiles[0]) * -(-72 // first.schedule.tiles[1])
    loops = [(s.var, s.extent, s.kind) for s in walk(second.loop.body) if isinstance(s, For)]
    assert ("round", parts // 8, "serial") in loops
    assert ("step", 8, "unroll") in loops
    assert second.loop.params[0].shape == (parts * 16 * 72,)


def test_the_decision_is_data_with_its_fields() -> None:
    made = api.compile_stages(product("f16", 64, 256, 8192), load_target(PTX))
    schedule = made.lowered[0].schedule
    assert isinstance(schedule, ContractionSchedule)
    assert from_data(to_data(schedule)) == schedule
    assert f"k in parts of {schedule.k_part}" in str(schedule)
    (why,) = [r for r in schedule.why if r.decision == "k_part"]
    assert {"execution.core.count", "execution.device.fork_cycles"} <= set(why.fields)


# ------------------------------------------------------------------------------------------------------ when it runs
@pytest.fixture(scope="module")
def skinny() -> api.Compilation:
    return api.compile_stages(product("f16", M, 512, 8192), load_target(PTX))


def test_k_is_shared_where_that_is_predicted_to_be_faster(skinny: api.Compilation) -> None:
    """The selector against the full cost function, at the sampled sizes."""
    target = skinny.target
    problem = Contraction(Range(), 512, 8192, a="f16", b="f16", out="f16")
    found = family(target, problem, sample_points(problem), 4, ABLE)
    for m in (1, 16, 128, 1024, 4096):
        times = {True: np.inf, False: np.inf}
        for v in found.versions:
            s, cycles = v.schedule, predict(target, problem.at(m=m), v.schedule, ABLE)
            workgroups = -(-m // s.tiles[0]) * -(-512 // s.tiles[1]) * -(-8192 // (s.k_part or 8192))
            if not s.k_part or workgroups <= target.workers():
                times[bool(s.k_part)] = min(times[bool(s.k_part)], cycles)
        grids, _ = ran(skinny, (m, 8192), (8192, 512))
        if max(times.values()) > 1.1 * min(times.values()):
            assert shares(grids) == (times[True] < times[False]), (m, times)


def test_large_products_take_the_launch_and_the_memory_that_they_took(
    skinny: api.Compilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "ABLE", replace(contraction.ABLE, split_k=False))
    whole = api.compile_stages(product("f16", M, 512, 8192), skinny.target)
    for m in (2048, 4096, 10000):
        (here, sizes), (there, old) = (ran(x, (m, 8192), (8192, 512)) for x in (skinny, whole))
        assert list(here.values()) == list(there.values())
        assert sizes.arena_bytes == old.arena_bytes == 0
    assert ran(skinny, (16, 8192), (8192, 512))[1].arena_bytes > 0


def test_a_plan_shares_k_only_where_workers_would_be_idle() -> None:
    chip = load_target(PTX)

    def part(m: int, n: int, k: int) -> int:
        return plan(chip, Contraction(m, n, k, a="f16", b="f16", out="f16"), ABLE).k_part

    assert part(64, 256, 8192)
    assert not part(4096, 4096, 4096)
    assert not part(64, 256, 128)  # too short for a second launch


def test_a_row_keeps_all_cores_at_memory() -> None:
    """One row times a large matrix in f32: predicted to take hardly longer than reading the matrix."""
    made = api.compile_stages(product("f32", 1, 4096, 4096), chip := load_target(PTX))
    grids, _ = ran(made, (1, 4096), (4096, 4096))
    assert shares(grids)
    schedule = made.lowered[0].schedule
    dram = next(m for m in chip.memories if m.kind == "dram")
    assert 4096 * 4096 * 4 / dram.read_bytes_per_cycle < schedule.cycles < 1.3 * 4096 * 4096 * 4 / 1102


def test_versions_of_one_kernel_keep_their_names() -> None:
    made = api.compile_stages(product("f32", M, 72, 1000), load_target(PTX))
    names = [v.loop.name for item in made.lowered for v in versions(item)]
    assert all(name.startswith("k0_contraction") for name in names)
    assert [t.name for t in made.assembled.program.buffers if t.storage == "arena"] == [
        "k0_contraction.parts"
    ]


def test_explain_says_where_nothing_is_launched(skinny: api.Compilation) -> None:
    """One record per launch: what it launches, or that it does not, and the prices with their fields."""
    whole, parts, total = _entries(skinny)
    assert [x["grid"] != "0" for x in (whole, parts, total)] == [True, True, True]
    assert [v["symbol"] == "(none)" for v in whole["versions"]].count(True) == 1
    assert (
        whole["versions"][0]["symbol"] == parts["versions"][-1]["symbol"] == total["versions"][-1]["symbol"]
    )
    assert {"k_part", "time"} <= {d["decision"] for d in parts["decisions"]}
    assert "parts" in {d["decision"] for d in total["decisions"]}


def test_lines_that_are_not_whole_walk_all_of_k() -> None:
    """No chunk of a row of 1003 elements is whole, so nothing is there to be shared; the schedule says so."""
    (one,) = api.compile_stages(product("f16", 16, 72, 1003), eager(PTX)).lowered
    assert isinstance(one.schedule, ContractionSchedule)
    assert not one.schedule.k_part
