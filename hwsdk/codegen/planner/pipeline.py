"""Time of a worker tile whose operands are copied into a scratchpad while the engine works.

Design choice: the block loops have three kinds of transition (inner, middle, outer loop advances).  Which
operands each kind moves, and the block it must hide behind, are known; so the time is a sum over kinds of
transition and needs no walk over steps.  The copy engine serves requests in order: while a block is worked
on it sends away the C tile of the block before and fetches what the block after needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from hwsdk.codegen.planner.blocks import block_time, drain_time
from hwsdk.codegen.planner.levels import Copies
from hwsdk.codegen.planner.nest import OPERANDS, SIZE, Block, Nest
from hwsdk.codegen.planner.tiles import K, M, Mask, N, Vector


@dataclass(frozen=True)
class Pipeline:
    """cycles: of one worker tile; engine_busy, copies_busy: what each would need alone."""

    cycles: Vector
    engine_busy: Vector
    copies_busy: Vector


def pipeline(nest: Nest) -> Pipeline:
    """Cycles of one worker tile staged through the innermost scratchpad; full and last blocks are priced
    apart."""
    stage = _Stage(nest)
    engine = stage.compute(nest.pick("mean", "mean", "mean")) * nest.tiles.trips.prod(0) + drain_time(nest)
    total, copies = stage.ends()
    total = total + drain_time(nest)
    pending = np.zeros(len(nest))  # the C tile that leaves while the last block runs
    for depth in range(3):
        for count, before, after in stage.transitions(depth):
            move = stage.move(depth, before, after)
            total = total + count * stage.overlapped(move)
            copies = copies + count * (move.loads + move.out + move.back)
        total, pending = stage.shifted(depth, total, pending)
    last = stage.compute(nest.pick("last", "last", "last"))
    return Pipeline(np.maximum(total + np.maximum(0.0, pending - last), copies), engine, copies)


def bounds(nest: Nest) -> Pipeline:
    """The same without looking at transitions one by one: good enough to drop most candidates."""
    stage = _Stage(nest)
    engine = stage.compute(nest.pick("mean", "mean", "mean")) * nest.tiles.trips.prod(0) + drain_time(nest)
    ends, copies = stage.ends()
    mean = nest.pick("mean", "mean", "mean")
    exposed = np.zeros(len(nest))
    for depth in range(3):
        count = stage.count(depth)
        move = stage.move(depth, mean, mean, work=False)
        copies = copies + count * (move.loads + move.out + move.back)
        exposed = exposed + count * np.where(move.back > 0, move.out + move.back + stage.latency, 0.0)
    overlapping = stage.copies.overlaps & (nest.tiles.buffers > 1)
    cycles = np.where(overlapping, np.maximum(engine, copies) + ends + exposed, engine + copies)
    return Pipeline(cycles, engine, copies)


@dataclass(frozen=True)
class _Move:
    """One transition: the block before it, copies fetched for the block after, C going out and partial C
    coming back."""

    work: Vector
    loads: Vector
    out: Vector
    back: Vector


@dataclass(frozen=True)
class _Stage:
    nest: Nest

    @property
    def copies(self) -> Copies:
        assert self.nest.machine.copies is not None
        return self.nest.machine.copies

    @cached_property
    def rate_in(self) -> float:
        machine = self.nest.machine
        return min(machine.levels[-2].reader, self.copies.bytes_per_cycle, machine.near.write)

    @cached_property
    def rate_out(self) -> float:
        machine = self.nest.machine
        return min(machine.levels[-2].write, self.copies.bytes_per_cycle, machine.near.read)

    @cached_property
    def latency(self) -> float:
        return max(self.copies.latency, sum(p.latency for p in self.nest.machine.levels[:-1]))

    @cached_property
    def hides(self) -> Mask:
        """Do copies run beside the engine?"""
        return np.asarray((self.nest.tiles.buffers > 1) & self.copies.overlaps)

    def count(self, depth: int) -> Vector:
        """Transitions in which the loop at `depth` advances."""
        trips = self.nest.tiles.trips_at
        return np.asarray((trips[depth] - 1) * trips[:depth].prod(0))

    def transitions(self, depth: int) -> Iterator[tuple[Vector, Block, Block]]:
        """How often the loop at `depth` advances, from which block to which: the loops further in start
        anew."""
        trips, inside, pick = self.nest.tiles.trips_at, 2 - depth, self.nest.pick
        steps = (("full", np.maximum(0, trips[depth] - 2)), ("last", np.minimum(1, trips[depth] - 1)))
        for outer in product(("full", "last"), repeat=depth):
            outer_count = np.ones(len(self.nest))
            for kind, trip in zip(outer, trips, strict=False):
                outer_count = outer_count * (trip - 1 if kind == "full" else 1)
            before = pick(*outer, "full", *["last"] * inside)
            for kind, count in steps:
                if (outer_count * count).any():
                    yield outer_count * count, before, pick(*outer, kind, *["full"] * inside)

    @cached_property
    def moves(self) -> dict[str, tuple[Mask, ...]]:
        """Does a transition at each depth change the operand's tile?"""
        tiles = self.nest.tiles
        found: dict[str, tuple[Mask, ...]] = {}
        for operand, (row, column) in OPERANDS.items():
            indexed = (tiles.order == row) | (tiles.order == column)
            again = indexed & (tiles.trips_at > 1)  # a loop further in that starts anew
            found[operand] = (
                indexed[0] | again[1] | again[2],
                indexed[1] | again[2],
                indexed[2],
            )
        return found

    def load(self, block: Block, operand: str) -> Vector:
        row, column = OPERANDS[operand]
        problem = self.nest.problem
        each = {"a": problem.a_bytes, "b": problem.b_bytes, "c": problem.acc_bytes}[operand]
        return np.asarray(block[SIZE, row] * block[SIZE, column] * (each / self.rate_in) + self.copies.setup)

    def leave(self, block: Block) -> Vector:
        """A C tile goes out: results, or partial sums at their own size."""
        each = np.where(self.nest.partial, self.nest.problem.acc_bytes, self.nest.problem.out_bytes)
        return np.asarray(block[SIZE, M] * block[SIZE, N] * each / self.rate_out + self.copies.setup)

    def compute(self, block: Block) -> Vector:
        return block_time(self.nest, block).total

    def ends(self) -> tuple[Vector, Vector]:
        """What nothing hides: the first tiles arriving, the last block and its C tile leaving; and the
        copies among it."""
        first, last = self.nest.pick("full", "full", "full"), self.nest.pick("last", "last", "last")
        copies = self.load(first, "a") + self.load(first, "b") + self.leave(last)
        waits = self.latency if self.copies.overlaps else 2 * self.latency
        return copies + waits + self.compute(last), copies

    def move(self, depth: int, before: Block, after: Block, work: bool = True) -> _Move:
        moves = self.moves
        loads = np.where(moves["a"][depth], self.load(after, "a"), 0.0)
        loads = loads + np.where(moves["b"][depth], self.load(after, "b"), 0.0)
        changes = moves["c"][depth]
        out = np.where(changes, self.leave(before), 0.0)
        back = np.where(changes & self.nest.partial, self.load(after, "c"), 0.0)
        return _Move(self.compute(before) if work else loads, loads, out, back)

    def overlapped(self, move: _Move) -> Vector:
        """Cycles of the block before the transition with the copies made meanwhile."""
        trips_k = self.nest.tiles.trips[K]
        returning = (trips_k - 1) / trips_k  # of the visits: the first finds no partial sums
        work, loads, out, back = move.work, move.loads, move.out, move.back
        waits = 0.0 if self.copies.overlaps else self.latency
        serial = work + np.where(loads > 0, loads + self.latency, 0.0) + np.where(out > 0, out + waits, 0.0)
        serial = serial + returning * np.where(back > 0, back + self.latency, 0.0)
        if not self.hides.any():
            return np.asarray(serial)
        bare = self.beside(work, loads, np.zeros(len(work)))
        hidden = np.where(self.nest.deep, bare, self.beside(work, loads, out))
        waiting = bare + out + back + self.latency
        hidden = np.where(back > 0, returning * waiting + (1 - returning) * hidden, hidden)
        return np.asarray(np.where(self.hides, hidden, serial))

    def beside(self, work: Vector, loads: Vector, out: Vector) -> Vector:
        """A block and the copies beside it: the longer one; and a buffer is filled again, after the C tile
        ahead of it in the queue, only once its block is done, so that `buffers` blocks take a whole
        round trip."""
        trip = np.where(loads > 0, out + loads + self.latency + work, 0.0) / self.nest.tiles.buffers
        return np.asarray(np.maximum(np.maximum(work, loads + out), trip))

    def shifted(self, depth: int, total: Vector, pending: Vector) -> tuple[Vector, Vector]:
        """C leaves one block later than `overlapped` says, and the second tiles are asked for with the
        first: correct the first transition and remember what leaves last.

        Where k is the innermost loop, C instead leaves beside the second k block of the next tile.
        """
        if not self.hides.any():
            return total, pending
        nest, trips = self.nest, self.nest.tiles.trips_at
        block, zero = nest.pick("full", "full", "full"), np.zeros(len(nest))
        move = self.move(depth, block, block)
        changes = self.moves["c"][depth] & self.hides
        if depth < 2:
            loads = self.move(2, block, block, work=False).loads
            late = self.beside(move.work, loads, move.out) - self.beside(move.work, loads, zero)
            total = total + np.where(nest.deep & changes, self.count(depth) * late, 0.0)
        inmost = (trips[depth] > 1) & (trips[depth + 1 :] <= 1).all(0)
        first = inmost & self.hides & ~nest.partial
        early = self.overlapped(move) - np.maximum(move.work, move.loads)
        total = total - np.where(first, early, 0.0)
        return total, np.where(first & changes & ~nest.deep, move.out, pending)
