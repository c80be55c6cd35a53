"""Time of a worker tile whose operands are copied into a scratchpad while the engine works.

Design choice: the block loops have three kinds of transition (inner, middle, outer loop advances).  Which operands each
kind moves, and the block it must hide behind, are known; so the time is a sum over kinds of transition and needs no
walk over steps.  The copy engine serves requests in order: while a block is worked on it sends away the C tile of the
block before and fetches what the block after needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from hwsdk.codegen.planner.blocks import Block, Side, Sides, block_time, drain_time, sides
from hwsdk.codegen.planner.levels import Copies, Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.reuse import OPERANDS
from hwsdk.codegen.planner.tiles import Mask, Tiles, Vector

Sizes = dict[str, Side]


@dataclass(frozen=True)
class Pipeline:
    """cycles: of one worker tile; engine_busy, copies_busy: what each would need alone."""

    cycles: Vector
    engine_busy: Vector
    copies_busy: Vector


def pipeline(machine: Machine, problem: Contraction, tiles: Tiles, exact: bool = False) -> Pipeline:
    """Cycles of one worker tile staged through the innermost scratchpad.

    exact: price full and last blocks of every loop separately instead of average ones (about ten times the work).
    """
    nest = _Nest.of(machine, problem, tiles, exact)
    drain = drain_time(machine, problem, tiles)
    first, last = nest.pick("full", "full", "full"), nest.pick("last", "last", "last")
    loads = nest.load(first, "a") + nest.load(first, "b")
    leaving = nest.leave(last)
    total = loads + nest.latency + drain + leaving + nest.compute(last)
    copies = loads + leaving
    pending = np.zeros(len(tiles))  # the C tile that leaves while the last block runs
    for depth in range(3):
        for count, before, after in nest.transitions(depth):
            move = nest.move(depth, before, after)
            total = total + count * nest.overlapped(depth, move)
            copies = copies + count * (move.loads + move.out + move.back)
        total, pending = nest.shift(depth, total, pending)
    total = total + np.maximum(0.0, pending - nest.compute(last))
    engine = nest.compute(nest.pick("mean", "mean", "mean")) * nest.steps + drain
    return Pipeline(np.maximum(total, copies), engine, copies)


@dataclass(frozen=True)
class _Move:
    """One transition: the block before it, copies fetched for the block after, C going out and partial C coming back."""

    work: Vector
    loads: Vector
    out: Vector
    back: Vector


@dataclass(frozen=True)
class _Nest:
    machine: Machine
    problem: Contraction
    tiles: Tiles
    exact: bool
    copies: Copies
    sides: dict[str, Sides]
    rate_in: float
    rate_out: float
    latency: float

    @classmethod
    def of(cls, machine: Machine, problem: Contraction, tiles: Tiles, exact: bool) -> _Nest:
        assert machine.copies is not None
        copies, near = machine.copies, machine.near
        outer = machine.levels[:-1]
        rate_in = min(outer[-1].reader, copies.bytes_per_cycle, near.write)
        rate_out = min(outer[-1].write, copies.bytes_per_cycle, near.read)
        latency = max(copies.latency, sum(p.latency for p in outer))
        dims = {d: sides(machine, tiles, d) for d in "mnk"}
        return cls(machine, problem, tiles, exact, copies, dims, rate_in, rate_out, latency)

    @property
    def steps(self) -> Vector:
        return self.sides["m"].trips * self.sides["n"].trips * self.sides["k"].trips

    def pick(self, *which: str) -> Sizes:
        """One side per dim; `which` in loop order: full, last, mean or rest."""
        return {d: getattr(self.sides[d], w) for d, w in zip(self.tiles.order, which, strict=True)}

    def transitions(self, depth: int) -> Iterator[tuple[Vector, Sizes, Sizes]]:
        """How often the loop at `depth` advances, from which block to which: the loops further in start anew."""
        trips = [self.sides[d].trips for d in self.tiles.order]
        inside = 2 - depth
        if not self.exact:
            count = trips[depth] - 1
            for outer in trips[:depth]:
                count = count * outer
            mean = ["mean"] * depth
            yield count, self.pick(*mean, "full", *["last"] * inside), self.pick(*mean, "rest", *["full"] * inside)
            return
        for outer_kinds in product(("full", "last"), repeat=depth):
            outer_count = np.ones(len(self.tiles))
            for kind, outer in zip(outer_kinds, trips, strict=False):
                outer_count = outer_count * (outer - 1 if kind == "full" else 1)
            before = self.pick(*outer_kinds, "full", *["last"] * inside)
            for kind, count in (("full", np.maximum(0, trips[depth] - 2)), ("last", np.minimum(1, trips[depth] - 1))):
                yield outer_count * count, before, self.pick(*outer_kinds, kind, *["full"] * inside)

    def moves(self, operand: str, depth: int) -> Mask:
        """Does a transition at `depth` change the operand's tile?"""
        dims, order = OPERANDS[operand], self.tiles.order
        moved = np.full(len(self.tiles), order[depth] in dims)
        for inner in order[depth + 1 :]:
            if inner in dims:
                moved = moved | (self.sides[inner].trips > 1)
        return moved

    def load(self, sizes: Sizes, operand: str) -> Vector:
        row, column = OPERANDS[operand]
        each = {"a": self.problem.a_bytes, "b": self.problem.b_bytes, "c": self.problem.acc_bytes}[operand]
        return sizes[row].size * sizes[column].size * each / self.rate_in + self.copies.setup

    def leave(self, sizes: Sizes, partial: bool = False) -> Vector:
        each = self.problem.acc_bytes if partial else self.problem.out_bytes
        return sizes["m"].size * sizes["n"].size * each / self.rate_out + self.copies.setup

    def compute(self, sizes: Sizes) -> Vector:
        return block_time(self.machine, self.problem, self.tiles, Block(**sizes)).total

    def partial(self) -> Mask:
        """Do partial sums leave the worker: is there a loop over m or n inside the loop over k?"""
        order = self.tiles.order
        moved = np.zeros(len(self.tiles), bool)
        for dim in order[order.index("k") + 1 :]:
            moved = moved | (self.sides[dim].trips > 1)
        return moved & (self.sides["k"].trips > 1)

    def deep(self) -> Mask:
        """Is k the innermost loop that advances?  Then a C tile leaves while the next one takes its second k block."""
        return (self.sides["k"].trips > 1) & (self.tiles.order[-1] == "k")

    def move(self, depth: int, before: Sizes, after: Sizes) -> _Move:
        zero = np.zeros(len(self.tiles))
        loads = sum((np.where(self.moves(x, depth), self.load(after, x), 0.0) for x in "ab"), zero)
        changes, partial = self.moves("c", depth), self.partial()
        out = np.where(changes, np.where(partial, self.leave(before, True), self.leave(before)), 0.0)
        back = np.where(changes & partial, self.load(after, "c"), 0.0)
        return _Move(self.compute(before), loads, out, back)

    def overlapped(self, depth: int, move: _Move) -> Vector:
        """Cycles of the block before the transition with the copies made meanwhile."""
        returning = (self.sides["k"].trips - 1) / self.sides["k"].trips  # of the visits: the first finds no partial sums
        work, loads, out = move.work, move.loads, move.out
        arriving = np.where(loads > 0, loads + self.latency, 0.0)
        if not self.copies.overlaps or self.tiles.buffers == 1:
            waits = self.latency if not self.copies.overlaps else 0.0
            serial = work + arriving + np.where(out > 0, out + waits, 0.0)
            return serial + returning * np.where(move.back > 0, move.back + self.latency, 0.0)
        arriving = np.maximum(loads, arriving / (self.tiles.buffers - 1))
        hidden = np.maximum(work, np.maximum(arriving, loads + out))
        bare = np.maximum(work, arriving)
        waiting = bare + out + move.back + self.latency
        hidden = np.where(move.back > 0, returning * waiting + (1 - returning) * hidden, hidden)
        return np.where(self.deep(), bare, hidden)

    def shift(self, depth: int, total: Vector, pending: Vector) -> tuple[Vector, Vector]:
        """C leaves one block later than `overlapped` says: correct the first transition and remember the last.

        Where k is the innermost loop, C instead leaves beside the second k block of the next tile.
        """
        if not self.copies.overlaps or self.tiles.buffers == 1:
            return total, pending
        trips = [self.sides[d].trips for d in self.tiles.order]
        kinds = ["full"] * 3
        block = self.pick(*kinds)
        move = self.move(depth, block, block)
        if depth < 2:
            count = trips[depth] - 1
            for outer in trips[:depth]:
                count = count * outer
            inner = self.move(2, block, block)
            late = np.maximum(inner.work, inner.loads + move.out) - np.maximum(inner.work, inner.loads)
            total = total + np.where(self.deep() & self.moves("c", depth), count * late, 0.0)
        inmost = trips[depth] > 1
        for further in trips[depth + 1 :]:
            inmost = inmost & (further <= 1)
        here = inmost & ~self.deep() & self.moves("c", depth) & ~self.partial()
        early = np.maximum(move.work, move.loads + move.out) - np.maximum(move.work, move.loads)
        return total - np.where(here, early, 0.0), np.where(here, move.out, pending)
