"""Which tilings are considered for one machine: register tiles, worker tiles, level tiles.

Design choice: register tiles are thinned by their engine time alone (it does not depend on the blocking around them),
and worker tiles to the few that waste least, so that planning stays in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from hwsdk.codegen.planner.blocks import Block, block_time, sides
from hwsdk.codegen.planner.fits import fits
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import Tiles, Vector, balanced, product_table

SLICE = 8  # k blocks of a one-deep intrinsic are cut in slices of this many elements
SHORTEST = 64  # k blocks at caches are at least this long
KEPT_REGISTERS = 10
KEPT_WORKERS = 16
TILES_PER_WORKER = 8


def candidates(machine: Machine, problem: Contraction, abilities: Abilities) -> Iterator[Tiles]:
    """All candidates, one batch per (order, register order, buffers)."""
    if machine.inner is not None:
        yield from _grouped(machine, problem, abilities)
    elif machine.staged:
        yield from _staged(machine, problem, abilities)
    else:
        table = _cached(machine, problem, abilities)
        for order, register_order in abilities.cache_orders:
            yield Tiles.of(table, order, register_order)


def worker_grid(machine: Machine, problem: Contraction) -> list[tuple[int, int]]:
    """(rows, columns) of worker tiles: one for a single worker, else the balanced splits that leave least idle."""
    m, n, _ = problem.extents
    if machine.workers == 1 or machine.inner is not None:
        return [(m, n)]
    engine, workers = machine.engine, machine.workers
    rows = {min(int(x), m) for x in balanced(m, max(engine.m, min(8, m)))}
    columns = {min(int(x), n) for x in balanced(n, engine.n)}
    scored = []
    for pm, pn in product(rows, columns):
        count = -(-m // pm) * -(-n // pn) * problem.batches
        if count > TILES_PER_WORKER * workers and (pm, pn) != (m, n):
            continue
        waves = -(-count // workers)
        padded = waves * (-(-pm // engine.m) * engine.m) * (-(-pn // engine.n) * engine.n)
        scored.append((padded * (1 + 0.25 * (1 / pm + 1 / pn)), pm, pn))
    scored.sort()
    return [(pm, pn) for _, pm, pn in scored[:KEPT_WORKERS]]


def register_tiles(machine: Machine, problem: Contraction, abilities: Abilities) -> Vector:
    """All (mr, nr) that fit registers or accumulators, multiples of the intrinsic, no larger than the problem."""
    engine, store = machine.engine, machine.store
    m, n, _ = problem.extents
    assert store is not None
    room = (machine.inner.register_bytes if machine.inner else store.bytes) / problem.acc_bytes
    most = max(1, int(room // (engine.m * engine.n)))
    rows = np.arange(1, min(most, -(-m // engine.m)) + 1)
    columns = np.arange(1, min(most, -(-n // engine.n)) + 1)
    if machine.inner is not None:
        rows, columns = (x[(x & (x - 1)) == 0] for x in (rows, columns))
    elif store.kind == "registers":
        rows = rows[rows <= (machine.address_registers or most)]
        columns = columns[columns <= abilities.max_vectors]
    return product_table(rows * engine.m, columns * engine.n)


def _cached(machine: Machine, problem: Contraction, abilities: Abilities) -> Vector:
    m, n, k = problem.extents
    tables = []
    registers = register_tiles(machine, problem, abilities)
    depth = k_blocks(machine, problem)
    depth = depth[depth >= min(SHORTEST, depth.max())]
    for pm, pn in worker_grid(machine, problem):
        kept = _best_registers(machine, problem, abilities, registers, pm, pn)
        rows = balanced(pm, machine.engine.m, powers=machine.engine.m > 1)
        pick = product_table(range(len(kept)), rows, depth)
        mr, nr = kept[pick[:, 0].astype(int)].T
        full = np.ones(len(pick))
        table = np.stack([pm * full, pn * full, k * full, pick[:, 1], pn * full, pick[:, 2], mr, nr], axis=1)
        tables.append(table[(pick[:, 1] >= np.minimum(mr, pm))])
    return np.concatenate(tables)


def k_blocks(machine: Machine, problem: Contraction) -> Vector:
    """k blocks: balanced; in a convolution whole taps, or balanced parts of one tap's channels."""
    k = problem.extents[2]
    granule = machine.engine.k * (SLICE if machine.engine.k == 1 and not machine.staged else 1)
    if problem.taps == 1:
        return balanced(k, granule)
    channels = k // problem.taps
    whole = balanced(problem.taps, 1) * channels
    return np.unique(np.concatenate([whole, np.minimum(balanced(channels, granule), channels)]))


