"""LLVM text on the lock-step engine: instructions against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.rocm.harness import lanes


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
