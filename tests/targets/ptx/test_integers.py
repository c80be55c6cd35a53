"""Integer and bit instructions against Python's integers of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.targets.ptx.harness import run

Integers = Callable[..., int]


def samples(bits: int, seed: int, count: int = 160) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    edge = [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1]
    free = [
        int(x)
        for x in rng.integers(0, 2**64, count, dtype=np.uint64) >> rng.integers(0, 64, count, dtype=np.uint64)
    ]
    chosen = [x & ((1 << bits) - 1) for x in (edge * 4 + free)[:count]]
    return np.array([chosen[i] for i in rng.permutation(count)], f"u{bits // 8}")


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def number(x: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(x, bits) if kind[0] == "s" else x


def check(
    text: str, kinds: list[str], result: str, reference: Integers, seed: int = 0, nonzero: int = -1
) -> None:
    """text has %o0 and %i0 ...; kinds: types of the inputs; reference takes and gives integers."""
    inputs = [samples(int(k[1:]), seed + i) for i, k in enumerate(kinds)]
    if nonzero >= 0:
        inputs[nonzero][inputs[nonzero] == 0] = 3
    bits = int(result[1:])
    (out,) = run(text, inputs, [f"u{bits // 8}"])
    for at, got in enumerate(out.tolist()):
        args = [number(int(a[at]), k) for a, k in zip(inputs, kinds)]
        assert got == reference(*args) & ((1 << bits) - 1), (text, args, got)


KINDS = ["u16", "s16", "u32", "s32", "u64", "s64"]


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "word,reference",
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
    ],
)
def test_two_operands(word: str, reference: Integers, kind: str) -> None:
    check(f"{word}.{kind} %o0, %i0, %i1;", [kind, kind], kind, reference)


@pytest.mark.parametrize("kind", KINDS)
def test_upper_half_of_products(kind: str) -> None:
    bits = int(kind[1:])
    check(f"mul.hi.{kind} %o0, %i0, %i1;", [kind, kind], kind, lambda a, b: a * b >> bits)
    check(f"mad.hi.{kind} %o0, %i0, %i1, %i2;", [kind] * 3, kind, lambda a, b, c: (a * b >> bits) + c)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    check(f"mul.wide.{kind} %o0, %i0, %i1;", [kind, kind], wide, lambda a, b: a * b)
    check(f"mad.wide.{kind} %o0, %i0, %i1, %i2;", [kind, kind, wide], wide, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", KINDS)
def test_division(kind: str) -> None:
    check(f"div.{kind} %o0, %i0, %i1;", [kind, kind], kind, quotient, nonzero=1)
    check(f"rem.{kind} %o0, %i0, %i1;", [kind, kind], kind, lambda a, b: a - b * quotient(a, b), nonzero=1)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_and_neg(kind: str) -> None:
    check(f"abs.{kind} %o0, %i0;", [kind], kind, abs)
    check(f"neg.{kind} %o0, %i0;", [kind], kind, lambda a: -a)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    b = f"b{bits}"
    check(f"and.{b} %o0, %i0, %i1;", [b, b], b, lambda x, y: x & y)
    check(f"or.{b} %o0, %i0, %i1;", [b, b], b, lambda x, y: x | y)
    check(f"xor.{b} %o0, %i0, %i1;", [b, b], b, lambda x, y: x ^ y)
    check(f"not.{b} %o0, %i0;", [b], b, lambda x: ~x)
    check(f"cnot.{b} %o0, %i0;", [b], b, lambda x: int(x == 0))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_beyond_the_width(bits: int) -> None:
    b = f"b{bits}"
    inputs = [samples(bits, 1, 140), np.arange(140, dtype=np.uint32)]
    for text, reference in (
        (f"shl.{b}", lambda x, n: x << n),
        (f"shr.u{bits}", lambda x, n: x >> n),
        (f"shr.s{bits}", lambda x, n: signed(x, bits) >> n),
    ):
        (out,) = run(f"{text} %o0, %i0, %i1;", inputs, [f"u{bits // 8}"])
        want = [reference(int(x), int(n)) & ((1 << bits) - 1) for x, n in zip(*inputs)]
        assert out.tolist() == want, text


@pytest.mark.parametrize("bits", [32, 64])
def test_counts(bits: int) -> None:
    b = f"b{bits}"
    check(f"popc.{b} %o0, %i0;", [b], "u32", lambda x: x.bit_count())
    check(f"clz.{b} %o0, %i0;", [b], "u32", lambda x: bits - x.bit_length())
    check(f"brev.{b} %o0, %i0;", [b], b, lambda x: int(f"{x:0{bits}b}"[::-1], 2))
    check(f"bfind.u{bits} %o0, %i0;", [f"u{bits}"], "u32", lambda x: x.bit_length() - 1)
    check(f"bfind.s{bits} %o0, %i0;", [f"s{bits}"], "u32", lambda x: (x if x >= 0 else ~x).bit_length() - 1)
    check(
        f"bfind.shiftamt.u{bits} %o0, %i0;", [f"u{bits}"], "u32", lambda x: bits - x.bit_length() if x else -1
    )


def extracted(a: int, start: int, length: int, bits: int, is_signed: bool) -> int:
    """The manual's loop over bits."""
    start, length = start & 255, length & 255
    top = min(start + length - 1, bits - 1)
    sign = (a >> top & 1) if is_signed and length else 0
    total = 0
    for i in range(bits):
        inside = i < length and start + i < bits
        total |= ((a >> (start + i) & 1) if inside else sign) << i
    return total


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields(kind: str) -> None:
    bits = int(kind[1:])
    rng = np.random.default_rng(5)
    values = samples(bits, 7, 300)
    start, length = (rng.integers(0, 70, 300).astype(np.uint32) for _ in range(2))
    (out,) = run(f"bfe.{kind} %o0, %i0, %i1, %i2;", [values, start, length], [values.dtype])
    want = [extracted(int(a), int(s), int(n), bits, kind[0] == "s") for a, s, n in zip(values, start, length)]
    assert out.tolist() == want
    other = samples(bits, 8, 300)
    (out,) = run(f"bfi.b{bits} %o0, %i0, %i1, %i2, %i3;", [values, other, start, length], [values.dtype])
    for a, b, s, n, got in zip(
        values.tolist(), other.tolist(), start.tolist(), length.tolist(), out.tolist()
    ):
        want_bits = b
        for i in range(n):
            if s + i < bits:
                want_bits = want_bits & ~(1 << (s + i)) | (a >> i & 1) << (s + i)
        assert got == want_bits


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 0xFFFF))
@settings(max_examples=30, deadline=None)
def test_byte_permutation(a: int, b: int, selector: int) -> None:
    inputs = [np.array([x], np.uint32) for x in (a, b, selector)]
    (out,) = run("prmt.b32 %o0, %i0, %i1, %i2;", inputs, [np.uint32])
    both = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    want = []
    for i in range(4):
        choice = selector >> 4 * i & 15
        byte = both[choice & 7]
        want.append(0xFF * (byte >> 7) if choice & 8 else byte)
    assert int(out[0]).to_bytes(4, "little") == bytes(want)


