"""The commands that compile, run, look inside, time, explain, print and simulate a model."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import hwsdk.frontends.builder as hb
from hwsdk.graph.text import print_graph
from tests.cli.conftest import Invoke

ROOT = Path(__file__).resolve().parents[2]
CHIP = ROOT / "examples" / "new_chip" / "npu.yaml"


@pytest.fixture
def artifact(hwsdk: Invoke, graph_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.hwx"
    done = hwsdk("compile", graph_file, "-o", path)
    assert done.code == 0, done
    assert str(path) in done.out
    return path


def want(graph_file: Path, x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    constants = np.load(graph_file.with_suffix(".npz"))
    weight = next(constants[k] for k in constants if constants[k].shape == (6, 5))
    return np.maximum(x @ weight + np.arange(5, dtype=np.float32), 0)


def test_run_an_artifact(hwsdk: Invoke, artifact: Path, graph_file: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((13, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    done = hwsdk("run", artifact, "--input", f"x={tmp_path / 'x.npy'}", "--save", out, "--profile")
    assert done.code == 0, done
    assert "launches" in done.out
    np.testing.assert_allclose(np.load(out)["y"], want(graph_file, x), rtol=1e-5, atol=1e-5)
    assert not list(tmp_path.glob(".*"))


def test_run_a_model_with_random_inputs(hwsdk: Invoke, graph_file: Path) -> None:
    done = hwsdk("run", graph_file, "--random", "x=3x6", "--json")
    assert json.loads(done.out)["outputs"]["y"]["shape"] == [3, 5]


@pytest.mark.parametrize(
    "words, message",
    [
        (("--random", "x=3x7"), "x"),
        (("--random", "x=65x6"), "at most 64"),
        (("--random", "x=0x6"), "at least 1"),
        (("--random", "x=3"), "rank"),
        (("--random", "z=3x6"), "no input 'z'"),
        (("--random", "x"), "NAME=1x37"),
        (("--input", "x=nothere.npy"), "nothere.npy"),
        (("--save", "/nowhere/out.npz"), "/nowhere/out.npz"),
    ],
)
def test_wrong_inputs(hwsdk: Invoke, artifact: Path, words: tuple[str, ...], message: str) -> None:
    done = hwsdk("run", artifact, *words)
    assert done.code == 6, done
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_inspect(hwsdk: Invoke, artifact: Path) -> None:
    done = hwsdk("inspect", artifact)
    assert done.code == 0
    for part in ("batch x 6", "1 <= batch <= 64", "always", "constants"):
        assert part in done.out
    assert json.loads(hwsdk("inspect", artifact, "--json").out)["name"] == "tiny"


def test_damaged_artifacts(hwsdk: Invoke, artifact: Path, tmp_path: Path) -> None:
    data = artifact.read_bytes()
    bad = tmp_path / "bad.hwx"
    middle = len(data) // 2
    altered = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for broken in (b"", data[:40], data[:-1], data[: len(data) // 3], altered, b"x" * 500):
        bad.write_bytes(broken)
        done = hwsdk("run", bad)
        assert done.code == 5, done
        assert "bad.hwx" in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_bench(hwsdk: Invoke, artifact: Path) -> None:
    done = hwsdk("bench", artifact, "--shapes", "batch=1;batch=7", "--repeats", "3", "--json")
    data = json.loads(done.out)
    assert [r["sizes"] for r in data["rows"]] == [{"batch": 1}, {"batch": 7}]
    assert data["compiles"] == 0
    assert hwsdk("bench", artifact, "--shapes", "bach=1").code == 6
    assert "ONNX file" in hwsdk("bench", artifact, "--peers", "ort").err
    assert "no peer 'tvm'" in hwsdk("bench", artifact, "--peers", "tvm").err


def test_explain(hwsdk: Invoke, graph_file: Path) -> None:
    done = hwsdk("explain", graph_file)
    assert done.code == 0, done
    assert "<- " in done.out
    entries = json.loads(hwsdk("explain", graph_file, "--json").out)["kernels"]
    assert any(e["decisions"] for e in entries)
    assert any("result is" in why for e in entries for why in e["refused"].values())
    assert hwsdk("explain", graph_file, "--kernel", "nothere").code == 6


@pytest.mark.parametrize(
    "stage, part",
    [
        ("imported", "dot_general"),
        ("graph", "dot_general"),
        ("fused", "reduce"),
        ("schedule", "tiles"),
        ("loop", "parallel"),
        ("host", "launch"),
        ("llvm", "define"),
        ("asm", "ret"),
    ],
)
def test_dump(hwsdk: Invoke, graph_file: Path, stage: str, part: str) -> None:
    done = hwsdk("dump", graph_file, "--stage", stage)
    assert done.code == 0, done
    assert part in done.out


def test_dump_after_a_pass(hwsdk: Invoke, graph_file: Path) -> None:
    from hwsdk.graph.passes import DEFAULT_PIPELINE

    assert hwsdk("dump", graph_file, "--stage", "graph", "--after", DEFAULT_PIPELINE[0]).code == 0
    done = hwsdk("dump", graph_file, "--stage", "graph", "--after", "nothere")
    assert (done.code, "no pass 'nothere'" in done.err) == (6, True)


def test_sim(hwsdk: Invoke, graph_file: Path) -> None:
    done = hwsdk("sim", graph_file, "-t", CHIP, "--shapes", "batch=3", "--json")
    assert done.code == 0, done
    stats = json.loads(done.out)["stats"]
    for place in stats["places"].values():
        assert place["capacity_bytes"] is None or place["peak_bytes"] <= place["capacity_bytes"]
    assert stats["seconds"] > 0


def test_a_described_chip_has_no_machine_code(hwsdk: Invoke, graph_file: Path, tmp_path: Path) -> None:
    done = hwsdk("compile", graph_file, "-t", CHIP, "-o", tmp_path / "out.hwx")
    assert (done.code, "hwsdk sim" in done.err) == (4, True)
    assert list(tmp_path.iterdir()) == []


def test_bad_models(hwsdk: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    files = {
        "empty.onnx": b"",
        "noise.onnx": bytes(range(256)) * 9,
        "text.onnx": b"this is not a model",
        "text.graph": b"graph {",
        "binary.graph": b"\xff\xfe\x00",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        done = hwsdk("compile", tmp_path / name, "-o", tmp_path / "out.hwx")
        assert done.code == 3, (name, done)
        assert name in done.err
        assert "Traceback" not in done.err
    assert not (tmp_path / "out.hwx").exists()


def test_wrong_dims(hwsdk: Invoke, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", 1, ["n", 4])
    y = onnx.helper.make_tensor_value_info("y", 1, ["n", 4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    assert hwsdk("run", path, "--dim", "n=1..8", "--random", "x=8x4").code == 0
    assert "at most 8" in hwsdk("run", path, "--dim", "n=1..8", "--random", "x=9x4").err
    for wrong in ("m=1..8", "n=8..1", "n=-1", "n"):
        done = hwsdk("run", path, "--dim", wrong)
        assert done.code in (3, 6), (wrong, done)
        assert len(done.err.strip().splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux" or not Path("/proc").is_dir(), reason="needs a read-only folder")
def test_unusable_cache(hwsdk_process: Invoke, graph_file: Path, tmp_path: Path) -> None:
    """A cache that cannot be written costs time, not the result."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    for cache in ("/proc/nothere", str(blocked / "inside")):
        done = hwsdk_process("run", graph_file, "--random", "x=2x6", HWSDK_CACHE_DIR=cache)
        assert done.code == 0, done
        assert "Traceback" not in done.err


