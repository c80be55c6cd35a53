"""A target as seen by kernels without a contraction: lanes, vector operations per cycle, places, workers.

Design choice: one small record for rows, maps and windows; every number is a field of the description or
the value that makes its term vanish.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.planner.levels import (
    Place,
    count_workers,
    fork_cycles,
    places,
    register_width,
    worker_level,
)
from hwsdk.codegen.planner.roles import extent_of
from hwsdk.dtypes import dtype
from hwsdk.target_desc.model import Memory, Target, Unit

LATENCY = 4.0  # cycles of a vector operation when no intrinsic of the unit states one


@dataclass(frozen=True)
class VectorCore:
    """registers: vectors of the register file (0: operands live in memories); issue: vector operations per
    cycle."""

    target: Target
    unit: str
    lanes: int
    registers: int
    issue: float
    latency: float
    levels: tuple[Place, ...]
    workers: int
    fork: float

    @property
    def near(self) -> Place:
        return self.levels[-1]

    @property
    def staged(self) -> bool:
        return self.near.kind == "scratchpad"

    def holder(self, size: float) -> Place:
        """The innermost place that holds `size` bytes."""
        return next((p for p in reversed(self.levels) if size <= p.bytes), self.levels[0])

    def rate(self, place: Place, readers: int) -> float:
        """Bytes per cycle that one of `readers` workers draws from a place."""
        shared = place.depth < worker_level(self.target)
        return min(place.read / (max(1, readers) if shared else 1), place.reader)

    @property
    def worker_fields(self) -> tuple[str, ...]:
        """Fields behind the split of work over workers."""
        outer = self.target.levels[: worker_level(self.target) + 1]
        return tuple(f"execution.{x.name}.{f}" for x in outer for f in ("count", "fork_cycles"))

    @property
    def lane_fields(self) -> tuple[str, ...]:
        file = register_file(self.target)
        return (f"memory.{file.name}.width_bytes",) if file is not None else (f"units.{self.unit}.count",)


def register_file(target: Target) -> Memory | None:
    """The largest file of vector registers of a core that computes on them directly."""
    files = [m for m in target.memories if m.kind == "registers" and m.count is not None and m.opaque is None]
    return max(files, key=lambda m: (m.count or 0) * register_width(target, m), default=None)


def vector_core(target: Target, element: str) -> VectorCore:
    """The vector side of a target for one element type."""
    unit = _vector_unit(target)
    mine = [i for i in target.intrinsics.values() if unit is not None and i.unit == unit.name]
    file = register_file(target)
    if file is not None:
        lanes = max(1, register_width(target, file) // dtype(element).size_bytes)
        registers = file.count or 0
    else:
        lanes = max((extent_of(target, e) for i in mine for e in i.dims.values()), default=1)
        registers = 0
    latencies = sorted(i.cost.latency_cycles for i in mine if i.cost.latency_cycles)
    return VectorCore(
        target=target,
        unit=unit.name if unit is not None else "",
        lanes=lanes,
        registers=registers,
        issue=float(unit.count) if unit is not None else 1.0,
        latency=latencies[len(latencies) // 2] if latencies else LATENCY,
        levels=places(target),
        workers=count_workers(target),
        fork=fork_cycles(target),
    )


def _vector_unit(target: Target) -> Unit | None:
    vectors = [u for u in target.units if u.kind == "vector"] or [
        u for u in target.units if u.kind == "scalar"
    ]
    return max(vectors, key=lambda u: u.count, default=None)
