"""Every decision names the field of the description behind it, and where that number came from."""

from __future__ import annotations

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
from hwsdk.codegen.schedule import Schedule, explain
from hwsdk.target_desc import load_target
from tests.planner.chips import BF16

CPU = load_target("x86-64-v3", detect=False)
ACCELERATOR = load_target("examples/new_chip/npu.yaml", detect=False)
CASES = {
    "cpu": (CPU, plan(CPU, Contraction(128, 384, 384, b_constant=True))),
    "accelerator": (ACCELERATOR, plan(ACCELERATOR, Contraction(128, 384, 384, **BF16))),
    "rows": (CPU, plan_rows(CPU, RowProblem(128, 384))),
    "map": (CPU, plan_map(CPU, MapProblem(10_000))),
    "window": (CPU, plan_window(CPU, WindowProblem(16, 16, 64))),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_names_stated_fields_with_their_source(name: str) -> None:
    target, schedule = CASES[name]
    assert schedule.why
    for reason in schedule.why:
        assert reason.fields, reason
        for field in reason.fields:
            assert field in target.origins, f"{reason.decision}: {field}"
        assert reason.source, reason
        line = next(x for x in explain(schedule).splitlines() if x.strip().startswith(f"{reason.decision} ="))
        assert all(field in line for field in reason.fields)


def decisions(schedule: Schedule) -> set[str]:
    return {r.decision for r in schedule.why}


def test_the_decisions_of_a_contraction() -> None:
    common = {"intrinsic", "register_tile", "tiles", "order", "worker_tile", "bound_by"}
    assert decisions(CASES["cpu"][1]) >= common | {"b_layout"}
    assert decisions(CASES["accelerator"][1]) >= common | {"buffers", "used_bytes"}


def test_the_fields_are_the_ones_that_decide() -> None:
    fields = {r.decision: r.fields for r in CASES["cpu"][1].why}
    assert {"memory.vreg.count", "memory.vreg.width_bytes", "codegen.address_registers"} <= set(
        fields["register_tile"]
    )
    assert "memory.l2.size_bytes" in fields["tiles"]
    assert "execution.core.count" in fields["worker_tile"]
    staged = {r.decision: r.fields for r in CASES["accelerator"][1].why}
    assert {"memory.spad.size_bytes", "memory.acc.size_bytes"} <= set(staged["tiles"])
