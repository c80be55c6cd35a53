"""Matrix products on tensor cores as the text that ships, against NumPy: dtypes, precisions, layouts, odd sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.objects import assembly
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.intrinsics.numbers import convert
from hwsdk.target_desc import load_target

Array = np.ndarray[Any, Any]
N = 24
SIZES = ((1, 16), (37, 64), (3, 72), (19, 17), (2, 1), (0, 8), (5, 0), (64, 160))
BITS = {"f16": 11, "bf16": 8, "tf32": 11, "f32": 24}


def product(dtype: str, rows: bool) -> Graph:
    """y[m, 24] of any m and k; w as [k, 24] (rows) or [24, k]."""
    b = GraphBuilder("product")
    x = b.input("x", dtype, (sym("m"), sym("k")))
    w = b.input("w", dtype, (sym("k"), N) if rows else (N, sym("k")))
    b.output(b.node("dot_general", [x, w], contract=((1, 0 if rows else 1),)), "y")
    return b.finish()


def operands(dtype: str, m: int, k: int, rows: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(m * 1000 + k)
    shapes = ((m, k), (k, N) if rows else (N, k))
    if dtype == "i8":
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in shapes)
    else:
        a, b = (rng.standard_normal(s).astype(np.float32).astype(numpy_dtype(dtype)) for s in shapes)
    return a, b


QUICK = (
    ("cuda-sm80", "bf16", None, True),
    ("cuda-sm80", "f16", None, False),
    ("cuda-sm80", "i8", None, False),
    ("cuda-sm80", "f32", "tf32", True),
    ("cuda-sm75", "f16", None, True),
    ("rocm-gfx90a", "f32", "f16", True),
    ("rocm-gfx1100", "f16", None, True),
)
SLOW = (
    ("cuda-sm80", "bf16", None, False),
    ("cuda-sm80", "f16", None, True),
    ("cuda-sm80", "i8", None, True),
    ("cuda-sm80", "f32", "tf32", False),
    ("cuda-sm80", "f32", "bf16", True),
    ("cuda-sm75", "f16", None, False),
    ("cuda-sm75", "f32", "f16", True),
    ("rocm-gfx90a", "bf16", None, True),
    ("rocm-gfx90a", "bf16", None, False),
    ("rocm-gfx1100", "i8", None, False),
)


@pytest.mark.parametrize(
    ("chip", "dtype", "precision", "rows"),
    [*QUICK, *(pytest.param(*c, marks=pytest.mark.slow) for c in SLOW)],
)
def test_products_of_odd_sizes(chip: str, dtype: str, precision: str | None, rows: bool) -> None:
    made = api.compile_stages(product(dtype, rows), load_target(chip), precision=precision)
    assert all(re.search(r"mma|mfma", ir) for name, ir in made.ir.items() if not name.endswith("_sum"))
    run = api.instructions(made)
    for m, k in SIZES:
        x, w = operands(dtype, m, k, rows)
        got = run(x=x, w=w)["y"]
        taken = (convert(v, precision) if precision else v for v in (x, w))
        a, b = (v.astype(np.float64) for v in taken)
        want = a @ (b if rows else b.T)
        if dtype == "i8":
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.int64).astype(got.dtype))
            continue
        scale = np.abs(a) @ np.abs(b if rows else b.T)
        out = 2.0 ** -BITS[dtype] * np.abs(want)
        assert (np.abs(got.astype(np.float64) - want) <= out + (k + 2) * 2.0**-23 * scale + 1e-30).all()


def test_f32_is_never_computed_in_less_unless_asked() -> None:
    made = api.compile_stages(product("f32", True), load_target("cuda-sm80"))
    assert not any("mma" in ir for ir in made.ir.values())


def test_a_precision_that_no_matrix_intrinsic_takes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cuda-sm75 has no matrix product of tf32"):
        api.compile_stages(product("f32", True), load_target("cuda-sm75"), precision="tf32")


@pytest.mark.parametrize(
    ("chip", "dtype", "instruction"),
    [
        ("rocm-gfx908", "f16", "v_mfma_f32"),
        ("rocm-gfx90a", "bf16", "v_mfma_f32"),
        ("rocm-gfx942", "bf16", "v_mfma_f32"),
        ("rocm-gfx1100", "f16", "v_wmma_f32"),
    ],
)
def test_matrix_units_of_other_chips_are_used(chip: str, dtype: str, instruction: str) -> None:
    made = api.compile_stages(product(dtype, False), load_target(chip))
    for name, ir in made.ir.items():
        assert instruction in assembly(name, ir, made.target), name


def test_constant_weights_come_with_k_innermost() -> None:
    rng = np.random.default_rng(5)
    weights = rng.integers(-128, 128, (72, N)).astype(np.int8)
    b = GraphBuilder("product")
    x = b.input("x", "i8", (sym("m"), 72))
    b.output(b.node("dot_general", [x, b.constant(weights, "w")], contract=((1, 0),)), "y")
    made = api.compile_stages(b.finish(), load_target("cuda-sm80"))
    assert [p.shape for item in made.lowered for p in item.packed.values()] == [(N, 72)]
    run = api.instructions(made)
    for m in (0, 1, 19, 64):
        given = rng.integers(-128, 128, (m, 72)).astype(np.int8)
        got = run(x=given)["y"]
        want = given.astype(np.int64) @ weights.astype(np.int64)
        np.testing.assert_array_equal(got, want.astype(got.dtype))
