"""The one reuse rule: how many bytes of each operand enter a level while a loop nest runs once.

From the innermost tile outwards: a loop that indexes the operand multiplies its bytes; a loop that does not
index it repeats them unless the level kept them.  A cache keeps them if everything its loop's body touches
fits; a staged place keeps exactly the tile that was copied last, so it keeps them if no loop further in has
moved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.nest import OPERANDS
from hwsdk.codegen.planner.tiles import Index, Vector

Loop = tuple[Index, Vector]  # per candidate: which dim advances, in blocks of what size


@dataclass(frozen=True)
class Traffic:
    """Bytes of each operand that enter, and how often each element of C is visited."""

    bytes: Mapping[str, Vector]
    visits: Vector


def traffic(
    loops: Sequence[Loop], whole: Vector, element: Mapping[str, float], capacity: float | None
) -> Traffic:
    """`whole`: extents (m, n, k) that the nest covers; `element`: bytes per element of a, b, c; capacity:
    of a cache, None for a staged place."""
    every = np.arange(whole.shape[1])
    extents = [whole]
    for dim, block in loops:
        inside = extents[-1].copy()
        inside[dim, every] = np.minimum(block, inside[dim, every])
        extents.append(inside)
    feet = [{x: e[i] * e[j] * element[x] for x, (i, j) in OPERANDS.items()} for e in extents]
    fits = [None if capacity is None else f["a"] + f["b"] + f["c"] <= capacity for f in feet]
    trips = [extents[i][dim, every] / extents[i + 1][dim, every] for i, (dim, _) in enumerate(loops)]
    entered = {}
    for operand, dims in OPERANDS.items():
        total = feet[-1][operand]
        moved = np.zeros(np.shape(total), bool)
        for i in range(len(loops) - 1, -1, -1):
            kept = fits[i + 1]
            indexed = (loops[i][0] == dims[0]) | (loops[i][0] == dims[1])
            stays = ~moved if kept is None else kept
            total = np.where(indexed, total * trips[i], np.where(stays, total, total * np.ceil(trips[i])))
            moved = moved | (indexed & (trips[i] > 1))
        entered[operand] = total
    return Traffic(entered, entered["c"] / np.maximum(feet[0]["c"], 1e-9))
