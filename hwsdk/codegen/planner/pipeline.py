"""Time of a worker tile whose operands are copied into a scratchpad while the engine works.

Design choice: the block loops have three kinds of transition (inner, middle, outer loop advances).  Which operands each
kind moves, and the block it must hide behind, are known exactly; so the pipeline is a sum over three kinds and needs no
walk over steps.  The copy engine serves requests in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.blocks import Block, Side, Sides, block_time, drain_time, sides
from hwsdk.codegen.planner.levels import Copies, Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.reuse import OPERANDS
from hwsdk.codegen.planner.tiles import Mask, Tiles, Vector


@dataclass(frozen=True)
class Pipeline:
    """cycles: of one worker tile; engine_busy, copies_busy: what each would need alone."""

    cycles: Vector
    engine_busy: Vector
    copies_busy: Vector


def pipeline(machine: Machine, problem: Contraction, tiles: Tiles) -> Pipeline:
    """Cycles of one worker tile staged through the innermost scratchpad."""
    nest = _Nest.of(machine, problem, tiles)
    order = tiles.order
    total = nest.fill() + nest.drain
    busy_copies = nest.load_time(OPERANDS["a"], None) + nest.load_time(OPERANDS["b"], None)
    for depth in range(3):
        count = nest.count(depth)
        changed = {order[depth]: np.ones(len(tiles), bool)}
        for inner in order[depth + 1 :]:
            changed[inner] = nest.sides[inner].trips > 1
        loads = sum((nest.load_time(OPERANDS[x], changed) for x in "ab"), np.zeros(len(tiles)))
        out, back = nest.c_time(changed)
        total = total + count * nest.step(depth, loads, out, back)
        busy_copies = busy_copies + count * (loads + out + back)
    total = total + nest.compute("last", "last", "last") + nest.c_out
    busy = nest.compute("mean", "mean", "mean") * nest.steps + nest.drain
    return Pipeline(np.maximum(total, busy_copies + nest.c_out), busy, busy_copies)


@dataclass(frozen=True)
class _Nest:
    machine: Machine
    problem: Contraction
    tiles: Tiles
    copies: Copies
    sides: dict[str, Sides]
    rate_in: float
    rate_out: float
    latency: float
    drain: Vector
    c_out: Vector  # the final C tile of an average block, on its way out

    @classmethod
    def of(cls, machine: Machine, problem: Contraction, tiles: Tiles) -> _Nest:
        assert machine.copies is not None
        copies, near = machine.copies, machine.near
        outer = machine.levels[:-1]
        rate_in = min(outer[-1].reader, copies.bytes_per_cycle, near.write)
        rate_out = min(outer[-1].write, copies.bytes_per_cycle, near.read)
        latency = max(copies.latency, sum(p.latency for p in outer))
        dims = {d: sides(machine, tiles, d) for d in "mnk"}
        c_tile = dims["m"].mean.size * dims["n"].mean.size
        c_out = c_tile * problem.out_bytes / rate_out + copies.setup
        drain = drain_time(machine, problem, tiles)
        return cls(machine, problem, tiles, copies, dims, rate_in, rate_out, latency, drain, c_out)

    @property
    def steps(self) -> Vector:
        return self.sides["m"].trips * self.sides["n"].trips * self.sides["k"].trips

    def count(self, depth: int) -> Vector:
        """Transitions in which the loop at `depth` advances."""
        total = self.sides[self.tiles.order[depth]].trips - 1
        for outer in self.tiles.order[:depth]:
            total = total * self.sides[outer].trips
        return total

    def load_time(self, dims: str, changed: dict[str, Mask] | None) -> Vector:
        """Copying an average tile of A or B, where one of its dims has changed (None: always)."""
        size = self.problem.a_bytes if dims == "mk" else self.problem.b_bytes
        elements = self.sides[dims[0]].mean.size * self.sides[dims[1]].mean.size
        cycles = elements * size / self.rate_in + self.copies.setup
        if changed is None:
            return cycles
        moves = np.zeros(len(self.tiles), bool)
        for dim in dims:
            moves = moves | changed.get(dim, np.zeros(1, bool))
        return np.where(moves, cycles, 0.0)

    def c_time(self, changed: dict[str, Mask]) -> tuple[Vector, Vector]:
        """The C tile going out when (m, n) changes, and a partial one coming back."""
        moves = np.zeros(len(self.tiles), bool)
        for dim in "mn":
            moves = moves | changed.get(dim, np.zeros(1, bool))
        partial = self.partial()
        elements = self.sides["m"].mean.size * self.sides["n"].mean.size
        acc = elements * self.problem.acc_bytes
        out = np.where(partial, acc / self.rate_out + self.copies.setup, self.c_out)
        back = np.where(partial, acc / self.rate_in + self.copies.setup, 0.0)
        trips_k = self.sides["k"].trips
        return np.where(moves, out, 0.0), np.where(moves, back * (trips_k - 1) / trips_k, 0.0)

    def partial(self) -> Mask:
        """Do partial sums leave the worker: is a loop over m or n inside the loop over k?"""
        order = self.tiles.order
        inside = order[order.index("k") + 1 :]
        moved = np.zeros(len(self.tiles), bool)
        for dim in inside:
            moved = moved | (self.sides[dim].trips > 1)
        return moved & (self.sides["k"].trips > 1)

    def compute(self, *which: str) -> Vector:
        """Engine time of a block; `which`: full, last or mean for each dim in loop order."""
        chosen: dict[str, Side] = {d: getattr(self.sides[d], w) for d, w in zip(self.tiles.order, which, strict=True)}
        return block_time(self.machine, self.problem, self.tiles, Block(**chosen)).total

    def fill(self) -> Vector:
        """The first tiles of A and B: nothing to hide behind."""
        return self.load_time("mk", None) + self.load_time("kn", None) + self.latency

    def step(self, depth: int, loads: Vector, out: Vector, back: Vector) -> Vector:
        """One transition: the block before it, and the copies that it starts."""
        before = [("mean", "mean", "full"), ("mean", "full", "last"), ("full", "last", "last")][2 - depth]
        work = self.compute(*before)
        partial_trip = np.where(back > 0, out + back + 2 * self.latency, 0.0)
        leaving = np.where(back > 0, 0.0, out)
        waiting = np.where(loads > 0, loads + self.latency, 0.0)
        if not self.copies.overlaps:
            return work + waiting + leaving + partial_trip + np.where(leaving > 0, self.latency, 0.0)
        if self.tiles.buffers == 1:
            return work + waiting + np.maximum(0.0, leaving - work) + partial_trip
        hidden = np.maximum(loads + leaving, waiting / (self.tiles.buffers - 1))
        return np.maximum(work, hidden) + partial_trip

