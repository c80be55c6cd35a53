"""The model of `hwsdk demo`: a small transformer encoder with random weights, and the same mathematics in
NumPy.

Design choice: the two are written apart and share only the weights.  The first uses the builder and symbolic
dims; the second works in f64 on one batch of arrays and knows nothing of hwsdk.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from hwsdk.graph.graph import Graph

    Array = np.ndarray[Any, Any]
    Weights = dict[str, Array]

WORDS, WIDTH, HEADS, INNER, LAYERS, LONGEST = 1000, 128, 4, 512, 2, 512


def weights(seed: int = 0) -> Weights:
    """Random weights of a sensible size."""
    import numpy as np

    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, WIDTH), "places": (LONGEST, WIDTH)}
    for i in range(LAYERS):
        for name in ("query", "key", "value", "merge"):
            shapes[f"{i}.{name}"] = (WIDTH, WIDTH)
        shapes |= {f"{i}.up": (WIDTH, INNER), f"{i}.up_bias": (INNER,), f"{i}.down": (INNER, WIDTH)}
        shapes |= {
            f"{i}.scale1": (WIDTH,),
            f"{i}.scale2": (WIDTH,),
            f"{i}.shift1": (WIDTH,),
            f"{i}.shift2": (WIDTH,),
        }
    made = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) / math.sqrt(shape[0] if len(shape) > 1 else 50.0)
        made[name] = (values + ("scale" in name)).astype(np.float32)
    return made


def build(w: Weights) -> Graph:
    """The encoder as a graph: ids i64[batch, seq], mask bool[batch, seq] -> states f32[batch, seq, 128]."""
    import hwsdk.frontends.builder as hb

    m = hb.Model("demo_transformer")
    batch, seq = m.dim("batch", 1), m.dim("seq", 1, LONGEST)
    ids = m.input("ids", "i64", (batch, seq))
    mask = m.input("mask", "bool", (batch, seq))
    x = hb.embedding(w["words"], ids) + hb.embedding(w["places"], hb.arange(m, seq))
    keys = mask.reshape(batch, 1, 1, seq)

    def heads(y: Any) -> Any:
        return y.reshape(batch, seq, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    for i in range(LAYERS):
        q, k, v = (heads(x @ w[f"{i}.{name}"]) for name in ("query", "key", "value"))
        seen = hb.attention(q, k, v, mask=keys).transpose(0, 2, 1, 3).reshape(batch, seq, WIDTH)
        x = hb.layer_norm(x + seen @ w[f"{i}.merge"], w[f"{i}.scale1"], w[f"{i}.shift1"])
        inner = hb.gelu(x @ w[f"{i}.up"] + w[f"{i}.up_bias"])
        x = hb.layer_norm(x + inner @ w[f"{i}.down"], w[f"{i}.scale2"], w[f"{i}.shift2"])
    m.output("states", x)
    return m.graph()


def reference(w: Weights, ids: Array, mask: Array) -> Array:
    """The same encoder in NumPy, in f64."""
    import numpy as np

    big = {name: value.astype(np.float64) for name, value in w.items()}
    x = big["words"][ids] + big["places"][: ids.shape[1]]
    for i in range(LAYERS):
        merged = np.empty_like(x)
        for h in range(HEADS):
            part = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            q, k, v = (x @ big[f"{i}.{name}"][:, part] for name in ("query", "key", "value"))
            scores = np.einsum("bqd,bkd->bqk", q, k) / math.sqrt(WIDTH // HEADS)
            scores[~np.broadcast_to(mask[:, None, :], scores.shape)] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            merged[..., part] = np.einsum("bqk,bkd->bqd", scores / scores.sum(axis=-1, keepdims=True), v)
        x = _normalise(x + merged @ big[f"{i}.merge"]) * big[f"{i}.scale1"] + big[f"{i}.shift1"]
        inner = x @ big[f"{i}.up"] + big[f"{i}.up_bias"]
        inner = inner * 0.5 * (1.0 + np.vectorize(math.erf)(inner / math.sqrt(2.0)))
        x = _normalise(x + inner @ big[f"{i}.down"]) * big[f"{i}.scale2"] + big[f"{i}.shift2"]
    return x


def _normalise(x: Array) -> Array:
    import numpy as np

    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5))


def inputs(rng: np.random.Generator, batch: int, seq: int) -> dict[str, Array]:
    """Random words; the last quarter of every second row is padding."""
    import numpy as np

    mask = np.ones((batch, seq), dtype=bool)
    mask[1::2, max(1, seq * 3 // 4) :] = False
    return {"ids": rng.integers(0, WORDS, (batch, seq)), "mask": mask}
