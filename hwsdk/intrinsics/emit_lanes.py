"""One use of an intrinsic as a kernel of its own, for machines whose lanes have ids.

    lane_kernel(target, "multiply", "use")     text, order of the parameters, lanes of its workgroup

Every parameter is the address of an image in memory: an operand in registers as [lane][its value], one in a memory as
[lane that gives an address][what lies there], a scalar or extent as 8 bytes.  Operands in the scratchpad are copied
there first, and back when they are written.

Design choice: the kernel is one workgroup of the lanes that execute one use together (one lane, a lockstep group or
several), so any intrinsic of those scopes runs by itself, whatever it exchanges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics.bindings import element_type, natural_type_of, pointer_type, value_bits
from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.emit_llvm import emit_llvm
from hwsdk.intrinsics.layouts import Places
from hwsdk.intrinsics.syntax import SemanticsError
from hwsdk.target_desc.model import Memory, Target

ALIGN = 16  # bytes: of every lane's part of an image in memory


@dataclass(frozen=True)
class LaneKernel:
    """parts: bytes of one lane's part of each parameter's image.  holders: how many parts it has."""

    text: str
    parameters: tuple[str, ...]
    lanes: int
    parts: dict[str, int]
    holders: dict[str, int]


def lane_kernel(target: Target, intrinsic: str, name: str) -> LaneKernel:
    """The kernel.  SemanticsError where the description does not say how lanes, memories or barriers are reached."""
    return _Writer(target, compiled(target)[intrinsic], name).kernel()


def lane_attributes(settings: Mapping[str, Any], lanes: int) -> str:
    """The attributes that a description gives to kernels whose workgroups have that many lanes."""
    sizes = {"threads": lanes, "workgroup_x": lanes, "workgroup_y": 1, "workgroup_z": 1}
    given = settings.get("attributes", {})
    return " ".join(f'"{k}"="{str(v).format(**sizes)}"' for k, v in given.items())


class _Writer:
    def __init__(self, target: Target, x: CompiledIntrinsic, name: str) -> None:
        self.target, self.x, self.name = target, x, name
        self.lines: list[str] = []
        self.numbers = iter(range(1 << 30))
        levels = [level.name for level in target.levels]
        inner = target.levels[levels.index(x.spec.scope) + 1 :] if x.spec.scope in levels else ()
        self.lanes = prod(level.count or 1 for level in inner) * x.spec.scope_count
        self.parameters = (*x.operands, *x.runtime_dims)
        self.parts = {p: self._part(p) for p in self.parameters}
        self.holders = {p: self._holders(p) for p in self.parameters}

    # ------------------------------------------------------------------------------------------------- images
    def _tensor(self, name: str) -> bool:
        return name in self.x.operands and name not in self.x.scalars

    def _part(self, name: str) -> int:
        if not self._tensor(name):
            return 8
        if self.x.in_registers(name):
            return -(-value_bits(self.x, name) // 8)
        items = max(places.items for places in self._grids(name))
        return -(-items * DTYPES[self.x.operands[name].dtype].bits // 8 // ALIGN) * ALIGN

    def _grids(self, name: str) -> Iterator[Places]:
        """Where an operand may lie: for every value of every immediate in its layout."""
        layout, scalars = self.x.layout(name), self.x.sample_scalars()
        free = [s for s in layout.scalars if self.x.operands[s].values]
        for chosen in product(*(self.x.operands[s].values for s in free)):
            yield layout.grid(self.x.sample_dims(), {**scalars, **dict(zip(free, chosen, strict=True))})

    def _holders(self, name: str) -> int:
        if not self._tensor(name):
            return 1
        if self.x.in_registers(name):
            return self.lanes
        return max(1, self.x.layout(name).grid(self.x.sample_dims(), self.x.sample_scalars()).lanes)

    # --------------------------------------------------------------------------------------------------- text
    def fresh(self) -> str:
        return f"%v{next(self.numbers)}"

    def let(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def kernel(self) -> LaneKernel:
        llvm = self.target.codegen.llvm
        if llvm is None:
            raise SemanticsError(f"target {self.target.name} has no codegen.llvm")
        dram = _memory(self.target, "dram")
        lane = self.let(f"call i32 @{self._lane_id()}()")
        self.lane = self.let(f"zext i32 {lane} to i64")
        values = {p: self._value(p, dram) for p in self.parameters}
        shared = bool(self._shared())
        self._fence(shared)
        self._barrier(shared)
        self._fence(False)
        used, results = emit_llvm(self.target, self.x.name, values, self.fresh)
        self.lines += used
        self._finish_copies()
        for name, value in results.items():
            self._store(name, value, dram)
        self._back(values, dram)
        params = ", ".join(f"{_pointer(dram)} %{p}.q" for p in self.parameters)
        convention, attributes = llvm.kernel.get("convention", ""), lane_attributes(llvm.kernel, self.lanes)
        head = f"define {convention} void @{self.name}({params}) {attributes} {{"
        text = "\n".join(
            [*self._scratch_text(), head, *(f"  {x}" for x in self.lines), "  ret void", "}", ""]
        )
        return LaneKernel(text, self.parameters, self.lanes, self.parts, self.holders)

    def _lane_id(self) -> str:
        index = self.target.levels[-1].index
        if not index:
            raise SemanticsError(
                f"level {self.target.levels[-1].name} of target {self.target.name} gives no index"
            )
        return index[0]

    def _address(self, base: str, pointer: str, name: str) -> str:
        """Of this lane's part of an image; lanes beyond the last part take the last."""
        if self.holders[name] == 1:
            return base
        which = self.lane
        if self.holders[name] < self.lanes:
            which = self.let(f"call i64 @llvm.umin.i64(i64 {self.lane}, i64 {self.holders[name] - 1})")
        offset = self.let(f"mul i64 {which}, {self.parts[name]}")
        return self.let(f"getelementptr i8, {pointer} {base}, i64 {offset}")

    def _value(self, name: str, dram: Memory) -> str:
        """An operand as the binding takes it: a value, or an address in its memory."""
        here = self._address(f"%{name}.q", _pointer(dram), name)
        if not self._tensor(name) or self.x.in_registers(name):
            natural = natural_type_of(self.x, name)
            bits = _mask_bits(natural)
            loaded = self.let(f"load {bits or natural}, {_pointer(dram)} {here}, align 1")
            return self.let(f"bitcast {bits} {loaded} to {natural}") if bits and bits != natural else loaded
        memory = self.x.memory(name)
        if memory.name == dram.name:
            return here
        there = self._address(self._scratch_base(name), _pointer(memory), name)
        self._copy(there, _pointer(memory), here, _pointer(dram), name)
        return there

    def _copy(self, target: str, to: str, source: str, of: str, name: str) -> None:
        """This lane's part; of an only part what is this lane's share."""
        if self.holders[name] == 1 < self.lanes:
            pieces = self.parts[name] // ALIGN
            for first in range(0, pieces, self.lanes):
                piece = self.let(f"add i64 {self.lane}, {first}")
                at = self.let(f"mul i64 {piece}, {ALIGN}")
                ends = [
                    self.let(f"getelementptr i8, {k} {p}, i64 {at}") for k, p in ((to, target), (of, source))
                ]
                move = partial(self._move, ends[0], to, ends[1], of, f"<{ALIGN} x i8>")
                self._where(f"icmp ult i64 {piece}, {pieces}" if pieces - first < self.lanes else "", move)
            return
        few = self.holders[name] < self.lanes
        move = partial(self._move, target, to, source, of, f"<{self.parts[name]} x i8>")
        self._where(f"icmp ult i64 {self.lane}, {self.holders[name]}" if few else "", move)

    def _where(self, condition: str, write: Callable[[], None]) -> None:
        """Lines for the lanes for which a condition holds; empty: for all."""
        if not condition:
            write()
            return
        kept, label = self.let(condition), f"copy{next(self.numbers)}"
        self.lines += [f"br i1 {kept}, label %{label}, label %{label}.done", f"{label}:"]
        write()
        self.lines += [f"br label %{label}.done", f"{label}.done:"]

    def _move(self, target: str, to: str, source: str, of: str, kind: str) -> None:
        loaded = self.let(f"load {kind}, {of} {source}, align {ALIGN}")
        self.lines.append(f"store {kind} {loaded}, {to} {target}, align {ALIGN}")

    def _store(self, name: str, value: str, dram: Memory) -> None:
        natural = natural_type_of(self.x, name)
        bits = _mask_bits(natural)
        if bits and bits != natural:
            value = self.let(f"bitcast {natural} {value} to {bits}")
        here = self._address(f"%{name}.q", _pointer(dram), name)
        self.lines.append(f"store {bits or natural} {value}, {_pointer(dram)} {here}, align 1")

    # --------------------------------------------------------------------------------------------- scratchpad
    def _shared(self) -> tuple[str, ...]:
        return tuple(
            p
            for p in self.parameters
            if self._tensor(p) and not self.x.in_registers(p) and self.x.memory(p).kind == "scratchpad"
        )

    def _scratch_base(self, name: str) -> str:
        at = self._offsets()[name]
        memory = self.x.memory(name)
        if memory.kind != "scratchpad":
            raise SemanticsError(f"operand {name} lies in {memory.name}, which a kernel cannot address")
        return self.let(f"getelementptr i8, {_pointer(memory)} @{self.name}_scratch, i64 {at}")

    def _offsets(self) -> dict[str, int]:
        """Where each operand lies in the scratchpad; `""`: behind all of them."""
        at, out = 0, {}
        for name in self._shared():
            align = self.x.operands[name].align_bytes or 1
            at = -(-at // align) * align
            out[name] = at
            at += self.parts[name] * self.holders[name]
        return {**out, "": at}

    def _scratch_text(self) -> list[str]:
        total = self._offsets()[""]
        if not total:
            return []
        settings = self.target.codegen.llvm.kernel if self.target.codegen.llvm is not None else {}
        if "static_scratchpad" not in settings:
            raise SemanticsError(f"target {self.target.name} states no codegen.llvm.kernel.static_scratchpad")
        return [f"@{self.name}_scratch = {settings['static_scratchpad'].replace('{bytes}', str(total))}", ""]

    def _barrier(self, needed: bool) -> None:
        if needed:
            found = next(
                (s for s in self.target.syncs.values() if s.kind == "barrier" and "llvm" in s.emit), None
            )
            if found is None:
                raise SemanticsError(f"target {self.target.name} states no barrier")
            self.lines += found.emit["llvm"].splitlines()

    def _fence(self, memory: bool) -> None:
        """What the unit must be told before it reads registers, or a memory that lanes have written."""
        kinds = {m.name: m.kind for m in self.target.memories}
        wanted = "scratchpad" if memory else "registers"
        for sync in self.target.syncs.values():
            mine = sync.kind == "fence" and sync.unit == self.x.spec.unit
            if mine and wanted in {kinds.get(place) for place in sync.orders}:
                self.lines += sync.emit["llvm"].splitlines()

    def _finish_copies(self) -> None:
        """What a copy engine does is waited for."""
        unit = self.target.unit(self.x.spec.unit)
        for name in (unit.commit, unit.wait):
            if name is not None:
                self.lines += self.target.syncs[name].emit["llvm"].replace("{pending}", "0").splitlines()

    def _back(self, values: dict[str, str], dram: Memory) -> None:
        written = [p for p in self._shared() if p in self.x.writes]
        self._barrier(bool(written))
        for name in written:
            here = self._address(f"%{name}.q", _pointer(dram), name)
            self._copy(here, _pointer(dram), values[name], _pointer(self.x.memory(name)), name)


def _memory(target: Target, kind: str) -> Memory:
    found = next((m for m in target.memories if m.kind == kind), None)
    if found is None:
        raise SemanticsError(f"target {target.name} has no memory of kind {kind}")
    return found


def _pointer(memory: Memory) -> str:
    return pointer_type(memory.address_space)


def _mask_bits(natural: str) -> str | None:
    """The integer that holds truth values in memory."""
    if natural == element_type("bool"):
        return "i1"
    found = re.fullmatch(r"<(\d+) x i1>", natural)
    return f"i{found[1]}" if found else None
