"""Which loops run as array axes: vector loops always, others only where no iteration can see another."""

from __future__ import annotations

import pytest

from hwsdk.codegen.loop_ir import For, walk
from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.sim.axes import lockstep_loops

HEAD = "kernel k {\nparam x: f32[n] in main\nparam i: i32[n] in main\nparam y: f32[n] in main out\ndim n\n"

CASES = {
    "a map": ("for j < n {\ny[j] = x[j]\n}", "j"),
    "a map in place": ("for j < n {\ny[j] = y[j] + 1.0:f32\n}", "j"),
    "a shift": ("for j < n {\ny[j] = y[j + 1]\n}", ""),
    "one element": ("for j < n {\ny[0] = x[j]\n}", ""),
    "a sum": ("for j < n {\ny[0] = y[0] + x[j]\n}", ""),
    "two stores to one element": ("for j < n {\ny[j] = x[j]\ny[j] = y[j] + 1.0:f32\n}", "j"),
    "two stores to neighbours": ("for j < n {\ny[2*j] = x[j]\ny[2*j + 1] = x[j]\n}", ""),
    "overlapping rows": ("for j < n {\nfor k < 4 {\ny[3*j + k] = x[j]\n}\n}", "k"),
    "rows": ("for j < n {\nfor k < 4 {\ny[4*j + k] = x[j]\n}\n}", "j k"),
    "rows with a vector": ("for j < n {\nvector k < 4 {\ny[4*j + k] = x[j]\n}\n}", "j k"),
    "rows of a dim": ("for j < n {\nfor k < n {\ny[j*n + k] = x[j]\n}\n}", "k"),
    "columns of a dim": ("for k < n {\nfor j < n {\ny[j*n + k] = x[j]\n}\n}", ""),
    "backwards": ("for j < n {\ny[n - 1 - j] = x[j]\n}", "j"),
    "scatter": ("for j < n {\nlet q: i32 = i[j]\ny[q] = x[j]\n}", ""),
    "gather": ("for j < n {\nlet q: i32 = i[j]\ny[j] = x[q]\n}", "j"),
    "a let twice": ("for j < n {\nlet q: i32 = i[j]\nlet q: i32 = i[q]\ny[j] = x[q]\n}", ""),
    "an extent that varies": ("for j < n {\nfor k < j {\ny[j] = x[j]\n}\n}", ""),
    "a reduction over the output": ("for j < n {\ny[j] = sum[r < 2](y[j])\n}", ""),
    "a branch": ("for j < n {\nif x[j] < 0.0:f32 {\ny[j] = x[j]\n}\n}", ""),
    "an alloc": ("for j < n {\nalloc t: f32[1] in main\nt[0] = x[j]\ny[j] = t[0]\n}", "j"),
    "an alloc after its use": ("alloc t: f32[1] in main\nfor j < n {\nt[0] = x[j]\nalloc t: f32[1] in main\n}", ""),
    "an alloc that varies": ("for j < n {\nalloc t: f32[j + 1] in main\nt[j] = x[j]\n}", ""),
    "nothing": ("for j < n {\nlet q: f32 = x[j]\n}", ""),
    "unrolled": ("unroll j < 4 {\ny[j] = x[j]\n}", "j"),
    "a product in a tile": (
        "alloc t: f32[4, 8] in main\nfor q < n {\nunroll j < 4 {\nvector k < 8 {\n"
        "t[j, k] = fma(x[j], x[k], t[j, k])\n}\n}\n}", "j k",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lockstep(name: str) -> None:
    body, expected = CASES[name]
    kernel = parse_kernel(HEAD + body + "\n}")
    found = lockstep_loops(kernel)
    loops = [s for s in walk(kernel.body) if isinstance(s, For)]
    assert " ".join(s.var for s in loops if id(s) in found) == expected
