"""Conversions against rational numbers and Python's integers; comparisons and choices."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.ptx import test_integers as integers
from tests.targets.ptx.exact import DTYPES, rounded, same, samples, values
from tests.targets.ptx.harness import run

FLOATS = ["f16", "bf16", "f32", "f64"]
ROUND = {
    "rni": lambda x: round(x),
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


@pytest.mark.parametrize(
    "to,source,mode",
    [(t, s, m) for t, s in (("f16", "f32"), ("f16", "f64"), ("f32", "f64")) for m in ("rn", "rz", "rm", "rp")]
    + [("bf16", "f32", m) for m in ("rn", "rz", "rna")],
)
def test_to_narrower_floats(to: str, source: str, mode: str) -> None:
    bits = samples(source, 500, 3)
    (out,) = run(f"cvt.{mode}.{to}.{source} %o0, %i0;", [bits], [DTYPES[to]])
    for x, z in zip(values(bits, source), values(out, to)):
        want = rounded(Fraction(x), to, mode, math.copysign(1, x) < 0) if math.isfinite(x) else x
        assert same(z, want), (x, z, want)


@pytest.mark.parametrize("to,source", [("f32", "f16"), ("f64", "f16"), ("f64", "f32"), ("f32", "bf16")])
def test_to_wider_floats(to: str, source: str) -> None:
    bits = samples(source, 500, 4)
    (out,) = run(f"cvt.{to}.{source} %o0, %i0;", [bits], [DTYPES[to]])
    assert all(same(x, z) for x, z in zip(values(bits, source), values(out, to)))


@pytest.mark.parametrize("mode", list(ROUND))
@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", FLOATS)
def test_to_integers(kind: str, mode: str, source: str) -> None:
    bits = samples(source, 200, 5)
    width = int(kind[1:])
    out_type = np.dtype(f"u{max(width, 16) // 8}")
    (out,) = run(f"cvt.{mode}.{kind}.{source} %o0, %i0;", [bits], [out_type])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    for x, z in zip(values(bits, source), out.tolist()):
        if math.isnan(x):
            want = 1 << (width - 1) if source == "f64" or width == 64 else 0
        elif math.isinf(x):
            want = high if x > 0 else low
        else:
            want = max(low, min(high, ROUND[mode](Fraction(x))))
        assert z == want & ((1 << out_type.itemsize * 8) - 1) or (math.isnan(x) and width < 16), (x, z, want)


@pytest.mark.parametrize(
    "to,mode", [(t, m) for t in FLOATS for m in ("rn", "rz", "rm", "rp") if t != "bf16" or m == "rn"]
)
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_from_integers(to: str, kind: str, mode: str) -> None:
    bits = integers.samples(int(kind[1:]), 6, 200)
    (out,) = run(f"cvt.{mode}.{to}.{kind} %o0, %i0;", [bits], [DTYPES[to]])
    for x, z in zip(bits.tolist(), values(out, to)):
        assert same(z, rounded(Fraction(integers.number(x, kind)), to, mode)), (x, z)


@pytest.mark.parametrize("source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_between_integers(to: str, source: str) -> None:
    bits = integers.samples(int(source[1:]), 7, 100)
    held = np.dtype(f"u{max(int(to[1:]), 16) // 8}")
    outs = run(f"cvt.{to}.{source} %o0, %i0; cvt.sat.{to}.{source} %o1, %i0;", [bits], [held, held])
    width = int(to[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    mask = (1 << held.itemsize * 8) - 1
    for x, cut, clamped in zip(bits.tolist(), outs[0].tolist(), outs[1].tolist()):
        value = integers.number(x, source)
        assert cut == integers.number(value & ((1 << width) - 1), to) & mask
        assert clamped == max(low, min(high, value)) & mask


@pytest.mark.parametrize("mode", list(ROUND))
def test_to_whole_floats(mode: str) -> None:
    bits = samples("f32", 300, 8)
    (out,) = run(f"cvt.{mode}.f32.f32 %o0, %i0;", [bits], [np.uint32])
    for x, z in zip(values(bits, "f32"), values(out, "f32")):
        want = (
            x if not math.isfinite(x) or abs(x) > 2**40 else math.copysign(float(ROUND[mode](Fraction(x))), x)
        )
        assert same(z, want)


def test_pairs_from_two_floats() -> None:
    a, b = samples("f32", 300, 9), samples("f32", 300, 10)
    for to in ("f16", "bf16"):
        (out,) = run(f"cvt.rn.{to}x2.f32 %o0, %i0, %i1;", [a, b], [np.uint32])
        (low,) = run(f"cvt.rn.{to}.f32 %o0, %i0;", [b], [np.uint16])
        (high,) = run(f"cvt.rn.{to}.f32 %o0, %i0;", [a], [np.uint16])
        assert (out == low | high.astype(np.uint32) << 16).all()


def test_tf32_keeps_ten_bits() -> None:
    bits = samples("f32", 300, 11)
    (out,) = run("cvt.rna.tf32.f32 %o0, %i0;", [bits], [np.uint32])
    for x, z in zip(values(bits, "f32"), out.tolist()):
        if math.isfinite(x) and abs(x) >= 2.0**-126:
            step = Fraction(2) ** (math.frexp(x)[1] - 11)
            want = math.floor(abs(Fraction(x)) / step + Fraction(1, 2)) * step
            got = np.uint32(z).view(np.float32)
            assert math.isinf(got) or abs(Fraction(float(got))) == want
        assert z & 0x1FFF == 0


@pytest.mark.parametrize(
    "name,kind", [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_eight_bit_floats(name: str, kind: Any) -> None:
    x = np.linspace(-500, 500, 64, dtype=np.float32)
    y = np.linspace(-2, 2, 64, dtype=np.float32)
    outs = run(
        f"cvt.rn.satfinite.{name}.f32 %o0, %i0, %i1; cvt.rn.f16x2.{name} %o1, %o0;",
        [x.view(np.uint32), y.view(np.uint32)],
        [np.uint16, np.uint32],
    )
    most = float(ml_dtypes.finfo(kind).max)
    halves = outs[1].view(np.float16).reshape(-1, 2)
    assert (halves[:, 1] == np.clip(x, -most, most).astype(kind).astype(np.float16)).all()
    assert (halves[:, 0] == y.astype(kind).astype(np.float16)).all()


COMPARE = {"eq": operator.eq, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@pytest.mark.parametrize("name", FLOATS)
def test_float_comparisons(name: str) -> None:
    a, b = samples(name, 400, 12), samples(name, 400, 13)
    b[::3] = a[::3]
    words = [*COMPARE, "ne", *(f"{w}u" for w in COMPARE), "neu", "num", "nan"]
    body = "".join(f"setp.{w}.{name} %p1, %i0, %i1; selp.b32 %o{i}, 1, 0, %p1;" for i, w in enumerate(words))
    outs = run(body, [a, b], [np.uint32] * len(words))
    for i, (x, y) in enumerate(zip(values(a, name), values(b, name))):
        unordered = math.isnan(x) or math.isnan(y)
        for word, out in zip(words, outs):
            if word in ("num", "nan"):
                want = unordered == (word == "nan")
            elif word.endswith("u") and word[:-1] in (*COMPARE, "ne"):
                want = unordered or (x != y if word == "neu" else COMPARE[word[:-1]](x, y))
            else:
                want = not unordered and (x != y if word == "ne" else COMPARE[word](x, y))
            assert bool(out[i]) == want, (word, x, y)


@pytest.mark.parametrize("kind", integers.KINDS)
def test_integer_comparisons(kind: str) -> None:
    bits = int(kind[1:])
    a, b = integers.samples(bits, 14), integers.samples(bits, 15)
    b[::3] = a[::3]
    words = [*COMPARE, "ne"]
    body = "".join(f"setp.{w}.{kind} %p1, %i0, %i1; selp.b32 %o{i}, 1, 0, %p1;" for i, w in enumerate(words))
    outs = run(body, [a, b], [np.uint32] * len(words))
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist())):
        x, y = integers.number(x, kind), integers.number(y, kind)
        assert [bool(o[i]) for o in outs] == [*(f(x, y) for f in COMPARE.values()), x != y]


def test_predicates_join_and_have_an_opposite() -> None:
    a, b, c = (integers.samples(32, i, 60) % 3 for i in (16, 17, 18))
    outs = run(
        "setp.eq.u32 %p1, %i2, 1; setp.lt.and.u32 %p2|%p3, %i0, %i1, %p1; setp.lt.or.u32 %p4, %i0, %i1, !%p1;"
        "setp.lt.xor.u32 %p5, %i0, %i1, %p1; not.pred %p6, %p5; and.pred %p7, %p6, %p1;"
        + "".join(f"selp.b32 %o{i}, 1, 0, %p{i + 2};" for i in range(6)),
        [a, b, c],
        [np.uint32] * 6,
    )
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist())):
        less, one = x < y, z == 1
        want = [
            less and one,
            not less and one,
            less or not one,
            less != one,
            less == one,
            less == one and one,
        ]
        assert [bool(o[i]) for o in outs] == want


def test_set_and_slct() -> None:
    a, b = samples("f32", 100, 19), samples("f32", 100, 20)
    outs = run(
        "set.lt.u32.f32 %o0, %i0, %i1; set.gtu.f32.f32 %o1, %i0, %i1; slct.b32.s32 %o2, %i0, %i1, %i0;",
        [a, b],
        [np.uint32, np.float32, np.uint32],
    )
    for i, (x, y) in enumerate(zip(values(a, "f32"), values(b, "f32"))):
        assert outs[0][i] == (0xFFFFFFFF if x < y else 0)
        assert outs[1][i] == (1.0 if not x <= y else 0.0)
        assert outs[2][i] == (a[i] if int(a[i]) < 2**31 else b[i])
