"""Kernels that are equal up to names: lowered once, launched under their own names with their own operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk.codegen.driver import Compilation, Options, compile_graph
from hwsdk.codegen.lower.simd import SimdLowering
from hwsdk.graph.graph import Graph
from hwsdk.intrinsics import load_target

Array = np.ndarray[Any, Any]
WIDTH = 24


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are lowered during the test."""
    names: list[str] = []
    plain = SimdLowering.lower

    def counted(self: SimdLowering, kernel: Any) -> Any:
        names.append(kernel.name)
        return plain(self, kernel)

    monkeypatch.setattr(SimdLowering, "lower", counted)
    return names


def made(graph: Graph) -> Compilation:
    return compile_graph(graph, load_target("x86"))


def weights(number: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(number)
    return rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH, rng.standard_normal(
        WIDTH, np.float32
    )


def layers(count: int) -> Graph:
    """Equal layers of different weights: dense, tanh, attention over the rows, softmax, residual."""
    m = hb.Model("layers")
    h = m.input("x", "f32", ("rows", WIDTH))
    for number in range(count):
        w, b = weights(number)
        t = hb.tanh(h @ w + b)
        h = h + hb.softmax(t @ t.T, axis=-1) @ t
    m.output("y", h)
    return m.graph()


def reference(x: Array, count: int) -> Array:
    h = x.astype(np.float64)
    for number in range(count):
        w, b = weights(number)
        t = np.tanh(h @ w + b)
        e = np.exp(t @ t.T - (t @ t.T).max(-1, keepdims=True, initial=-np.inf))
        h = h + e / e.sum(-1, keepdims=True) @ t
    return h


def test_equal_layers_are_lowered_once(calls: list[str]) -> None:
    few = made(layers(3))
    once = len(calls)
    many = made(layers(9))
    assert len(calls) == 2 * once
    assert len(many.assembled.kernels) == len(few.assembled.kernels)
    assert len(many.assembled.program.launches) == 3 * len(few.assembled.program.launches)


def test_every_launch_keeps_its_name_its_nodes_and_its_operands() -> None:
    found = made(layers(3))
    launches = found.assembled.program.launches
    assert len({launch.kernel for launch in launches}) == len(launches)
    assert len({launch.args[-1] for launch in launches}) == len(launches)  # each writes a value of its own
    nodes = [n for x in found.lowered if not x.loop.name.endswith("_pack") for n in x.sources]
    assert len(set(nodes)) == len(nodes)


@pytest.mark.parametrize("rows", [0, 1, 5, 33])
def test_layers_agree_with_numpy(rows: int) -> None:
    executable = hwsdk.compile(layers(4), "x86")
    x = np.random.default_rng(rows).standard_normal((rows, WIDTH), np.float32)
    np.testing.assert_allclose(executable(x=x)["y"], reference(x, 4), rtol=1e-4, atol=1e-5)


def two_inputs(most: int | None = None) -> Graph:
    """The same work on two inputs whose dims have different names.  most: of the second dim."""
    m = hb.Model("two")
    for name, dim in (("a", m.dim("left")), ("b", m.dim("right", high=most))):
        x = m.input(name, "f32", (dim, WIDTH))
        m.output(f"{name}_out", hb.softmax(hb.tanh(x @ weights(0)[0]), axis=-1))
    return m.graph()


def test_dims_with_other_names_share_a_kernel(calls: list[str]) -> None:
    found = made(two_inputs())
    launches = found.assembled.program.launches
    assert len(launches) == 2 * len(calls) == 2 * len(found.assembled.kernels)
    executable = hwsdk.compile(two_inputs(), "x86")
    a, b = (np.random.default_rng(n).standard_normal((n, WIDTH), np.float32) for n in (3, 50))
    got = executable(a=a, b=b)
    for name, x in (("a_out", a), ("b_out", b)):
        t = np.tanh(x.astype(np.float64) @ weights(0)[0])
        e = np.exp(t - t.max(-1, keepdims=True))
        np.testing.assert_allclose(got[name], e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_what_is_known_of_a_dim_keeps_kernels_apart(calls: list[str]) -> None:
    found = made(two_inputs(most=4))
    assert len(calls) == len(found.assembled.program.launches)


@pytest.mark.parametrize("values", [(1.25, 1.5), (0.0, -0.0)])
def test_constants_in_bodies_keep_kernels_apart(calls: list[str], values: tuple[float, float]) -> None:
    m = hb.Model("numbers")
    x = m.input("x", "f32", ("rows", WIDTH))
    for number, value in enumerate(values):
        m.output(f"y{number}", hb.softmax(hb.maximum(x, np.float32(value)), axis=-1))
    made(m.graph())
    assert len(calls) == 2


def test_a_kernel_whose_schedule_is_changed_keeps_its_own_loops() -> None:
    plain = made(layers(3)).assembled
    name = next(k for k in (x.kernel for x in plain.program.launches) if k.endswith("contraction"))
    changes = {name: {"register_tile": [2, 16]}}
    changed = compile_graph(layers(3), load_target("x86"), Options(schedules=changes)).assembled
    assert changed.symbol_of[name] == name
    assert len(changed.kernels) == len(plain.kernels) + 1
