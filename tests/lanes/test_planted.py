"""Faults planted in the text of compiled kernels, PTX that ships and LLVM text handed to the back end: all caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hwsdk import api
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.sim.instructions import InstructionExecutable
from hwsdk.sim.port import LockstepPort
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.target_desc import load_target
from tests.codegen.compiled import graph_of
from tests.codegen.test_compiler_ops import CASES
from tests.lanes.test_tensor import product

Change = Callable[[str], str]
PTX, LLVM = "cuda-sm80", "dcu-gfx906"
BARRIER = {PTX: "bar.sync \t0;", LLVM: "  call void @llvm.amdgcn.s.barrier()\n"}


class Planted:
    """A graph compiled once; its texts may be changed, its scratchpads cut, the width of its chip set."""

    def __init__(self, graph: Graph, target: str) -> None:
        self.made = api.compile_stages(graph, load_target(target))
        self.texts = api.device_code(list(self.made.ir.items()), self.made.target, interpreted=True)

    def run(
        self, inputs: dict[str, np.ndarray], change: Change = str, cut: int = 0, warp: int = 0
    ) -> dict[str, np.ndarray]:
        target = self.made.target
        port = api.lockstep_port(target)
        port.engine.chip = replace(port.engine.chip, warp_lanes=warp or port.engine.chip.warp_lanes)
        _cut(port, cut)
        staged = [
            not name.endswith("_sum") for name in self.made.ir
        ]  # what adds up parts of k has no scratchpad
        codes = [
            change(text.decode()).encode() if mine else text
            for text, mine in zip(self.texts, staged, strict=True)
        ]
        kernels, program = self.made.assembled.kernels, self.made.assembled.program
        return InstructionExecutable(program, kernels, target, api._constants(self.made), codes, port)(inputs)


def _cut(port: LockstepPort, amount: int) -> None:
    whole = port.launch

    def launch(kernel: int, grid: int, args: list[int], lanes: int, scratch_bytes: int) -> None:
        whole(kernel, grid, args, lanes=lanes, scratch_bytes=scratch_bytes - amount)

    port.launch = launch  # type: ignore[method-assign, assignment]


@pytest.fixture(scope="module")
def planted() -> dict[str, Planted]:
    return {target: Planted(product("f32", False), target) for target in (PTX, LLVM)}


def operands(depth: int = 130) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (37, depth)), ("w", (depth, 21)))}


def caught(made: Planted, change: Change = str, cut: int = 0, depth: int = 130) -> FaultKind:
    with pytest.raises(KernelFault) as found:
        made.run(operands(depth), change, cut)
    assert found.value.line or found.value.kind is FaultKind.LAUNCH
    return found.value.kind


@pytest.mark.parametrize("target", [PTX, LLVM])
def test_without_a_fault_the_values_are_right(planted: dict[str, Planted], target: str) -> None:
    given = operands()
    want = interpret(planted[target].made.graph, given)["y"]
    np.testing.assert_allclose(planted[target].run(given)["y"], want, atol=1e-4)


@pytest.mark.parametrize("target", [PTX, LLVM])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_barrier_is_a_race(planted: dict[str, Planted], target: str, number: int) -> None:
    def change(text: str) -> str:
        parts = text.split(BARRIER[target])
        assert len(parts) > number + 1
        head, rest = parts[: number + 1], parts[number + 1 :]
        return BARRIER[target].join([*head[:-1], head[-1] + rest[0], *rest[1:]])

    assert caught(planted[target], change) is FaultKind.RACE


@pytest.mark.parametrize("target", [PTX, LLVM])
def test_a_scratchpad_that_is_too_small(planted: dict[str, Planted], target: str) -> None:
    assert caught(planted[target], cut=256) is FaultKind.OUT_OF_BOUNDS


@pytest.mark.parametrize("target", [PTX, LLVM])
def test_a_store_to_the_scratchpad_left_out(planted: dict[str, Planted], target: str) -> None:
    store = {PTX: r"st\.shared[^;]*;", LLVM: r"  store float %v\d+, ptr %v\d+, align 4\n"}[target]

    def change(text: str) -> str:
        assert re.search(store, text)
        return re.sub(store, "", text, count=1)

    assert caught(planted[target], change) is FaultKind.UNINITIALISED


def test_a_barrier_that_some_lanes_pass_by(planted: dict[str, Planted]) -> None:
    """The last one, behind the only block of a short product: nothing races after it."""

    def ptx(text: str) -> str:
        some = ".reg .pred %some; .reg .b32 %me; mov.u32 %me, %tid.x; setp.lt.u32 %some, %me, 32;\n@%some "
        before, barrier, after = text.rpartition(BARRIER[PTX])
        return before + "{" + some + barrier + "}" + after

    def llvm(text: str) -> str:
        before, barrier, after = text.rpartition(BARRIER[LLVM])
        label = re.findall(r"^(\w+):", before, re.MULTILINE)[-1]
        some = "  %some = icmp ult i32 %me, 64\n  br i1 %some, label %meet, label %past\n"
        me = "  %me = call i32 @llvm.amdgcn.workitem.id.x()\n"
        changed = f"{before}{me}{some}meet:\n{barrier}  br label %past\npast:\n{after}"
        return changed.replace(f"%{label} ]", "%past ]")

    assert caught(planted[PTX], ptx, depth=3) is FaultKind.DIVERGENT_BARRIER
    assert caught(planted[LLVM], llvm, depth=3) is FaultKind.DIVERGENT_BARRIER


@pytest.mark.parametrize("target", [PTX, LLVM])
def test_a_row_too_far_leaves_its_buffer(planted: dict[str, Planted], target: str) -> None:
    """Bounds of rows are taken away."""

    def change(text: str) -> str:
        if target == LLVM:
            return re.sub(r"= icmp slt i64 (%\w+), (%\w+)", r"= icmp sle i64 \1, \1", text)
        return re.sub(r"setp\.(ge|gt)\.s64 \t(%p\d+), (%rd\d+), [^;]*;", r"setp.lt.s64 \2, \3, \3;", text)

    assert caught(planted[target], change) is FaultKind.OUT_OF_BOUNDS


def test_matrix_instructions_of_wide_waves_on_narrow_ones() -> None:
    made = Planted(product("f32", False), "rocm-gfx90a")
    with pytest.raises(KernelFault, match="for waves of 64 lanes, these have 32"):
        made.run(operands(), warp=32)


def test_exchanges_of_wide_waves_on_narrow_ones_give_wrong_values() -> None:
    inputs, build, arrays = CASES["softmax"]
    graph = graph_of(inputs, build)
    made = Planted(graph, "rocm-gfx90a")
    wide = {"x0": np.random.default_rng(0).standard_normal((3, *arrays[0][0].shape[1:])).astype(np.float32)}
    want = interpret(graph, wide)
    (name,) = want
    np.testing.assert_allclose(made.run(wide)[name], want[name], atol=1e-6)
    try:
        got = made.run(wide, warp=32)[name]
    except KernelFault:
        return
    assert np.abs(got - want[name]).max() > 1e-3
