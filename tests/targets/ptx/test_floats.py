"""Float instructions against rational arithmetic rounded once."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.targets.ptx.exact import DTYPES, rounded, same, samples, value, values
from tests.targets.ptx.harness import run

COUNT = 400


def binary(
    instruction: str, name: str, seed: int = 0, count: int = COUNT
) -> tuple[list[float], list[float], list[float]]:
    a, b = samples(name, count, seed), samples(name, count, seed + 1)
    (out,) = run(f"{instruction} %o0, %i0, %i1;", [a, b], [DTYPES[name]])
    return values(a, name), values(b, name), values(out, name)


def expected(
    op: Callable[[Fraction, Fraction], Fraction], a: float, b: float, name: str, mode: str
) -> float | None:
    """None where IEEE rules for infinities and NaN hold, which Python's floats follow as well."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return None
    exact = op(Fraction(a), Fraction(b))
    if exact == 0:
        return None
    return rounded(exact, name, mode)


def plain(op: Callable[[float, float], float], a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(op(np.float64(a), np.float64(b)))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("word,op", [("add", operator.add), ("sub", operator.sub), ("mul", operator.mul)])
def test_arithmetic_is_rounded_once(name: str, word: str, op: Callable[..., Fraction]) -> None:
    a, b, got = binary(f"{word}.rn.{name}", name)
    for x, y, z in zip(a, b, got):
        want = expected(op, x, y, name, "rn")
        want = plain(op, x, y) if want is None else want
        assert same(z, want), (word, name, x, y, z, want)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize(
    "word,op",
    [("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("div", operator.truediv)],
)
def test_directed_rounding(word: str, op: Callable[..., Fraction], mode: str) -> None:
    a, b, got = binary(f"{word}.{mode}.f32", "f32", 10)
    checked = 0
    for x, y, z in zip(a, b, got):
        if word == "div" and y == 0:
            continue
        want = expected(op, x, y, "f32", mode)
        if want is not None:
            checked += 1
            assert same(z, want), (word, mode, x, y, z, want)
    assert checked > COUNT // 2


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_division(name: str) -> None:
    a, b, got = binary(f"div.rn.{name}", name, 20)
    for x, y, z in zip(a, b, got):
        want = expected(operator.truediv, x, y, name, "rn") if y else None
        want = plain(operator.truediv, x, y) if want is None else want
        assert same(z, want), (x, y, z, want)


@pytest.mark.parametrize(
    "name,mode",
    [
        ("f16", "rn"),
        ("bf16", "rn"),
        ("f32", "rn"),
        ("f64", "rn"),
        ("f32", "rz"),
        ("f32", "rm"),
        ("f32", "rp"),
    ],
)
def test_fma_is_rounded_once(name: str, mode: str) -> None:
    a, b, c = (samples(name, 1000, 30 + i) for i in range(3))
    # products that nearly cancel or lie on a tie are where a second rounding shows
    half = len(a) // 2
    product = [rounded(Fraction(x) * Fraction(y), name) if math.isfinite(x) and math.isfinite(y) else 0.0
               for x, y in zip(values(a, name)[:half], values(b, name)[:half])]  # fmt: skip
    floats = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    if name in floats:
        with np.errstate(all="ignore"):
            c[:half] = (-np.array(product)).astype(floats[name]).view(DTYPES[name])
    (out,) = run(f"fma.{mode}.{name} %o0, %i0, %i1, %i2;", [a, b, c], [DTYPES[name]])
    checked = 0
    for x, y, w, z in zip(values(a, name), values(b, name), values(c, name), values(out, name)):
        if not all(map(math.isfinite, (x, y, w))):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(w)
        if exact:
            checked += 1
            assert same(z, rounded(exact, name, mode)), (x, y, w, z)
    assert checked > 400


def test_fma_f32_where_float64_rounds_twice() -> None:
    """a * b + c lies just beside a tie of float32, nearer than float64 can tell."""
    a = np.array([1 + 2.0**-23], np.float32)
    b = np.array([1 + 2.0**-23], np.float32)  # a * b = 1 + 2**-22 + 2**-46
    c = np.array([2.0**2], np.float32)  # 5 + 2**-22 + 2**-46: just above the tie at 5 + 2**-22
    for sign in (1, -1):
        inputs = [x.view(np.uint32) for x in (a * np.float32(sign), b, c * np.float32(sign))]
        (out,) = run("fma.rn.f32 %o0, %i0, %i1, %i2;", inputs, [np.float32])
        exact = Fraction(float(a[0])) * sign * Fraction(float(b[0])) + Fraction(float(c[0])) * sign
        assert out[0] == rounded(exact, "f32")
    far = (
        np.array([2.0**30 + 2.0**7], np.float32),
        np.array([2.0**30], np.float32),
        np.array([2.0**-40], np.float32),
    )
    (out,) = run("fma.rn.f32 %o0, %i0, %i1, %i2;", [x.view(np.uint32) for x in far], [np.float32])
    exact = Fraction(float(far[0][0])) * Fraction(float(far[1][0])) + Fraction(float(far[2][0]))
    assert out[0] == rounded(exact, "f32")


@pytest.mark.parametrize("name", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("word,op", [("add", operator.add), ("sub", operator.sub), ("mul", operator.mul)])
def test_pairs_are_two_halves(name: str, word: str, op: Callable[..., Fraction]) -> None:
    half = name[:-2]
    a, b = samples(half, 600, 50), samples(half, 600, 51)
    (out,) = run(f"{word}.rn.{name} %o0, %i0, %i1;", [a.view(np.uint32), b.view(np.uint32)], [np.uint32])
    (want,) = run(f"{word}.rn.{half} %o0, %i0, %i1;", [a, b], [np.uint16])
    got = out.view(np.uint16)
    assert all(same(value(int(x), half), value(int(y), half)) for x, y in zip(got, want))


@pytest.mark.parametrize(
    "name,propagates",
    [(n, p) for n in ("f16", "bf16", "f32", "f64") for p in (False, True) if (n, p) != ("f64", True)],
)
@pytest.mark.parametrize("word", ["min", "max"])
def test_min_and_max(name: str, word: str, propagates: bool) -> None:
    a, b, got = binary(f"{word}{'.NaN' if propagates else ''}.{name}", name, 60)

    def key(x: float) -> tuple[float, float]:
        return x, math.copysign(1, x)

    for x, y, z in zip(a, b, got):
        numbers = [v for v in (x, y) if not math.isnan(v)]
        if not numbers or (propagates and len(numbers) == 1):
            assert math.isnan(z)
        else:
            assert same(z, (min if word == "min" else max)(numbers, key=key)), (x, y, z)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_abs_and_neg_touch_the_sign_only(name: str) -> None:
    a = samples(name, 300, 70)
    top = a.dtype.type(1 << (a.dtype.itemsize * 8 - 1))
    out = run(f"abs.{name} %o0, %i0; neg.{name} %o1, %i0;", [a], [a.dtype, a.dtype])
    assert (out[0] == a & ~top).all()
    assert (out[1] == a ^ top).all()


@pytest.mark.parametrize(
    "word,function",
    [
        ("ex2.approx", np.exp2),
        ("lg2.approx", np.log2),
        ("rcp.approx", lambda x: 1 / x),
        ("rsqrt.approx", lambda x: 1 / np.sqrt(x)),
        ("sqrt.approx", np.sqrt),
        ("sqrt.rn", np.sqrt),
        ("rcp.rn", lambda x: 1 / x),
        ("sin.approx", np.sin),
        ("cos.approx", np.cos),
        ("tanh.approx", np.tanh),
    ],
)
def test_functions(word: str, function: Callable[..., np.ndarray]) -> None:
    a = np.linspace(0.01, 20, 500, dtype=np.float32)
    (out,) = run(f"{word}.f32 %o0, %i0;", [a.view(np.uint32)], [np.float32])
    want = function(a.astype(np.float64))
    assert (np.abs(out - want) <= np.spacing(np.abs(want).astype(np.float32))).all()
    if ".rn" in word:
        assert (out == want.astype(np.float32)).all()


def test_flushing_and_saturation() -> None:
    tiny = np.array([1, 0x80000001, 0x00800000, 0x3F800000, 0x40000000, 0xBF800000, 0x7FC00000], np.uint32)
    zero = np.zeros(7, np.uint32)
    outs = run(
        "add.ftz.f32 %o0, %i0, %i1; add.sat.f32 %o1, %i0, %i1; add.f32 %o2, %i0, %i1; "
        "mul.ftz.f32 %o3, %i0, 0f3F800000;",
        [tiny, zero],
        [np.uint32, np.float32, np.uint32, np.uint32],
    )
    assert outs[0].tolist()[:3] == [0, 0, 0x00800000]
    assert outs[3].tolist()[:3] == [0, 0x80000000, 0x00800000]
    assert outs[2].tolist()[:3] == [1, 0x80000001, 0x00800000]
    assert outs[1].tolist()[3:] == [1, 1, 0, 0]


def test_relu_and_copysign() -> None:
    a, b = samples("f16", 200, 80), samples("f16", 200, 81)
    outs = run(
        "fma.rn.relu.f16 %o0, %i0, 0x3C00, 0x8000; add.f16 %o1, %i0, 0x8000;", [a, b], [np.uint16, np.uint16]
    )
    for x, y in zip(values(outs[1], "f16"), values(outs[0], "f16")):
        assert (math.isnan(x) and math.isnan(y)) or y == max(x, 0.0)
    c, d = samples("f32", 200, 82), samples("f32", 200, 83)
    (out,) = run("copysign.f32 %o0, %i0, %i1;", [c, d], [np.uint32])
    assert (out == (c & 0x80000000) | (d & 0x7FFFFFFF)).all()


def test_properties() -> None:
    a = samples("f32", 300, 90)
    names = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"]
    body = "".join(f"testp.{n}.f32 %p{i}, %i0; selp.b32 %o{i}, 1, 0, %p{i};" for i, n in enumerate(names))
    outs = run(body, [a], [np.uint32] * len(names))
    tests: list[Callable[[float], bool]] = [
        math.isfinite, math.isinf, lambda x: not math.isnan(x), math.isnan,
        lambda x: math.isfinite(x) and abs(x) >= 2.0**-126, lambda x: abs(x) < 2.0**-126,
    ]  # fmt: skip
    for test, out in zip(tests, outs):
        assert [bool(o) for o in out] == [test(x) for x in values(a, "f32")]
