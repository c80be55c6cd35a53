"""A BERT encoder in PyTorch from the weights that hwsdk compiles: what a PyTorch user runs today.

Design choice: functional, in the library's own fast paths (scaled_dot_product_attention, layer_norm, erf GELU), one
module for eager, `torch.compile` and any dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HIDDEN = -3e38


def encoder(
    weights: Mapping[str, Array],
    heads: int,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    epsilon: float = 1e-12,
) -> Any:
    """input_ids, attention_mask i64[batch, seq] -> last_hidden_state [batch, seq, width] in `dtype`."""
    import torch
    import torch.nn.functional as f

    kind = getattr(torch, dtype)
    w = {k: torch.tensor(np.asarray(v), dtype=kind, device=device) for k, v in weights.items()}
    layers = 0
    while f"encoder.layer.{layers}.output.dense.weight" in w:
        layers += 1
    places = w["embeddings.position_embeddings.weight"] + w["embeddings.token_type_embeddings.weight"][0]
    width = places.shape[1]
    hidden = max(HIDDEN, torch.finfo(kind).min)

    def dense(x: Any, name: str) -> Any:
        return f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return f.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], epsilon)

    def split(x: Any, name: str) -> Any:
        y = dense(x, name)
        return y.view(y.shape[0], y.shape[1], heads, width // heads).transpose(1, 2)

    def forward(input_ids: Any, attention_mask: Any) -> Any:
        x = f.embedding(input_ids, w["embeddings.word_embeddings.weight"]) + places[: input_ids.shape[1]]
        x = norm(x, "embeddings.LayerNorm")
        mask = (1 - attention_mask.to(kind))[:, None, None, :] * hidden
        for layer in range(layers):
            at = f"encoder.layer.{layer}"
            q, k, v = (split(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
            seen = f.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            merged = seen.transpose(1, 2).reshape(x.shape)
            x = norm(x + dense(merged, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = f.gelu(dense(x, f"{at}.intermediate.dense"))
            x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x

    return forward
