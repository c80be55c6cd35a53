"""Layouts as maps: one-to-one, replicas, strides, lanes; fragment maps against formulas stated the other way round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hwsdk.intrinsics import SemanticsError, compiled
from hwsdk.intrinsics.layouts import Layout
from hwsdk.intrinsics.numbers import convert, storage
from hwsdk.intrinsics.syntax import Name
from hwsdk.target_desc import load_target
from tests.target_desc.editing import DATA, ROOT

RNG = np.random.default_rng(2)


def layout(text: str, coords: str, scalars: str = "", **dims: int) -> Layout:
    return Layout(text, tuple(coords), dims, frozenset(scalars.split()))


def test_strides_are_scalar_operands() -> None:
    found = layout("item = m*ld + k", "mk", "ld", m=3, k=4)
    lane, item = found.places({"m": 3, "k": 4}, {"ld": 10})
    assert item.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]
    assert not lane.any()
    assert found.coefficients() == {"m": Name("ld"), "k": 1}
    assert found.strides({"ld": 10}) == {"m": 10, "k": 1}
    assert found.places({"m": 3, "k": 4}, {"ld": 10})[1] is item
    with pytest.raises(SemanticsError, match="needs a value for 'ld'"):
        found.places({"m": 3, "k": 4})


@pytest.mark.parametrize(
    "text", ["item = m % 2", "lane = m; item = 0", "item = m*m", "item = m + 1", "item = m + m"]
)
def test_what_is_not_affine_has_no_strides(text: str) -> None:
    assert layout(text, "m", m=4).coefficients() is None


def test_clashes_are_shown() -> None:
    assert layout("item = m*2 + k", "mk", m=2, k=3).grid({"m": 2, "k": 3}).collision() == (
        "m=0, k=2",
        "m=1, k=0",
        0,
        2,
    )
    assert layout("item = m*3 + k", "mk", m=2, k=3).grid({"m": 2, "k": 3}).collision() is None


def test_replicas_are_copies() -> None:
    found = layout("lane = copy*4 + m; item = k", "mk", m=4, k=2, copy=2)
    assert found.replicas == ("copy",)
    grid = found.grid({"m": 4, "k": 2, "copy": 2})
    values = np.arange(8).reshape(4, 2)
    packed = grid.pack(values)
    assert packed.shape == (8, 2)
    assert np.array_equal(packed[:4], packed[4:])
    assert np.array_equal(grid.unpack(packed), values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lane = m", "must assign 'item'"),
        ("items = m", "assigns 'lane' and 'item' only"),
        ("item = m; item = m", "once"),
        ("item = m + z", "unknown name 'z'"),
        ("item = m * 1.5", "not allowed in an integer expression"),
        ("item = max(m, 1)", "not allowed"),
        ("item += m", "assigns"),
        ("item = m where m < 2", "without a condition"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SemanticsError) as caught:
        layout(text, "m", m=4).places({"m": 4})
    assert words in str(caught.value)


def test_scalable_registers() -> None:
    target = load_target(DATA / "scalable.yaml", detect=False)
    load = compiled(target)["load_f32"]
    for vl in (2, 4, 8):
        assert load.sizes({"vl": vl}) == {"n": 2 * vl}
    assert load.dims == {"n": 2}
    assert load.runtime_dims == ("n",)


# -------------------------------------------------------------------------------- fragments, as the manuals state them
def rows16(
    lane: int, item: int
) -> tuple[int, int]:  # the 16-bit A fragment: group = lane / 4, thread = lane % 4
    return lane // 4 + (0 if item in (0, 1, 4, 5) else 8), lane % 4 * 2 + (item & 1) + (8 if item >= 4 else 0)


def columns16(lane: int, item: int) -> tuple[int, int]:
    return lane % 4 * 2 + (item & 1) + (8 if item >= 2 else 0), lane // 4


def accumulators(lane: int, item: int) -> tuple[int, int]:
    return lane // 4 + (8 if item >= 2 else 0), lane % 4 * 2 + (item & 1)


def rows8(lane: int, item: int) -> tuple[int, int]:
    return lane // 4 + (0 if item < 4 or 8 <= item < 12 else 8), lane % 4 * 4 + (item & 3) + (
        16 if item >= 8 else 0
    )


def columns8(lane: int, item: int) -> tuple[int, int]:
    return lane % 4 * 4 + (item & 3) + (16 if item >= 4 else 0), lane // 4


def rows_tf32(lane: int, item: int) -> tuple[int, int]:
    return lane // 4 + (0 if item in (0, 2) else 8), lane % 4 + (0 if item in (0, 1) else 4)


def columns_tf32(lane: int, item: int) -> tuple[int, int]:
    return lane % 4 + (0 if item == 0 else 4), lane // 4


def group_accumulators(lane: int, item: int) -> tuple[int, int]:  # four warps of 16 rows
    row = lane // 32 * 16 + lane % 32 // 4 + (8 if item % 4 >= 2 else 0)
    return row, item // 4 * 8 + lane % 4 * 2 + item % 2


FRAGMENTS: list[tuple[str, str, str, Callable[[int, int], tuple[int, int]]]] = [
    ("warp", "mma_m16n8k16_f16", "a", rows16),
    ("warp", "mma_m16n8k16_bf16", "b", columns16),
    ("warp", "mma_m16n8k16_bf16", "c", accumulators),
    ("warp", "mma_m16n8k32_i8", "a", rows8),
    ("warp", "mma_m16n8k32_i8", "b", columns8),
    ("warp", "mma_m16n8k32_i8", "d", accumulators),
    ("warp", "mma_m16n8k8_tf32", "a", rows_tf32),
    ("warp", "mma_m16n8k8_tf32", "b", columns_tf32),
    ("warp_group", "wgmma_m64n64k16_bf16", "acc", group_accumulators),
]


@pytest.mark.parametrize(
    ("file", "name", "operand", "inverse"), FRAGMENTS, ids=lambda v: str(v) if isinstance(v, str) else ""
)
def test_fragment_maps(
    file: str, name: str, operand: str, inverse: Callable[[int, int], tuple[int, int]]
) -> None:
    places = compiled(load_target(DATA / f"{file}.yaml", detect=False))[name].sample(operand)
    back = np.array([[inverse(lane, item) for item in range(places.items)] for lane in range(places.lanes)])
    rows, columns = np.indices(places.item.shape)
    assert np.array_equal(back[places.lane, places.item], np.stack([rows, columns], -1))


def test_swizzle_is_the_exclusive_or_of_address_bits() -> None:
    x = compiled(load_target(DATA / "warp_group.yaml", detect=False))["wgmma_m64n64k16_bf16"]
    for operand in ("a", "b"):
        for step in range(4):
            _, item = x.layout(operand).places(x.dims, {"step": step})
            rows, columns = np.indices(item.shape)
            byte = rows * 128 + (columns + step * 16) * 2
            assert np.array_equal(item * 2, byte ^ ((byte >> 7 & 7) << 4))


def test_a_load_composes_with_the_product_it_feeds() -> None:
    """The four 8x8 matrices of the matrix load, taken as quadrants, are exactly the A fragment."""
    target = load_target(DATA / "warp.yaml", detect=False)
    load, mma = compiled(target)["ldmatrix_x4"].sample("d"), compiled(target)["mma_m16n8k16_bf16"].sample("a")
    m, k = np.indices((16, 16))
    quadrant, row, column = m // 8 + k // 8 * 2, m % 8, k % 8
    assert np.array_equal(load.lane[quadrant, row, column], mma.lane)
    assert np.array_equal(load.item[quadrant, row, column], mma.item)
    address = compiled(target)["ldmatrix_x4"].layout("s")
    assert address.has_lane
    assert address.places({"i": 4, "r": 8, "c": 8})[0].max() == 31


@pytest.mark.parametrize(
    "name", ["mma_m16n8k16_f16", "mma_m16n8k16_bf16", "mma_m16n8k8_tf32", "mma_m16n8k32_i8"]
)
def test_a_product_through_the_fragments(name: str) -> None:
    """Each tile passes through the maps, the semantics and back; the whole is NumPy's product."""
    x = compiled(load_target(DATA / "warp.yaml", detect=False))[name]
    (m, n, k), (rows, columns, depth) = (x.dims[d] for d in "mnk"), (32, 16, 64)
    types = {o: x.operands[o].dtype for o in "abcd"}
    a, b = (
        convert(RNG.integers(-4, 5, shape), types[o])
        for o, shape in (("a", (rows, depth)), ("b", (depth, columns)))
    )
    c = np.zeros((rows, columns), storage(types["c"]))
    places = {o: x.sample(o) for o in "abcd"}
    for i in range(0, rows, m):
        for j in range(0, columns, n):
            tile = c[i : i + m, j : j + n]
            for q in range(0, depth, k):
                parts = {"a": a[i : i + m, q : q + k], "b": b[q : q + k, j : j + n], "c": tile}
                fragments = {o: places[o].pack(v) for o, v in parts.items()}
                out = x.evaluate({o: places[o].unpack(f) for o, f in fragments.items()})["d"]
                tile = places["d"].unpack(places["d"].pack(out))
            c[i : i + m, j : j + n] = tile
    assert np.array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(c.dtype))


def test_tiles_of_eight_row_pairs() -> None:
    """The tile unit wants neighbouring k beside each other; its B layout says so."""
    target = load_target(ROOT / "targets/x86/x86-64-v4.yaml", detect=False, features=["amx-tile", "amx-int8"])
    load = compiled(target)["tile_load_b_i8"]
    _, item = load.layout("src").places(load.dims, {"ld": 100})
    assert item[5, 3] == 100 + 3 * 4 + 1
    assert compiled(target)["tile_dot_i8i8"].sample("b").collision() is None
