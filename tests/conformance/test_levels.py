"""The levels against a device that is right by definition, and against broken ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hwsdk.conformance import l0_description, l3_ops, runner
from hwsdk.conformance.model import Outcome
from hwsdk.conformance.ops import specs
from tests.conformance.interpreter_device import Fault, InterpreterDevice

DTYPES = ("f32", "bf16", "i64", "i32", "i8", "u8", "bool")


def l3(pattern: str, device: InterpreterDevice | None = None) -> list[Outcome]:
    device = device or InterpreterDevice()
    return runner.run(runner.select(l3_ops.cases(device.target), (), pattern), device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_interpreter_conforms(dtype: str) -> None:
    wrong = [f"{o.name}: {o.reason}" for o in l3(f"*-{dtype}") if o.status != "pass"]
    assert not wrong, "\n".join(wrong)


def test_every_row_has_a_name_of_its_own_and_the_ordinary_sizes() -> None:
    names = [s.name for s in specs()]
    assert len(set(names)) == len(names)
    line = {s["n"] for s in specs()[0].sizes}
    assert {0, 1, 2} <= line
    assert max(line) > 50_000


def _off(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """The last element of every result is wrong."""
    out = {name: value.copy() for name, value in results.items()}
    for value in out.values():
        if value.size:
            value.flat[-1] = ~value.flat[-1] if value.dtype == bool else value.flat[-1] + 1
    return out


def _noisy(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {name: value * value.dtype.type(1 + 2**-16) for name, value in results.items()}


@pytest.mark.parametrize(
    "pattern, fault",
    [
        ("L3/add-f32", _off),
        ("L3/dot-f32", _noisy),
        ("L3/transpose-i8", _off),
        ("L3/eq-i64", _off),
        ("L3/sort-i32", _off),
    ],
)
def test_a_wrong_device_fails(pattern: str, fault: Fault) -> None:
    (outcome,) = l3(pattern, InterpreterDevice(fault))
    assert outcome.status == "fail"
    assert "at " in outcome.reason


def test_a_second_compile_fails() -> None:
    (outcome,) = l3("L3/add-f32", InterpreterDevice(compiles=2))
    assert (outcome.status, "1 expected" in outcome.reason) == ("fail", True)


def test_a_device_that_launches_nothing_fails() -> None:
    (outcome,) = l3("L3/add-f32", InterpreterDevice(lazy=True))
    assert outcome.status == "not_run"


def test_level_0() -> None:
    device = InterpreterDevice()
    for outcome in runner.run(l0_description.cases(device.target), device):
        assert outcome.status == "pass", outcome
