"""Schedules are data: printed, stored, read back, overridden with checks."""

from __future__ import annotations

import json

import pytest

from hwsdk.codegen.planner import (
    Contraction,
    MapProblem,
    RowProblem,
    WindowProblem,
    plan,
    plan_map,
    plan_rows,
    plan_window,
)
from hwsdk.codegen.schedule import Schedule, explain, from_data, override, to_data
from hwsdk.errors import PlanError
from tests.planner.chips import I8, simd, two_pads

GEMM = plan(simd(), Contraction(128, 384, 384, b_constant=True))
ALL: list[Schedule] = [
    GEMM,
    plan(two_pads(), Contraction(128, 384, 384, **I8)),
    plan_rows(simd(), RowProblem(8, 100)),
    plan_map(simd(), MapProblem(1000)),
    plan_window(simd(), WindowProblem(10, 10, 32)),
]


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_round_trip_through_json(schedule: Schedule) -> None:
    back = from_data(json.loads(json.dumps(to_data(schedule))))
    assert back == schedule
    assert explain(back) == explain(schedule)
    assert hash(back) == hash(schedule)


def test_override_replaces_and_says_so() -> None:
    changed = override(GEMM, {"register_tile": [6, 16], "buffers": 2})
    assert changed.register_tile == (6, 16)
    assert changed.tiles == GEMM.tiles
    assert any(r.decision == "register_tile" and r.source.startswith("choice") for r in changed.why)
    assert "register_tile" in explain(changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"register_tiles": [6, 16]}, "no decision 'register_tiles'; did you mean 'register_tile'"),
        ({"register_tile": [6]}, r"register_tile must be tuple\[int, int\], not \[6\]"),
        ({"register_tile": [6, 12]}, "columns 12 is not a multiple of the intrinsic's 8"),
        ({"register_tile": "6x16"}, "register_tile must be"),
        ({"buffers": 0}, "buffers must be at least 1"),
        ({"buffers": True}, "buffers must be int"),
        ({"buffers": 1.5}, "buffers must be int"),
        ({"order": "kkn"}, "order must be a permutation of 'mnk'"),
        ({"register_order": "xy"}, "register_order must be"),
        ({"b_layout": "paked"}, "did you mean 'packed'"),
        ({"tiles": [0, 1, 1]}, "tiles must be at least 1"),
    ],
)
def test_bad_overrides(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        override(GEMM, changes)


def test_bad_data() -> None:
    with pytest.raises(PlanError, match="unknown kind 'contration'; did you mean 'contraction'"):
        from_data({"kind": "contration"})
    with pytest.raises(PlanError, match="missing shape, intrinsic"):
        from_data({"kind": "contraction"})
