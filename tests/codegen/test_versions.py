"""Versions of one contraction: guards in the host program, one of them runs, all are right."""

from __future__ import annotations

import numpy as np

import hwsdk
from hwsdk import api
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from tests.codegen.compiled import target


def product(columns: int, depth: int) -> tuple[Graph, np.ndarray]:
    b = GraphBuilder("product")
    x = b.input("x", "f32", (sym("rows"), depth))
    w = np.random.default_rng(0).standard_normal((depth, columns)).astype(np.float32)
    b.output(b.node("dot_general", [x, b.constant(w)], contract=((1, 0),)), "y")
    return b.finish(), w


def test_small_constants_may_be_laid_out_for_several_versions() -> None:
    graph, w = product(64, 64)
    exe = hwsdk.compile(graph, target("x86"))
    (launch,) = exe.bundle.program.launches
    rng = np.random.default_rng(1)
    for rows in (0, 1, 2, 3, 5, 17, 200):
        x = rng.standard_normal((rows, 64)).astype(np.float32)
        np.testing.assert_allclose(exe(x=x)["y"], x @ w, rtol=1e-4, atol=1e-4)
    used = [n for n in exe.stats.versions.values() if n]
    assert sum(used) == 6  # no rows, no launch
    assert exe.stats.compiles == 1
    if len(launch.versions) > 1:  # another processor may need only one
        assert launch.versions[-1].guard is None
        assert all(v.guard is not None for v in launch.versions[:-1])


def test_the_guard_is_the_selector_of_the_planner() -> None:
    graph, _ = product(64, 64)
    made = api.compile_stages(graph, target("x86"))
    (launch,) = made.assembled.program.launches
    for v in launch.versions[:-1]:
        assert v.guard is not None
        picked = {int(evaluate(v.guard, {"rows": m})) for m in (1, 2, 64, 1000)}
        assert picked == {0, 1}


def test_large_constants_are_laid_out_once() -> None:
    graph, w = product(384, 384)
    made = api.compile_stages(graph, target("x86"))
    assert sum(c.size for c in made.assembled.constants) < 1.1 * w.size
