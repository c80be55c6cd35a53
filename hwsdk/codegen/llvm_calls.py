"""Outlined bodies, intrinsics and syncs in LLVM text.

Design choice: an outlined body becomes a function of exactly what is free in it (pointers, integers, scalar values).
What is known about those (constants, ranges) belongs to the identity of the function, so a body that is reached with
different knowledge is emitted again rather than emitted wrongly.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hwsdk.codegen.llvm_poly import Leaf, as_int, constant, lane_dependent, single
from hwsdk.codegen.llvm_scan import buffer_indices, free_in, natural
from hwsdk.codegen.llvm_state import Place, State, Val
from hwsdk.codegen.llvm_text import Function, symbol
from hwsdk.codegen.llvm_types import cell_type, value_type, vector
from hwsdk.codegen.loop_ir import Intrin, LoopKernel, Outline, Sync, Value, View, walk
from hwsdk.graph.dims import free_symbols
from hwsdk.target_desc.model import Sync as TargetSync
from hwsdk.target_desc.model import Target

if TYPE_CHECKING:
    from hwsdk.codegen.llvm_emit import Emitter


_SLOT = re.compile(r"%=(\w+)=")  # a value in the text of an intrinsic that is kept for all its uses


# ---------------------------------------------------------------------------------------------------------- outlines
def emit_outline(outer: Emitter, stmt: Outline) -> None:
    """A call of the function for this body, or the body itself where it touches registers of the caller."""
    s = outer.s
    free = free_in(stmt.body)
    places = {n: s.place(n) for n in free.buffers}
    if s.lanes or any(p.width for p in places.values()):
        with s.iteration():
            outer.body(stmt.body)
        return
    names = dict(free.names)
    for p in places.values():
        for i in buffer_indices(p.buffer):
            names.update((n, None) for n in sorted(free_symbols(i)))
    call = _Call(outer, stmt)
    for name in names:
        call.bind_name(name)
    for name, place in places.items():
        call.bind_place(name, place)
    if outer.workspace:
        call.param("ptr", outer.workspace, "workspace")
    call.finish()
    for name in places:
        s.touch(name)


class _Call:
    """One use of an outlined body: what it passes and what its function may assume."""

    def __init__(self, outer: Emitter, stmt: Outline) -> None:
        self.outer = outer
        self.stmt = stmt
        self.params: list[tuple[str, str]] = []
        self.args: list[str] = []
        self.key: list[Any] = [stmt.name]
        self.names: dict[str, tuple[str, Any]] = {}
        self.lets: dict[str, Val] = {}
        self.places: dict[str, tuple[Place, str]] = {}

    def param(self, kind: str, text: str, hint: str) -> str:
        name = f"%a{len(self.params)}"
        self.params.append((kind, name))
        self.args.append(f"{kind} {text}")
        self.key.append((hint, kind))
        return name

    def bind_name(self, name: str) -> None:
        s = self.outer.s
        poly = s.index.names.get(name)
        if poly is not None and not lane_dependent(poly):
            known = as_int(poly)
            if known is not None:
                self.key.append((name, known))
                self.names[name] = ("constant", known)
            else:
                span = s.index.range(poly)
                self.key.append(span)
                self.names[name] = (self.param("i64", s.index.scalar(poly), name), span)
        let = s.lets.get(name)
        if let is not None:
            text = self.param(let.type, let.text, name) if let.text.startswith("%") else let.text
            self.key.append(text)
            self.lets[name] = Val(text, let.dtype, let.lanes)

    def bind_place(self, name: str, place: Place) -> None:
        self.key.append((place.buffer, place.align))
        self.places[name] = (place, self.param("ptr", place.pointer, name))

    def finish(self) -> None:
        module = self.outer.s.module
        key = tuple(self.key)
        name = module.outlined.get(key)
        if name is None:
            same = sum(k[0] == self.stmt.name for k in module.outlined)
            name = f"{module.kernel.name}.{self.stmt.name}" + (f".{same}" if same else "")
            module.outlined[key] = name
            module.texts.append(self._function(name))
        self.outer.s.f.do(f"call fastcc void {symbol(name)}({', '.join(self.args)})")

    def _function(self, name: str) -> str:
        outer = self.outer
        function = Function(name, self.params, "nounwind noinline", "internal fastcc")
        inner = State(function, outer.s.module)
        for n, (text, what) in self.names.items():
            inner.index.names[n] = constant(what) if text == "constant" else single(Leaf(text, 0, what))
        inner.lets.update(self.lets)
        workspace = self.params[-1][1] if outer.workspace else ""
        emitter = type(outer)(inner, outer.layout, outer.indexed, workspace)
        for place, text in self.places.values():
            emitter.memory_place(place.buffer, text, place.align)
        emitter.body(self.stmt.body)
        return function.text()


# -------------------------------------------------------------------------------------------------------- intrinsics
def emit_intrinsic(outer: Emitter, stmt: Intrin) -> None:
    """One use of an intrinsic of the target: registers go in and out as SSA values, memory as pointers."""
    s = outer.s
    if s.lanes:
        raise s.error(f"intrinsic {stmt.name} stands inside a vector loop")
    values = {name: _operand(outer, stmt, name, o) for name, o in stmt.operands}
    values |= {name: s.index.scalar(s.index.poly(d)) for name, d in stmt.dims}
    results = _use(s, stmt.name, values)
    for name, o in stmt.operands:
        if isinstance(o, View):
            s.touch(o.buffer)
            if name in results:
                _write_operand(outer, stmt, name, o, results[name])


def _use(s: State, name: str, values: dict[str, str]) -> dict[str, str]:
    """Writes one use.  The text of an intrinsic is made once per kernel; further uses only rename the values in it."""
    from hwsdk.intrinsics import emit_llvm

    known = s.module.intrinsics.get(name)
    if known is None and all(v.startswith("%") for v in values.values()):
        count = itertools.count()
        known = emit_llvm(s.target, name, {n: f"%={n}=" for n in values}, lambda: f"%={next(count)}=")
        s.module.intrinsics[name] = known
    if known is None or not all(v.startswith("%") for v in values.values()):
        lines, results = emit_llvm(s.target, name, values, s.f.fresh)
        s.f.current.lines += [f"  {line.strip()}" for line in lines]
        return results
    names = dict(values)

    def rename(match: re.Match[str]) -> str:
        found = names.get(match[1])
        if found is None:
            found = names[match[1]] = s.f.fresh()
        return found

    s.f.current.lines += [f"  {_SLOT.sub(rename, line.strip())}" for line in known[0]]
    return {operand: _SLOT.sub(rename, text) for operand, text in known[1].items()}


def _operand(outer: Emitter, stmt: Intrin, name: str, o: View | Value | Any) -> str:
    s = outer.s
    if isinstance(o, Value):
        return outer.values.emit(o).text
    if not isinstance(o, View):
        return _integer_operand(outer, stmt, name, o)
    place = s.place(o.buffer)
    if not place.width:
        return _pointer(s, stmt, name, outer.memory.address(place, s.offset(place, o.index)))
    at, items, kind = _register_elements(outer, stmt, name, o)
    text = outer.memory.read_elements(place, at, items if kind.startswith("<") else 0)
    element = cell_type(place.buffer.dtype)
    have = vector(element, items if kind.startswith("<") else 0)
    return text if have == kind or text == "poison" else s.f.op(f"bitcast {have} {text} to {kind}")


def _pointer(s: State, stmt: Intrin, name: str, address: str) -> str:
    """A generic address as the operand's memory has it."""
    if not s.lane_branches:
        return address
    home = s.target.intrinsic(stmt.name).operands[name].place
    space = s.target.memory(home).address_space
    return s.f.op(f"addrspacecast ptr {address} to ptr addrspace({space})") if space else address


