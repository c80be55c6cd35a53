"""Streaming attention on lanes against f64: heads inside rows, masks, causal scores, blocks that are not full."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.lower.simt.schedules import LaneAttentionSchedule
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of, target
from tests.codegen.test_compiler_ops import softmax, wide
from tests.lanes.ptx_run import PtxRun

B, S, T = sym("b"), sym("s"), sym("t")
HEADS = 2
RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]
SIZES = ((1, 1, 1), (2, 5, 7), (1, 17, 70), (0, 3, 4), (1, 3, 0))  # batch, rows, keys


def heads(b: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Heads lie inside rows; scores are scaled and masked."""

    def apart(x: Any) -> Any:
        shape = (B, x.shape[1], HEADS, x.shape[2] // HEADS)
        return b.node("transpose", [b.node("reshape", [x], shape=shape)], perm=(0, 2, 1, 3))

    q, k, v = map(apart, (q, k, v))
    scores = b.node("dot_general", [q, k], batch=((0, 0), (1, 1)), contract=((3, 3),))
    scale = b.constant(np.array(0.25, numpy_dtype(scores.dtype)))
    scores = b.node("mul", [scores, wide(b, scale, scores.shape)])
    scores = b.node("add", [scores, wide(b, mask, scores.shape, 0, 1, 2, 3)])
    return b.node("dot_general", [softmax(b, scores), v], batch=((0, 0), (1, 1)), contract=((3, 2),))


def causal(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Keys behind a row's own place do not count."""
    scores = b.node("dot_general", [q, k], batch=((0, 0),), contract=((2, 2),))
    row, column = (b.node("iota", [], shape=scores.shape, axis=a, dtype="i64") for a in (1, 2))
    low = wide(b, b.constant(np.array(-np.inf, numpy_dtype(scores.dtype))), scores.shape)
    scores = b.node("select", [b.node("le", [column, row]), scores, low])
    return b.node("dot_general", [softmax(b, scores), v], batch=((0, 0),), contract=((2, 1),))


def masked(dtype: str, depth: int, values: int) -> Graph:
    inputs = [(dtype, (B, n, HEADS * d)) for n, d in ((S, depth), (T, depth), (T, values))]
    return graph_of([*inputs, (dtype, (B, 1, 1, T))], heads)


def arrays(dtype: str, depth: int, values: int, size: tuple[int, int, int]) -> dict[str, Array]:
    batch, rows, keys = size
    shapes = [(batch, n, HEADS * d) for n, d in ((rows, depth), (keys, depth), (keys, values))]
    made = [RNG.standard_normal(s) for s in shapes]
    made.append(np.where(RNG.random((batch, 1, 1, keys)) < 0.3, -60000.0, 0.0))
    return {f"x{i}": a.astype(numpy_dtype(dtype)) for i, a in enumerate(made)}


def reference(x: dict[str, Array], depth: int, values: int) -> Array:
    q, k, v, mask = (a.astype(np.float64) for a in x.values())
    q, k, v = (
        a.reshape(*a.shape[:2], HEADS, -1 if a.size else d).transpose(0, 2, 1, 3)
        for a, d in ((q, depth), (k, depth), (v, values))
    )
    scores = q @ k.transpose(0, 1, 3, 2) * 0.25 + mask
    e = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf)) if scores.size else scores
    return (e / np.maximum(e.sum(-1, keepdims=True), 1e-30)) @ v


def planned(made: api.Compilation) -> LaneAttentionSchedule:
    (plan,) = (item.schedule for item in made.lowered)
    assert isinstance(plan, LaneAttentionSchedule)
    return plan


CASES = [
    ("f32", 8, 8, "lanes", ""), ("f32", 5, 7, "lanes", ""), ("f16", 8, 8, "lanes", "multiply"),
    ("f32", 12, 24, "cuda-sm80", ""), ("f16", 64, 64, "cuda-sm80", "mma_m16n8k16_f16"),
    ("bf16", 24, 40, "cuda-sm80", "mma_m16n8k16_bf16"), ("f64", 8, 8, "cuda-sm75", ""),
]  # fmt: skip
BOUND = {"f64": 1e-12, "f32": 2.0**-19, "f16": 2.0**-8, "bf16": 2.0**-5}


