"""Which loops run as one accumulation, and that they give the bits of the loop."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import For, walk
from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.sim import kernel_source
from hwsdk.sim.accumulations import accumulations
from hwsdk.sim.axes import lockstep_loops
from hwsdk.sim.machine import Machine

HEAD = "kernel k {\nparam x: f32[n] in main\nparam i: i32[n] in main\nparam y: f32[n] in main out\ndim n\n"

CASES = {
    "a sum": ("for k < n {\ny[0] = y[0] + x[k]\n}", "k"),
    "a sum from the right": ("for k < n {\ny[0] = x[k]*x[k] + y[0]\n}", "k"),
    "a difference": ("for k < n {\ny[0] = y[0] - x[k]\n}", "k"),
    "a difference from the right": ("for k < n {\ny[0] = x[k] - y[0]\n}", ""),
    "a maximum with a let": ("for k < n {\nlet v: f32 = x[k]\ny[1] = max(y[1], v*v)\n}", "k"),
    "lanes inside": ("for k < n {\nvector l < 2 {\ny[l] = y[l] + x[k]\n}\n}", "k"),
    "lanes around": ("vector l < 2 {\nfor k < n {\ny[l] = y[l] + x[k]\n}\n}", "k"),
    "a gather": ("for k < n {\nlet q: i32 = i[k]\ny[0] = y[0] + x[q]\n}", "k"),
    "a prefix sum": ("for k < n {\ny[k] = y[k] + y[0]\n}", ""),
    "another element": ("for k < n {\ny[0] = y[1] + x[k]\n}", ""),
    "the sum again": ("for k < n {\ny[0] = y[0] + y[0]\n}", ""),
    "under a condition": ("for k < n {\ny[0] = y[0] + x[k] where x[k] < 1.0:f32\n}", ""),
    "two stores": ("for k < n {\ny[0] = y[0] + x[k]\ny[1] = y[1] + x[k]\n}", ""),
    "a product in sixteen bits": ("for k < n {\nlet v: f16 = f16(x[k])\ny[0] = f32(v)\n}", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_which_loops(name: str) -> None:
    body, expected = CASES[name]
    kernel = parse_kernel(HEAD + body + "\n}")
    found = accumulations(kernel, lockstep_loops(kernel))
    assert " ".join(s.var for s in walk(kernel.body) if isinstance(s, For) and id(s) in found) == expected


@pytest.mark.parametrize("name", [n for n, (_, loops) in CASES.items() if loops])
@pytest.mark.parametrize("budget", [1 << 16, 3])
def test_bits_and_costs(name: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = parse_kernel(HEAD + CASES[name][0] + "\n}")
    n = 57
    results = []
    for quick in (True, False):
        monkeypatch.setattr(kernel_source, "BUDGET", budget)
        if not quick:
            monkeypatch.setattr(kernel_source, "accumulations", lambda kernel, lockstep: {})
        arrays = {
            "x": np.random.default_rng(1).standard_normal(n, "f4"), "y": np.ones(n, "f4"),
            "i": np.arange(n, dtype="i4")[::-1].copy(),
        }  # fmt: skip
        machine = Machine(kernel)
        assert ("accumulate(" in machine.program.text) == quick
        stats = machine.run(arrays, {"n": n}, initialised={"y": True})
        results.append((arrays["y"].tobytes(), stats.places))
    assert results[0] == results[1]
