"""Whole graphs on the source route: every case of the other targets, and one through compiler, artifact and port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsdk
from hwsdk import api
from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.host_interpreter import interpret as run_host
from hwsdk.codegen.source import source_file
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target
from tests.codegen.compiled import assert_same, graph_of
from tests.codegen.test_compiler_ops import CASES
from tests.source.c_harness import TILE, needs_gcc, run_kernel, shared_library

pytestmark = needs_gcc
Array = np.ndarray[Any, Any]
Launch = Callable[[str, tuple[Array, ...], tuple[int, ...], int], None]


@pytest.mark.slow
def test_every_case_agrees_with_the_definition() -> None:
    """All cases in one file: one run of the compiler.  Kernels are called c0_NAME, c1_NAME ..."""
    target = load_target("x86-64-c")
    made = [api.compile_stages(graph_of(*case[:2]), target) for case in CASES.values()]
    kernels = [replace(k, name=f"c{n}_{k.name}") for n, one in enumerate(made) for k in one.assembled.kernels]
    library = shared_library(source_file(kernels, target), "-O0")
    for number, (one, (_, _, arrays)) in enumerate(zip(made, CASES.values(), strict=True)):
        launch = launcher(one, library, f"c{number}_")
        for given in arrays:
            named = {f"x{i}": a for i, a in enumerate(given)}
            got = run_host(one.assembled.program, named, api._constants(one), launch)
            assert_same(got, interpret(one.graph, named), 2.0**-20)


def launcher(made: Compilation, library: Any, prefix: str) -> Launch:
    kernels = {k.name: k for k in made.assembled.kernels}

    def launch(symbol: str, buffers: tuple[Array, ...], dims: tuple[int, ...], grid: int) -> None:
        run_kernel(TILE((prefix + symbol, library)), kernels[symbol], made.target, buffers, dims, grid)

    return launch


def test_one_text_compiles_saves_loads_and_agrees_with_the_other_route(tmp_path: Path) -> None:
    inputs, build, arrays = CASES["softmax"]
    graph = graph_of(inputs, build)
    exe, other = hwsdk.compile(graph, "x86-64-c"), hwsdk.compile(graph, "x86-64-v3")
    exe.save(str(tmp_path / "m.hwx"))
    loaded = hwsdk.load(str(tmp_path / "m.hwx"))
    for given in arrays:
        named = {f"x{i}": a for i, a in enumerate(given)}
        assert_same(exe(named), other(named), 2.0**-20)
        assert_same(loaded(named), exe(named), 0.0)
    assert exe.stats.launches == 2 * sum(bool(given[0].size) for given in arrays)


def test_two_emissions_are_equal() -> None:
    inputs, build, _ = CASES["layer norm"]
    first, second = (api.compile_stages(graph_of(inputs, build), "x86-64-c").ir for _ in range(2))
    assert first == second
