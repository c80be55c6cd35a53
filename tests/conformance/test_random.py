"""Level L4: the graphs that it grows, the bounds that it derives, and how it shrinks what fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hwsdk.conformance import l4_random, runner, suite
from hwsdk.conformance.error_bounds import Known, bounds
from hwsdk.conformance.l4_random import DTYPES_USED, compare, seeds
from hwsdk.conformance.model import Mismatch, Outcome
from hwsdk.conformance.random_steps import STEPS, sample
from hwsdk.conformance.shrinking import Failure, rebuilt, shrink
from hwsdk.conformance.tolerance import growth, unit
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder, Node, Value
from hwsdk.graph.interpret import interpret
from hwsdk.graph.opdef import Attrs
from hwsdk.graph.text import print_graph
from hwsdk.target_desc import load_target
from tests.conformance.interpreter_device import InterpreterDevice, Program

Array = np.ndarray[Any, Any]
N = sym("n")
TARGET = load_target("x86-64-v3", detect=False)


def run(device: InterpreterDevice, count: int) -> list[Outcome]:
    return runner.run(l4_random.cases(device.target, range(count)), device)


# --------------------------------------------------------------------------------------------------------------- graphs
def test_the_interpreter_conforms_and_nearly_every_element_counts() -> None:
    outcomes = run(InterpreterDevice(), 60)
    assert not [f"{o.name}: {o.reason}" for o in outcomes if o.status != "pass"]
    elements, checked = (sum(o.measured[k] for o in outcomes) for k in ("elements", "checked"))
    assert elements > 100_000
    assert checked > 0.99 * elements


def test_a_seed_is_a_graph_and_the_graphs_differ() -> None:
    texts = [print_graph(sample(seed, DTYPES_USED).graph) for seed in range(30)]
    assert texts[:5] == [print_graph(sample(seed, DTYPES_USED).graph) for seed in range(5)]
    assert len(set(texts)) == 30


def test_graphs_have_every_kind_of_node_and_dim() -> None:
    made = [sample(seed, DTYPES_USED) for seed in range(250)]
    ops = Counter(node.op for s in made for node in s.graph.nodes)
    shaped = (
        "dot_general conv gather scatter_nd cumulative sort top_k reduce_window pad slice concat cast select"
    )
    assert not [op for op in shaped.split() if not ops[op]]
    assert {v.dtype for s in made for v in s.graph.inputs} == set(DTYPES_USED)
    sizes = {size for s in made for binding in s.sizes for size in binding.values()}
    assert {0, 1, 2, 7, 31} <= sizes
    assert all(len(s.sizes) == 3 for s in made)


def test_what_a_target_lacks_is_left_out() -> None:
    made = [
        sample(seed, ("f32", "i32"), lambda kind, dtype: kind not in ("exp", "reduce.max"))
        for seed in range(60)
    ]
    nodes = [node for s in made for node in s.graph.nodes]
    kinds = {(node.op, node.attrs.get("kind")) for node in nodes}
    assert ("reduce", "sum") in kinds
    assert not {("exp", None), ("reduce", "max")} & kinds
    assert {v.dtype for s in made for v in s.graph.inputs} <= {"f32", "i32", "i64"}  # i64: indices


def test_every_step_works_somewhere() -> None:
    seen: set[str] = set()

    def counting(name: str, step: Callable[[Any], Value]) -> Callable[[Any], Value]:
        def counted(g: Any) -> Value:
            found = step(g)
            seen.add(name)
            return found

        return counted

    with pytest.MonkeyPatch.context() as patch:
        counted = {name: (weight, counting(name, step)) for name, (weight, step) in STEPS.items()}
        patch.setattr("hwsdk.conformance.random_steps.STEPS", counted)
        for seed in range(150):
            sample(seed, DTYPES_USED)
    assert seen == set(STEPS)


def test_seeds_of_a_pattern() -> None:
    assert seeds(3, "") == [0, 1, 2]
    assert seeds(None, "L4/seed-4711,seed-1") == [*range(30), 4711]
    (case,) = runner.select(suite.collect(TARGET, ["L4"], "seed-4711"), ["L4"], "seed-4711")
    assert case.id == "L4/seed-4711"


# --------------------------------------------------------------------------------------------------------------- bounds
def known(inputs: Mapping[str, Array], build: Callable[..., Value]) -> Known:
    b = GraphBuilder("one")
    made = [b.input(k, {"float32": "f32", "int64": "i64", "bfloat16": "bf16"}[v.dtype.name], v.shape)
            for k, v in inputs.items()]  # fmt: skip
    b.output(build(b, *made), "y")
    graph = b.finish()
    return bounds(graph, inputs, TARGET)[graph.outputs[0]]


def test_a_sum_has_the_bound_of_its_terms() -> None:
    x = np.array([3, -4, 5, -4], np.float32)
    found = known({"x": x}, lambda b, x: b.node("reduce", [x], kind="sum", axes=(0,)))
    assert float(found.value) == 0
    np.testing.assert_allclose(found.error, growth(4) * unit("f32") * 16, rtol=1e-6)


def test_errors_grow_along_a_path() -> None:
    x = np.array([0.3, 7.0], np.float32)

    def build(b: GraphBuilder, x: Value) -> Value:
        y = b.node("mul", [b.node("exp", [x]), b.node("exp", [x])])
        return b.node("div", [y, b.node("sub", [y, b.node("mul", [y, y])])])  # type: ignore[no-any-return]

    found = known({"x": x}, build)
    assert (found.error > 6 * unit("f32") * np.abs(found.value)).all()
    assert (found.error < 200 * unit("f32") * np.abs(found.value)).all()


DOUBTS: dict[str, tuple[Callable[[GraphBuilder, Value], Value], list[bool]]] = {
    "comparison": (lambda b, y: b.node("lt", [y, b.constant(np.array([2, 5, 9], np.float32))]), [False, True, True]),
    "conversion": (lambda b, y: b.node("cast", [y], dtype="i64"), [False, False, False]),
    "half": (lambda b, y: b.node("cast", [b.node("mul", [y, b.constant(np.full(3, 0.3, np.float32))])], dtype="i64"),
             [True, True, True]),
    "index": (lambda b, y: b.node("gather", [b.constant(np.arange(9.0)), b.node("cast", [y], dtype="i64")], axis=0),
              [False, False, False]),
    "order": (lambda b, y: b.node("sort", [y], axis=0)[1], [True, True, True]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTS)
def test_what_may_go_either_way_is_left_open(name: str) -> None:
    """y = sqrt(x)^2 is 2, 3, 4 up to rounding."""
    build, sure = DOUBTS[name]

    def graph(b: GraphBuilder, x: Value) -> Value:
        root = b.node("sqrt", [x])
        return build(b, b.node("mul", [root, root]))

    found = known({"x": np.array([2, 3, 4], np.float32)}, graph)
    assert np.isfinite(found.error).tolist() == sure


def test_nothing_is_said_beyond_the_largest_number() -> None:
    x = np.array([1e30, 1.0], np.float32)
    found = known({"x": x}, lambda b, x: b.node("mul", [x, x]))
    assert np.isfinite(found.error).tolist() == [False, True]
    compare("y", np.array([np.inf, 1.0], np.float32), found, "f32")


def test_a_wrong_element_is_named() -> None:
    sure = Known(np.array([1.0, 2.0]), np.array([1e-7, 1e-7]))
    assert 0 < compare("y", np.array([1, 2], np.float32) + np.float32(1e-7), sure, "f32") <= 1
    with pytest.raises(Mismatch, match=r"1 of 2 elements differ; first at \[1\]: got 3.0, expected 2.0"):
        compare("y", np.array([1, 3], np.float32), sure, "f32")
    with pytest.raises(Mismatch, match=r"float32\[1\], expected f32\[2\]"):
        compare("y", np.zeros(1, np.float32), sure, "f32")


# ------------------------------------------------------------------------------------------------------------ shrinking
class Deaf(InterpreterDevice):
    """Its running sums never run backwards."""

    def build(self, graph: Graph) -> Program:
        def heard(node: Node) -> Node:
            return (
                replace(node, attrs=Attrs({**node.attrs, "reverse": False}))
                if node.op == "cumulative"
                else node
            )

        return Program(self, replace(graph, nodes=tuple(map(heard, graph.nodes))))


def test_a_failure_is_shrunk_to_the_node_that_is_wrong() -> None:
    device = Deaf()
    wrong = [o for o in run(device, 25) if o.status == "fail"]
    assert wrong
    for outcome in wrong:
        assert f"--filter {outcome.id}" in outcome.reason
        text = outcome.reason[outcome.reason.index("graph ") :]
        (line,) = [x for x in text.splitlines() if " = " in x and "symbol" not in x]
        assert "cumulative(" in line
        assert "reverse = true" in line


class Breaks(InterpreterDevice):
    """Its compiler stumbles over a select."""

    def build(self, graph: Graph) -> Program:
        if any(node.op == "select" for node in graph.nodes):
            raise AssertionError("no select here")
        return super().build(graph)


def test_a_compiler_that_breaks_is_shrunk_too() -> None:
    wrong = [o for o in run(Breaks(), 15) if o.status == "fail"]
    assert wrong
    assert all("AssertionError: no select here" in o.reason for o in wrong)
    for outcome in wrong:
        text = outcome.reason[outcome.reason.index("graph ") :]
        nodes = [x for x in text.splitlines() if " = " in x and "symbol" not in x]
        assert any("select(" in x for x in nodes)
        assert len(nodes) <= 4  # sizes must follow from inputs, which keeps a node or two


def test_a_second_compile_fails() -> None:
    (outcome,) = run(InterpreterDevice(compiles=2), 1)
    assert "2 compiles for 3 sizes" in outcome.reason


def chain() -> Graph:
    b = GraphBuilder("chain")
    x = b.input("x", "f32", (N, 4))
    y = b.node("exp", [b.node("neg", [x], name="a")], name="b")
    b.output(b.node("reduce", [y], kind="sum", axes=(0,), name="c"), "sum")
    b.output(b.node("abs", [y], name="d"), "other")
    return b.finish()


def test_parts_of_a_graph() -> None:
    part = rebuilt(chain(), [("sum", "c")], {"b"})
    assert part is not None
    assert [v.name for v in part.inputs] == ["b"]
    assert [node.name for node in part.nodes] == ["c"]
    assert rebuilt(chain(), [("x", "x")], set()) is None


def test_dims_shrink_while_it_fails() -> None:
    def fails(graph: Graph, inputs: Mapping[str, Array]) -> str:
        rows = interpret(graph, inputs)
        return "wrong" if "sum" in rows and next(iter(inputs.values())).shape[0] >= 3 else ""

    def values(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {name: k.value for name, k in bounds(graph, inputs, TARGET).items()}

    start = {"x": np.ones((31, 4), np.float32)}
    found = shrink(Failure(chain(), start, "wrong"), fails, values, seconds=20)
    assert [node.op for node in found.graph.nodes] == ["reduce"]
    assert next(iter(found.inputs.values())).shape == (3, 4)
