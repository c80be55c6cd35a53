"""L2: every intrinsic against its semantics, on random, extreme and special operands.

On a chip the intrinsic is emitted from its binding, compiled, loaded through the port and run; on a simulated
one the machine's own evaluator runs.  Both are compared with the plain-Python oracle, which shares no code
with either.

`each` and `fused` roundings must agree bit for bit (any NaN equals any NaN).  `free` must agree within
(K + 2) eps M: K terms in the longest reduction, M the same program on absolute values.

Design choice: the operands are logical tensors here; how they lie in registers or memory is the device's
business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.target_desc import Target
from hwsdk.target_desc.model import Extent

from . import data
from .model import Case, Mismatch, Session, Unsupported
from .oracle import Oracle
from .tolerance import SIGNIFICAND

Array = np.ndarray[Any, Any]
ROUNDS = 12
STEPS = (
    20_000  # oracle steps per intrinsic: large ones get fewer rounds, the largest a part of their elements
)
UNSATURATED = re.compile(r"\b[iu](?:8|16|32|64)(?:\.(?:rne|rtz|floor|ceil))?\(")


@dataclass(frozen=True)
class Trial:
    """One use: logical operands (scalars as 0-d arrays) and the run-time extents."""

    operands: Mapping[str, Array]
    dims: Mapping[str, int]


def cases(target: Target) -> list[Case]:
    """One case per intrinsic that this chip has."""
    return [Case("L2", name, partial(_run, name)) for name in target.intrinsics]


def _run(name: str, session: Session) -> None:
    target = session.device.target
    x = compiled(target)[name]
    if target.unit(x.spec.unit).kind == "library":
        raise Unsupported("a library operation is called by the host program; L3 covers it")
    missing = [f for f in x.spec.needs if f not in target.features]
    if missing:
        raise Unsupported(f"needs feature {', '.join(missing)}, which this chip lacks")
    rounds = max(2, min(ROUNDS, STEPS // max(1, x.ops, math.prod(x.sample_dims().values()))))
    every = _every(x)
    for number in range(rounds):
        trial = draw(x, session.seed, number)
        got = session.device.execute(name, trial.operands, trial.dims)
        try:
            _check(x, trial, got, every, number % every)
        except Mismatch as wrong:
            sizes = ", ".join(f"{d} = {trial.dims[d]}" for d in x.runtime_dims)
            raise Mismatch(f"round {number}{f' at {sizes}' if sizes else ''}: {wrong}") from None
    session.measured["rounds"] = rounds


# ---------------------------------------------------------------------------------------------------------------- draw
def draw(x: CompiledIntrinsic, seed: int, number: int) -> Trial:
    """Operands for one use; the first rounds use the greatest extents, then random ones."""
    rng = data.generator(seed, x.name, number)
    dims = dict(x.sample_dims())
    for d in x.runtime_dims:
        extent = x.spec.dims[d]
        if number > 1 and isinstance(extent, Extent):
            low = -(-max(extent.min, 1) // extent.multiple)
            dims[d] = int(rng.integers(low, dims[d] // extent.multiple + 1)) * extent.multiple
    domain = "plain" if number % 3 == 2 or UNSATURATED.search(x.spec.semantics) else "any"
    strides = x.sample_scalars()
    operands: dict[str, Array] = {}
    for name, operand in x.operands.items():
        if name in x.scalars:
            operands[name] = _scalar(x, name, strides, rng, domain)
            continue
        shape = tuple(dims[c] for c in x.coords(name))
        operands[name] = data.draw(rng, operand.dtype, shape, domain)
    return Trial(operands, dims)


def _scalar(x: CompiledIntrinsic, name: str, strides: Mapping[str, int], rng: Any, domain: str) -> Array:
    operand = x.operands[name]
    if operand.values:
        return np.asarray(rng.choice(operand.values)).astype(numpy_dtype(operand.dtype))
    texts = [x.layout_text(t) for t in x.tensors]
    if any(re.search(rf"\b{name}\b", text) for text in texts):
        return np.asarray(strides[name]).astype(numpy_dtype(operand.dtype))
    return np.asarray(data.draw(rng, operand.dtype, (), domain))


# --------------------------------------------------------------------------------------------------------------- check
def _every(x: CompiledIntrinsic) -> int:
    """Of how many elements one is checked: an odd number, so that all rows and columns of a power of two have some."""
    return 1 if len(x.program) > 1 or x.ops <= 2 * STEPS else x.ops // STEPS | 1


def _check(x: CompiledIntrinsic, trial: Trial, got: Mapping[str, Array], every: int, first: int) -> None:
    dtypes = {n: o.dtype for n, o in x.operands.items()}
    flush = (x.spec.denormals or x.target.numerics.denormals) == "flush"
    oracle = Oracle(x.spec.semantics, dtypes, trial.dims, x.spec.rounding, flush)
    want = oracle.run(trial.operands, every, first)
    seen = oracle.seen
    bounds = _bounds(oracle, x, trial, every, first) if x.spec.rounding == "free" else {}
    for name, expected in want.items():
        _compare(name, got[name], expected, bounds.get(name), seen[name])


def _bounds(oracle: Oracle, x: CompiledIntrinsic, trial: Trial, every: int, first: int) -> dict[str, Array]:
    """(K + 2) eps M for every written float operand."""
    positive = {
        n: np.abs(v) if DTYPES[x.operands[n].dtype].kind == "f" else v for n, v in trial.operands.items()
    }
    reduced = re.findall(r"\b(?:sum|max|min)\[([^\]]*)\]", x.spec.semantics)
    terms = max((_product(trial.dims, group) for group in reduced), default=1)
    bounds = {}
    for name, magnitude in oracle.run(positive, every, first).items():
        dtype = x.operands[name].dtype
        if dtype in SIGNIFICAND:
            eps = 2.0 ** (1 - SIGNIFICAND[dtype])
            bounds[name] = (terms + 2) * eps * np.abs(magnitude.astype(np.float64)) + 1e-37
    return bounds


def _product(dims: Mapping[str, int], names: str) -> int:
    total = 1
    for name in names.split(","):
        total *= dims.get(name.strip(), 1)
    return total


def _compare(name: str, got: Array, want: Array, bound: Array | None, seen: Array) -> None:
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Mismatch(f"{name}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    same = got == want
    if DTYPES["bf16"].numpy == want.dtype or want.dtype.kind in "fV":
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = same | (np.isnan(a) & np.isnan(b))
        if bound is not None:
            with np.errstate(invalid="ignore"):
                error = np.abs(a - b)
                # beyond the range of the type either the largest number or infinity is right
                same = same | (error <= np.maximum(bound, 3 * np.spacing(np.abs(b)))) | ~np.isfinite(bound)
    bad = ~np.asarray(same) & seen
    if bad.any():
        place = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(bad)))
        first_got, first_want = np.atleast_1d(got)[place], np.atleast_1d(want)[place]
        raise Mismatch(
            f"{name}: {np.count_nonzero(bad)} of {bad.size} elements differ; first at {list(place)} got {first_got!s}, "
            f"expected {first_want!s}"
        )
