"""Symbolic extents as the planner takes them."""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.planner import Range
from hwsdk.graph.dims import Ranges, evaluate, free_symbols

LIKELY = 128  # assumed value of a size of which nothing is known


def planner_extent(extent: Index, ranges: Ranges) -> int | Range:
    """A number (an empty extent as 1); an expression as an open range that is likely where its symbols are."""
    if isinstance(extent, int):
        return max(1, extent)
    names = free_symbols(extent)
    share = max(1, round(LIKELY ** (1 / max(1, len(names)))))  # a batch of rows is likely as a whole
    values: dict[str, int] = {}
    for name in names:
        low, high = ranges.get(name, (1, None))
        value = share if not isinstance(high, int) else min(share, high)
        values[name] = max(value, low) if isinstance(low, int) else value
    return Range(1, None, (max(1, int(evaluate(extent, values))),))
