"""The big matrix product as it ships: nothing spills, the inner loop multiplies, predictions hold."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from hwsdk import api
from hwsdk.codegen.llvm_simt import scratch_bytes, threads
from hwsdk.codegen.lower.lowered import Lowered, versions
from hwsdk.codegen.lower.simt.contraction import ABLE
from hwsdk.codegen.objects import assembly
from hwsdk.codegen.planner import Contraction
from hwsdk.codegen.planner.contraction import predict
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.graph.dims import Dim, evaluate, free_symbols, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.ral_port.resources import ToolMissing, inspect_code
from hwsdk.target_desc import Target, load_target
from hwsdk.targets.cuda.resources import tool
from tests.lanes.assembled import assemble, ptx_loop, sass_loop

SIZE = 4096
ALONE = " alone"  # without what only several warps together can do, which test_streamed is about
CHIPS = ("cuda-sm80", f"cuda-sm90{ALONE}")
LAYOUTS = ("rows", "columns")  # B as [k, n] or [n, k]


def gemm(dtype: str, layout: str) -> Graph:
    """C[m, n] = A[m, k] * B, all sizes dynamic."""
    b = GraphBuilder("gemm")
    m, n, k = map(sym, "mnk")
    x = b.input("x", dtype, (m, k))
    w = b.input("w", dtype, (k, n) if layout == "rows" else (n, k))
    b.output(b.node("dot_general", [x, w], contract=((1, 0 if layout == "rows" else 1),)), "y")
    return b.finish()


@lru_cache
def chip_of(name: str) -> Target:
    """A chip by name, with ALONE behind it or without."""
    target = load_target(name.removesuffix(ALONE))
    if not name.endswith(ALONE):
        return target
    single = {n: x for n, x in target.intrinsics.items() if x.scope_count == 1}
    return replace(target, intrinsics=single)


@lru_cache
def stages(chip: str, layout: str) -> api.Compilation:
    """All versions."""
    return api.compile_stages(gemm("bf16", layout), chip_of(chip))


@lru_cache
def shipped(chip: str, layout: str) -> tuple[Target, Lowered, str]:
    """The version that runs at the big size, and its text."""
    target, made = chip_of(chip), stages(chip, layout)
    chosen = next(v for item in made.lowered for v in versions(item) if v.guard is None or at_size(v.guard))
    return target, chosen, assembly(chosen.loop.name, made.ir[chosen.loop.name], target)


def at_size(d: Dim) -> int:
    return int(evaluate(d, dict.fromkeys(free_symbols(d), SIZE)))


CASES = pytest.mark.parametrize(("chip", "layout"), [(c, x) for c in CHIPS for x in LAYOUTS])


@CASES
def test_the_inner_loop_is_products(chip: str, layout: str) -> None:
    _, _, text = shipped(chip, layout)
    loop = ptx_loop(text)
    assert loop.products >= 256, "the loop is unrolled over its blocks"
    assert loop.share >= 0.9, loop.other


@CASES
def test_nothing_spills_and_registers_are_as_predicted(chip: str, layout: str, tmp_path: Path) -> None:
    ptxas = tool("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas on the path and no package with one (pip install 'hwsdk[gpu-check]')")
    target, version, text = shipped(chip, layout)
    assert target.codegen.llvm is not None
    made = assemble(ptxas, text, str(target.codegen.llvm.cpu), tmp_path)
    assert made.spill_bytes == 0
    schedule = version.schedule
    assert isinstance(schedule, ContractionSchedule)
    assert made.registers == pytest.approx(schedule.registers, rel=0.15)
    lanes = threads(version.loop)
    assert lanes == schedule.lanes
    assert at_size(scratch_bytes(version.loop, target)) == schedule.used_bytes
    assert resident(target, lanes, made.registers, schedule.used_bytes) == schedule.occupancy


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chip", ["cuda-sm75", "cuda-sm80", "cuda-sm90", "cuda-sm100"])
def test_no_version_of_it_spills(chip: str, layout: str) -> None:
    """Those for other sizes, too."""
    made = api.compile_stages(gemm("f16", layout), load_target(chip))
    try:
        found = inspect_code(made.target, api.bundle_of(made).code)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert {name for name, taken in found.items() if taken.spill_bytes} == set()


def resident(target: Target, lanes: int, registers: int, scratch: int) -> int:
    """Workgroups that one core holds, by what the assembler says that they need."""
    shared, file = target.memory("shared"), target.memory("regs")
    by_file = file.pool_bytes_per["core"] // (-(-registers // 8) * 8 * 4 * lanes)
    return min(by_file, shared.pool_bytes_per["core"] // (scratch + shared.reserved_bytes))


@CASES
def test_machine_code_of_the_inner_loop_is_products(chip: str, layout: str, tmp_path: Path) -> None:
    ptxas, disassembler = tool("ptxas"), tool("nvdisasm")
    if ptxas is None or disassembler is None:
        pytest.skip("no ptxas and nvdisasm on the path or in a package (pip install 'hwsdk[gpu-check]')")
    target, _, text = shipped(chip, layout)
    assert target.codegen.llvm is not None
    made = assemble(ptxas, text, str(target.codegen.llvm.cpu), tmp_path)
    done = subprocess.run([disassembler, made.cubin], capture_output=True, text=True, check=True)
    loop = sass_loop(done.stdout)
    assert loop.products >= 256
    assert loop.share >= 0.9, loop.other


@CASES
def test_the_predicted_time_is_near_the_roofline(chip: str, layout: str) -> None:
    target, version, _ = shipped(chip, layout)
    schedule = version.schedule
    assert isinstance(schedule, ContractionSchedule)
    problem = Contraction(SIZE, SIZE, SIZE, a="bf16", b="bf16", out="bf16")
    seconds = predict(target, problem, schedule, ABLE) / (target.level("core").clock_ghz or 1) / 1e9
    peak = target.intrinsic(schedule.intrinsic).cost.peak_tops
    assert peak is not None
    bound = 2 * SIZE**3 / (peak * 1e12)
    assert bound <= seconds <= bound / 0.8