@pytest.mark.parametrize(("dtype", "depth", "values", "chip", "intrinsic"), CASES)
def test_one_kernel_gives_the_attention_of_all_sizes(
    dtype: str, depth: int, values: int, chip: str, intrinsic: str
) -> None:
    made = api.compile_stages(masked(dtype, depth, values), target(chip))
    assert planned(made).intrinsic == intrinsic
    run = api.Simulation(made)
    for size in SIZES:
        x = arrays(dtype, depth, values, size)
        got = run(**x)["y0"].astype(np.float64)
        np.testing.assert_allclose(got, reference(x, depth, values), atol=BOUND[dtype] * 4)


@pytest.mark.parametrize(("dtype", "chip"), [("f32", "lanes"), ("f16", "cuda-sm80")])
def test_causal_scores_and_strange_numbers(dtype: str, chip: str) -> None:
    graph = graph_of([(dtype, (2, n, 8)) for n in (S, T, T)], causal)
    made = api.compile_stages(graph, target(chip))
    assert planned(made).rows >= 16
    for rows, keys in ((1, 1), (67, 67), (9, 40)):
        x = {
            f"x{i}": RNG.standard_normal((2, n, 8)).astype(numpy_dtype(dtype))
            for i, n in enumerate((rows, keys, keys))
        }
        if rows > 60:
            x["x0"][0, 3, 2], x["x0"][1, 0] = np.nan, np.inf
        assert_same(api.Simulation(made)(**x), interpret(graph, x), BOUND[dtype])


@pytest.mark.parametrize(("dtype", "depth"), [("f16", 32), ("f32", 24)])
def test_the_text_that_ships_agrees(dtype: str, depth: int) -> None:
    run = PtxRun(masked(dtype, depth, depth), load_target("cuda-sm80"))
    (text,) = run.text.values()
    assert ("mma.sync" in text) == (dtype == "f16")
    if dtype == "f16":  # keys as they lie, values turned on the way; nothing comes one element at a time
        assert re.search(r"ldmatrix\S+\.x4\.shared", text)
        assert re.search(r"ldmatrix\S+\.x4\.trans", text)
        assert not re.search(r"ld\.shared\.[bu]16", text)
    for size in SIZES[:3]:
        x = arrays(dtype, depth, depth, size)
        got = run(x)["y0"].astype(np.float64)
        np.testing.assert_allclose(got, reference(x, depth, depth), atol=BOUND[dtype] * 4)


def test_weights_stay_in_registers_where_the_layouts_agree() -> None:
    tensor = planned(api.compile_stages(masked("f16", 64, 64), target("cuda-sm80")))
    odd = planned(api.compile_stages(masked("f16", 8, 8), target("lanes")))
    assert (tensor.direct, odd.direct) == (True, False)
    assert "weights by registers" in str(tensor)
    assert {r.decision for r in tensor.why} == {"waves", "rows", "columns", "sums"}


def test_scores_are_never_in_memory() -> None:
    made = api.compile_stages(masked("f16", 64, 64), target("cuda-sm80"))
    assert made.assembled.program.arena_bytes == 0


def test_heads_too_deep_for_registers_are_three_kernels() -> None:
    made = api.compile_stages(masked("f32", 264, 264), target("lanes"))
    assert [item.loop.name.split("_")[1] for item in made.lowered] == ["contraction", "row", "contraction"]


@pytest.mark.parametrize(
    ("chip", "precision", "intrinsic", "bits"),
    [
        ("cuda-sm80", "bf16", "mma_m16n8k16_bf16", 8),
        ("cuda-sm80", "tf32", "mma_m16n8k8_tf32", 11),
        ("rocm-gfx90a", "f16", "mfma_16x16x16_f16", 11),
    ],
)
def test_a_precision_that_was_asked_for_reaches_both_products(
    chip: str, precision: str, intrinsic: str, bits: int
) -> None:
    """Operands are rounded where they are staged; sums and the softmax stay f32."""
    made = api.compile_stages(masked("f32", 24, 40), load_target(chip), precision=precision)
    assert planned(made).intrinsic == intrinsic
    run = api.instructions(made)
    for size in SIZES:
        x = arrays("f32", 24, 40, size)
        want = reference(x, 24, 40)
        got = next(iter(run(**x).values()))
        # a score of 24 products is off by about 5 roundings of 1/4, a weight and its value by one each: 16 are ample
        bound = 2.0**-bits * 16 * max(1.0, float(np.abs(want).max(initial=0.0)))
        assert np.abs(got.reshape(want.shape) - want).max(initial=0.0) <= bound
