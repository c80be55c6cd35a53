"""Convolutions on lanes as one product over the pixels of all images: the text that ships, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import load_target

Array = np.ndarray[Any, Any]
SIZES = ((1, 5, 7), (2, 3, 19), (3, 1, 1), (1, 16, 18), (0, 4, 4))
ROUNDED = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20, "i8": 0.0}


def convolution(
    dtype: str, window: int, stride: int, dilation: int, groups: int, inner: int, out: int
) -> Graph:
    """relu(conv(x, w) + c) of any images, channels last; w is constant."""
    rng = np.random.default_rng(window * 100 + inner)
    size = (window, window, inner // groups, out)
    if dtype == "i8":
        w = rng.integers(-128, 128, size).astype(np.int8)
    else:
        w = rng.standard_normal(size).astype(np.float32).astype(numpy_dtype(dtype))
    b = GraphBuilder("convolution")
    x = b.input("x", dtype, (sym("n"), sym("h"), sym("w"), inner))
    pad = (window // 2 * dilation,) * 2
    attrs = {
        "strides": (stride,) * 2,
        "dilations": (dilation,) * 2,
        "low": pad,
        "high": pad,
        "groups": groups,
    }
    y = b.node("conv", [x, b.constant(w)], **attrs)
    shift = rng.integers(-9, 9, (out,)).astype(np.int32) if dtype == "i8" else rng.standard_normal(out)
    c = b.constant(shift.astype(numpy_dtype(y.dtype)))
    c = b.node("broadcast_in_dim", [c], shape=y.shape, dims=(3,))
    y = b.node("add", [y, c])
    b.output(b.node("max", [y, b.node("sub", [y, y])]), "y")
    return b.finish()


def image(dtype: str, size: tuple[int, int, int], inner: int) -> Array:
    rng = np.random.default_rng(sum(size))
    if dtype == "i8":
        return rng.integers(-128, 128, (*size, inner)).astype(np.int8)
    return rng.standard_normal((*size, inner)).astype(np.float32).astype(numpy_dtype(dtype))


CASES = (  # chip, dtype, window, stride, dilation, groups, channels, out
    ("cuda-sm80", "bf16", 3, 1, 1, 1, 32, 64),
    ("cuda-sm80", "f16", 3, 2, 1, 1, 24, 40),  # channels are no multiple of a block of k
    ("cuda-sm80", "bf16", 1, 2, 1, 1, 16, 24),  # one tap, but pixels apart
    ("cuda-sm80", "bf16", 3, 1, 2, 2, 32, 32),
    ("cuda-sm80", "bf16", 3, 2, 1, 1, 3, 16),  # chunks are not whole
    ("cuda-sm80", "i8", 3, 1, 1, 1, 16, 16),
    ("cuda-sm80", "f32", 3, 1, 1, 1, 8, 12),  # plain arithmetic
    ("cuda-sm75", "f16", 3, 1, 1, 1, 16, 16),  # through registers
    ("rocm-gfx90a", "f16", 5, 1, 1, 1, 16, 16),
    ("dcu-gfx906", "f32", 3, 1, 1, 1, 6, 5),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_images_of_all_sizes(case: tuple[Any, ...]) -> None:
    chip, dtype, *geometry = case
    graph = convolution(dtype, *geometry)
    run = api.instructions(api.compile_stages(graph, load_target(chip)))
    for size in SIZES:
        x = image(dtype, size, geometry[4])
        want = interpret(graph, {"x": x})["y"].astype(np.float64)
        got = run(x=x)["y"].astype(np.float64)
        assert got.shape == want.shape
        bound = ROUNDED[dtype] * np.abs(want).max(initial=1.0)
        assert np.abs(got - want).max(initial=0.0) <= bound, size


def test_pixels_of_all_images_are_the_rows() -> None:
    """7 x 7 pixels of 8 images fill blocks together, and arrive by asynchronous copies."""
    made = api.compile_stages(convolution("bf16", 3, 1, 1, 1, 64, 64), load_target("cuda-sm80"))
    fast = next(x for x in made.lowered if "contraction" in x.loop.name)
    assert isinstance(fast.schedule, ContractionSchedule)
    assert evaluate(fast.grid, {"n$": 8, "h$": 7, "w$": 7}) == -(-8 * 49 // fast.schedule.tiles[0])
    assert "cp.async" in made.ir[fast.loop.name]
