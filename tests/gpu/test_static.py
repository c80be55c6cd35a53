"""Kernels of real models as each described GPU would get them: assembled or linked, read back, none spills."""

from __future__ import annotations

import pytest

from benchmarks import static
from hwsdk.errors import HwsdkError
from hwsdk.frontends import catalogue
from hwsdk.ral_port.resources import ToolMissing

#: The small models go to every chip, the large ones to one of each kind of code.
EVERYWHERE = ("surfaces_mlp", "attacut_c")
LARGE = ("minilm_l3_fp32", "ppocr_cls")
KINDS = ("cuda-sm80", "cuda-sm90", "rocm-gfx90a", "dcu-gfx906")
CASES = [(t, m) for t in static.gpu_targets() for m in EVERYWHERE] + [(t, m) for t in KINDS for m in LARGE]


def measured(target: str, model: str, precision: str | None = None) -> dict[str, object]:
    try:
        catalogue.fetch(model)
    except HwsdkError as missing:
        pytest.skip(f"no model: {missing}")
    try:
        return static.row(target, model, precision)
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize(("target", "model"), CASES)
def test_no_kernel_spills(target: str, model: str) -> None:
    found = measured(target, model)
    assert found["problems"] == []
    kernels = found["kernels"]
    assert isinstance(kernels, dict)
    assert kernels
    for name, taken in kernels.items():
        assert taken["registers"] > 0, name
        assert taken["lanes"] > 0, name


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("target", ["cuda-sm80", "rocm-gfx90a"])
def test_products_planned_for_matrix_units_contain_their_instructions(target: str) -> None:
    found = measured(target, "minilm_l3_fp32", "bf16")
    kernels = found["kernels"]
    assert isinstance(kernels, dict)
    planned = [k for k in kernels.values() if k["planned_matrix"]]
    assert len(planned) >= 3
    assert all(k["matrix_instructions"] is None or k["matrix_instructions"] > 0 for k in planned)
    assert found["problems"] == []
    close = [k["predicted_registers"] / k["registers"] for k in planned if k["predicted_registers"]]
    assert close
    assert 0.5 < sorted(close)[len(close) // 2] < 2, "the planner's prediction of registers"
