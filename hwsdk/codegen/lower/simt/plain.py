"""Blocks for contractions without a matrix intrinsic: how many elements of the result one lane takes.

More elements per lane need fewer loads for the same products, fewer elements make more workgroups.  Design choice: a
handful of lane tiles is judged by one number, the turns of all cores times the cost of a block; for sizes known only at
run time the best of each sampled number of rows stays, behind a guard on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import MatrixUse, plain_use
from hwsdk.codegen.lower.simt.tensor import BlockTile
from hwsdk.codegen.planner import Contraction, Range
from hwsdk.codegen.planner.problem import typical

DEPTH = 16  # k of a staged block
LANE_TILES = ((8, 8), (4, 8), (4, 4), (2, 4), (1, 4), (1, 1))
WAVES = 4
ROWS = (1, 4, 16, 64, 256, 1024)  # sampled where the number of rows is known only at run time


@dataclass(frozen=True)
class PlainTile:
    """A lane tile and the block of its workgroup; `most`: rows up to which it is the best (None: any)."""

    use: MatrixUse
    tile: BlockTile
    most: int | None = None


def plain_tiles(chip: SimtChip, problem: Contraction, dtype: str) -> list[PlainTile]:
    """Tiles from few rows to many, the last without a limit."""
    _, n, _ = problem.extents
    choices = [_tile(chip, rows, columns, dtype) for rows, columns in LANE_TILES]
    samples = ROWS if isinstance(problem.m, Range) else (max(1, typical(problem.m)),)
    out: list[PlainTile] = []
    for m in samples:
        best = min(choices, key=lambda c: _cost(chip, c, m, n, problem.batches))
        if out and out[-1].use is best.use:
            out.pop()
        out.append(PlainTile(best.use, best.tile, m))
    return [*out[:-1], PlainTile(out[-1].use, out[-1].tile)]


def _tile(chip: SimtChip, rows: int, columns: int, dtype: str) -> PlainTile:
    across = 1 << (chip.width.bit_length() // 2)  # lanes side by side: a little wider than high
    use = plain_use(chip.width, across, rows, columns, dtype)
    waves = chip.waves(WAVES)
    down = 2 if waves % 2 == 0 and rows > 1 else 1
    m, n = use.roles.m, use.roles.n
    return PlainTile(use, BlockTile(m * down, n * (waves // down), DEPTH, m, n))


def _cost(chip: SimtChip, choice: PlainTile, m: int, n: int, batch: int) -> float:
    """Turns of all cores times products of a block, and the loads that feed them."""
    tile, use = choice.tile, choice.use
    blocks = -(-m // tile.bm) * -(-n // tile.bn) * batch
    turns = -(-blocks // max(1, chip.target.workers()))
    rows, columns = use.a.items, use.b.items
    return turns * tile.bm * tile.bn * (1 + (rows + columns) / (rows * columns))
