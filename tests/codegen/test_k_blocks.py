"""Long sums: k is cut into blocks whose sums meet in the result, so errors do not grow with all of k."""

from __future__ import annotations

import numpy as np
import pytest

import hwsdk
from hwsdk import api
from hwsdk.codegen.loop_ir import For, LoopKernel
from hwsdk.codegen.lower.simd import LONGEST_SUM
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder
from tests.codegen.compiled import check, target

DEEP = 5 * LONGEST_SUM + 3


def product(rows: object, depth: object, columns: int, dtype: str = "f32", bias: bool = False) -> Graph:
    b = GraphBuilder("product")
    x = b.input("x0", dtype, (rows, depth))
    w = b.input("x1", dtype, (depth, columns))
    y = b.node("dot_general", [x, w], contract=((1, 0),))
    if bias:
        line = b.node(
            "broadcast_in_dim", [b.input("x2", dtype, (columns,))], shape=(rows, columns), dims=(1,)
        )
        y = b.node("tanh", [b.node("add", [y, line])])
    b.output(y, "y")
    return b.finish()


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / 8


def loops(kernel: LoopKernel, name: str) -> list[For]:
    found: list[For] = []

    def walk(body: object) -> None:
        for stmt in body if isinstance(body, tuple) else ():
            if isinstance(stmt, For) and stmt.var == name:
                found.append(stmt)
            for inner in (getattr(stmt, a, None) for a in ("body", "then", "orelse")):
                walk(inner)

    walk(kernel.body)
    return found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 19])
def test_blocks_agree_with_the_definition(rows: int, bias: bool) -> None:
    given = {"x0": normal(rows, DEEP), "x1": normal(DEEP, 21)}
    if bias:
        given["x2"] = normal(21)
    check(product(sym("n"), DEEP, 21, bias=bias), "x86", [given], terms=DEEP)


def test_one_compile_serves_depths_of_none_one_and_many_blocks() -> None:
    graph = product(sym("n"), sym("k"), 21, bias=True)
    depths = (0, 1, 7, LONGEST_SUM, LONGEST_SUM + 1, DEEP)
    given = [{"x0": normal(5, k), "x1": normal(k, 21), "x2": normal(21)} for k in depths]
    check(graph, "x86", given, terms=DEEP)


def test_the_error_of_equal_terms_stays_that_of_a_block() -> None:
    """One chain of 100 000 equal terms is off by 1.4e-4, as its rounding errors all point one way."""
    exe = hwsdk.compile(product(sym("n"), sym("k"), 24), target("x86"))
    x, w = np.full((7, 100_000), 0.1, np.float32), np.ones((100_000, 24), np.float32)
    np.testing.assert_allclose(exe(x0=x, x1=w)["y"], x.astype(np.float64) @ w, rtol=2e-5)


def test_a_depth_known_to_be_short_is_not_cut() -> None:
    made = api.compile_stages(product(sym("n"), 384, 64), target("x86"))
    kernels = [x.loop for x in made.lowered]
    assert kernels
    assert not [k for k in kernels if loops(k, "k_block")]
    made = api.compile_stages(product(sym("n"), DEEP, 64), target("x86"))
    assert [k for x in made.lowered if loops(k := x.loop, "k_block")]


def test_several_iters_are_cut_along_the_outermost() -> None:
    b = GraphBuilder("product")
    x, w = b.input("x0", "f32", (9, sym("n"), 600)), b.input("x1", "f32", (9, 600, 24))
    b.output(b.node("dot_general", [x, w], contract=((0, 0), (2, 1))), "y")
    graph = b.finish()
    made = api.compile_stages(graph, target("x86"))
    assert [k for x in made.lowered if loops(k := x.loop, "k_block")]
    check(graph, "x86", [{"x0": normal(9, 7, 600), "x1": normal(9, 600, 24)}], terms=5400)