def test_funnel_shifts() -> None:
    for amount in range(40):
        for side, mode in (("l", "wrap"), ("r", "wrap"), ("l", "clamp"), ("r", "clamp")):
            n = amount % 32 if mode == "wrap" else min(amount, 32)

            def reference(low: int, high: int, n: int = n, side: str = side) -> int:
                both = high << 32 | low
                return both << n >> 32 if side == "l" else both >> n

            if amount % 9 == 0 or amount in (31, 32, 33):
                check(f"shf.{side}.{mode}.b32 %o0, %i0, %i1, {amount};", ["b32", "b32"], "b32", reference)


@pytest.mark.parametrize("table", [0x00, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B])
def test_logic_of_three(table: int) -> None:
    def reference(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32)
        )

    check(f"lop3.b32 %o0, %i0, %i1, %i2, {table};", ["b32"] * 3, "b32", reference)


def test_saturation_differences_and_dots() -> None:
    low, high = -(2**31), 2**31 - 1
    check("add.sat.s32 %o0, %i0, %i1;", ["s32", "s32"], "s32", lambda a, b: max(low, min(high, a + b)))
    check("sub.sat.s32 %o0, %i0, %i1;", ["s32", "s32"], "s32", lambda a, b: max(low, min(high, a - b)))
    check("sad.s32 %o0, %i0, %i1, %i2;", ["s32"] * 3, "s32", lambda a, b, c: c + abs(a - b))
    check("sad.u32 %o0, %i0, %i1, %i2;", ["u32"] * 3, "u32", lambda a, b, c: c + abs(a - b))
    check("mul24.lo.u32 %o0, %i0, %i1;", ["u32", "u32"], "u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF))
    check("mad24.hi.s32 %o0, %i0, %i1, %i2;", ["b32", "b32", "s32"], "s32",
          lambda a, b, c: (signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) >> 16) + c)  # fmt: skip

    def octets(x: int, is_signed: bool) -> list[int]:
        raw = (x & 0xFFFFFFFF).to_bytes(4, "little")
        return [signed(b, 8) if is_signed else b for b in raw]

    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            check(
                f"dp4a.{first}.{second} %o0, %i0, %i1, %i2;",
                ["b32", "b32", "b32"],
                "u32",
                lambda a, b, c, f=first, s=second: (
                    c + sum(x * y for x, y in zip(octets(a, f == "s32"), octets(b, s == "s32")))
                ),
            )


