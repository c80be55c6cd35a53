"""What the planner is asked: extents, dtypes and the few facts about operands that change a schedule.

Design choice: problems know nothing of graphs or kernels; whoever builds kernels fills one of these four
records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hwsdk.dtypes import dtype
from hwsdk.errors import PlanError


@dataclass(frozen=True)
class Range:
    """A run-time extent: low <= x <= high (None: unbounded), with values that are likely."""

    low: int = 1
    high: int | None = None
    likely: tuple[int, ...] = ()

    def samples(self, count: int = 12) -> tuple[int, ...]:
        """Values to plan for: the likely ones and a geometric sweep of the range (up to 4096 where it is
        open)."""
        low = max(1, self.low)
        high = max(low, min(self.high if self.high is not None else 4096, 1 << 20))
        steps = max(1, count - len(self.likely))
        ratio = (high / low) ** (1 / max(1, steps - 1))
        sweep = {round(low * ratio**i) for i in range(steps)}
        return tuple(sorted({*sweep, *(x for x in self.likely if x >= 1)}))

    def typical(self) -> int:
        """One value to plan for when only one is wanted: the middle of the likely ones, else the geometric
        middle."""
        if self.likely:
            return sorted(self.likely)[len(self.likely) // 2]
        samples = self.samples()
        return samples[len(samples) // 2]


Extent = int | Range


def typical(extent: Extent) -> int:
    """An integer stays; a range gives its typical value."""
    return extent.typical() if isinstance(extent, Range) else extent


@dataclass(frozen=True)
class Contraction:
    """C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

    b_constant: B is known when the artifact is built, so packing is free at run time.  b_contiguous: which
    of B's dims is contiguous in memory (`n` or `k`).  a_row_bytes: distance between rows of A as they lie in
    memory (None: dense); it decides cache-set conflicts.  A convolution is a contraction with k = taps *
    channels whose A is a map onto the image: taps, and a_reuse, how many times each element of the image
    occurs in A.  warm: operands begin in the innermost cache that holds them all.
    """

    m: Extent
    n: Extent
    k: Extent
    batch: Extent = 1
    a: str = "f32"
    b: str = "f32"
    acc: str = "f32"
    out: str = "f32"
    b_constant: bool = False
    b_contiguous: str = "n"
    a_row_bytes: int | None = None
    taps: int = 1
    a_reuse: float = 1.0
    warm: bool = True
    converted: bool = False  # operands change their dtype on the way, so that copies go through registers
    epilogue_bytes: float = 0.0  # staged per element of C for the operands of the epilogue (residual ...)

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                raise PlanError(f"contraction: {name} must not be negative, not {value}")
        if self.b_contiguous not in ("n", "k"):
            raise PlanError(f"contraction: b_contiguous must be 'n' or 'k', not {self.b_contiguous!r}")
        if self.taps < 1 or (isinstance(self.k, int) and self.k % self.taps):
            raise PlanError(f"contraction: k = {self.k} is not a multiple of {self.taps} taps")

    @property
    def dynamic(self) -> bool:
        return any(isinstance(x, Range) for x in (self.m, self.n, self.k, self.batch))

    def at(self, m: int | None = None, n: int | None = None, k: int | None = None) -> Contraction:
        """The same contraction at concrete extents; ranges that are not given take their typical value."""
        return replace(
            self,
            m=typical(self.m) if m is None else m,
            n=typical(self.n) if n is None else n,
            k=typical(self.k) if k is None else k,
            batch=typical(self.batch),
        )

    @property
    def extents(self) -> tuple[int, int, int]:
        """(m, n, k) as integers, at least 1: an empty problem is planned like the smallest one."""
        return max(1, typical(self.m)), max(1, typical(self.n)), max(1, typical(self.k))

    @property
    def batches(self) -> int:
        return max(1, typical(self.batch))

    @property
    def a_bytes(self) -> int:
        return dtype(self.a).size_bytes

    @property
    def b_bytes(self) -> int:
        return dtype(self.b).size_bytes

    @property
    def acc_bytes(self) -> int:
        return dtype(self.acc).size_bytes

    @property
    def out_bytes(self) -> int:
        return dtype(self.out).size_bytes

    @property
    def row_bytes(self) -> int:
        """Distance between rows of A."""
        return self.a_row_bytes if self.a_row_bytes is not None else self.extents[2] * self.a_bytes

    @property
    def total_bytes(self) -> float:
        """All operands of one batch entry."""
        m, n, k = self.extents
        return m * k * self.a_bytes / self.a_reuse + k * n * self.b_bytes + m * n * self.out_bytes

    def leaving_bytes(self, through_near: bool) -> float:
        """Scratchpad bytes per element of C while results leave: their own staging and the epilogue's
        operands."""
        return self.epilogue_bytes + (self.out_bytes if through_near else 0)

    def __str__(self) -> str:
        m, n, k = self.extents
        batch = f"{self.batches} x " if self.batches > 1 else ""
        return f"{batch}{m}x{n}x{k} {self.a}*{self.b}->{self.acc}"


@dataclass(frozen=True)
class Abilities:
    """What the lowering can emit; the planner offers nothing else.

    orders: block orders at a scratchpad; cache_orders: (block order, register order) at caches; max_depth: the longest
    block of k at caches.  fed: intrinsics whose operands it can bring to where they are wanted; None: all.
    """

    max_buffers: int = 2
    orders: tuple[str, ...] = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
    cache_orders: tuple[tuple[str, str], ...] = (("kmn", "nm"), ("kmn", "mn"))
    split_k: bool = False
    max_vectors: int = 4
    k_chains: bool = True
    max_depth: int = 1 << 30
    fed: frozenset[str] | None = None


@dataclass(frozen=True)
class RowProblem:
    """Reductions over rows of `length` elements.

    arrays: operands and results that differ per row; parameters: row-long operands shared by all rows;
    reads, writes: passes over the row; reductions: horizontal reductions per row; work: vector operations
    per vector of the row, all passes together.  merged_reads: passes when the statistics are merged (None:
    not possible), merged_work: work then.
    """

    rows: Extent
    length: Extent
    dtype: str = "f32"
    arrays: int = 2
    parameters: int = 0
    reads: int = 3
    writes: int = 1
    reductions: int = 2
    work: float = 6.0
    merged_reads: int | None = None
    merged_work: float | None = None


@dataclass(frozen=True)
class MapProblem:
    """`elements` independent results; bytes moved and vector operations per element."""

    elements: Extent
    dtype: str = "f32"
    read_bytes: float = 4.0
    write_bytes: float = 4.0
    work: float = 1.0


@dataclass(frozen=True)
class WindowProblem:
    """out[row, pixel, channel] reduces a window of taps of the input; weights: one per tap and channel
    (depthwise)."""

    rows: Extent
    pixels: Extent
    channels: Extent
    window: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dtype: str = "f32"
    weights: bool = True

    @property
    def taps(self) -> int:
        return math.prod(self.window)
