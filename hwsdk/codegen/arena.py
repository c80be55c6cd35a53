"""Arena plan: where intermediate buffers live in one block of memory, for all sizes at once.

Buffers are placed one after the other, each at the lowest offset at which it provably misses every buffer
that is alive at the same time.  Offsets that are tried: 0, the end of each such buffer, and the maximum of
all those ends.  The last one is always right, so there is always a place; and by induction every end is at
most the sum of the sizes placed before, so the arena is never larger than no plan at all.

Design choice: sizes are expressions, so "misses" is a proof about expressions and holds for all sizes; which
of the proved offsets is lowest, and which order of placing is best, is decided at sample sizes: only quality
depends on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from hwsdk.codegen.arena_proof import Prover
from hwsdk.errors import GraphError
from hwsdk.graph.dims import (
    Dim,
    Ranges,
    add,
    ceildiv,
    evaluate,
    free_symbols,
    maximum,
    multiply,
    simplify,
)

ALIGN_BYTES = 64
_SAMPLES = (1, 16, 128, 512)
_PROBES = (0, 1, 2, 3, 7, 8, 15, 17, 31, 33, 64, 100, 257, 1000)  # sizes that refute what is not so
_PROBE_COUNT = 40

Weight = np.ndarray[Any, np.dtype[np.int64]]  # bytes at each sample, then at each probe


@dataclass(frozen=True)
class Life:
    """A buffer that holds a value from step `first` to step `last`, both included."""

    name: str
    size_bytes: Dim
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """offsets: of every buffer, multiples of 64.  total_bytes: size of the arena."""

    offsets: Mapping[str, Dim]
    total_bytes: Dim
    lives: tuple[Life, ...]

    def __str__(self) -> str:
        lines = [f"arena {self.total_bytes} bytes for {len(self.offsets)} buffers"]
        for x in sorted(self.lives, key=lambda x: x.first):
            lines.append(
                f"  {x.name}: {x.size_bytes} bytes @ {self.offsets[x.name]}, steps {x.first} to {x.last}"
            )
        return "\n".join(lines)


def plan_arena(
    lives: Sequence[Life],
    ranges: Ranges | None = None,
    samples: Sequence[Mapping[str, int]] | None = None,
) -> ArenaPlan:
    """Place all buffers.  `ranges`: of the symbols (at least 0 unless given), for the proofs.  `samples`: the
    sizes to be good at."""
    ranges = {**{n: (0, None) for x in lives for n in free_symbols(x.size_bytes)}, **(ranges or {})}
    sizes = _Sizes(ranges, lives, samples)
    orders: list[Callable[[Life], tuple[int, ...]]] = [
        lambda x: (*sizes.largest_first(x), x.first),
        lambda x: (x.first, *sizes.largest_first(x)),
        lambda x: (x.first - x.last, *sizes.largest_first(x)),
    ]
    best: _Packing | None = None
    for order in orders:
        plan = _Packing(sorted(lives, key=order), sizes)
        best = plan if best is None or plan.cost < best.cost else best
        if best.cost <= _needed(lives, sizes):
            break
    assert best is not None
    return ArenaPlan({p.life.name: p.offset for p in best.placed}, best.total(), tuple(lives))


def _needed(lives: Sequence[Life], sizes: _Sizes) -> float:
    """Cost that no plan can be below: the most that is alive at once."""
    changes = [(x.first, 1, sizes.weight(x.size_bytes)) for x in lives]
    changes += [(x.last + 1, -1, sizes.weight(x.size_bytes)) for x in lives]
    most, alive = sizes.nothing, sizes.nothing
    for _, sign, weight in sorted(changes, key=lambda c: c[:2]):  # at one step, what ends goes first
        alive = alive + sign * weight
        most = np.maximum(most, alive)
    return sizes.cost(most) * 1.001


# ------------------------------------------------------------------------------------------------ expressions
class _Sizes:
    """Aligned sizes, their values at samples and probes, and the proofs between expressions, each done
    once."""

    def __init__(
        self, ranges: Ranges, lives: Sequence[Life], samples: Sequence[Mapping[str, int]] | None
    ) -> None:
        self._ranges = ranges
        names = sorted({n for x in lives for n in free_symbols(x.size_bytes)})
        points = list(samples or ({n: self._clip(n, v) for n in names} for v in _SAMPLES))
        self._samples = len(points)
        draw = random.Random(0)
        points += [{n: self._clip(n, draw.choice(_PROBES)) for n in names} for _ in range(_PROBE_COUNT)]
        self._points = {n: np.array([p[n] for p in points], np.int64) for n in names}
        self.nothing = np.zeros(len(points), np.int64)
        self._aligned: dict[Dim, Dim] = {}
        self._weights: dict[Dim, Weight] = {}
        self.covers = Prover(ranges).covers
        without_plan = reduce(np.add, (self.weight(x.size_bytes) for x in lives), self.nothing)
        self._scale = 1.0 / np.maximum(without_plan[: self._samples], 1)

    def _clip(self, name: str, value: int) -> int:
        low, high = self._ranges.get(name, (0, None))
        value = max(value, low) if isinstance(low, int) else value
        return min(value, high) if isinstance(high, int) else value

    def aligned(self, size: Dim) -> Dim:
        """`size` rounded up to the alignment."""
        if size not in self._aligned:
            self._aligned[size] = simplify(multiply(ceildiv(size, ALIGN_BYTES), ALIGN_BYTES), self._ranges)
        return self._aligned[size]

    def weight(self, size: Dim) -> Weight:
        """The aligned size at each sample and probe."""
        if size not in self._weights:
            self._weights[size] = np.maximum(self.nothing, self._values(self.aligned(size)))
        return self._weights[size]

    def _values(self, size: Dim) -> Weight:
        """The value at each point; 0 where it has none, because something is divided by a dim of 0."""
        try:
            return np.asarray(evaluate(size, self._points), np.int64)
        except GraphError:
            return np.array([self._value(size, i) for i in range(len(self.nothing))], np.int64)

    def _value(self, size: Dim, point: int) -> int:
        try:
            return int(evaluate(size, {n: int(v[point]) for n, v in self._points.items()}))
        except GraphError:
            return 0

    def largest_first(self, x: Life) -> tuple[int, ...]:
        """Key that sorts large buffers first, by the last sample, then the one before ..."""
        return tuple(-int(w) for w in self.weight(x.size_bytes)[: self._samples][::-1])

    def cost(self, total: Weight) -> float:
        """An arena's size at the samples, relative to no plan; no sample counts more for being large."""
        return float(np.dot(total[: self._samples], self._scale))


