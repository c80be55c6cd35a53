"""The host program's language: text and JSON forms, verifier, and the interpreter that defines it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen.host_interpreter import choose, interpret, resolve
from hwsdk.codegen.host_ir import (
    WORKERS,
    Binding,
    Check,
    HostBuffer,
    HostProgram,
    Launch,
    Needs,
    Signature,
    Version,
    Write,
)
from hwsdk.codegen.host_json import from_json, to_json
from hwsdk.codegen.host_text import parse_program, print_program
from hwsdk.codegen.host_verify import verify_host
from hwsdk.errors import ArtifactError, CodegenError, InputError
from hwsdk.graph.dims import Dim, ceildiv, floordiv, ge, maximum, minimum, mod, sym
from tests.ral import tiny

A, B = sym("a"), sym("b")
DIMS: list[Dim] = [0, 1, 384, A, 4 * A * B + 64, floordiv(A + 63, 64) * 64, maximum(A, 8 * B), minimum(A, B, 5),
                   ceildiv(A, B), mod(A, 7), ge(A, B), A - B, sym(WORKERS) * 4 - 1]  # fmt: skip
NAMES = ["t", "x.1", "model/layer norm:0", 'odd "name", (a; b)', "grid", "é", "a = b"]
dims, names = st.sampled_from(DIMS), st.sampled_from(NAMES)
shapes = st.lists(dims, max_size=3).map(tuple)


@st.composite
def programs(draw: st.DrawFn) -> HostProgram:
    """Any program that the two forms must carry; it need not make sense."""
    ins = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    reason = st.sampled_from(["", "a reason", 'with "quotes", and \\ == 3'])
    checks = st.builds(
        Check, st.integers(0, len(ins) - 1), st.integers(0, 3), st.none() | dims, st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 9), st.none() | st.integers(1, 9), reason,
    ).filter(lambda c: (c.expected, c.low, c.high, c.multiple) != (None,) * 4)  # fmt: skip
    storage = st.sampled_from(["input", "output", "constant", "arena"])
    buffers = st.builds(HostBuffer, names, st.sampled_from(["f32", "i64"]), shapes, storage, dims)
    needs = st.builds(Needs, dims, st.sampled_from([0, 1, 256]), dims)
    versions = st.lists(st.builds(Version, names, dims, st.none() | dims, needs), max_size=3).map(tuple)
    args = st.lists(names, max_size=4).map(tuple)
    return HostProgram(
        inputs=tuple(Signature(n, "f32", draw(shapes)) for n in ins),
        outputs=tuple(draw(st.lists(st.builds(Signature, names, st.just("i8"), shapes), max_size=2))),
        bindings=tuple(
            draw(
                st.lists(st.builds(Binding, st.sampled_from(["a", "b"]), st.just(0), st.just(1)), max_size=2)
            )
        ),
        checks=tuple(draw(st.lists(checks, max_size=3))),
        buffers=tuple(draw(st.lists(buffers, max_size=4))),
        launches=tuple(
            draw(st.lists(st.builds(Launch, names, versions, args, shapes, dims, args), max_size=3))
        ),
        arena_bytes=draw(dims),
        workspace_bytes=draw(dims),
        notes=tuple(draw(st.lists(reason, max_size=2))),
        writes=tuple(draw(st.lists(st.builds(Write, names, shapes), max_size=2))),
    )


@settings(max_examples=150, deadline=None)
@given(programs())
def test_both_forms_round_trip(program: HostProgram) -> None:
    again = parse_program(print_program(program))
    assert again == program
    assert again.notes == program.notes
    assert from_json(to_json(program)) == program


def test_text_reads_well() -> None:
    text = print_program(tiny.program(900))
    assert '  check w.0 == n "x and w are multiplied"' in text
    assert (
        "  launch scale(u, x, w; n) -> u work=900\n    scale_wide grid=b if ge(n, 8)\n    scale_narrow grid=b\n"
        in text
    )
    assert "  write shape = [b, n]\n" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host\n  nonsense 1", "line 2: unknown kind of line 'nonsense'"),
        ("host\n  input x f32[3]", "line 2: this cannot be read"),
        ("host\n    f grid=1", "line 2: a version without a launch"),
        ("host\n  arena 3 +* 4", "line 2"),
        ("host\n  symbol n = x.0", "line 2"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        parse_program(text)


@pytest.mark.parametrize("data", [{}, {"inputs": 5}, {**to_json(tiny.program()), "buffers": [[1, 2]]},
                                  {**to_json(tiny.program()), "arena_bytes": "import os"}])  # fmt: skip
def test_bad_json(data: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match="the host program cannot be read"):
        from_json(data)


# --------------------------------------------------------------------------------------------------- verifier
GOOD = tiny.program()
X, W, TWO, U, Y, SHAPE, T = GOOD.buffers


def test_the_good_program_is_accepted() -> None:
    verify_host(GOOD)
    verify_host(HostProgram((), (), (), (), (), ()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffers": (*GOOD.buffers, X)}, "two buffers are called 'x'"),
        ({"bindings": (*GOOD.bindings, Binding("b", 0, 1))}, "two symbols are called 'b'"),
        ({"bindings": (Binding("b", 0, 5), Binding("n", 0, 1))}, "symbol b: input 0 has no axis 5"),
        ({"bindings": GOOD.bindings[:1]}, "shape of x: symbol n is not bound"),
        ({"checks": (Check(7, 0, high=3),)}, "check 0: no axis 0"),
        ({"checks": (Check(0, 0, multiple=0),)}, "check 0: multiple of 0"),
        ({"checks": (Check(0, 0, expected=sym("z")),)}, "check 0: symbol z is not bound"),
        ({"buffers": (*GOOD.buffers[:-1], replace(T, storage="shelf"))}, "buffer t: unknown storage 'shelf'"),
        ({"buffers": (*GOOD.buffers[:-1], replace(T, position=9))}, "buffer t: there is no output 9"),
        (
            {"buffers": (*GOOD.buffers[:-1], replace(T, position=sym("b")))},
            "buffer t: position b is not a number",
        ),
        ({"writes": (Write("nothing", ()),)}, "write: no buffer called nothing"),
        ({"writes": (Write("t", (1,)),)}, "write: t is not a writable buffer of integers"),
        ({"launches": (replace(GOOD.launches[0], versions=()),)}, "launch of scale: no version"),
        ({"launches": (replace(GOOD.launches[0], args=("q",)),)}, "launch of scale: no buffer called q"),
        (
            {"launches": (replace(GOOD.launches[0], dims=(sym("q"),)),)},
            "launch of scale: symbol q is not bound",
        ),
        (
            {"launches": (replace(GOOD.launches[0], versions=GOOD.launches[0].versions[::-1]),)},
            "a version after one without guard never runs",
        ),
        ({"arena_bytes": sym("q")}, "arena: symbol q is not bound"),
        ({"launches": GOOD.launches[1:]}, "launch of double: it reads u, which nothing before it fills"),
        ({"launches": GOOD.launches[::-1]}, "launch of row_sum: it reads t, which nothing before it fills"),
        ({"launches": GOOD.launches[:2]}, "output y: nothing fills it"),
        ({"writes": ()}, "output shape: nothing fills it"),
        (
            {"launches": (replace(GOOD.launches[0], results=()), *GOOD.launches[1:])},
            "launch of scale: it reads u, which nothing before it fills",
        ),
        (
            {"launches": (replace(GOOD.launches[0], results=("t",)), *GOOD.launches[1:])},
            "launch of scale: its result t is not among its arguments",
        ),
        (
            {"launches": (replace(GOOD.launches[0], results=("u", "x")), *GOOD.launches[1:])},
            "launch of scale: it writes x, which is an input or a constant",
        ),
    ],
)
def test_verifier(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        verify_host(replace(GOOD, **changes))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ interpreter
def numpy_launch(symbol: str, buffers: tuple[np.ndarray, ...], dims: tuple[int, ...], grid: int) -> None:
    """The two kernels of the hand-made model."""
    (n,) = dims
    if symbol == "row_sum":
        buffers[0][:grid] = buffers[1][:grid].sum(1)
    else:
        buffers[0][:grid] = buffers[1][:grid] * buffers[2][:n]


CONSTANTS = {"two": np.full(1000, 2, np.float32)}


@pytest.mark.parametrize("size", [(3, 9), (0, 4), (4, 0), (1, 1), (17, 1000)])
def test_interpreter(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random(size, np.float32), rng.random(size[1], np.float32)
    out = interpret(GOOD, {"x": x, "w": w}, CONSTANTS, numpy_launch)
    for name, want in tiny.expected(x, w).items():
        np.testing.assert_allclose(out[name], want, rtol=1e-5)


def test_a_wrong_lifetime_shows() -> None:
    """Two buffers at one place while both live: the interpreter's arena gives the wrong value, as a device
    would."""
    clash = HostBuffer("v", "f32", (sym("b"), sym("n")), "arena", 64)
    launches = (GOOD.launches[0], replace(GOOD.launches[0], args=("v", "u", "w")), *GOOD.launches[1:])
    program = replace(GOOD, buffers=(*GOOD.buffers, clash), launches=launches)
    x, w = np.full((2, 9), 3, np.float32), np.full(9, 5, np.float32)
    out = interpret(program, {"x": x, "w": w}, CONSTANTS, numpy_launch)
    assert (out["t"] != tiny.expected(x, w)["t"]).all()


def test_arena_that_is_too_small() -> None:
    program = replace(GOOD, arena_bytes=64)
    with pytest.raises(CodegenError, match="u at 64 does not fit the arena of 64 bytes"):
        interpret(program, {"x": X_ARRAY, "w": W_ARRAY}, CONSTANTS, numpy_launch)


X_ARRAY, W_ARRAY = np.ones((2, 9), np.float32), np.ones(9, np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X_ARRAY}, "input 'w' is missing; expected x, w"),
        ({"x": X_ARRAY.astype("d"), "w": W_ARRAY}, "input 'x' has dtype float64, expected f32"),
        ({"x": X_ARRAY[0], "w": W_ARRAY}, r"input 'x' has 1 dims \(9,\), expected 2: \[b, n\]"),
        ({"x": X_ARRAY, "w": W_ARRAY[:3]}, r"input 'w': dim 0 \(n\) is 3, must be n = 9"),
        (
            {"x": np.ones((1, 1001), "f"), "w": W_ARRAY},
            r"dim 1 \(n\) is 1001, must be at most 1000 \(rows of the table\)",
        ),
    ],
)
def test_interpreter_errors(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        interpret(GOOD, inputs, CONSTANTS, numpy_launch)


def test_checks_of_every_kind() -> None:
    spec = (Signature("x", "f32", (A,)),)
    for check, good, bad, message in (
        (Check(0, 0, expected=7), 7, 8, "must be 7;"),
        (Check(0, 0, low=3), 3, 2, "must be at least 3"),
        (Check(0, 0, high=3), 3, 4, "must be at most 3"),
        (Check(0, 0, multiple=4), 8, 6, "must be a multiple of 4"),
    ):
        program = HostProgram(spec, (), (Binding("a", 0, 0),), (check,), (), ())
        resolve(program, [(good,)])
        with pytest.raises(InputError, match=message):
            resolve(program, [(bad,)])


def test_output_of_negative_size() -> None:
    program = HostProgram(
        (Signature("x", "f32", (A,)),), (Signature("y", "f32", (A - 5,)),), (Binding("a", 0, 0),), (), (), ()
    )
    with pytest.raises(InputError, match=r"output 'y' would have the shape \(-2,\) = \[a - 5\]"):
        resolve(program, [(3,)])


def test_buffer_of_negative_size() -> None:
    buffer = HostBuffer("t", "f32", (A - 5, 2), "arena")
    program = HostProgram((Signature("x", "f32", (A,)),), (), (Binding("a", 0, 0),), (), (buffer,), ())
    resolve(program, [(5,)])
    with pytest.raises(InputError, match=r"too small: t would have the shape \(-2, 2\) = \[a - 5, 2\]"):
        resolve(program, [(3,)])


def test_first_guard_that_holds() -> None:
    resolved = resolve(GOOD, [(3, 9), (9,)])
    assert choose(GOOD.launches[0], resolved)[0] == 0
    assert choose(GOOD.launches[0], resolve(GOOD, [(3, 7), (7,)]))[0] == 1
    with pytest.raises(CodegenError, match="no version of k covers"):
        choose(Launch("k", (Version("k", 1, ge(sym("n"), 100)),), (), ()), resolved)


def test_workers_is_a_symbol() -> None:
    shape = (sym(WORKERS) * 2,)
    made = Launch("k", (Version("k", 1),), ("y",), (), results=("y",))
    program = HostProgram(
        (), (Signature("y", "f32", shape),), (), (), (HostBuffer("y", "f32", shape, "output"),), (made,),
        workspace_bytes=sym(WORKERS),
    )  # fmt: skip
    verify_host(program)
    assert resolve(program, [], workers=5).outputs == ((10,),)
    assert resolve(program, [], workers=5).workspace_bytes == 64
