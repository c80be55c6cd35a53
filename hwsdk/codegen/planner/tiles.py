"""Candidate tilings as arrays: one column per candidate, all costed at once.

Design choice: only balanced tiles.  A dim of D in granules g is cut into c blocks of ceil(ceil(D/g)/c)*g, so
no plan has a remainder tile that its cost does not see.  Loop order is data too, so candidates of all orders
share one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

M, N, K = 0, 1, 2
DIMS = "mnk"
BLOCK_COUNTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    64,
    80,
    96,
    128,
    192,
    256,
    384,
    512,
    1024,
)


@dataclass(frozen=True)
class Tiles:
    """worker, level: (m, n, k) tiles, one row per dim; register: (mr, nr); order: the dim at each loop,
    outer to inner.

    columns_outer: register tiles go down the columns of a block first; chains: independent sets of
    accumulators over k; occupancy: worker tiles in flight (both filled in by `fits`).
    """

    worker: Vector
    level: Vector
    register: Vector
    order: Index
    columns_outer: Mask
    buffers: Vector
    chains: Vector
    occupancy: Vector

    @classmethod
    def of(
        cls,
        worker: Vector,
        level: Vector,
        register: Vector,
        order: str,
        register_order: str = "mn",
        buffers: int = 1,
    ) -> Tiles:
        """One order for all columns; level tiles are clipped to worker tiles, register tiles to level
        tiles."""
        count = level.shape[1]
        level = np.minimum(level, worker)
        return cls(
            worker=worker,
            level=level,
            register=np.minimum(register, level[:2]),
            order=np.repeat([[DIMS.index(d)] for d in order], count, axis=1),
            columns_outer=np.full(count, register_order == "nm"),
            buffers=np.full(count, float(buffers)),
            chains=np.ones(count),
            occupancy=np.ones(count),
        )

    @classmethod
    def join(cls, parts: Sequence[Tiles]) -> Tiles:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts], axis=-1) for f in fields(cls)))

    def where(self, which: NDArray[Any]) -> Tiles:
        """Some of the candidates, by mask or index."""
        return type(self)(*(getattr(self, f.name)[..., which] for f in fields(self)))

    def reordered(self, order: str) -> Tiles:
        """The same tiles in another block order."""
        return replace(self, order=np.repeat([[DIMS.index(d)] for d in order], len(self), axis=1))

    def buffered(self, buffers: int) -> Tiles:
        """The same tiles with other buffers."""
        return replace(self, buffers=np.full(len(self), float(buffers)))

    def __len__(self) -> int:
        return int(self.level.shape[1])

    @cached_property
    def trips(self) -> Vector:
        """Blocks of each dim in a worker tile."""
        return np.ceil(self.worker / self.level)

    @cached_property
    def depth_of(self) -> Index:
        """For each dim the depth of its loop."""
        return np.argsort(self.order, axis=0)

    @cached_property
    def trips_at(self) -> Vector:
        """Blocks of the loop at each depth."""
        return np.take_along_axis(self.trips, self.order, axis=0)

    def order_text(self, i: int) -> str:
        return "".join(DIMS[d] for d in self.order[:, i])


def ceil_div(a: Vector | float, b: Vector | float) -> Vector:
    return np.ceil(np.asarray(a, float) / b)


def balanced(extent: int, granule: int) -> Vector:
    """Balanced block sizes of an extent: one per block count, geometric beyond eight."""
    granules = -(-extent // granule)
    sizes = {-(-granules // c) for c in BLOCK_COUNTS if c <= granules} | {1}
    return np.array(sorted(s * granule for s in sizes), float)


def even(extent: int, block: int, granule: int = 1) -> int:
    """The balanced block size for as many blocks as `block` gives."""
    granules = -(-extent // granule)
    count = max(1, -(-extent // max(1, block)))
    return -(-granules // count) * granule


def grid(*columns: Iterable[float] | Vector) -> Vector:
    """All combinations, one row per given column list."""
    meshes = np.meshgrid(*[np.asarray(list(c), float) for c in columns], indexing="ij")
    return np.stack([g.ravel() for g in meshes])


def constant(values: Sequence[float], count: int) -> Vector:
    """`values` as rows of `count` equal columns."""
    return np.repeat(np.asarray(values, float)[:, None], count, axis=1)
