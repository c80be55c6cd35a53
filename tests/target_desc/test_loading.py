"""Names, families, roots and what detection makes of this machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hwsdk.errors import TargetError
from hwsdk.target_desc import find_roots, list_targets, load_target, resolve
from hwsdk.target_desc.description import read_description
from hwsdk.target_desc.host import Host, host, usable_cores
from hwsdk.target_desc.loading import misfit
from tests.target_desc.editing import ROOT, copies

X86 = platform.machine() == "x86_64"
V3_WORDS = "sse42 popcnt avx avx2 fma f16c bmi1 bmi2 abm movbe".split()
V4_WORDS = [*V3_WORDS, *"avx512f avx512bw avx512cd avx512dq avx512vl".split()]


def a_host(*words: str, arch: str = "x86_64", **measured: float) -> Host:
    return Host(arch, frozenset(words), measured)


def test_shipped_targets_are_found() -> None:
    names = {entry.name for entry in list_targets()}
    assert {"x86-64-v3", "x86-64-v4"} <= names
    assert any((root / "x86").is_dir() for root in find_roots())


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(TargetError, match="did you mean 'x86-64-v3'"):
        load_target("x86-64-v33")
    with pytest.raises(TargetError, match="there is no description file"):
        load_target("nowhere/x.yaml")


def test_the_path_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies(tmp_path)
    text = (tmp_path / "simd.yaml").read_text()
    (tmp_path / "simd.yaml").write_text(
        text.replace("name: simd", "name: x86-64-v3").replace("family: simd", "family: own")
    )
    monkeypatch.setenv("HWSDK_TARGET_PATH", os.pathsep.join([str(tmp_path), str(tmp_path / "absent")]))
    assert find_roots()[0] == tmp_path.resolve()
    assert resolve("x86-64-v3").parent == tmp_path.resolve()


def test_conditions_hold_or_say_why() -> None:
    v3 = read_description(ROOT / "targets/x86/x86-64-v3.yaml").data
    v4 = read_description(ROOT / "targets/x86/x86-64-v4.yaml").data
    npu = read_description(ROOT / "examples/new_chip/npu.yaml").data
    assert misfit(v3, a_host(*V3_WORDS)) is None
    assert misfit(v3, a_host(*V3_WORDS, arch="aarch64")) == "it is for x86_64, this machine is aarch64"
    assert (
        misfit(v4, a_host(*V3_WORDS)) == "this machine lacks avx512f, avx512bw, avx512cd, avx512dq, avx512vl"
    )
    assert misfit(v4, a_host(*V4_WORDS)) is None
    assert "driver 'npu'" in str(misfit(npu, a_host()))


def test_feature_names_are_compared_without_their_punctuation() -> None:
    here = a_host("avx512vnni", "amxtile")
    assert here.has("avx512_vnni", {})
    assert here.has("amx-tile", {})
    assert here.lacks(["lzcnt"], {"lzcnt": "abm"}) == ("lzcnt",)


@pytest.mark.parametrize(("words", "name"), [(V3_WORDS, "x86-64-v3"), (V4_WORDS, "x86-64-v4")])
def test_a_family_is_its_best_variant(words: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwsdk.target_desc.loading.host", lambda: a_host(*words, "avx512vnni"))
    target = load_target("x86")
    assert target.name == name
    assert ("avx512vnni" in target.features) == (name == "x86-64-v4")


def test_a_family_without_a_fit_gives_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwsdk.target_desc.loading.host", lambda: a_host("sse42"))
    with pytest.raises(TargetError, match=r"x86-64-v3: this machine lacks .*; x86-64-v4: this machine lacks"):
        load_target("x86")


def test_measurements_replace_numbers_only_on_a_fitting_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = a_host(*V3_WORDS, "avxvnni", physical_cores=12, cache_l2=2097152, clock_under_load=4.5)
    monkeypatch.setattr("hwsdk.target_desc.loading.host", lambda: here)
    target = load_target("x86-64-v3")
    assert (target.level("core").count, target.memory("l2").size_bytes) == (12, 2097152)
    assert "dot4_u8i8_i32" in target.intrinsics
    assert load_target("x86-64-v4").level("core").count == 1
    assert load_target("x86-64-v3", detect=False).level("core").count == 1


@pytest.mark.skipif(not X86 or not Path("/proc/cpuinfo").exists(), reason="asks this x86 machine")
def test_this_machine() -> None:
    facts = host()
    assert facts.arch == "x86_64"
    assert facts.measured["physical_cores"] >= 1
    assert facts.measured["memory_total"] > 1 << 28
    assert 0.5 < facts.measured["clock_under_load"] < 10
    target = load_target("x86")
    assert target.memory("l2").size_bytes == facts.measured.get("cache_l2", target.memory("l2").size_bytes)
    assert target.workers() == usable_cores()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_only_cores_that_this_process_may_use_count() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from hwsdk.target_desc.host import usable_cores; print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "1"


def test_loading_needs_no_compiler() -> None:
    code = (
        "import sys; from hwsdk.target_desc import load_target; load_target('x86-64-v3'); "
        "print('llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
