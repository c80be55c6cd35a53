"""The planner's tiles against an exhaustive search on a simulator that shares no code with it."""

from __future__ import annotations

import math
import random

import pytest

from hwsdk.codegen.planner import Contraction, plan, plan_top
from hwsdk.codegen.schedule import ContractionSchedule
from tests.planner.chips import I8, KB, staged
from tests.planner.counting_sim import Chip, Tiling, scratchpad_need, search, walk

CHIPS = {
    "base": Chip(),
    "small scratchpad": Chip(pad=32 * KB),
    "unit 32x32x32": Chip(unit=(32, 32, 32), interval=32),
    "unit 4x64x4": Chip(unit=(4, 64, 4), interval=4, feed=256),
    "no accumulators": Chip(acc=0, feed=160),
    "blocking copies": Chip(engine=False),
    "fast memory": Chip(dram=64),
    "slow memory": Chip(dram=4),
}
ODD_CHIPS = {
    "8x32x16": Chip(unit=(8, 32, 16), interval=8, pad=128 * KB, acc=32 * KB, dram=8, latency=300),
    "32x16x32": Chip(unit=(32, 16, 32), interval=32, pad=512 * KB, acc=128 * KB, dram=32, feed=128),
    "8x8x8": Chip(unit=(8, 8, 8), interval=8, pad=64 * KB, acc=16 * KB, dram=6, feed=32),
    "16x16x64": Chip(unit=(16, 16, 64), interval=32, pad=192 * KB, acc=0, engine=False, dram=24, feed=256),
    "64x64x16": Chip(unit=(64, 64, 16), interval=16, pad=96 * KB, acc=32 * KB, dram=48, feed=512, setup=80),
    "latency": Chip(latency=900, setup=10, pad=48 * KB, acc=8 * KB, dram=12),
}
SHAPES = [
    (1, 1024, 1024), (1, 16, 16), (3, 5, 7), (4, 512, 2048), (8, 768, 768), (16, 384, 384), (17, 33, 65),
    (32, 128, 4096), (64, 64, 64), (66, 232, 120), (100, 100, 100), (127, 383, 385), (128, 384, 384),
    (128, 1536, 384), (128, 384, 1536), (197, 768, 768), (256, 256, 1024), (290, 32, 16), (333, 777, 555),
    (1000, 16, 1000),
]  # fmt: skip


def random_shapes(seed: int, count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    return [tuple(int(2 ** rng.uniform(0, 9.6)) for _ in "mnk") for _ in range(count)]  # type: ignore[misc]


def tiling(schedule: ContractionSchedule) -> Tiling:
    return Tiling(*schedule.tiles, *schedule.register_tile, schedule.order, schedule.buffers)


def ratio(chip: Chip, shape: tuple[int, int, int]) -> float:
    """Best time found by search / time of the planner's tiling; the tiling must fit."""
    mine = tiling(plan(staged(chip), Contraction(*shape, **I8)))
    need = scratchpad_need(chip, shape, mine)
    assert need is not None, f"{shape}: accumulators overflow with {mine}"
    assert need <= chip.pad, f"{shape}: {need} of {chip.pad} bytes with {mine}"
    return search(chip, shape, seconds=4.0, start=mine).cycles / walk(chip, shape, mine)


def geomean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def random_chip(rng: random.Random) -> Chip:
    """A chip that nobody chose: shapes, sizes and rates drawn over the range of plausible ones."""
    m, n, k = (rng.choice((4, 8, 16, 32, 64)) for _ in "mnk")
    interval = max(1, m * n * k // rng.choice((64, 256, 1024)))
    return Chip(
        unit=(m, n, k),
        interval=interval,
        pad=rng.choice((32, 64, 96, 128, 192, 256, 512)) * KB,
        acc=rng.choice((0, 16, 32, 64, 128)) * KB,
        dram=rng.choice((4, 8, 16, 32, 64)),
        feed=rng.choice((32, 64, 128, 256)),
        latency=rng.choice((50, 100, 300, 600)),
        setup=rng.choice((5, 30, 60)),
        fill=rng.choice((8, 32)),
        engine=rng.random() < 0.8,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_near_the_best_on_every_chip(name: str) -> None:
    ratios = [ratio(CHIPS[name], shape) for shape in SHAPES]
    worst = sorted(zip(ratios, SHAPES, strict=True))[:5]
    assert geomean(ratios) >= 0.97, worst
    assert min(ratios) >= 0.9, worst


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_CHIPS)
def test_near_the_best_on_odd_chips_and_random_shapes(name: str) -> None:
    shapes = random_shapes(seed=sorted(ODD_CHIPS).index(name), count=20)
    ratios = [ratio(ODD_CHIPS[name], shape) for shape in shapes]
    assert geomean(ratios) >= 0.97, sorted(zip(ratios, shapes, strict=True))[:5]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_near_the_best_on_random_chips(seed: int) -> None:
    """Neither chips nor shapes were looked at while the cost function was written."""
    chip, shapes = random_chip(random.Random(1000 + seed)), random_shapes(2000 + seed, 20)
    ratios = [ratio(chip, shape) for shape in shapes]
    assert geomean(ratios) >= 0.96, (chip, sorted(zip(ratios, shapes, strict=True))[:5])


@pytest.mark.parametrize("name", ["base", "slow memory", "no accumulators"])
def test_near_the_best_on_a_few_shapes(name: str) -> None:
    ratios = [ratio(CHIPS[name], shape) for shape in SHAPES[4:14:3]]
    assert geomean(ratios) >= 0.97


def test_prediction_is_near_the_simulation() -> None:
    chip = CHIPS["base"]
    for shape in SHAPES[3:]:
        schedule = plan(staged(chip), Contraction(*shape, **I8))
        assert 0.8 <= schedule.cycles / walk(chip, shape, tiling(schedule)) <= 1.15, shape


def test_the_best_plans_are_ordered_by_prediction() -> None:
    plans = plan_top(staged(), Contraction(128, 384, 384, **I8), 8)
    assert len(plans) == 8
    assert [p.cycles for p in plans] == sorted(p.cycles for p in plans)


def test_the_simulator_counts_what_it_should() -> None:
    """One step by hand: both loads, latency, one use of the unit, the result."""
    chip = Chip()
    one = Tiling(16, 16, 16, 16, 16, "mnk", 1)
    loads = 2 * (chip.setup + 256 / chip.dram)
    work = max(chip.interval, 512 / chip.feed) + chip.fill
    leaving = chip.setup + 256 * chip.out / chip.dram
    assert walk(chip, (16, 16, 16), one) == loads + chip.latency + work + leaving
    assert scratchpad_need(chip, (16, 16, 16), one) == 512
    assert scratchpad_need(chip, (16, 16, 16), Tiling(16, 16, 16, 256, 256, "mnk", 1)) is None
