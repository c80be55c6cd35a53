"""Small kernels, one construct each: the compiled code does what the machine that defines LoopIR does."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.codegen.llvm_emit import emit_kernel, workspace_bytes
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Cast,
    For,
    If,
    Let,
    LoopKernel,
    Outline,
    Ref,
    Switch,
    Ternary,
    Unary,
)
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import ceildiv, maximum, minimum, sym
from tests.codegen.llvm_harness import Compiled, agree, assembly, host_target
from tests.codegen.loop_words import (
    L,
    X,
    Y,
    b,
    buf,
    c,
    f32,
    i,
    ix,
    j,
    k,
    kernel,
    ld,
    loop,
    m,
    n,
    q,
    rng,
    st,
    u,
    unroll,
    vec,
)


# -------------------------------------------------------------------------------------------------------------- loops
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31])
def test_vector_loop_with_a_masked_tail(size: int) -> None:
    body = vec(st("y", i * L + q, b("add", ld("x", i * L + q), c(1))), active=n - i * L)
    agree(
        kernel((X, Y), ("n",), loop("i", ceildiv(n, L), body)), {"x": f32(size), "y": f32(size)}, {"n": size}
    )


@pytest.mark.parametrize("size", [0, 1, 5])
def test_parallel_loop_takes_the_tile_number(size: int) -> None:
    body = For("i", n, (st("y", i, ld("x", i)),), "parallel", level="core")
    agree(kernel((X, Y), ("n",), body), {"x": f32(size), "y": f32(size)}, {"n": size})


def test_nested_loops_with_zero_trips() -> None:
    body = loop("i", n, loop("j", m, st("y", i * m + j, b("mul", ld("x", i * m + j), c(2)))))
    shape = (buf("x", n * m), buf("y", n * m))
    for a, z in ((0, 3), (3, 0), (2, 3), (1, 1)):
        agree(kernel(shape, ("n", "m"), body), {"x": f32(a * z), "y": f32(a * z)}, {"n": a, "m": z})


def test_unrolled_loop_sees_constants() -> None:
    body = loop("i", n, unroll("u", 3, st("y", (i, u), b("add", ld("x", i, 2 - u), ix(u, "f32")))))
    agree(kernel((buf("x", n, 3), buf("y", n, 3)), ("n",), body), {"x": f32(4, 3), "y": f32(4, 3)}, {"n": 4})


# ----------------------------------------------------------------------------------------------------------- accesses
def test_broadcast_load_and_reversed_and_strided_lanes() -> None:
    body = vec(
        st("y", q, ld("x", 3)),
        st("y", L + q, ld("x", 7 - q)),
        st("y", 2 * L + q, ld("x", 2 * q)),
        st("y", 3 * L + 7 - q, ld("x", q)),
        st("y", 4 * L + 2 * q, ld("x", q * 3)),
    )
    shape = (buf("x", 32), buf("y", 6 * L))
    agree(kernel(shape, (), body), {"x": f32(32), "y": f32(6 * L)}, {})


@pytest.mark.parametrize("stride", [-3, -2, -1, 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 16])
def test_strided_lanes_stay_inside_the_buffer(stride: int, lanes: int) -> None:
    first = max(0, -stride * (lanes - 1))
    body = vec(
        st("y", q, ld("x", first + q * stride)),
        st("y", lanes + q, ld("x", first + q * stride, where=b("lt", ix(n), ix(3)))),
        lanes=lanes,
    )
    k_ = kernel((buf("x", abs(stride) * (lanes - 1) + 1), buf("y", 2 * lanes)), ("n",), body)
    arrays = {"x": f32(abs(stride) * (lanes - 1) + 1), "y": f32(2 * lanes)}
    for size in (0, 5):
        agree(k_, arrays, {"n": size})


@pytest.mark.parametrize("active", [0, 1, 5, 8])
def test_masked_gather_and_scatter(active: int) -> None:
    body = vec(st("y", q * m, ld("x", q * m)), active=n)
    shape = (buf("x", 8 * m), buf("y", 8 * m))
    agree(kernel(shape, ("n", "m"), body), {"x": f32(24), "y": f32(24)}, {"n": active, "m": 3})


def test_gather_through_an_index_vector() -> None:
    body = vec(Let("at", ld("p", q, dtype="i64")), st("y", q, ld("x", sym("at"), 1)))
    shape = (buf("p", 8, dtype="i64"), buf("x", n, 2), buf("y", 8))
    arrays = {"p": rng.integers(0, 5, 8), "x": f32(5, 2), "y": f32(8)}
    agree(kernel(shape, ("n",), body), arrays, {"n": 5})


def test_lane_in_divisions() -> None:
    body = vec(
        st("y", q, ld("x", q // 2)),
        st("y", 8 + q, ld("x", q % 3)),
        st("y", 16 + q, ld("x", (q + n) // 4)),
        st("y", 24 + q, ld("x", q // 8 + q % 8)),
    )
    agree(kernel((buf("x", n), buf("y", 32)), ("n",), body), {"x": f32(9), "y": f32(32)}, {"n": 9})


@pytest.mark.parametrize("limit", [-3, 0, 4, 8, 20])
def test_where_per_lane_and_for_all_lanes(limit: int) -> None:
    inside = b("lt", ix(q), ix(m - 4))
    body = vec(
        st("y", q, ld("x", q, where=inside)),
        st("y", 8 + q, ld("x", q), where=inside),
        st("y", 16 + q, ld("x", q, where=b("lt", ix(m), ix(8)))),
        st("y", 24 + q, ld("x", q), where=b("lt", ix(m), ix(8))),
        st("y", 32 + q, ld("x", 2 * q, where=b("ge", ix(q), ix(8 - m)))),
    )
    shape = (buf("x", 16), buf("y", 40))
    agree(kernel(shape, ("m",), body), {"x": f32(16), "y": f32(40)}, {"m": limit + 4})


def test_memory_under_a_false_condition_is_not_touched() -> None:
    inside = b("lt", ix(i), ix(n))
    far = i * 1_000_000_000_000
    body = loop("i", 2, st("y", i, ld("x", far, where=inside)))
    k_ = kernel((buf("x", 2), buf("y", 2)), ("n",), body)
    y = np.ones(2, np.float32)
    Compiled(k_).run({"x": f32(2), "y": y}, {"n": 0})
    assert (y == 0).all()


def test_strides_and_unaligned_rows() -> None:
    x = buf("x", n, m, strides=(k, 1))
    body = loop("i", n, loop("j", m, st("y", (i, j), ld("x", i, j))))
    arrays = {"x": f32(40), "y": f32(3, 4)}
    k_ = kernel((x, buf("y", n, m)), ("n", "m", "k"), body)
    native = {a: v.copy() for a, v in arrays.items()}
    Compiled(k_).run(native, {"n": 3, "m": 4, "k": 11})
    np.testing.assert_array_equal(native["y"], np.lib.stride_tricks.as_strided(arrays["x"], (3, 4), (44, 4)))


# ----------------------------------------------------------------------------------------------------------- branches
def test_branch_inside_lanes() -> None:
    body = vec(
        Let("z", b("mul", ld("x", q), c(3))),
        If(b("lt", ix(m), c(3, "i64")), (st("y", q, Ref("f32", "z")),), (st("y", q, ld("x", 0)),)),
        loop("j", m, st("y", q, b("add", ld("y", q), ld("x", j)))),
        active=n,
    )
    for size, other in ((0, 1), (3, 0), (8, 5)):
        agree(
            kernel((buf("x", 8), buf("y", 8)), ("n", "m"), body),
            {"x": f32(8), "y": f32(8)},
            {"n": size, "m": other},
        )


def test_switch_and_outline() -> None:
    def case(number: int) -> Body:
        inner = loop(
            "j",
            m,
            st("y", j, b("add", ld("x", j), Ref("f32", "f"))),
            If(b("lt", ix(j), ix(i)), (st("y", j, c(number)),)),
        )
        return (Outline(f"case{number}", (inner,)),)

    body = loop("i", n, Let("f", ld("x", 0)), Switch(minimum(i, 2), (case(0), case(1), case(2))))
    k_ = kernel((buf("x", m), buf("y", m)), ("n", "m"), body)
    agree(k_, {"x": f32(5), "y": f32(5)}, {"n": 4, "m": 5})
    assert emit_kernel(k_, host_target()).count("define internal fastcc") == 3


def test_outlines_of_one_name_are_emitted_once() -> None:
    inner = (loop("j", m, st("y", i * m + j, ld("x", j))),)
    body = loop("i", n, If(b("lt", ix(i), ix(2)), (Outline("copy", inner),), (Outline("copy", inner),)))
    k_ = kernel((buf("x", m), buf("y", n * m)), ("n", "m"), body)
    agree(k_, {"x": f32(5), "y": f32(20)}, {"n": 4, "m": 5})
    assert emit_kernel(k_, host_target()).count("define internal fastcc") == 1


def test_outline_over_registers_is_inlined() -> None:
    acc = buf("acc", L, place="vreg")
    body: Body = (
        Alloc(acc),
        vec(st("acc", q, c(0))),
        loop("i", n, Outline("step", (vec(st("acc", q, b("add", ld("acc", q), ld("x", i * L + q)))),))),
        vec(st("y", q, ld("acc", q))),
    )
    agree(kernel((buf("x", n * L), buf("y", 8)), ("n",), *body), {"x": f32(24), "y": f32(8)}, {"n": 3})


# ---------------------------------------------------------------------------------------------------------- workspace
def test_stack_and_workspace() -> None:
    small, large = buf("small", 16, place="l1"), buf("large", n, 64, place="l1")
    body: Body = (
        Alloc(small),
        Alloc(large),
        loop("i", n, loop("j", 64, st("large", (i, j), ld("x", i * 64 + j)))),
        loop("j", 16, st("small", j, ld("large", n - 1, j))),
        Let("half", ix(n // 2)),
        Alloc(buf("more", sym("half") + 1, 100, place="dram")),
        st("more", (sym("half"), 99), ld("small", 3)),
        loop("i", n, st("y", i, b("add", ld("large", i, 7), ld("more", sym("half"), 99)))),
    )
    k_ = kernel((buf("x", n * 64), Y), ("n",), *body)
    agree(k_, {"x": f32(5 * 64), "y": f32(5)}, {"n": 5})
    assert str(workspace_bytes(k_, host_target())) != "0"


def test_alternatives_share_the_workspace() -> None:
    def case(size: int) -> Body:
        return (Alloc(buf("t", size, place="dram")), st("t", 0, ld("x", 0)), st("y", 0, ld("t", 0)))

    k_ = kernel((buf("x", 1), buf("y", 1)), ("n",), Switch(n, (case(2000), case(4000))))
    assert workspace_bytes(k_, host_target()) == 16000
    agree(k_, {"x": f32(1), "y": f32(1)}, {"n": 1})


def test_a_size_that_the_host_cannot_know_is_refused() -> None:
    body = loop("i", n, Alloc(buf("t", i * 1000 + 2000, place="dram")), st("t", 0, ld("x", i)))
    with pytest.raises(CodegenError, match="size of t depends on i"):
        emit_kernel(kernel((X, Y), ("n",), body), host_target())


# --------------------------------------------------------------------------------------------------------- index text
def test_nothing_but_the_pointer_is_left_in_the_inner_loop() -> None:
    row = i * m + j
    body = loop("i", n, loop("j", m, st("y", row, b("add", ld("x", (row * 3 + n * i) * 2), c(1)))))
    text = emit_kernel(kernel((buf("x", 1 << 20), buf("y", n * m)), ("n", "m"), body), host_target())
    inner = text.split(" = phi i64 ")[2].split("br i1")[0]
    assert inner.count("mul") == 2  # 4*j and 24*j
    assert inner.count("getelementptr") == 2


def test_floor_division_of_negative_numbers() -> None:
    body = loop("i", 12, st("y", i, ix((i - 6) // 4 * 100 + (i - 6) % 4, "i64")))
    agree(kernel((buf("y", 12, dtype="i64"),), (), body), {"y": np.zeros(12, np.int64)}, {})


def test_index_operations() -> None:
    e = maximum(i * 2 - n, 3 - i) * 5 + minimum(i, m, 4) + ceildiv(i + m, 3) + (i // m) + (i % m)
    body = loop("i", 12, st("y", i, ix(e)))
    agree(
        kernel((buf("y", 12, dtype="i64"),), ("n", "m"), body),
        {"y": np.zeros(12, np.int64)},
        {"n": 7, "m": 5},
    )


def test_division_by_a_dim_outside_a_loop_that_does_not_run() -> None:
    body = loop("i", m, st("y", (n * 7 + 3) // m, c(1)))
    agree(kernel((buf("y", 1),), ("n", "m"), body), {"y": f32(1)}, {"n": 3, "m": 0})


def test_fma_is_one_instruction() -> None:
    value = Ternary("f32", "fma", ld("x", q), ld("x", 8 + q), ld("y", q))
    k_ = kernel((buf("x", 16), buf("y", 8)), (), vec(st("y", q, value)))
    agree(k_, {"x": f32(16), "y": f32(8)}, {}, rtol=1e-6)
    assert "fma" in assembly(emit_kernel(k_, host_target())).lower()


def test_unary_minus_and_abs_of_lanes() -> None:
    body = vec(st("y", q, Unary("f32", "abs", Unary("f32", "neg", ld("x", q)))))
    agree(kernel((buf("x", 8), buf("y", 8)), (), body), {"x": f32(8), "y": f32(8)}, {})


def test_buffers_of_one_name_in_different_cases() -> None:
    def case(dtype: str, lanes: int) -> Body:
        t = buf("t", lanes, dtype=dtype, place="vreg")
        load, value = ld("t", q, dtype=dtype), Cast(dtype, ld("x", q))
        return (
            Alloc(t),
            vec(st("t", q, value), lanes=lanes),
            vec(st("y", q, Cast("f32", load)), lanes=lanes),
        )

    k_ = kernel(
        (buf("x", 16), buf("y", 16)), ("n",), Switch(n, (case("f32", 8), case("i16", 16), case("f64", 4)))
    )
    for which in range(3):
        agree(k_, {"x": f32(16), "y": f32(16)}, {"n": which})
    assert "alloca" not in emit_kernel(k_, host_target())


def test_names_that_are_no_words() -> None:
    inner = (loop("j", n, st("y", j, ld("x", j, where=b("lt", ix(j), ix(3))))),)
    made = LoopKernel('a "b"/c', (X, Y), ("n",), (Outline("part 1", inner),), ("y",))
    agree(made, {"x": f32(5), "y": f32(5)}, {"n": 5})
