"""Predicted cycles of candidate tilings: a roofline over the engine and every place, with what does not overlap added.

Design choice: no closed-form tile sizes.  Everything that makes one tile better than another (chains, load slots, bytes
per level, conflicts, overheads, waves of workers) is a term here, and the planner takes the least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.blocks import Block, block_time, drain_time, sides, stays
from hwsdk.codegen.planner.levels import Machine, Place
from hwsdk.codegen.planner.pipeline import pipeline
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.reuse import traffic
from hwsdk.codegen.planner.tiles import Tiles, Vector, ceil_div

TIE_BYTES = 1e-3  # of the memory time: of two equal tilings the one that moves fewer bytes
SLACK = 0.04  # of a worker tile: the wait for the slowest worker
CLAIM = 0.25  # of fork_cycles: one worker takes one tile


@dataclass(frozen=True)
class Cost:
    """cycles: of the whole problem; parts: cycles per resource of one worker tile; shared: of all workers together."""

    cycles: Vector
    parts: Mapping[str, Vector]
    shared: Mapping[str, Vector]
    tile: Vector

    def bound_by(self, i: int) -> str:
        """The resource that the time of candidate `i` comes from."""
        if self.shared:
            name = max(self.shared, key=lambda x: self.shared[x][i])
            if self.shared[name][i] >= 0.8 * self.cycles[i]:
                return name
        return max(self.parts, key=lambda x: self.parts[x][i])


def cost(machine: Machine, problem: Contraction, tiles: Tiles, exact: bool = False) -> Cost:
    """Cost every candidate; exact: price full and last blocks of a staged nest separately."""
    parts: dict[str, Vector] = {}
    hidden: dict[str, float] = {}
    shared: dict[str, Vector] = {}
    engine = machine.engine
    work = block_time(machine, problem, tiles, _whole(machine, tiles))
    exposed = np.zeros(len(tiles))
    if machine.staged:
        pipe = pipeline(machine, problem, tiles, exact)
        parts[engine.unit], parts["copies"] = pipe.engine_busy, pipe.copies_busy
        base = pipe.cycles
    else:
        exposed = _exposed(machine, problem, tiles, work.over)
        parts[engine.unit] = work.unit
        base = work.unit
    for i, place in enumerate(machine.levels):
        if machine.staged and place is machine.near:
            continue  # its feed is part of the blocks
        total, per_worker = place_bytes(machine, problem, tiles, i)
        time = per_worker / (place.reader if machine.shared(place) else place.read)
        if place is machine.near:
            time = np.maximum(time, work.feed)
        parts[place.name], hidden[place.name] = time, place.overlap
        if machine.shared(place):
            shared[place.name] = total / place.read
    one = _roofline(base, {k: v for k, v in parts.items() if k in hidden}, hidden) + exposed
    cycles = _parallel(machine, problem, tiles, one, work.issue, parts, shared)
    return Cost(cycles, parts, shared, one)


def _whole(machine: Machine, tiles: Tiles) -> Block:
    """The whole worker tile as one block."""
    made = {}
    for dim in "mnk":
        side = sides(machine, tiles, dim)
        mean, trips = side.mean, side.trips
        tile_count = mean.tiles * trips
        made[dim] = type(mean)(mean.size * trips, mean.granules * trips, tile_count)
    return Block(**made)


def _exposed(machine: Machine, problem: Contraction, tiles: Tiles, over: Vector) -> Vector:
    """At caches: the overhead of every register tile, once per k block, and its trips between registers and memory."""
    return over * tiles.trips("k") + drain_time(machine, problem, tiles) + packing(machine, problem, tiles)


def packing(machine: Machine, problem: Contraction, tiles: Tiles) -> Vector:
    """Copying B into panels at run time: read from where it lies, written to the nearest cache."""
    if problem.b_constant or machine.staged or not copies_b(machine, problem):
        return np.zeros(len(tiles))
    near = machine.near
    rate = 1 / min(near.read, machine.levels[-2].read if len(machine.levels) > 1 else near.read) + 1 / near.write
    gather = 1.0 if problem.b_contiguous == "n" else machine.engine.n / 2  # a transposing copy moves single elements
    return tiles.pk * tiles.pn * problem.b_bytes * rate * gather


def copies_b(machine: Machine, problem: Contraction) -> bool:
    """Must B be copied before use?  Lanes need contiguous columns; deep intrinsics need k interleaved."""
    return problem.b_contiguous == "k" or machine.engine.k > 1


def place_bytes(machine: Machine, problem: Contraction, tiles: Tiles, index: int) -> tuple[Vector, Vector]:
    """Bytes that `levels[index]` serves inwards: of all workers together, and of one worker tile."""
    levels = machine.levels
    inward = levels[index + 1] if index + 1 < len(levels) else None
    whole = {"m": tiles.pm, "n": tiles.pn, "k": tiles.pk}
    element = {"a": problem.a_bytes, "b": problem.b_bytes, "c": problem.acc_bytes}
    count = worker_tiles(problem, tiles)
    caches = [p.bytes for p in levels[index + 1 :] if p.kind == "cache"]
    if problem.warm and caches and problem.total_bytes <= max(caches):
        return np.zeros(len(tiles)), np.zeros(len(tiles))
    if inward is not None and inward.kind == "cache" and machine.shared(inward):
        a, b, c = _wave(machine, problem, tiles, inward)
    else:
        blocks = tuple((d, tiles.level(d)) for d in tiles.order)
        registers = tuple((d, {"m": tiles.mr, "n": tiles.nr}[d]) for d in tiles.register_order)
        if inward is None:  # into registers: only the C tile and an operand that the next step repeats stay
            nest, capacity = (*blocks, *registers, ("k", np.full(len(tiles), float(machine.engine.k)))), None
        elif inward.kind == "cache":
            nest, capacity = (*blocks, *registers), inward.bytes
            element["a"] = problem.a_bytes / problem.a_reuse
        else:
            nest, capacity = blocks, None
        moved = traffic(nest, whole, element, capacity)
        visits = np.where(stays(machine, tiles), 1.0, moved.visits) if inward is None else moved.visits
        a, b = moved.bytes["a"], moved.bytes["b"]
        if inward is not None and inward.kind == "cache":
            a = np.where(_conflicts(problem, tiles, inward), np.maximum(a, _line_per_element(tiles, inward)), a)
        last = problem.out_bytes if index == 0 else problem.acc_bytes
        c = tiles.pm * tiles.pn * (last + 2 * problem.acc_bytes * np.maximum(0, visits - 1))
    split = np.where(tiles.pk < problem.extents[2], 2.0, 1.0)
    each = a + b + c * split
    return each * count, each


def _wave(machine: Machine, problem: Contraction, tiles: Tiles, cache: Place) -> tuple[Vector, Vector, Vector]:
    """Into a cache that workers share: those that run at once, as a square of worker tiles, read together."""
    m, n, k = problem.extents
    rows = np.minimum(ceil_div(m, tiles.pm), np.ceil(np.sqrt(machine.workers * tiles.pn / tiles.pm)))
    columns = np.minimum(ceil_div(n, tiles.pn), np.ceil(machine.workers / rows))
    count = worker_tiles(problem, tiles)
    all_fits = problem.total_bytes <= cache.bytes
    a_bytes = problem.a_bytes / problem.a_reuse
    a = np.where(all_fits, m * k * a_bytes / count, tiles.pm * tiles.pk * a_bytes / columns)
    b = np.where(all_fits, k * n * problem.b_bytes / count, tiles.pn * tiles.pk * problem.b_bytes / rows)
    return a, b, tiles.pm * tiles.pn * problem.out_bytes


def _conflicts(problem: Contraction, tiles: Tiles, cache: Place) -> Vector:
    """Rows of A read in place fall into the same sets of `cache` and evict each other."""
    if not cache.ways or problem.row_bytes <= 0:
        return np.zeros(len(tiles), bool)
    way = int(cache.raw_bytes / cache.ways)
    rows_per_set = way / math.gcd(int(problem.row_bytes), way)
    return np.asarray(tiles.mr > rows_per_set * (cache.ways - 1))


def _line_per_element(tiles: Tiles, cache: Place) -> Vector:
    columns = tiles.trips("n") * ceil_div(tiles.n, tiles.nr)
    return tiles.pm * tiles.pk * columns * cache.line


def worker_tiles(problem: Contraction, tiles: Tiles) -> Vector:
    m, n, k = problem.extents
    return ceil_div(m, tiles.pm) * ceil_div(n, tiles.pn) * ceil_div(k, tiles.pk) * problem.batches


def _roofline(base: Vector, times: Mapping[str, Vector], hidden: Mapping[str, float]) -> Vector:
    """The longest resource, plus the part of every other one that does not overlap with it."""
    rows = np.stack([base, *times.values()])
    shown = np.array([0.0, *(1.0 - hidden[name] for name in times)])[:, None] * rows
    longest = rows.argmax(0)
    most = rows.max(0)
    rest = shown.sum(0) - np.take_along_axis(shown, longest[None], 0)[0]
    leaky = np.take_along_axis(shown, longest[None], 0)[0] > 0
    return np.where(leaky, np.maximum(most + rest, base + shown.sum(0)), most + rest)


def _parallel(
    machine: Machine,
    problem: Contraction,
    tiles: Tiles,
    one: Vector,
    issue: Vector,
    parts: Mapping[str, Vector],
    shared: Mapping[str, Vector],
) -> Vector:
    """From one worker tile to the whole problem: waves over workers, tiles in flight, shared places, forks."""
    count = worker_tiles(problem, tiles)
    waves = ceil_div(count, machine.workers)
    if tiles.occupancy is not None and machine.inner is not None:
        flight = np.minimum(tiles.occupancy, waves)
        own = [issue] + [parts[p.name] for p in machine.levels if p.name in parts and not machine.shared(p)]
        busiest = np.stack(own).max(0)
        over = np.maximum(0.0, one - busiest)
        cycles = np.where(flight > 1, np.maximum(waves * busiest + over / flight, np.ceil(waves / flight) * one), waves * one)
    else:
        cycles = waves * one
    cycles = cycles + TIE_BYTES * sum((v for k, v in parts.items() if k != machine.engine.unit), np.zeros(len(tiles)))
    if shared:
        most = np.stack(list(shared.values())).max(0)
        leak = 1.0 - min(p.overlap for p in machine.levels if p.name in shared)
        cycles = np.maximum(cycles, most) + leak * np.minimum(cycles, most)
    if machine.workers > 1:
        launches = np.where(tiles.pk < problem.extents[2], 2.0, 1.0)
        cycles = cycles + np.where(count > 1, machine.fork * launches + waves * machine.fork * CLAIM + SLACK * one, 0.0)
    return cycles
