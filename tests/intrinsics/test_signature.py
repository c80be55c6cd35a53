"""Types of programs: no implicit conversion, no implicit summation; coordinates and operation counts."""

from __future__ import annotations

import pytest

from hwsdk.intrinsics.signature import check_condition, count_operations, infer
from hwsdk.intrinsics.syntax import SemanticsError, parse, parse_expr

TYPES = {"acc": "f32", "a": "bf16", "b": "bf16", "x": "f32", "i": "i32", "m": "bool", "u": "u8"}
DIMS = {"r": 4, "c": 8, "k": 16}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("acc[r, c] += f32(a[r, k]) * f32(b[k, c])", "wrap it in sum[k]"),
        ("acc[r] = x[r] + r", "mixes f32 and index"),
        ("acc[r] = x[r] + f32(k)", "wrap it in sum[k]"),
        ("acc[r] = sum[r](x[r])", "already a dim around it"),
        ("acc[r] = sum[z](x[r])", "'z' is not a dim"),
        ("acc[r] = a[r]", "acc[] is f32 but the right side is bf16; write f32(...)"),
        ("acc[r] = f32(a[r]) + b[r]", "mixes bf16 and f32"),
        ("acc[r] = select(x[r], x[r], 0)", "needs a bool condition"),
        ("acc[r] = x[r] where i[r]", "must be bool"),
        ("acc[r] = x[r] and x[r]", "needs bool operands"),
        ("i[r] = i[r] / 2", "divide with //"),
        ("i[r] = i[r] + 2.5", "is not an integer"),
        ("u[r] = u[r] + 256", "256 does not fit u8"),
        ("i[r] = exp(i[r])", "needs floats"),
        ("acc[r] = x[r] ^ x[r]", "needs integers"),
        ("m[r] = m[r] + m[r]", "not bool"),
        ("acc[r] = x[x[r]]", "an index may be read from an integer operand only"),
        ("acc[r] = x[r, 1]; acc[r] = x[r]", "indexed with 1 and with 2 dims"),
        ("acc[r] = x[r + 1]", "name its coordinates with 'dims'"),
        ("acc = x[r]", "needs an index list"),
        ("zz[r] = x[r]", "'zz' is assigned but is not an operand"),
        ("acc[r] = zz[r]", "'zz' is read but is not an operand"),
        ("m[r] += m[r]", "needs numbers"),
        ("acc[r] = sum[k](m[k])", "sum[...] cannot reduce bool"),
        ("m[r] = any[k](x[k])", "any[...] cannot reduce f32"),
        ("x[r] = i", "unknown name 'i'"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SemanticsError) as caught:
        infer(parse(text), {k: v for k, v in TYPES.items() if k in text}, DIMS)
    assert words in str(caught.value)


def test_what_a_program_says_about_its_operands() -> None:
    sig = infer(
        parse("acc[r, c] += sum[k](f32(a[r, k]) * f32(b[k, c]))"),
        {k: TYPES[k] for k in ("acc", "a", "b")},
        DIMS,
    )
    assert sig.coords == {"acc": ("r", "c"), "a": ("r", "k"), "b": ("k", "c")}
    assert (set(sig.reads), sig.writes) == ({"acc", "a", "b"}, ("acc",))
    assert sig.plain == {"acc", "a", "b"}


def test_scalars_and_indices_mix() -> None:
    sig = infer(parse("x[r] = x[(r + i) % 4]"), {"x": "f32", "i": "i32"}, DIMS, ("i",), {"x": ("r",)})
    assert sig.plain == frozenset()
    with pytest.raises(SemanticsError, match="is the name of a dim and of an operand"):
        infer(parse("x[r] = 0"), {"x": "f32", "r": "f32"}, DIMS)


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("acc[r, c] += sum[k](f32(a[r, k]) * f32(b[k, c]))", 2 * 4 * 8 * 16),
        ("acc[r, c] = x[r, c] + sum[k](f32(a[r, k]) * f32(b[k, c]))", 2 * 4 * 8 * 16),
        ("acc[r] = x[r] * x[r] - 1", 8),
        ("acc[r] = exp(x[r])", 4),
        ("acc[r] = select(x[r] > 0, x[r], 0)", 0),
        ("acc[r] = x[(r + 1) % 4]", 0),
        ("acc[] = sum[k](x[k])", 15),
    ],
)
def test_operations(text: str, ops: int) -> None:
    assert count_operations(parse(text), DIMS) == ops


def test_conditions() -> None:
    check_condition(parse_expr("r * ld >= 16 and ld % 8 == 0"), ["r"], {"ld": "i64"})
    with pytest.raises(SemanticsError, match="did you mean 'ld'"):
        check_condition(parse_expr("lda == 1"), ["r"], {"ld": "i64"})
