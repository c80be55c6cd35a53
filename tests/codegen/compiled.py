"""Compiling a small graph for a target and comparing it with the graph's own definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hwsdk
from hwsdk import api
from hwsdk.graph.graph import Graph, GraphBuilder, Value
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import Target, load_target

ROOT = Path(__file__).resolve().parents[2]
FILES = {"npu": ROOT / "examples" / "new_chip" / "npu.yaml", "lanes": ROOT / "tests" / "lanes" / "lanes.yaml"}
Array = np.ndarray[Any, Any]
Build = Callable[..., Value | tuple[Value, ...]]


@cache
def target(name: str) -> Target:
    return load_target(str(FILES.get(name, name)))


def graph_of(inputs: Sequence[tuple[str, tuple[Any, ...]]], build: Build) -> Graph:
    """A graph with inputs x0, x1 ... and the results of `build` as outputs y0, y1 ..."""
    b = GraphBuilder("case")
    made = build(b, *(b.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(inputs)))
    for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
        b.output(value, f"y{i}")
    return b.finish()


def runner(graph: Graph, name: str) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """The compiled graph: machine code for the host, the LoopIR machine for made-up ones."""
    chosen = target(name)
    if chosen.codegen.route == "llvm":
        return hwsdk.compile(graph, chosen)
    return api.Simulation(api.compile_stages(graph, chosen))


def tolerance(name: str, terms: int) -> float:
    """Relative to the largest magnitude: per operation, half an ulp of f32 or of the matrix unit."""
    default = target(name).codegen.default_precision
    eps = 2.0**-8 if default == "bf16" else 2.0**-23
    return eps * (2 + terms) if eps < 1e-3 else eps * 4


def assert_same(got: Mapping[str, Array], want: Mapping[str, Array], relative: float) -> None:
    assert got.keys() == want.keys()
    for key, expected in want.items():
        actual = got[key]
        assert actual.shape == expected.shape, key
        assert actual.dtype == expected.dtype, key
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, expected, err_msg=key)
            continue
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        finite = np.abs(b[np.isfinite(b)])
        scale = max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=relative, atol=relative * scale, equal_nan=True, err_msg=key)


def check(graph: Graph, name: str, inputs: Sequence[Mapping[str, Array]], terms: int = 64) -> None:
    """One compile; every set of inputs agrees with the interpreter of graphs."""
    run = runner(graph, name)
    for given in inputs:
        assert_same(run(given), interpret(graph, given), tolerance(name, terms))
