"""Rows, maps and windows: where data lives, how passes are merged, how work is shared out."""

from __future__ import annotations

import pytest

from hwsdk.codegen.planner import MapProblem, RowProblem, WindowProblem, plan_map, plan_rows, plan_window
from tests.planner.chips import KB, MB, simd, staged, wide


def softmax(rows: int, length: int) -> RowProblem:
    """Merging the statistics means to compute the exponential twice."""
    return RowProblem(rows, length, work=22, merged_reads=2, merged_work=38.5)


def layer_norm(rows: int, length: int) -> RowProblem:
    """Sum and sum of squares together cost no extra arithmetic."""
    return RowProblem(rows, length, parameters=2, work=6, merged_reads=2)


@pytest.mark.parametrize(
    ("length", "home"), [(64, "l1"), (1024, "l1"), (4096, "l2"), (1 << 18, "l3"), (8 * MB, "dram")]
)
def test_a_row_lives_in_the_innermost_place_that_holds_it(length: int, home: str) -> None:
    schedule = plan_rows(simd(), softmax(16, length))
    assert schedule.home == home
    assert schedule.passes[1:] == (home,) * (len(schedule.passes) - 1)


def test_shared_parameters_count_in_the_footprint() -> None:
    assert plan_rows(simd(), softmax(64, 3000)).home == "l1"
    assert plan_rows(simd(), layer_norm(64, 3000)).home == "l2"


@pytest.mark.parametrize("length", [64, 1024, 4096, 65536])
def test_merged_statistics_only_where_they_pay(length: int) -> None:
    """Measured on a core with these caches: layer norm always, softmax not while a row fits a cache."""
    assert not plan_rows(wide(), softmax(2 * MB // (4 * length), length)).online
    assert plan_rows(wide(), layer_norm(2 * MB // (4 * length), length)).online


def test_a_row_is_split_only_if_rows_are_scarce_and_it_pays() -> None:
    assert plan_rows(simd(cores=4), softmax(1, 1 << 20)).split == 4
    assert plan_rows(simd(cores=4), softmax(1, 256)).split == 1
    assert plan_rows(simd(cores=4), softmax(64, 1 << 20)).split == 1


def test_a_task_is_long_against_a_fork() -> None:
    schedule = plan_rows(simd(cores=2), softmax(10_000, 64))
    each = schedule.cycles / (10_000 / 2)
    assert schedule.rows_per_task * each >= 4 * 600 * 0.9
    assert schedule.rows_per_task <= 10_000 / 8 + 1
    assert plan_rows(simd(), softmax(100, 64)).rows_per_task == 100


def test_short_rows_are_interleaved() -> None:
    assert plan_rows(simd(), softmax(1000, 8)).interleave == 8
    assert plan_rows(simd(), softmax(1000, 1024)).interleave == 1


def test_rows_on_a_scratchpad() -> None:
    schedule = plan_rows(staged(), RowProblem(128, 384, dtype="i8"))
    assert schedule.buffers == 2
    assert schedule.rows_per_tile * 384 * 2 * 2 <= 256 * KB < (schedule.rows_per_tile + 1) * 384 * 2 * 2
    long = plan_rows(staged(), RowProblem(1, 1 << 20, dtype="i8"))
    assert long.rows_per_tile == 0
    assert 0 < long.chunk * 4 <= 256 * KB


def test_maps() -> None:
    schedule = plan_map(simd(cores=2), MapProblem(1_000_000, work=1))
    assert schedule.lanes == 8
    assert schedule.elements_per_task % (schedule.lanes * schedule.unroll) == 0
    assert 2 <= schedule.tasks <= 8
    assert schedule.bound_by in ("l3", "dram")
    assert plan_map(simd(cores=2), MapProblem(100)).tasks == 1
    assert plan_map(simd(), MapProblem(1000, work=40)).unroll == 1
    assert plan_map(staged(), MapProblem(1_000_000, dtype="i8")).chunk > 0


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("window", [(3, 3), (5, 5)])
def test_windows_keep_their_accumulators_in_registers(
    window: tuple[int, int], strides: tuple[int, int]
) -> None:
    schedule = plan_window(simd(), WindowProblem(56, 56, 96, window, strides))
    assert schedule.pixels * schedule.vectors + schedule.vectors + 1 <= 16
    assert schedule.pixels * schedule.vectors >= 8
    assert plan_window(simd(), WindowProblem(1, 1, 1)).pixels == 1
