"""Products whose operands stay in the scratchpad: values on both machines, planted faults, the text that ships."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.llvm_simt import scratch_bytes, threads
from hwsdk.codegen.loop_ir import Body, For, If, LoopKernel, Stmt, Sync
from hwsdk.codegen.lower.lowered import Lowered
from hwsdk.codegen.lower.simt.contraction import ABLE
from hwsdk.codegen.lower.simt.resident import resident_uses
from hwsdk.codegen.planner import Contraction
from hwsdk.codegen.planner.contraction import predict
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import SimulationError
from hwsdk.graph.dims import evaluate, free_symbols
from hwsdk.graph.graph import GraphBuilder
from hwsdk.sim.lanes.machine import LaneMachine
from hwsdk.sim.simt.describe import chip_of
from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.target_desc import load_target
from hwsdk.targets.cuda.ptx import Module
from hwsdk.targets.cuda.resources import tool
from tests.lanes.assembled import assemble, sass_loop
from tests.lanes.test_gemm_text import LAYOUTS, SIZE, at_size, shipped, stages

Array = np.ndarray[Any, Any]
CHIP = "cuda-sm90"
BF16 = np.dtype(ml_dtypes.bfloat16)
WHOLE, EDGES = (128, 256, 512), (120, 264, 168)


@lru_cache
def operands(m: int, n: int, k: int, layout: str) -> tuple[Array, Array, Array]:
    """A, B as the layout has it, and their product."""
    rng = np.random.default_rng(m + n + k)
    a, b = ((rng.integers(-8, 9, shape) / 16).astype(BF16) for shape in ((m, k), (k, n)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    return a, b if layout == "rows" else np.ascontiguousarray(b.T), want


@dataclass(frozen=True)
class Run:
    """error: greatest, in units of the bound; conflicts: passes over the banks that were in vain."""

    error: float
    conflicts: int


def launch(text: str, sizes: tuple[int, int, int], layout: str) -> Run:
    """The version for the big size, on small ones."""
    target, version, _ = shipped(CHIP, layout)
    a, b, want = operands(*sizes, layout)
    engine, known = Engine(chip_of(target)), dict(zip("mnk", sizes, strict=True))
    out = engine.allocate(want.size * 2, "c")
    inputs = {"x": a, "w": b}
    args = [engine.copy_of(inputs[n], n, read_only=True) if n in inputs else out for n in version.args]
    dims = [known[name.rstrip("$")] for name in version.loop.dims]
    grid = int(evaluate(version.grid, {s: known[s.rstrip("$")] for s in free_symbols(version.grid)}))
    shared = int(str(scratch_bytes(version.loop, target)))
    program = Module.parse(text).kernels[version.loop.name]
    stats = engine.launch(program, (grid,), (threads(version.loop),), [*args, *dims], shared)
    got = engine.read(out, BF16, want.shape).astype(np.float64)
    return Run(float((np.abs(got - want) / bound(want, sizes)).max()), stats.bank_conflicts)


def bound(want: Array, sizes: tuple[int, int, int]) -> Array:
    """Half a unit in the last place of the result, and the rounding of float sums."""
    return np.abs(want) * 2.0**-8 + sizes[2] * 2.0**-24 + 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_big_product_reads_its_operands_from_the_scratchpad(layout: str) -> None:
    target, version, _ = shipped(CHIP, layout)
    schedule = version.schedule
    assert isinstance(schedule, ContractionSchedule)
    names = {u.intrinsic.name for u in resident_uses(target) if u.intrinsic is not None}
    assert schedule.intrinsic in names
    assert schedule.intrinsic.endswith("_kn") == (layout == "rows")
    assert threads(version.loop) == schedule.lanes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [WHOLE, EDGES, (256, 512, 1032), (1, 256, 8)])
def test_the_text_is_right(sizes: tuple[int, int, int], layout: str) -> None:
    made = launch(shipped(CHIP, layout)[2], sizes, layout)
    assert made.error <= 1
    assert made.conflicts == 0 or sizes != WHOLE


@pytest.mark.parametrize("sizes", [(1, 1, 1), (37, 45, 19), (130, 264, 72), (0, 8, 8)])
def test_sizes_that_it_cannot_have_are_others(sizes: tuple[int, int, int]) -> None:
    """The whole family behind its guards."""
    a, b, want = operands(*sizes, "rows")
    got = api.Simulation(stages(CHIP, "rows"))(x=a, w=b)["y"].astype(np.float64)
    assert (np.abs(got - want) <= bound(want, sizes)).all()


# ------------------------------------------------------------------------------------------------- LoopIR
def on_loops(kernel: LoopKernel, version: Lowered, sizes: tuple[int, int, int], layout: str) -> float:
    """The same on the machine that defines LoopIR."""
    a, b, want = operands(*sizes, layout)
    out = np.zeros(want.size, BF16)
    arrays = {"x": a.reshape(-1), "w": b.reshape(-1)}
    buffers = {p.name: arrays.get(n, out) for p, n in zip(kernel.params, version.args, strict=True)}
    known = dict(zip("mnk", sizes, strict=True))
    dims = {d: known[d.rstrip("$")] for d in kernel.dims}
    LaneMachine(kernel, shipped(CHIP, layout)[0]).run(buffers, dims)
    return float((np.abs(out.reshape(want.shape).astype(np.float64) - want) / bound(want, sizes)).max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_loops_are_right(layout: str) -> None:
    _, version, _ = shipped(CHIP, layout)
    assert on_loops(version.loop, version, (128, 256, 136), layout) <= 1
    assert on_loops(version.loop, version, (120, 264, 72), layout) <= 1


def without(body: Body, dropped: Callable[[Sync], bool]) -> Body:
    """The statements without some syncs."""
    out: list[Stmt] = []
    for s in body:
        match s:
            case Sync() if dropped(s):
                continue
            case For(body=inner):
                out.append(replace(s, body=without(inner, dropped)))
            case If(then=then, orelse=orelse):
                out.append(replace(s, then=without(then, dropped), orelse=without(orelse, dropped)))
            case _:
                out.append(s)
    return tuple(out)


@pytest.mark.parametrize(
    ("dropped", "words"),
    [
        (lambda s: s.name == "wgmma_wait" and s.pending == 0, "was not waited for"),
        (lambda s: s.name == "wgmma_wait", "is written while an asynchronous copy"),
        (lambda s: s.name == "cp_wait", "is read while an asynchronous copy"),
        (lambda s: s.name == "barrier", "race"),
    ],
    ids=["no last wait", "no wait for products", "no wait for copies", "no barrier"],
)
def test_syncs_that_are_missing_are_seen_in_the_loops(dropped: Callable[[Sync], bool], words: str) -> None:
    _, version, _ = shipped(CHIP, "columns")
    kernel = replace(version.loop, body=without(version.loop.body, dropped))
    with pytest.raises(SimulationError, match=words):
        on_loops(kernel, version, WHOLE, "columns")


# ------------------------------------------------------------------------------------------- planted in the text
@dataclass(frozen=True)
class Case:
    """pattern, new: what is changed everywhere in the text.  kind None: the values are wrong."""

    name: str
    pattern: str
    new: str
    kind: FaultKind | None
    words: str = ""
    layout: str = "columns"


CASES = (
    Case("sums read early", r"wgmma\.wait_group\.sync\.aligned\s+0;", "", FaultKind.IN_FLIGHT, "is read before"),
    Case("waits two blocks behind", r"(wgmma\.wait_group\.sync\.aligned\s+)1;", r"\g<1>2;", FaultKind.IN_FLIGHT,
         "before the wait for the product that reads it"),
    Case("sums not handed over", r"wgmma\.fence\.sync\.aligned;", "", FaultKind.UNFENCED, "registers of a product"),
    Case("blocks not handed over", r"fence\.proxy\.async\.shared::cta;", "", FaultKind.UNFENCED, "without a fence"),
    Case("no barrier", r"^\s*bar\.sync[^\n]*$", "", FaultKind.RACE, "reads"),
    Case("late copies", r"(cp\.async\.wait_group\s+)1;", r"\g<1>2;", FaultKind.IN_FLIGHT, "before the wait for the"),
    Case("A turned by the next line", r"\A([\s\S]*?xor\.b(\d+)\s+(%rd?\d+)[^;]*;)", r"\1 xor.b\2 \3, \3, 1;", None,
         layout="rows"),  # turned alike, A and B would give the same sums
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_planted_fault_is_named(case: Case) -> None:
    text, count = re.subn(case.pattern, case.new, shipped(CHIP, case.layout)[2], flags=re.MULTILINE)
    assert count, case.pattern
    if case.kind is None:
        assert launch(text, WHOLE, case.layout).error > 1
        return
    with pytest.raises(KernelFault, match=case.words) as caught:
        launch(text, WHOLE, case.layout)
    assert caught.value.kind is case.kind, str(caught.value)


# ------------------------------------------------------------------------------------------- beside the big product
@pytest.mark.parametrize(
    ("sizes", "launches"),
    [
        # no chunk is whole, so nothing can stay in the scratchpad
        ((1024, 1024, 132), ["k0_contraction_spare_any"]),
        ((128, 128, 8192), ["k0_contraction_v0_parts", "k0_contraction_sum"]),
    ],
)
def test_products_of_known_sizes(sizes: tuple[int, int, int], launches: list[str]) -> None:
    m, n, k = sizes
    b = GraphBuilder("product")
    x, w = b.input("x", "bf16", (m, k)), b.input("w", "bf16", (n, k))
    b.output(b.node("dot_general", [x, w], contract=((1, 1),)), "y")
    made = api.compile_stages(b.finish(), load_target(CHIP))
    assert [item.loop.name for item in made.lowered] == launches
    left, right, want = operands(m, n, k, "columns")
    got = api.instructions(made)(x=left, w=right)["y"].astype(np.float64)
    assert (np.abs(got - want) <= bound(want, sizes)).all()


# ----------------------------------------------------------------------------------------------- machine code
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_machine_code_keeps_the_unit_busy(layout: str, tmp_path: Path) -> None:
    """No spills, products that are not serialised, and an inner loop whose other instructions take few issue slots."""
    assembler, disassembler = tool("ptxas"), tool("nvdisasm")
    if assembler is None or disassembler is None:
        pytest.skip("no ptxas and nvdisasm on the path or in a package (pip install 'hwsdk[gpu-check]')")
    target, version, text = shipped(CHIP, layout)
    schedule = version.schedule
    assert isinstance(schedule, ContractionSchedule)
    made = assemble(assembler, text, "sm_90a", tmp_path)
    assert made.spill_bytes == 0
    assert made.registers == pytest.approx(schedule.registers, rel=0.15)
    assert "GMMA" not in made.said  # serialised, or a fence that the assembler had to add
    done = subprocess.run([disassembler, made.cubin], capture_output=True, text=True, check=True)
    loop = sass_loop(done.stdout)
    cost, groups = target.intrinsic(schedule.intrinsic).cost, schedule.groups
    assert cost.issue_per_cycle is not None
    blocks, uses = schedule.buffers, schedule.tiles[2] // schedule.unit_shape[2]
    assert loop.products >= blocks * uses * schedule.register_tile[0] // schedule.unit_shape[0]
    m, n, k = schedule.unit_shape
    alike = (
        loop.products * (m * n * k) / (16 * 8 * 16)
    )  # as many products of one warp, m16n8k16, would do the same
    assert alike >= 0.9 * (alike + loop.other.total()), loop.other
    busy = groups * loop.products / cost.issue_per_cycle
    issued = schedule.lanes // 32 * loop.instructions / target.unit("tensor").count
    assert issued <= 0.15 * busy


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_predicted_time_is_near_what_bounds_it(layout: str) -> None:
    """The unit's peak, or the blocks' way through the last level of cache."""
    target, version, _ = shipped(CHIP, layout)
    schedule = version.schedule
    assert isinstance(schedule, ContractionSchedule)
    problem = Contraction(SIZE, SIZE, SIZE, a="bf16", b="bf16", out="bf16")
    hertz = (target.level("core").clock_ghz or 1) * 1e9
    seconds = predict(target, problem, schedule, ABLE) / hertz
    peak, cache = (
        target.intrinsic(schedule.intrinsic).cost.peak_tops,
        target.memory("l2").read_bytes_per_cycle,
    )
    assert peak is not None
    assert cache is not None
    rows, columns, _ = schedule.tiles
    moved = 2 * SIZE**3 * (1 / rows + 1 / columns)
    at_least = max(2 * SIZE**3 / (peak * 1e12), moved / (cache * hertz))
    assert at_least <= seconds <= at_least / 0.8
    assert at_size(scratch_bytes(version.loop, target)) == schedule.used_bytes
