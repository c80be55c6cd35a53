"""Kernels as the text that ships or is handed to the back end, interpreted, against the definition of the graph."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import GraphBuilder
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of
from tests.codegen.test_compiler_ops import CASES
from tests.lanes.ptx_run import PtxRun
from tests.lanes.test_tensor import product

SHOWN = (
    "product", "softmax", "layer norm", "attention", "convolution", "max pool", "sum of everything", "constant pad",
    "sort", "argmax", "gather", "scatter elements", "resize linear", "concatenation",
)  # fmt: skip


def check(case: str, target: str) -> None:
    inputs, build, arrays = CASES[case]
    graph = graph_of(inputs, build)
    run = PtxRun(graph, load_target(target))
    for given in arrays:
        named = {f"x{i}": a for i, a in enumerate(given)}
        assert_same(run(named), interpret(graph, named), 2.0**-20)


@pytest.mark.parametrize("case", SHOWN)
def test_agrees_with_the_definition(case: str) -> None:
    check(case, "cuda-sm80")


@pytest.mark.parametrize("case", SHOWN)
def test_llvm_text_agrees_with_the_definition(case: str) -> None:
    check(case, "rocm-gfx90a")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda-sm75", "cuda-sm89", "cuda-sm90", "dcu-gfx906", "rocm-gfx942"])
@pytest.mark.parametrize("case", [c for c in CASES if c in SHOWN])
def test_agrees_on_other_generations(case: str, target: str) -> None:
    check(case, target)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i8"])
def test_tensor_cores_multiply_and_the_text_says_so(dtype: str) -> None:
    graph = product(dtype, True, tanh=dtype != "i8")
    run = PtxRun(graph, load_target("cuda-sm80"))
    assert any("mma.sync" in text for text in run.text.values())
    rng = np.random.default_rng(3)
    for m, k in ((1, 1), (17, 33), (5, 64)):
        x, w = (rng.integers(-8, 9, s).astype(numpy_dtype(dtype)) for s in ((m, k), (21, k)))
        if dtype != "i8":
            x, w = ((a.astype(np.float32) / 16).astype(numpy_dtype(dtype)) for a in (x, w))
        assert_same(run({"x": x, "w": w}), interpret(graph, {"x": x, "w": w}), 2.0**-8)


def test_functions_of_the_chip_are_called_element_by_element() -> None:
    b = GraphBuilder("functions")
    x = b.input("x", "f32", (sym("n"),))
    b.output(b.node("rsqrt", [b.node("exp2", [x])]), "y")
    graph = b.finish()
    run = PtxRun(graph, load_target("cuda-sm80"))
    assert any("ex2.approx" in text for text in run.text.values())
    for n in (1, 4, 1031):
        given = {"x": np.random.default_rng(n).standard_normal(n).astype(np.float32)}
        assert_same(run(given), interpret(graph, given), 2.0**-20)
