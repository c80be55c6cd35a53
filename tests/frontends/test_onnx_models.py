"""Real models: imported once, interpreted at many sizes, against ONNX Runtime.

One tolerance for all: the deepest model rounds a value in about a hundred layers, each of which sums in
another order than ONNX Runtime does, and exp turns an absolute error of its input into a relative one; 256
rounding errors of f32 of the largest value cover that, and no model has a tolerance of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwsdk.errors import InputError, ModelError
from hwsdk.frontends import catalogue, load
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.graph.verify import verify

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.models

RELATIVE = 256 * float(np.finfo(np.float32).eps)


def _normal(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def _ids(*shape: int, high: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, high, shape)


def _sentence(batch: int, seq: int) -> dict[str, Any]:
    mask = np.ones((batch, seq), np.int64)
    mask[-1, seq // 2 + 1 :] = 0
    return {"input_ids": _ids(batch, seq, high=30000), "attention_mask": mask}


Feeds = Callable[..., dict[str, Any]]
MODELS: dict[str, tuple[Feeds, list[tuple[int, ...]]]] = {
    "surfaces_mlp": (
        lambda n: {"input": _normal(n, 4, scale=50)},
        [(n,) for n in (1, 2, 3, 5, 7, 13, 31, 64, 101, 257)],
    ),
    "attacut_c": (
        lambda n: {"input": _ids(1, n, high=100)},
        [(n,) for n in (1, 2, 3, 5, 7, 13, 31, 64, 101, 257)],
    ),
    "oww_melspec": (
        lambda b, n: {"input": _normal(b, n, scale=1000)},
        [(1, n) for n in (512, 513, 671, 672, 1009, 1280, 1999, 4001)] + [(2, 1280), (3, 809)],
    ),
    "ppocr_det": (
        lambda n, h, w: {"x": _normal(n, 3, 32 * h, 32 * w)},
        [
            (1, 1, 1),
            (1, 1, 2),
            (1, 2, 1),
            (1, 2, 2),
            (1, 1, 3),
            (1, 3, 2),
            (2, 1, 1),
            (2, 2, 1),
            (3, 1, 2),
            (1, 1, 5),
        ],
    ),
    "minilm_l3_fp32": (
        _sentence,
        [(1, 1), (1, 2), (1, 3), (1, 7), (1, 13), (2, 5), (2, 11), (3, 17), (1, 31), (5, 3)],
    ),
    "ppocr_rec": (
        lambda n, w: {"x": _normal(n, 3, 48, w)},
        [(1, w) for w in (5, 7, 8, 16, 31, 37, 64, 101)] + [(2, 13), (3, 24)],
    ),
    "ppocr_cls": (lambda n: {"x": _normal(n, 3, 48, 192)}, [(1,), (2,), (3,)]),
}


def _imported(name: str, **options: Any) -> tuple[Graph, Any]:
    try:
        path = catalogue.fetch(name)
    except ModelError as error:
        pytest.skip(str(error))
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = 1
    session_options.log_severity_level = 3
    return load(path, **options), ort.InferenceSession(str(path), session_options)


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_onnx_runtime_at_every_size(name: str) -> None:
    graph, session = _imported(name)
    verify(graph)
    names = [o.name for o in session.get_outputs()]
    assert list(graph.output_names) == names
    make, sizes = MODELS[name]
    for size in sizes:
        feeds = make(*size)
        found = interpret(graph, feeds)
        for key, expected in zip(names, session.run(None, feeds), strict=True):
            got = found[key]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (key, size)
            largest = np.abs(expected.astype(np.float64)).max(initial=1e-3)
            # softmax and sigmoid outputs may be tiny; the error is relative to the sums that made them
            limit = 0 if expected.dtype.kind in "iub" else RELATIVE * max(float(largest), 1.0)
            assert np.abs(got.astype(np.float64) - expected).max(initial=0) <= limit, (key, size)


def test_dims_can_be_named_limited_and_written_as_expressions() -> None:
    graph, _ = _imported(
        "ppocr_det",
        dims={"p2o.DynamicDimension.0": 1, "x.2": "32*h", "x.3": "32*w"},
    )
    assert [str(d) for d in graph.inputs[0].shape] == ["1", "3", "32*h", "32*w"]
    (output,) = (graph.values[o] for o in graph.outputs)
    assert [str(d) for d in output.shape] == ["1", "1", "32*h", "32*w"]
    assert not graph.constraints.equalities, "with whole multiples of 32 nothing is left to check"
    assert interpret(graph, {"x": _normal(1, 3, 32, 96)})["sigmoid_0.tmp_0"].shape == (1, 1, 32, 96)


def test_sizes_that_the_model_cannot_have_are_refused_with_the_reason() -> None:
    graph, _ = _imported("minilm_l3_fp32")
    assert graph.constraints.ranges["sequence_length"] == (0, 512)  # its position table has 512 rows
    with pytest.raises(InputError, match=r"sequence_length is 513, but must be 0\.\.512"):
        interpret(graph, _sentence(1, 513))
    graph, _ = _imported("ppocr_det")
    with pytest.raises(InputError, match=r"must be equal"):
        interpret(graph, {"x": _normal(1, 3, 33, 32)})


def test_nothing_of_the_models_layout_of_shapes_is_left_as_data() -> None:
    """Exporters' shape arithmetic becomes dims: no node computes on shape vectors at run time."""
    for name in ("minilm_l3_fp32", "ppocr_rec"):
        graph, _ = _imported(name)
        made = [n for n in graph.nodes if n.op == "dims"]
        used = {u.op for n in made for u in graph.users(n.outputs[0])}
        assert used <= {"reshape", "cast"}, (name, used)  # only counts of means
