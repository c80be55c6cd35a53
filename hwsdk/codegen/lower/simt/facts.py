"""What the SIMT lowering reads of a description: levels, places, widths of accesses.

Design choice: levels and places are found by what they are (innermost lockstep level, scratchpad per workgroup), never
by name, so a description may call them what its vendor does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from hwsdk.codegen.loop_ir import Body, For, FromIndex, Index, Let
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import sym
from hwsdk.target_desc.model import Level, Memory, Target

_COPY = re.compile(r"\w+\[(\w*)\]=\w+\[\1\]")


@dataclass(frozen=True)
class AsyncCopy:
    """A copy of one lane from memory into the scratchpad, beside the stream of instructions, in commit groups."""

    name: str
    operands: tuple[str, str]  # destination, source
    size: int  # bytes, and what both addresses must be a multiple of
    commit: str
    wait: str


@dataclass(frozen=True)
class SimtChip:
    """group: the level that shares a scratchpad; wave: lockstep groups of `width` lanes (None where a workgroup is
    one); access_bytes: the widest access of one lane."""

    target: Target
    group: Level
    wave: Level | None
    lane: Level
    main: Memory
    scratch: Memory | None
    registers: Memory
    access_bytes: int

    @staticmethod
    def of(target: Target) -> SimtChip:
        """PlanError where the description lacks a level of lanes or a grid."""
        levels = target.levels
        lane = levels[-1]
        groups = [x for x in levels if x.index and x is not lane]
        if not lane.lockstep or lane.count is None or not lane.index or not groups:
            raise PlanError(
                f"target {target.name}: execution needs a level with an index around an innermost lockstep level with"
                " a count and an index"
            )
        group = groups[-1]
        between = [x for x in levels[levels.index(group) + 1 : -1] if x.max is not None]
        scratch = [m for m in target.memories if m.kind == "scratchpad" and m.per == group.name]
        registers = [m for m in target.memories if m.kind == "registers" and m.per == lane.name]
        if not registers:
            raise PlanError(f"target {target.name}: memory lists no registers per {lane.name}")
        return SimtChip(
            target,
            group,
            between[-1] if between else None,
            lane,
            next(m for m in target.memories if m.kind == "dram"),
            scratch[-1] if scratch else None,
            registers[-1],
            _access_bytes(target, registers[-1]),
        )

    @property
    def width(self) -> int:
        """Lanes that run in lockstep."""
        assert self.lane.count is not None
        return self.lane.count

    def elements(self, *dtypes: str) -> int:
        """Elements of the widest of these dtypes in one access of a lane."""
        return max(1, self.access_bytes // max(DTYPES[d].size_bytes for d in dtypes))

    @property
    def copy(self) -> AsyncCopy | None:
        """The widest asynchronous copy of one lane; None where data passes through registers."""
        return _async_copy(self.target, self.main, self.scratch)

    def waves(self, wanted: int) -> int:
        """At most this many lockstep groups in a workgroup."""
        return 1 if self.wave is None else max(1, min(wanted, self.wave.max or wanted))

    def lanes(self, waves: int, body: Body) -> Body:
        """The body for every lane of a workgroup; `t` is bound to the lane's number in the workgroup."""
        flat: Index = sym("wave") * self.width + sym("lane") if self.wave is not None else sym("lane")
        inner: Body = (
            For("lane", self.width, (Let("t", FromIndex("i64", flat)), *body), "parallel", self.lane.name),
        )
        if self.wave is None:
            return inner
        return (For("wave", waves, inner, "parallel", self.wave.name),)


def _async_copy(target: Target, main: Memory, scratch: Memory | None) -> AsyncCopy | None:
    found: list[AsyncCopy] = []
    for x in target.intrinsics.values():
        unit = target.unit(x.unit)
        sizes = list(x.dims.values())
        plain = _COPY.fullmatch("".join(x.semantics.split()))
        if not (unit.commit and unit.wait and plain and scratch and x.scope == target.levels[-1].name):
            continue
        ends = list(x.operands.values())
        places = {o.place: o for o in ends}
        if set(places) != {main.name, scratch.name} or len(sizes) != 1 or not isinstance(sizes[0], int):
            continue
        size = sizes[0] * DTYPES[ends[0].dtype].size_bytes
        if {o.dtype for o in ends} == {"u8"} and all((o.align_bytes or 1) <= size for o in ends):
            pair = (places[scratch.name].name, places[main.name].name)
            found.append(AsyncCopy(x.name, pair, size, unit.commit, unit.wait))
    return max(found, key=lambda c: c.size, default=None)


def _access_bytes(target: Target, registers: Memory) -> int:
    """The widest plain copy of one lane between memory and its registers; one register where none is described."""
    found = [int(registers.width_bytes) if isinstance(registers.width_bytes, int) else 4]
    for x in target.intrinsics.values():
        places = {o.place: o for o in x.operands.values()}
        sources = [p for p in places if p != registers.name]
        if x.scope != target.levels[-1].name or registers.name not in places or len(sources) != 1:
            continue
        memory = next((m for m in target.memories if m.name == sources[0]), None)
        plain = _COPY.fullmatch("".join(x.semantics.split()))
        if (
            plain
            and memory is not None
            and memory.kind == "dram"
            and all(isinstance(s, int) for s in x.dims.values())
        ):
            size = DTYPES[places[registers.name].dtype].size_bytes
            found.append(prod(int(str(s)) for s in x.dims.values()) * size)
    return max(found)


def round_up(x: int, granule: int) -> int:
    """The least multiple of `granule` that is not below x."""
    return -(-x // granule) * granule
