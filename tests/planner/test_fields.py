"""Changing one field of a description changes the decision that depends on it, and nothing has to be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwsdk.codegen.planner import Abilities, Contraction, plan
from hwsdk.codegen.planner.contraction import predict
from hwsdk.target_desc import load_target
from hwsdk.target_desc.model import Cost, Intrinsic, Memory, Operand, Target
from tests.planner.chips import BF16, I8, KB, grouped, simd, staged, wide
from tests.planner.counting_sim import Chip

GEMM = Contraction(512, 512, 512, b_constant=True)
STAGED = Contraction(512, 512, 512, **I8)


def test_smaller_scratchpad_smaller_tiles() -> None:
    large, small = plan(staged(), STAGED), plan(staged(Chip(pad=32 * KB)), STAGED)
    assert small.tiles != large.tiles
    assert small.used_bytes <= 32 * KB < large.used_bytes


def test_unit_shape_sets_the_granule() -> None:
    schedule = plan(staged(Chip(unit=(8, 8, 32), interval=8)), STAGED)
    assert schedule.unit_shape == (8, 8, 32)
    assert [t % u for t, u in zip(schedule.tiles, (8, 8, 32), strict=True)] == [0, 0, 0]
    assert schedule.tiles != plan(staged(), STAGED).tiles


def test_more_registers_larger_register_tile() -> None:
    def area(target: Target) -> int:
        rows, columns = plan(target, GEMM).register_tile
        return rows * columns

    assert area(simd(registers=16)) < area(simd(registers=32))


def test_longer_chain_more_accumulators() -> None:
    def accumulators(chain: float) -> int:
        schedule = plan(simd(registers=32, chain_cycles=chain), GEMM)
        return schedule.register_tile[0] * schedule.vectors

    assert accumulators(8) >= 16 > 12 >= 8
    assert accumulators(2) >= 4


def test_costly_forks_larger_worker_tiles() -> None:
    cheap, dear = plan(simd(cores=2, fork=100), GEMM), plan(simd(cores=2, fork=60_000), GEMM)
    assert dear.workers_tiles < cheap.workers_tiles


def test_ways_limit_rows_at_aligned_strides() -> None:
    aligned = Contraction(1024, 1024, 1024, b_constant=True)
    near = {"read_bytes_per_cycle": 128, "write_bytes_per_cycle": 64}
    unstated = wide(memory={"l1": {**near, "ways": None}, "l2": {"ways": None}})
    assert plan(wide(), aligned).register_tile[0] <= 7 < plan(unstated, aligned).register_tile[0]


def test_address_registers_limit_rows() -> None:
    target = wide()
    target = replace(target, codegen=replace(target.codegen, address_registers=5))
    assert plan(target, GEMM).register_tile[0] <= 5


def test_no_accumulators_c_lies_in_the_scratchpad() -> None:
    schedule = plan(staged(Chip(acc=0, feed=160)), STAGED)
    assert schedule.accumulate == "pad"
    m, n, k = schedule.tiles
    assert schedule.used_bytes >= m * n * 4 + m * k + k * n


def test_copies_through_registers_keep_one_buffer_in_the_scratchpad() -> None:
    through, beside = plan(staged(copies="registers"), STAGED), plan(staged(), STAGED)
    assert through.buffers == 2
    assert through.used_bytes - beside.used_bytes != 0


def test_latency_makes_few_stages_dear() -> None:
    def loss(latency: float) -> float:
        chip = grouped()
        places = [replace(m, latency_cycles=latency) if m.name == "dram" else m for m in chip.memories]
        target, problem = replace(chip, memories=tuple(places)), Contraction(512, 512, 512, **BF16)
        schedule = plan(target, problem, Abilities(max_buffers=6))
        return predict(target, problem, replace(schedule, buffers=2)) / schedule.cycles

    assert loss(20) < loss(2000)


def test_results_that_leave_through_the_scratchpad_take_room_there() -> None:
    target = staged()
    mma = target.intrinsics["mma"]
    moved = {"d": replace(mma.operands["a"], name="d"), "x": replace(mma.operands["acc"], name="x")}
    store = replace(mma, name="store", semantics="d[n] = i8(x[n])", operands=moved, dims={"n": 64})
    through = replace(target, intrinsics={**target.intrinsics, "store": store})
    same = replace(STAGED, m=64, n=64, k=64)
    assert plan(through, same).used_bytes > plan(target, same).used_bytes - 1
    m, n, k = plan(through, STAGED).tiles
    assert plan(through, STAGED).used_bytes >= 2 * (m * k + n * k) + m * n


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_the_shipped_cpu_descriptions(name: str) -> None:
    schedule = plan(load_target(name, detect=False), Contraction(128, 384, 384, b_constant=True))
    assert schedule.register_tile in {"x86-64-v3": [(4, 24), (6, 16)], "x86-64-v4": [(8, 48), (9, 48)]}[name]


def test_the_shipped_accelerator_description() -> None:
    target = load_target("examples/new_chip/npu.yaml", detect=False)
    schedule = plan(target, Contraction(512, 512, 512, a="bf16", b="bf16", acc="f32", out="f32"))
    assert schedule.intrinsic == "mma_bf16"
    assert schedule.buffers == 2
    assert schedule.used_bytes <= 256 * KB
    whole = Contraction(512, 512, 512, **{**I8, "out": "i32"})
    assert plan(target, whole).intrinsic == "mma_i8"


def test_tile_registers_are_shared_by_accumulators_and_operands() -> None:
    """Eight registers of 1 KiB, each a 16 x 16 result or a 16 x 64 operand: two by two results, two and two
    operands."""
    target = simd(fmas=1, memory={"l2": {"read_bytes_per_cycle": 200}})
    places = [*target.memories, Memory("tile", "registers", "core", count=8, width_bytes=1024)]
    operands = {x: Operand(x, "i32" if x == "acc" else "i8", "tile") for x in ("acc", "a", "b")}
    semantics = "acc[m, n] += sum[k](i32(a[m, k]) * i32(b[k, n]))"
    cost = Cost(issue_per_cycle=1 / 16, latency_cycles=52)
    multiply = Intrinsic(
        "multiply", "fma", "core", semantics, operands, {}, cost, {"m": 16, "n": 16, "k": 64}
    )
    target = replace(target, memories=tuple(places), intrinsics={"multiply": multiply})
    schedule = plan(target, Contraction(512, 512, 512, **{**I8, "out": "i32"}, b_constant=True))
    assert schedule.register_tile == (32, 32)
