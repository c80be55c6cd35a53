"""The fragments that the simulator uses are those that the descriptions say, intrinsic by intrinsic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsdk.intrinsics import load_target
from hwsdk.intrinsics.layouts import Layout
from hwsdk.sim.simt.matrix import Fragment
from hwsdk.target_desc.model import Intrinsic
from hwsdk.targets.cuda.ptx import matrix as ptx
from hwsdk.targets.cuda.ptx import wgmma
from hwsdk.targets.rocm import matrix as rocm

TARGETS = Path(__file__).resolve().parents[2] / "targets"
ELEMENT_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2}  # others have one


def files(family: str) -> list[str]:
    return sorted(
        str(f.relative_to(TARGETS)) for f in (TARGETS / family).glob("*.yaml") if "base" not in f.stem
    )


def products(file: str, prefix: str) -> list[tuple[Intrinsic, dict[str, int]]]:
    target = load_target(str(TARGETS / file))
    chosen = [i for name, i in target.intrinsics.items() if name.startswith(prefix)]
    return [(i, {k: int(v) for k, v in i.dims.items()}) for i in chosen]


def agree(
    fragment: Fragment, intrinsic: Intrinsic, operand: str, coordinates: str, dims: dict[str, int]
) -> None:
    layout = Layout(str(intrinsic.operands[operand].layout), tuple(coordinates), dims, frozenset())
    lane, item = layout.places(dims)
    assert (fragment.gather == lane * fragment.items + item).all(), f"{intrinsic.name}, operand {operand}"


@pytest.mark.parametrize("file", files("cuda"))
def test_products_of_one_family(file: str) -> None:
    found = products(file, "mma_")
    assert found
    for intrinsic, dims in found:
        m, n, k = dims["m"], dims["n"], dims["k"]
        a, b = (max(1, 4 // ELEMENT_BYTES.get(intrinsic.operands[o].dtype, 1)) for o in "ab")
        agree(ptx.fragment_a(m, k, a), intrinsic, "a", "mk", dims)
        agree(ptx.fragment_b(k, n, b), intrinsic, "b", "kn", dims)
        agree(ptx.fragment_c(m, n), intrinsic, "d", "mn", dims)


def test_products_of_four_warps() -> None:
    """Sums in registers, and operands where a descriptor of the binding finds them."""
    found = products("cuda/cuda-sm90.yaml", "wgmma_")
    assert len(found) == 8
    for intrinsic, dims in found:
        agree(wgmma.fragment(dims["n"]), intrinsic, "acc", "mn", dims)
        along_k = not intrinsic.name.endswith("_kn")
        for operand, coordinates in (("a", "mk"), ("b", "nk" if along_k else "kn")):
            rows = dims["m" if operand == "a" else "n"]
            matrix = wgmma.Matrix(rows, along_k or operand == "a", lambda raw: raw)
            for step in intrinsic.operands["step"].values:
                fields = step * 2 + (64 << 32) + (1 << 62) + (0 if along_k or operand == "a" else 128 << 16)
                pieces = matrix.operand(np.array([fields], np.uint64)).addresses
                layout = Layout(
                    str(intrinsic.operands[operand].layout), tuple(coordinates), dims, frozenset({"step"})
                )
                _, item = layout.places(dims, {"step": step})
                chunks = item[:, ::8]
                assert (chunks.reshape(-1) * 2 == pieces[0]).all(), f"{intrinsic.name}, operand {operand}"
                if coordinates == "kn":
                    break  # its lines hold one step


@pytest.mark.parametrize("file", [f for f in files("rocm") if "gfx9" in f])
def test_products_of_another_family(file: str) -> None:
    found = products(file, "mfma_")
    assert found
    for intrinsic, dims in found:
        agree(rocm.side(dims["m"], dims["k"]), intrinsic, "a", "mk", dims)
        agree(rocm.side(dims["n"], dims["k"]), intrinsic, "b", "nk", dims)
        agree(rocm.accumulator(dims["m"]), intrinsic, "d", "mn", dims)


def test_products_over_half_waves() -> None:
    found = products("rocm/rocm-gfx1100.yaml", "wmma_")
    assert found
    for intrinsic, dims in found:
        agree(rocm.half_accumulator(), intrinsic, "d", "mn", {c: dims[c] for c in "mn"})
