"""The run-time selector: the cost of a version as a dim over m, n, k, and the least of several.

Design choice: only terms that differ between versions are kept, in whole numbers (cycles times a scale);
what all versions pay (bytes of B, forks) drops out.  The full cost function is the judge in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.runtime import K, M, N, RunTiles
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.graph.dims import Dim, ceildiv, gt, maximum, minimum, mod

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
    """The longer of engine and copies, plus the tiles at both ends that nothing hides."""
    engine, copies = machine.engine, machine.copies
    assert copies is not None
    worker, level = tiles.worker, tiles.level
    trips = {d: ceildiv(w, t) for d, w, t in zip("mnk", worker, level, strict=True)}
    uses = ceildiv(worker[0], engine.m) * ceildiv(worker[1], engine.n) * ceildiv(worker[2], engine.k)
    parts = math.prod(-(-t // r) for t, r in zip(schedule.tiles[:2], schedule.register_tile, strict=True))
    steps = trips["m"] * trips["n"] * trips["k"]
    busy = uses * _whole(engine.interval / engine.count, scale) + steps * _whole(
        parts * engine.tile_overhead, scale
    )
    per_byte = _whole(
        1 / min(machine.levels[-2].reader, copies.bytes_per_cycle, machine.near.write), scale * FINEST
    )
    setup = _whole(copies.setup, scale)
    moved: Dim = 0
    extents = dict(zip("mnk", worker, strict=True))
    for dims, size in (("mk", problem.a_bytes), ("kn", problem.b_bytes), ("mn", problem.out_bytes)):
        again = _repeats(schedule.order, dims, trips)
        moved = moved + extents[dims[0]] * extents[dims[1]] * again * (size * per_byte)
        moved = moved + trips[dims[0]] * trips[dims[1]] * again * (setup * FINEST)
    ends = level[0] * level[2] * problem.a_bytes + level[2] * level[1] * problem.b_bytes
    ends = (ends + level[0] * level[1] * problem.out_bytes) * per_byte
    tile = ceildiv(level[0], engine.m) * ceildiv(level[1], engine.n) * ceildiv(level[2], engine.k)
    first = tile * _whole(engine.interval / engine.count, scale) * FINEST
    if not copies.overlaps or schedule.buffers == 1:
        return busy * FINEST + moved
    count = ceildiv(M, worker[0]) * ceildiv(N, worker[1])
    return ceildiv(count, machine.workers) * (maximum(busy * FINEST, moved) + ends + first)


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
