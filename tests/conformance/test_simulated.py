"""The suite on an accelerator that exists only as a description."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsdk.conformance import runner, suite
from hwsdk.conformance.device import Device
from hwsdk.conformance.devices import open_device
from hwsdk.conformance.model import Outcome
from hwsdk.errors import ModelError
from hwsdk.frontends import catalogue
from hwsdk.target_desc import load_target

CHIP = Path(__file__).resolve().parents[2] / "examples" / "new_chip" / "npu.yaml"
LANES = Path(__file__).resolve().parents[1] / "lanes" / "lanes.yaml"
ROWS = "add select exp tanh transpose broadcast_in_dim reduce_sum_last reduce_max_first softmax dot dot_constant gather"


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device(load_target(CHIP))


def run(device: Device, level: str, pattern: str = "") -> list[Outcome]:
    return runner.run(runner.select(suite.collect(device.target, [level], pattern), [level], pattern), device)


def failures(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{o.status}: {o.id}: {o.reason}" for o in outcomes if not o.conformant)


def test_it_is_simulated(device: Device) -> None:
    assert device.kind == "simulated"


def test_description(device: Device) -> None:
    outcomes = run(device, "L0")
    assert not failures(outcomes), failures(outcomes)


def test_there_is_no_port_to_test(device: Device) -> None:
    outcomes = run(device, "L1", "L1/alloc*,L1/copy*,L1/fill")
    assert {o.status for o in outcomes} == {"unsupported"}
    assert all("simulated" in o.reason for o in outcomes)


@pytest.mark.slow
def test_intrinsics(device: Device) -> None:
    outcomes = run(device, "L2", "L2/")
    assert not failures(outcomes), failures(outcomes)
    assert len(outcomes) > 40


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS.split())
def test_operations(device: Device, row: str) -> None:
    outcomes = run(device, "L3", f"L3/{row}-f32")
    assert not failures(outcomes), failures(outcomes)
    assert [o.status for o in outcomes] == ["pass"]


def random_graphs(chip: Path, seeds: range) -> None:
    device = open_device(load_target(chip))
    outcomes = run(device, "L4", ",".join(f"*seed-{n}" for n in seeds))
    assert not failures(outcomes), failures(outcomes)
    assert [o.status for o in outcomes] == ["pass"] * len(seeds)


@pytest.mark.parametrize("chip", [CHIP, LANES], ids=lambda path: path.stem)
def test_random_graphs(chip: Path) -> None:
    random_graphs(chip, range(5))


@pytest.mark.slow
@pytest.mark.parametrize("chip", [CHIP, LANES], ids=lambda path: path.stem)
def test_more_random_graphs(chip: Path) -> None:
    random_graphs(chip, range(5, 30))


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", ["surfaces_mlp", "attacut_c", "oww_melspec"])
def test_real_models(device: Device, name: str) -> None:
    """At the three smallest shapes: the machine is slow, and capacities bind at small sizes too."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    try:
        catalogue.fetch(name)
    except ModelError as trouble:
        pytest.skip(f"the model cannot be fetched here: {trouble}")
    cases = runner.select(suite.collect(device.target, ["L5"]), ["L5"], f"L5/{name}")
    (outcome,) = runner.run(cases, device, shapes=3)
    assert outcome.status == "pass", outcome.reason
