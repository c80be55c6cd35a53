"""Packing: the copy through strides and the gather give the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hwsdk.codegen.lower.lowered import Packing
from hwsdk.codegen.packing import _strided, pack
from hwsdk.graph.dims import evaluate, floordiv, ge, mod, sym

P0, P1, P2 = (sym(f"p{i}") for i in range(3))


def by_definition(array: np.ndarray, packing: Packing) -> np.ndarray:
    flat, out = array.reshape(-1), np.zeros(packing.shape, np.float32)
    for place in itertools.product(*map(range, packing.shape)):
        values = {f"p{i}": p for i, p in enumerate(place)}
        if evaluate(packing.inside, values):
            out[place] = flat[evaluate(packing.source, values)]
    return out


CASES = {
    "panels": (Packing((3, 5, 16), 16 * P0 + 48 * P1 + P2, ge(47, 16 * P0 + P2), "f32"), True),
    "padded panels": (Packing((3, 5, 16), 16 * P0 + 40 * P1 + P2, ge(39, 16 * P0 + P2), "f32"), False),
    "always inside": (Packing((3, 5, 16), 16 * P0 + 48 * P1 + P2, 1, "f32"), True),
    "broadcast": (Packing((3, 5), 2 * P1 + 7, 1, "f32"), True),
    "reversed": (Packing((5, 16), 239 - 16 * P0 - P1, 1, "f32"), False),
    "divided": (Packing((6, 16), 16 * floordiv(P0, 2) + mod(P1, 8), 1, "f32"), False),
    "product": (Packing((4, 5), P0 * P1, 1, "f32"), False),
    "empty": (Packing((0, 5), P0 + P1, 1, "f32"), False),
    "constant": (Packing((), 3, 1, "f32"), True),
}


@pytest.mark.parametrize("name", CASES)
def test_packed_as_defined(name: str) -> None:
    packing, even = CASES[name]
    array = np.random.default_rng(0).standard_normal((5, 48)).astype(np.float32)
    got = pack(array, packing)
    np.testing.assert_array_equal(got, by_definition(array, packing))
    assert (_strided(array.reshape(-1), packing) is not None) == (even or name == "padded panels")
    assert got.flags.owndata
    assert got.flags.c_contiguous


def test_converted_on_the_way() -> None:
    array = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    got = pack(array, Packing((4, 3), P0 + 4 * P1, 1, "bf16"))
    assert got.dtype.name == "bfloat16"
    np.testing.assert_array_equal(got.astype(np.float32), array.T.astype(got.dtype).astype(np.float32))


def test_a_source_outside_is_no_view() -> None:
    assert _strided(np.zeros(10, np.float32), Packing((3, 4), 4 * P0 + P1, 1, "f32")) is None