def _integer_operand(outer: Emitter, stmt: Intrin, name: str, index: Any) -> str:
    """A scalar or immediate, in the operand's own integer type."""
    s = outer.s
    operand = s.target.intrinsic(stmt.name).operands[name]
    p = s.index.poly(index)
    text = s.index.scalar(p)
    if as_int(p) is not None:
        return text
    kind = value_type(operand.dtype)
    return text if kind == "i64" else s.casts.convert(text, "i64", operand.dtype, 0)


def _register_elements(outer: Emitter, stmt: Intrin, name: str, view: View) -> tuple[list[int], int, str]:
    s = outer.s
    kind = natural(s.target, stmt.name, name, s.module.types)
    items = int(kind[1:].split(" ", 1)[0]) if kind.startswith("<") else 1
    place = s.place(view.buffer)
    first = as_int(s.offset(place, view.index))
    if first is None:
        raise s.error(f"operand {name} of {stmt.name}: register buffer {view.buffer} needs constant indices")
    return list(range(first, first + items)), items, kind


def _write_operand(outer: Emitter, stmt: Intrin, name: str, view: View, text: str) -> None:
    place = outer.s.place(view.buffer)
    at, items, kind = _register_elements(outer, stmt, name, view)
    lanes = items if kind.startswith("<") else 0
    have = vector(cell_type(place.buffer.dtype), lanes)
    if have != kind:
        text = outer.s.f.op(f"bitcast {kind} {text} to {have}")
    outer.memory.write_elements(place, at, text, lanes)


