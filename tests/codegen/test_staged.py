"""Lowering for chips with software-managed memories: what runs in vectors, how it follows the description, its cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hwsdk import api
from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.loop_ir import Alloc, Body, For, If, LoopKernel, Stmt, Store, walk
from hwsdk.codegen.loop_print import print_kernel
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import PlanError, SimulationError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value
from hwsdk.graph.interpret import interpret
from hwsdk.sim import machine
from hwsdk.target_desc import Target, load_target
from tests.codegen.compiled import FILES, ROOT, assert_same, graph_of, target, tolerance

Array = np.ndarray[Any, Any]
B = GraphBuilder


def scalar_kernels(made: Compilation) -> list[str]:
    """First versions of launches that write results element by element on the control unit."""
    first = {launch.versions[0].symbol for launch in made.assembled.program.launches}
    return [
        k.name
        for k in made.assembled.kernels
        if k.name in first and any(isinstance(s, Store) and s.buffer in k.outputs for s in walk(k.body))
    ]


def compiled(graph: Graph, chip: Target | None = None) -> Compilation:
    return api.compile_stages(graph, chip or target("npu"))


def given(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for value in graph.inputs:
        shape = [sizes[str(d)] if not isinstance(d, int) else d for d in value.shape]
        kind = {"f32": np.float32, "i64": np.int64, "bool": np.bool_}[value.dtype]
        drawn = rng.standard_normal(shape) if value.dtype == "f32" else rng.integers(0, 2, shape)
        out[value.name] = drawn.astype(kind)
    return out


def right(graph: Graph, made: Compilation, sizes: Mapping[str, int], terms: int = 64) -> api.Simulation:
    """Run, compare with the definition of graphs."""
    simulation = api.Simulation(made)
    inputs = given(graph, sizes)
    assert_same(simulation(inputs), interpret(graph, inputs), tolerance("npu", terms))
    return simulation


def over(b: B, x: Value, like: Value) -> Value:
    made = b.node("broadcast_in_dim", [x], shape=like.shape, dims=tuple(range(len(like.shape))))
    assert isinstance(made, Value)
    return made


def softmax(b: B, x: Value) -> Value:
    last = (len(x.shape) - 1,)
    top = b.node("reduce", [x], kind="max", axes=last, keepdims=True)
    e = b.node("exp", [b.node("sub", [x, over(b, top, x)])])
    return b.node("div", [e, over(b, b.node("reduce", [e], kind="sum", axes=last, keepdims=True), e)])


def depthwise(b: B, x: Value, w: Value, stride: int) -> Value:
    return b.node(
        "conv",
        [x, w],
        strides=(stride, stride),
        low=(1, 1),
        high=(1, 1),
        dilations=(1, 1),
        groups=x.shape[-1],
    )


H, W = sym("h"), sym("w")
Build = Callable[..., Value]
CASES: dict[str, tuple[tuple[tuple[str, tuple[Any, ...]], ...], Build]] = {
    "transpose": ((("f32", (2, H, W, 3)),), lambda b, x: b.node("transpose", [x], perm=(0, 3, 1, 2))),
    "transpose of i64": ((("i64", (H, W)),), lambda b, x: b.node("transpose", [x], perm=(1, 0))),
    "concatenation of columns": (
        (("f32", (H, 1)), ("f32", (H, 1)), ("f32", (H, 2))),
        lambda b, *x: b.node("concat", list(x), axis=1),
    ),
    "mean of images": (
        (("f32", (2, H, W, 24)),),
        lambda b, x: b.node("reduce", [x], kind="sum", axes=(1, 2), keepdims=True),
    ),
    "masked sum": (
        (("f32", (2, H, 80)), ("i64", (2, H, 1))),
        lambda b, x, m: b.node(
            "reduce", [b.node("mul", [x, over(b, b.node("cast", [m], dtype="f32"), x)])],
            kind="sum", axes=(1,), keepdims=False,
        ),
    ),
    "short rows": (
        (("f32", (H, W, 3)),),
        lambda b, x: b.node("reduce", [x], kind="max", axes=(2,), keepdims=False),
    ),
    "softmax": ((("f32", (H, W)),), softmax),
    "depthwise, narrow": (
        (("f32", (1, H, W, 12)), ("f32", (3, 3, 1, 12))),
        lambda b, x, w: depthwise(b, x, w, 1),
    ),
    "depthwise, strided": (
        (("f32", (1, H, W, 72)), ("f32", (3, 3, 1, 72))),
        lambda b, x, w: depthwise(b, x, w, 2),
    ),
    "rows scaled": (
        (("f32", (H, 100)), ("f32", (H, 1))),
        lambda b, x, s: b.node("mul", [x, over(b, s, x)]),
    ),
    "product with a transposed matrix": (
        (("f32", (H, 40)), ("f32", (W, 40))),
        lambda b, x, y: b.node("dot_general", [x, y], batch=(), contract=((1, 1),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_vectors_and_copies_do_the_work(name: str) -> None:
    inputs, build = CASES[name]
    graph = graph_of(inputs, build)
    made = compiled(graph)
    assert scalar_kernels(made) == []
    for sizes in ({"h": 9, "w": 11}, {"h": 4, "w": 70}, {"h": 1, "w": 5}):
        right(graph, made, sizes)


# -------------------------------------------------------------------------------------------- rows of any length
def test_long_rows_take_another_version() -> None:
    graph = graph_of([("f32", (2, sym("n")))], softmax)
    made = compiled(graph)
    (launch,) = made.assembled.program.launches
    assert [v.guard is None for v in launch.versions] == [False, True]
    assert right(graph, made, {"n": 3000}).launches[0][0] == launch.versions[0].symbol
    assert right(graph, made, {"n": 20000}).launches[0][0] == launch.versions[1].symbol


# ------------------------------------------------------------------------------------------ following the description
def smaller(folder: Path) -> Target:
    """The same chip with a scratchpad of 32 KiB and a matrix unit of 8 x 8 x 32."""
    data = yaml.safe_load(FILES["npu"].read_text(encoding="utf-8"))
    for memory in data["memory"]:
        if memory["name"] == "spad":
            memory["size_bytes"] = 32768
    for intrinsic in data["intrinsics"]:
        if intrinsic["name"] == "mma_${t}":
            intrinsic["dims"] = {"m": 8, "n": 8, "k": 32}
    file = folder / "npu.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return load_target(str(file))


def tiles(made: Compilation) -> list[str]:
    return [
        f"{s.buffer.name}: {[str(e) for e in s.buffer.shape]}"
        for k in made.assembled.kernels
        for s in walk(k.body)
        if isinstance(s, Alloc) and s.buffer.name in ("at", "bt", "acc")
    ]


def network() -> Graph:
    """Convolution, depthwise convolution, product, softmax."""
    rng = np.random.default_rng(3)
    b = GraphBuilder("network")
    x = b.input("x", "f32", (1, sym("h"), sym("w"), 8))
    attrs = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
    first = b.constant(rng.standard_normal((3, 3, 8, 40)).astype(np.float32) / 8)
    y = b.node("conv", [x, first], groups=1, **attrs)
    y = depthwise(b, y, b.constant(rng.standard_normal((3, 3, 1, 40)).astype(np.float32) / 3), 1)
    second = b.constant(rng.standard_normal((40, 33)).astype(np.float32) / 6)
    b.output(softmax(b, b.node("dot_general", [y, second], batch=(), contract=((3, 0),))), "y")
    return b.finish()


def test_another_chip_gets_other_tiles(tmp_path: Path) -> None:
    graph, small = network(), smaller(tmp_path)
    plain, changed = compiled(graph), compiled(graph, small)
    assert tiles(plain) != tiles(changed)
    for made in (plain, changed):
        simulation = right(graph, made, {"h": 7, "w": 10})
        spad = simulation.stats.places["spad"]
        assert spad.capacity_bytes is not None
        assert 0 < spad.peak_bytes <= spad.capacity_bytes


def enlarged(body: Body, name: str) -> Body:
    """The body with one buffer a hundred times as long."""

    def change(stmt: Stmt) -> Stmt:
        match stmt:
            case Alloc(buffer=buffer) if buffer.name == name:
                return Alloc(replace(buffer, shape=(100 * buffer.shape[0], *buffer.shape[1:])))
            case For(body=inner):
                return replace(stmt, body=enlarged(inner, name))
            case If(then=then, orelse=orelse):
                return replace(stmt, then=enlarged(then, name), orelse=enlarged(orelse, name))
        return stmt

    return tuple(change(s) for s in body)


def product_of(n: int) -> Graph:
    shape = (n, n)
    return graph_of(
        [("f32", shape), ("f32", shape)],
        lambda b, x, y: b.node("dot_general", [x, y], batch=(), contract=((1, 0),)),
    )


def contraction(made: Compilation) -> LoopKernel:
    return next(
        k
        for k in made.assembled.kernels
        if any(isinstance(s, Alloc) and s.buffer.name == "at" for s in walk(k.body))
    )


def test_a_tile_too_large_is_refused_by_the_machine() -> None:
    kernel = contraction(compiled(product_of(64)))
    planted = replace(kernel, body=enlarged(kernel.body, "at"))
    arrays = {p.name: np.zeros(int(str(p.shape[0])), numpy_dtype(p.dtype)) for p in kernel.params}
    with pytest.raises(SimulationError, match=r"over capacity: at takes .* of spad"):
        machine.run(planted, target("npu"), arrays, {})


def test_copies_run_ahead() -> None:
    """Two halves of every tile; the next step's copies start before this step's work."""
    text = print_kernel(contraction(compiled(product_of(256))))
    assert "alloc at: bf16[2, " in text
    ahead = text.index("dst = &at[(step + 1)%2")
    assert ahead < text.index("a = &at[step%2")
    simulation = right(product_of(128), compiled(product_of(128)), {}, 128)
    stats = simulation.launches[-1][1]
    assert stats.utilisation("matrix") + stats.utilisation("dma") > 0.9  # they overlap


def test_predicted_time_is_near_the_roof() -> None:
    """Copies and products overlap, so the longer of the two decides; layouts of both operands included."""
    n = 256
    chip = target("npu")
    stats = right(product_of(n), compiled(product_of(n)), {}, n).stats
    dram = chip.memory("dram")
    products = (n // 16) ** 3 * 16
    copies = (2 * n * n * 2 + n * n * 4) / (dram.read_bytes_per_cycle or 1)
    assert max(products, copies) < stats.cycles < 2 * max(products, copies)


# ------------------------------------------------------------------------------------------------- short intrinsics
def changed(tmp_path: Path, *edits: tuple[str, str]) -> Target:
    text = FILES["npu"].read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "npu.yaml"
    path.write_text(text)
    return load_target(path)


SHORT = {
    "small copies": ("dims: {r: {max: 65535}, c: {max: 65535}}", "dims: {r: {max: 5}, c: {max: 24}}"),
    "short vectors": ("dims: {n: {max: 64}}", "dims: {n: {max: 16}}"),
    "short reductions": ("dims: {n: {min: 1, max: 64}}", "dims: {n: {min: 1, max: 8}}"),
}


@pytest.mark.parametrize("edit", SHORT.values(), ids=SHORT)
def test_uses_longer_than_an_intrinsic_allows_become_several(edit: tuple[str, str], tmp_path: Path) -> None:
    graph = network()
    made = compiled(graph, changed(tmp_path, edit))
    for h, w in ((5, 9), (1, 1)):
        right(graph, made, {"h": h, "w": w})


def test_extents_in_steps_are_refused_with_the_field(tmp_path: Path) -> None:
    copies = "dims: {r: {max: 65535}, c: {max: 65535"
    chip = changed(tmp_path, (copies, f"{copies}, multiple: 8"))
    with pytest.raises(PlanError, match=r"intrinsics\.dma_load_f64\.dims\.c\.multiple 8"):
        compiled(network(), chip)


def test_the_same_graph_gives_the_same_text_whatever_the_hash_seed() -> None:
    code = (
        "from tests.codegen.compiled import graph_of, target; from hwsdk import api;"
        "from hwsdk.codegen.loop_print import print_kernel; from tests.codegen.test_compiler_ops import CASES;"
        "cases = [graph_of(*CASES[c][:2]) for c in ('resize linear', 'resize cubic')];"
        "made = [api.compile_stages(graph, target('npu')) for graph in cases];"
        "print([print_kernel(k) for m in made for k in m.assembled.kernels])"
    )
    texts = set()
    for seed in "12":
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1
