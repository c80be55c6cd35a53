"""Tensorization: every match is executed tile by tile through the intrinsic and must equal the block itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hwsdk.intrinsics import SemanticsError, compiled
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.evaluate import Evaluator
from hwsdk.intrinsics.integers import integer
from hwsdk.intrinsics.match import Match, block_nest, explain, match
from hwsdk.intrinsics.numbers import convert, storage
from hwsdk.intrinsics.signature import infer
from hwsdk.intrinsics.syntax import Expr, Name, Number, Read, parse
from hwsdk.target_desc import load_target
from hwsdk.target_desc.model import FrozenMap, Target
from tests.target_desc.editing import DATA, ROOT

RNG = np.random.default_rng(4)
V4 = ["avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16"]

# block, dtypes, extents, shapes of tensors that are not indexed plainly
BLOCKS: dict[str, tuple[str, dict[str, str], dict[str, int], dict[str, tuple[int, ...]]]] = {
    "matmul f32": (
        "C[i, j] += sum[r](A[i, r] * B[r, j])",
        {"C": "f32", "A": "f32", "B": "f32"},
        {"i": 16, "j": 16, "r": 8},
        {},
    ),
    "matmul f64": (
        "C[i, j] += sum[r](A[i, r] * B[r, j])",
        {"C": "f64", "A": "f64", "B": "f64"},
        {"i": 16, "j": 16, "r": 8},
        {},
    ),
    "matmul u8 x i8": (
        "C[i, j] += sum[r](i32(A[i, r]) * i32(B[r, j]))",
        {"C": "i32", "A": "u8", "B": "i8"},
        {"i": 16, "j": 16, "r": 64},
        {},
    ),
    "matmul i8, not accumulating": (
        "C[i, j] = sum[r](i32(A[i, r]) * i32(B[r, j]))",
        {"C": "i32", "A": "i8", "B": "i8"},
        {"i": 32, "j": 32, "r": 64},
        {},
    ),
    "matmul bf16, B transposed": (
        "C[i, j] += sum[r](f32(A[i, r]) * f32(B[j, r]))",
        {"C": "f32", "A": "bf16", "B": "bf16"},
        {"i": 32, "j": 32, "r": 32},
        {},
    ),
    "batched matmul": (
        "C[z, i, j] += sum[r](f32(A[z, i, r]) * f32(B[z, r, j]))",
        {"C": "f32", "A": "bf16", "B": "bf16"},
        {"z": 2, "i": 16, "j": 32, "r": 32},
        {},
    ),
    "convolution": (
        "O[y, x, f] += sum[r, s, c](f32(I[y + r, x + s, c]) * f32(W[r, s, c, f]))",
        {"O": "f32", "I": "bf16", "W": "bf16"},
        {"y": 1, "x": 16, "f": 16, "r": 2, "s": 1, "c": 32},
        {"I": (2, 16, 32)},
    ),
    "add": ("Z[i] = X[i] + Y[i]", {"Z": "f32", "X": "f32", "Y": "f32"}, {"i": 128}, {}),
    "row minus maximum": (
        "Z[i, j] = X[i, j] - M[i]",
        {"Z": "f32", "X": "f32", "M": "f32"},
        {"i": 4, "j": 128},
        {},
    ),
    "row maximum": ("M[i] = max[j](X[i, j])", {"M": "f32", "X": "f32"}, {"i": 6, "j": 64}, {}),
    "fill": ("Z[i, j] = 0", {"Z": "f32"}, {"i": 64, "j": 64}, {}),
    "exp": ("Z[i] = exp(X[i])", {"Z": "f32", "X": "f32"}, {"i": 64}, {}),
}
TARGETS: dict[str, Target] = {
    "v3": load_target(ROOT / "targets/x86/x86-64-v3.yaml", detect=False, features=["avxvnni"]),
    "v4": load_target(ROOT / "targets/x86/x86-64-v4.yaml", detect=False, features=V4),
    "npu": load_target(ROOT / "examples/new_chip/npu.yaml"),
    "warp": load_target(DATA / "warp.yaml", detect=False),
}
EXPECTED = {
    ("matmul f32", "v3"): "fma_f32",
    ("matmul f32", "v4"): "fma_f32",
    ("matmul f64", "v3"): "fma_f64",
    ("matmul u8 x i8", "v3"): "dot4_u8i8_i32",
    ("matmul u8 x i8", "v4"): "tile_dot_u8i8",
    ("matmul i8, not accumulating", "npu"): "mma_i8",
    ("matmul i8, not accumulating", "warp"): "mma_m16n8k32_i8",
    ("matmul bf16, B transposed", "v4"): "tile_dot_bf16",
    ("matmul bf16, B transposed", "npu"): "mma_bf16",
    ("matmul bf16, B transposed", "warp"): "mma_m16n8k16_bf16",
    ("batched matmul", "npu"): "mma_bf16",
    ("convolution", "npu"): "mma_bf16",
    ("convolution", "warp"): "mma_m16n8k16_bf16",
    ("convolution", "v4"): "tile_dot_bf16",
    ("add", "npu"): "vadd_f32",
    ("row minus maximum", "npu"): "vsub1_f32",
    ("row maximum", "npu"): "vrmax_f32",
    ("fill", "npu"): "vfill_f32",
    ("exp", "npu"): "vexp_f32",
}


def tensors(block: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Small whole numbers, and what the block makes of them."""
    text, types, extents, shapes = BLOCKS[block]
    stated = {n: tuple(extents)[: len(s)] for n, s in shapes.items()}
    signature = infer(parse(text), types, extents, coords=stated)
    arrays = {}
    for name, dtype in types.items():
        shape = shapes.get(name) or tuple(extents[d] for d in signature.coords[name])
        arrays[name] = convert(RNG.integers(0 if dtype[0] == "u" else -4, 5, shape), dtype)
    target = parse(text)[0].target
    return arrays, Evaluator(signature, "free").run(arrays, extents)[target]


