"""What users write on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsdk.cli import arguments
from hwsdk.errors import InputError


def test_dims() -> None:
    assert arguments.dim_options(["seq=1..512", "batch=4"]) == {"seq": "1..512", "batch": "4"}


@pytest.mark.parametrize("words", [["seq"], ["=3"], ["seq=1", "seq=2"]])
def test_bad_dims(words: list[str]) -> None:
    with pytest.raises(InputError, match="--dim"):
        arguments.dim_options(words)


def test_shapes_and_sizes() -> None:
    assert arguments.shape("1x37", "--random") == (1, 37)
    assert arguments.shape("2,3", "--random") == (2, 3)
    assert arguments.shape("", "--random") == ()
    assert arguments.bindings("batch=1, seq=37") == {"batch": 1, "seq": 37}
    for text in ("1x", "axb", "-1"):
        with pytest.raises(InputError, match=r"1x37"):
            arguments.shape(text, "--random")
    for text in ("batch", "batch=x", "batch=-1"):
        with pytest.raises(InputError, match=r"batch=1"):
            arguments.bindings(text)


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "b.npz", x=np.ones(2), y=np.zeros(1))
    found = arguments.input_files([f"a={tmp_path / 'a.npy'}", str(tmp_path / "b.npz")])
    assert sorted(found) == ["a", "x", "y"]
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00 truncated")
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("bad.npy", "object.npy", "missing.npy"):
        with pytest.raises(InputError, match=name):
            arguments.input_files([f"a={tmp_path / name}"])


def test_symbols_from_shapes() -> None:
    signature = {"x": ("batch", 128), "y": ("batch", "2*seq")}
    assert arguments.symbols_from_shapes(signature, {"x": (3, 128)}) == {"batch": 3}
    with pytest.raises(InputError, match="rank"):
        arguments.symbols_from_shapes(signature, {"x": (3,)})
    with pytest.raises(InputError, match="no input"):
        arguments.symbols_from_shapes(signature, {"z": (3, 128)})
