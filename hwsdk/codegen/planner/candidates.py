"""Which tilings are considered for one machine: register tiles, worker tiles, level tiles.

Design choice: coarse to fine.  Combinations of worker and register tile are first costed with a few
blockings each; only the best combinations get every blocking.  So planning takes milliseconds although
nothing is decided by formula.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from hwsdk.codegen.planner.cost import cost
from hwsdk.codegen.planner.fits import Fit, fits
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.pipeline import bounds
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import BLOCK_COUNTS, K, M, N, Tiles, Vector, balanced, constant, grid

SLICE = 8  # k blocks of a one-deep intrinsic are cut in slices of this many elements
SHORTEST = 64  # k blocks at caches are at least this long
ROWS_OF_TILES = 4  # register tiles of a row block at caches, at least: one alone is the other register order
KEPT = 12  # combinations of worker and register tile that get every blocking
KEPT_WORKERS = 12
CHUNK = 8192  # candidates costed at once: their arrays stay in a cache of the machine that plans
KEPT_STAGED = 160  # staged nests whose transitions are looked at one by one
TILES_PER_WORKER = 8
IDLE = (1, 2, 4)  # parts of k: one per worker, or for some of them only, because fewer are added up sooner
MOST_PARTS = 64


def candidates(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit | None:
    """Every candidate worth an exact look that fits, or None."""
    if machine.inner is not None:
        return _kept(Nest(machine, problem, _grouped(machine, problem, abilities)), abilities)
    if machine.staged:
        return _staged(machine, problem, abilities)
    return _cached(machine, problem, abilities)


def in_parts(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit | None:
    """Candidates whose workers take parts of k, in whole blocks, or None: only where tiles are too few to keep all
    workers busy."""
    deep = _grouped(machine, problem, abilities)
    whole = Nest(machine, problem, deep.where(deep.buffers >= min(2, deep.buffers.max())))
    room = np.minimum(np.floor(machine.workers / whole.worker_tiles), MOST_PARTS)
    parts = np.concatenate([np.floor(room / idle) for idle in IDLE])
    tiles = Tiles.join([whole.tiles] * len(IDLE)).where(parts > 1)
    block, (m, n, k) = tiles.level[K], tiles.worker
    part = np.ceil(k / parts[parts > 1] / block) * block
    nest = Nest(machine, problem, replace(tiles, worker=np.stack([m, n, part])))
    return _kept(nest.where(nest.splits_k), abilities) if nest.splits_k.any() else None


def _kept(nest: Nest, abilities: Abilities) -> Fit | None:
    fit = fits(nest, abilities)
    return fit.kept() if fit.mask.any() else None


def worker_grid(machine: Machine, problem: Contraction) -> Vector:
    """(rows, columns) of worker tiles: one for a single worker, else the balanced splits that leave least
    idle."""
    m, n, _ = problem.extents
    if machine.workers == 1:
        return np.array([[m], [n]], float)
    engine, workers = machine.engine, machine.workers
    rows = np.unique(np.minimum(balanced(m, max(engine.m, min(8, m))), m))
    columns = np.unique(np.minimum(balanced(n, engine.n), n))
    pm, pn = grid(rows, columns)
    count = np.ceil(m / pm) * np.ceil(n / pn) * problem.batches
    allowed = (count <= TILES_PER_WORKER * workers) | ((pm == m) & (pn == n))
    padded = np.ceil(count / workers) * np.ceil(pm / engine.m) * engine.m * np.ceil(pn / engine.n) * engine.n
    score = np.where(allowed, padded * (1 + 0.25 * (1 / pm + 1 / pn)), np.inf)
    best = np.argsort(score, kind="stable")[: min(KEPT_WORKERS, int(allowed.sum()))]
    return np.stack([pm[best], pn[best]])


def register_tiles(machine: Machine, problem: Contraction, abilities: Abilities) -> Vector:
    """All (mr, nr) that may fit registers, multiples of the intrinsic, no larger than the problem."""
    engine, store = machine.engine, machine.store
    m, n, _ = problem.extents
    assert store is not None
    room = (machine.inner.register_bytes if machine.inner else store.bytes) / problem.acc_bytes
    most = max(1, int(room // (engine.m * engine.n)))
    rows = np.arange(1, min(most, -(-m // engine.m)) + 1)
    columns = np.arange(1, min(most, -(-n // engine.n)) + 1)
    if machine.inner is not None:
        rows, columns = (x[(x & (x - 1)) == 0] for x in (rows, columns))
    else:
        rows = rows[rows <= (machine.address_registers or most)]
        columns = columns[columns <= abilities.max_vectors]
    mr, nr = grid(rows * engine.m, columns * engine.n)
    return np.stack([mr, nr])[:, mr * nr <= most * engine.m * engine.n]


def k_blocks(machine: Machine, problem: Contraction, abilities: Abilities) -> Vector:
    """k blocks: balanced; in a convolution whole taps, or balanced parts of one tap's channels."""
    sizes = _k_blocks(machine, problem)
    return sizes if machine.staged else sizes[sizes <= max(sizes[0], abilities.max_depth)]


