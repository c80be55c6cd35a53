"""L2 on a machine of lanes: every use is a kernel of its own, run as interpreted instructions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwsdk.conformance import runner, suite
from hwsdk.conformance.devices import open_device
from hwsdk.intrinsics import load_target

TARGETS = Path(__file__).resolve().parents[2] / "targets"


def outcomes(target: object, names: str) -> dict[str, tuple[str, str]]:
    cases = runner.select(suite.collect(target, ["L2"]), ["L2"], names)  # type: ignore[arg-type]
    done = runner.run(cases, open_device(target, isa=True))  # type: ignore[arg-type]
    return {o.name: (o.status, o.reason) for o in done}


@pytest.mark.parametrize(
    ("name", "intrinsics"),
    [
        (
            "cuda-sm80",
            "mma_m16n8k16_bf16,mma_m16n8k8_tf32,mma_m16n8k32_u8i8,ldmatrix_x2_trans,cp_async_16,ballot",
        ),
        ("cuda-sm80", "shuffle_down,store_shared_8,load_dram_16,atomic_add_shared_f32,dot4_u8i8"),
        ("cuda-sm90", "wgmma_m64n128k16_bf16,wgmma_m64n128k16_f16_kn"),
        ("rocm-gfx90a", "mfma_16x16x16_bf16,dpp_xor7,shuffle_idx,store_lds_16,atomic_add_dram_i32"),
        ("rocm-gfx90a", "mfma_16x16x16_f16,dot2,ballot"),  # the chip flushes denormals
        ("rocm-gfx1100", "wmma_16x16x16_bf16,wmma_16x16x16_u8i8,dot4_u8i8,shuffle_down"),
    ],
)
def test_bindings_do_what_their_semantics_say(name: str, intrinsics: str) -> None:
    found = outcomes(load_target(name), intrinsics)
    assert len(found) >= len(intrinsics.split(","))
    assert {status for status, _ in found.values()} == {"pass"}, found


@pytest.mark.parametrize(
    ("chip", "name", "old", "new"),
    [
        # swapped registers of a fragment: still one-to-one, so only the instruction itself can tell
        (
            "cuda-sm80",
            "mma_m16n8k16_bf16",
            "item = k//8*4 + m//8*2 + k % 2",
            "item = m//8*4 + k//8*2 + k % 2",
        ),
        (
            "cuda-sm80",
            "mma_m16n8k16_bf16",
            "lane = m % 8*4 + n//2; item = m//8*2 + n % 2",
            "lane = m % 8*4 + n % 4; item = m//8*2 + n//4",
        ),
        # lines whose chunks are turned by another line's number
        ("cuda-sm90", "wgmma_m64n128k16_f16", "(step*2 + k//8) ^ n % 8", "(step*2 + k//8) ^ (n + 1) % 8"),
    ],
)
def test_a_layout_that_the_instruction_does_not_have_is_caught(
    tmp_path: Path, chip: str, name: str, old: str, new: str
) -> None:
    text = (TARGETS / "cuda" / f"{chip}.yaml").read_text()
    assert old in text
    file = tmp_path / "wrong.yaml"
    text = re.sub(r"extends: (\S+)", rf"extends: {TARGETS / 'cuda'}/\1", text.replace(old, new))
    file.write_text(text.replace(f"name: {chip}", "name: wrong"))
    (status, reason), *_ = outcomes(load_target(str(file)), name).values()
    assert status == "fail"
    assert "elements differ" in reason
