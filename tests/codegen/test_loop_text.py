"""The text form of LoopIR: what is printed is read back, and what cannot be read says where."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen import loop_ir as ir
from hwsdk.codegen.loop_text import parse_kernel, print_kernel, print_statement, print_value
from hwsdk.codegen.loop_verify import verify_kernel
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import sym

EVERYTHING = """\
kernel every {
  param x: f32[n, 4] in main
  param i: i32[n] in main strides [2] align 64
  param y: f32[n, 4] in main out
  param z: bool[n] in main out
  dim n
  note "a \\"note\\" # with a sign"
  let q: i32 = i[0]
  alloc acc: f32[4, 16] in regs strides [16, 1] align 64
  parallel(core) t < (n + 63)//64 {
    let s: f32 = x[64*t, q]?(q < 3:i32)
    for k < 2 {
      unroll j < 4 {
        vector l < 16, active n - 64*t {
          acc[j, l] = fma(s, index(l):f32, -0.5:f32) where i[l] == 0:i32
        }
      }
    }
    switch t%2 {
      case {
        outline part {
          y[t, 0] = select(s < nan:f32, inf:f32, -inf:f32)
        }
      }
      case {
        y[t, 0] = sum[r < 16](acc[0, r] * f32(f64(s) + 1e-300:f64))
      }
    }
    if s < 1.0:f32 {
      use mma(a = &acc[0, 0], n = 64*t, s = value(max(s, 1.0:f32)), f = 3) dims(r = n, c = 4)
      sync wait pending 2
    } else {
      sync wait
    }
    %0 = f32.bits(q)
    y[t, 1] = %0 * (%0 - (s + s))
    z[t] = isnan(s)
  }
}
"""


def test_everything_is_printed_as_it_was_read() -> None:
    kernel = parse_kernel(EVERYTHING)
    assert print_kernel(kernel) == EVERYTHING
    verify_kernel(kernel)
    assert kernel.outputs == ("y", "z")
    assert kernel.notes == ('a "note" # with a sign',)


def test_shared_values_stay_shared() -> None:
    x = ir.Binary("f32", "add", ir.Const("f32", 1.0), ir.Const("f32", 2.0))
    kernel = ir.LoopKernel("k", (), (), (ir.Let("v", ir.Binary("f32", "mul", x, x)),))
    text = print_kernel(kernel)
    assert "%0 = 1.0:f32 + 2.0:f32" in text
    again = parse_kernel(text).body[0]
    assert isinstance(again, ir.Let)
    assert isinstance(again.value, ir.Binary)
    assert again.value.x is again.value.y


def test_deep_values() -> None:
    value: ir.Value = ir.Const("f32", 0.0)
    for _ in range(3000):
        value = ir.Unary("f32", "neg", value)
    kernel = ir.LoopKernel("deep", (), (), (ir.Let("v", value),))
    text = print_kernel(kernel)
    assert print_kernel(parse_kernel(text)) == text
    verify_kernel(kernel)


def test_any_name_is_quoted_where_needed() -> None:
    names = ("for", "f32", "max", 'a "b" # c', "näme", "", "w.x$1", "true", "%0")
    params = tuple(ir.Buffer(n, "f32", (2,), "p q") for n in names)
    body = tuple(ir.Store(n, (0,), ir.Load("f32", n, (1,))) for n in names)
    kernel = ir.LoopKernel(
        "with",
        params,
        ("let",),
        (*body, ir.Let("if", ir.Const("f32", 1.0)), ir.Let("z", ir.Ref("f32", "if"))),
    )
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert [p.name for p in again.params] == list(names)


def test_dtypes_that_do_not_follow_are_stated() -> None:
    odd = ir.Binary("f64", "add", ir.Const("f32", 1.0), ir.Const("f32", 1.0))
    load = ir.Load("i8", "b", (0,))
    kernel = ir.LoopKernel(
        "k",
        (ir.Buffer("b", "f32", (1,), "m"),),
        (),
        (ir.Let("v", odd), ir.Let("w", load), ir.Let("u", ir.Ref("i8", "v"))),
    )
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert [s.value.dtype for s in again.body if isinstance(s, ir.Let)] == ["f64", "i8", "i8"]
    assert "b[0]:i8" in text
    assert "v:i8" in text


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_kernels_round_trip(random: Random) -> None:
    from tests.sim.random_kernels import Maker

    kernel, _, _ = Maker(random).kernel()
    verify_kernel(kernel)
    text = print_kernel(kernel)
    again = parse_kernel(text)
    verify_kernel(again)
    assert print_kernel(again) == text


@pytest.mark.parametrize(
    "line, message",
    [
        ("let q: i32 = 1.0:f32", "line 4: q is i32 but the value is f32"),
        ("y[0] = ", "line 4: expected a name, got the end of the line"),
        ("y[0 = 1.0:f32", r"line 4: dimension"),
        ("y[0] = z", "line 4: unknown value 'z'"),
        ("y[0] = zz[1]", "line 4: unknown buffer 'zz'; known: y"),
        ("y[0] = 1.0", "line 4: expected ':'"),
        ("y[0] = 1.0:f33", "line 4: unknown dtype 'f33'; did you mean 'f32'"),
        ("y[0] = maxx(1.0:f32, 2.0:f32)", "line 4: unknown operation 'maxx'; did you mean 'max'"),
        ("y[0] = max(1.0:f32)", "line 4: max takes 2 operands, not 1"),
        ("y[0] = %3", "line 4: %3 is not defined before this statement"),
        ("y[n +] = 1.0:f32", "line 4: dimension"),
        ("vector l < 4, passive 3 {", "line 4: expected 'active', got 'passive 3 {'"),
        ("for i < 4", r"line 4: expected '\{', got the end of the line"),
        ("y[0] = 1.0:f32 1.0:f32", "line 4: expected the end of the line, got '1.0:f32'"),
        ("for i < 4 {", "line 5: the text ends here; expected a statement or '}'"),
        ("sync wait pending x", "line 4: expected an integer, got 'x'"),
        ('note "\\q"', "line 4: .* is not a quoted string"),
        ("y[0] = " + "(" * 500 + "1.0:f32" + ")" * 500, "line 4: values nested too deeply"),
        ("}\n}", "line 5: expected the end of the text"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    text = f"kernel k {{\n  param y: f32[n] in m out\n  dim n\n{line}\n}}\n"
    with pytest.raises(CodegenError, match=message):
        parse_kernel(text)


def test_nothing_is_not_a_kernel() -> None:
    for text in ("", "# only a comment", "kernel", "kernel k"):
        with pytest.raises(CodegenError):
            parse_kernel(text)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_text_never_crashes(random: Random) -> None:
    text = list(EVERYTHING)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(text))
        match random.randrange(3):
            case 0:
                del text[at : at + random.randrange(1, 6)]
            case 1:
                text.insert(at, random.choice('{}[]()<>=+-*/%&:.,"#\n 0azλ'))
            case 2:
                text[at] = random.choice('{}[]()<>=+-*/%&:.,"#\n 0azλ')
    try:
        kernel = parse_kernel("".join(text))
        verify_kernel(kernel)
    except CodegenError:
        return
    assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)


def test_messages_about_parts() -> None:
    load = ir.Load("f32", "b", (sym("i") + 1,))
    assert print_value(ir.Binary("bool", "lt", load, ir.Const("f32", 0.0))) == "b[i + 1] < 0.0:f32"
    assert print_statement(ir.For("i", 4, (), "vector")) == "vector i < 4"
    assert print_statement(ir.Store("b", (0,), ir.Binary("f32", "add", load, load))) == "b[0] = %0 + %0"