def emit_sync(outer: Emitter, stmt: Sync) -> None:
    """The target's own text for a sync; nothing where a core sees its own writes in order.

    Registers that a unit works on beside the stream of instructions are settled where a fence hands them over and where
    the wait for all its work gives them back: what else uses them stays on its side of the sync.
    """
    sync = outer.s.target.syncs.get(stmt.name)
    if sync is None:
        raise outer.s.error(f"target {outer.s.target.name} has no sync {stmt.name!r}")
    if sync.kind == "fence":
        _settle(outer, sync)
    for line in sync.emit.get("llvm", "").replace("{pending}", str(stmt.pending)).splitlines():
        if line.strip():
            outer.s.f.do(line.strip())
    if sync.kind == "wait" and not stmt.pending:
        _settle(outer, sync)


def _settle(outer: Emitter, sync: TargetSync) -> None:
    from hwsdk.intrinsics import settled

    s = outer.s
    registers = {m.name for m in s.target.memories if m.kind == "registers"}
    if sync.unit is None or not registers & set(sync.orders):
        return
    for stmt, name, view in _written(s.module.kernel, s.target, sync.unit):
        if view.buffer not in s.places or not s.place(view.buffer).width:
            continue
        place = s.place(view.buffer)
        at, items, kind = _register_elements(outer, stmt, name, view)
        lanes = items if kind.startswith("<") else 0
        lines, text = settled(
            s.target, stmt.name, name, outer.memory.read_elements(place, at, lanes), s.f.fresh
        )
        s.f.current.lines += [f"  {line}" for line in lines]
        outer.memory.write_elements(place, at, text, lanes)
        s.touch(view.buffer)


def _written(kernel: LoopKernel, target: Target, unit: str) -> Iterator[tuple[Intrin, str, View]]:
    """Registers that a kernel's uses of a unit write: one use, operand and view for each."""
    from hwsdk.intrinsics import compiled

    seen = set()
    for stmt in walk(kernel.body):
        if isinstance(stmt, Intrin) and target.intrinsic(stmt.name).unit == unit:
            x = compiled(target)[stmt.name]
            for name, o in stmt.operands:
                key = isinstance(o, View) and (o.buffer, o.index)
                if isinstance(o, View) and name in x.writes and x.in_registers(name) and key not in seen:
                    seen.add(key)
                    yield stmt, name, o