def _best_registers(
    machine: Machine, problem: Contraction, abilities: Abilities, registers: Vector, pm: int, pn: int
) -> Vector:
    """The register tiles whose engine time on this worker tile is least."""
    k = problem.extents[2]
    full = np.ones(len(registers))
    table = np.stack([pm * full, pn * full, k * full, pm * full, pn * full, k * full, *registers.T], axis=1)
    tiles = Tiles.of(table, "kmn", "nm")
    fit = fits(machine, problem, tiles, abilities)
    if not fit.mask.any():
        return registers[:1]
    kept, tiles = registers[fit.mask], fit.tiles.where(fit.mask)
    block = Block(**{d: sides(machine, tiles, d).full for d in "mnk"})
    time = block_time(machine, problem, tiles, block)
    order = np.argsort(time.total + 0.02 * time.feed, kind="stable")[:KEPT_REGISTERS]
    return np.asarray(kept[order])


def _staged(machine: Machine, problem: Contraction, abilities: Abilities) -> Iterator[Tiles]:
    engine, store = machine.engine, machine.store
    k = problem.extents[2]
    depth = np.unique(np.concatenate([k_blocks(machine, problem), balanced(k, engine.k, powers=True)]))
    if problem.taps > 1:
        depth = k_blocks(machine, problem)
    tables = []
    for pm, pn in worker_grid(machine, problem):
        grid = product_table(balanced(pm, engine.m, powers=True), balanced(pn, engine.n, powers=True), depth)
        m, n = grid[:, 0], grid[:, 1]
        if store is None:
            mr, nr = np.full(len(grid), float(engine.m)), np.full(len(grid), float(engine.n))
        else:
            mr, nr = _accumulator_tile(machine, problem, m, n)
        full = np.ones(len(grid))
        tables.append(np.stack([pm * full, pn * full, k * full, m, n, grid[:, 2], mr, nr], axis=1))
    table = np.concatenate(tables)
    assert machine.copies is not None
    buffers = range(1, abilities.max_buffers + 1) if machine.copies.overlaps else (1,)
    for count, order in product(buffers, abilities.orders):
        yield Tiles.of(table, order, "mn", count)


def _accumulator_tile(machine: Machine, problem: Contraction, m: Vector, n: Vector) -> tuple[Vector, Vector]:
    """The whole level tile where the accumulators hold it, else the squarest part of it that they hold."""
    engine, store = machine.engine, machine.store
    assert store is not None
    room = store.bytes / problem.acc_bytes
    square = max(engine.m, math.floor(math.sqrt(room) / engine.m) * engine.m)
    rows = np.minimum(m, square)
    columns = np.maximum(engine.n, np.floor(room / rows / engine.n) * engine.n)
    whole = m * n <= room
    return np.where(whole, m, rows), np.where(whole, n, np.minimum(n, columns))


def _grouped(machine: Machine, problem: Contraction, abilities: Abilities) -> Iterator[Tiles]:
    """A level tile is a power-of-two grid of register tiles, one per instance of the inner level."""
    engine, inner = machine.engine, machine.inner
    assert inner is not None and machine.copies is not None
    m, n, k = problem.extents
    registers = register_tiles(machine, problem, abilities)
    grids = [(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a * b <= inner.most]
    depths = [d for d in (engine.k * 2**i for i in range(5)) if d <= max(k, engine.k)]
    splits = (1, 2, 3, 4, 6, 8, 12, 16) if abilities.split_k else (1,)
    rows = []
    for (mr, nr), (a, b), depth, parts in product(registers, grids, depths, splits):
        tm, tn = mr * a, nr * b
        if tm <= max(engine.m, 2 * m + 15) and tn <= max(engine.n, 2 * n + 15) and (parts == 1 or k / parts >= depth):
            rows.append((tm, tn, -(-k // parts), tm, tn, depth, mr, nr))
    table = np.array(rows, float)
    buffers = range(1, abilities.max_buffers + 1) if machine.copies.overlaps else (1,)
    for count in buffers:
        yield replace(Tiles.of(table, "mnk", "mn", count))
