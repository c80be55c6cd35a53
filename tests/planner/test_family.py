"""Versions over run-time sizes: few of them, close to a plan per size, picked by a compiled expression."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from hwsdk.codegen.planner import Contraction, Family, Range, family, plan
from hwsdk.codegen.planner.contraction import DEFAULT
from hwsdk.codegen.planner.cost import cost
from hwsdk.codegen.planner.family import tiles_at
from hwsdk.codegen.planner.fits import fits
from hwsdk.codegen.planner.levels import machines
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.runtime import run_tiles
from hwsdk.codegen.planner.tiles import Tiles
from hwsdk.graph.dims import evaluate, free_symbols, parse
from hwsdk.target_desc.model import Target
from tests.planner.chips import I8, simd, staged, wide

ROWS = Contraction(Range(1, 1024), 384, 384, b_constant=True)
ANY = Contraction(Range(1, 1024), Range(16, 2048), Range(16, 2048), b_constant=True)


def cost_of(target: Target, problem: Contraction, found: Family) -> np.ndarray:  # type: ignore[type-arg]
    """Full cost of every version at one size; infinite where it does not fit."""
    by_name = {m.engine.intrinsic: m for m in machines(target, problem)}
    parts = [tiles_at(v, [problem])[0] for v in found.versions]
    machine = by_name[found.versions[0].schedule.intrinsic]
    fit = fits(Nest(machine, problem, Tiles.join(parts)), DEFAULT)
    return np.where(fit.mask, cost(fit.nest).cycles, np.inf)


def random_sizes(count: int, seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    return [
        (int(2 ** rng.uniform(0, 10)), int(2 ** rng.uniform(4, 11)), int(2 ** rng.uniform(4, 11)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("target", [simd(), simd(cores=2), wide(), wide(cores=2)], ids=lambda t: t.name)
def test_few_versions_come_near_a_plan_per_size(target: Target) -> None:
    found = family(target, ROWS)
    assert 1 <= len(found.versions) <= 4
    ratios = []
    for m in (1, 2, 5, 16, 33, 64, 127, 200, 384, 777, 1024):
        sized = ROWS.at(m)
        picked = int(evaluate(found.select, {"m": m}))
        ratios.append(plan(target, sized).cycles / cost_of(target, sized, found)[picked])
    assert np.exp(np.mean(np.log(ratios))) >= 0.95
    assert min(ratios) >= 0.85


@pytest.mark.parametrize("target", [simd(), wide(), staged()], ids=lambda t: t.name)
def test_regret_of_the_compiled_selector(target: Target) -> None:
    """Against the full cost function over random sizes: chosen / best of the family's own versions."""
    problem = ANY if target.name != "staged" else Contraction(ANY.m, ANY.n, ANY.k, **I8)
    points = random_sizes(12, seed=1)
    found = family(target, problem, samples=points)
    regrets = []
    for m, n, k in random_sizes(60, seed=7):
        each = cost_of(target, problem.at(m, n, k), found)
        picked = int(evaluate(found.select, {"m": m, "n": n, "k": k}))
        regrets.append(each.min() / each[picked])
    assert np.exp(np.mean(np.log(regrets))) >= 0.97
    assert min(regrets) >= 0.7


def test_tiles_at_run_time_cover_and_fit() -> None:
    for target, problem in ((simd(cores=2), ROWS), (staged(), Contraction(ROWS.m, 384, 384, **I8))):
        found = family(target, problem)
        for m in (1, 7, 64, 129, 1024, 100_000):
            sized = problem.at(m)
            assert np.isfinite(cost_of(target, sized, found)).any(), (target.name, m)
            for version in found.versions:
                worker, level = version.tiles.worker, version.tiles.level
                sizes = [int(evaluate(d, {"m": m})) for d in (*worker, *level)]
                assert all(s >= 1 for s in sizes)
                assert all(x <= e for x, e in zip(sizes[:3], sized.extents, strict=True))
                assert all(x <= w for x, w in zip(sizes[3:], sizes[:3], strict=True))


def test_rows_shrink_where_they_would_share_cache_sets() -> None:
    machine = machines(wide(), ANY.at())[0]
    schedule = plan(wide(), ANY)
    eight, six = (
        run_tiles(machine, ANY, replace(schedule, register_tile=(rows, 16)), DEFAULT).rows for rows in (8, 6)
    )
    assert evaluate(eight, {"k": 1024}) == 7
    assert evaluate(eight, {"k": 1000}) == 8
    assert six == 6


def test_the_selector_is_text_over_the_unknown_sizes() -> None:
    found = family(simd(), Contraction(Range(1, 512), Range(16, 4096), 768, b_constant=True))
    assert free_symbols(found.select) <= {"m", "n"}
    assert parse(str(found.select)) == found.select
    assert len(found.guards) == len(found.versions)
    for m, n in ((1, 16), (100, 4096)):
        assert sum(evaluate(found.guard(i), {"m": m, "n": n}) for i in range(len(found.versions))) == 1
    assert "of the best per size" in str(found)


def test_constant_sizes_give_one_version() -> None:
    found = family(simd(), Contraction(128, 384, 384, b_constant=True))
    assert len(found.versions) == 1
    assert found.select == 0
    assert found.versions[0].schedule.register_tile in ((4, 24), (6, 16))
