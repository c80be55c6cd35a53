"""`extends` and `each`: what merges, what replaces, and where an error in an inherited field points."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsdk.errors import DescriptionError
from hwsdk.intrinsics import lint
from hwsdk.target_desc import load_target
from hwsdk.target_desc.merge import load_merged
from tests.target_desc.editing import DATA, copies


def child(folder: Path, text: str) -> Path:
    path = copies(folder) / "child.yaml"
    path.write_text(f"hwsdk: 1\nname: child\nextends: simd\n{text}")
    return path


def test_mappings_merge_lists_by_name_features_unite(tmp_path: Path) -> None:
    path = child(
        tmp_path,
        """features: [bmi2]
optional_features: [fma, avx512vnni]
memory:
  - {name: l2, size_bytes: 524288}
  - {name: l3, kind: cache, per: device, size_bytes: 8388608}
intrinsics:
  - {name: load_f32, remove: true}
  - {name: fma_f32, cost: {latency_cycles: 5}}
detect: [{cpu_arch: nothing}]
""",
    )
    assert lint(path) == []
    target = load_target(path)
    assert target.features == ("avx2", "fma", "bmi2")
    assert target.optional_features == ("avxvnni", "avx512vnni")
    assert target.memory("l2").size_bytes == 524288
    assert target.memory("l2").ways == 8
    assert [m.name for m in target.memories] == ["dram", "l2", "l1", "vreg", "l3"]
    assert "load_f32" not in target.intrinsics
    assert target.intrinsic("fma_f32").cost.latency_cycles == 5
    assert target.intrinsic("fma_f32").cost.issue_per_cycle == 1
    assert len(target.detect) == 1
    assert target.lineage == ("child", "simd")


def test_abstract_and_notes_are_not_inherited(tmp_path: Path) -> None:
    path = child(tmp_path, "")
    base = tmp_path / "simd.yaml"
    base.write_text(base.read_text() + "abstract: true\nnotes: mine\n")
    target = load_target(path)
    assert not target.abstract
    assert target.notes == ""


def test_an_error_points_at_the_file_that_said_it_last(tmp_path: Path) -> None:
    path = child(tmp_path, "memory:\n  - {name: l2, per: cor}\n")
    (problem,) = lint(path)
    assert (Path(problem.file).name, problem.line) == ("child.yaml", 5)
    base = tmp_path / "simd.yaml"
    base.write_text(
        base.read_text().replace("name: l1, kind: cache, per: core", "name: l1, kind: cache, per: cor")
    )
    path.write_text("hwsdk: 1\nname: child\nextends: simd\n")
    (problem,) = lint(path)
    assert Path(problem.file).name == "simd.yaml"


def test_a_circle_names_its_members(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{one}.yaml").write_text(f"hwsdk: 1\nname: {one}\nextends: {other}\n")
    with pytest.raises(DescriptionError, match=r"c.yaml:3: .*circle: a.yaml -> b.yaml -> c.yaml -> a.yaml"):
        load_merged(tmp_path / "a.yaml")


def test_extends_a_relative_path(tmp_path: Path) -> None:
    copies(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.yaml").write_text("hwsdk: 1\nname: x\nextends: ../simd\n")
    assert load_target(tmp_path / "deep" / "x.yaml").name == "x"


def test_each_fills_names_and_keeps_numbers(tmp_path: Path) -> None:
    path = child(
        tmp_path,
        """intrinsics:
  - name: add_${t}
    unit: fma
    each: [{t: f32, n: 8, e: float}, {t: f64, n: 4, e: double}]
    dims: {n: "${n}"}
    semantics: "d[n] = x[n] + y[n]"
    operands: {d: {dtype: "${t}", in: vreg}, x: {dtype: "${t}", in: vreg}, y: {dtype: "${t}", in: vreg}}
    emit:
      llvm:
        ir: "%d = fadd <${n} x ${e}> %x, %y"
        args: [x: "<${n} x ${e}>", y: "<${n} x ${e}>"]
        result: [d: "<${n} x ${e}>"]
    cost: {issue_per_cycle: "${n}", latency_cycles: 4}
""",
    )
    assert lint(path) == []
    target = load_target(path)
    assert target.intrinsic("add_f64").dims["n"] == 4
    assert target.intrinsic("add_f32").cost.issue_per_cycle == 8.0
    assert target.intrinsic("add_f64").operands["x"].dtype == "f64"


def test_the_shipped_files_extend_each_other() -> None:
    assert load_merged(DATA / "warp_group.yaml").lineage == ("warp-group", "warp")
