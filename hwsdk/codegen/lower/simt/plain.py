"""Blocks for contractions without a matrix intrinsic: how many elements of the result one lane takes.

More elements per lane need fewer loads for the same products, fewer elements make more workgroups.  Where these are too
few to hide the way of their operands, several share k.  Design choice: a handful of lane tiles is judged by one number,
the turns of all cores times the cost of a block; parts of k by the predicted cycles with and without them.  For sizes
known only at run time the best of each sampled number of rows stays, behind a guard on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np

from hwsdk.codegen.lower.simt.facts import SimtChip, round_up
from hwsdk.codegen.lower.simt.fragments import MatrixUse, plain_use
from hwsdk.codegen.lower.simt.plain_cost import PlainMachine
from hwsdk.codegen.lower.simt.tensor import BlockTile
from hwsdk.codegen.planner import Contraction, Range
from hwsdk.codegen.planner.family import MOST_IN_PARTS, greedy
from hwsdk.codegen.planner.problem import typical

DEPTH = 16  # k of a staged block
LANE_TILES = ((8, 8), (4, 8), (4, 4), (2, 4), (1, 4), (1, 1))
WAVES = 4
ROWS = (1, 4, 16, 64, 256, 1024)  # sampled where the number of rows is known only at run time
PARTS = (2, 4, 8, 16, 32)  # of k
GAIN = 0.25  # of the predicted cycles, that parts must save: a second launch, memory, and a coarse prediction
FEW = 2  # blocks of a core, up to which it waits for their operands most of the time
LONG = 2048  # k from half of which on it may be shared, where it is known only at run time
SHORTEST = 4 * DEPTH  # of a part


@dataclass(frozen=True)
class PlainTile:
    """A lane tile and the block of its workgroup; `most`: rows up to which it is the best (None: any).  part: of k, for
    one workgroup (0: no part, all of k)."""

    use: MatrixUse
    tile: BlockTile
    most: int | None = None
    part: int = 0


def plain_tiles(chip: SimtChip, problem: Contraction, dtype: str) -> list[PlainTile]:
    """Tiles from few rows to many, the last without a limit."""
    choices = [_tile(chip, rows, columns, dtype) for rows, columns in LANE_TILES]
    out: list[PlainTile] = []
    for sized in _samples(problem):
        out = _added(out, _best(chip, choices, sized))
    return [*out[:-1], replace(out[-1], most=None)]


def tiles_in_parts(
    chip: SimtChip, problem: Contraction, dtype: str, whole: Sequence[PlainTile]
) -> list[PlainTile]:
    """Tiles with parts of k for the rows at which they gain enough on the `whole` ones, from few rows to many.  Only
    where blocks are few, and where all parts are in flight at once."""
    machine = PlainMachine.of(chip, dtype)
    problem = replace(problem, k=shared_depth(problem))
    k = problem.extents[2]
    parts = sorted({round_up(-(-k // p), DEPTH) for p in PARTS if k >= p * SHORTEST})
    choices = [_tile(chip, rows, columns, dtype) for rows, columns in LANE_TILES]
    pool = [replace(c, part=p) for c, p in product(choices, parts)]
    sizes: list[Contraction] = []
    for sized in _samples(problem):
        best = _for_rows(whole, sized.extents[0])
        if best is None or blocks(best, sized) > FEW * machine.workers:
            break
        sizes.append(sized)
    if not pool or not sizes:
        return []

    def cycles(tile: PlainTile | None, sized: Contraction) -> float:
        if tile is None or (tile.part and blocks(tile, sized) > most_blocks(machine, tile, sized.extents[2])):
            return inf
        return machine.cycles(sized, tile.use, tile.tile, tile.part)

    table = np.array([[cycles(c, x) for x in sizes] for c in pool])
    least = np.array([cycles(_for_rows(whole, x.extents[0]), x) for x in sizes])
    chosen = greedy(table * (1 + GAIN), MOST_IN_PARTS, least)
    out: list[PlainTile] = []
    for j, sized in enumerate(sizes):
        i = min(chosen, key=lambda i: table[i, j], default=None)
        if i is None or table[i, j] * (1 + GAIN) > least[j]:
            break
        out = _added(out, replace(pool[i], most=sized.extents[0]))
    return out


def shared_depth(problem: Contraction) -> int:
    """The k for which parts are planned: where only run time knows it, one that is worth them."""
    return LONG if isinstance(problem.k, Range) else problem.k


def most_blocks(machine: PlainMachine, tile: PlainTile, k: int) -> int:
    """Blocks of the result whose parts are all in flight at once."""
    return machine.workers * machine.resident(tile.use, tile.tile) // -(-k // tile.part)


def blocks(tile: PlainTile, sized: Contraction) -> int:
    """Blocks of the result."""
    m, n, _ = sized.extents
    return -(-m // tile.tile.bm) * -(-n // tile.tile.bn) * sized.batches


def _for_rows(tiles: Sequence[PlainTile], m: int) -> PlainTile | None:
    """The tile that is taken for a number of rows."""
    return next((t for t in tiles if t.most is None or m <= t.most), None)


def _samples(problem: Contraction) -> list[Contraction]:
    """The problem at numbers of rows from few to many."""
    samples = ROWS if isinstance(problem.m, Range) else (max(1, typical(problem.m)),)
    return [problem.at(m=m) for m in samples]


def _added(tiles: list[PlainTile], tile: PlainTile) -> list[PlainTile]:
    """One more; of neighbours that are equal the last."""
    same = tiles and (tiles[-1].use, tiles[-1].part) == (tile.use, tile.part)
    return [*(tiles[:-1] if same else tiles), tile]


def _best(chip: SimtChip, choices: Sequence[PlainTile], sized: Contraction) -> PlainTile:
    m, n, _ = sized.extents
    best = min(choices, key=lambda c: _cost(chip, c, m, n, sized.batches))
    return replace(best, most=m)


def side_by_side(chip: SimtChip) -> int:
    """Lanes of a lockstep group side by side: a little wider than high."""
    return 1 << (chip.width.bit_length() // 2)


def _tile(chip: SimtChip, rows: int, columns: int, dtype: str) -> PlainTile:
    across = side_by_side(chip)
    use = plain_use(chip.width, across, rows, columns, dtype)
    waves = chip.waves(WAVES)
    down = 2 if waves % 2 == 0 and rows > 1 else 1
    m, n = use.roles.m, use.roles.n
    return PlainTile(use, BlockTile(m * down, n * (waves // down), DEPTH, m, n))


def _cost(chip: SimtChip, choice: PlainTile, m: int, n: int, batch: int) -> float:
    """Turns of all cores times products of a block, and the loads that feed them."""
    tile, use = choice.tile, choice.use
    turns = -(-(-(-m // tile.bm) * -(-n // tile.bn) * batch) // max(1, chip.target.workers()))
    rows, columns = use.a.items, use.b.items
    return turns * tile.bm * tile.bn * (1 + (rows + columns) / (rows * columns))
