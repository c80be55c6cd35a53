"""Compiled models on the machine: values against the graph interpreter, planted faults between launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hwsdk.frontends.builder as hb
from hwsdk.codegen.driver import compile_graph
from hwsdk.codegen.host_ir import Binding, HostBuffer, HostProgram, Launch, Signature, Version, Write
from hwsdk.codegen.loop_text import parse_kernel, print_kernel
from hwsdk.errors import InputError, SimulationError
from hwsdk.graph.dims import sym
from hwsdk.graph.interpret import interpret
from hwsdk.sim.executable import SimBundle, SimExecutable, simulate
from hwsdk.target_desc import load_target
from tests.sim.chips import scratch

N = sym("n")
DOUBLE = parse_kernel(
    "kernel double {\nparam x: f32[n] in main\nparam y: f32[n] in main out\ndim n\n"
    "parallel(core) t < ceildiv(n, 4) {\nvector l < 4, active n - t*4 {\ny[t*4 + l] = x[t*4 + l] * 2.0:f32\n}\n}\n}"
)
ADD = parse_kernel(
    "kernel add {\nparam x: f32[n] in main\nparam z: f32[n] in main\nparam y: f32[n] in main out\ndim n\n"
    "parallel(core) t < n {\ny[t] = x[t] + z[t]\n}\n}"
)


def launch(kernel: str, args: tuple[str, ...], grid=None) -> Launch:
    size = (N + 3) // 4 if kernel == "double" else N
    return Launch(kernel, (Version(kernel, size if grid is None else grid),), args, (N,), results=args[-1:])


def bundle(**changes) -> SimBundle:
    """y = 2x + 4x, with both intermediates in the arena."""
    program = HostProgram(
        inputs=(Signature("x", "f32", (N,)),),
        outputs=(Signature("y", "f32", (N,)), Signature("shape", "i64", (1,))),
        bindings=(Binding("n", 0, 0),),
        checks=(),
        buffers=(
            HostBuffer("x", "f32", (N,), "input", 0),
            HostBuffer("a", "f32", (N,), "arena", 0),
            HostBuffer("b", "f32", (N,), "arena", (N * 4 + 63) // 64 * 64),
            HostBuffer("y", "f32", (N,), "output", 0),
            HostBuffer("s", "i64", (1,), "output", 1),
        ),
        launches=(launch("double", ("x", "a")), launch("double", ("a", "b")), launch("add", ("a", "b", "y"))),
        arena_bytes=(N * 4 + 63) // 64 * 64 + N * 4,
        writes=(Write("s", (N,)),),
    )
    return SimBundle(replace(program, **changes), (DOUBLE, ADD), scratch(2), {})


def test_an_empty_buffer_in_the_arena() -> None:
    buffers = (*bundle().program.buffers, HostBuffer("none", "f32", (0,), "arena", 0))
    empty = Launch("fill", (Version("fill", 1),), ("none", "y"), (N,), results=("none", "y"))
    fill = parse_kernel(
        "kernel fill {\nparam x: f32[0] in main\nparam y: f32[n] in main out\ndim n\n"
        "parallel(core) t < 1 {\nfor i < n {\ny[i] = 3.0:f32\n}\n}\n}"
    )
    made = replace(bundle(buffers=buffers, launches=(empty,)), kernels=(fill,))
    assert (SimExecutable(made)(x=np.ones(4, "f4"))["y"] == 3).all()


@pytest.mark.parametrize("n", [0, 1, 7, 32])
def test_values_and_stats(n: int) -> None:
    x = np.arange(n, dtype="f4")
    executable = SimExecutable(bundle(), seed=1)
    for _ in range(2):
        out = executable(x=x)
        assert (out["y"] == 6 * x).all()
        assert out["shape"].tolist() == [n]
    assert executable.stats.launches == (3 if n else 0)
    assert [name for name, _ in executable.launches] == (["double", "double", "add"] if n else [])
    if n:
        assert executable.stats.places["main"].written_bytes == 12 * n
    outputs, stats = simulate(bundle(), {"x": x})
    assert (outputs["y"] == 6 * x).all()
    assert stats.cycles == executable.stats.cycles


def planted(message: str, check: bool = True, **changes) -> None:
    with pytest.raises(SimulationError, match=message):
        SimExecutable(bundle(**changes), check=check)(x=np.ones(8, "f4"))


def test_a_buffer_that_is_overwritten_too_early() -> None:
    buffers = tuple(replace(b, position=16) if b.name == "b" else b for b in bundle().program.buffers)
    planted(
        r"launch 2 \(add\) reads buffer a, but element 4 of 8 holds data of b, which shares its place in the arena",
        buffers=buffers,
    )


def test_a_buffer_that_nobody_wrote() -> None:
    planted(
        "launch 0 .* reads buffer b, but element 0 of 8 was never written",
        launches=(launch("add", ("x", "b", "y")),),
    )


def test_an_output_that_is_not_complete() -> None:
    planted("output y: element 0 of 8 was never written", launches=())
    planted("output shape: element 0 of 1 was never written", writes=())


def test_a_launch_of_the_wrong_size() -> None:
    planted(
        r"launch 0 \(double\): the host launches 3 iterations, the kernel has 2",
        launches=(launch("double", ("x", "y"), grid=3),),
    )


def test_a_launch_of_an_unknown_kernel_or_with_wrong_operands() -> None:
    planted("launches 'triple', which is no kernel", launches=(launch("triple", ("x", "y")),))
    planted("1 buffers and 1 dims for 2 params", launches=(launch("double", ("x",)),))


def test_an_arena_that_is_too_small() -> None:
    planted(r"buffer b of 32 bytes at 64 does not fit the arena of 64 bytes", arena_bytes=64)


def test_faults_inside_a_kernel_keep_their_message() -> None:
    wrong = parse_kernel(print_kernel(DOUBLE).replace("active n - 4*t", "active 4"))
    broken = replace(bundle(), kernels=(wrong, ADD))
    with pytest.raises(
        SimulationError, match=r"kernel double: statement .* out of bounds: index 7 of axis 0 of x"
    ):
        SimExecutable(broken)(x=np.ones(7, "f4"))


def test_bad_inputs() -> None:
    with pytest.raises(InputError, match="input 'x' is missing"):
        SimExecutable(bundle())()
    with pytest.raises(InputError, match="input 'x' has dtype float64"):
        SimExecutable(bundle())(x=np.ones(3))
    with pytest.raises(InputError):
        SimExecutable(bundle())(x=np.ones((3, 3), "f4"))


# ------------------------------------------------------------------------------------------------- compiled models
def model() -> tuple[hb.Model, int]:
    rng = np.random.default_rng(0)
    m = hb.Model("small")
    x = m.input("x", "f32", ("batch", 24))
    h = hb.tanh(x @ rng.standard_normal((24, 40), "f4") + rng.standard_normal(40, "f4"))
    m.output("y", h @ rng.standard_normal((40, 16), "f4"))
    return m, 24


@pytest.mark.parametrize("batch", [1, 5, 19])
def test_a_compiled_model_on_the_example_accelerator(root, batch: int) -> None:
    m, width = model()
    graph = m.graph()
    made = compile_graph(graph, load_target(root / "examples/new_chip/npu.yaml"))
    x = np.random.default_rng(batch).standard_normal((batch, width), "f4")
    want = interpret(graph, {"x": x})["y"]
    executable = SimExecutable(SimBundle.of(made))
    got = executable(x=x)["y"]
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()  # products in bf16
    stats = executable.stats
    for name, place in stats.places.items():
        if name != "dram":
            assert place.peak_bytes <= (place.capacity_bytes or 0)
    assert stats.units["matrix"].uses > 0
    assert stats.cycles > 0
