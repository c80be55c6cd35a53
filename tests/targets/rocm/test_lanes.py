"""LLVM text on the lock-step engine: instructions against NumPy, kernels for waves of 64 lanes, planted faults."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.sim.simt.llvm_text.syntax import LlvmTextError
from hwsdk.targets.rocm.lanes import chip, programs

GLOBAL, LDS = "ptr addrspace(1)", "ptr addrspace(3)"


def engine(wave: int = 64) -> Engine:
    return Engine(chip(wave), memory_bytes=1 << 24)


def lanes(
    body: str, inputs: list[tuple[str, Any]], result: tuple[str, Any], outside: str = "", wave: int = 64
) -> Any:
    """%x0, %x1 ... are loaded per lane; %r is stored.  inputs: (LLVM type, array)."""
    count = len(inputs[0][1])
    names = [f"{GLOBAL} %p{i}" for i in range(len(inputs))]
    loads = "".join(
        f"  %q{i} = getelementptr {kind}, {GLOBAL} %p{i}, i32 %t\n  %x{i} = load {kind}, {GLOBAL} %q{i}\n"
        for i, (kind, _) in enumerate(inputs)
    )
    text = f"""{outside}
define amdgpu_kernel void @k({", ".join(names)}, {GLOBAL} %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{loads}{body}
  %qr = getelementptr {result[0]}, {GLOBAL} %out, i32 %t
  store {result[0]} %r, {GLOBAL} %qr
  ret void
}}
"""
    device = engine(wave)
    args = [device.copy_of(a, f"input {i}", True) for i, (_, a) in enumerate(inputs)]
    dtype = np.dtype(result[1])
    out = device.allocate(count * dtype.itemsize, "out")
    device.launch(programs(text)["k"], 1, count, [*args, out])
    return device.read(out, dtype.base, (count, *dtype.shape))


def numbers(bits: int, seed: int, signed: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    free = rng.integers(0, 2**bits, 128, dtype=np.uint64) >> rng.integers(0, bits, 128, dtype=np.uint64)
    return free.astype(f"u{bits // 8}").view(f"{'i' if signed else 'u'}{bits // 8}")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_operations(bits: int) -> None:
    a, b = numbers(bits, 1), numbers(bits, 2)
    b[b == 0] = 7
    mask = (1 << bits) - 1

    def s(x: int) -> int:
        return x - (1 << bits) if x >> (bits - 1) else x

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    table = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "udiv": operator.floordiv,
        "urem": operator.mod,
        "sdiv": lambda x, y: quotient(s(x), s(y)),
        "srem": lambda x, y: s(x) - s(y) * quotient(s(x), s(y)),
    }
    for word, function in table.items():
        got = lanes(
            f"  %r = {word} i{bits} %x0, %x1", [(f"i{bits}", a), (f"i{bits}", b)], (f"i{bits}", a.dtype)
        )
        assert got.tolist() == [function(x, y) & mask for x, y in zip(a.tolist(), b.tolist())], word
    amount = (b % bits).astype(b.dtype)
    for word, function in (
        ("shl", lambda x, n: x << n),
        ("lshr", lambda x, n: x >> n),
        ("ashr", lambda x, n: s(x) >> n),
    ):
        got = lanes(
            f"  %r = {word} i{bits} %x0, %x1", [(f"i{bits}", a), (f"i{bits}", amount)], (f"i{bits}", a.dtype)
        )
        assert got.tolist() == [function(x, n) & mask for x, n in zip(a.tolist(), amount.tolist())], word
    for word, function in (("ult", operator.lt), ("sge", lambda x, y: s(x) >= s(y)), ("ne", operator.ne)):
        body = f"  %c = icmp {word} i{bits} %x0, %x1\n  %r = zext i1 %c to i32"
        got = lanes(body, [(f"i{bits}", a), (f"i{bits}", b)], ("i32", np.uint32))
        assert got.tolist() == [int(function(x, y)) for x, y in zip(a.tolist(), b.tolist())], word


@pytest.mark.parametrize("kind,dtype", [("half", np.float16), ("float", np.float32), ("double", np.float64)])
def test_float_operations(kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(64) * 8).astype(dtype), rng.standard_normal(64).astype(dtype)
    for word, function in (
        ("fadd", np.add),
        ("fsub", np.subtract),
        ("fmul", np.multiply),
        ("fdiv", np.divide),
    ):
        got = lanes(f"  %r = {word} contract {kind} %x0, %x1", [(kind, a), (kind, b)], (kind, dtype))
        assert (got == function(a, b)).all()
    name = f"@llvm.minnum.f{np.dtype(dtype).itemsize * 8}"
    body = f"  %r = call {kind} {name}({kind} %x0, {kind} %x1)"
    got = lanes(body, [(kind, a), (kind, b)], (kind, dtype))
    assert (got == np.minimum(a, b)).all()
    got = lanes(
        f"  %i = fptosi {kind} %x0 to i32\n  %r = sitofp i32 %i to {kind}", [(kind, a)], (kind, dtype)
    )
    assert (got == np.trunc(a)).all()


def test_vectors_structures_and_brain_floats() -> None:
    a = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)
    got = lanes(
        """  %v = fadd <4 x float> %x0, <float 1.0, float 2.0, float 3.0, float 4.0>
  %w = shufflevector <4 x float> %v, <4 x float> %x0, <4 x i32> <i32 3, i32 4, i32 0, i32 7>
  %u = insertelement <4 x float> %w, float 9.5, i32 1
  %e = extractelement <4 x float> %u, i32 0
  %s = insertvalue {i32, [2 x float]} poison, float %e, 1, 1
  %f = extractvalue {i32, [2 x float]} %s, 1, 1
  %c = fcmp ogt <4 x float> %u, splat (float 100.0)
  %z = select <4 x i1> %c, <4 x float> %u, <4 x float> zeroinitializer
  %r = insertelement <4 x float> %z, float %f, i32 2""",
        [("<4 x float>", a)],
        ("<4 x float>", "(4,)f4"),
    )
    u = np.stack([a[:, 3] + 4, np.full(64, 9.5), a[:, 0] + 1, a[:, 3]], 1)
    want = np.where(u > 100, u, 0)
    want[:, 2] = u[:, 0]
    assert (got == want).all()
    x = np.linspace(-3, 3, 64).astype(ml_dtypes.bfloat16)
    got = lanes(
        "  %h = bitcast i16 %x0 to bfloat\n  %y = fmul bfloat %h, %h\n  %r = bitcast bfloat %y to i16",
        [("i16", x.view(np.uint16))],
        ("i16", np.uint16),
    )
    assert (got == (x * x).view(np.uint16)).all()


def test_phis_of_a_loop_swap_at_once_and_switches() -> None:
    n = np.arange(64, dtype=np.uint32) % 11
    got = lanes(
        """  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %j, %next ]
  %a = phi i32 [ 0, %0 ], [ %b, %next ]
  %b = phi i32 [ 1, %0 ], [ %s, %next ]
  %s = add i32 %a, %b
  %c = icmp ult i32 %i, %x0
  br i1 %c, label %next, label %out
