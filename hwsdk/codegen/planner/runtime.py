"""Tiles for sizes that are known only at run time: one register tile, everything around it as dims over m,
n, k.

Design choice: code exists per register tile (or per staged tile), blocks are arguments.  The expressions
follow the same balance rule as the planner's candidates, and `family` judges them with the planner's full
cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hwsdk.codegen.planner.candidates import ROWS_OF_TILES, SLICE, TILES_PER_WORKER
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.graph.dims import Dim, ceildiv, eq, floordiv, maximum, minimum, mod, sym

M, N, K, BATCH = sym("m"), sym("n"), sym("k"), sym("batch")
Triple = tuple[Dim, Dim, Dim]

FORKS_PER_TILE = 2  # a worker tile takes at least this many fork times
PANELS = 2  # register tiles across a worker tile, at least, before its rows are split instead


@dataclass(frozen=True)
class RunTiles:
    """worker, level: (m, n, k) tiles; rows: of the register tile (fewer where rows of A would evict each
    other)."""

    worker: Triple
    level: Triple
    rows: Dim


def even(extent: Dim, blocks: Dim, granule: int) -> Dim:
    """A balanced block: `extent` in `blocks` blocks of whole granules."""
    return ceildiv(ceildiv(extent, granule), blocks) * granule


def run_tiles(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities
) -> RunTiles:
    """Tiles of `schedule` as expressions over m, n, k (and batch)."""
    if machine.staged:
        return _staged(machine, schedule)
    return _cached(_Facts.of(machine, problem, abilities), *schedule.register_tile)


@dataclass(frozen=True)
class _Facts:
    """All that tiles at caches depend on beside the register tile: many problems share it."""

    workers: int
    grain: int  # multiply-adds of a worker tile that are worth a fork, for all workers
    k_granule: int
    spare_rows: int | None  # rows of A that may fall into one set of the nearest cache; None: any
    way_bytes: int
    outer_bytes: int
    max_depth: int
    a_bytes: int
    b_bytes: int
    a_row_bytes: int | None
    batch: int | None
    taps: int
    taps_k: int | None  # k, where it consists of taps

    @staticmethod
    def of(machine: Machine, problem: Contraction, abilities: Abilities) -> _Facts:
        engine, near = machine.engine, machine.near
        rate = engine.m * engine.n * engine.k * engine.count / engine.interval
        return _Facts(
            machine.workers,
            max(1, int(FORKS_PER_TILE * machine.fork * rate)) * machine.workers,
            engine.k * (SLICE if engine.k == 1 else 1),
            near.ways - 1 if near.ways and engine.m == 1 else None,
            int(near.raw_bytes // near.ways) if near.ways else 0,
            _outer_bytes(machine),
            abilities.max_depth,
            problem.a_bytes,
            problem.b_bytes,
            problem.a_row_bytes,
            problem.batch if isinstance(problem.batch, int) else None,
            problem.taps,
            problem.k if problem.taps > 1 and isinstance(problem.k, int) else None,
        )


@lru_cache(maxsize=1 << 12)
def _cached(facts: _Facts, mr: int, nr: int) -> RunTiles:
    """Tiles at caches of the register tile mr x nr."""
    worker = _worker(facts, mr, nr)
    depth = _k_block(facts, mr, nr)
    return RunTiles(
        worker, (_m_block(facts, mr, nr, worker[0], depth), worker[1], depth), _safe_rows(facts, mr)
    )


def _safe_rows(facts: _Facts, rows: int) -> Dim:
    """Rows of a register tile; where the row distance is a multiple of a way, only as many as there are
    ways to spare."""
    if facts.spare_rows is None or rows <= facts.spare_rows:
        return rows
    distance = facts.a_row_bytes if facts.a_row_bytes is not None else K * facts.a_bytes
    aligned = eq(mod(distance, facts.way_bytes), 0)
    return rows - (rows - facts.spare_rows) * aligned


def _outer_bytes(machine: Machine) -> int:
    """Usable bytes of the cache that should hold a block of A: the one outside the nearest, if a worker
    owns it."""
    own = [p for p in machine.levels if p.kind == "cache" and not machine.shared(p)]
    return int(own[-2].bytes if len(own) > 1 else own[-1].bytes) if own else 1 << 18


def _k_block(facts: _Facts, mr: int, nr: int) -> Dim:
    """Balanced k blocks, no longer than lets a panel of B and a few register tiles of A lie side by side."""
    row = nr * facts.b_bytes + ROWS_OF_TILES * mr * facts.a_bytes
    longest = min(facts.outer_bytes // row, facts.max_depth)
    longest = max(facts.k_granule, longest // facts.k_granule * facts.k_granule)
    if facts.taps_k is not None:
        channels = facts.taps_k // facts.taps
        taps = max(1, longest // channels)
        return ceildiv(facts.taps, ceildiv(facts.taps, taps)) * channels if longest >= channels else longest
    return minimum(K, even(K, maximum(1, ceildiv(K, longest)), facts.k_granule))


def _m_block(facts: _Facts, mr: int, nr: int, rows: Dim, depth: Dim) -> Dim:
    """Balanced row blocks: A's block fills what a panel of B leaves of the cache."""
    fitting = floordiv(facts.outer_bytes, depth * facts.a_bytes) - nr * facts.b_bytes // facts.a_bytes
    most = maximum(ROWS_OF_TILES * mr, fitting)
    return minimum(rows, even(rows, ceildiv(rows, most), mr))


def _worker(facts: _Facts, mr: int, nr: int) -> Triple:
    """Worker tiles: a few per worker where each stays long against a fork, columns first (they divide
    evenly)."""
    if facts.workers == 1:
        return M, N, K
    batch: Dim = facts.batch if facts.batch is not None else BATCH
    waves = minimum(TILES_PER_WORKER // 2, floordiv(batch * M * N * K, facts.grain))
    wanted = maximum(1, ceildiv(waves * facts.workers, batch))
    across = minimum(wanted, maximum(1, floordiv(N, PANELS * nr)))
    down = minimum(ceildiv(wanted, across), ceildiv(M, mr))
    return ceildiv(M, down), minimum(N, even(N, across, nr)), K


def _staged(machine: Machine, schedule: ContractionSchedule) -> RunTiles:
    """The staged tile bounds every block; blocks are balanced below it.  Instances of an inner level have their parts
    of a tile for good: it is what it is."""
    engine = machine.engine
    if machine.inner is not None:
        m, n, k = (
            -(-t // g) * g for t, g in zip(schedule.tiles, (engine.m, engine.n, engine.k), strict=True)
        )
        return RunTiles((m, n, schedule.k_part or K), (m, n, k), schedule.register_tile[0])
    granules = (engine.m, engine.n, engine.k)
    worker: list[Dim] = []
    for extent, tile, whole in zip((M, N, K), schedule.worker_tile, schedule.shape, strict=True):
        worker.append(extent if tile >= whole else minimum(extent, tile))
    level = [
        minimum(w, even(w, maximum(1, ceildiv(w, tile)), granule))
        for w, tile, granule in zip(worker, schedule.tiles, granules, strict=True)
    ]
    return RunTiles(
        (worker[0], worker[1], worker[2]), (level[0], level[1], level[2]), schedule.register_tile[0]
    )
