"""LLVM text on the lock-step engine: kernels for waves of 64 lanes, planted faults, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.sim.simt.llvm_text.syntax import LlvmTextError
from hwsdk.targets.rocm.lanes import programs
from tests.targets.rocm.harness import GLOBAL, LDS, engine, lanes

REDUCE = f"""
@buffer = internal addrspace(3) global [256 x float] undef, align 16
define amdgpu_kernel void @sum({GLOBAL} readonly noalias %a, {GLOBAL} noalias %o) #0 {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %g, 256
  %i = add i32 %first, %t
  %pa = getelementptr float, {GLOBAL} %a, i32 %i
  %x = load float, {GLOBAL} %pa
  %mine = getelementptr [256 x float], {LDS} @buffer, i32 0, i32 %t
  store float %x, {LDS} %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %loop
loop:
  %s = phi i32 [128, %entry], [%half, %next]
  %active = icmp ult i32 %t, %s
  br i1 %active, label %body, label %next
body:
  %k = add i32 %t, %s
  %other = getelementptr float, {LDS} @buffer, i32 %k
  %y = load float, {LDS} %other
  %u = load float, {LDS} %mine
  %v = fadd float %u, %y
  store float %v, {LDS} %mine
  br label %next
next:
  call void @llvm.amdgcn.s.barrier()
  %half = lshr i32 %s, 1
  %again = icmp ne i32 %half, 0
  br i1 %again, label %loop, label %done
done:
  %zero = icmp eq i32 %t, 0
  br i1 %zero, label %write, label %end
write:
  %r = load float, {LDS} @buffer
  %po = getelementptr float, {GLOBAL} %o, i32 %g
  store float %r, {GLOBAL} %po
  br label %end
end:
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="256,256" }}
"""


def reduce(text: str) -> Any:
    a = np.random.default_rng(2).standard_normal((5, 256)).astype(np.float32)
    device = engine()
    x, out = device.copy_of(a, "a", True), device.allocate(20, "o")
    stats = device.launch(programs(text)["sum"], 5, 256, [x, out])
    want = a.copy()
    for half in (128, 64, 32, 16, 8, 4, 2, 1):
        want[:, :half] += want[:, half : 2 * half]
    assert (device.read(out, np.float32, 5) == want[:, 0]).all()
    return stats


def test_reduction_and_its_faults() -> None:
    stats = reduce(REDUCE)
    assert stats.barriers == 5 * 9
    barrier = "  call void @llvm.amdgcn.s.barrier()\n"
    with pytest.raises(KernelFault) as caught:
        reduce(REDUCE.replace(barrier, "", 1))
    assert caught.value.kind is FaultKind.RACE
    assert caught.value.text == f"%y = load float, {LDS} %other"
    with pytest.raises(KernelFault) as caught:
        reduce(REDUCE.replace("[256 x float] undef", "[255 x float] undef"))
    assert caught.value.kind is FaultKind.OUT_OF_BOUNDS
    with pytest.raises(KernelFault, match="compiled for blocks of") as caught:
        reduce(REDUCE.replace("256,256", "128,128"))
    assert caught.value.kind is FaultKind.LAUNCH


def test_local_memory_atomics_and_constants() -> None:
    got = lanes(
        """  %a = alloca [4 x i32], align 4, addrspace(5)
  %m = and i32 %x0, 3
  %p = getelementptr [4 x i32], ptr addrspace(5) %a, i32 0, i32 %m
  store i32 %t, ptr addrspace(5) %p
  %v = load i32, ptr addrspace(5) %p
  %g = getelementptr [3 x i32], ptr addrspace(4) @table, i64 0, i64 2
  %w = load i32, ptr addrspace(4) %g
  %f = addrspacecast ptr addrspace(1) @counter to ptr
  %old = atomicrmw add ptr %f, i32 %w syncscope("agent") monotonic
  %r = add i32 %v, %old""",
        [("i32", np.arange(64, dtype=np.uint32))],
        ("i32", np.uint32),
        "@table = addrspace(4) constant [3 x i32] [i32 1, i32 2, i32 10]\n@counter = addrspace(1) global i32 5",
    )
    lane = np.arange(64)
    assert (got == lane + 5 + 10 * lane).all()


def test_what_is_not_supported_is_listed_at_once() -> None:
    text = """define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %a = call i32 @llvm.amdgcn.unknown(i32 1)
  %b = call i32 @other(i32 1)
  %c = add i33 1, 2
  %d = add i32 %nothing, 1
  %e = load i32, ptr addrspace(9) %p
  ret void
}
"""
    with pytest.raises(LlvmTextError) as caught:
        programs(text)
    found = [str(p) for p in caught.value.problems]
    words = "amdgcn.unknown is not supported|other has no body|33 bits|%nothing is not defined|address space".split(
        "|"
    )
    assert len(found) == len(words)
    for line, (number, word) in zip(found, enumerate(words, 2)):
        assert line.startswith(f"line {number}: ")
        assert word in line
    for broken, word in (
        ("define void @k( {", "line 1"),
        ("define void @k() {\n  %a = banana i32 1\n}", "line 2: instruction banana is not supported"),
        ("define void @k() {\n  %a = add i32 1\n}", "line 2: expected ','"),
        ("define void @k() {\n  ret void\n", "never closed"),
        ("@x = global [2 x i32", "never closed"),
    ):
        with pytest.raises(LlvmTextError, match=word):
            programs(broken)


def test_functions_are_put_where_they_are_called() -> None:
    outside = """define internal fastcc i32 @inner(i32 %x, i32 %y) {
  %small = icmp ult i32 %x, 3
  br i1 %small, label %low, label %high
low:
  ret i32 %y
high:
  %d = sub i32 %x, %y
  ret i32 %d
}
define internal fastcc void @outer(ptr addrspace(3) %p, i32 %x) {
  %a = call fastcc i32 @inner(i32 %x, i32 7)
  %b = call fastcc i32 @inner(i32 %a, i32 1)
  store i32 %b, ptr addrspace(3) %p
  ret void
}
@cells = internal addrspace(3) global [128 x i32] undef
"""
    got = lanes(
        """  %p = getelementptr [128 x i32], ptr addrspace(3) @cells, i32 0, i32 %t
  call fastcc void @outer(ptr addrspace(3) %p, i32 %x0)
  %r = load i32, ptr addrspace(3) %p""",
        [("i32", np.arange(128, dtype=np.uint32))],
        ("i32", np.uint32),
        outside,
    )
    x = np.arange(128)
    first = np.where(x < 3, 7, x - 7) & 0xFFFFFFFF
    assert (got == np.where(first < 3, 1, (first - 1) & 0xFFFFFFFF)).all()
    body = "{\n  call void @f()\n  ret void\n}\n"
    with pytest.raises(LlvmTextError, match="f calls itself"):
        programs(f"define fastcc void @f() {body}define amdgpu_kernel void @k() {body}")


def test_single_lanes_are_read_and_written() -> None:
    got = lanes(
        """  %a = call i32 @llvm.amdgcn.readlane.i32(i32 %x0, i32 5)
  %b = call i32 @llvm.amdgcn.writelane.i32(i32 %a, i32 9, i32 %x0)
  %r = add i32 %b, 0""",
        [("i32", np.arange(128, dtype=np.uint32) * 3)],
        ("i32", np.uint32),
    )
    want = np.arange(128) * 3
    want[[9, 73]] = want[[5, 69]]
    assert (got == want).all()