@dataclass(frozen=True, eq=False)
class _Spot:
    """An offset as expression, and at samples and probes."""

    dim: Dim
    at: Weight


@dataclass(frozen=True)
class _Placed:
    life: Life
    start: _Spot
    end: _Spot

    @property
    def offset(self) -> Dim:
        return self.start.dim


class _Packing:
    """One plan: the buffers placed in the given order."""

    def __init__(self, lives: Sequence[Life], sizes: _Sizes) -> None:
        self._sizes = sizes
        self._zero = _Spot(0, sizes.nothing)
        self.placed: list[_Placed] = []
        self._alive: dict[int, list[int]] = {}  # by step: positions in `placed`
        for x in lives:
            start = self._lowest(x)
            for step in range(x.first, x.last + 1):
                self._alive.setdefault(step, []).append(len(self.placed))
            self.placed.append(_Placed(x, start, self._after(start, x)))
        ends = reduce(np.maximum, (p.end.at for p in self.placed), sizes.nothing)
        self.cost = sizes.cost(ends)

    def _after(self, start: _Spot, x: Life) -> _Spot:
        return _Spot(
            add(start.dim, self._sizes.aligned(x.size_bytes)), start.at + self._sizes.weight(x.size_bytes)
        )

    def _lowest(self, x: Life) -> _Spot:
        """The lowest offset that is proved free; the maximum of all ends needs no proof."""
        steps = range(x.first, x.last + 1)
        others = [self.placed[i] for i in sorted({i for s in steps for i in self._alive.get(s, ())})]
        tried = {s.dim: s for s in (self._zero, *(p.end for p in others))}
        for start in sorted(tried.values(), key=self._height):
            end = self._after(start, x)
            if all(self._misses(start, end, p) for p in others):
                return start
        return self._top(p.end for p in others)

    def _height(self, spot: _Spot) -> float:
        return self._sizes.cost(spot.at)

    def _misses(self, start: _Spot, end: _Spot, p: _Placed) -> bool:
        """Proved: wholly before or wholly behind `p`.  Samples and probes refute cheaply."""
        covers = self._sizes.covers
        if (start.at >= p.end.at).all() and covers(start.dim, p.end.dim):
            return True
        return bool((end.at <= p.start.at).all()) and covers(p.start.dim, end.dim)

    def _top(self, ends: Iterable[_Spot]) -> _Spot:
        """The maximum of some ends, without those that are never the largest."""
        kept: list[_Spot] = []
        for spot in sorted({e.dim: e for e in ends}.values(), key=self._height, reverse=True):
            if not any((k.at >= spot.at).all() and self._sizes.covers(k.dim, spot.dim) for k in kept):
                kept.append(spot)
        if not kept:
            return self._zero
        return _Spot(maximum(*(k.dim for k in kept)), reduce(np.maximum, (k.at for k in kept)))

    def total(self) -> Dim:
        """Size of the arena."""
        return self._top(p.end for p in self.placed).dim
