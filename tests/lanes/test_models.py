"""Real models on the instructions that ship, or on the LLVM text handed to the back end: compiled once, at three
shapes, against ONNX Runtime with the bounds of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hwsdk import api
from hwsdk.conformance.devices import open_device
from hwsdk.conformance.l5_models import MODELS, compare, peer_of, run_model
from hwsdk.conformance.model import Session
from hwsdk.conformance.noise import PRODUCTS, path_noise
from hwsdk.frontends import load
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.target_desc import load_target

pytest.importorskip("onnxruntime")
TARGETS = ("cuda-sm80", "cuda-sm90", "rocm-gfx90a", "dcu-gfx906")
LONG = ("minilm_l3_fp32", "ppocr_cls")
SHAPES = {
    "minilm_l3_fp32": (0, 4, 7),
    "ppocr_cls": (0, 1, 2),
    "attacut_c": (0, 3, 6),
    "surfaces_mlp": (0, 4, 7),
}


def cases() -> list[object]:
    return [
        pytest.param(model, target, marks=[pytest.mark.slow] if model in LONG else [], id=f"{model}-{target}")
        for model in SHAPES
        for target in TARGETS
    ]


@pytest.mark.parametrize(("model", "target"), cases())
def test_a_model_agrees_with_its_reference(model: str, target: str) -> None:
    found = next(m for m in MODELS if m.name == model)
    chosen = replace(found, sizes=tuple(found.sizes[i] for i in SHAPES[model]))
    session = Session(open_device(load_target(target), isa=True))
    run_model(chosen, session)
    assert session.device.launches
    assert session.measured["compiles"] == 1


def narrowed(graph: Graph, dtype: str) -> Graph:
    """The operands of products cast to a narrow dtype; sums and results stay f32."""
    b = GraphBuilder(graph.name, graph.constraints)
    b.reserve([*graph.values, *(n.name for n in graph.nodes)])
    known = {name: b.constant_as(name, array) for name, array in graph.constants.items()}
    for value in graph.inputs:
        b.release(value.name)
        known[value.name] = b.input(value.name, value.dtype, value.shape)
    for node in graph.nodes:
        operands = [known[name] for name in node.inputs]
        if node.op in PRODUCTS and operands[0].dtype == "f32":
            narrow = [b.node("cast", [x], dtype=dtype) for x in operands]
            known[node.outputs[0]] = b.node(node.op, narrow, **{**node.attrs, "dtype": "f32"})
        else:
            known |= zip(node.outputs, b.copy(node, operands, [graph.values[o] for o in node.outputs]))
    for name, public in zip(graph.outputs, graph.output_names):
        b.output(known[name], public)
    return b.finish()


NARROW = {"cuda-sm80": "bf16", "cuda-sm90": "f16", "rocm-gfx90a": "f16", "dcu-gfx906": "bf16"}


def narrow_cases() -> list[object]:
    quick = {("attacut_c", "cuda-sm80"), ("attacut_c", "rocm-gfx90a")}
    return [
        pytest.param(*case, marks=[] if case in quick else [pytest.mark.slow], id="-".join(case))
        for case in product(SHAPES, NARROW)
    ]


@pytest.mark.parametrize(("model", "name"), narrow_cases())
def test_a_model_with_narrow_products(model: str, name: str) -> None:
    """As the user asks where the chip has such a product, else as the model says.  The bound grows by the rounding of
    the operands."""
    found, target, dtype = next(m for m in MODELS if m.name == model), load_target(name), NARROW[name]
    path, peer = peer_of(model)
    graph = load(path)
    if any(
        i.operands["a"].dtype == dtype for n, i in target.intrinsics.items() if "mma_" in n or "mfma_" in n
    ):
        run = api.instructions(api.compile_stages(graph, target, precision=dtype))
    else:
        run = api.instructions(api.compile_stages(narrowed(graph, dtype), target))
    rounded = replace(target, codegen=replace(target.codegen, default_precision=dtype))
    for number in SHAPES[model][: 1 if model in LONG else 2]:
        inputs = found.inputs(np.random.default_rng(number), found.sizes[number])
        want = peer.run(list(graph.output_names), inputs)
        got, noise = run(inputs), path_noise(graph, inputs, rounded)
        for public, value, reference in zip(graph.output_names, graph.outputs, want):
            compare(public, got[public], reference, noise[value])
    assert run.stats.instructions.get("matrix", 0) or target.name == "dcu-gfx906"
