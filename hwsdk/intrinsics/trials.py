"""Trials: random uses of an intrinsic with the operands' bytes before and the right answer after.

Design choice: a trial knows memory images only, so the same trial runs through a just-in-time compiler, a C
compiler, an emulator or a device; who runs it hands bytes back and gets a sentence if they are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.layouts import Places
from hwsdk.intrinsics.numbers import Array, convert, limits, smallest_normal, storage
from hwsdk.intrinsics.signature import is_float
from hwsdk.intrinsics.syntax import Call, Cast, Read, Reduce, walk
from hwsdk.target_desc.model import Extent

_EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "tf32": 2.0**-10, "f16": 2.0**-10, "bf16": 2.0**-7}


def random_values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Values of a dtype; one in ten is special: extremes, infinities, NaN, zeros of both signs, denormals."""
    kind = DTYPES[dtype].kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        low, high = limits(dtype)
        wide = np.uint64 if low == 0 else np.int64
        values = rng.integers(low, high, shape, dtype=wide, endpoint=True)
        extremes = rng.choice(np.array([low, high, 0], wide), shape)
        return np.where(rng.random(shape) < 0.2, extremes, values).astype(storage(dtype))
    floats = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    if dtype == "f8e8m0":
        return convert(np.exp2(rng.integers(-6, 6, shape).astype(np.float64)), dtype)
    tiny = smallest_normal(dtype)
    special = [0.0, -0.0, tiny / 2, -tiny / 4, tiny, 1.0, -1.0, np.inf, -np.inf, np.nan]
    chosen = rng.choice(special if dtype in _EPSILON else special[:7], shape)
    return convert(np.where(rng.random(shape) < 0.1, chosen, floats), dtype)


def mask_operand(x: CompiledIntrinsic) -> str | None:
    """The register operand whose elements decide which memory is touched, if there is one."""
    conditions = [s.where for s in x.program if s.where is not None]
    for statement in x.program:
        for node in walk(statement.expr):
            if isinstance(node, Call) and node.function == "select":
                conditions.append(node.args[0])
    for condition in conditions:
        for node in walk(condition):
            if isinstance(node, Read) and x.in_registers(node.operand) and len(x.coords(node.operand)) == 1:
                return node.operand
    return None


@dataclass
class Trial:
    """One use.  `guarded` operands end exactly where the mask becomes false."""

    x: CompiledIntrinsic
    dims: dict[str, int]
    logical: dict[str, Any]
    places: dict[str, Places]
    guarded: frozenset[str] = frozenset()
    expected: Mapping[str, Array] = field(default_factory=dict)
    bounds: Mapping[str, Array] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """Operands, then run-time extents: the order in which wrappers take them."""
        return [*self.x.operands, *self.x.runtime_dims]

    def image(self, name: str) -> bytes:
        """The operand's bytes before: a register image, or memory from its address on."""
        if name in self.x.runtime_dims:
            return np.int64(self.dims[name]).tobytes()  # little-endian: reads as any narrower integer too
        value = np.asarray(self.logical[name])
        if name in self.x.scalars or name in self.guarded:
            return value.tobytes()
        packed = self.places[name].pack(value)[0]
        return self._bits(packed) if self._is_mask(name) else packed.tobytes()

    def _is_mask(self, name: str) -> bool:
        return self.x.operands[name].dtype == "bool" and self.x.in_registers(name)

    @staticmethod
    def _bits(packed: Array) -> bytes:
        return np.packbits(packed, bitorder="little").tobytes()

    def wrong(self, name: str, image: bytes) -> str | None:
        """What is wrong with a written operand's bytes after; None when they are right."""
        want, dtype = np.asarray(self.expected[name]), self.x.operands[name].dtype
        if self._is_mask(name):
            flat = np.unpackbits(np.frombuffer(image, np.uint8), bitorder="little").astype(bool)
        else:
            flat = np.frombuffer(image, storage(dtype))
        if name in self.guarded:
            got = flat[: want.size].reshape(want.shape)
        else:
            places = self.places[name]
            got = places.unpack(flat[None, : max(places.items, 1)])
        bad = self._differs(name, got, want)
        if self.x.operands[name].rest == "undefined":
            inside = tuple(slice(0, self.dims[c]) for c in self.x.coords(name))
            bad, got, want = bad[inside], got[inside], want[inside]
        if not bad.any():
            return None
        return f"{name}: {int(bad.sum())} of {bad.size} differ, for example got {got[bad][0]}, want {want[bad][0]}"

    def _differs(self, name: str, got: Array, want: Array) -> Array:
        if not is_float(self.x.operands[name].dtype):
            return np.asarray(got != want)
        left, right = got.astype(np.float64), want.astype(np.float64)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        if name in self.bounds:
            with np.errstate(invalid="ignore"):
                near = np.abs(left - right) <= self.bounds[name]
            same |= near & np.isfinite(right)
        return np.asarray(~same)


