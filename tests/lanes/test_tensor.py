"""Contractions on matrix intrinsics: fragments, blocks with edges, versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.loop_ir import Intrin, walk
from hwsdk.codegen.lower.simt.fragments import Fragment, fragment, matrix_uses
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.intrinsics import compiled
from hwsdk.target_desc import Target, load_target

CHIP = load_target(str(Path(__file__).with_name("lanes.yaml")))


def product(dtype: str, transposed: bool, depth: object = None, tanh: bool = False) -> Graph:
    b = GraphBuilder("product")
    k = sym("k") if depth is None else depth
    x = b.input("x", dtype, (sym("m"), k))
    w = b.input("w", dtype, (21, k) if transposed else (k, 21))
    y = b.node("dot_general", [x, w], contract=((1, 1 if transposed else 0),))
    b.output(b.node("tanh", [y]) if tanh else y, "y")
    return b.finish()


def uses(made: api.Compilation) -> set[str]:
    return {s.name for k in made.assembled.kernels for s in walk(k.body) if isinstance(s, Intrin)}


@pytest.mark.parametrize("operand", ["a", "b", "d"])
def test_the_inverse_of_a_layout_finds_every_element(operand: str) -> None:
    part = fragment(CHIP, "multiply", operand)
    assert isinstance(part, Fragment)
    x = compiled(CHIP)["multiply"]
    places = x.sample(operand)
    for index in np.ndindex(places.lane.shape):
        lane, item = int(places.lane[index]), int(places.item[index])
        found = tuple(int(evaluate(part.at(item, c), {"lane": lane})) for c in x.coords(operand))
        assert found == index


def test_runs_are_neighbours_in_memory() -> None:
    (use,) = matrix_uses(CHIP)
    assert use.acc.runs(use.column) == ((0, 2),)
    assert use.b.runs(use.depth) == ((0, 1), (1, 1))
    assert (use.row, use.column, use.depth, use.addend) == ("m", "n", "k", "c")


@pytest.mark.parametrize("transposed", [False, True])
def test_blocks_with_and_without_edges(transposed: bool) -> None:
    made = api.compile_stages(product("f16", transposed, tanh=True), CHIP)
    assert "multiply" in uses(made)
    run = api.Simulation(made)
    rng = np.random.default_rng(0)
    for m, k in ((1, 1), (4, 4), (8, 16), (9, 17), (37, 5), (0, 3), (3, 0)):
        x = rng.standard_normal((m, k)).astype(np.float16) / 2
        w = rng.standard_normal((21, k) if transposed else (k, 21)).astype(np.float16) / 2
        right = w.T if transposed else w
        want = np.tanh(x.astype(np.float64) @ right.astype(np.float64))
        bound = 2.0**-11 * 3 + k * 2.0**-23
        np.testing.assert_allclose(run(x=x, w=w)["y"].astype(np.float64), want, atol=bound)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_what_no_intrinsic_multiplies_is_computed_element_by_element(dtype: str) -> None:
    made = api.compile_stages(product(dtype, False), CHIP)
    assert "multiply" not in uses(made)
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-4, 5, s).astype(numpy_dtype(dtype)) for s in ((7, 9), (9, 21)))
    got = api.Simulation(made)(x=x, w=w)["y"]
    np.testing.assert_array_equal(got.astype(np.float64), x.astype(np.float64) @ w.astype(np.float64))


def test_a_precision_that_lanes_do_not_convert_to_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no matrix product of bf16"):
        api.compile_stages(product("f32", False), CHIP, precision="bf16")


def test_a_block_never_exceeds_the_scratchpad() -> None:
    import dataclasses

    small = [dataclasses.replace(m, size_bytes=512) if m.kind == "scratchpad" else m for m in CHIP.memories]
    chip: Target = dataclasses.replace(CHIP, memories=tuple(small))
    made = api.compile_stages(product("f16", False, 64), chip)
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((9, 64)).astype(np.float16), rng.standard_normal((64, 21)).astype(np.float16)
    run = api.Simulation(made)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(run(x=x, w=w)["y"].astype(np.float64), want, rtol=2.0**-10, atol=1e-3)
    assert run.stats.places["local"].peak_bytes <= 512


def test_more_scratchpad_than_a_workgroup_can_have_is_refused() -> None:
    from dataclasses import replace

    from hwsdk.codegen.driver import emit
    from hwsdk.errors import CodegenError

    chip = load_target("cuda-sm80")
    kernels = api.compile_stages(product("f16", False, 64), chip).assembled.kernels
    small = tuple(
        replace(m, size_bytes=512, reserved_bytes=0) if m.kind == "scratchpad" else m for m in chip.memories
    )
    with pytest.raises(
        CodegenError, match=r"kernel k0_\w+ needs \d+ bytes of scratchpad for a workgroup, shared of"
    ):
        emit(kernels, replace(chip, memories=small))
