"""The benchmark programs run, agree with their peers and say what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import peak
from benchmarks.__main__ import PROGRAMS, listing
from benchmarks.measure import Sample, ratio, turns
from benchmarks.stream import LENGTHS

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def quick(program: str) -> dict[str, Any]:
    pytest.importorskip("onnxruntime")
    found: dict[str, Any] = json.loads(run(f"benchmarks.{program}", "--quick", "--json", "-"))
    assert {"processor", "cores", "onnxruntime", "numpy"} <= found.keys()
    return found


def test_listing_names_every_program() -> None:
    assert all(f"benchmarks.{name}" in listing() for name in PROGRAMS)
    assert "benchmarks.stream" in run("benchmarks")
    assert "usage: benchmarks planner" in run("benchmarks", "planner", "--help")


def test_every_program_is_documented() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert all(f"python -m benchmarks.{name}" in text for name in PROGRAMS)


def test_the_stream_is_the_stated_one() -> None:
    assert len(LENGTHS) == 40
    assert len(set(LENGTHS)) == 40
    assert LENGTHS[:4] == (198, 195, 228, 108)


@pytest.mark.slow
def test_stream() -> None:
    found = quick("stream")
    assert [found[k]["compiles"] for k in ("compile_cold", "compile_warm")] == [1, 1]
    assert found["compile_cold"]["runs"] == len(found["lengths"])
    (passes,) = found["passes"]
    assert passes["largest_difference"] < 1e-4 * passes["largest_value"]
    assert passes["to_peer"].keys() == {"warm", "warm_best", "warm_cpu"}
    assert all(passes[name]["warm_s"] > 0 for name in ("hwsdk", "onnxruntime"))


@pytest.mark.slow
def test_gemm() -> None:
    rows = quick("gemm")["rows"]
    assert [r["shape"] for r in rows] == [[5, 48, 33], [16, 64, 64]]
    for r in rows:
        assert all(
            0 < r[name]["gflops"] <= r[name]["best_gflops"] for name in ("hwsdk", "OpenBLAS", "onnxruntime")
        )
        assert r["hwsdk"]["best_of_peak"] < 1.2, "faster than the peak: the peak or the clock is wrong"


@pytest.mark.slow
def test_models() -> None:
    (found,) = quick("models")["models"]
    assert found["compile"]["compiles"] == 1
    assert all(r["relative_difference"] < 1e-4 for r in found["rows"])


def test_static() -> None:
    pytest.importorskip("msgpack")
    pytest.importorskip("elftools")
    (row,) = json.loads(run("benchmarks.static", "--quick", "--targets", "rocm-gfx90a", "--json", "-"))[
        "rows"
    ]
    assert row["problems"] == []
    assert all(k["registers"] > 0 and k["spill_bytes"] == 0 for k in row["kernels"].values())


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import gemm

    one = {"gflops": 50.0, "best_gflops": 60.0, "of_peak": 0.5, "best_of_peak": 0.6}
    row = {"shape": [1, 2, 3], "threads": 1, "calls": 3, "peak_gflops": 100.0, "hwsdk": one, "OpenBLAS": one}
    machine = {"processor": "P", "cores": 2, "onnxruntime": "1", "numpy": "2"}
    gemm.show({**machine, "rows": [row]})
    printed = capsys.readouterr().out
    assert "1x2x3" in printed
    assert "50.0 / 60.0 (60 %)" in printed


def test_peak_is_a_rate_of_multiply_adds() -> None:
    text = peak.loop_text(8, 3)
    assert text.count("call <8 x float> @llvm.fma") == 3
    assert peak.gflops(1, 1000) > 0.1
    assert peak.gflops(2, 1000) > 0.1


def test_statistics() -> None:
    sample = Sample()
    sample.wall = [[1.0, 5.0], [3.0, 2.0], [2.0, 4.0]]
    sample.cpu = sample.wall
    assert sample.passes() == [6.0, 5.0, 6.0]
    assert (sample.median(), sample.best(), sample.cpu_median()) == (6.0, 3.0, 6.0)
    assert ratio([2.0, 9.0, 4.0], [1.0, 3.0, 2.0]) == 2.0
    assert turns(["a", "b"], 0) == ["a", "b"]
    assert turns(["a", "b"], 1) == ["b", "a"]


def test_encoder_file_is_the_network() -> None:
    """The peer's file and the graph that hwsdk compiles compute the same, hidden tokens included."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from benchmarks import peers
    from benchmarks.subjects import subject
    from hwsdk.graph.interpret import interpret

    chosen = subject("small_encoder")
    session = peers.session(chosen.peer(), 1)
    inputs = chosen.inputs((2, 13))
    inputs["attention_mask"][1, 9:] = 0
    (want,) = session.run(None, inputs)
    got = interpret(chosen.model(), inputs)["last_hidden_state"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
