"""Descriptions of lock-step chips: sound, found by name, refused by family where there is no device, short by
inheritance; dropping what is inherited."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hwsdk.errors import DescriptionError, TargetError
from hwsdk.intrinsics import lint, load_checked
from hwsdk.target_desc import list_targets, load_target
from tests.target_desc.editing import ROOT

FILES = tuple(
    p for family in ("cuda", "rocm", "dcu") for p in sorted((ROOT / "targets" / family).glob("*.yaml"))
)
CHIPS = tuple(p for p in FILES if "-base" not in p.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_descriptions_are_sound(path: Path) -> None:
    assert not lint(path)


@pytest.mark.parametrize("path", CHIPS, ids=lambda p: p.stem)
def test_every_number_has_evidence(path: Path) -> None:
    target = load_checked(path.stem, detect=False)
    assert Path(target.file) == path
    silent = [field for field, origin in target.origins.items() if not origin.source]
    assert not silent
    assert target.workers() > 1
    assert target.codegen.model == "simt"
    assert all(level.clock_ghz for level in target.levels[1:])


def test_bases_are_only_for_extension() -> None:
    abstract = {e.name for e in list_targets() if e.abstract}
    assert {"cuda-base", "rocm-base"} <= abstract


@pytest.mark.parametrize("family", ["cuda", "rocm", "dcu"])
def test_a_family_without_a_device_is_one_clear_line(family: str) -> None:
    with pytest.raises(TargetError, match="no target of family") as caught:
        load_target(family)
    text = str(caught.value)
    assert "\n" not in text
    assert "and none was found here" in text
    assert text.count("none was found") == 1, "equal reasons are said once"
    assert all(p.stem in text for p in CHIPS if p.stem.startswith(family))


def test_limits_of_one_workgroup() -> None:
    """The system takes a kibibyte of each workgroup's shared memory from the 8.0 generation on."""
    most = {"cuda-sm75": 64, "cuda-sm80": 163, "cuda-sm89": 99, "cuda-sm90": 227, "cuda-sm100": 227}
    for name, kibibytes in most.items():
        assert load_checked(name, detect=False).memory("shared").usable_bytes == kibibytes * 1024


def test_generations_differ_in_a_few_lines() -> None:
    most = {
        "cuda-base": 206,  # two routes
        "rocm-base": 182,
        "cuda-sm89": 39,
        "cuda-sm90": 90,  # products of four warps
        "cuda-sm100": 39,
        "rocm-gfx942": 40,
        "rocm-gfx908": 50,
    }
    for path in FILES:
        assert len(path.read_text().splitlines()) <= most.get(path.stem, 180), path.stem


def test_what_an_older_generation_lacks_is_dropped() -> None:
    newer, older = (load_checked(f"rocm-gfx{n}", detect=False) for n in ("90a", "908"))
    assert set(newer.features) - set(older.features) == {"gfx90a-insts"}
    assert "mfma_16x16x16_bf16" in newer.intrinsics
    assert "mfma_16x16x16_bf16" not in older.intrinsics
    assert older.intrinsics["mfma_16x16x8_bf16"].cost.peak_tops == 92.3
    assert older.lineage == ("rocm-gfx908", "rocm-gfx90a", "rocm-base")


def test_matrix_rates_follow_the_dtype() -> None:
    ampere, cdna = (load_checked(n, detect=False).intrinsics for n in ("cuda-sm80", "rocm-gfx942"))
    assert ampere["mma_m16n8k32_i8"].cost.peak_tops == 2 * (ampere["mma_m16n8k16_f16"].cost.peak_tops or 0)
    half, eighth = (cdna[f"mfma_16x16x{s}"].cost.peak_tops for s in ("16_f16", "32_f8e4m3fnuz"))
    assert eighth == pytest.approx(2 * (half or 0), rel=1e-3)


BAD = (  # what, description, old text, new text, words of the one message
    (
        "two elements in one place",
        "cuda-sm80",
        "k//8*4 + m//8*2 + k % 2",
        "k//8*4 + k % 2",
        "is not one-to-one",
    ),
    ("a place left empty", "rocm-gfx90a", "item = m % 4", "item = m % 4*2", "write 'holes: true'"),
    ("bits lost in a binding", "cuda-sm75", "a: 2 x <2 x half>", "a: <2 x half>", "holds 4 x f16 = 64 bits"),
    ("a lane too many", "rocm-gfx1100", "lane = copy*16 + m", "lane = copy*32 + m", "'warp' has 32 lanes"),
    ("a peak that does not follow", "cuda-sm89", "peak_tops: 183", "peak_tops: 366", "stated peak 366"),
    ("a feature that is not there", "cuda-sm80", "[cp_async]", "[cp_asink]", "did you mean 'cp_async'"),
    (
        "a feature not inherited",
        "rocm-gfx908",
        "-gfx90a-insts",
        "-gfx90b-insts",
        "did you mean 'gfx90a-insts'",
    ),
    ("a needed feature dropped", "cuda-sm89", "[mma_f8]", "[mma_f8, -cp_async]", "needs feature 'cp_async'"),
    (
        "residency outside",
        "cuda-sm75",
        "{workgroup: 16",
        "{device: 16",
        "no program-chosen level inside 'core'",
    ),
    (
        "residency of nothing",
        "cuda-sm75",
        "{workgroup: 16",
        "{workgroup: 0",
        "workgroup of level 'core' is 0",
    ),
)


@pytest.mark.parametrize(("what", "name", "old", "new", "message"), BAD, ids=[b[0] for b in BAD])
def test_what_is_wrong_is_one_line(
    what: str, name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    for path in FILES:
        shutil.copytree(path.parent, tmp_path / path.parent.name, dirs_exist_ok=True)
    path = tmp_path / name.split("-")[0] / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DescriptionError) as caught:
        load_checked(path)
    assert message in caught.value.problems[0].message
    assert len(caught.value.problems) == len({(p.file, p.line) for p in caught.value.problems})
    assert not any("\n" in p.message for p in caught.value.problems)
