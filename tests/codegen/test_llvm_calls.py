"""Intrinsics of a real description in LoopIR, and syncs: operands in registers are SSA values, in memory pointers."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest

from hwsdk.codegen.llvm_emit import emit_kernel
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    Const,
    For,
    Intrin,
    Load,
    LoopKernel,
    Store,
    Sync,
    View,
)
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import sym
from hwsdk.target_desc import load_target
from hwsdk.target_desc.model import Sync as SyncEntry
from hwsdk.target_desc.model import Target
from tests.codegen.llvm_harness import agree, aligned, host_target

K, k, i, v, q = (sym(x) for x in "K k i v l".split())
needs_avx2 = pytest.mark.skipif(
    not {"avx2", "fma"} <= set(host_target().features), reason="runs instructions of x86-64-v3"
)


def described() -> Target:
    return load_target("x86-64-v3", detect=False)


def tile(rows: int, vectors: int) -> LoopKernel:
    """A tile of a matrix product in the target's own loads, broadcasts and multiply-adds."""
    lanes = 8
    a, b = (
        Buffer("a", "f32", (rows, K), "dram"),
        Buffer("b", "f32", (K, vectors * lanes), "dram", align_bytes=64),
    )
    c = Buffer("c", "f32", (rows, vectors * lanes), "dram")
    acc, line = (
        Buffer("acc", "f32", (rows, vectors, lanes), "vreg"),
        Buffer("line", "f32", (vectors, lanes), "vreg"),
    )
    spread = Buffer("spread", "f32", (lanes,), "vreg")

    def over(var: str, extent: int, *body: object) -> For:
        return For(var, extent, tuple(body), "unroll")  # type: ignore[arg-type]

    def over_lanes(*body: object) -> For:
        return over("v", vectors, For("l", lanes, tuple(body), "vector"))  # type: ignore[arg-type]

    load = Intrin("load_f32", (("dst", View("line", (v, 0))), ("src", View("b", (k, v * lanes)))))
    broadcast = Intrin("broadcast_f32", (("dst", View("spread", (0,))), ("src", View("a", (i, k)))))
    fma = Intrin(
        "fma_f32", (("acc", View("acc", (i, v, 0))), ("a", View("spread", (0,))), ("b", View("line", (v, 0))))
    )
    rows_of = over("i", rows, Alloc(spread), broadcast, over("v", vectors, fma))
    body: Body = (
        Alloc(acc),
        over("i", rows, over_lanes(Store("acc", (i, v, q), Const("f32", 0.0)))),
        For("k", K, (Alloc(line), over("v", vectors, load), rows_of)),
        over("i", rows, over_lanes(Store("c", (i, v * lanes + q), Load("f32", "acc", (i, v, q))))),
    )
    return LoopKernel("tile", (a, b, c), ("K",), body, ("c",))


@needs_avx2
@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (4, 3), (6, 2)])
def test_a_tile_of_intrinsics(rows: int, vectors: int) -> None:
    rng = np.random.default_rng(3)
    b = aligned(9 * vectors * 8).reshape(9, vectors * 8)
    b[...] = rng.normal(0, 1, b.shape)
    arrays = {
        "a": rng.normal(0, 1, (rows, 9)).astype(np.float32),
        "b": b,
        "c": np.zeros((rows, vectors * 8), np.float32),
    }
    agree(tile(rows, vectors), arrays, {"K": 9}, described(), rtol=1e-5, atol=1e-6)
    text = emit_kernel(tile(rows, vectors), described())
    assert text.count("@llvm.fma.v8f32") == rows * vectors
    assert "alloca" not in text
    assert text.count(" phi <8 x float>") == 2 * rows * vectors  # in the loop, and behind it for K = 0


@needs_avx2
def test_an_operand_of_another_shape_than_the_cells() -> None:
    """dot2_i16_i32 reads 16 numbers as 8 pairs: the buffer is pairs, the register 16 elements."""
    x, d = Buffer("x", "i16", (8, 2), "vreg"), Buffer("d", "i32", (8,), "vreg")
    lane_pair = For(
        "l", 8, tuple(Store("x", (q, p), Load("i16", "s", (q * 2 + p,))) for p in range(2)), "vector"
    )
    use = Intrin("dot2_i16_i32", (("d", View("d", (0,))), ("a", View("x", (0, 0))), ("b", View("x", (0, 0)))))
    out = For("l", 8, (Store("y", (q,), Load("i32", "d", (q,))),), "vector")
    params = (Buffer("s", "i16", (16,), "dram"), Buffer("y", "i32", (8,), "dram"))
    kernel = LoopKernel("dots", params, (), (Alloc(x), Alloc(d), lane_pair, use, out), ("y",))
    if "dot2_i16_i32" not in described().intrinsics:
        pytest.skip("the description has no such intrinsic")
    arrays = {
        "s": np.random.default_rng(1).integers(-99, 99, 16).astype(np.int16),
        "y": np.zeros(8, np.int32),
    }
    agree(kernel, arrays, {}, described())


def test_sync_is_text_of_the_target() -> None:
    fence = SyncEntry("full", "fence", "core", emit=MappingProxyType({"llvm": "fence seq_cst"}))
    target = dataclasses.replace(host_target(), syncs=MappingProxyType({"full": fence}))
    assert "  fence seq_cst" in emit_kernel(LoopKernel("k", (), (), (Sync("full"),)), target)
    with pytest.raises(CodegenError, match="target host has no sync 'other'"):
        emit_kernel(LoopKernel("k", (), (), (Sync("other"),)), target)
