"""Whatever the chip and the problem: every plan fits, covers the problem and says so; or there is one clear
error."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen.planner import Contraction, Range, check, plan
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import PlanError
from tests.planner.chips import I8, KB, simd, staged
from tests.planner.counting_sim import Chip, Tiling, scratchpad_need

SIZES = st.one_of(
    st.integers(1, 20), st.sampled_from([31, 97, 127, 509, 1021, 4099, 65537]), st.integers(1, 5000)
)
CHIPS = st.builds(
    Chip,
    unit=st.tuples(*[st.sampled_from([1, 2, 4, 8, 16, 32, 64])] * 3),
    interval=st.sampled_from([1, 4, 16]),
    pad=st.sampled_from([2 * KB, 16 * KB, 40_000, 256 * KB]),
    acc=st.sampled_from([0, 4 * KB, 50_000, 128 * KB]),
    dram=st.sampled_from([0.5, 16, 1000]),
    feed=st.sampled_from([16, 256]),
    latency=st.sampled_from([0, 1000]),
    setup=st.sampled_from([0, 100]),
    fill=st.sampled_from([0, 50]),
    engine=st.booleans(),
)


def consistent(schedule: ContractionSchedule, shape: tuple[int, int, int]) -> None:
    assert schedule.shape == shape
    for extent, worker, level in zip(shape, schedule.worker_tile, schedule.tiles, strict=True):
        assert 1 <= level <= worker <= extent
    assert all(t % u == 0 for t, u in zip(schedule.register_tile, schedule.unit_shape, strict=False))
    assert math.isfinite(schedule.cycles)
    assert schedule.cycles > 0
    assert str(schedule)


@settings(max_examples=60, deadline=None)
@given(chip=CHIPS, m=SIZES, n=SIZES, k=SIZES, cores=st.sampled_from([1, 3]))
def test_every_staged_plan_fits(chip: Chip, m: int, n: int, k: int, cores: int) -> None:
    target, problem = staged(chip, cores), Contraction(m, n, k, **I8)
    um, un, uk = chip.unit
    least = um * uk + uk * un + (0 if chip.acc else um * un * 4)
    if least > chip.pad or 0 < chip.acc < um * un * 4:
        with pytest.raises(PlanError, match="fits"):
            plan(target, problem)
        return
    schedule = plan(target, problem)
    consistent(schedule, (m, n, k))
    tiling = Tiling(*schedule.tiles, *schedule.register_tile, schedule.order, schedule.buffers)
    need = scratchpad_need(chip, schedule.worker_tile, tiling)
    assert need is not None
    assert need <= schedule.used_bytes <= chip.pad
    check(target, problem, schedule)


@settings(max_examples=60, deadline=None)
@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    lanes=st.sampled_from([1, 4, 8, 16]),
    registers=st.sampled_from([4, 16, 32]),
    cores=st.sampled_from([1, 2, 7]),
    batch=st.sampled_from([1, 12]),
    constant=st.booleans(),
    contiguous=st.sampled_from(["n", "k"]),
)
def test_every_cached_plan_fits_registers(
    m: int,
    n: int,
    k: int,
    lanes: int,
    registers: int,
    cores: int,
    batch: int,
    constant: bool,
    contiguous: str,
) -> None:
    target = simd(lanes=lanes, registers=registers, cores=cores)
    problem = Contraction(m, n, k, batch=batch, b_constant=constant, b_contiguous=contiguous)
    schedule = plan(target, problem)
    consistent(schedule, (m, n, k))
    rows = min(schedule.register_tile[0], 14)
    assert rows * schedule.vectors * schedule.k_chains + schedule.vectors + 1 <= registers
    check(target, problem, schedule)


@settings(max_examples=30, deadline=None)
@given(low=st.integers(0, 50), span=st.integers(0, 10_000), likely=st.lists(st.integers(0, 9000), max_size=3))
def test_ranges_have_samples(low: int, span: int, likely: list[int]) -> None:
    extent = Range(low, low + span, tuple(likely))
    samples = extent.samples()
    assert samples
    assert min(samples) >= 1
    assert list(samples) == sorted(set(samples))
    assert extent.typical() >= 0


def test_an_empty_problem_is_planned_like_the_smallest() -> None:
    assert plan(simd(), Contraction(0, 5, 0)).shape == (1, 5, 1)
