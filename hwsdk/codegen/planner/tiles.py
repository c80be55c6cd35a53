"""Candidate tilings as vectors: one array entry per candidate, costed all at once.

Design choice: only balanced tiles.  A dim of D in granules g is cut into c blocks of ceil(ceil(D/g)/c)*g, so no plan has
a remainder tile that its cost does not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

BLOCK_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 1024)
FIELDS = ("pm", "pn", "pk", "m", "n", "k", "mr", "nr")


@dataclass(frozen=True)
class Tiles:
    """Worker tile (pm, pn, pk), level tile (m, n, k) and register tile (mr, nr) of every candidate; one order for all.

    chains: independent sets of accumulators over k; occupancy: worker tiles in flight (both set by `fits`).
    """

    pm: Vector
    pn: Vector
    pk: Vector
    m: Vector
    n: Vector
    k: Vector
    mr: Vector
    nr: Vector
    order: str
    register_order: str
    buffers: int = 1
    chains: Vector | None = None
    occupancy: Vector | None = None

    @classmethod
    def of(cls, table: Vector, order: str, register_order: str, buffers: int = 1) -> Tiles:
        """From rows of the eight fields; level tiles are clipped to worker tiles, register tiles to level tiles."""
        pm, pn, pk, m, n, k, mr, nr = (np.ascontiguousarray(c) for c in table.T)
        m, n, k = np.minimum(m, pm), np.minimum(n, pn), np.minimum(k, pk)
        return cls(pm, pn, pk, m, n, k, np.minimum(mr, m), np.minimum(nr, n), order, register_order, buffers)

    def where(self, which: NDArray[Any]) -> Tiles:
        """Some of the candidates, by mask or index."""
        changes = {name: getattr(self, name)[which] for name in (*FIELDS, "chains", "occupancy") if self.has(name)}
        return replace(self, **changes)

    def has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def __len__(self) -> int:
        return len(self.m)

    def worker(self, dim: str) -> Vector:
        return {"m": self.pm, "n": self.pn, "k": self.pk}[dim]

    def level(self, dim: str) -> Vector:
        return {"m": self.m, "n": self.n, "k": self.k}[dim]

    def trips(self, dim: str) -> Vector:
        """Blocks of one dim in a worker tile."""
        return ceil_div(self.worker(dim), self.level(dim))

    def row(self, i: int) -> dict[str, int]:
        return {name: int(getattr(self, name)[i]) for name in FIELDS}


def ceil_div(a: Vector | float, b: Vector | float) -> Vector:
    return np.ceil(np.asarray(a, float) / b)


def balanced(extent: int, granule: int, most: int | None = None, powers: bool = False) -> Vector:
    """Balanced block sizes of an extent: one per block count, geometric beyond eight; `most` limits the size."""
    granules = -(-extent // granule)
    limit = granules if most is None else max(1, most // granule)
    sizes = {-(-granules // c) for c in BLOCK_COUNTS if c <= granules} | {1}
    if powers:
        sizes |= {1 << i for i in range(12) if 1 << i <= granules}
    return np.array(sorted(s * granule for s in sizes if s <= limit), float)


def even(extent: int, block: int, granule: int = 1) -> int:
    """The balanced block size nearest below `block`: as many blocks, but equal ones."""
    granules = -(-extent // granule)
    count = max(1, -(-extent // max(1, block)))
    return -(-granules // count) * granule


def product_table(*columns: Iterable[float] | Vector) -> Vector:
    """All combinations of the columns, one row each."""
    grids = np.meshgrid(*[np.asarray(list(c), float) for c in columns], indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=1)