def execute(x: CompiledIntrinsic, found: Match, block: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The block by tiles of the intrinsic; every other dim of the block is a loop around it."""
    text, types, extents, _ = BLOCKS[block]
    nest = block_nest(text, types)
    out = np.array(arrays[nest.target])
    if found.needs_zero:
        out[...] = 0
    back = {b: d for d, b in found.dims.items()}
    sizes = {d: min(x.dims[d], extents[b]) for d, b in found.dims.items()}
    steps = {d: sizes[back[d]] if d in back else 1 for d in extents}

    def place(read: Read, coords: tuple[str, ...], origin: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        shape = tuple(sizes[c] for c in coords)
        at: dict[str, Any] = dict(origin)
        for axis, c in enumerate(coords):
            span = np.arange(sizes[c]).reshape([-1 if a == axis else 1 for a in range(len(coords))])
            at[found.dims[c]] = origin[found.dims[c]] + span
        return tuple(np.broadcast_to(integer(i, at), shape) for i in read.index)

    def fetch(operand: str, what: Expr, origin: Mapping[str, int]) -> Any:
        if isinstance(what, Number):
            return what.value
        assert isinstance(what, Read)
        source = out if what.operand == nest.target else arrays[what.operand]
        return source[place(what, x.coords(operand), origin)]

    for base in itertools.product(*(range(0, extents[d], steps[d]) for d in extents)):
        origin = dict(zip(extents, base, strict=True))
        given = {o: fetch(o, what, origin) for o, what in found.operands.items()}
        written = x.writes[0]
        target = found.operands[written]
        assert isinstance(target, Read)
        result = x.evaluate(given, {d: sizes[d] for d in x.runtime_dims})[written]
        out[place(target, x.coords(written), origin)] = result
    return out


@pytest.mark.parametrize("chip", TARGETS)
@pytest.mark.parametrize("block", BLOCKS)
def test_matches_compute_the_block(block: str, chip: str) -> None:
    text, types, extents, _ = BLOCKS[block]
    found = match(TARGETS[chip], text, types)
    best = EXPECTED.get((block, chip))
    if best is not None:
        assert best in {m.intrinsic for m in found if m.spread == found[0].spread}
    arrays, want = tensors(block)
    tried: set[tuple[str, tuple[str, ...]]] = set()
    for m in found:
        x = compiled(TARGETS[chip])[m.intrinsic]
        key = (m.intrinsic, tuple(sorted(m.replicated)))
        whole = all(extents[b] % min(x.dims[d], extents[b]) == 0 for d, b in m.dims.items())
        exact = all(x.dims[d] <= extents[b] or d in x.runtime_dims for d, b in m.dims.items())
        if key in tried or not whole or not exact:
            continue
        if m.whole_reduction and any(x.dims[d] < extents[b] for d, b in m.dims.items()):
            continue
        tried.add(key)
        got = execute(x, m, block, arrays)
        assert got.dtype == storage(types[block_nest(text, types).target])
        assert np.array_equal(got, want), (m.intrinsic, dict(m.dims))
    assert tried or not found or chip == "warp"


def test_the_order_of_the_file_does_not_matter() -> None:
    target = TARGETS["v4"]
    text, types, _, _ = BLOCKS["matmul bf16, B transposed"]
    turned = replace(target, intrinsics=FrozenMap(dict(reversed(list(target.intrinsics.items())))))
    key = lambda found: [(m.intrinsic, dict(m.dims)) for m in found]  # noqa: E731
    assert key(match(target, text, types)) == key(match(turned, text, types))


def test_a_broadcast_is_found_and_named() -> None:
    text, types, _, _ = BLOCKS["matmul f32"]
    found = match(TARGETS["v3"], text, types)
    assert {tuple(m.replicated.items()) for m in found if m.dims == {"n": "j"}} == {
        (("a", ("n",)),),
        (("b", ("n",)),),
    }


def test_refusals_say_why() -> None:
    text, types, _, _ = BLOCKS["matmul f32"]
    why = explain(TARGETS["v4"], text, types)
    assert why["fma_f64"] == "its result is f64, the block's f32"
    assert why["dot2_i16_i32"] == "it does not accumulate"
    assert why["load_f32"] == "it computes a map, the block sum"
    assert "fma_f32" not in why
    assert (
        explain(TARGETS["npu"], "Z[i] = X[i] * X[i] + 1", {"Z": "f32", "X": "f32"})["vadd_f32"]
        == "it computes another expression"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Z[i] = X[i]; Z[i] += X[i]", "more than one statement"),
        ("Z[i] = X[i] where i < 3", "conditional"),
        ("Z[i] = Q[i]", "dtype is not given"),
        ("Z[i] = sum[j](X[j]) + 1", "reduces inside an expression"),
    ],
)
def test_what_is_no_block(text: str, words: str) -> None:
    with pytest.raises(SemanticsError, match=words):
        match(TARGETS["npu"], text, {"Z": "f32", "X": "f32"})


def test_scalars_of_the_block_bind_to_scalar_operands() -> None:
    (m, *_) = match(TARGETS["npu"], "Z[i] = s", {"Z": "f32", "s": "f32"})
    assert m.intrinsic == "vfill_f32"
    assert m.operands["s"] == Name("s")
