"""Plans for the described lock-step chips: within every limit of the description, and like those of tuned libraries."""

from __future__ import annotations

import math
from functools import cache

import pytest

from hwsdk.codegen.planner import Abilities, Contraction, plan
from hwsdk.codegen.planner.roles import contraction_roles
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import dtype
from hwsdk.intrinsics import load_checked
from hwsdk.target_desc.model import Target
from tests.planner.chips import BF16

ABLE = Abilities(max_buffers=5, split_k=True)
CHIPS = {
    "cuda-sm75": "f16", "cuda-sm80": "bf16", "cuda-sm89": "f16", "cuda-sm90": "bf16", "cuda-sm100": "bf16",
    "rocm-gfx908": "bf16", "rocm-gfx90a": "bf16", "rocm-gfx942": "bf16", "rocm-gfx1100": "bf16",
    "dcu-gfx906": "f16", "dcu-gfx928": "f16",
}  # fmt: skip
SHAPES = [(4096, 4096, 4096), (512, 512, 512), (16, 4096, 4096), (1, 1000, 77), (333, 50, 2000)]


@cache
def chip(name: str) -> Target:
    return load_checked(name, detect=False)


def assert_within_limits(target: Target, problem: Contraction, schedule: ContractionSchedule) -> None:
    """Shared memory, registers and warps, counted anew from the schedule and the description."""
    pad = next(m for m in target.memories if m.kind == "scratchpad")
    file = next(m for m in target.memories if m.kind == "registers")
    warp, lane = target.level("warp"), target.level("lane")
    intrinsic = target.intrinsics[schedule.intrinsic]
    roles = contraction_roles(target, intrinsic)
    assert roles is not None
    through_registers = not any(u.kind == "dma" for u in target.units)
    buffers = 1 if through_registers else schedule.buffers
    um, un, uk = schedule.unit_shape
    m, n, k = (-(-t // u) * u for t, u in zip(schedule.tiles, (um, un, uk), strict=True))
    whole = all(t >= w for t, w in zip(schedule.tiles, schedule.worker_tile, strict=True))
    staged = (m * problem.a_bytes + n * problem.b_bytes) * k * (1 if whole else buffers)
    assert pad.usable_bytes is not None
    assert staged <= schedule.used_bytes + 1e-9 or whole
    assert schedule.used_bytes <= pad.usable_bytes
    assert (schedule.used_bytes + pad.reserved_bytes) * schedule.occupancy <= pad.pool_bytes_per["core"]
    assert warp.max is not None
    assert lane.count is not None
    groups = schedule.groups * intrinsic.scope_count
    assert groups <= warp.max
    core = target.level("core")
    assert groups * schedule.occupancy <= core.resident["warp"]
    assert schedule.occupancy <= core.resident["workgroup"]
    mr, nr = schedule.register_tile
    slices = ((roles.a, mr * problem.a_bytes), (roles.b, nr * problem.b_bytes))
    held = sum(size for name, size in slices if intrinsic.operands[name].place == file.name) * uk
    size = mr * nr * dtype(problem.acc).size_bytes + held
    assert file.count is not None
    assert size / (lane.count * intrinsic.scope_count) + file.reserved_bytes <= file.count * 4
    assert size * schedule.groups * schedule.occupancy <= file.pool_bytes_per["core"]


@pytest.mark.parametrize("name", CHIPS)
def test_plans_fit_the_chip(name: str) -> None:
    target, kind = chip(name), CHIPS[name]
    for shape in SHAPES:
        problem = Contraction(*shape, a=kind, b=kind, acc="f32", out=kind)
        schedule = plan(target, problem, ABLE)
        assert_within_limits(target, problem, schedule)
        assert math.isfinite(schedule.cycles)
        least = 2 * math.prod(shape) / _operations_per_cycle(target, schedule.intrinsic)
        assert schedule.cycles >= 0.99 * least, "faster than the unit's peak"


def _operations_per_cycle(target: Target, intrinsic: str) -> float:
    from hwsdk.intrinsics import compiled

    x = compiled(target)[intrinsic]
    peak, clock = x.peak_tops(), target.unit(x.spec.unit).clock_ghz
    assert peak is not None
    assert clock is not None
    return peak * 1000 / clock


@pytest.mark.parametrize("name", ["cuda-sm80", "cuda-sm90", "rocm-gfx90a", "rocm-gfx942"])
def test_plans_are_those_of_tuned_libraries(name: str) -> None:
    """Tiles that libraries use on these chips, found from the numbers alone; large products come near what bounds them:
    the peak, or the blocks' way through the cache that all cores share."""
    target = chip(name)
    square = plan(target, Contraction(4096, 4096, 4096, **BF16), ABLE)
    assert square.tiles[0] * square.tiles[1] in (64 * 128, 128 * 128, 128 * 256)
    assert square.buffers >= 2
    peak = 2 * 4096**3 / _operations_per_cycle(target, square.intrinsic)
    shared = next(m for m in target.memories if m.kind == "cache" and m.per == target.levels[0].name)
    assert shared.read_bytes_per_cycle is not None
    moved = 2 * 4096**3 * (1 / square.tiles[0] + 1 / square.tiles[1])
    assert square.cycles <= 1.4 * max(peak, moved / shared.read_bytes_per_cycle)
    small = plan(target, Contraction(512, 512, 512, **BF16), ABLE)
    assert small.tiles[0] * small.tiles[1] <= 64 * 128
    skinny = plan(target, Contraction(16, 4096, 4096, **BF16), ABLE)
    assert skinny.tiles[0] == 16
    assert skinny.tiles[2] >= 64


def test_operands_that_wait_in_registers_are_counted() -> None:
    """Without a copy engine a second buffer is a tile in registers, and each further one another tile."""
    target = chip("rocm-gfx90a")
    problem = Contraction(512, 512, 512, **BF16)
    deep = plan(target, problem, Abilities(max_buffers=6))
    staged = (deep.tiles[0] + deep.tiles[1]) * deep.tiles[2] * 2
    mr, nr = deep.register_tile
    held = deep.groups * (mr * nr * 4) + (deep.buffers - 1) * staged
    assert held * deep.occupancy <= target.memory("regs").pool_bytes_per["core"]


def test_a_cache_beside_the_scratchpad_does_not_multiply_traffic() -> None:
    """What is staged passes a small cache once per block: with and without it the same tile is planned."""
    from dataclasses import replace

    target = chip("rocm-gfx90a")
    without = replace(target, memories=tuple(m for m in target.memories if m.name != "l1"))
    problem = Contraction(4096, 4096, 4096, **BF16)
    near, bare = plan(target, problem, ABLE), plan(without, problem, ABLE)
    assert near.tiles == bare.tiles
    assert near.cycles == pytest.approx(bare.cycles, rel=0.05)
