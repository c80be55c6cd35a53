"""The one reuse rule: how many bytes of each operand enter a level while a loop nest runs once.

From the innermost tile outwards: a loop that indexes the operand multiplies its bytes; a loop that does not index it
repeats them unless the level kept them.  A cache keeps them if everything its loop's body touches fits; a staged place
keeps exactly the tile that was copied last, so it keeps them if no loop further in has moved it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.tiles import Vector

OPERANDS = {"a": "mk", "b": "kn", "c": "mn"}
Nest = tuple[tuple[str, Vector], ...]  # (dim, block size), outer to inner


@dataclass(frozen=True)
class Traffic:
    """Bytes of each operand that enter, and how often each element of C is visited."""

    bytes: Mapping[str, Vector]
    visits: Vector


def traffic(nest: Nest, whole: Mapping[str, Vector], element: Mapping[str, float], capacity: float | None) -> Traffic:
    """`whole`: extents the nest covers; `element`: bytes per element of a, b, c; capacity: of a cache, None if staged."""
    extents = [dict(whole)]
    for dim, block in nest:
        extents.append({**extents[-1], dim: np.minimum(block, extents[-1][dim])})
    feet = [{x: e[d[0]] * e[d[1]] * element[x] for x, d in OPERANDS.items()} for e in extents]
    fits = [None if capacity is None else f["a"] + f["b"] + f["c"] <= capacity for f in feet]
    trips = [extents[i][dim] / extents[i + 1][dim] for i, (dim, _) in enumerate(nest)]
    moved_bytes = {}
    for operand, dims in OPERANDS.items():
        total = feet[-1][operand]
        moved = np.zeros(np.shape(total), bool)
        for i in range(len(nest) - 1, -1, -1):
            kept = fits[i + 1]
            if nest[i][0] in dims:
                total = total * trips[i]
                moved = moved | (trips[i] > 1)
            else:
                total = np.where(~moved if kept is None else kept, total, total * np.ceil(trips[i]))
        moved_bytes[operand] = total
    return Traffic(moved_bytes, moved_bytes["c"] / np.maximum(feet[0]["c"], 1e-9))