next:
  %j = add i32 %i, 1
  br label %loop
out:
  switch i32 %x0, label %other [
    i32 3, label %three
    i32 5, label %five
  ]
three:
  br label %end
five:
  br label %end
other:
  br label %end
end:
  %k = phi i32 [ 1000, %three ], [ 2000, %five ], [ %a, %other ]
  %r = add i32 %k, 0""",
        [("i32", n)],
        ("i32", np.uint32),
    )
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
    assert got.tolist() == [{3: 1000, 5: 2000}.get(int(x), fibonacci[int(x)]) for x in n]


LANE = """  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
"""


@pytest.mark.parametrize("wave", [32, 64])
def test_exchanges(wave: int) -> None:
    x = np.random.default_rng(5).integers(0, 2**32, 128, dtype=np.uint32)
    rows = x.reshape(-1, wave)
    lane = np.arange(wave)
    low = LANE if wave == 64 else LANE.replace("%low =", "%lane =").split("\n")[0] + "\n"
    got = lanes(low + "  %r = add i32 %lane, 0", [("i32", x)], ("i32", np.uint32), wave=wave)
    assert (got == np.tile(lane, 128 // wave)).all()
    body = (
        low
        + """  %o = xor i32 %lane, 5
  %b = shl i32 %o, 2
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %b, i32 %x0)"""
    )
    assert (lanes(body, [("i32", x)], ("i32", np.uint32), wave=wave) == rows[:, lane ^ 5].reshape(-1)).all()
    for control, source in (
        (177, lane ^ 1),
        (78, lane ^ 2),
        (321, lane ^ 7),
        (296, lane ^ 8),
        (320, lane ^ 15),
    ):
        body = f"  %r = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %x0, i32 {control}, i32 15, i32 15, i1 true)"
        got = lanes(body, [("i32", x)], ("i32", np.uint32), wave=wave)
        assert (got == rows[:, source].reshape(-1)).all(), control
    body = "  %r = call i32 @llvm.amdgcn.update.dpp.i32(i32 7, i32 %x0, i32 273, i32 15, i32 15, i1 false)"
    got = lanes(body, [("i32", x)], ("i32", np.uint32), wave=wave)
    assert (got == np.where(lane % 16 == 0, 7, np.roll(rows, 1, 1)).reshape(-1)).all()
    body = f"  %c = icmp ugt i32 %x0, 1000000000\n  %r = call i{wave} @llvm.amdgcn.ballot.i{wave}(i1 %c)"
    got = lanes(body, [("i32", x)], (f"i{wave}", f"u{wave // 8}"), wave=wave)
    for row, mask in zip(rows, got[::wave].tolist()):
        assert mask == sum(1 << i for i in range(wave) if row[i] > 1000000000)


def test_dot_products() -> None:
    a, b, c = (numbers(32, i) for i in (6, 7, 8))

    def octets(x: int, signed: bool) -> list[int]:
        return [v - 256 if signed and v > 127 else v for v in x.to_bytes(4, "little")]

    for text, sides in (
        ("sdot4(i32 %x0, i32 %x1, i32 %x2, i1 false)", (True, True)),
        ("sudot4(i1 true, i32 %x0, i1 false, i32 %x1, i32 %x2, i1 false)", (True, False)),
    ):
        got = lanes(
            f"  %r = call i32 @llvm.amdgcn.{text}", [("i32", v) for v in (a, b, c)], ("i32", np.uint32)
        )
        for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist()):
            total = z + sum(p * q for p, q in zip(octets(x, sides[0]), octets(y, sides[1])))
            assert r == total & 0xFFFFFFFF


MATRIX = [
    ("f32.16x16x16f16", 16, 16, np.float16, "<4 x half>"),
    ("f32.32x32x8f16", 32, 8, np.float16, "<4 x half>"),
    ("f32.16x16x16bf16.1k", 16, 16, ml_dtypes.bfloat16, "<4 x i16>"),
    ("f32.16x16x4f32", 16, 4, np.float32, "float"),
    ("i32.16x16x16i8", 16, 16, np.int8, "i32"),
    ("i32.16x16x32.i8", 16, 32, np.int8, "i64"),
]


@pytest.mark.parametrize("name,size,k,dtype,kind", MATRIX)
def test_matrix_products(name: str, size: int, k: int, dtype: Any, kind: str) -> None:
    """Against the layouts of the descriptions: a[m, k] in lane k // items * size + m, item k % items; d as below."""
    rng = np.random.default_rng(9)
    whole = np.dtype(dtype) == np.int8

    def random(*sizes: int) -> Any:
        return (rng.integers(-128, 128, sizes) if whole else rng.standard_normal(sizes)).astype(dtype)

    a, b = random(size, k), random(k, size)
    result = np.int32 if whole else np.float32
    c = rng.integers(-100, 100, (size, size)).astype(result)
    items = size * k // 64

    def place(m: int, n: int) -> tuple[int, int]:
        return (m // 4 * 16 + n, m % 4) if size == 16 else (m % 8 // 4 * 32 + n, m // 8 * 4 + m % 4)

    left, right = np.zeros((64, items), dtype), np.zeros((64, items), dtype)
    for outer in range(size):
        for i in range(k):
            left[i // items * size + outer, i % items] = a[outer, i]
            right[i // items * size + outer, i % items] = b[i, outer]
    count = size * size // 64
    addend = np.zeros((64, count), result)
    for m in range(size):
        for n in range(size):
            addend[place(m, n)] = c[m, n]
    word = "i32" if whole else "float"
    kinds = f"{kind} %x0, {kind} %x1, <{count} x {word}> %x2, i32 0, i32 0, i32 0"
    body = f"  %r = call <{count} x {word}> @llvm.amdgcn.mfma.{name}({kinds})"
    inputs = [(kind, left), (kind, right), (f"<{count} x {word}>", addend)]
    got = lanes(body, inputs, (f"<{count} x {word}>", f"({count},){np.dtype(result).str}"))
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    for m in range(size):
        for n in range(size):
            assert abs(got[place(m, n)] - want[m, n]) <= (0 if whole else 1e-5 * max(1, abs(want[m, n])))


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
