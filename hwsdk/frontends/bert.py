"""BERT encoders from their published weights, made with the builder.

Design choice: everything but the number of heads and epsilon follows from the weights' names and shapes; the
graph is what a person would write with the builder, one line per step of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hwsdk.frontends.builder as hb
from hwsdk.errors import ModelError
from hwsdk.frontends.safetensors import read_safetensors
from hwsdk.graph.graph import Graph

Weights = Mapping[str, Any]


def bert(weights: Weights, heads: int, *, epsilon: float = 1e-12, name: str = "bert") -> Graph:
    """input_ids, attention_mask i64[batch, seq] -> last_hidden_state f32[batch, seq, width].

    `weights` have the names that the published checkpoints use
    (`encoder.layer.0.attention.self.query.weight`); dense weights are [out, in].  Token types are all 0.
    """
    m = hb.Model(name)
    try:
        places = weights["embeddings.position_embeddings.weight"]
        batch, seq = m.dim("batch"), m.dim("seq", 0, places.shape[0])
        ids = m.input("input_ids", "i64", (batch, seq))
        mask = m.input("attention_mask", "i64", (batch, seq))
        words = hb.embedding(m.constant(weights["embeddings.word_embeddings.weight"], name="words"), ids)
        rows = m.constant(places + weights["embeddings.token_type_embeddings.weight"][0], name="places")
        x = _norm(words + rows[:seq], weights, "embeddings.LayerNorm", epsilon)
        hidden = (1.0 - mask.astype("f32").reshape(batch, 1, 1, seq)) * -3e38
        layer = 0
        while f"encoder.layer.{layer}.output.dense.weight" in weights:
            x = _layer(x, hidden, weights, f"encoder.layer.{layer}", heads, epsilon)
            layer += 1
    except KeyError as error:
        raise ModelError(f"the weights of {name} have no tensor {error}") from error
    m.output("last_hidden_state", x)
    return m.graph()


def minilm_l6(path: Any) -> Graph:
    """The sentence encoder all-MiniLM-L6-v2 (6 layers, width 384, 12 heads) from its safetensors file."""
    return bert(read_safetensors(path), 12, name="minilm_l6")


def _dense(x: Any, weights: Weights, name: str) -> Any:
    model = x.model
    return x @ model.constant(weights[f"{name}.weight"], name=f"{name}.weight").T + weights[f"{name}.bias"]


def _norm(x: Any, weights: Weights, name: str, epsilon: float) -> Any:
    return hb.layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"], epsilon=epsilon)


def _layer(x: Any, hidden: Any, weights: Weights, name: str, heads: int, epsilon: float) -> Any:
    """Attention over the tokens that are not hidden, then the feed-forward part.

    Each added and normalised.
    """
    batch, seq, width = x.shape

    def split(part: str) -> Any:
        y = _dense(x, weights, f"{name}.attention.self.{part}")
        return y.reshape(batch, seq, heads, width // heads).transpose(0, 2, 1, 3)

    seen = hb.attention(split("query"), split("key"), split("value"), mask=hidden)
    merged = seen.transpose(0, 2, 1, 3).reshape(batch, seq, width)
    x = x + _dense(merged, weights, f"{name}.attention.output.dense")
    x = _norm(x, weights, f"{name}.attention.output.LayerNorm", epsilon)
    inner = hb.gelu(_dense(x, weights, f"{name}.intermediate.dense"))
    x = x + _dense(inner, weights, f"{name}.output.dense")
    return _norm(x, weights, f"{name}.output.LayerNorm", epsilon)
