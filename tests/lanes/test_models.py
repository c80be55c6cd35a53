"""Real models on the instructions that ship, or on the LLVM text handed to the back end: compiled once, at three
shapes, against ONNX Runtime with the bounds of the conformance suite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwsdk.conformance.devices import open_device
from hwsdk.conformance.l5_models import MODELS, run_model
from hwsdk.conformance.model import Session
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
