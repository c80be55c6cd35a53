"""What a simulated run cost: bytes per place, operations and busy cycles per unit, peaks, predicted time.

Design choice: plain frozen numbers that add up: the statistics of a model are `merged` from those of its
launches, and everything that is a ratio is computed when it is asked for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlaceStats:
    """One memory.  peak_bytes: most bytes allocated in one instance at once; capacity_bytes: what an instance
    has.

    moved_bytes: what really crosses into the place.  It is less than read + written where caches lie inside.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    moved_bytes: int = 0
    peak_bytes: int = 0
    capacity_bytes: int | None = None


@dataclass(frozen=True)
class UnitStats:
    """One kind of unit, all instances together.  ops are arithmetic operations, uses are starts."""

    uses: int = 0
    ops: int = 0
    busy_cycles: float = 0.0
    instances: int = 1  # in one worker
    intrinsics: Mapping[str, int] = field(default_factory=dict)  # uses of each intrinsic


@dataclass(frozen=True)
class Stats:
    """Cycles are those of a worker's clock; seconds include what a launch costs the host."""

    launches: int = 0
    iterations: int = 0
    workers: int = 1
    cycles: float = 0.0
    seconds: float = 0.0
    places: Mapping[str, PlaceStats] = field(default_factory=dict)
    units: Mapping[str, UnitStats] = field(default_factory=dict)
    bound_by: str = ""
    kernels: tuple[str, ...] = ()
    unwritten: Mapping[str, int] = field(
        default_factory=dict
    )  # elements of outputs that the launch did not write
    statements: int = 0  # executed; one for all lanes of a vector loop

    def utilisation(self, unit: str) -> float:
        """Busy part of all instances of the unit in all workers over the predicted time."""
        u = self.units[unit]
        room = self.cycles * u.instances * self.workers
        return u.busy_cycles / room if room else 0.0

    @staticmethod
    def merged(parts: Iterable[Stats]) -> Stats:
        """One after another: sums, and the largest of the peaks."""
        total = Stats()
        for part in parts:
            total = total + part
        return total

    def __add__(self, other: Stats) -> Stats:
        places = {
            n: _add_place(self.places.get(n), other.places.get(n)) for n in {**self.places, **other.places}
        }
        units = {n: _add_unit(self.units.get(n), other.units.get(n)) for n in {**self.units, **other.units}}
        return Stats(
            self.launches + other.launches,
            self.iterations + other.iterations,
            max(self.workers, other.workers),
            self.cycles + other.cycles,
            self.seconds + other.seconds,
            places,
            units,
            (self if self.cycles > other.cycles else other).bound_by,
            self.kernels + other.kernels,
            {},
            self.statements + other.statements,
        )

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON, utilisation included."""
        data = dataclasses.asdict(self)
        for name, unit in data["units"].items():
            unit["utilisation"] = self.utilisation(name)
        return data

    def to_json(self) -> str:
        return json.dumps(self.to_data(), indent=2)

    def __str__(self) -> str:
        """A table for people."""
        lines = [
            f"{self.launches} launches, {self.iterations} iterations on {self.workers} workers:"
            f" {self.cycles:,.0f} cycles, {self.seconds * 1e6:,.1f} us predicted"
            + (f", bound by {self.bound_by}" if self.bound_by else "")
        ]
        rows: list[tuple[str, ...]] = [("place", "read", "written", "moved", "peak", "capacity", "full")]
        for name, p in self.places.items():
            full = f"{p.peak_bytes / p.capacity_bytes:.0%}" if p.capacity_bytes else "-"
            sizes = [f"{x:,}" for x in (p.read_bytes, p.written_bytes, p.moved_bytes, p.peak_bytes)]
            rows.append((name, *sizes, "-" if p.capacity_bytes is None else f"{p.capacity_bytes:,}", full))
        lines += _table(rows)
        rows = [("unit", "uses", "operations", "busy cycles", "utilisation")]
        for name, u in self.units.items():
            rows.append(
                (name, f"{u.uses:,}", f"{u.ops:,}", f"{u.busy_cycles:,.0f}", f"{self.utilisation(name):.1%}")
            )
        return "\n".join(lines + _table(rows))


def _add_place(a: PlaceStats | None, b: PlaceStats | None) -> PlaceStats:
    a, b = a or PlaceStats(), b or PlaceStats()
    return PlaceStats(
        a.read_bytes + b.read_bytes,
        a.written_bytes + b.written_bytes,
        a.moved_bytes + b.moved_bytes,
        max(a.peak_bytes, b.peak_bytes),
        a.capacity_bytes if a.capacity_bytes is not None else b.capacity_bytes,
    )


def _add_unit(a: UnitStats | None, b: UnitStats | None) -> UnitStats:
    a, b = a or UnitStats(), b or UnitStats()
    names = {**a.intrinsics, **b.intrinsics}
    return UnitStats(
        a.uses + b.uses,
        a.ops + b.ops,
        a.busy_cycles + b.busy_cycles,
        max(a.instances, b.instances),
        {n: a.intrinsics.get(n, 0) + b.intrinsics.get(n, 0) for n in names},
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    if len(rows) == 1:
        return []
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths)))
        for r in rows
    ]
