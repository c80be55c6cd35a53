"""Arena plan: where intermediate buffers live in one block of memory, for all sizes at once.

Buffers whose lifetimes do not meet share a *slot*.  A slot is as large as the largest of its members, slots
lie one after the other, and a buffer's offset is its slot's.  So the plan is right whatever the symbols are:
two live buffers are in different slots, each fits its slot, and the sum of the slots is at most the sum of
the buffers.

Design choice: sizes are expressions, so "which slot fits best" is decided at sample sizes, and only quality
depends on them.  A member that is provably never the largest leaves the slot's expression, which keeps
offsets short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hwsdk.graph.dims import (
    Dim,
    Ranges,
    add,
    ceildiv,
    evaluate,
    free_symbols,
    is_nonnegative,
    maximum,
    multiply,
    simplify,
)

ALIGN_BYTES = 64
_SAMPLES = (1, 16, 128, 512)


@dataclass(frozen=True)
class Life:
    """A buffer that holds a value from step `first` to step `last`, both included."""

    name: str
    size_bytes: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Slot:
    """A part of the arena and the buffers that take turns in it."""

    offset: Dim
    size_bytes: Dim
    members: tuple[str, ...]


@dataclass(frozen=True)
class ArenaPlan:
    """offsets: of every buffer, multiples of 64.  total_bytes: size of the arena."""

    offsets: Mapping[str, Dim]
    total_bytes: Dim
    slots: tuple[Slot, ...]

    def __str__(self) -> str:
        lines = [f"arena {self.total_bytes} bytes in {len(self.slots)} slots for {len(self.offsets)} buffers"]
        lines += [f"  @ {s.offset}: {s.size_bytes} bytes: {', '.join(s.members)}" for s in self.slots]
        return "\n".join(lines)


def plan_arena(
    lives: Sequence[Life],
    ranges: Ranges | None = None,
    samples: Sequence[Mapping[str, int]] | None = None,
) -> ArenaPlan:
    """Assign slots.  `ranges` of the symbols (at least 0 unless given) shorten the expressions; `samples` are
    the sizes to be good at."""
    ranges = {**{n: (0, None) for x in lives for n in free_symbols(x.size_bytes)}, **(ranges or {})}
    points = list(samples or _default_samples(lives, ranges))
    weights = {x.name: tuple(_evaluate(x.size_bytes, p) for p in points) for x in lives}
    orders: list[Callable[[Life], tuple[float, ...]]] = [
        lambda x: (x.first, -sum(weights[x.name])),
        lambda x: (*(-w for w in reversed(weights[x.name])), x.first),
        lambda x: (-weights[x.name][0], x.first),
    ]
    sizes = _Sizes(ranges)
    plans = [_assign(sorted(lives, key=order), weights, len(points)) for order in orders]
    return _layout(min(plans, key=_cost), sizes)


def _default_samples(lives: Sequence[Life], ranges: Ranges) -> list[dict[str, int]]:
    names = sorted({n for x in lives for n in free_symbols(x.size_bytes)})

    def clip(name: str, value: int) -> int:
        low, high = ranges.get(name, (0, None))
        value = max(value, low) if isinstance(low, int) else value
        return min(value, high) if isinstance(high, int) else value

    return [{n: clip(n, v) for n in names} for v in _SAMPLES]


def _evaluate(size: Dim, point: Mapping[str, int]) -> int:
    return max(int(evaluate(size, point)), 0)


# ------------------------------------------------------------------------------------------------- assignment
@dataclass
class _Draft:
    """A slot while buffers are being assigned; `bytes`: its size at each sample."""

    bytes: list[int]
    members: list[Life] = field(default_factory=list)

    def is_free(self, x: Life) -> bool:
        return all(m.last < x.first or x.last < m.first for m in self.members)

    def growth(self, weight: Sequence[int]) -> tuple[float, float]:
        """(what the slot must grow, what the buffer would leave unused), relative to the buffer."""
        grow = sum(max(w - b, 0) / max(w, 1) for w, b in zip(weight, self.bytes))
        waste = sum(max(b - w, 0) / max(b, 1) for w, b in zip(weight, self.bytes))
        return grow, waste


def _assign(lives: Sequence[Life], weights: Mapping[str, Sequence[int]], points: int) -> list[_Draft]:
    """Each buffer to the free slot that must grow least, then wastes least; a new slot if none is free."""
    slots: list[_Draft] = []
    for x in lives:
        weight = weights[x.name]
        free = [s for s in slots if s.is_free(x)]
        best = min(free, key=lambda s: s.growth(weight), default=None)
        if best is None:
            best = _Draft([0] * points)
            slots.append(best)
        best.members.append(x)
        best.bytes = [max(b, w) for b, w in zip(best.bytes, weight)]
    return slots


def _cost(slots: Sequence[_Draft]) -> tuple[float, int]:
    """Product of the totals at the samples: no sample counts more for being large."""
    totals = [sum(column) for column in zip(*(s.bytes for s in slots))]
    product = 1.0
    for t in totals:
        product *= max(t, 1)
    return product, len(slots)


# ------------------------------------------------------------------------------------------------ expressions
class _Sizes:
    """Aligned sizes and the proofs between them, each done once."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges: Ranges = ranges
        self._aligned: dict[Dim, Dim] = {}
        self._covers: dict[tuple[Dim, Dim], bool] = {}

    def aligned(self, size: Dim) -> Dim:
        """`size` rounded up to the alignment."""
        if size not in self._aligned:
            self._aligned[size] = simplify(multiply(ceildiv(size, ALIGN_BYTES), ALIGN_BYTES), self._ranges)
        return self._aligned[size]

    def covers(self, a: Dim, b: Dim) -> bool:
        """Is a >= b for all sizes?"""
        if (a, b) not in self._covers:
            self._covers[a, b] = is_nonnegative(add(a, multiply(-1, b)), self._ranges)
        return self._covers[a, b]

    def largest(self, sizes: Sequence[Dim]) -> Dim:
        """The maximum, without arguments that are never the largest."""
        kept: list[Dim] = []
        for size in dict.fromkeys(sizes):
            if not any(self.covers(k, size) for k in kept):
                kept = [k for k in kept if not self.covers(size, k)] + [size]
        return maximum(*(self.aligned(k) for k in kept))


def _layout(slots: Sequence[_Draft], sizes: _Sizes) -> ArenaPlan:
    """Slots one after the other."""
    offset: Dim = 0
    done: list[Slot] = []
    offsets: dict[str, Dim] = {}
    for draft in slots:
        size = sizes.largest([m.size_bytes for m in draft.members])
        done.append(Slot(offset, size, tuple(m.name for m in sorted(draft.members, key=lambda m: m.first))))
        offsets.update((m.name, offset) for m in draft.members)
        offset = add(offset, size)
    return ArenaPlan(offsets, offset, tuple(done))
