"""Convolutions on lanes as one product over the pixels of all images: the text that ships, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen.objects import assembly
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder
from hwsdk.graph.interpret import interpret
from hwsdk.ral_port.resources import ToolMissing, inspect_code
from hwsdk.target_desc import load_target

Array = np.ndarray[Any, Any]
SIZES = ((1, 5, 7), (2, 3, 19), (3, 1, 1), (1, 16, 18), (0, 4, 4))
ROUNDED = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20, "i8": 0.0}


def convolution(
    dtype: str, window: int, stride: int, dilation: int, groups: int, inner: int, out: int, rank: int = 2
) -> Graph:
    """relu(conv(x, w) + c) of any images (or lines), channels last; w is constant."""
    rng = np.random.default_rng(window * 100 + inner)
    size = (*(window,) * rank, inner // groups, out)
    if dtype == "i8":
        w = rng.integers(-128, 128, size).astype(np.int8)
    else:
        w = rng.standard_normal(size).astype(np.float32).astype(numpy_dtype(dtype))
    b = GraphBuilder("convolution")
    x = b.input("x", dtype, (sym("n"), *(sym("h"), sym("w"))[:rank], inner))
    pad = (window // 2 * dilation,) * rank
    attrs = {
        "strides": (stride,) * rank,
        "dilations": (dilation,) * rank,
        "low": pad,
        "high": pad,
        "groups": groups,
    }
    y = b.node("conv", [x, b.constant(w)], **attrs)
    shift = rng.integers(-9, 9, (out,)).astype(np.int32) if dtype == "i8" else rng.standard_normal(out)
    c = b.constant(shift.astype(numpy_dtype(y.dtype)))
    c = b.node("broadcast_in_dim", [c], shape=y.shape, dims=(rank + 1,))
    y = b.node("add", [y, c])
    b.output(b.node("max", [y, b.node("sub", [y, y])]), "y")
    return b.finish()


def image(dtype: str, size: tuple[int, ...], inner: int) -> Array:
    rng = np.random.default_rng(sum(size))
    if dtype == "i8":
        return rng.integers(-128, 128, (*size, inner)).astype(np.int8)
    return rng.standard_normal((*size, inner)).astype(np.float32).astype(numpy_dtype(dtype))


CASES = (  # chip, dtype, window, stride, dilation, groups, channels, out, rank
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
    ("cuda-sm80", "bf16", 5, 1, 1, 1, 32, 32, 1),  # taps follow each other in memory as channels do
    ("rocm-gfx90a", "f32", 3, 1, 1, 1, 48, 20, 1),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_images_of_all_sizes(case: tuple[Any, ...]) -> None:
    chip, dtype, *geometry = case
    graph = convolution(dtype, *geometry)
    run = api.instructions(api.compile_stages(graph, load_target(chip)))
    for size in SIZES:
        x = image(dtype, size[: len(graph.inputs[0].shape) - 1], geometry[4])
        want = interpret(graph, {"x": x})["y"].astype(np.float64)
        got = run(x=x)["y"].astype(np.float64)
        assert got.shape == want.shape
        bound = ROUNDED[dtype] * np.abs(want).max(initial=1.0)
        assert np.abs(got - want).max(initial=0.0) <= bound, size


def test_pixels_of_all_images_are_the_rows() -> None:
    """7 x 7 pixels of 8 images fill blocks together, and arrive by asynchronous copies."""
    made = api.compile_stages(convolution("bf16", 3, 1, 1, 1, 64, 64), load_target("cuda-sm80"))
    (fast,) = made.lowered  # padding is no copy of the image
    assert isinstance(fast.schedule, ContractionSchedule)
    assert evaluate(fast.grid, {"n$": 8, "h$": 7, "w$": 7}) == -(-8 * 49 // fast.schedule.tiles[0])
    assert "cp.async" in made.ir[fast.loop.name]


def test_what_synchronises_is_not_unrolled_by_the_assembler() -> None:
    """A ring of static length would take all registers when it is laid out as a whole."""
    made = api.compile_stages(convolution("f16", 7, 1, 1, 1, 64, 64), load_target("cuda-sm80"))
    (first, *_) = made.lowered
    text = assembly(first.loop.name, made.ir[first.loop.name], made.target)
    assert '.pragma "nounroll"' in text
    try:
        found = inspect_code(made.target, api.bundle_of(made).code)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert not any(r.spill_bytes for r in found.values())


STRANGE = {  # sizes of an image's axes: channels, window, pads before and behind, strides, dilations, groups
    "pads of one side": (16, (3, 3), (0, 2), (1, 0), 1, 1, 1),
    "more taps than a word has bits": (8, (9, 9), (4, 4), (4, 4), 1, 1, 1),
    "taps beyond the image": (16, (3, 3), (9, 9), (9, 9), 1, 9, 1),
    "three axes": (8, (3, 3, 3), (1, 1, 1), (1, 1, 1), 1, 1, 1),
    "steps longer than the window": (16, (2, 2), (0, 0), (0, 0), 3, 1, 1),
    "one channel": (1, (3, 3), (1, 1), (1, 1), 1, 1, 1),
    "padding without a window": (16, (1, 1), (2, 2), (1, 1), 1, 1, 1),
    "channels of a group that are no chunk": (24, (3, 3), (1, 1), (1, 1), 1, 1, 4),
    "less than nothing around": (16, (3, 3), (-1, 1), (1, -1), 1, 1, 1),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_windows(name: str) -> None:
    """Weights that only run time knows, too."""
    channels, window, low, high, step, dilation, groups = STRANGE[name]
    rank = len(window)
    b = GraphBuilder("strange")
    x = b.input("x", "f16", (sym("n"), *map(sym, "dhw"[-rank:]), channels))
    w = b.input("w", "f16", (*window, channels // groups, 12))
    attrs: dict[str, Any] = {
        "strides": (step,) * rank,
        "dilations": (dilation,) * rank,
        "low": low,
        "high": high,
    }
    b.output(b.node("conv", [x, w], groups=groups, **attrs), "y")
    graph = b.finish()
    run = api.instructions(api.compile_stages(graph, load_target("cuda-sm80")))
    weight = image("f16", (*window, channels // groups), 12)
    for size in ((1, 3, 4, 5), (2, 3, 7, 3)):
        given = {"x": image("f16", (size[0], *size[-rank:]), channels), "w": weight}
        want = interpret(graph, given)["y"].astype(np.float64)
        bound = ROUNDED["f16"] * max(1.0, np.abs(want).max(initial=0.0))
        assert np.abs(run(**given)["y"] - want).max(initial=0.0) <= bound