def _k_blocks(machine: Machine, problem: Contraction) -> Vector:
    k = problem.extents[2]
    granule = machine.engine.k * (SLICE if machine.engine.k == 1 and not machine.staged else 1)
    if problem.taps == 1:
        return balanced(k, granule)
    channels = k // problem.taps
    whole = balanced(problem.taps, 1) * channels
    return np.unique(np.concatenate([whole, np.minimum(balanced(channels, granule), channels)]))


# ------------------------------------------------------------------------------------------------ at caches
def _cached(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit | None:
    pairs, depth = _pairs(machine, problem, abilities)
    if pairs.shape[1] > KEPT:
        coarse = _blocked(machine, problem, abilities, pairs, depth[-3::2], coarse=True)
        if coarse is None:
            return None
        pairs = _best_pairs(coarse)
    return _blocked(machine, problem, abilities, pairs, depth, coarse=False)


def coarse_candidates(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit | None:
    """Every register tile with a few blockings each (at caches), else all that deserve an exact look."""
    if machine.staged:
        return candidates(machine, problem, abilities)
    pairs, depth = _pairs(machine, problem, abilities)
    return _blocked(machine, problem, abilities, pairs, depth[-3::2], coarse=True)


def _pairs(machine: Machine, problem: Contraction, abilities: Abilities) -> tuple[Vector, Vector]:
    """(worker tile, register tile) pairs as columns, and the k blocks."""
    depth = k_blocks(machine, problem, abilities)
    workers = worker_grid(machine, problem)
    registers = fitting_registers(machine, problem, abilities).nest.tiles.register
    pick = grid(range(workers.shape[1]), range(registers.shape[1])).astype(int)
    pairs = np.concatenate([workers[:, pick[0]], registers[:, pick[1]]])
    pairs[1] = np.minimum(
        np.ceil(pairs[1] / pairs[3]) * pairs[3], problem.extents[1]
    )  # panels of B stay whole
    pairs = np.unique(pairs, axis=1)
    return pairs, depth[depth >= min(SHORTEST, depth.max())]


def fitting_registers(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit:
    """Every register tile that fits, with the whole problem as its block."""
    registers = register_tiles(machine, problem, abilities)
    whole = constant(problem.extents, registers.shape[1])
    return fits(Nest(machine, problem, Tiles.of(whole, whole, registers, "kmn")), abilities).kept()


def _blocked(
    machine: Machine, problem: Contraction, abilities: Abilities, pairs: Vector, depth: Vector, coarse: bool
) -> Fit | None:
    """Every (worker tile, register tile) pair with row blocks and k blocks, in the orders that can be
    emitted."""
    engine = machine.engine
    tables: dict[float, Vector] = {}
    for pm in np.unique(pairs[0]):
        rows = balanced(int(pm), engine.m)
        rows = rows[[len(rows) // 2, -1]] if coarse and len(rows) > 1 else rows
        tables[pm] = grid(rows, depth)
    table = np.concatenate([tables[pm] for pm in pairs[0]], axis=1)
    pm, pn, mr, nr = np.repeat(pairs, [tables[pm].shape[1] for pm in pairs[0]], axis=1)
    worker = np.stack([pm, pn, np.full(len(pm), float(problem.extents[2]))])
    least = np.minimum(ROWS_OF_TILES * mr, pm)
    level = np.stack([np.maximum(table[0], least), pn, table[1]])
    orders = abilities.cache_orders[:1] if coarse else abilities.cache_orders
    table, first = np.unique(np.concatenate([worker[:2], level, [mr, nr]]), axis=1, return_index=True)
    worker, level, register = worker[:, first], level[:, first], table[5:]
    parts = [Tiles.of(worker, level, register, *order) for order in orders]
    return _kept(Nest(machine, problem, Tiles.join(parts)), abilities)


def _best_pairs(fit: Fit) -> Vector:
    """The pairs whose best blocking costs least."""
    tiles = fit.nest.tiles
    cycles = cost(fit.nest).cycles
    pairs = np.concatenate([tiles.worker[:2], tiles.register])
    found: dict[bytes, int] = {}
    for i in np.argsort(cycles, kind="stable"):
        found.setdefault(pairs[:, i].tobytes(), int(i))
        if len(found) == KEPT:
            break
    return pairs[:, list(found.values())]


# ------------------------------------------------------------------------------------------- at scratchpads
def _staged(machine: Machine, problem: Contraction, abilities: Abilities) -> Fit | None:
    """All level tiles, orders and buffers that fit, thinned by what engine and copies need at least."""
    assert machine.copies is not None
    engine = machine.engine
    depth = k_blocks(machine, problem, abilities)
    workers, levels = [], []
    for pm, pn in worker_grid(machine, problem).T:
        rows, columns = balanced(int(pm), engine.m), balanced(int(pn), engine.n)
        levels.append(grid(rows, columns, depth))
        workers.append(constant((pm, pn, problem.extents[2]), levels[-1].shape[1]))
    level, worker = np.concatenate(levels, axis=1), np.concatenate(workers, axis=1)
    holds = (level[M] * problem.a_bytes + level[N] * problem.b_bytes) * level[K] <= machine.near.bytes
    base = Tiles.of(
        worker[:, holds], level[:, holds], _accumulator_tile(machine, problem, level[:, holds]), "mnk"
    )
    fit = _most_buffers(
        machine, problem, abilities, Tiles.join([base.reordered(o) for o in abilities.orders])
    )
    if fit is None or len(fit.nest) <= KEPT_STAGED:
        return fit
    chunks = [np.arange(i, min(i + CHUNK, len(fit.nest))) for i in range(0, len(fit.nest), CHUNK)]
    least = np.concatenate([cost(fit.nest.where(chunk), bounds).cycles for chunk in chunks])
    return fit.pick(np.argpartition(least, KEPT_STAGED)[:KEPT_STAGED])


def _most_buffers(machine: Machine, problem: Contraction, abilities: Abilities, tiles: Tiles) -> Fit | None:
    """Each tile with as many buffers as fit (one where copies do not overlap or nothing moves): more never
    cost more."""
    assert machine.copies is not None
    most = abilities.max_buffers if machine.copies.overlaps else 1
    still = (tiles.trips <= 1).all(0)
    left = np.ones(len(tiles), bool)
    found = []
    for count in range(most, 0, -1):
        fit = fits(Nest(machine, problem, tiles.buffered(count)), abilities)
        keep = fit.mask & left & ((count == 1) | ~still)
        left &= ~keep
        if keep.any():
            found.append(fit.pick(keep))
    return Fit.join(found) if found else None


def _accumulator_tile(machine: Machine, problem: Contraction, level: Vector) -> Vector:
    """The whole level tile where the accumulators hold it, else the shape that cuts it into fewest parts."""
    engine, store = machine.engine, machine.store
    if store is None:
        return constant((engine.m, engine.n), level.shape[1])
    cells = int(store.bytes / (problem.acc_bytes * engine.m * engine.n))
    high, wide = np.ceil(level[M] / engine.m), np.ceil(level[N] / engine.n)
    best = np.full(level.shape[1], np.inf)
    rows, columns = np.ones_like(best), np.ones_like(best)
    for down in (x for x in BLOCK_COUNTS if x <= cells):
        across = np.minimum(wide, cells // down)
        parts = np.ceil(high / down) * np.ceil(wide / across)
        better = parts < best
        best = np.where(better, parts, best)
        rows, columns = np.where(better, down, rows), np.where(better, across, columns)
    whole = high * wide <= cells
    register = np.stack([rows * engine.m, columns * engine.n])
    return np.where(whole, level[:2], np.minimum(register, np.stack([high * engine.m, wide * engine.n])))


def _grouped(machine: Machine, problem: Contraction, abilities: Abilities) -> Tiles:
    """A level tile is a power-of-two grid of register tiles, one per instance of the inner level."""
    engine, inner = machine.engine, machine.inner
    assert inner is not None
    assert machine.copies is not None
    m, n, k = problem.extents
    registers = register_tiles(machine, problem, abilities)
    across = np.array([(a, b) for a, b in product((1, 2, 4, 8), repeat=2) if a * b <= inner.most], float).T
    granule = engine.deep or engine.k
    depths = [d for d in (granule * 2**i for i in range(5)) if d <= max(k, granule)]
    pick = grid(range(registers.shape[1]), range(across.shape[1]), depths)
    mr, nr = registers[:, pick[0].astype(int)]
    rows, columns = across[:, pick[1].astype(int)]
    level = np.stack([mr * rows, nr * columns, pick[2]])
    worker = np.stack([level[M], level[N], np.full(level.shape[1], float(k))])
    keep = (level[M] <= max(engine.m, 2 * m + 15)) & (level[N] <= max(engine.n, 2 * n + 15))
    base = Tiles.of(worker[:, keep], level[:, keep], np.stack([mr, nr])[:, keep], "mnk")
    buffers = range(1, abilities.max_buffers + 1) if machine.copies.overlaps else (1,)
    return Tiles.join([base.buffered(b) for b in buffers])
