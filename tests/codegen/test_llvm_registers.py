"""Registers and values of small kernels: the compiled code does what the machine that defines LoopIR does."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.codegen.llvm_emit import emit_kernel
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Cast,
    If,
    Let,
    Reduce,
    Ref,
    Select,
    Value,
)
from hwsdk.graph.dims import sym
from tests.codegen.llvm_harness import Compiled, agree, host_target
from tests.codegen.loop_words import (
    L,
    Y,
    b,
    buf,
    c,
    f32,
    i,
    ix,
    j,
    kernel,
    ld,
    loop,
    m,
    n,
    q,
    st,
    u,
    unroll,
    vec,
)


# ---------------------------------------------------------------------------------------------------------- registers
def test_register_cells_through_loops_and_branches() -> None:
    acc = buf("acc", 2, L, place="vreg")
    body: Body = (
        Alloc(acc),
        unroll("u", 2, vec(st("acc", (u, q), c(0)))),
        loop(
            "i",
            n,
            unroll("u", 2, vec(st("acc", (u, q), b("add", ld("acc", u, q), ld("x", i, u * L + q))))),
            If(b("lt", ix(i), ix(m)), (vec(st("acc", (0, q), b("mul", ld("acc", 0, q), c(2)))),)),
            loop("j", m, vec(st("acc", (1, q), b("add", ld("acc", 1, q), c(1))))),
        ),
        unroll("u", 2, vec(st("y", u * L + q, ld("acc", u, q)))),
    )
    k_ = kernel((buf("x", n, 16), buf("y", 16)), ("n", "m"), *body)
    for a, z in ((0, 2), (1, 0), (3, 2)):
        agree(k_, {"x": f32(a, 16), "y": f32(16)}, {"n": a, "m": z})
    assert "alloca" not in emit_kernel(k_, host_target())


def test_scalar_registers_and_lanes_of_a_register() -> None:
    acc, one = buf("acc", L, place="vreg"), buf("one", 3, place="vreg")
    body: Body = (
        Alloc(acc),
        Alloc(one),
        vec(st("acc", q, ld("x", q))),
        st("one", 0, ld("acc", 5)),
        st("one", 1, b("add", ld("one", 0), ld("acc", 0))),
        st("acc", 2, ld("one", 1)),
        loop("i", n, st("one", 0, b("mul", ld("one", 0), c(1.5)))),
        vec(st("y", q, b("add", ld("acc", q), ld("one", 0)))),
    )
    agree(kernel((buf("x", 8), buf("y", 8)), ("n",), *body), {"x": f32(8), "y": f32(8)}, {"n": 3})


def test_register_buffer_with_run_time_index_is_an_array() -> None:
    acc = buf("acc", 4, L, place="vreg")
    body: Body = (
        Alloc(acc),
        loop("i", 4, vec(st("acc", (i, q), ld("x", i * L + q)))),
        loop("i", 4, vec(st("y", i * L + q, ld("acc", 3 - i, q)))),
    )
    arrays = {"x": f32(32), "y": f32(32)}
    Compiled(kernel((buf("x", 32), buf("y", 32)), (), *body)).run(arrays, {})
    np.testing.assert_array_equal(arrays["y"].reshape(4, 8), arrays["x"].reshape(4, 8)[::-1])


@pytest.mark.parametrize("active", [0, 3, 8])
def test_masked_writes_keep_the_other_lanes(active: int) -> None:
    acc = buf("acc", L, place="vreg")
    body: Body = (
        Alloc(acc),
        vec(st("acc", q, c(1))),
        vec(st("acc", q, ld("x", q)), active=n),
        vec(st("acc", q, c(5)), lanes=L),
        vec(st("acc", q, ld("x", q)), active=n),
        vec(st("y", q, ld("acc", q))),
    )
    agree(kernel((buf("x", 8), buf("y", 8)), ("n",), *body), {"x": f32(8), "y": f32(8)}, {"n": active})


def test_wide_reads_of_narrow_cells() -> None:
    acc = buf("acc", 16, place="vreg")
    body: Body = (
        Alloc(acc),
        unroll("u", 4, vec(st("acc", u * 4 + q, ld("x", u * 4 + q)), lanes=4)),
        unroll("u", 2, vec(st("y", u * 8 + q, ld("acc", u * 8 + q)))),
    )
    agree(kernel((buf("x", 16), buf("y", 16)), (), *body), {"x": f32(16), "y": f32(16)}, {})


def test_bool_and_narrow_floats_in_registers() -> None:
    flags, half = buf("flags", L, dtype="bool", place="vreg"), buf("half", L, dtype="bf16", place="vreg")
    x, y = buf("x", 8), buf("y", 8)
    body: Body = (
        Alloc(flags),
        Alloc(half),
        vec(st("flags", q, b("lt", ld("x", q), c(0)))),
        vec(st("half", q, Cast("bf16", ld("x", q)))),
        vec(
            st(
                "y",
                q,
                Select("f32", ld("flags", q, dtype="bool"), Cast("f32", ld("half", q, dtype="bf16")), c(1)),
            )
        ),
    )
    agree(kernel((x, y), (), *body), {"x": f32(8), "y": f32(8)}, {})


# ------------------------------------------------------------------------------------------------------------ values
def test_shared_values_are_read_again_after_a_store() -> None:
    shared = b("add", ld("y", 0), c(1))
    body: Body = (st("y", 0, shared), st("y", 0, shared), st("y", 1, shared))
    out = agree(kernel((buf("y", 2),), (), *body), {"y": np.zeros(2, np.float32)}, {})
    np.testing.assert_array_equal(out["y"], [2, 3])


def test_lets_of_all_kinds() -> None:
    body: Body = (
        Let("f", b("mul", ld("x", 0), c(3))),
        Let("t", ix(n * 2 + 1, "i32")),
        Let("g", Cast("i64", ld("x", 1))),
        Let("q", b("lt", Ref("f32", "f"), c(0))),
        loop(
            "i",
            n,
            Let("at", b("add", Ref("i64", "g"), ix(i))),
            st("y", i, Select("f32", Ref("bool", "q"), Ref("f32", "f"), Cast("f32", Ref("i32", "t")))),
            st("y", sym("at") - sym("g"), b("add", ld("y", i), c(1))),
        ),
    )
    agree(kernel((buf("x", 2), Y), ("n",), *body), {"x": np.array([1, 4], np.float32), "y": f32(5)}, {"n": 5})


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("extent", [1, 3, 8, 12, 16, 40])
def test_reductions(op: str, extent: int) -> None:
    value = Reduce("f32", op, "j", extent, b("add", ld("x", i * extent + j), c(0)))
    body = loop("i", n, st("y", i, value))
    x = f32(3 * extent)
    x[1] = np.nan if op in ("max", "min") else x[1]
    agree(
        kernel((buf("x", n * extent), Y), ("n",), body), {"x": x, "y": f32(3)}, {"n": 3}, rtol=1e-5, atol=1e-6
    )


def test_reduction_inside_lanes() -> None:
    value = Reduce("f32", "sum", "j", 5, b("mul", ld("x", j, q), ld("x", j, 0)))
    agree(
        kernel((buf("x", 5, 8), buf("y", 8)), (), vec(st("y", q, value))),
        {"x": f32(5, 8), "y": f32(8)},
        {},
        rtol=1e-5,
    )


def test_any_and_all() -> None:
    flag = b("gt", ld("x", i * 16 + j), c(1.5))
    body = loop(
        "i",
        n,
        st("y", (i, 0), Reduce("bool", "any", "j", 16, flag)),
        st("y", (i, 1), Reduce("bool", "all", "j", 16, flag)),
    )
    x = f32(6 * 16)
    x[:16] = 2
    agree(
        kernel((buf("x", n * 16), buf("y", n, 2, dtype="bool")), ("n",), body),
        {"x": x, "y": np.zeros((6, 2), bool)},
        {"n": 6},
    )


def test_deep_chains_do_not_recurse() -> None:
    value: Value = ld("x", q)
    for step in range(3000):
        value = b("add", value, c(step % 3))
    agree(kernel((buf("x", 8), buf("y", 8)), (), vec(st("y", q, value))), {"x": f32(8), "y": f32(8)}, {})
