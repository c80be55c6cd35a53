"""What the tests of bad input share: small ONNX models, the command in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hwsdk.cli.main import app

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
node = helper.make_node
F, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **constants: Any) -> Any:
    """An ONNX model; `inputs`: name -> dims of f32, or (element type, dims)."""
    typed = {n: s if isinstance(s, tuple) else (F, s) for n, s in inputs.items()}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, *s) for n, s in typed.items()],
        [helper.make_tensor_value_info(n, F, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


W = normal(6, 5)


def expected(x: Any) -> Array:
    u = np.asarray(x, np.float64) @ W
    e = np.exp(u - u.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def command(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert "Traceback" not in done.output
    assert "internal error" not in done.output
    return done.exit_code, done.stdout, done.stderr
