"""Every direct form of an operation or cast gives the bits of its definition, on scalars and on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.scalar import SCALAR, convert, np_scalar
from hwsdk.sim.operation_source import cast, from_index, globals_for_operations, operation

NAMES = globals_for_operations()
STORED = [d for d in DTYPES if DTYPES[d].numpy is not None]
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    3.0,
    65504.0,
    1e-7,
    3e38,
    -3e38,
    1e300,
    np.inf,
    -np.inf,
    np.nan,
    127.0,
    300.0,
)


def samples(dtype: str, seed: int) -> np.ndarray:
    kind = DTYPES[dtype].kind
    rng = np.random.default_rng(seed)
    if kind == "b":
        return rng.random(40) < 0.5
    if kind == "f":
        with np.errstate(all="ignore"):
            return rng.permutation(np.array([*SPECIAL, *rng.standard_normal(22)])).astype(numpy_dtype(dtype))
    bits = DTYPES[dtype].bits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)
    whole = [
        low,
        high,
        0,
        1,
        high - 1,
        low + 1,
        *(int(x) for x in rng.integers(max(low, -(1 << 62)), min(high, 1 << 62), 34)),
    ]
    return (
        rng.permutation(np.array(whole, object))
        .astype(np.dtype(f"{'iu'[kind == 'u']}8"))
        .astype(numpy_dtype(dtype))
    )


def run(text: str, **values: object) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(eval(text, {**NAMES, **values}))  # noqa: S307 - the text is what we test


def same(got: np.ndarray, want: np.ndarray) -> bool:
    return got.dtype == want.dtype and got.tobytes() == want.tobytes()


DEFINED = [(op, d) for op in sorted(SCALAR) for d in STORED if DTYPES[d].kind in SCALAR[op].kinds]


@pytest.mark.parametrize("op, dtype", DEFINED)
def test_operation(op: str, dtype: str) -> None:
    entry = SCALAR[op]
    operands = [samples(dtype, i) for i in range(entry.arity)]
    want = np_scalar(op, *operands)
    names = ["x", "y", "z"][: entry.arity]
    assert same(run(operation(op, dtype, names, False), **dict(zip(names, operands))), want)
    for i in range(0, 40, 3):
        single = dict(zip(names, [x[i] for x in operands]))
        assert same(run(operation(op, dtype, names, True), **single), np_scalar(op, *single.values()))


@pytest.mark.parametrize("source", STORED)
@pytest.mark.parametrize("target", STORED)
def test_cast(source: str, target: str) -> None:
    x = samples(source, 3)
    assert same(run(cast("x", source, target, "value", False), x=x), convert(x, target))
    for i in range(0, 40, 3):
        assert same(run(cast("x", source, target, "value", True), x=x[i]), convert(x[i], target))


@pytest.mark.parametrize("dtype", [d for d in STORED if DTYPES[d].kind != "b"])
def test_index_as_a_value(dtype: str) -> None:
    indices = (
        0,
        1,
        -1,
        127,
        128,
        255,
        256,
        -129,
        65504,
        65520,
        70000,
        2**24 + 1,
        2**31,
        -(2**31) - 1,
        2**40 + 1,
    )
    with np.errstate(all="ignore"):
        for i in indices:
            assert same(run(from_index("i", dtype, True), i=i), convert(np.array(i, np.int64), dtype))
        array = np.array(indices, np.int64)
        assert same(run(from_index("i", dtype, False), i=array), convert(array, dtype))
