"""Integer products of ONNX models: zero points of every kind, on machines that multiply bytes and on others that widen
them, against the onnx package's reference evaluator, to the bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hwsdk import api
from hwsdk.frontends import load
from hwsdk.target_desc import load_target

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
KINDS = {"u8": np.uint8, "i8": np.int8}


def model(op: str, a: str, zeros: dict[str, Array], w: Array, shape: list[Any]) -> onnx.ModelProto:
    names = ["x", "w", *(z if z in zeros else "" for z in ("xz", "wz"))]
    while not names[-1]:
        names.pop()
    attrs: dict[str, Any] = {"pads": [1, 1, 1, 1]} if op == "ConvInteger" else {}
    kind = TensorProto.UINT8 if a == "u8" else TensorProto.INT8
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(v, n) for n, v in {"w": w, **zeros}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def some(dtype: str, *shape: int) -> Array:
    low, high = (0, 256) if dtype == "u8" else (-128, 128)
    return RNG.integers(low, high, shape).astype(KINDS[dtype])


@pytest.mark.parametrize("chip", ["x86-64-v3", "cuda-sm80", "rocm-gfx90a"])
@pytest.mark.parametrize(
    ("a", "b", "zeros"),
    [
        ("u8", "i8", {}),
        ("u8", "i8", {"xz": some("u8")}),  # one for all of x: a product of bytes and sums of columns
        ("i8", "i8", {"xz": some("i8", 1), "wz": np.zeros((), np.int8)}),
        ("u8", "u8", {"xz": some("u8"), "wz": some("u8")}),
        ("u8", "i8", {"wz": some("i8", 24)}),  # one per column
    ],
    ids=lambda v: "+".join(v) if isinstance(v, dict) else v,
)
def test_matrices(chip: str, a: str, b: str, zeros: dict[str, Array]) -> None:
    given = model("MatMulInteger", a, zeros, some(b, 40, 24), ["m", 40])
    made = api.compile_stages(load(given), load_target(chip))
    run = api.instructions(made) if made.target.codegen.model == "simt" else api.Simulation(made)
    for m in (1, 19):
        x = some(a, m, 40)
        (want,) = ReferenceEvaluator(given).run(None, {"x": x})
        assert (run(x=x)["y"] == want).all()


@pytest.mark.parametrize("zeros", [{}, {"xz": some("u8")}], ids=["none", "one"])
def test_images(zeros: dict[str, Array]) -> None:
    """Padding is the zero point."""
    given = model("ConvInteger", "u8", zeros, some("i8", 8, 16, 3, 3), ["n", 16, "h", "w"])
    made = api.compile_stages(load(given), load_target("cuda-sm80"))
    for size in ((1, 16, 5, 4), (2, 16, 3, 9)):
        x = some("u8", *size)
        (want,) = ReferenceEvaluator(given).run(None, {"x": x})
        assert (api.instructions(made)(x=x)["y"] == want).all()


def test_bytes_reach_the_matrix_units() -> None:
    """A dynamic zero point, as dynamic quantisation makes it, keeps the product one of bytes."""
    given = model("MatMulInteger", "u8", {"xz": some("u8")}, some("i8", 64, 32), ["m", 64])
    made = api.compile_stages(load(given), load_target("cuda-sm80"))
    assert any(re.search(r"mma\.m16n8k32\S*u8\S*s8", ir) for ir in made.ir.values())
