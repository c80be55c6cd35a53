"""Whole kernels, from LLVM text to PTX to the engine, against NumPy; and what they cost."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.sim.simt.chip import Checks
from tests.targets.ptx import llvm_kernels as kernels
from tests.targets.ptx.harness import compiled, engine, kernel, program


@pytest.mark.parametrize("n", [0, 1, 127, 128, 1000])
def test_vector_add(n: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    device = engine()
    args = [device.copy_of(x, name, True) for x, name in ((a, "a"), (b, "b"))]
    out = device.allocate(4 * n, "c")
    stats = device.launch(program(compiled(kernels.VECTOR_ADD), "add"), -(-n // 128), 128, [*args, out, n])
    assert (device.read(out, np.float32, n) == a + b).all()
    assert stats.spaces["global"].written_bytes == 4 * n if n else "global" not in stats.spaces


def test_one_number_of_a_lane_addresses_two_memories() -> None:
    """The same bytes before a lane's element of a global and of a shared array; shared memories are one per block."""
    body = """
    mul.wide.u32 %d1, %t, 4;
    ld.param.u64 %d2, [p0];
    add.s64 %d3, %d2, %d1;
    mov.u64 %d4, cells;
    add.s64 %d5, %d4, %d1;
    mov.u32 %r1, %ctaid.x;
    ld.global.u32 %r2, [%d3];
    st.shared.u32 [%d5], %r1;
    ld.shared.u32 %r3, [%d5];
    ld.global.u32 %r4, [%d3];
    add.u32 %r5, %r2, %r3;
    add.u32 %r5, %r5, %r4;
    ld.param.u64 %d6, [p1];
    mul.wide.u32 %d7, %r1, 256;
    add.s64 %d8, %d6, %d7;
    add.s64 %d9, %d8, %d1;
    st.global.u32 [%d9], %r5;
"""
    x = np.arange(64, dtype=np.uint32) * 100
    for checks in (Checks(), Checks(costs=False)):
        device = engine(checks=checks)
        given, out = device.copy_of(x, "x", True), device.allocate(5 * 256)
        text = kernel(body, ["u64", "u64"], ".shared .align 16 .b8 cells[256];")
        device.launch(program(text), 5, 64, [given, out])
        want = 2 * x + np.arange(5)[:, None]
        assert (device.read(out, np.uint32, (5, 64)) == want).all()


def test_tree_reduction() -> None:
    a = np.random.default_rng(2).standard_normal((5, 256)).astype(np.float32)
    device = engine()
    x, out = device.copy_of(a, "a", True), device.allocate(20)
    stats = device.launch(program(compiled(kernels.TREE), "tree"), 5, 256, [x, out])
    want = a.copy()
    for half in (128, 64, 32, 16, 8, 4, 2, 1):  # the same order of additions
        want[:, :half] += want[:, half : 2 * half]
    assert (device.read(out, np.float32, 5) == want[:, 0]).all()
    assert stats.barriers == 5 * 9
    assert stats.bank_conflicts == 0


def test_shuffle_reduction() -> None:
    a = np.random.default_rng(3).standard_normal(128).astype(np.float32)
    device = engine()
    x, out = device.copy_of(a, "a", True), device.allocate(16)
    device.launch(program(compiled(kernels.shuffle_sum()), "sum"), 1, 128, [x, out])
    want = a.reshape(4, 32).copy()
    for step in (16, 8, 4, 2, 1):
        want = want + want[:, np.arange(32) ^ step]
    assert (device.read(out, np.float32, 4) == want[:, 0]).all()