def test_conformance_run(hwsdk: Invoke, tmp_path: Path) -> None:
    done = hwsdk(
        "conformance", "run", "--level", "L0,L3", "--filter", "L0/,L3/add-f32", "--out", tmp_path / "r"
    )
    assert done.code == 0, done
    assert "conformant" in done.out
    assert sorted(os.listdir(tmp_path / "r")) == ["junit.xml", "report.json", "report.md"]
    shown = hwsdk("conformance", "report", tmp_path / "r")
    assert shown.code == 0
    assert "# Conformance of" in shown.out
    assert hwsdk("conformance", "run", "--filter", "nothere").code == 6


def test_conformance_of_a_described_chip(hwsdk: Invoke) -> None:
    done = hwsdk(
        "conformance", "run", "-t", CHIP, "--filter", "L1/alloc_distinct,L2/mma_bf16,L3/add-f32", "--json"
    )
    data = json.loads(done.out)
    assert data["kind"] == "simulated"
    assert {o["level"]: o["status"] for o in data["outcomes"]} == {
        "L1": "unsupported",
        "L2": "pass",
        "L3": "pass",
    }


@pytest.mark.slow
def test_demo(hwsdk: Invoke) -> None:
    done = hwsdk("demo", "--json")
    assert done.code == 0, done
    data = json.loads(done.out)
    assert data["compiles"] == 1
    assert data["worst_error"] < data["allowed_error"]


def test_explain_says_why_kernels_stay_apart(hwsdk: Invoke, tmp_path: Path) -> None:
    m = hb.Model("softmax_after_product")
    x = m.input("x", "f32", ("batch", 6))
    m.output("y", hb.softmax(x @ m.input("w", "f32", (6, 8)), axis=-1))
    (tmp_path / "m.graph").write_text(print_graph(m.graph()))
    why = "it also needs broadcast_in_dim, which another kernel computes from this one"
    assert (
        f"  apart from k1_row (sub reads dot_general): {why}\n" in hwsdk("explain", tmp_path / "m.graph").out
    )
    first = json.loads(hwsdk("explain", tmp_path / "m.graph", "--json").out)["kernels"][-2]
    edge = {"value": "dot_general", "reader": "sub", "kernel": "k1_row", "reason": why}
    assert edge in first["unfused"]


def test_a_schedule_is_copied_from_explain_changed_and_compiled(
    hwsdk: Invoke, graph_file: Path, tmp_path: Path
) -> None:
    printed = hwsdk("explain", graph_file).out
    line = next(x for x in printed.splitlines() if "--schedules FILE" in x)
    text = line.split("FILE): ")[1]
    assert "register_tile: [2, 8]" not in text
    changed = re.sub(r"register_tile: \[\d+, \d+\]", "register_tile: [2, 8]", text)
    (tmp_path / "s.yaml").write_text(changed + "\n")
    with_file = ("--schedules", tmp_path / "s.yaml")
    assert "register_tile = [2, 8] <- override" in hwsdk("explain", graph_file, *with_file).out
    x = np.random.default_rng(2).standard_normal((13, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for words in (
        ("compile", graph_file, "-o", tmp_path / "m.hwx"),
        ("run", graph_file, "-i", f"x={tmp_path / 'x.npy'}"),
    ):
        assert hwsdk(*words, *with_file).code == 0
    assert (
        hwsdk("run", tmp_path / "m.hwx", "-i", f"x={tmp_path / 'x.npy'}", "-s", tmp_path / "o.npz").code == 0
    )
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["y"], want(graph_file, x), rtol=1e-5, atol=1e-5)
    (tmp_path / "s.yaml").write_text(text.replace("register_tile", "register_tiles"))
    done = hwsdk("compile", graph_file, *with_file)
    assert (done.code, len(done.err.strip().splitlines())) == (4, 1), done
    assert "s.yaml:1: schedule of k0_contraction: 'register_tiles' is no decision" in done.err
