"""The way of a newcomer through the command line and Python: one model from file to artifact to answers.

Design choice: one story told in one order; each step uses what the one before left behind.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk.cli.main import app
from hwsdk.graph.text import print_graph

RNG = np.random.default_rng(1)
W = RNG.standard_normal((16, 24)).astype(np.float32)
BIAS = RNG.standard_normal(24).astype(np.float32)


def command(*words: object) -> str:
    done = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stdout.isascii()
    assert "\x1b" not in done.output  # plain where there is no terminal
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.graph and model.npz: y = softmax(x w + b), batch and seq symbolic."""
    place = tmp_path_factory.mktemp("walk")
    m = hb.Model("walk")
    x = m.input("x", "f32", (m.dim("batch", 0, 64), "seq", 16))
    m.output("y", hb.softmax(x @ W + BIAS, axis=-1))
    graph = m.graph()
    (place / "model.graph").write_text(print_graph(graph))
    np.savez(place / "model.npz", **graph.constants)
    command("compile", place / "model.graph", "-t", "x86", "-o", place / "model.hwx")
    return place


def expected(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    u = x.astype(np.float64) @ W + BIAS
    e = np.exp(u - u.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def test_the_artifact_says_what_it_is(folder: Path) -> None:
    text = command("inspect", folder / "model.hwx")
    for words in ("walk for x86-64", "batch x seq x 16", "batch x seq x 24", "batch <= 64"):
        assert words in text
    about = json.loads(command("inspect", folder / "model.hwx", "--json"))
    assert sorted(about["symbols"]) == ["batch", "seq"]


def test_one_compile_answers_at_every_shape(folder: Path) -> None:
    exe = hwsdk.load(folder / "model.hwx")
    for batch, seq in ((1, 1), (1, 37), (3, 2), (2, 128), (0, 5), (64, 1), (7, 61)):
        x = RNG.standard_normal((batch, seq, 16)).astype(np.float32)
        y = exe(x=x)["y"]
        assert y.shape == (batch, seq, 24)
        np.testing.assert_allclose(y, expected(x) if x.size else np.empty(y.shape), 1e-4, 1e-6)
    assert exe.stats.compiles == 0
    assert exe.stats.runs == 7
    fresh = hwsdk.compile(folder / "model.graph", hwsdk.load_target("x86"))
    assert fresh.stats.compiles == 1
    assert str(fresh.signature) == str(exe.signature)


def test_files_in_and_files_out(folder: Path) -> None:
    x = RNG.standard_normal((2, 9, 16)).astype(np.float32)
    np.save(folder / "x.npy", x)
    command("run", folder / "model.hwx", "-i", f"x={folder / 'x.npy'}", "-s", folder / "out.npz")
    np.testing.assert_allclose(np.load(folder / "out.npz")["y"], expected(x), 1e-4, 1e-6)
    shown = json.loads(command("run", folder / "model.hwx", "-r", "x=2x9x16", "--profile", "--json"))
    assert shown["outputs"]["y"]["shape"] == [2, 9, 24]
    assert shown["launches"]


@pytest.mark.parametrize("stage", ["graph", "fused", "schedule", "loop", "host", "llvm", "asm"])
def test_every_stage_can_be_read(folder: Path, stage: str) -> None:
    assert len(command("dump", folder / "model.graph", "-t", "x86", "--stage", stage).splitlines()) > 3


def test_decisions_are_explained_and_times_are_measured(folder: Path) -> None:
    assert "kernel" in command("explain", folder / "model.graph", "-t", "x86")
    rows = json.loads(
        command("bench", folder / "model.hwx", "--shapes", "batch=1,seq=8", "--repeats", 3, "--json")
    )
    assert rows["rows"][0]["hwsdk"]["median_ms"] > 0


def test_the_same_model_on_a_chip_that_is_only_described(folder: Path, root: Path) -> None:
    chip = root / "examples" / "new_chip" / "npu.yaml"
    text = command("sim", folder / "model.graph", "-t", chip, "--shapes", "batch=1,seq=17")
    assert "cycles" in text
    assert "largest error" in text
