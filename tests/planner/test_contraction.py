"""Contraction schedules on cores with caches, on staged and on grouped targets."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hwsdk.codegen.planner import Abilities, Contraction, Range, alternatives, check, plan, plan_top, predict
from hwsdk.codegen.planner.fits import k_chains
from hwsdk.codegen.planner.levels import machines
from hwsdk.codegen.schedule import override
from hwsdk.errors import PlanError
from tests.planner.chips import BF16, I8, KB, MB, grouped, simd, staged, two_pads, wide
from tests.planner.counting_sim import Chip

SQUARES = [(128, 384, 384), (512, 512, 512), (1024, 1024, 1024), (127, 383, 385), (333, 777, 555)]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", SQUARES)
def test_sixteen_registers_of_eight_lanes(shape: tuple[int, int, int], cores: int) -> None:
    """The tiles that are known to be best on such cores, found from the numbers alone."""
    schedule = plan(simd(cores=cores), Contraction(*shape, b_constant=True))
    assert schedule.register_tile in ((4, 24), (6, 16))
    assert schedule.k_chains == 1
    assert schedule.b_layout == "packed"
    assert schedule.panel == schedule.register_tile[1]


@pytest.mark.parametrize("shape", [(16, 384, 384), (128, 384, 384), (128, 1536, 384), (256, 768, 768)])
def test_thirty_two_registers_of_sixteen_lanes(shape: tuple[int, int, int]) -> None:
    assert plan(wide(), Contraction(*shape, b_constant=True)).register_tile == (8, 48)


def test_rows_that_share_cache_sets_are_avoided() -> None:
    """At k = 1024 rows of A lie a multiple of a way apart: no more rows than ways to spare."""
    schedule = plan(wide(), Contraction(1024, 1024, 1024, b_constant=True))
    assert schedule.register_tile[0] <= 7
    free = plan(wide(), Contraction(1024, 1024, 1024, b_constant=True, a_row_bytes=4096 + 64))
    assert free.register_tile == (8, 48)


def test_one_row_splits_its_accumulators() -> None:
    schedule = plan(simd(), Contraction(1, 1024, 1024, b_constant=True))
    assert schedule.register_tile[0] == 1
    assert schedule.vectors * schedule.k_chains >= 8
    assert schedule.bound_by == "l2" or schedule.bound_by == "l3"
    machine = machines(simd(), Contraction(8, 8, 64))[0]
    assert k_chains(machine, Contraction(8, 8, 64), 1, 24) == 3
    assert k_chains(machine, Contraction(8, 8, 64), 4, 24) == 1


def test_workers_get_several_tiles_each() -> None:
    schedule = plan(simd(cores=2), Contraction(512, 512, 512, b_constant=True))
    assert 4 <= schedule.workers_tiles <= 16
    alone = plan(simd(), Contraction(512, 512, 512, b_constant=True))
    assert alone.worker_tile == (512, 512, 512)
    assert 1.8 <= alone.cycles / schedule.cycles <= 2.0


def test_small_work_stays_on_one_worker() -> None:
    assert plan(simd(cores=2), Contraction(4, 32, 32, b_constant=True)).workers_tiles == 1


def test_batches_are_worker_tiles() -> None:
    schedule = plan(simd(cores=2), Contraction(64, 64, 32, batch=24))
    assert schedule.workers_tiles <= 2
    assert schedule.cycles < 1.2 * 12 * plan(simd(), Contraction(64, 64, 32)).cycles


def test_b_that_is_not_constant() -> None:
    assert plan(simd(), Contraction(64, 64, 64)).b_layout == "in_place"
    copied = plan(simd(), Contraction(64, 64, 64, b_contiguous="k"))
    assert copied.b_layout == "copied"
    assert copied.cycles > plan(simd(), Contraction(64, 64, 64)).cycles


def test_dtypes_without_an_intrinsic_use_plain_arithmetic() -> None:
    schedule = plan(simd(), Contraction(64, 64, 64, a="f64", b="f64", acc="f64", out="f64"))
    assert schedule.intrinsic == ""
    assert schedule.unit_shape == (1, 4, 1)


def test_no_way_to_compute_is_one_clear_error() -> None:
    with pytest.raises(PlanError, match=r"no intrinsic computes f32\*f32->f32.*mma \(i8\*i8->i32\)"):
        plan(staged(), Contraction(8, 8, 8))


def test_convolution_blocks_are_whole_taps_or_parts_of_one() -> None:
    problem = Contraction(3136, 64, 9 * 64, b_constant=True, taps=9, a_reuse=9.0)
    for schedule in plan_top(simd(), problem, 8):
        assert schedule.tiles[2] % 64 == 0 or 64 % schedule.tiles[2] == 0
    with pytest.raises(PlanError, match="multiple of 9 taps"):
        Contraction(8, 8, 64, taps=9)


def test_ranges_are_planned_at_a_likely_value() -> None:
    schedule = plan(simd(), Contraction(Range(1, 512, likely=(128,)), 384, 384, b_constant=True))
    assert schedule.shape == (128, 384, 384)


def test_prediction_elsewhere() -> None:
    """A schedule costs on its own problem what was planned, and never less than the plan of another
    problem."""
    problem = Contraction(128, 384, 384, b_constant=True)
    schedule = plan(simd(), problem)
    assert predict(simd(), problem, schedule) == pytest.approx(schedule.cycles, rel=0.02)
    other = replace(problem, m=37)
    assert predict(simd(), other, schedule) >= 0.999 * plan(simd(), other).cycles
    tile = plan(staged(), Contraction(512, 512, 512, **I8))
    small = staged(Chip(pad=8 * KB))
    assert predict(small, Contraction(512, 512, 512, **I8), tile) == float("inf")


def test_alternatives_are_what_a_sweep_should_time() -> None:
    """One per register tile, in the order in which such tiles were measured on a core like this."""
    found = alternatives(simd(), Contraction(128, 384, 384, b_constant=True))
    tiles = [s.register_tile for s in found]
    assert len(set(tiles)) == len(tiles) >= 20
    assert set(tiles[:2]) == {(4, 24), (6, 16)}
    rank = tiles.index
    assert rank((6, 16)) < rank((5, 16)) < rank((4, 16)) < rank((2, 16))
    assert rank((4, 24)) < rank((3, 24)) < rank((12, 8))
    assert len(alternatives(staged(), Contraction(128, 384, 384, **I8))) > 5


def test_overrides_are_checked_against_the_target() -> None:
    problem = Contraction(512, 512, 512, **I8)
    schedule = plan(staged(), problem)
    check(staged(), problem, schedule)
    with pytest.raises(PlanError, match=r"needs \d+ bytes of pad"):
        check(staged(), problem, override(schedule, {"tiles": [512, 512, 512], "register_tile": [128, 128]}))
    flat = Contraction(64, 64, 64, b_constant=True)
    wrong = override(plan(simd(), flat), {"register_tile": [12, 24]})
    with pytest.raises(PlanError, match=r"needs \d+ bytes of vreg"):
        check(simd(), flat, wrong)


def test_nothing_fits_is_one_clear_error() -> None:
    with pytest.raises(PlanError, match=r"no tile of .* fits memory.pad \(128 bytes\)"):
        plan(staged(Chip(pad=128, acc=0)), Contraction(64, 64, 64, **I8))


def test_staged_tiles_are_double_buffered_and_fit() -> None:
    schedule = plan(staged(), Contraction(512, 512, 512, **I8))
    m, n, k = schedule.tiles
    assert schedule.buffers == 2
    assert 2 * (m * k + k * n) <= schedule.used_bytes <= 256 * KB
    assert m * n * 4 <= 64 * KB
    assert schedule.c_stays
    assert plan(staged(copies="blocking"), Contraction(512, 512, 512, **I8)).buffers == 1


def test_two_scratchpads_give_nested_schedules() -> None:
    schedule = plan(two_pads(), Contraction(512, 512, 512, **I8))
    (inner,) = schedule.nested
    assert (schedule.near, inner.near) == ("big", "pad")
    assert inner.shape == schedule.tiles
    assert schedule.used_bytes <= 1 * MB
    assert inner.used_bytes <= 32 * KB
    assert schedule.cycles <= 1.2 * 512**3 / 256  # within 20 % of the unit's limit


def test_grouped_tiles_are_those_of_tuned_libraries() -> None:
    abilities = Abilities(max_buffers=6, split_k=True)
    square = plan(grouped(), Contraction(4096, 4096, 4096, **BF16), abilities)
    assert square.tiles[:2] in ((128, 128), (128, 256), (256, 128))
    assert square.buffers >= 3
    small = plan(grouped(), Contraction(512, 512, 512, **BF16), abilities)
    assert small.tiles[0] * small.tiles[1] <= 64 * 128
    skinny = plan(grouped(), Contraction(16, 4096, 4096, **BF16), abilities)
    assert skinny.tiles[0] == 16
    assert skinny.bound_by == "dram"


def test_planning_takes_milliseconds() -> None:
    cases = [
        (simd(), Contraction(128, 384, 384, b_constant=True)),
        (simd(cores=2), Contraction(1024, 1024, 1024, b_constant=True)),
        (staged(), Contraction(512, 512, 512, **I8)),
    ]
    for target, problem in cases:
        taken = []
        for _ in range(5):
            start = time.process_time()
            plan(target, problem)
            taken.append(time.process_time() - start)
        assert min(taken) < 0.1, f"{target.name} {problem}: {min(taken) * 1e3:.0f} ms"
