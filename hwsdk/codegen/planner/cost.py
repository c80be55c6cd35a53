"""Predicted cycles of candidate tilings: a roofline over the engine and every place, with what does not
overlap added.

Design choice: no closed-form tile sizes.  Everything that makes one tile better than another (chains, load
slots, bytes per level, conflicts, overheads, waves of workers) is a term here, and the planner takes the
least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.blocks import BlockTime, block_time, drain_time
from hwsdk.codegen.planner.levels import Machine, Place
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.pipeline import Pipeline, pipeline
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.reuse import Loop, traffic
from hwsdk.codegen.planner.tiles import K, M, Mask, N, Vector, ceil_div

TIE_BYTES = 1e-3  # of the memory time: of two equal tilings the one that moves fewer bytes
TIE_UNEVEN = 1e-3  # of two equal register tiles the one that divides the problem
SLACK = 0.04  # of a worker tile: the wait for the slowest worker
TOGETHER = 8  # parts of k that are read at once where they are added up
CLAIM = 0.25  # of fork_cycles: one worker takes one tile


@dataclass(frozen=True)
class Cost:
    """cycles: of the whole problem; parts: cycles per resource of one worker tile; shared: of all workers
    together."""

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


def cost(nest: Nest, staging: Callable[[Nest], Pipeline] = pipeline) -> Cost:
    """Cost every candidate; `staging` prices the copies into a scratchpad."""
    machine, unit = nest.machine, nest.machine.engine.unit
    work = block_time(nest, nest.whole)
    outside, hidden = _places(nest, work)
    if machine.staged:
        pipe = staging(nest)
        if (
            machine.inner is not None
        ):  # its instances share one scratchpad, whatever tile each has in registers
            outside[machine.near.name], hidden[machine.near.name] = work.feed, machine.near.overlap
        parts = {unit: pipe.engine_busy, "copies": pipe.copies_busy, **outside}
        one = roofline(pipe.cycles, outside, hidden)
    else:
        parts = {unit: work.unit, **outside}
        one = roofline(work.unit, outside, hidden)
        one = one + work.over * nest.tiles.trips[K] + drain_time(nest) + packing(nest)
    shared = {p.name: place_bytes(nest, i) * nest.worker_tiles / p.read for i, p in _shared(machine)}
    return Cost(across_workers(nest, one, work.issue, parts, shared), parts, shared, one)


def _places(nest: Nest, work: BlockTime) -> tuple[dict[str, Vector], dict[str, float]]:
    """Cycles that each place needs for one worker tile, and the part of them that hides behind arithmetic.  A
    scratchpad and the place that it is filled from are part of the pipeline instead."""
    machine = nest.machine
    times, hidden = {}, {}
    for i, place in enumerate(machine.levels[:-2] if machine.staged else machine.levels):
        time = place_bytes(nest, i) / (place.reader if machine.shared(place) else place.read)
        times[place.name] = np.maximum(time, work.feed) if place is machine.near else time
        hidden[place.name] = place.overlap
    return times, hidden


def _shared(machine: Machine) -> Iterator[tuple[int, Place]]:
    """Places whose whole traffic is bounded by one instance that all workers draw from."""
    for i, place in enumerate(machine.levels):
        if machine.shared(place) and not (machine.staged and place is machine.near):
            yield i, place


def packing(nest: Nest) -> Vector:
    """Copying B into panels at run time: read from where it lies, written to the nearest cache."""
    machine, problem, tiles = nest.machine, nest.problem, nest.tiles
    if problem.b_constant or not copies_b(machine, problem):
        return np.zeros(len(nest))
    near = machine.near
    source = machine.levels[-2] if len(machine.levels) > 1 else near
    transposing = problem.b_contiguous == "k"
    gather = machine.engine.n / 2 if transposing else 1.0  # such a copy moves single elements
    rate = gather * (1 / min(near.read, source.read) + 1 / near.write)
    return np.asarray(tiles.worker[K] * tiles.worker[N] * problem.b_bytes * rate)


def copies_b(machine: Machine, problem: Contraction) -> bool:
    """Must B be copied before use?  Lanes need contiguous columns; deep intrinsics need k interleaved."""
    return problem.b_contiguous == "k" or machine.engine.k > 1


def place_bytes(nest: Nest, index: int) -> Vector:
    """Bytes that `levels[index]` serves inwards for one worker tile."""
    machine, problem, tiles = nest.machine, nest.problem, nest.tiles
    levels = machine.levels
    inward = levels[index + 1] if index + 1 < len(levels) else None
    caches = [p.bytes for p in levels[index + 1 :] if p.kind == "cache"]
    if problem.warm and caches and problem.total_bytes <= max(caches):
        return np.zeros(len(nest))
    if inward is not None and inward.kind == "cache" and machine.shared(inward):
        a, b, c = _wave(nest, inward)
    else:
        a, b, visits = _operands(nest, inward)
        inside = np.where(nest.splits_k, 2.0, 1.0) * problem.acc_bytes
        last = nest.result_bytes if index == 0 else inside
        c = tiles.worker[M] * tiles.worker[N] * (last + 2 * problem.acc_bytes * np.maximum(0, visits - 1))
    return np.asarray(a + b + c)


def _operands(nest: Nest, inward: Place | None) -> tuple[Vector, Vector, Vector]:
    """Bytes of A and B that enter `inward` (None: registers), and visits of C."""
    machine, problem, tiles = nest.machine, nest.problem, nest.tiles
    element = {"a": float(problem.a_bytes), "b": float(problem.b_bytes), "c": float(problem.acc_bytes)}
    blocks: list[Loop] = [(d, tiles.level[d, np.arange(len(nest))]) for d in tiles.order]
    outer = np.where(tiles.columns_outer, N, M)
    mr, nr = tiles.register
    registers: list[Loop] = [(d, np.where(d == M, mr, nr)) for d in (outer, N - outer)]
    if inward is None:  # only the C tile and an operand that the next step repeats stay in registers
        k = (np.full(len(nest), K), np.full(len(nest), float(machine.engine.k)))
        moved = traffic([*blocks, *registers, k], tiles.worker, element, None)
        return moved.bytes["a"], moved.bytes["b"], np.where(nest.stays, 1.0, moved.visits)
    staged = traffic(blocks, tiles.worker, element, None)
    if inward.kind != "cache":
        return staged.bytes["a"], staged.bytes["b"], staged.visits
    element["a"] /= problem.a_reuse
    if machine.staged:  # on its way into the scratchpad: read once per block, whatever computes on it there
        moved = traffic(blocks, tiles.worker, element, inward.bytes)
        return moved.bytes["a"], moved.bytes["b"], staged.visits
    moved = traffic([*blocks, *registers], tiles.worker, element, inward.bytes)
    a = moved.bytes["a"]
    columns = tiles.trips[N] * ceil_div(tiles.level[N], tiles.register[1])
    line_per_element = tiles.worker[M] * tiles.worker[K] * columns * inward.line
    a = np.where(_conflicts(nest, inward), np.maximum(a, line_per_element), a)
    return a, moved.bytes["b"], moved.visits


def _wave(nest: Nest, cache: Place) -> tuple[Vector, Vector, Vector]:
    """Into a cache that workers share: those that run at once, as a square of worker tiles, read together."""
    machine, problem = nest.machine, nest.problem
    pm, pn, pk = nest.tiles.worker
    m, n, k = problem.extents
    rows = np.minimum(ceil_div(m, pm), np.ceil(np.sqrt(machine.workers * pn / pm)))
    columns = np.minimum(ceil_div(n, pn), np.ceil(machine.workers / rows))
    all_fits = problem.total_bytes <= cache.bytes
    a_bytes = problem.a_bytes / problem.a_reuse
    a = np.where(all_fits, m * k * a_bytes / nest.worker_tiles, pm * pk * a_bytes / columns)
    b = np.where(all_fits, k * n * problem.b_bytes / nest.worker_tiles, pn * pk * problem.b_bytes / rows)
    return a, b, pm * pn * nest.result_bytes


def _conflicts(nest: Nest, cache: Place) -> Mask:
    """Rows of A read in place fall into the same sets of `cache` and evict each other."""
    row_bytes = nest.problem.row_bytes
    if not cache.ways or row_bytes <= 0:
        return np.zeros(len(nest), bool)
    way = int(cache.raw_bytes / cache.ways)
    rows_per_way = way / math.gcd(int(row_bytes), way)
    return np.asarray(nest.tiles.register[0] > rows_per_way * (cache.ways - 1))


def roofline(base: Vector, times: Mapping[str, Vector], hidden: Mapping[str, float]) -> Vector:
    """The longest resource, plus the part of every other one that does not overlap with it."""
    if not times:
        return base
    rows = np.stack([base, *times.values()])
    shown = np.array([0.0, *(1.0 - hidden[name] for name in times)])[:, None] * rows
    longest = rows.argmax(0)[None]
    own = np.take_along_axis(shown, longest, 0)[0]
    most = rows.max(0) + shown.sum(0) - own
    return np.asarray(np.where(own > 0, np.maximum(most, base + shown.sum(0)), most))


def _waves(nest: Nest) -> Vector:
    """Worker tiles that the busiest worker takes, in full tiles.  Tiles are claimed one by one, so small
    edge tiles even out: no worker ends later than its share of all the work and one tile more."""
    machine, extents = nest.machine, np.array(nest.problem.extents, float)[:, None]
    count = ceil_div(nest.worker_tiles, machine.workers)
    if machine.workers == 1 or machine.inner is not None:
        return count
    work = (extents / nest.tiles.worker).prod(0) * nest.problem.batches / machine.workers
    return np.asarray(np.minimum(count, np.maximum(1.0, work + 1 - 1 / machine.workers)))


def summing(machine: Machine, parts: Vector) -> Vector:
    """Cycles until a second launch has added up `parts` parts of k, beside the bytes moved: a round trip for each
    group of parts that is under way at once."""
    return machine.fork + np.ceil(parts / TOGETHER) * trip(machine)


def trip(machine: Machine) -> float:
    """Cycles from a worker to the outermost place and back."""
    return sum(p.latency for p in machine.levels if machine.shared(p))


def across_workers(
    nest: Nest, one: Vector, issue: Vector, parts: Mapping[str, Vector], shared: Mapping[str, Vector]
) -> Vector:
    """From one worker tile to the whole problem: waves over workers, tiles in flight, shared places, forks,
    ties."""
    machine, tiles = nest.machine, nest.tiles
    waves = _waves(nest)
    cycles = waves * one
    if machine.inner is not None:
        flight = np.minimum(tiles.occupancy, waves)
        own = [parts[p.name] for p in machine.levels if p.name in parts and not machine.shared(p)]
        busiest = np.stack([issue * nest.share / machine.engine.count, *own]).max(0)
        over = np.maximum(0.0, one - busiest)
        together = np.maximum(waves * busiest + over / flight, np.ceil(waves / flight) * one)
        cycles = np.where(flight > 1, together, cycles)
    memory = sum((v for name, v in parts.items() if name != machine.engine.unit), np.zeros(len(nest)))
    cycles = cycles + TIE_BYTES * memory
    if machine.engine.m == 1:
        cycles = cycles * (1 + TIE_UNEVEN * (tiles.worker[M] % tiles.register[0] > 0))
    if shared:
        most = np.stack(list(shared.values())).max(0)
        leak = 1.0 - min(p.overlap for p in machine.levels if p.name in shared)
        cycles = np.maximum(cycles, most) + leak * np.minimum(cycles, most)
    if machine.workers > 1:
        launches = machine.fork + np.where(nest.splits_k, summing(machine, nest.parts), 0.0)
        spread = launches + waves * machine.fork * CLAIM + SLACK * one
        cycles = cycles + np.where(nest.worker_tiles > 1, spread, 0.0)
    return cycles
