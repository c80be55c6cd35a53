"""The expression language: what parses, how it binds, what is refused and with which words."""

from __future__ import annotations

import pytest

from hwsdk.intrinsics.syntax import (
    Binary,
    Cast,
    Expr,
    Name,
    Number,
    Read,
    Reduce,
    SemanticsError,
    Unary,
    parse,
    parse_expr,
)


def shown(expr: Expr) -> str:
    match expr:
        case Number(value=value):
            return str(value)
        case Name(name=name):
            return name
        case Binary(op=op, x=x, y=y):
            return f"({shown(x)} {op} {shown(y)})"
        case Unary(op=op, x=x):
            return f"({op} {shown(x)})"
        case Read(operand=operand, index=index):
            return f"{operand}[{', '.join(map(shown, index))}]"
        case Cast(dtype=dtype, modifiers=modifiers, x=x):
            return f"{'.'.join((dtype, *modifiers))}({shown(x)})"
    return repr(expr)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a ^ b + c", "(a ^ (b + c))"),
        ("a % 4 * 2 // 3", "(((a % 4) * 2) // 3)"),
        ("-a * b", "((- a) * b)"),
        ("not a < b or c == d and e", "(((not a) < b) or ((c == d) and e))"),
        ("i8.sat.rne(x[n, m+1])", "i8.sat.rne(x[n, (m + 1)])"),
        ("1e3 + 0.5", "(1000.0 + 0.5)"),
        ("inf - nan", "(inf - nan)"),
    ],
)
def test_precedence(text: str, tree: str) -> None:
    assert shown(parse_expr(text)) == tree


def test_statements() -> None:
    one, two = parse("acc[m, n] += sum[k](a[m, k] * b[k, n]); d[] max= x[0] where m < 3;")
    assert (one.target, one.assign, isinstance(one.expr, Reduce)) == ("acc", "+=", True)
    assert (two.assign, two.index, two.where is not None) == ("max=", (), True)
    (layout,) = parse("item = m*4 + k")
    assert layout.index is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a name but found 'the end'"),
        ("x[n]", "expected 'more'"),
        ("x[n] = ", "expected 'more' but found 'the end'"),
        ("x[n] = a[n] ** 2", "unexpected '*'"),
        ("x[n] = a[n] b[n]", "unexpected 'b'"),
        ("x[n] = (a[n]", "expected ')'"),
        ("x[n] == a[n]", "expected = += max= or min="),
        ("3 = x", "expected a name"),
        ("x[n] = sinus(a[n])", "unknown function sinus() with 1 arguments; did you mean 'sin'"),
        ("x[n] = max(a[n])", "it takes 2"),
        ("x[n] = f32.fast(a[n])", "unknown cast modifier .fast"),
        ("x[n] = f32(a[n], b[n])", "takes one value"),
        ("x[n] = sum[2](a[n])", "names of dims"),
        ("x[n] = sum[k, k](a[n])", "different names"),
        ("x[n] = __import__('os').system('id')", "unexpected character"),
        ("x[n] = a.b", "expected '('"),
        ("x[n] = 99999999999999999999", "out of range"),
        ("x[n] = " + "(" * 40 + "1" + ")" * 40, "nested deeper than 16"),
        ("x[n] = " + "+".join(["1"] * 500), "operations deep"),
        ("x[n] = " + "-" * 500 + "1", "too many signs"),
        ("x[n] = where", "unexpected 'where'"),
        ("x[n] = a[n] where", "expected 'more'"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SemanticsError) as caught:
        parse(text)
    assert words in str(caught.value)
