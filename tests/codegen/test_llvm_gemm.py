"""A matrix-product microkernel written by hand in LoopIR: its result and its machine code."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest

from hwsdk.codegen.llvm_emit import emit_kernel
from hwsdk.codegen.loop_ir import Alloc, Body, Buffer, Const, For, Load, LoopKernel, Stmt, Store, Ternary
from hwsdk.graph.dims import sym
from tests.codegen.llvm_harness import Compiled, aligned, assembly, host_target

K, lda, k, r, v, lane = (sym(x) for x in "K lda k r v l".split())


def microkernel(rows: int, vectors: int, lanes: int, repeat: bool = False) -> LoopKernel:
    """C[rows, vectors*lanes] = A (in place, rows at a distance of lda) times B (packed)."""
    a = Buffer("A", "f32", (rows, K), "dram", strides=(lda, 1))
    b = Buffer("B", "f32", (K, vectors * lanes), "dram", align_bytes=64)
    c = Buffer("C", "f32", (rows, vectors * lanes), "dram")
    acc, line = (
        Buffer("acc", "f32", (rows, vectors, lanes), "vreg"),
        Buffer("line", "f32", (vectors, lanes), "vreg"),
    )

    def over_rows(*body: Stmt) -> For:
        return For("r", rows, tuple(body), "unroll")

    def over_lanes(*body: Stmt) -> For:
        return For("v", vectors, (For("l", lanes, tuple(body), "vector"),), "unroll")

    step = Ternary(
        "f32",
        "fma",
        Load("f32", "A", (r, k)),
        Load("f32", "line", (v, lane)),
        Load("f32", "acc", (r, v, lane)),
    )
    loop = For(
        "k",
        K,
        (
            Alloc(line),
            over_lanes(Store("line", (v, lane), Load("f32", "B", (k, v * lanes + lane)))),
            over_rows(over_lanes(Store("acc", (r, v, lane), step))),
        ),
    )
    body: Body = (
        Alloc(acc),
        over_rows(over_lanes(Store("acc", (r, v, lane), Const("f32", 0.0)))),
        loop,
        over_rows(over_lanes(Store("C", (r, v * lanes + lane), Load("f32", "acc", (r, v, lane))))),
    )
    if repeat:
        body = (For("again", sym("times"), body),)
    return LoopKernel("tile", (a, b, c), ("K", "lda", *(("times",) if repeat else ())), body, ("C",))


def hot_loop(text: str) -> list[str]:
    """Instructions of the block with the most multiply-adds."""
    blocks = re.split(r"\n(?=\.LBB\d+_\d+:)", text)
    block = max(blocks, key=lambda b: b.count("vfmadd"))
    return [
        line.strip() for line in block.splitlines() if line.startswith("\t") and not line.startswith("\t.")
    ]


def native_asm(text: str, cpu: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "x86_64-unknown-linux-gnu"
    target = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, opt=2, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(target.target_data)
    return str(target.emit_assembly(module))


TILES = [
    *[("x86-64-v3", 8, rows, 3) for rows in range(1, 5)],
    *[("x86-64-v3", 8, rows, 2) for rows in range(1, 7)],
    *[("x86-64-v4", 16, rows, 3) for rows in range(1, 10)],
    *[("x86-64-v4", 16, rows, 4) for rows in range(1, 7)],
    ("x86-64-v4", 16, 14, 2),
]


@pytest.mark.parametrize(("cpu", "lanes", "rows", "vectors"), TILES)
def test_no_spills_and_nothing_superfluous_in_the_loop(cpu: str, lanes: int, rows: int, vectors: int) -> None:
    loop = hot_loop(native_asm(emit_kernel(microkernel(rows, vectors, lanes), host_target()), cpu))
    assert sum("vfmadd" in x for x in loop) == rows * vectors
    assert not [x for x in loop if "(%rsp)" in x and re.search(r"%[xyz]mm", x)]
    # B's vectors, A's broadcasts, the multiply-adds, and a few for pointers and the counter
    pointers = max(0, rows - 10)  # more rows than scalar registers: their pointers are reloaded
    assert len(loop) <= rows * vectors + vectors + rows + 5 + 2 * pointers


def test_result() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 1, (4, 40)).astype(np.float32)
    b = aligned(33 * 24).reshape(33, 24)
    b[...] = rng.normal(0, 1, b.shape)
    c = np.zeros((4, 24), np.float32)
    compiled = Compiled(microkernel(4, 3, 8))
    compiled.run({"A": a, "B": b, "C": c}, {"K": 33, "lda": 40})
    np.testing.assert_allclose(c, a[:, :33] @ b, rtol=1e-5, atol=1e-5)
    compiled.run({"A": a, "B": b, "C": c}, {"K": 0, "lda": 40})
    assert (c == 0).all()


def test_machine_code_of_the_host() -> None:
    text = assembly(emit_kernel(microkernel(2, 2, 8), host_target()))
    assert "tile" in text