def make_trial(
    x: CompiledIntrinsic,
    rng: np.random.Generator,
    symbols: Mapping[str, int] | None = None,
    prefix: int | None = None,
) -> Trial:
    """A random use.  `prefix`: the mask is true for that many leading elements and memory ends there."""
    sizes = x.sizes(symbols or dict.fromkeys(x.target.symbols, 1))
    full = {d: min(e, 64) if d in x.runtime_dims else e for d, e in sizes.items()}
    dims = {d: _runtime(x, d, e, rng) if d in x.runtime_dims else e for d, e in full.items()}
    trial = Trial(x, dims, {}, {})
    strides = {s for n in x.tensors for s in x.layout(n).scalars}
    for name in x.scalars:
        trial.logical[name] = _scalar(x, name, name in strides, rng)
    numbers = {n: int(v) for n, v in trial.logical.items() if DTYPES[x.operands[n].dtype].kind in "iu"}
    gathers = _gather_indices(x)
    for name in x.tensors:
        places = trial.places[name] = x.layout(name).grid(full, numbers)
        shape = places.item.shape[: places.rank]
        trial.logical[name] = random_values(rng, x.operands[name].dtype, shape)
        if name in gathers:
            trial.logical[name] = rng.integers(0, 1 << 20, shape).astype(storage(x.operands[name].dtype))
    if prefix is not None:
        _guard(trial, prefix)
    _only_defined(trial)
    trial.expected = x.evaluator.run(trial.logical, {**sizes, **dims})
    trial.bounds = _bounds(trial, {**sizes, **dims})
    return trial


def _runtime(x: CompiledIntrinsic, dim: str, top: int, rng: np.random.Generator) -> int:
    extent = x.spec.dims[dim]
    assert isinstance(extent, Extent)
    low = extent.min
    for statement in x.program:  # the greatest of nothing has no value
        for node in walk(statement.expr):
            if isinstance(node, Reduce) and node.kind in ("max", "min") and dim in node.dims:
                low = max(low, 1)
    step = extent.multiple
    return int(rng.integers(-(-low // step), top // step + 1)) * step


def _scalar(x: CompiledIntrinsic, name: str, is_stride: bool, rng: np.random.Generator) -> Any:
    operand = x.operands[name]
    if operand.values:
        return np.asarray(rng.choice(operand.values)).astype(storage(operand.dtype))
    if is_stride:
        return np.asarray(rng.integers(64, 80)).astype(storage(operand.dtype))
    return random_values(rng, operand.dtype, ())


def _gather_indices(x: CompiledIntrinsic) -> set[str]:
    """Operands that are read inside an index: their values must be positions."""
    found = set()
    for statement in x.program:
        for expr in statement.expressions:
            for node in walk(expr):
                if isinstance(node, Read):
                    found |= {n.operand for i in node.index for n in walk(i) if isinstance(n, Read)}
    return found


def _only_defined(trial: Trial) -> None:
    """Casts from float to integer without `sat` are defined inside the range only."""
    for statement in trial.x.program:
        for node in walk(statement.expr):
            if isinstance(node, Cast) and not is_float(node.dtype) and "sat" not in node.modifiers:
                for read in (n for n in walk(node.x) if isinstance(n, Read)):
                    if is_float(trial.x.operands[read.operand].dtype):
                        values = np.nan_to_num(
                            np.asarray(trial.logical[read.operand], np.float64), posinf=1, neginf=1
                        )
                        trial.logical[read.operand] = convert(
                            np.clip(values, 0, 7), trial.x.operands[read.operand].dtype
                        )


def _guard(trial: Trial, prefix: int) -> None:
    x, mask = trial.x, mask_operand(trial.x)
    if mask is None:
        return
    for name in x.tensors:
        if not x.in_registers(name):
            trial.logical[name] = trial.logical[name][:prefix]
            trial.guarded |= {name}
    on = np.arange(trial.logical[mask].size) < prefix
    dtype = x.operands[mask].dtype
    trial.logical[mask] = on if dtype == "bool" else np.where(on, -1, 0).astype(storage(dtype))


def _bounds(trial: Trial, dims: Mapping[str, int]) -> dict[str, Array]:
    """`rounding: free` is right within (K + 2) eps times the sum of the terms' magnitudes."""
    x = trial.x
    if x.spec.rounding != "free":
        return {}
    nodes = [node for s in x.program for node in walk(s.expr)]
    reduced = [dims[d] for node in nodes if isinstance(node, Reduce) for d in node.dims]
    sums = bool(reduced) or any(s.assign == "+=" for s in x.program)
    size: Mapping[str, Array] = trial.expected
    if sums:
        magnitudes = {n: np.abs(np.asarray(v)) for n, v in trial.logical.items()}
        size = x.evaluator.run(magnitudes, dims)
    out = {}
    for name in x.writes:
        epsilon = _EPSILON.get(x.operands[name].dtype, 0.0)
        with np.errstate(all="ignore"):
            big = np.maximum(
                np.abs(size[name].astype(np.float64)), np.abs(trial.expected[name].astype(np.float64))
            )
            out[name] = (max(reduced, default=1) + 2) * epsilon * big + 1e-30
    return out
