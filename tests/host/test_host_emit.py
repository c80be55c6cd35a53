"""The native host program computes what the interpreter computes, for any expression."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_emit import emit_host
from hwsdk.codegen.host_ir import Binding, HostBuffer, HostProgram, Signature, Write
from hwsdk.errors import CodegenError, InputError
from hwsdk.graph.dims import (
    Dim,
    both,
    ceildiv,
    either,
    eq,
    evaluate,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    ne,
    sym,
)
from hwsdk.ral_port.executable import Executable
from tests.ral import tiny

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="native port"
)

SYMBOLS = [sym(n) for n in "abc"]


def expressions() -> st.SearchStrategy[Dim]:
    leaves = st.sampled_from(SYMBOLS) | st.integers(-70, 70)
    positive = st.integers(1, 70)

    def grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            st.tuples(inner, positive).map(lambda p: floordiv(*p)),
            st.tuples(inner, positive).map(lambda p: mod(*p)),
            st.tuples(inner, st.sampled_from([2, 8, 64, 128])).map(lambda p: floordiv(*p)),
            st.tuples(inner, st.sampled_from([2, 8, 64, 128])).map(lambda p: mod(*p)),
            pair.map(lambda p: floordiv(p[0], p[1] * p[1] + 1)),
            pair.map(lambda p: mod(p[0], -(p[1] * p[1]) - 1)),
            pair.map(lambda p: ceildiv(p[0], p[1] * p[1] + 2)),
            st.lists(inner, min_size=1, max_size=3).map(lambda x: minimum(*x)),
            st.lists(inner, min_size=1, max_size=3).map(lambda x: maximum(*x)),
            pair.map(lambda p: ge(*p)),
            pair.map(lambda p: either(eq(*p), ne(p[0], 3))),
            pair.map(lambda p: both(ge(p[0], 2), ge(p[1], p[0]))),
        )

    return st.recursive(leaves, grow, max_leaves=6)


def runner(values: list[Dim], kind: str = "i64") -> Executable:
    """An executable whose only output has these values."""
    inputs = tuple(Signature(s, "u8", (sym(s),)) for s in "abc")
    program = HostProgram(
        inputs=inputs,
        outputs=(Signature("y", kind, (len(values),)),),
        bindings=tuple(Binding(s, i, 0) for i, s in enumerate("abc")),
        checks=(),
        buffers=(HostBuffer("y", kind, (len(values),), "output", 0),),
        launches=(),
        writes=(Write("y", tuple(values)),),
    )
    return Executable(
        Bundle(
            name="expressions",
            target="host-test",
            folder=str(tiny.HOST_FOLDER),
            port="ral:HostPort",
            program=program,
            code=(),
            constants={},
            support=(("pool", tiny.pool_code()),),
            host_code=tiny.compile_text(emit_host(program)),
        )
    )


def call(exe: Executable, *sizes: int) -> np.ndarray:
    return exe(dict(zip("abc", (np.zeros(n, np.uint8) for n in sizes))))["y"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(expressions(), min_size=20, max_size=40),
    st.lists(st.tuples(*[st.integers(0, 300)] * 3), min_size=3, max_size=5),
)
def test_expressions(values: list[Dim], points: list[tuple[int, int, int]]) -> None:
    exe = runner(values)
    for point in points:
        got = call(exe, *point)
        want = [evaluate(v, dict(zip("abc", point))) for v in values]
        assert [int(g) for g in got] == want


def test_narrow_shape_tensor() -> None:
    a, b, _ = SYMBOLS
    assert call(runner([a, b * 3, -a], "i32"), 5, 7, 0).tolist() == [5, 21, -5]


def test_division_by_zero_is_refused() -> None:
    a, b, c = SYMBOLS
    program = runner([1])
    made = HostProgram(
        **{
            **vars(program.bundle.program),
            "arena_bytes": floordiv(a * 64, b) + mod(a, c) * 64,
            "writes": (Write("y", (a,)),),
        }
    )
    bundle = Bundle(
        **{**vars(program.bundle), "program": made, "host_code": tiny.compile_text(emit_host(made))}
    )
    exe = Executable(bundle)
    assert call(exe, 6, 2, 4).tolist() == [6]
    for point in ((1, 0, 1), (1, 1, 0)):
        with pytest.raises(InputError, match="size of the arena: division by zero"):
            call(exe, *point)
    assert call(exe, 6, 2, 4).tolist() == [6]


def test_unbound_symbol() -> None:
    program = HostProgram((), (), (), (), (), (), arena_bytes=sym("q"))
    with pytest.raises(CodegenError, match="symbol 'q' has no value"):
        emit_host(program)


def test_text_is_deterministic() -> None:
    assert emit_host(tiny.program()) == emit_host(tiny.program())
