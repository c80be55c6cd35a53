"""`benchmarks.gpu` end to end on a pretended GPU, at tiny sizes; its clock counts events, so no time is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu as program
from benchmarks import gpu_encoder, gpu_programs, gpu_table
from benchmarks.gpu_bench import Bench, Disagrees, Gone
from hwsdk.target_desc import load_target
from hwsdk.targets.gpu import port as gpu_port
from tests.gpu.fake_cupy import FakeGpu, FakeLibrary, fake_cupy


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    made = FakeGpu()
    library = FakeLibrary(made)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(made))
    monkeypatch.setattr(gpu_port, "first_library", lambda names: library)
    gpu_programs.weights.cache_clear()
    yield made
    gpu_programs.SMALL.clear()
    gpu_programs.weights.cache_clear()


def run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "gpu.json"
    common = [
        "--one-process",
        "--quick",
        "--target",
        "cuda-sm80",
        "--peer",
        "",
        "--json",
        str(file),
        "--budget",
        "200",
    ]
    status = program.main([*common, *arguments])
    return status, json.loads(file.read_text())


def clean(found: dict[str, Any], name: str) -> dict[str, Any]:
    section: dict[str, Any] = found["sections"][name]
    assert not section["failures"]
    assert not section["left_out"]
    assert section["rows"]
    return section


def test_lines(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_table, "QUICK_LINES", {"add": ((33,),), "layer_norm": ((3, 17),)})
    status, found = run(tmp_path, "--sections", "memory")
    assert (status, found["failed"]) == (0, [])
    assert found["device"]["name"] == "Pretend GPU"
    assert found["target"] == "cuda-sm80"
    assert found["peaks"]["dram_gb_per_s"] == pytest.approx(1555, rel=0.01)
    assert found["peaks"]["tops"]["bf16"] == 312
    rows = clean(found, "memory")["rows"]
    assert [(r["operation"], r["dtype"]) for r in rows] == [
        (o, d) for o in ("add", "layer_norm") for d in ("f32", "bf16")
    ]
    assert all(r["hwsdk_us"] > 0 and r["versions"] for r in rows)
    assert "Pretend GPU" in capsys.readouterr().out


@pytest.mark.slow
def test_network_and_suite(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_encoder, "KINDS", ("f32",))
    status, found = run(tmp_path, "--sections", "encoder,l1,probe")
    assert (status, found["failed"]) == (0, [])
    (row,) = clean(found, "encoder")["rows"]
    assert row["largest_difference"] == 0
    assert {"hwsdk: us", "hwsdk, no recordings: us"} <= row.keys()
    assert len(clean(found, "l1")["rows"]) == 3
    assert clean(found, "probe")["rows"][-1]["step"] == "one kernel"


def test_prepared_programs_run_where_nothing_can_be_compiled(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "programs"
    gpu_programs.SMALL.append(True)
    monkeypatch.setattr(gpu_table, "KINDS", ("f32", "i8"))
    refused = gpu_programs.prepare(folder, "cuda-sm80", ["tiny", "product_f32"])
    assert refused == {}
    monkeypatch.setattr("hwsdk.api.compile_stages", lambda *a, **k: pytest.fail("nothing may be compiled"))
    status, found = run(tmp_path, "--sections", "gemm", "--artifacts", str(folder))
    section = clean(found, "gemm")
    assert status == 0
    assert [r["compiles"] for r in section["rows"]] == [0, 0]
    assert any("there is no" in note and "product_i8" in note for note in section["notes"])


def test_a_wrong_result_is_a_failure_and_the_others_run(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gpu_table._product

    def broken(bench: Bench, exe: Any, kind: str, shape: tuple[int, int, int]) -> Any:
        if shape == (5, 7, 3):
            raise Disagrees("2 of 35 elements differ")
        return real(bench, exe, kind, shape)

    monkeypatch.setattr(gpu_table, "_product", broken)
    monkeypatch.setattr(gpu_table, "KINDS", ("f32",))
    status, found = run(tmp_path, "--sections", "gemm")
    section = found["sections"]["gemm"]
    assert (status, found["failed"]) == (1, ["gemm"])
    assert section["failures"] == ["product f32 (5, 7, 3): Disagrees: 2 of 35 elements differ"]
    assert [r["shape"] for r in section["rows"]] == [[16, 16, 16]]


# ----------------------------------------------------------------------------------------------------- without a device
def bench(seconds: float) -> Bench:
    return Bench(load_target("cuda-sm80"), 0, None, time.monotonic() + seconds)


def test_jobs_are_kept_one_by_one() -> None:
    one, seen = bench(60), []
    one.alive = lambda: True  # type: ignore[method-assign]

    def bad() -> dict[str, Any]:
        raise RuntimeError("a kernel faulted")

    jobs: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("a", lambda: {"n": 1}), ("b", bad), ("c", lambda: {"n": 3})
    ]  # fmt: skip
    one.run(jobs, 1, lambda: seen.append((one.done, one.at)))
    assert one.rows == [{"n": 3}]
    assert one.failures == ["b: RuntimeError: a kernel faulted"]
    assert seen == [(0, "b"), (1, ""), (1, "c"), (2, "")]
    late = bench(-1)
    late.run(jobs, 0, lambda: None)
    assert late.left_out == ["a", "b", "c"]
    gone = bench(60)
    gone.alive = lambda: False  # type: ignore[method-assign]
    with pytest.raises(Gone):
        gone.run(jobs, 0, lambda: None)
    assert (gone.done, gone.at) == (2, "")


@pytest.mark.parametrize(
    ("first", "failures", "calls"),
    [
        (
            (program.DEAD, {"jobs": 2, "rows": [1], "failures": ["b: it faulted"]}, ""),
            ["b: it faulted"],
            [0, 2],
        ),
        ((-11, {"jobs": 1, "rows": [1], "at": "b"}, "exit code -11: "), ["b: exit code -11: "], [0, 2]),
        (
            (program.TIME_OVER, {"jobs": 1, "rows": [1], "at": "b"}, "ended after 3 s"),
            ["b: ended after 3 s"],
            [0],
        ),
        ((1, {}, "exit code 1: no module"), ["gemm: exit code 1: no module"], [0]),
    ],
)
def test_a_process_that_ends_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, first: Any, failures: list[str], calls: list[int]
) -> None:
    told: list[int] = []

    def spawn(name: str, options: Any, seconds: float, skip: int) -> Any:
        told.append(skip)
        return first if len(told) == 1 else (0, {"jobs": 1, "rows": [3]}, "")

    monkeypatch.setattr(program, "_spawn", spawn)
    found = program.in_child("gemm", program.options_of([]), 60)
    assert told == calls
    assert found["failures"] == failures
    assert found["rows"] == ([1, 3] if len(calls) > 1 else first[1].get("rows", []))


def test_without_a_device_one_line_and_an_exit_code() -> None:
    root = Path(__file__).resolve().parents[2]
    for arguments in (["gpu"], ["gpu", "--target", "cuda-sm80"]):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", *arguments], cwd=root, capture_output=True, text=True, timeout=120,
            env={"PATH": "/usr/bin", "PYTHONPATH": str(root)}, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            pytest.skip("there is a device")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("benchmarks.gpu: ")


def test_the_torch_network_is_the_network() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.subjects import SMALL_HEADS, small_weights, subject
    from benchmarks.torch_encoder import encoder
    from hwsdk.graph.interpret import interpret

    chosen = subject("small_encoder")
    inputs = chosen.inputs((2, 13))
    inputs["attention_mask"][1, 9:] = 0
    want = interpret(chosen.model(), inputs)["last_hidden_state"]
    got = encoder(small_weights(), SMALL_HEADS)(*map(torch.from_numpy, inputs.values()))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)
