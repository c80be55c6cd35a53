"""Symbolic extents as the planner takes them."""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.planner import Range
from hwsdk.graph.dims import Ranges, evaluate, free_symbols

LIKELY = 128  # assumed value of a dim of which nothing is known


def planner_extent(extent: Index, ranges: Ranges) -> int | Range:
    """A number as it is; an expression as an open range that is likely where its symbols are."""
    if isinstance(extent, int):
        return extent
    values: dict[str, int] = {}
    for name in free_symbols(extent):
        low, high = ranges.get(name, (1, None))
        value = LIKELY if not isinstance(high, int) else min(LIKELY, high)
        values[name] = max(value, low) if isinstance(low, int) else value
    return Range(1, None, (max(1, int(evaluate(extent, values))),))
