"""Kernels of real models as each described GPU would get them: assembled or linked, read back, none spills."""

from __future__ import annotations

import pytest

from benchmarks import static
from hwsdk import api
from hwsdk.codegen.footprint import footprint, overflow
from hwsdk.errors import HwsdkError
from hwsdk.frontends import catalogue
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.intrinsics import load_target
from hwsdk.ral_port.resources import ToolMissing, inspect_code
from hwsdk.targets.cuda import resources as cuda

#: The small models go to every chip; the large ones to all whose text the assembler reads, else to one of each kind.
SMALL, LARGE = ("surfaces_mlp", "attacut_c"), ("minilm_l3_fp32", "ppocr_cls")
SPARED = ("rocm-gfx908", "rocm-gfx942", "rocm-gfx1100")
#: How far the prediction of registers may be off: for one kernel, and in the middle of a model.
FACTOR, MIDDLE = 2.8, 1.5
CASES = [(t, m) for t in static.gpu_targets() for m in (*SMALL, *(() if t in SPARED else LARGE))]


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
        assert 1 / FACTOR < taken["ratio"] < FACTOR, (name, taken)
        assert taken["predicted_scratch_bytes"] == taken["scratch_bytes"], name
        assert taken["predicted_resident"] >= 1, name
    ratios = sorted(k["ratio"] for k in kernels.values())
    assert 1 / MIDDLE < ratios[len(ratios) // 2] < MIDDLE


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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "i8"])
def test_tiles_for_few_rows_do_not_spill(dtype: str) -> None:
    """For every version that the planner makes of a product with few rows; one such tile once spilled."""
    if cuda.tool("ptxas") is None:
        pytest.skip("no ptxas")
    target = load_target("cuda-sm80")
    made = [api.compile_stages(few_rows(rows, dtype), target) for rows in ("rows", 1, 16, 40)]
    for one in made:
        taken = inspect_code(target, api.bundle_of(one).code)
        for version in static.every_version(one):
            found = taken[one.assembled.symbol_of.get(version.loop.name, version.loop.name)]
            assert found.spill_bytes == 0, version.loop.name
            assert overflow(version.loop, target) == ""
            assert 1 / FACTOR < footprint(version.loop, target).registers / found.registers < FACTOR


def few_rows(rows: int | str, dtype: str) -> Graph:
    b = GraphBuilder("product")
    x = b.input("x", dtype, (sym(rows) if isinstance(rows, str) else rows, 4096))
    b.output(b.node("dot_general", [x, b.input("w", dtype, (1024, 4096))], contract=((1, 1),)), "y")
    return b.finish()