def test_additions_with_carry() -> None:
    a, b, c, d = (samples(32, i) for i in range(4))
    outs = run(
        "add.cc.u32 %o0, %i0, %i2; addc.u32 %o1, %i1, %i3; sub.cc.u32 %o2, %i0, %i2; subc.u32 %o3, %i1, %i3;",
        [a, b, c, d],
        [np.uint32] * 4,
    )
    for i in range(len(a)):
        x, y = int(b[i]) << 32 | int(a[i]), int(d[i]) << 32 | int(c[i])
        assert int(outs[1][i]) << 32 | int(outs[0][i]) == (x + y) % 2**64
        assert int(outs[3][i]) << 32 | int(outs[2][i]) == (x - y) % 2**64


def test_products_with_carry() -> None:
    a, b, c, d = (samples(32, i) for i in range(4))
    outs = run(
        "mad.lo.cc.u32 %o0, %i0, %i1, %i2; madc.hi.cc.u32 %o1, %i0, %i1, %i3; addc.u32 %o2, 0, 0;",
        [a, b, c, d],
        [np.uint32] * 3,
    )
    for i in range(len(a)):
        total = int(a[i]) * int(b[i]) + (int(d[i]) << 32 | int(c[i]))
        assert sum(int(o[i]) << 32 * j for j, o in enumerate(outs)) == total


def test_masks_and_extensions() -> None:
    check("bmsk.clamp.b32 %o0, 5, 7;", ["b32"], "b32", lambda _: 0b111111100000)
    check("szext.wrap.s32 %o0, %i0, 12;", ["b32"], "s32", lambda a: signed(a & 0xFFF, 12))
    check("szext.wrap.u32 %o0, %i0, 12;", ["b32"], "u32", lambda a: a & 0xFFF)


def test_moves_join_and_divide() -> None:
    a, b = samples(16, 1), samples(16, 2)
    outs = run(
        "mov.b32 %o0, {%i0, %i1}; mov.b32 {%o1, %o2}, %o0; mov.b64 %d1, {%o0, %o0}; mov.b64 {_, %o3}, %d1;",
        [a, b],
        [np.uint32, np.uint16, np.uint16, np.uint32],
    )
    assert outs[0].tolist() == [int(x) | int(y) << 16 for x, y in zip(a, b)]
    assert outs[1].tolist() == a.tolist()
    assert outs[2].tolist() == b.tolist()
    assert outs[3].tolist() == outs[0].tolist()
