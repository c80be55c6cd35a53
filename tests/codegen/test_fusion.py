"""What becomes one kernel: regions of the patterns that matter, and of those that must not be joined."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hwsdk.codegen.driver import build_kernels
from hwsdk.codegen.fusion import partition
from hwsdk.codegen.lower.attention import attention_kernels
from hwsdk.codegen.prepare import prepare
from hwsdk.conformance.l4_random import DTYPES_USED
from hwsdk.conformance.random_steps import sample
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from tests.codegen.compiled import check, graph_of
from tests.codegen.test_compiler_ops import attention, layer_norm, softmax

N, M = sym("n"), sym("m")


def kinds(graph: Graph) -> list[str]:
    return [r.kind for r in partition(prepare(graph)).regions]


def bias(b: Any, y: Any, value: float = 1.0) -> Any:
    array = b.constant(np.full(y.shape[-1], value, np.float32) + np.arange(y.shape[-1], dtype=np.float32))
    return b.node("add", [y, b.node("broadcast_in_dim", [array], shape=y.shape, dims=(len(y.shape) - 1,))])


def test_an_epilogue_belongs_to_its_product() -> None:
    def build(b: Any, x: Any, w: Any, rest: Any) -> Any:
        y = bias(b, b.node("dot_general", [x, w], contract=((1, 0),)))
        gate = b.node("mul", [y, b.node("tanh", [y])])  # y is used twice, inside the region
        return b.node("add", [gate, rest])

    graph = graph_of([("f32", (N, 8)), ("f32", (8, 4)), ("f32", (N, 4))], build)
    assert kinds(graph) == ["contraction"]


def test_a_value_that_others_read_ends_the_epilogue() -> None:
    def build(b: Any, x: Any, w: Any) -> Any:
        y = bias(b, b.node("dot_general", [x, w], contract=((1, 0),)))
        return y, b.node("tanh", [y])

    regions = partition(prepare(graph_of([("f32", (N, 8)), ("f32", (8, 4))], build))).regions
    assert [r.kind for r in regions] == ["contraction", "map"]


@pytest.mark.parametrize("build", [softmax, layer_norm])
def test_a_row_operation_is_one_kernel(build: Any) -> None:
    assert kinds(graph_of([("f32", (N, M))], build)) == ["row"]


def test_attention_is_one_kernel_after_its_packing() -> None:
    graph = graph_of([("f32", (N, M, 16)), ("f32", (N, M, 16)), ("f32", (N, M, 16))], attention)
    _, kernels = build_kernels(prepare(graph))
    assert [k.kind for k in attention_kernels(kernels, graph.outputs)] == ["attention"]


def test_scores_that_are_an_output_stay_a_kernel_of_their_own() -> None:
    def build(b: Any, q: Any, k: Any, v: Any) -> Any:
        scores = softmax(b, b.node("dot_general", [q, k], batch=((0, 0),), contract=((2, 2),)))
        return scores, b.node("dot_general", [scores, v], batch=((0, 0),), contract=((2, 1),))

    graph = graph_of([("f32", (N, M, 16)), ("f32", (N, M, 16)), ("f32", (N, M, 16))], build)
    prepared = prepare(graph)
    _, kernels = build_kernels(prepared)
    assert "attention" not in [k.kind for k in attention_kernels(kernels, prepared.outputs)]


def test_weights_of_another_dtype_do_not_share_the_buffer_of_the_scores() -> None:
    def build(b: Any, q: Any, k: Any, v: Any) -> Any:
        weights = softmax(b, b.node("dot_general", [q, k], batch=((0, 0),), contract=((2, 2),)))
        wide = b.node("cast", [weights], dtype="f64")
        return b.node("dot_general", [wide, v], batch=((0, 0),), contract=((2, 1),))

    graph = graph_of([("f32", (N, M, 16)), ("f32", (N, M, 16)), ("f64", (N, M, 16))], build)
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal((2, 9, 16)) for _ in range(3))
    check(graph, "x86", [{"x0": x.astype(np.float32), "x1": y.astype(np.float32), "x2": z}])


def test_regions_never_wait_for_each_other() -> None:
    """Two products whose epilogues read each other's results: only one of them may take its epilogue in."""

    def build(b: Any, x: Any, v: Any, w: Any) -> Any:
        p, q = (b.node("dot_general", [x, a], contract=((1, 0),)) for a in (v, w))
        s = b.node("add", [p, b.node("exp", [q])])
        return b.node("mul", [b.node("tanh", [q]), b.node("exp", [p])]), s

    inputs = [("f32", (N, 8)), ("f32", (8, 4)), ("f32", (8, 4))]
    graph = graph_of(inputs, build)
    rng = np.random.default_rng(0)
    given = {
        f"x{i}": rng.standard_normal(s).astype(np.float32) * 0.3
        for i, s in enumerate([(5, 8), (8, 4), (8, 4)])
    }
    check(graph, "x86", [given])


