"""Weights from safetensors, and the encoder that is built from them, against ONNX Runtime on the same weights
in int8.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwsdk.errors import InputError, ModelError
from hwsdk.frontends import catalogue
from hwsdk.frontends.bert import bert, minilm_l6
from hwsdk.frontends.safetensors import read_safetensors
from hwsdk.graph.interpret import interpret
from hwsdk.graph.verify import verify


def _file(path: Path, table: Any, data: bytes = b"") -> Path:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_tensors_are_read_in_place(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    table = {
        "__metadata__": {"format": "test"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
        "c": {"dtype": "I64", "shape": [0], "data_offsets": [26, 26]},
    }
    found = read_safetensors(_file(tmp_path / "w", table, values.tobytes() + b"\x80\x3f"))
    assert np.array_equal(found["a"], values.reshape(2, 3))
    assert float(found["b"]) == 1
    assert found["c"].shape == (0,)
    assert not found["a"].flags.writeable


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    bad: list[tuple[Any, bytes, str]] = [
        ({"a": entry}, bytes(23), "does not fit the bytes 0..24"),
        ({"a": {**entry, "shape": [7]}}, bytes(24), "does not fit"),
        ({"a": {**entry, "shape": [-2, -3]}}, bytes(24), "malformed"),
        ({"a": {**entry, "data_offsets": [0]}}, bytes(24), "malformed"),
        ({"a": {**entry, "dtype": "F17"}}, bytes(24), "element type F17"),
        ({"a": 3}, b"", "its entry is no object"),
        ([1], b"", "its table is no object"),
        (b"{'a'", b"", "its table is no JSON"),
        (b"\xff\xfe", b"", "its table is no JSON"),
    ]
    for table, data, message in bad:
        with pytest.raises(ModelError, match=message):
            read_safetensors(_file(tmp_path / "w", table, data))
    (tmp_path / "w").write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError, match="truncated or not a safetensors file"):
        read_safetensors(tmp_path / "w")
    (tmp_path / "w").write_bytes(b"1234")
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_safetensors(tmp_path / "w")
    with pytest.raises(ModelError, match="cannot read"):
        read_safetensors(tmp_path / "none")


def test_a_missing_weight_is_named() -> None:
    with pytest.raises(ModelError, match=r"have no tensor 'embeddings\.position_embeddings\.weight'"):
        bert({}, 12)


@pytest.mark.models
@pytest.mark.slow
def test_the_built_encoder_agrees_with_its_int8_sibling() -> None:
    """The same network published with 8-bit weights: near in every direction, and equal nowhere."""
    ort = pytest.importorskip("onnxruntime")
    try:
        weights, sibling = catalogue.fetch("minilm_l6"), catalogue.fetch("minilm_l6_int8")
    except ModelError as error:
        pytest.skip(str(error))
    graph = minilm_l6(weights)
    verify(graph)
    session = ort.InferenceSession(str(sibling))
    for batch, seq in ((1, 1), (1, 7), (2, 13)):
        ids = np.random.default_rng(seq).integers(1000, 30000, (batch, seq))
        mask = np.ones((batch, seq), np.int64)
        mask[-1, seq // 2 + 1 :] = 0
        found = interpret(graph, {"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        expected = session.run(None, feeds)[0]
        assert found.shape == expected.shape
        a, b = found[mask > 0], expected[mask > 0]
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.98, cosine.min()
    with pytest.raises(InputError, match="seq is 513"):
        interpret(graph, {n: np.ones((1, 513), np.int64) for n in ("input_ids", "attention_mask")})
