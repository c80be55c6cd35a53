"""No chip, vendor or instruction-set name in the core: what differs between chips is data in targets/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = """
    x86 x86_64 x64 i386 i686 amd64 avx avx2 avx512 sse sse2 sse4 amx fma3 vnni zmm ymm xmm mxcsr cpuid rdtsc
    arm arm64 aarch64 armv8 neon sve sve2 sme riscv riscv64 rvv ppc64 powerpc altivec mips loongarch
    intel amd nvidia hygon qualcomm apple huawei ascendc cambricon graphcore google tpu cerebras groq habana
    tenstorrent
    cuda cudnn cublas cupy ptx nvptx sass nvcc nvrtc rocm hip hipcc miopen amdgpu gcn cdna rdna gfx dcu opencl
    metal vulkan oneapi sycl mkl onednn xeon epyc zen skylake icelake cascadelake haswell broadwell hopper
    ampere turing volta blackwell npu
"""
# `gfx906`, `sm_90`, `avx512f` and the like: a name with digits and letters behind it
STEMS = (
    r"gfx\d\w*|sm_\d+\w*|avx\d\w*|sse\d\w*|compute_\d+|x86[-_]64\w*"
    r"|llvm\.(?:x86|aarch64|nvvm|amdgcn|riscv)\w*"
)
PATTERN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(NAMES.split())}|{STEMS})(?![A-Za-z0-9])", re.IGNORECASE)
PACKAGES = ("google.protobuf",)  # names of packages that are no chips
TEXT = {".py", ".json", ".h", ".c", ".ll", ".yaml", ".md", ".txt"}


def _named(line: str) -> bool:
    for package in PACKAGES:
        line = line.replace(package, "")
    return PATTERN.search(line) is not None


def findings(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        f"{path.relative_to(ROOT)}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if _named(line)
    ]


def test_no_chip_in_the_core() -> None:
    files = [p for p in (ROOT / "hwsdk").rglob("*") if p.suffix in TEXT and "__pycache__" not in p.parts]
    assert files
    named = [p for p in files if PATTERN.search(p.stem)]
    assert not named, f"files named after a chip: {named}"
    found = [line for path in sorted(files) for line in findings(path)]
    assert not found, "a chip, vendor or ISA name in the core (move it to targets/):\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text", ["an AVX2 kernel", "x86-64-v3", "cuda_stream", "llvm.x86.fma", "for gfx906", "sm_90"]
)
def test_pattern_finds(text: str) -> None:
    assert PATTERN.search(text)


@pytest.mark.parametrize(
    "text", ["alarm", "charming", "hipster", "metallic", "ship", "zenith", "a matrix unit", "arms"]
)
def test_pattern_spares(text: str) -> None:
    assert not PATTERN.search(text)