def test_shape_ops_cost_no_kernel() -> None:
    def build(b: Any, x: Any, w: Any) -> Any:
        heads = b.node("reshape", [x], shape=(N, M, 4, 6))
        heads = b.node("transpose", [heads], perm=(0, 2, 1, 3))
        flat = b.node("reshape", [b.node("transpose", [heads], perm=(0, 2, 1, 3))], shape=(N * M, 24))
        return b.node("dot_general", [flat, w], contract=((1, 0),))

    graph = graph_of([("f32", (N, M, 24)), ("f32", (24, 10))], build)
    assert kinds(graph) == ["contraction"]
    given = {"x0": np.ones((2, 3, 24), np.float32), "x1": np.ones((24, 10), np.float32)}
    check(graph, "x86", [given])


def test_dims_may_have_any_name() -> None:
    """Names that loops use inside are names like any other for a model."""
    a, b_, c = sym("row"), sym("k0"), sym("task")

    def build(b: Any, x: Any, w: Any) -> Any:
        return softmax(b, b.node("dot_general", [x, w], contract=((1, 0),)))

    graph = graph_of([("f32", (a, b_)), ("f32", (b_, c))], build)
    rng = np.random.default_rng(0)
    given = {
        "x0": rng.standard_normal((5, 7)).astype(np.float32),
        "x1": rng.standard_normal((7, 9)).astype(np.float32),
    }
    for name in ("x86", "npu"):
        check(graph, name, [given])


def test_a_long_chain_is_cut_into_bodies_of_bounded_height() -> None:
    def build(b: Any, x: Any) -> Any:
        for _ in range(350):
            x = b.node("abs", [b.node("neg", [x])])
        return x

    graph = graph_of([("f32", (N,))], build)
    assert len(kinds(graph)) == 7  # 700 operations in hundreds
    check(graph, "x86", [{"x0": np.linspace(-2, 2, 37, dtype=np.float32)}])


def test_operands_of_library_kernels_are_in_memory() -> None:
    """A reduction with its own loop structure cannot compute its operand on the way."""

    def build(b: Any, x: Any) -> Any:
        return b.node("reduce", [b.node("reverse", [x], axes=(1,))], kind="argmax", axes=(1,))

    assert kinds(graph_of([("f32", (N, M))], build)) == ["map", "library"]


def test_every_region_says_why() -> None:
    regions = partition(prepare(graph_of([("f32", (N, M))], softmax))).regions
    assert [r.reason for r in regions] == ["reductions over the same rows and what is computed between them"]


def product_of(b: Any, x: Any, w: Any) -> Any:
    return b.node("dot_general", [x, w], contract=((1, 0),))


APART: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "other rows": (
        lambda b, x, w: b.node("reduce", [product_of(b, x, w)], kind="sum", axes=(1,)),
        [("reduce", "reduce is no elementwise work on a result that is still in registers")],
    ),
    "a way around": (
        lambda b, x, w: softmax(b, product_of(b, x, w)),
        [("sub", "it also needs broadcast_in_dim, which another kernel computes from this one")],
    ),
    "an output": (
        lambda b, x, w: (y := product_of(b, x, w), b.node("tanh", [y])),
        [("tanh", "dot_general is an output of the model, and only the last value of such a kernel")],
    ),
    "another space": (
        lambda b, x, w: b.node("tanh", [b.node("reshape", [product_of(b, x, w)], shape=(4 * N,))]),
        [("reshape", r"another iteration space: 4\*n instead of nx4")],
    ),
    "a product after rows": (
        lambda b, x, w: product_of(b, softmax(b, x), w),
        [("dot_general", "the product dot_general takes its operands from memory")],
    ),
    "loops of its own": (
        lambda b, x, w: b.node("sort", [product_of(b, x, w)], axis=1)[0],
        [("sort", "sort is no elementwise work")],
    ),
}


@pytest.mark.parametrize("case", APART)
def test_why_neighbours_stay_apart(case: str) -> None:
    build, wanted = APART[case]
    graph = prepare(graph_of([("f32", (N, 8)), ("f32", (8, 4))], build))
    edges = {edge.reader: edge.reason for edge in build_kernels(graph)[0].edges}
    for reader, reason in wanted:
        assert re.search(reason, edges[reader]), edges


def test_every_value_between_kernels_has_a_reason() -> None:
    """Of random graphs: as many edges as the kernels themselves show, each with its reason."""
    for seed in range(60):
        graph = prepare(sample(seed, DTYPES_USED).graph)
        cut, kernels = build_kernels(graph)
        anchors = {node: region.anchor for region in cut.regions for node in region.nodes}
        made = {t.name: k for k in kernels for t in k.outputs}
        shown = {
            (made[t.name].name, k.name)
            for k in kernels
            for t in k.inputs
            if t.name in made and made[t.name] != k
        }
        names = {region.anchor: k.name for region, k in zip(cut.regions, kernels)}
        found = {(names[anchors[e.producer]], names[e.consumer]) for e in cut.edges}
        assert shown <= found, seed
        assert all(e.reason for e in cut.edges)