@pytest.mark.parametrize("n", [1, 31, 32, 100])
def test_softmax(n: int) -> None:
    x = (np.random.default_rng(4).standard_normal((7, n)) * 5).astype(np.float32)
    device = engine()
    a, out = device.copy_of(x, "x", True), device.allocate(x.nbytes)
    device.launch(program(compiled(kernels.softmax()), "softmax"), 7, 32, [a, out, n])
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    want = wide / wide.sum(1, keepdims=True)
    # rounding of the exponent's argument (up to 40), of each term, of n sums, and of two products
    bound = np.finfo(np.float32).eps * (40 + n + 4) * want
    assert (np.abs(device.read(out, np.float32, x.shape) - want) <= bound).all()


@pytest.mark.parametrize("pad,conflicts", [(1, 0), (0, 31 * 32 * 6)])
def test_transpose_and_its_bank_conflicts(pad: int, conflicts: int) -> None:
    a = np.random.default_rng(5).standard_normal((64, 96)).astype(np.float32)
    device = engine()
    x, out = device.copy_of(a, "a", True), device.allocate(a.nbytes)
    found = program(compiled(kernels.transpose(pad)), "transpose")
    stats = device.launch(found, (3, 2), (32, 8), [x, out, 64, 96])
    assert (device.read(out, np.float32, (96, 64)) == a.T).all()
    assert stats.bank_conflicts == conflicts
    assert stats.spaces["global"].transactions == 2 * a.nbytes // 32


def multiply(
    text: str, element: str, m: int, n: int, k: int, shared: int | None = None
) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(6)
    dtype = np.float16 if element == "half" else ml_dtypes.bfloat16
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    device = engine()
    args = [device.copy_of(x.view(np.uint16), name, True) for x, name in ((a, "a"), (b, "b"))]
    out = device.allocate(4 * m * n, "c")
    ring = kernels.STAGES * 2 * kernels.STAGE_BYTES
    stats = device.launch(
        program(text, "gemm"),
        (n // 64, m // 64),
        128,
        [*args, out, m, n, k],
        ring if shared is None else shared,
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    # k / 16 additions of float32, each product of 16 exact to one rounding
    bound = np.finfo(np.float32).eps * (k // 16 + 1) * size
    return device.read(out, np.float32, (m, n)), (exact, bound), stats


@pytest.mark.parametrize("element", ["half", "bfloat"])
@pytest.mark.parametrize("m,n,k", [(64, 64, 32), (128, 192, 160)])
def test_tensor_core_gemm(element: str, m: int, n: int, k: int) -> None:
    got, (exact, bound), stats = multiply(compiled(kernels.gemm(element)), element, m, n, k)
    assert (np.abs(got - exact) <= bound).all()
    assert stats.bank_conflicts == 0
    assert stats.warp_instructions["matrix"] == (m * n // 4096) * 4 * (k // 32) * (2 * 8 + 2 * 4)
    assert stats.barriers == (m * n // 4096) * (k // 32)


def test_the_compiler_s_own_stack_and_unoptimised_code() -> None:
    """Level 0 keeps variables in local memory and calls functions."""
    text = """
define internal float @square(float %x) noinline { %y = fmul float %x, %x ret float %y }
define ptx_kernel void @k(ptr addrspace(1) %o, i32 %n) {
  %array = alloca [8 x float]
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  br label %loop
loop:
  %i = phi i32 [0, %0], [%j, %loop]
  %p = getelementptr float, ptr %array, i32 %i
  %s = add i32 %i, %t
  %f = uitofp i32 %s to float
  %q = call float @square(float %f)
  store float %q, ptr %p
  %j = add i32 %i, 1
  %c = icmp ult i32 %j, 8
  br i1 %c, label %loop, label %out
out:
  %m = and i32 %t, 7
  %r = getelementptr float, ptr %array, i32 %m
  %v = load float, ptr %r
  %w = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %v, ptr addrspace(1) %w
  ret void
}
"""
    for level in (0, 2):
        device = engine()
        out = device.allocate(128)
        device.launch(program(compiled(text, level=level)), 1, 32, [out, 0])
        lane = np.arange(32)
        assert (device.read(out, np.float32, 32) == (lane + lane % 8) ** 2).all()
