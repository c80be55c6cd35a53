"""The frozen model: derived figures, evidence of numbers, and the fields that the planner reads."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hwsdk.target_desc import load_target
from hwsdk.target_desc.description import read_description, target_of
from tests.target_desc.editing import DATA, ROOT, copies, edit

V3 = ROOT / "targets" / "x86" / "x86-64-v3.yaml"
V4 = ROOT / "targets" / "x86" / "x86-64-v4.yaml"
NPU = ROOT / "examples" / "new_chip" / "npu.yaml"


def test_clocks_are_inherited_and_rates_are_converted() -> None:
    target = load_target(DATA / "simd.yaml", detect=False)
    assert target.level("device").clock_ghz is None
    assert target.unit("fma").clock_ghz == 3.0
    assert target.memory("dram").read_bytes_per_cycle == pytest.approx(8.0)  # 24 GB/s at 3 GHz
    assert target.memory("dram").latency_cycles == pytest.approx(270.0)
    assert target.memory("dram").size_bytes is None
    assert target.memory("l2").usable_bytes == 196608
    assert target.memory("vreg").size_bytes == 512
    assert target.workers() == 4


def test_a_rate_follows_the_clock_that_the_host_replaced() -> None:
    target = target_of(
        read_description(DATA / "simd.yaml"), (), {"clock_under_load": 2.0, "cache_l2": 1048576.0}
    )
    assert target.memory("dram").read_bytes_per_cycle == pytest.approx(12.0)
    assert target.memory("l2").size_bytes == 1048576
    origin = target.origins["memory.l2.size_bytes"]
    assert (origin.probe, origin.source) == ("cache_l2", "measured: on this machine (cache_l2)")


def test_every_number_knows_its_line_and_evidence() -> None:
    target = load_target(DATA / "simd.yaml", detect=False)
    text = (DATA / "simd.yaml").read_text().splitlines()
    origin = target.origins["memory.l1.size_bytes"]
    assert origin.source == "datasheet: all of them"
    assert "name: l1" in text[origin.line - 1]
    assert target.origins["intrinsics.fma_f32.cost.latency_cycles"].source == "measured: somewhere"
    assert target.origins["intrinsics.load_f32.cost.latency_cycles"].source == "choice: an example"
    assert not target.origins["execution.core.clock_ghz"].confirmed
    assert target.origins["units.fma.count"].probe == "vector_fma_per_cycle"


def test_an_inherited_source_does_not_cover_what_the_child_says(tmp_path: Path) -> None:
    path = copies(tmp_path) / "child.yaml"
    path.write_text(
        'hwsdk: 1\nname: child\nextends: simd\nsource: "isa: child"\n'
        "intrinsics: [{name: fma_f32, cost: {latency_cycles: 5}}]\n"
    )
    target = load_target(path, detect=False)
    assert target.origins["intrinsics.fma_f32.cost.latency_cycles"].source == "isa: child"
    assert target.origins["intrinsics.fma_f32.cost.issue_per_cycle"].source == "measured: somewhere"


def test_optional_features_decide_what_exists() -> None:
    without = load_target(DATA / "simd.yaml", detect=False)
    having = load_target(DATA / "simd.yaml", detect=False, features=["avxvnni"])
    assert "dot4_u8i8_i32" not in without.intrinsics
    assert "dot4_u8i8_i32" in having.intrinsics
    assert not without.native("f16")
    assert having.native("f16")
    assert having.codegen.llvm is not None
    assert having.codegen.llvm.features == ("avx2", "fma", "avxvnni")
    assert without.digest != having.digest


def test_the_planner_s_fields_of_the_shipped_targets() -> None:
    target = load_target(V3, detect=False)
    for name, ways in (("l1", 8), ("l2", 8), ("l3", 16)):
        assert target.memory(name).ways == ways
        assert 0.9 < target.memory(name).overlap < 1
    assert target.memory("l1").loads_per_cycle == 2
    assert target.memory("l3").reader_bytes_per_cycle == 26
    assert target.unit("fma").tile_overhead_cycles == 15
    assert target.level("core").fork_cycles == 600
    assert target.codegen.address_registers == 14
    assert target.intrinsic("fma_f32").cost.holds == ("b",)
    assert target.codegen.llvm is not None
    assert target.codegen.llvm.support == str(V3.parent / "pool.ll")
    assert load_target(V4, detect=False).codegen.llvm.support == str(V3.parent / "pool.ll")  # type: ignore[union-attr]
    npu = load_target(NPU)
    assert npu.codegen.default_precision == "bf16"
    assert npu.unit("dma").copies == "engine"
    assert npu.intrinsic("mma_bf16").cost.rereads == ("a", "b")
    assert len(NPU.read_text().splitlines()) <= 150


def test_a_chip_changes_by_its_numbers_alone(tmp_path: Path) -> None:
    copies(tmp_path)
    path, _ = edit(tmp_path, "npu", "size_bytes: 262144", "size_bytes: 32768")
    edit(tmp_path, "npu", "dims: {m: 16, n: 16, k: 16}", "dims: {m: 8, n: 8, k: 32}")
    from hwsdk.intrinsics import compiled, lint

    assert lint(path) == []
    target = load_target(path)
    assert target.memory("spad").size_bytes == 32768
    assert compiled(target)["mma_i8"].ops == 2 * 8 * 8 * 32


def test_the_model_is_frozen_hashable_and_travels_between_processes() -> None:
    target = load_target(NPU)
    again = pickle.loads(pickle.dumps(target))  # noqa: S301  our own bytes
    assert again == target
    assert hash(again) == hash(target)
    with pytest.raises(TypeError):
        target.intrinsics["x"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        target.name = "x"  # type: ignore[misc]


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    before = load_target(NPU).digest
    path, _ = edit(copies(tmp_path), "npu", "size_bytes: 262144", "size_bytes: 32768")
    assert load_target(path).digest != before
    assert load_target(NPU).digest == before
