"""What a user can get wrong about a model, from the outside in: one clear error or the right answer.

Design choice: everything goes through the public functions or the command; the rooms test their own refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk.codegen.host_text import parse_program, print_program
from hwsdk.errors import ArtifactError, InputError, ModelError, TargetError
from tests.bad_input.support import (
    INT,
    W,
    expected,
    model,
    node,
    normal,
)


# ----------------------------------------------------------------------------------------- arguments of functions
@pytest.mark.parametrize("wrong", [None, 5, [], b"x86"])
def test_what_is_no_target(wrong: Any) -> None:
    with pytest.raises(TargetError, match="a target is a name or a path"):
        hwsdk.compile(model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"]), wrong)


@pytest.mark.parametrize("wrong", [None, 5, [], "no\0file", "/dev/null", "."])
def test_what_is_no_artifact(wrong: Any) -> None:
    with pytest.raises(ArtifactError):
        hwsdk.load(wrong)


@pytest.mark.parametrize(
    "dims, message",
    [
        (["b"], "dims are a mapping"),
        ("b=1", "dims are a mapping"),
        ({"b": 1 << 70}, "does not fit 64 bits"),
        ({"b": f"0..{1 << 70}"}, "does not fit 64 bits"),
        ({"x.0": f"{1 << 70}*q"}, "does not fit 64 bits"),
        ({"x.0": "p*q"}, "axis 0 is p\\*q, which does not determine p, q"),
        ({"x.0": "p//2"}, "does not determine p"),
    ],
)
def test_dims_that_cannot_be(compiled: Callable[..., Any], dims: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        compiled(model([node("Relu", ["x"], ["y"])], {"x": ["b", 4]}, ["y"]), dims=dims)


def test_a_dim_that_no_input_determines(compiled: Callable[..., Any]) -> None:
    m = hb.Model("free")
    x = m.input("x", "f32", ("n",))
    m.output("y", hb.expand(hb.sum(x, axis=0, keepdims=True), (m.dim("k"),)) + 1.0)
    with pytest.raises(ModelError, match="no input's size determines k"):
        compiled(m.graph())


# ------------------------------------------------------------------------------------------------- dims and names
def test_input_dims_may_be_expressions(compiled: Callable[..., Any], tmp_path: Path) -> None:
    source = model([node("Relu", ["x"], ["y"])], {"x": ["b", "h", "w"]}, ["y"])
    exe = compiled(source, dims={"x.1": "32*p", "x.2": "b + 8*q"})
    program = exe.bundle.program
    assert parse_program(print_program(program)) == program
    exe.save(tmp_path / "m.hwx")
    for runs in (exe, hwsdk.load(tmp_path / "m.hwx")):
        for shape in ((1, 64, 9), (2, 0, 2), (0, 32, 0)):
            x = normal(*shape)
            np.testing.assert_array_equal(runs(x=x)["y"], np.maximum(x, 0))
        for shape in ((2, 33, 2), (2, 32, 3), (2, 32, 1)):
            with pytest.raises(InputError, match="input 'x': dim"):
                runs(x=normal(*shape))
    high = compiled(source, dims={"x.1": "10 - p"})
    assert high(x=normal(1, 10, 1))["y"].shape == (1, 10, 1)
    with pytest.raises(InputError, match="range of p"):
        high(x=normal(1, 11, 1))


@pytest.mark.parametrize("name", ["workers$", "k0", "min", "row", "1x", "$"])
def test_dims_may_have_any_name(compiled: Callable[..., Any], name: str) -> None:
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Softmax", ["t"], ["y"])]
    exe = compiled(model(nodes, {"x": [name, 6]}, ["y"], w=W))
    for n in (0, 1, 7):
        x = normal(n, 6)
        np.testing.assert_allclose(exe(x=x)["y"], expected(x) if n else np.empty((0, 5)), 1e-4, 1e-6)


def test_alike_names_stay_apart(compiled: Callable[..., Any]) -> None:
    nodes = [node("Relu", ["x 1"], ["class"]), node("Relu", ["x-1"], ["out/put !"])]
    exe = compiled(model(nodes, {"x 1": ["a b"], "x-1": ["a-b"]}, ["class", "out/put !"]))
    out = exe({"x 1": normal(3), "x-1": normal(4)})
    assert {k: v.shape for k, v in out.items()} == {"class": (3,), "out/put !": (4,)}


# ------------------------------------------------------------------------------------------------------- constants
@pytest.mark.parametrize("value", [1.0, 0.0, np.nan])
def test_uniform_constants_as_operands(compiled: Callable[..., Any], value: float) -> None:
    w = np.full((6, 5), value, np.float32)
    x = normal(3, 6)
    got = compiled(model([node("MatMul", ["x", "w"], ["y"])], {"x": ["b", 6]}, ["y"], w=w))(x=x)["y"]
    np.testing.assert_allclose(got, x @ w, 1e-5, 1e-5)


def test_uniform_constants_in_convolutions(compiled: Callable[..., Any]) -> None:
    kernel = np.ones((4, 3, 3, 3), np.float32)
    conv = node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    x = normal(2, 3, 5, 7)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).sum((1, 4, 5))
    got = compiled(model([conv], {"x": ["b", 3, "h", "w"]}, ["y"], w=kernel))(x=x)["y"]
    np.testing.assert_allclose(got, np.broadcast_to(windows[:, None], got.shape), 1e-4, 1e-4)
    image = np.ones((1, 3, 6, 6), np.float32)
    other = compiled(model([conv], {"w": ["o", 3, 3, 3]}, ["y"], x=image))(w=kernel)["y"]
    assert other.shape == (1, 4, 6, 6)
    assert other[0, 0, 3, 3] == 27


def test_zero_and_minus_zero_are_two_numbers(compiled: Callable[..., Any]) -> None:
    signed = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    got = compiled(model([node("Mul", ["x", "c"], ["y"])], {"x": ["n", 4]}, ["y"], c=signed))(
        x=np.ones((1, 4), np.float32)
    )
    assert np.signbit(got["y"]).tolist() == [[False, True, False, True]]


def test_a_folded_scalar_stays_a_scalar(compiled: Callable[..., Any]) -> None:
    nodes = [node("ReduceSum", ["c"], ["t"], keepdims=0), node("Add", ["t", "x"], ["y"])]
    x = normal(3)
    got = compiled(model(nodes, {"x": ["n"]}, ["y"], c=normal(4, 4)))(x=x)["y"]
    assert got.shape == (3,)


def test_constants_are_as_they_were_given(compiled: Callable[..., Any]) -> None:
    m = hb.Model("m")
    x = m.input("x", "f32", ("n", 100))
    bias = np.arange(100, dtype=np.float32)
    y = x + bias
    bias[:] = 0
    m.output("y", y)
    m.output("c", m.constant(np.ones(3, np.float32)))
    exe = compiled(m.graph())
    out = exe(x=np.zeros((1, 100), np.float32))
    assert out["y"][0, 99] == 99
    out["c"][:] = 7
    assert exe(x=np.zeros((1, 100), np.float32))["c"][0] == 1


# -------------------------------------------------------------------------------------------------- odd but valid
def test_odd_graphs(compiled: Callable[..., Any]) -> None:
    scalar = compiled(model([node("Exp", ["x"], ["y"])], {"x": []}, ["y"]))
    assert scalar(x=np.array(0, np.float32))["y"] == 1
    same = compiled(model([node("Identity", ["x"], ["y"])], {"x": ["n"], "unused": (INT, ["k"])}, ["x", "y"]))
    x = normal(4)
    out = same(x=x, unused=np.zeros(2, np.int64))
    np.testing.assert_array_equal(out["x"], x)
    assert not any(np.shares_memory(a, b) for a in (x, out["y"]) for b in (out["x"],))
    constant = compiled(model([], {}, ["c"], c=W))
    np.testing.assert_array_equal(constant()["c"], W)
    assert compiled(model([], {"x": ["n"]}, ["x"]))(x=x)["x"].tolist() == x.tolist()
    with pytest.raises(ModelError, match="two outputs are called 'y'"):
        compiled(model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y", "y"]))


@pytest.mark.slow
def test_long_chains_and_many_nodes(compiled: Callable[..., Any]) -> None:
    chain = [node("Tanh" if i % 2 else "Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(2000)]
    deep = compiled(model(chain, {"t0": ["n"]}, ["t2000"]))
    x = normal(5)
    want = x.astype(np.float64)
    for i in range(2000):
        want = np.tanh(want) if i % 2 else -want
    np.testing.assert_allclose(deep(t0=x)["t2000"], want, 1e-4, 1e-5)
    sums = [node("Mul", ["x", "x"], ["a0"])]
    sums += [node("Add", [f"a{i - 1}", f"a{max(0, i - 2)}"], [f"a{i}"]) for i in range(1, 60)]
    twice = compiled(model(sums, {"x": ["n"]}, ["a59"]))(x=np.ones(3, np.float32))["a59"]
    a, b = 1.0, 2.0
    for _ in range(58):
        a, b = b, a + b
    np.testing.assert_allclose(twice, b, 1e-5)
    arithmetic = [node("Shape", ["x"], ["s0"])]
    for i in range(300):
        arithmetic += [node("Add", [f"s{i}", "one"], [f"q{i}"]), node("Sub", [f"q{i}", "one"], [f"s{i + 1}"])]
    arithmetic.append(node("Reshape", ["x", "s300"], ["y"]))
    shaped = compiled(model(arithmetic, {"x": ["a", "b"]}, ["y"], one=np.array([1])))
    assert shaped(x=normal(3, 4))["y"].shape == (3, 4)
