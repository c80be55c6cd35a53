"""The suite on this machine's processor, through the ordinary port."""

from __future__ import annotations

import pytest

from hwsdk.cli.detection import host_target
from hwsdk.conformance import runner, suite
from hwsdk.conformance.device import Device
from hwsdk.conformance.devices import open_device
from hwsdk.conformance.l5_models import MODELS
from hwsdk.conformance.model import Outcome
from hwsdk.errors import ModelError
from hwsdk.frontends import catalogue

DTYPES = ("f32", "bf16", "i64", "i32", "i8", "u8", "bool")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device(host_target())


def run(device: Device, level: str, pattern: str, shapes: int = 10) -> list[Outcome]:
    cases = runner.select(suite.collect(device.target, [level], pattern), [level], pattern)
    assert cases, f"no case of {level} matches {pattern}"
    return runner.run(cases, device, shapes=shapes)


def failures(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{o.status}: {o.id}: {o.reason}" for o in outcomes if not o.conformant)


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_description_port_and_intrinsics(device: Device, level: str) -> None:
    outcomes = run(device, level, f"{level}/")
    assert not failures(outcomes), failures(outcomes)
    assert any(o.status == "pass" for o in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_operations(device: Device, dtype: str) -> None:
    outcomes = run(device, "L3", f"L3/*-{dtype}")
    assert not failures(outcomes), failures(outcomes)


def test_some_random_graphs(device: Device) -> None:
    outcomes = run(device, "L4", ",".join(f"*seed-{n}" for n in range(100, 115)))
    assert not failures(outcomes), failures(outcomes)
    assert len(outcomes) == 15


@pytest.mark.slow
def test_random_graphs(device: Device) -> None:
    outcomes = run(device, "L4", "L4/")
    assert not failures(outcomes), failures(outcomes)
    assert len(outcomes) == 30
    assert all(o.measured["checked"] > 0.5 * o.measured["elements"] for o in outcomes)


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", [m.name for m in MODELS])
def test_real_models(device: Device, name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    try:
        catalogue.fetch(name)
    except ModelError as trouble:
        pytest.skip(f"the model cannot be fetched here: {trouble}")
    (outcome,) = run(device, "L5", f"L5/{name}")
    assert outcome.status == "pass", outcome.reason
    assert outcome.measured["compiles"] == 1
    assert outcome.measured["shapes"] == 10
