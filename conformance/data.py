"""Input values: ordinary, extreme and special, reproducible from a seed and a name.

Design choice: what to draw is said by a domain (see `draw`), not by the operation, so
that every dtype gets its own extremes without a case naming them.
"""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.intrinsics.numbers import storage

Array = np.ndarray[Any, Any]
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))


def float_limits(dtype: Any) -> tuple[float, float]:
    """The smallest normal and the largest finite number of a NumPy float type."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.smallest_normal), float(info.max)


def generator(seed: int, *names: object) -> np.random.Generator:
    """A generator of its own for each (seed, names); adding a case moves no other case's numbers."""
    return np.random.default_rng([seed, zlib.crc32(repr(names).encode())])


def draw(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], domain: str = "plain") -> Array:
    """Random values of `dtype`.

    plain     normal numbers of moderate size        any       plain, one in eight special (NaN, Inf, denormal, -0)
    positive  (0, 8)      unit  (-1, 1)              above_one [1, 8)       nonzero  magnitude at least 1/2
    small     integers of at most 3 bits, floats of moderate size: products and sums of a few stay exact or in range
    shift     [0, bits)   index19  [-19, 19)         distinct  different numbers from 0 (one after another, shuffled)
    """
    if domain.startswith("index"):
        return rng.integers(-int(domain[5:]), int(domain[5:]), shape).astype(numpy_dtype(dtype))
    if domain == "distinct":
        return rng.permutation(int(np.prod(shape))).reshape(shape).astype(numpy_dtype(dtype))
    if domain == "shift":
        return rng.integers(0, DTYPES[dtype].bits, shape).astype(numpy_dtype(dtype))
    kind = DTYPES[dtype].kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return _integers(rng, dtype, shape, domain)
    return _floats(rng, dtype, shape, domain)


def _integers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], domain: str) -> Array:
    info = np.iinfo(numpy_dtype(dtype))
    if domain == "any":
        values = rng.integers(info.min, info.max, shape, dtype=numpy_dtype(dtype), endpoint=True)
        extreme = rng.choice(np.array([info.min, info.max, 0, 1], dtype=numpy_dtype(dtype)), shape)
        return np.where(rng.random(shape) < 0.125, extreme, values)
    low, high = {"small": (-4, 4), "positive": (1, 8), "above_one": (1, 8)}.get(domain, (-100, 100))
    values = rng.integers(max(low, int(info.min)), high, shape, endpoint=True)
    if domain in ("nonzero", "unit"):
        values = np.where(values == 0, 1, values)
    return values.astype(numpy_dtype(dtype))


def _floats(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], domain: str) -> Array:
    if domain == "positive":
        values = rng.uniform(2.0**-6, 8, shape)
    elif domain == "above_one":
        values = rng.uniform(1, 8, shape)
    elif domain == "unit":
        values = rng.uniform(-1, 1, shape)
    else:
        values = rng.standard_normal(shape)
    if domain == "nonzero":
        values = np.where(np.abs(values) < 0.5, 0.5 + np.abs(values), values)
    if domain == "any":
        values = values * np.exp2(rng.integers(-6, 7, shape))
        smallest = float_limits(storage(dtype))[0]
        special = rng.choice(np.array([*SPECIAL, smallest, smallest / 2, -smallest / 4]), shape)
        values = np.where(rng.random(shape) < 0.125, special, values)
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(storage(dtype))
    if dtype == "tf32":  # the low bits of its storage are ignored: a register holds none
        made = (made.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return made


def flushed(values: Array) -> Array:
    """Denormal floats replaced by zero of the same sign: what a chip that flushes sees."""
    if values.dtype.kind not in "fV" or not values.size:
        return values
    try:
        smallest = float_limits(values.dtype)[0]
    except ValueError:
        return values
    return np.where(np.abs(values) < smallest, np.copysign(values.dtype.type(0), values), values)
