"""One machine, one problem, many tilings: the facts about the nests that fitting and costing share.

Design choice: each fact is computed once, lazily, for all candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.tiles import K, M, Mask, N, Tiles, Vector, ceil_div

OPERANDS: dict[str, tuple[int, int]] = {"a": (M, K), "b": (K, N), "c": (M, N)}
SIZE, GRANULES, REGISTER_TILES = 0, 1, 2

Block = Vector  # [size, granules, register tiles] x [m, n, k] x candidates


@dataclass(frozen=True)
class Nest:
    machine: Machine
    problem: Contraction
    tiles: Tiles
    inner_cycles: Vector | None = None  # time of a full block, where a nest further in has been planned

    def __len__(self) -> int:
        return len(self.tiles)

    def where(self, which: NDArray[Any]) -> Nest:
        inner = None if self.inner_cycles is None else self.inner_cycles[which]
        return Nest(self.machine, self.problem, self.tiles.where(which), inner)

    @cached_property
    def single(self) -> Mask:
        """Is the level tile one register tile?"""
        level, register = self.tiles.level, self.tiles.register
        return np.asarray((level[M] <= register[0]) & (level[N] <= register[1]))

    @cached_property
    def whole_k(self) -> Mask:
        return np.asarray(self.tiles.level[K] >= self.tiles.worker[K])

    @cached_property
    def k_inmost(self) -> Mask:
        return np.asarray(self.tiles.order[2] == K)

    @cached_property
    def stays(self) -> Mask:
        """Does the C tile stay in registers or accumulators over all of k?"""
        over_blocks = self.k_inmost & (self.single | (self.machine.inner is not None))
        return self.whole_k | over_blocks

    @cached_property
    def c_in_near(self) -> Mask:
        """Must the partial C tile of a staged nest lie in the scratchpad between k blocks?"""
        if self.machine.inner is not None:
            return ~self.whole_k & ~self.k_inmost
        if self.machine.store is None:
            return np.ones(len(self), bool)
        return ~(self.whole_k | (self.single & self.k_inmost))

    @cached_property
    def groups(self) -> Vector:
        """Register tiles of a level tile: one per instance of the inner level."""
        return np.asarray(ceil_div(self.tiles.level[:2], self.tiles.register).prod(0))

    @cached_property
    def share(self) -> Vector:
        """Units that one worker tile can use."""
        count = self.machine.engine.count
        return np.full(len(self), count) if self.machine.inner is None else np.minimum(count, self.groups)

    @cached_property
    def tiles_in_flight(self) -> Vector:
        """Register tiles worked on at once."""
        return np.ones(len(self)) if self.machine.inner is None else np.maximum(self.share, self.groups)

    @cached_property
    def deep(self) -> Mask:
        """Is k the innermost loop that advances?"""
        return np.asarray(self.k_inmost & (self.tiles.trips[K] > 1))

    @cached_property
    def partial(self) -> Mask:
        """Do partial sums leave the worker: is there a loop over m or n inside the loop over k?"""
        trips, depth = self.tiles.trips, self.tiles.depth_of
        inside = [(trips[d] > 1) & (depth[d] > depth[K]) for d in (M, N)]
        return np.asarray((inside[0] | inside[1]) & (trips[K] > 1))

    @cached_property
    def kinds(self) -> dict[str, Block]:
        """Blocks of every dim: full, last, the average, the average without the first."""
        tiles, engine = self.tiles, self.machine.engine
        granule = np.array([[engine.m], [engine.n], [engine.k]], float)
        register = np.concatenate([tiles.register, tiles.level[K:]])
        trips = tiles.trips

        def block(size: Vector) -> Block:
            return np.stack([size, ceil_div(size, granule), ceil_div(size, register)])

        full, last = block(tiles.level), block(tiles.worker - (trips - 1) * tiles.level)
        rest = np.maximum(1, trips - 1)
        return {
            "full": full,
            "last": last,
            "mean": (full * (trips - 1) + last) / trips,
            "rest": (full * (rest - 1) + last) / rest,
        }

    def pick(self, *which: str) -> Block:
        """A block by the kind of each loop, outer to inner."""
        first, second, third = (self.kinds[w] for w in which)
        if which[0] == which[1] == which[2]:
            return first
        depth = self.tiles.depth_of
        return np.where(depth == 0, first, np.where(depth == 1, second, third))

    @cached_property
    def whole(self) -> Block:
        """The whole worker tile as one block."""
        return np.asarray(self.kinds["mean"] * self.tiles.trips)

    @cached_property
    def worker_tiles(self) -> Vector:
        """Worker tiles of the problem, all batches."""
        extents = np.array(self.problem.extents, float)[:, None]
        return np.asarray(ceil_div(extents, self.tiles.worker).prod(0) * self.problem.batches)

    @cached_property
    def splits_k(self) -> Mask:
        return np.asarray(self.tiles.worker[K] < self.problem.extents[2])

    @cached_property
    def parts(self) -> Vector:
        """Of k, over workers."""
        return ceil_div(self.problem.extents[2], self.tiles.worker[K])

    @cached_property
    def result_bytes(self) -> Vector:
        """Moved outside all workers for an element of a worker tile: a result, or a partial sum that is written and
        read again with its share of the result."""
        out, acc = self.problem.out_bytes, self.problem.acc_bytes
        return np.asarray(np.where(self.splits_k, 2 * acc + out / self.parts, out))
