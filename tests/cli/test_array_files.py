"""Arrays of every dtype through files: what is saved opens with plain NumPy and is taken back bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwsdk.frontends.builder as hb
from hwsdk.cli.array_files import restored, save_arrays
from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.errors import InputError
from hwsdk.graph.text import print_graph
from tests.cli.conftest import Invoke

NAMED = [d for d in DTYPES.values() if d.numpy is not None]
NARROW = [d for d in NAMED if d.numpy.isbuiltin != 1]


@pytest.mark.parametrize("kind", NAMED, ids=lambda d: d.name)
def test_every_bit_pattern_returns(tmp_path: Path, kind: object) -> None:
    raw = np.arange(1 << min(kind.bits, 16), dtype=np.uint16 if kind.bits > 8 else np.uint8)
    storage = numpy_dtype(kind.name)
    array = raw.astype(storage) if kind.kind in "iub" or kind.bits > 16 else raw.view(storage)
    notes = save_arrays(tmp_path / "a.npz", {"a": array})
    stored = np.load(tmp_path / "a.npz")["a"]
    assert stored.dtype.isbuiltin == 1
    assert bool(notes) == (kind in NARROW)
    back = restored(stored, kind.name, "a")
    assert back.dtype == storage
    with np.errstate(invalid="ignore"):
        numbers = ~np.isnan(array.astype(np.float64))
    np.testing.assert_array_equal(back[numbers].view(np.uint8), array[numbers].view(np.uint8))
    assert bool(np.all(np.isnan(back[~numbers].astype(np.float64))))


@pytest.mark.parametrize("kind", [d for d in NARROW if d.name != "f8e5m2"], ids=lambda d: d.name)
def test_raw_elements_of_numpy_save_are_read(tmp_path: Path, kind: object) -> None:
    """(What NumPy writes for f8e5m2, NumPy itself cannot read.)"""
    array = np.array([1, 2, 4]).astype(kind.numpy)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(restored(np.load(tmp_path / "a.npy"), kind.name, "a"), array)


@pytest.mark.parametrize("kind, value", [("bf16", 0.3), ("f8e4m3", 1e9), ("i4", 8), ("u4", 16)])
def test_values_that_would_change_are_refused(kind: str, value: float) -> None:
    stored = np.array([0, value], {"i4": np.int8, "u4": np.uint8}.get(kind, np.float32))
    with pytest.raises(InputError, match=rf"input 'x': {stored[1]} is no number of dtype {kind}"):
        restored(stored, kind, "x")


def test_an_output_is_the_next_input(hwsdk: Invoke, tmp_path: Path) -> None:
    m = hb.Model("twice")
    x = m.input("x", "bf16", ("n", 4))
    m.output("x", x + x)
    (tmp_path / "m.graph").write_text(print_graph(m.graph()))
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    done = hwsdk("run", tmp_path / "m.graph", "-r", "x=3x4", "--save", first)
    assert "x: bfloat16 as float32" in done.err, done
    assert hwsdk("run", tmp_path / "m.graph", "-i", first, "--save", second).code == 0
    assert np.load(first)["x"].any()
    np.testing.assert_array_equal(np.load(second)["x"], 2 * np.load(first)["x"])
