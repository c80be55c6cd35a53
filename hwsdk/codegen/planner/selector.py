"""The run-time selector: the cost of a version as a dim over m, n, k, and the least of several.

Design choice: only terms that differ between versions are kept, in whole numbers (cycles times a scale);
what all versions pay (bytes of B, forks) drops out.  The full cost function is the judge in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hwsdk.codegen.planner.blocks import block_time
from hwsdk.codegen.planner.cost import CLAIM, SLACK, TOGETHER, cost, trip
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.runtime import BATCH, K, M, N, RunTiles
from hwsdk.codegen.planner.tiles import Tiles, constant
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.graph.dims import Dim, ceildiv, floordiv, gt, maximum, minimum, mod

NEVER = 1 << 40  # more than any cost: parts of k are for workers that have nothing else to do
FINEST = 16  # denominators of rates are kept up to this


def select(costs: Sequence[Dim]) -> Dim:
    """The index of the least cost; of equal ones the first."""
    if len(costs) == 1:
        return 0
    width = 1 << (len(costs) - 1).bit_length()
    return mod(minimum(*(c * width + i for i, c in enumerate(costs))), width)


def version_cost(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, tiles: RunTiles, scale: int
) -> Dim:
    """Cycles x `scale` of one version; `scale_of` gives a scale that all versions of a problem share."""
    if machine.inner is not None:
        return _grouped_cost(machine, problem, schedule, tiles, scale * FINEST)
    if machine.staged:
        return _staged_cost(machine, problem, schedule, tiles, scale)
    return _cached_cost(machine, schedule, tiles, scale)


def scale_of(machines: Sequence[Machine]) -> int:
    """A scale that makes the rates of all machines whole."""
    rates = [r for m in machines for r in _rates(m)]
    return math.lcm(1, *(Fraction(r).limit_denominator(FINEST).denominator for r in rates))


def _rates(machine: Machine) -> tuple[float, ...]:
    engine, near = machine.engine, machine.near
    return engine.interval / engine.count, 1 / near.loads if near.loads else 0.0


def _whole(value: float, scale: int) -> int:
    return round(value * scale)


def _cached_cost(machine: Machine, schedule: ContractionSchedule, tiles: RunTiles, scale: int) -> Dim:
    """K steps x the slowest of issue, chain and loads, plus what each register tile costs once."""
    engine, near = machine.engine, machine.near
    nr = schedule.register_tile[1]
    rows, columns = ceildiv(M, tiles.rows), ceildiv(N, nr)
    unit_rows, vectors = ceildiv(M, engine.m), ceildiv(N, engine.n)
    issue = unit_rows * vectors * _whole(engine.interval / engine.count, scale)
    chain = rows * columns * _whole(engine.chain / schedule.k_chains, scale)
    terms = [issue, chain]
    if near.loads:
        terms.append((unit_rows * columns + rows * vectors) * _whole(1 / near.loads, scale))
    each = engine.tile_overhead + engine.chain
    return ceildiv(K, engine.k) * maximum(*terms) + rows * columns * _whole(each, scale)


def _staged_cost(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, tiles: RunTiles, scale: int
) -> Dim:
    """The longest of engine, copies and round trips, plus what nothing hides: both ends, partial sums that
    return."""
    engine, copies = machine.engine, machine.copies
    assert copies is not None
    scale *= FINEST
    level, extents = tiles.level, dict(zip("mnk", tiles.worker, strict=True))
    trips = {d: ceildiv(w, t) for d, w, t in zip("mnk", tiles.worker, level, strict=True)}
    steps = trips["m"] * trips["n"] * trips["k"]
    per_byte = _whole(1 / min(machine.levels[-2].reader, copies.bytes_per_cycle, machine.near.write), scale)
    setup = _whole(copies.setup, scale)
    latency = _whole(max(copies.latency, sum(p.latency for p in machine.levels[:-1])), scale)
    uses = [ceildiv(extents[d], g) for d, g in zip("mnk", (engine.m, engine.n, engine.k), strict=True)]
    parts = math.prod(-(-t // r) for t, r in zip(schedule.tiles[:2], schedule.register_tile, strict=True))
    busy = uses[0] * uses[1] * uses[2] * _whole(engine.interval / engine.count, scale)
    busy = busy + steps * _whole(parts * engine.tile_overhead, scale)
    again = {x: _repeats(schedule.order, x, trips) for x in ("mk", "kn", "mn")}
    moved: Dim = (
        extents["m"] * extents["n"] * (problem.out_bytes * per_byte) + trips["m"] * trips["n"] * setup
    )
    for x, size in (("mk", problem.a_bytes), ("kn", problem.b_bytes)):
        moved = moved + extents[x[0]] * extents[x[1]] * again[x] * (size * per_byte)
        moved = moved + trips[x[0]] * trips[x[1]] * again[x] * setup
    returning = again["mn"] - 1
    back = extents["m"] * extents["n"] * (2 * problem.acc_bytes * per_byte)
    back = returning * (back + trips["m"] * trips["n"] * (2 * setup + latency))
    ends = level[0] * level[2] * problem.a_bytes + level[2] * level[1] * problem.b_bytes
    ends = (ends + level[0] * level[1] * problem.out_bytes) * per_byte
    tile = ceildiv(level[0], engine.m) * ceildiv(level[1], engine.n) * ceildiv(level[2], engine.k)
    work = tile * _whole(engine.interval / engine.count, scale)
    if (
        copies.overlaps and schedule.buffers > 1
    ):  # copies at the ends wait for no engine, the last block for no copy
        trip = floordiv(moved + busy + ends + work + steps * latency, schedule.buffers)
        each = maximum(busy + ends, moved + work, trip) + back
    else:
        each = busy + moved + back + steps * latency
    waves = ceildiv(ceildiv(M, tiles.worker[0]) * ceildiv(N, tiles.worker[1]), machine.workers)
    return waves * each


@dataclass(frozen=True)
class _Turn:
    """Cycles of one worker tile: alone, per block of k and beside them; of its busiest resource, per block."""

    step: float
    ends: float
    busy: float


STEPS = (8, 24)  # blocks of k at which a worker tile is priced


def _turn(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> _Turn:
    """One worker tile by the full cost function: it is linear in the blocks of k."""
    m, n, k = schedule.tiles
    ones, busy = [], 0.0
    for steps in STEPS:
        sized = replace(problem, m=m, n=n, k=steps * k, batch=1)
        whole, tile = constant(sized.extents, 1), constant((m, n, k), 1)
        register = constant(schedule.register_tile, 1)
        nest = Nest(machine, sized, Tiles.of(whole, tile, register, "mnk", buffers=schedule.buffers))
        found = cost(nest)
        ones.append(float(found.tile[0]))
        own = [
            found.parts[p.name][0] for p in machine.levels if p.name in found.parts and not machine.shared(p)
        ]
        issue = block_time(nest, nest.whole).issue * nest.share / machine.engine.count
        busy = max(float(issue[0]), *map(float, own)) / steps
    step = (ones[1] - ones[0]) / (STEPS[1] - STEPS[0])
    return _Turn(step, ones[0] - STEPS[0] * step, busy)


def _grouped_cost(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, tiles: RunTiles, scale: int
) -> Dim:
    """Turns of the workers, each with some tiles in flight, or the bytes that all of them draw from one place."""
    m, n, k = schedule.tiles
    turn = _turn(machine, problem, schedule)
    steps = ceildiv(tiles.worker[2], k)
    batch = problem.batch if isinstance(problem.batch, int) else BATCH
    count = ceildiv(M, m) * ceildiv(N, n) * ceildiv(K, tiles.worker[2]) * batch
    turns = ceildiv(count, machine.workers)
    flight = minimum(turns, schedule.occupancy)
    one = steps * _whole(turn.step, scale) + _whole(turn.ends, scale)
    busy = steps * _whole(turn.busy, scale)
    over = one - busy
    own = maximum(turns * busy + floordiv(turns * over, flight), ceildiv(turns, flight) * one)
    own = own + turns * _whole(machine.fork * CLAIM, scale) + floordiv(one, round(1 / SLACK))
    result = 2 * problem.acc_bytes if schedule.k_part else problem.out_bytes
    moved = count * (tiles.worker[2] * (m * problem.a_bytes + n * problem.b_bytes) + m * n * result)
    drawn = [moved * _whole(1 / p.read, scale * FINEST) for p in machine.levels[1:-1] if machine.shared(p)]
    total = maximum(own, *(floordiv(x, FINEST) for x in drawn)) if drawn else own
    if not schedule.k_part:
        return total
    trips = ceildiv(K, schedule.k_part * TOGETHER)
    total = total + _whole(machine.fork, scale) + trips * _whole(trip(machine), scale)
    return total + gt(count, machine.workers) * NEVER


def _repeats(order: str, dims: str, trips: dict[str, Dim]) -> Dim:
    """How often a loop outside the operand's own makes it come again: not if nothing further in has moved
    it."""
    again: Dim = 1
    for i, d in enumerate(order):
        if d not in dims:
            inside = [trips[x] for x in order[i + 1 :] if x in dims]
            moving: Dim = gt(maximum(*inside), 1) if len(inside) > 1 else gt(inside[0], 1) if inside else 0
            again = again * (1 + (trips[d] - 1) * moving)
    return again
