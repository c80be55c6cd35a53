"""What plain statements (arithmetic, loads and stores outside intrinsics) cost, and how their counts are
kept.

Rules, from the fields of the description:
    operations  run on the unit of kind scalar if there is one, one element at a time; otherwise on the first
                vector unit, a whole register at a time (register width of the widest register place); a
                transcendental function counts as many operations as its WEIGHT
    accesses    with a scalar unit a load or store costs the latency of its place; otherwise it takes one slot
                of the load (store) unit per register; accesses to registers are free
    together    what runs on one unit adds up; units overlap within a body, and the longest counts; in a core
                that reorders instructions (codegen.model simd) units overlap over the whole iteration

Design choice: costs are static per body.  Generated code adds one number per body execution to a counter and
one to the clock; bytes, operations and busy cycles follow from the counters when the run is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hwsdk.codegen.loop_ir import Buffer
from hwsdk.dtypes import DTYPES
from hwsdk.sim.chip import UseCost
from hwsdk.target_desc.model import Target, Unit

WEIGHT = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal"), 4),
    **dict.fromkeys(("mod", "floordiv", "fmod"), 8),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log1p", "erf", "tanh"), 12),
    **dict.fromkeys(
        ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"), 20
    ),
    **dict.fromkeys(("pow", "atan2"), 30),
}
_FREE = ("neg", "abs", "not", "cast", "select", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "sign")
Lanes = Sequence[
    tuple[Any, bool]
]  # axes (hwsdk.sim.source.Axis) of the scope, and whether the access varies over each


@dataclass
class PlainUnits:
    """Where plain work of a target goes.  register_bytes 0: one element at a time."""

    alu: Unit | None = None
    loads: Unit | None = None
    stores: Unit | None = None
    register_bytes: int = 0
    latency: dict[str, float] = field(default_factory=dict)
    registers: frozenset[str] = frozenset()
    reorders: bool = False

    @staticmethod
    def of(target: Target | None) -> PlainUnits:
        if target is None:
            return PlainUnits()
        registers = [m for m in target.memories if m.kind == "registers"]
        names = frozenset(m.name for m in registers)
        latency = {m.name: m.latency_cycles or 1.0 for m in target.memories if m.kind != "registers"}
        scalar = next((u for u in target.units if u.kind == "scalar"), None)
        if scalar is not None:
            return PlainUnits(scalar, scalar, scalar, 0, latency, names)
        vector = next((u for u in target.units if u.kind == "vector"), None)
        movers = [u for u in target.units if u.kind == "load_store"]
        width = max((m.width_bytes for m in registers if isinstance(m.width_bytes, int)), default=0)
        loads = movers[0] if movers else vector
        stores = movers[-1] if movers else vector
        return PlainUnits(vector, loads, stores, width, {}, names, target.codegen.model == "simd")


@dataclass
class Entry:
    """What one execution counted under a counter stands for."""

    read: dict[str, int] = field(default_factory=dict)  # place -> bytes
    written: dict[str, int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)  # unit -> operations
    uses: dict[str, int] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    intrinsics: dict[tuple[str, str], int] = field(default_factory=dict)  # (unit, name) -> uses
    by_buffer: dict[tuple[str, str], int] = field(default_factory=dict)  # (read or written, buffer) -> bytes
    statements: int = 0


class Tally:
    """Collects the cost of a body while it is generated."""

    def __init__(self, units: PlainUnits | None, entries: list[Entry] | None = None) -> None:
        self.units = units or PlainUnits()
        self.entries = entries if entries is not None else []
        self.open: dict[
            str, Entry
        ] = {}  # by multiplicity: the text of how often it counts per execution of the body
        self.cycles: dict[str, dict[str, float]] = {}  # multiplicity -> unit -> cycles
        self.times = 1

    def repeat(self, times: int) -> int:
        """From here on everything counts `times` as often; gives what it was."""
        before, self.times = self.times, times
        return before

    def entry(self, multiplicity: str) -> Entry:
        return self.open.setdefault(multiplicity, Entry())

    def statement(self, axes: Lanes) -> None:
        self.entry(_product(a for a, _ in axes if a.repeated)).statements += 1

    def operation(self, op: str, dtype: str, axes: Lanes) -> None:
        unit = self.units.alu
        if unit is None:
            return
        repeated, lanes, elements = _shape(axes)
        if op not in _FREE:
            entry = self.entry(elements)
            entry.ops[unit.name] = entry.ops.get(unit.name, 0) + self.times
        issue = WEIGHT.get(op, 1) * self.slots(lanes, dtype)
        self.spend(repeated, unit, issue)

    def slots(self, lanes: int, dtype: str) -> int:
        """Registers that hold so many lanes; without registers every lane takes a turn."""
        width = self.units.register_bytes
        return -(-lanes * DTYPES[dtype].size_bytes // width) if width else lanes

    def access(
        self, verb: str, buffer: Buffer, axes: Lanes, gathered: bool = False, counted: bool = True
    ) -> None:
        repeated, lanes, elements = _shape(axes)
        size = DTYPES[buffer.dtype].size_bytes
        if counted:
            self.count(self.entry(elements), verb, buffer, size * self.times)
        unit = self.units.loads if verb == "read" else self.units.stores
        if unit is None or buffer.place in self.units.registers:
            return
        slots = lanes if gathered else self.slots(lanes, buffer.dtype)
        cost = slots * self.units.latency.get(buffer.place, 1.0)
        self.spend(repeated, unit, cost)

    def masked(self, verb: str, buffer: Buffer, axes: Lanes, gathered: bool) -> int:
        """An access whose elements are counted when it runs: the number of its own counter."""
        self.access(verb, buffer, axes, gathered, counted=False)
        entry = Entry()
        self.count(entry, verb, buffer, DTYPES[buffer.dtype].size_bytes)
        self.entries.append(entry)
        return len(self.entries) - 1

    def count(self, entry: Entry, verb: str, buffer: Buffer, size: int) -> None:
        table = entry.read if verb == "read" else entry.written
        table[buffer.place] = table.get(buffer.place, 0) + size
        key = ("read" if verb == "read" else "written", buffer.name)
        entry.by_buffer[key] = entry.by_buffer.get(key, 0) + size

    def spend(self, repeated: str, unit: Unit, cycles: float) -> None:
        cycles *= self.times
        if not self.units.reorders:
            row = self.cycles.setdefault(repeated, {})
            row[unit.name] = row.get(unit.name, 0.0) + cycles / unit.count
        entry = self.entry(repeated)
        entry.busy[unit.name] = entry.busy.get(unit.name, 0.0) + cycles
        entry.uses[unit.name] = entry.uses.get(unit.name, 0) + self.times

    def use(self, cost: UseCost, name: str, operations: int, axes: Lanes) -> None:
        """A use of an intrinsic that runs as plain LoopIR: it keeps its unit for its interval."""
        unit = cost.unit
        repeated = _shape(axes)[0]
        self.spend(repeated, unit, cost.interval)
        entry = self.entry(repeated)
        entry.ops[unit.name] = entry.ops.get(unit.name, 0) + operations
        entry.intrinsics[unit.name, name] = entry.intrinsics.get((unit.name, name), 0) + 1

    def take_cycles(self) -> list[str]:
        """Text of the cycles since the last call, to be added to the clock; forgets them."""
        found = [(m, max(row.values())) for m, row in self.cycles.items()]
        self.cycles = {}
        return [repr(c) if m == "1" else f"{c!r}*{m}" for m, c in found if c]

    def close(self) -> list[str]:
        """Text that counts one execution of the body."""
        lines = []
        for multiplicity, entry in self.open.items():
            self.entries.append(entry)
            lines.append(f"C[{len(self.entries) - 1}] += {multiplicity}")
        self.open = {}
        return lines


def _product(axes: Any) -> str:
    return "*".join(a.count for a in axes) or "1"


def _shape(axes: Lanes) -> tuple[str, int, str]:
    """(how often a repeated loop repeats it, lanes at once, elements) of something that varies over some
    axes."""
    lanes = 1
    for axis, varies in axes:
        if varies and not axis.repeated:
            lanes *= axis.lanes or axis.width
    repeated = _product(a for a, _ in axes if a.repeated)
    return repeated, lanes, _product(a for a, varies in axes if varies or a.repeated)
