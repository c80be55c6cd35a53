"""Tiles for sizes that are known only at run time: one register tile, everything around it as dims over m,
n, k.

Design choice: code exists per register tile (or per staged tile), blocks are arguments.  The expressions
follow the same balance rule as the planner's candidates, and `family` judges them with the planner's full
cost.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    rows = safe_rows(machine, problem, schedule.register_tile[0])
    worker = _worker(machine, problem, schedule)
    depth = _k_block(machine, problem, schedule, abilities)
    return RunTiles(worker, (_m_block(machine, problem, schedule, worker[0], depth), worker[1], depth), rows)


def safe_rows(machine: Machine, problem: Contraction, rows: int) -> Dim:
    """Rows of a register tile; where the row distance is a multiple of a way, only as many as there are
    ways to spare."""
    near = machine.near
    if not near.ways or machine.engine.m > 1 or rows < near.ways:
        return rows
    distance = problem.a_row_bytes if problem.a_row_bytes is not None else K * problem.a_bytes
    aligned = eq(mod(distance, int(near.raw_bytes // near.ways)), 0)
    return rows - (rows - (near.ways - 1)) * aligned


def _outer_bytes(machine: Machine) -> int:
    """Usable bytes of the cache that should hold a block of A: the one outside the nearest, if a worker
    owns it."""
    own = [p for p in machine.levels if p.kind == "cache" and not machine.shared(p)]
    return int(own[-2].bytes if len(own) > 1 else own[-1].bytes) if own else 1 << 18


def _k_block(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities
) -> Dim:
    """Balanced k blocks, no longer than lets a panel of B and a few register tiles of A lie side by side."""
    mr, nr = schedule.register_tile
    granule = machine.engine.k * (SLICE if machine.engine.k == 1 else 1)
    row = nr * problem.b_bytes + ROWS_OF_TILES * mr * problem.a_bytes
    longest = min(_outer_bytes(machine) // row, abilities.max_depth)
    longest = max(granule, longest // granule * granule)
    if problem.taps > 1 and isinstance(problem.k, int):
        channels = problem.k // problem.taps
        taps = max(1, longest // channels)
        return (
            ceildiv(problem.taps, ceildiv(problem.taps, taps)) * channels if longest >= channels else longest
        )
    return minimum(K, even(K, maximum(1, ceildiv(K, longest)), granule))


def _m_block(
    machine: Machine, problem: Contraction, schedule: ContractionSchedule, rows: Dim, depth: Dim
) -> Dim:
    """Balanced row blocks: A's block fills what a panel of B leaves of the cache."""
    mr, nr = schedule.register_tile
    fitting = (
        floordiv(_outer_bytes(machine), depth * problem.a_bytes) - nr * problem.b_bytes // problem.a_bytes
    )
    most = maximum(ROWS_OF_TILES * mr, fitting)
    return minimum(rows, even(rows, ceildiv(rows, most), mr))


def _worker(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Triple:
    """Worker tiles: a few per worker where each stays long against a fork, columns first (they divide
    evenly)."""
    if machine.workers == 1:
        return M, N, K
    engine = machine.engine
    mr, nr = schedule.register_tile
    rate = engine.m * engine.n * engine.k * engine.count / engine.interval
    least = max(1, int(FORKS_PER_TILE * machine.fork * rate)) * machine.workers
    batch: Dim = problem.batch if isinstance(problem.batch, int) else BATCH
    waves = minimum(TILES_PER_WORKER // 2, floordiv(batch * M * N * K, least))
    wanted = maximum(1, ceildiv(waves * machine.workers, batch))
    across = minimum(wanted, maximum(1, floordiv(N, PANELS * nr)))
    down = minimum(ceildiv(wanted, across), ceildiv(M, mr))
    return ceildiv(M, down), minimum(N, even(N, across, nr)), K


def _staged(machine: Machine, schedule: ContractionSchedule) -> RunTiles:
    """The staged tile bounds every block; blocks are balanced below it."""
    engine = machine.engine
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
