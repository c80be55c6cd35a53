"""The models that are measured: the graph that hwsdk compiles, the file that the peer runs, inputs, sizes.

Design choice: a subject is found by its name, so a child process can be told what to compile by one word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hwsdk.graph.graph import Graph

Array = np.ndarray[Any, Any]
Size = tuple[int, ...]
HEADS = 12
SMALL_HEADS = 2


@dataclass(frozen=True)
class Subject:
    """`model` is what `hwsdk.compile` takes; `peer` gives ONNX Runtime a file's path or its content."""

    name: str
    model: Callable[[], Any]
    peer: Callable[[], str | bytes]
    inputs: Callable[[Size], dict[str, Array]]
    sizes: tuple[Size, ...]


def subject(name: str) -> Subject:
    """The subject of that name: `minilm_l6`, `small_encoder`, or a model of the catalogue's ladder."""
    if name in ("minilm_l6", "small_encoder"):
        weights, heads = (_published, HEADS) if name == "minilm_l6" else (small_weights, SMALL_HEADS)
        lengths = tuple(
            (1, n) for n in ((1, 11, 78, 123, 205, 256) if name == "minilm_l6" else (1, 7, 31, 64))
        )
        return Subject(name, partial(_encoder_graph, name, weights, heads), partial(_encoder_file, weights, heads),
                       partial(tokens, weights), lengths)  # fmt: skip
    sizes, inputs = LADDER[name]
    path = partial(_path, name)
    return Subject(name, path, path, inputs, sizes)


def _path(name: str) -> str:
    from hwsdk.frontends import catalogue

    return str(catalogue.fetch(name))


# ------------------------------------------------------------------------------------------------------------ encoders
@cache
def _published() -> Mapping[str, Array]:
    from hwsdk.frontends.safetensors import read_safetensors

    return read_safetensors(_path("minilm_l6"))


@cache
def small_weights(
    layers: int = 2, width: int = 64, words: int = 101, places: int = 64
) -> Mapping[str, Array]:
    """An encoder of random weights that compiles in a moment."""
    rng = np.random.default_rng(0)
    shapes: dict[str, Size] = {
        "embeddings.word_embeddings.weight": (words, width),
        "embeddings.position_embeddings.weight": (places, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        start = f"encoder.layer.{layer}"
        dense = {f"attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (width, width), "intermediate.dense": (4 * width, width)}
        for part, shape in {**dense, "output.dense": (width, 4 * width)}.items():
            shapes[f"{start}.{part}.weight"] = shape
            shapes[f"{start}.{part}.bias"] = shape[:1]
        norms += [f"{start}.attention.output.LayerNorm", f"{start}.output.LayerNorm"]
    found = {k: (0.1 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
    for name in norms:
        found[f"{name}.weight"] = rng.uniform(0.5, 1.5, width).astype(np.float32)
        found[f"{name}.bias"] = rng.uniform(-0.5, 0.5, width).astype(np.float32)
    return found


def _encoder_graph(name: str, weights: Callable[[], Mapping[str, Array]], heads: int) -> Graph:
    from hwsdk.frontends.bert import bert

    return bert(weights(), heads, name=name)


def _encoder_file(weights: Callable[[], Mapping[str, Array]], heads: int) -> bytes:
    from benchmarks.encoder_onnx import encoder

    return encoder(weights(), heads)


def tokens(weights: Callable[[], Mapping[str, Array]], size: Size) -> dict[str, Array]:
    """Random words, all of them seen."""
    words = weights()["embeddings.word_embeddings.weight"].shape[0]
    rng = np.random.default_rng(size)
    return {"input_ids": rng.integers(0, words, size), "attention_mask": np.ones(size, np.int64)}


# -------------------------------------------------------------------------------------------------------------- ladder
def _images(size: Size) -> dict[str, Array]:
    rng = np.random.default_rng(size)
    return {"x": rng.uniform(-1, 1, (size[0], 3, *size[1:])).astype(np.float32)}


def _table(size: Size) -> dict[str, Array]:
    return {"input": np.random.default_rng(size).uniform(0, 8, (*size, 4)).astype(np.float32)}


def _characters(size: Size) -> dict[str, Array]:
    return {"input": np.random.default_rng(size).integers(0, 139, size)}


def _sound(size: Size) -> dict[str, Array]:
    return {"input": (3000 * np.random.default_rng(size).standard_normal(size)).astype(np.float32)}


def _words(size: Size) -> dict[str, Array]:
    ids = np.random.default_rng(size).integers(0, 30522, size)
    return {"input_ids": ids, "attention_mask": np.ones(size, np.int64)}


LADDER: dict[str, tuple[tuple[Size, ...], Callable[[Size], dict[str, Array]]]] = {
    "surfaces_mlp": (((1,), (64,), (1009,), (4096,)), _table),
    "attacut_c": (((1, 7), (1, 64), (1, 251), (1, 512)), _characters),
    "oww_melspec": (((1, 1280), (1, 8009), (1, 16000)), _sound),
    "ppocr_det": (((1, 64, 96), (1, 160, 224), (1, 320, 320), (1, 640, 640)), _images),
    "minilm_l3_fp32": (((1, 7), (1, 64), (1, 127), (4, 128)), _words),
    "ppocr_rec": (((1, 48, 64), (1, 48, 131), (1, 48, 320)), _images),
    "ppocr_cls": (((1, 48, 192), (6, 48, 192)), _images),
}
