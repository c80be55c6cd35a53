"""Schedules of lanes changed by hand: what is printed is taken back, changes compute the same, bad ones say why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.loop_print import print_kernel
from hwsdk.codegen.lower.lowered import Lowered, versions
from hwsdk.codegen.overrides import decided
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import PlanError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from tests.codegen.compiled import assert_same, graph_of, target
from tests.codegen.test_compiler_ops import softmax

N, M, U = (sym(x) for x in "nmu")
RNG = np.random.default_rng(0)
Changes = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """changes: to the decisions of one kernel.  refused: changes, and words of the one line that says why."""

    graph: Graph
    sizes: tuple[dict[str, int], ...]
    changes: tuple[Changes, ...]
    refused: tuple[tuple[Changes, str], ...]
    kernel: str = ""


def node(op: str, inputs: list[tuple[str, tuple[Any, ...]]], **attrs: Any) -> Graph:
    return graph_of(inputs, lambda b, *xs: b.node(op, list(xs), **attrs))


def attention(b: Any, q: Any, k: Any, v: Any) -> Any:
    scores = b.node("dot_general", [q, k], batch=((0, 0),), contract=((2, 2),))
    return b.node("dot_general", [softmax(b, scores), v], batch=((0, 0),), contract=((2, 1),))


LANES = "a team has a multiple of 16 lanes, 64 at most"
TWO_SIZES = ({"n": 7, "m": 3}, {"n": 2, "m": 130})
CASES = {
    "map": Case(
        node("tanh", [("f32", (N, M))]),
        TWO_SIZES,
        ({"lanes": 16}, {"wide": 1}, {"lanes": 48, "wide": 2}),
        (
            ({"lanes": 24}, f"lanes 24: {LANES}"),
            ({"lanes": 128}, f"lanes 128: {LANES}"),
            ({"wide": 8}, "wide 8: a power of two is expected, 4 at most"),
            ({"split": 2}, "'split' is no decision that may be changed; known: lanes wide"),
        ),
    ),
    "pad": Case(  # blocks with accesses of different widths
        graph_of([("f32", (N, M))], lambda b, x: b.node("pad", [x], low=(0, 3), high=(1, 0), value=1.0)),
        TWO_SIZES,
        ({"lanes": 16},),
        (({"lanes": 0}, f"lanes 0: {LANES}"),),
    ),
    "row": Case(
        graph_of([("f32", (N, M))], softmax),
        TWO_SIZES,
        (
            {"steps": 0},
            {"lanes": 64, "waves": 4},
            {"lanes": 16, "waves": 1, "steps": 3},
            {"lanes": 4, "wide": 1, "waves": 2},
        ),
        (
            ({"waves": 5}, f"waves 80: {LANES}"),
            ({"lanes": 24}, "lanes 24: a row has a power of two up to 16 lanes, or all"),
            ({"steps": 400}, r"it needs \d+ file for each of \d+ lanes, of which one has 128"),
            ({"rows": 2}, "'rows' is no decision that may be changed; known: lanes steps waves wide"),
        ),
    ),
    "row of 40": Case(
        graph_of([("f32", (N, 40))], softmax),
        ({"n": 1}, {"n": 9}),
        ({"lanes": 16, "wide": 1, "steps": 3}, {"lanes": 8, "wide": 4, "steps": 2}),
        (({"lanes": 4, "wide": 1, "steps": 2}, "steps 2: 4 lanes then hold 8 elements of rows of 40"),),
    ),
    "few long rows": Case(
        node("reduce", [("f32", (1, M))], kind="sum", axes=(1,), keepdims=False),
        ({"m": 3}, {"m": 5000}),
        ({"waves": 1, "split": 3}, {"split": 40}),
        (({"wide": 3}, "wide 3: a power of two is expected"), ({"split": 0}, "split must be at least 1, not 0")),
        "_parts",
    ),
    "few long columns": Case(
        node("reduce", [("f32", (M, 3))], kind="sum", axes=(0,), keepdims=False),
        ({"m": 3}, {"m": 5000}),
        ({"split": 5}, {"lanes": 16, "split": 900}),
        (({"split": "many"}, "split must be int, not 'many'"),),
        "_parts",
    ),
    "scan": Case(
        node("cumulative", [("f32", (N, M))], kind="sum", axis=1),
        TWO_SIZES,
        ({"lanes": 1, "lines": 32}, {"lanes": 16, "lines": 3}, {"lanes": 48, "lines": 1}),
        (
            ({"lanes": 1, "lines": 20}, f"lines 20: {LANES}"),
            ({"lanes": 32, "lines": 2}, "lines 2: a line of 32 lanes has its workgroup for itself"),
            ({"items": 8}, "'items' is no decision that may be changed"),
        ),
    ),
    "one long scan": Case(
        node("cumulative", [("i64", (N,))], kind="sum", axis=0),
        ({"n": 5}, {"n": 5000}),
        ({"lanes": 16, "split": 2}, {"split": 3}),
        (({"lanes": 80}, f"lanes 80: {LANES}"),),
    ),
    "arg": Case(
        node("reduce", [("f32", (N, M))], kind="argmax", axes=(1,), keepdims=False),
        TWO_SIZES,
        ({"lanes": 1, "lines": 16}, {"lanes": 16, "lines": 1}, {"lanes": 64, "lines": 1}),
        (({"lanes": 8}, f"lanes 8: {LANES}"),),
    ),
    "sort": Case(
        graph_of([("f32", (N, M))], lambda b, x: b.node("sort", [x], axis=1, descending=False)),
        TWO_SIZES,
        ({"run": 64}, {"lanes": 16, "run": 128}),
        (
            ({"run": 100}, "run 100: a power of two is expected, 1024 at most"),
            ({"run": 4096}, "run 4096: a power of two is expected, 1024 at most"),
            ({"lanes": 48}, "48 lanes, run 1024: both are powers of two"),
        ),
    ),
    "top": Case(
        graph_of([("f32", (N, 40))], lambda b, x: b.node("top_k", [x], axis=1, k=5, largest=True)),
        ({"n": 1}, {"n": 7}),
        ({"run": 16}, {"lanes": 16, "run": 128}),
        (({"run": 1}, "run 1: both are powers of two, a run at least 2"),),
    ),
    "scatter": Case(
        node("scatter_nd", [("f32", (N, M)), ("i64", (U, 1)), ("f32", (U, M))], combiner="add"),
        ({"n": 7, "m": 3, "u": 20}, {"n": 5, "m": 70, "u": 9}),
        ({"workgroups": 1}, {"lanes": 16, "workgroups": 50}),
        (({"workgroups": 0}, "workgroups 0: updates of scatter_nd stay in no line"), ({"lanes": 15}, LANES)),
    ),
    "scatter along lines": Case(
        node("scatter_elements", [("f32", (N, M)), ("i32", (U, M)), ("f32", (U, M))], axis=0, combiner="none"),
        ({"n": 7, "m": 3, "u": 7}, {"n": 5, "m": 70, "u": 2}),
        ({"workgroups": 0}, {"lanes": 16, "workgroups": 2}, {"lanes": 32, "workgroups": 0}),
        (({"workgroups": -1}, "workgroups must be at least 0, not -1"),),
    ),
    "attention": Case(
        graph_of([("f16", (2, N, 8)), ("f16", (2, M, 8)), ("f16", (2, M, 8))], attention),
        ({"n": 1, "m": 1}, {"n": 19, "m": 70}),
        ({"waves": 1}, {"columns": 16}, {"waves": 2, "columns": 32}),
        (
            ({"columns": 20}, "columns 20: a power of two is expected"),
            ({"columns": 2048}, r"it needs \d+ bytes of local, of which a team has 16384"),
            ({"waves": 9}, f"waves 144: {LANES}"),
            ({"intrinsic": "multiply_all"}, "no intrinsic 'multiply_all' for both products; "),
        ),
        "attention",
    ),
    "plain product": Case(
        node("dot_general", [("f32", (N, 24)), ("f32", (24, 40))], contract=((1, 0),)),
        ({"n": 1}, {"n": 37}, {"n": 0}),
        ({"rows": 2, "columns": 2, "block": [8, 16, 5]}, {"rows": 1, "columns": 4, "block": [8, 32, 24]}),
        (
            ({"rows": 3}, "rows 3: a power of two is expected"),
            ({"rows": 1, "columns": 1, "block": [3, 8, 4]}, "block .3, 8, 4.: a member group takes 4x4 of it"),
            ({"rows": 1, "columns": 1, "block": [64, 8, 4]}, LANES),
            ({"rows": 1, "columns": 1, "block": [4, 4, 4096]}, "it needs .* of local, of which a team has 16384"),
        ),
    ),
    "product": Case(
        node("dot_general", [("f16", (N, 24)), ("f16", (40, 24))], contract=((1, 1),)),
        ({"n": 1}, {"n": 37}, {"n": 0}),
        (
            {"tiles": [8, 8, 4]},
            {"register_tile": [8, 8], "tiles": [16, 16, 12]},
            {"buffers": 2, "tiles": [8, 16, 8], "register_tile": [8, 16]},
            {"occupancy": 7},
        ),
        (
            ({"register_tile": [5, 8]}, "register_tile rows 5 is not a multiple of the intrinsic's 4"),
            ({"tiles": [16, 20, 8]}, r"tiles \[16, 20, 8\]: register_tile .* of whole 4x8x4 does not divide them"),
            ({"tiles": [512, 8, 8], "register_tile": [4, 8]}, LANES),
            ({"tiles": [512, 256, 64], "register_tile": [256, 128]}, r"it needs \d+ "),
            ({"intrinsic": "multiple"}, "no intrinsic 'multiple' for these dtypes; did you mean 'multiply'"),
            ({"order": "mnk"}, "'order' is no decision that may be changed"),
        ),
    ),
}  # fmt: skip
CHANGES = [(name, change) for name, case in CASES.items() for change in case.changes]
RELATIVE = {"attention": 2.0**-7, "product": 2.0**-9}  # f16 between and behind the steps
REFUSED = [(name, change, words) for name, case in CASES.items() for change, words in case.refused]


def stages(name: str, schedules: Any) -> Compilation:
    return api.compile_stages(CASES[name].graph, target("lanes"), schedules=schedules)


@cache
def planned(name: str) -> Compilation:
    return stages(name, None)


def changeable(made: Compilation, case: Case) -> Lowered:
    """The one kernel of the model that the case changes."""
    found = [x for x in made.lowered if decided(x) and case.kernel in x.kernel]
    return found[0]


def text(item: Lowered) -> str:
    return "\n".join(print_kernel(v.loop) for v in versions(item))


def arrays(graph: Graph, size: dict[str, int]) -> dict[str, Any]:
    out = {}
    for value in graph.inputs:
        shape = tuple(d if isinstance(d, int) else size[str(d)] for d in value.shape)
        x = RNG.integers(0, 5, shape) if value.dtype[0] == "i" else RNG.standard_normal(shape)
        out[value.name] = np.asarray(x).astype(numpy_dtype(value.dtype))
    return out


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_changed_schedule_computes_the_same(name: str, change: Changes) -> None:
    case = CASES[name]
    kernel = changeable(planned(name), case).kernel
    made = stages(name, {kernel: change})
    item = changeable(made, case)
    assert decided(item).items() >= change.items()
    plan = next(v.schedule for v in versions(item) if v.decisions)
    assert [r.source for r in plan.why if r.decision in change] == ["choice: override"] * len(change)  # type: ignore[attr-defined]
    assert text(item) != text(changeable(planned(name), case))
    run = api.Simulation(made)
    for size in case.sizes:
        given = arrays(case.graph, size)
        assert_same(run(given), interpret(case.graph, given), RELATIVE.get(name, 2.0**-17))


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed_is_taken_back(name: str) -> None:
    plain = changeable(planned(name), CASES[name])
    again = changeable(stages(name, {plain.kernel: decided(plain)}), CASES[name])
    assert decided(again) == decided(plain)
    first, second = (next(v for v in versions(x) if v.decisions) for x in (plain, again))
    shown = [str(v.schedule).partition(": ")[0] for v in (first, second)]  # without the cycles
    assert shown[0] == shown[1]
    if len(list(versions(plain))) == 1:
        assert text(again) == text(plain)


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
def test_what_cannot_be_is_one_line(name: str, change: Changes, words: str) -> None:
    kernel = changeable(planned(name), CASES[name]).kernel
    with pytest.raises(PlanError, match=f"^schedule of {kernel}: .*{words}") as error:
        stages(name, {kernel: change})
    assert "\n" not in str(error.value)


def test_an_unknown_kernel_is_named() -> None:
    kernel = changeable(planned("map"), CASES["map"]).kernel
    with pytest.raises(
        PlanError, match=f"schedule of k9: the model has no such kernel on this target.*{kernel}"
    ):
        stages("map", {"k9": {"lanes": 16}})
