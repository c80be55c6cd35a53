"""Functions that a chip lacks, in terms of those that it has: their accuracy over all magnitudes of f32."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import Buffer, For, Load, LoopKernel, Store
from hwsdk.codegen.lower.staged.rewrites import REWRITES
from hwsdk.graph.dims import sym
from hwsdk.sim.machine import run

SAMPLE = np.concatenate([np.linspace(-12, 12, 8000), *(s * np.geomspace(1e-38, 100, 8000) for s in (1, -1))])
UNIT = 2.0**-24


def rewritten(op: str, x: np.ndarray) -> np.ndarray:
    """The rewrite on the LoopIR machine."""
    n = len(x)
    value = REWRITES[op]("f32", Load("f32", "x", (sym("i"),)))
    body = (For("i", n, (Store("y", (sym("i"),), value),)),)
    y = np.zeros(n, np.float32)
    kernel = LoopKernel("f", tuple(Buffer(b, "f32", (n,), "main") for b in "xy"), (), body, ("y",))
    run(kernel, None, {"x": x, "y": y}, {})
    return y


@pytest.mark.parametrize(("op", "right", "roundings"), [("erf", math.erf, 6), ("tanh", math.tanh, 16)])
def test_relative_accuracy(op: str, right, roundings: int) -> None:
    x = SAMPLE.astype(np.float32)
    want = np.array([right(float(v)) for v in x])
    error = np.abs(rewritten(op, x) - want) / np.abs(want)
    assert error.max() < roundings * UNIT


@pytest.mark.parametrize("op", ["erf", "tanh"])
def test_ends(op: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 3e38], np.float32)
    got = rewritten(op, x)
    np.testing.assert_array_equal(got, np.array([1, -1, np.nan, 0, -0.0, 1e-45, 1], np.float32))
    assert np.signbit(got[4])
