"""A BERT encoder as the ONNX file that a framework's exporter would write, from the weights that `hwsdk` compiles.

Design choice: standard operators only, in the patterns that ONNX Runtime recognises (layer normalisation, erf GELU,
attention with an additive mask), so that the peer runs its own best form of the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
OPSET = 17
HIDDEN = -3.0e38


class _Writer:
    """Collects nodes and initializers; every node has one output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.known: dict[str, str] = {}

    def node(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = out or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n_{name}", **attributes))
        return name

    def constant(self, name: str, array: Any) -> str:
        from onnx import numpy_helper

        if name not in self.known:
            self.known[name] = name
            self.initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number_{value!r}", np.float32(value))

    def integers(self, *values: int) -> str:
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))


def encoder(weights: Mapping[str, Array], heads: int, epsilon: float = 1e-12) -> bytes:
    """input_ids, attention_mask i64[batch, seq] -> last_hidden_state; the same names as `hwsdk.frontends.bert`."""
    from onnx import TensorProto, helper

    w = _Writer()
    x = _norm(w, _embedded(w, weights), weights, "embeddings.LayerNorm", epsilon)
    mask = _mask(w)
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        x = _layer(w, x, mask, weights, f"encoder.layer.{layer}", heads, epsilon)
        layer += 1
    w.node("Identity", x, out="last_hidden_state")
    width = weights["embeddings.LayerNorm.weight"].shape[0]
    value = helper.make_tensor_value_info
    inputs = [value(n, TensorProto.INT64, ["batch", "seq"]) for n in ("input_ids", "attention_mask")]
    output = value("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", width])
    graph = helper.make_graph(w.nodes, "encoder", inputs, [output], w.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return bytes(model.SerializeToString())


def _embedded(w: _Writer, weights: Mapping[str, Array]) -> str:
    words = w.node(
        "Gather", w.constant("words", weights["embeddings.word_embeddings.weight"]), "input_ids", axis=0
    )
    length = w.node("Gather", w.node("Shape", "input_ids"), w.constant("one", np.int64(1)), axis=0)
    end = w.node("Unsqueeze", length, w.integers(0))
    places = (
        weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    here = w.node("Slice", w.constant("places", places), w.integers(0), end, w.integers(0))
    return w.node("Add", words, here)


def _mask(w: _Writer) -> str:
    """0 where a token is seen, a huge negative number where it is not: [batch, 1, 1, seq]."""
    wide = w.node("Unsqueeze", w.node("Unsqueeze", "attention_mask", w.integers(1)), w.integers(2))
    seen = w.node("Cast", wide, to=1)
    return w.node("Mul", w.node("Sub", w.number(1.0), seen), w.number(HIDDEN))


def _dense(w: _Writer, x: str, weights: Mapping[str, Array], name: str) -> str:
    product = w.node("MatMul", x, w.constant(f"{name}.weight", weights[f"{name}.weight"].T))
    return w.node("Add", product, w.constant(f"{name}.bias", weights[f"{name}.bias"]))


def _norm(w: _Writer, x: str, weights: Mapping[str, Array], name: str, epsilon: float) -> str:
    scale = w.constant(f"{name}.weight", weights[f"{name}.weight"])
    bias = w.constant(f"{name}.bias", weights[f"{name}.bias"])
    return w.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)


def _layer(
    w: _Writer, x: str, mask: str, weights: Mapping[str, Array], name: str, heads: int, epsilon: float
) -> str:
    width = weights[f"{name}.attention.self.query.weight"].shape[0]
    apart, together = w.integers(0, 0, heads, width // heads), w.integers(0, 0, width)

    def split(part: str, *perm: int) -> str:
        y = _dense(w, x, weights, f"{name}.attention.self.{part}")
        return w.node("Transpose", w.node("Reshape", y, apart), perm=perm)

    scores = w.node("MatMul", split("query", 0, 2, 1, 3), split("key", 0, 2, 3, 1))
    scores = w.node("Div", scores, w.number(float(np.float32(np.sqrt(width // heads)))))
    shares = w.node("Softmax", w.node("Add", scores, mask), axis=-1)
    seen = w.node("Transpose", w.node("MatMul", shares, split("value", 0, 2, 1, 3)), perm=[0, 2, 1, 3])
    merged = _dense(w, w.node("Reshape", seen, together), weights, f"{name}.attention.output.dense")
    x = _norm(w, w.node("Add", merged, x), weights, f"{name}.attention.output.LayerNorm", epsilon)
    inner = _dense(w, x, weights, f"{name}.intermediate.dense")
    bent = w.node(
        "Add", w.node("Erf", w.node("Div", inner, w.number(float(np.float32(2**0.5))))), w.number(1.0)
    )
    inner = w.node("Mul", w.node("Mul", inner, bent), w.number(0.5))
    outer = _dense(w, inner, weights, f"{name}.output.dense")
    return _norm(w, w.node("Add", outer, x), weights, f"{name}.output.LayerNorm", epsilon)
