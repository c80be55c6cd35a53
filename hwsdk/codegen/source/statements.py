"""Statements of LoopIR as C-family text.

Design choice: a `vector` loop becomes one loop over its lanes *per statement*, which is LoopIR's own definition of
lockstep; compilers turn such a loop into vector instructions.  Where the machine's own lanes have ids (`simt`), a
vector is a few elements of one lane; where no pragma unrolls their loop, they are written one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hwsdk.codegen.llvm_scan import index_names, value_nodes
from hwsdk.codegen.llvm_workspace import Layout
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Outline,
    Ref,
    Stmt,
    Store,
    Switch,
    Sync,
    Value,
    parallel_loop,
)
from hwsdk.codegen.source.dialect import INDEX, Dialect, fill
from hwsdk.codegen.source.indices import Indices
from hwsdk.codegen.source.operations import Operations
from hwsdk.codegen.source.outlines import outline
from hwsdk.codegen.source.uses import Registers, intrinsic_text, sync_text
from hwsdk.codegen.source.values import Place, Values
from hwsdk.codegen.source.writer import Writer, unbracketed
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Range, bounds, free_symbols, product

ALIGN_BYTES = 64  # of buffers on the stack


@dataclass(frozen=True)
class Lanes:
    """The vector loop around the current statement."""

    name: str  # in LoopIR
    count: int
    active: Index | None


@dataclass(frozen=True)
class Facts:
    """What is known about a kernel before its first line: names that occur in indices, how registers are read, where
    buffers live."""

    indexed: frozenset[str]
    registers: Registers
    layout: Layout

    @staticmethod
    def of(kernel: LoopKernel, dialect: Dialect, layout: Layout) -> Facts:
        return Facts(index_names(kernel.body), Registers(kernel, dialect), layout)


class Emitter:
    """Statements of one function of a kernel."""

    def __init__(self, kernel: LoopKernel, dialect: Dialect, ops: Operations, facts: Facts) -> None:
        self.kernel, self.d, self.ops, self.facts = kernel, dialect, ops, facts
        self.w = Writer()
        self.index = Indices(self.w, ops, dialect.type(INDEX), self.error)
        self.values = Values(self.w, ops, self.index)
        self.unrolls = dialect.target.codegen.model == "simt" and not dialect.words.vector_loop
        self.parallel = parallel_loop(kernel)
        self.tile: Index = 0  # the number of the outermost parallel iteration
        self.texts: list[str] = []  # functions of outlined bodies
        self.outlined: dict[tuple[object, ...], str] = {}
        self.base = ""  # pointer to the workspace, or to the scratchpad of a workgroup
        self.lanes: Lanes | None = None
        self.lane_names: frozenset[str] = frozenset()  # names of LoopIR that differ between the lanes

    def error(self, sentence: str) -> CodegenError:
        return CodegenError(f"kernel {self.kernel.name}: {sentence}")

    def body(self, body: Body) -> None:
        for stmt in body:
            self._rules[type(stmt)](self, stmt)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Bindings made inside end with it."""
        names, lets, places, lanes = self.index.names, self.values.lets, self.values.places, self.lane_names
        self.index.names, self.values.lets, self.values.places = dict(names), dict(lets), dict(places)
        try:
            yield
        finally:
            self.index.names, self.values.lets, self.values.places, self.lane_names = (
                names,
                lets,
                places,
                lanes,
            )

    # ----------------------------------------------------------------------------------------------------- bindings
    def strides(self, buffer: Buffer) -> tuple[Index, ...]:
        if buffer.strides is not None:
            return tuple(self.index.resolve(s) for s in buffer.strides)
        out: list[Index] = []
        step: Index = 1
        for extent in reversed(buffer.shape):
            out.append(step)
            step = step * self.index.resolve(extent)
        return tuple(reversed(out))

    def bind_place(self, buffer: Buffer, name: str, pointer: str = "", member: str = "") -> None:
        self.values.places[buffer.name] = Place(buffer, name, self.strides(buffer), pointer, member)

    def nested(self) -> Emitter:
        """An emitter for a function of its own that belongs to the same kernel."""
        inner = type(self)(self.kernel, self.d, self.ops, self.facts)
        inner.texts, inner.outlined = self.texts, self.outlined
        return inner

    def _alloc(self, stmt: Alloc) -> None:
        buffer, storage = stmt.buffer, self.facts.layout.of(stmt)
        name, kind = self.w.name(buffer.name), self.d.stored(buffer.dtype)
        if storage.kind in ("workspace", "scratch"):
            qualifier = self.d.target.memory(buffer.place).qualifier if storage.kind == "scratch" else ""
            offset = self.index.text(self.index.resolve(storage.offset))
            pointer = self.d.pointer(kind, qualifier)
            self.w.line(f"{pointer} {name} = ({pointer})({self.base} + {offset});")
            self.bind_place(buffer, name, pointer)
            return
        others = {t: f for t, f in self.facts.registers.types.get(buffer.name, {}).items() if t != kind}
        items = self._items(buffer)
        if not others:
            self.w.line(self._declared(kind, name, items, buffer))
            self.bind_place(buffer, name)
            return
        fields = [f"{kind} v[{items}];"]
        size = items * DTYPES[buffer.dtype].size_bytes
        fields += [f"{text} {field}[{max(1, size // bytes_)}];" for text, (field, bytes_) in others.items()]
        self.w.line(f"union {{ {' '.join(fields)} }} {name};")
        self.bind_place(buffer, name, member=".v")

    def _items(self, buffer: Buffer) -> int:
        shape = [self.index.resolve(s) for s in buffer.shape]
        strides = self.strides(buffer)
        if buffer.strides is None:
            total = product(shape)
        else:
            total = 1
            for extent, stride in zip(shape, strides):
                total = total + (extent - 1) * stride
        if not isinstance(total, int):
            raise self.error(f"{buffer.name} has no constant size")
        return max(total, 1)

    def _declared(self, kind: str, name: str, items: int, buffer: Buffer) -> str:
        words = {
            "qualifier": "", "type": kind, "name": name, "items": items,
            "align": max(buffer.align_bytes, min(ALIGN_BYTES, _power(items * DTYPES[buffer.dtype].size_bytes))),
        }  # fmt: skip
        return fill(self.d.words.declare or "{type} {name}[{items}];", words).strip()

    def _let(self, stmt: Let) -> None:
        value = stmt.value
        if isinstance(value, FromIndex) and value.dtype == INDEX and not self._differs(value):
            self.index.bind(stmt.name, value.index)
            self.values.lets.pop(stmt.name, None)
            self.lane_names -= {stmt.name}
            return
        if self.lanes is not None and self._differs(value):
            self._let_of_lanes(stmt, self.lanes)
            return
        (text,) = self.values.statement([value])
        if not text.isidentifier():
            name = self.w.name(stmt.name)
            self.w.line(f"const {self.d.type(value.dtype)} {name} = {unbracketed(text)};")
            text = name
        self.bind_let(stmt.name, value.dtype, text)

    def bind_let(self, name: str, dtype: str, text: str, depth: int | None = None) -> None:
        """The value is this variable from here on; an integer may stand in indices."""
        self.values.lets[name], self.values.let_types[name] = text, dtype
        self.index.names.pop(name, None)
        self.lane_names -= {name}
        kind = DTYPES[dtype].kind
        if name in self.facts.indexed and kind in "iub":
            range_: Range = (None, None) if kind == "i" else (0, None)
            cast = text if dtype == INDEX else f"({self.index.type}){text}"
            self.index.names[name] = self.index.declare(name, range_, depth, cast)

    def _let_of_lanes(self, stmt: Let, lanes: Lanes) -> None:
        """A value per lane: an array."""
        name = self.w.name(stmt.name)
        self.w.line(f"{self.d.type(stmt.value.dtype)} {name}[{lanes.count}];")
        for lane in self._each_lane(lanes, vectorised=True):
            (text,) = self.values.statement([stmt.value])
            self.w.line(f"{name}[{lane}] = {unbracketed(text)};")
        before = self.lane_names
        self.bind_let(stmt.name, stmt.value.dtype, f"{name}[{LANE}]", self.w.depth + 1)
        self.lane_names = before | {stmt.name}

    # --------------------------------------------------------------------------------------------------------- lanes
    def _differs(self, value: Value) -> bool:
        """May the value differ between the lanes?"""
        if self.lanes is None:
            return False
        names = self.lane_names
        for v in value_nodes([value]):
            if isinstance(v, Ref) and v.name in names:
                return True
            if isinstance(v, Load) and any(free_symbols(i) & names for i in v.index):
                return True
            if isinstance(v, FromIndex) and free_symbols(v.index) & names:
                return True
        return False

    def _each_lane(self, lanes: Lanes, vectorised: bool) -> Iterator[str]:
        """Gives the number of every lane that acts, in a loop or written one by one, while it is its turn."""
        active = lanes.count if lanes.active is None else self.index.resolve(lanes.active)
        low = bounds(active, self.index.ranges)[0]
        every = low is not None and low >= lanes.count
        if isinstance(active, int) and not every:
            lanes, every = replace(lanes, count=active), True
        guard = "" if every else self.index.text(active)
        if self.unrolls or lanes.count == 1:
            for number in range(lanes.count):
                with self.w.block(f"if ({number} < {guard})" if guard else None):
                    yield from self._one_lane(lanes, number, str(number))
            return
        variable = self.index.declare(lanes.name, (0, lanes.count - 1), self.w.depth + 1)
        head = f"for ({self.index.type} {variable} = 0; {variable} < {lanes.count}; ++{variable})"
        with self.w.block(head, above=self.d.words.vector_loop if vectorised else ""):
            if not guard:
                yield from self._one_lane(lanes, variable, str(variable))
                return
            with self.w.block(f"if ({variable} < {guard})"):
                yield from self._one_lane(lanes, variable, str(variable))

    def _one_lane(self, lanes: Lanes, number: Index, text: str) -> Iterator[str]:
        """One lane in the block that is open; arrays of lanes mean the element of this one."""
        with self.scope():
            self.index.names[lanes.name] = number
            lets, texts = self.values.lets, self.index.texts
            self.values.lets = {n: t.replace(LANE, text) for n, t in lets.items()}
            self.index.texts = {n: t.replace(LANE, text) for n, t in texts.items()}
            try:
                yield text
            finally:
                self.values.lets = lets
                self.index.texts = {n: texts.get(n, t) for n, t in self.index.texts.items()}

    # -------------------------------------------------------------------------------------------------------- stores
    def _store(self, stmt: Store) -> None:
        if self.lanes is None:
            self._store_here(stmt)
            return
        if not self._shifted(stmt):
            for _ in self._each_lane(self.lanes, self._distinct(stmt, self.lanes)):
                self._store_here(stmt)
            return
        name = self.w.name("lanes")  # every lane reads before any lane writes
        self.w.line(f"{self.d.stored(stmt.value.dtype)} {name}[{self.lanes.count}];")
        for lane in self._each_lane(self.lanes, vectorised=True):
            (text,) = self.values.statement([stmt.value])
            self.w.line(f"{name}[{lane}] = {self.ops.to_stored(text, stmt.value.dtype)};")
        for lane in self._each_lane(self.lanes, self._distinct(stmt, self.lanes)):
            (where,) = self.values.statement([stmt.where])
            self._write(stmt, f"{name}[{lane}]", where)

    def _store_here(self, stmt: Store) -> None:
        value, where = self.values.statement([stmt.value, stmt.where])
        self._write(stmt, self.ops.to_stored(value, stmt.value.dtype), where)

    def _write(self, stmt: Store, stored: str, where: str) -> None:
        target = self.values.element(stmt.buffer, stmt.index)
        guard = f"if ({unbracketed(where)}) " if where else ""
        self.w.line(f"{guard}{target} = {unbracketed(stored)};")

    def _shifted(self, stmt: Store) -> bool:
        """Does a lane read what another lane may write?"""
        roots = [stmt.value] if stmt.where is None else [stmt.value, stmt.where]
        return any(
            isinstance(v, Load) and v.buffer == stmt.buffer and v.index != stmt.index
            for v in value_nodes(roots)
        )

    def _distinct(self, stmt: Store, lanes: Lanes) -> bool:
        """Do the lanes surely write different elements?"""
        mentions = [i for i in stmt.index if free_symbols(i) & (self.lane_names | {lanes.name})]
        steps = [self.index.stride(i, lanes.name) for i in mentions]
        return (
            len(steps) == 1
            and isinstance(steps[0], int)
            and steps[0] != 0
            and not (free_symbols(mentions[0]) & (self.lane_names - {lanes.name}))
        )

    # --------------------------------------------------------------------------------------------------------- loops
    def _for(self, stmt: For) -> None:
        if stmt is self.parallel:
            with self.scope():
                self.index.names[stmt.var] = self.tile
                self.group(stmt)
        elif stmt.kind == "parallel":
            self.body(stmt.body)  # its variable was bound with the outermost one's
        elif stmt.kind == "vector":
            self._vector(stmt)
        else:
            self._loop(stmt)

    def group(self, stmt: For) -> None:
        """The body of the outermost parallel loop."""
        self.body(stmt.body)

    def _constant(self, stmt: For) -> int:
        extent = self.index.resolve(stmt.extent)
        if not isinstance(extent, int):
            raise self.error(
                f"the {stmt.kind} loop over {stmt.var} needs a constant extent, not {stmt.extent}"
            )
        return extent

    def _vector(self, stmt: For) -> None:
        count = self._constant(stmt)
        if self.lanes is not None:
            raise self.error(f"the vector loop over {stmt.var} is inside another vector loop")
        if count < 1:
            return
        with self.scope():
            self.lanes = Lanes(stmt.var, count, stmt.active)
            self.lane_names = frozenset({stmt.var})
            try:
                self.body(stmt.body)
            finally:
                self.lanes = None

    def _loop(self, stmt: For) -> None:
        if stmt.kind == "unroll":
            for i in range(self._constant(stmt)):
                with self.scope():
                    self.index.names[stmt.var] = i
                    self.body(stmt.body)
            return
        extent = self._same_in_all_lanes(stmt.extent, "the extent of a loop")
        if isinstance(extent, int) and extent <= 0:
            return
        if extent == 1:
            with self.scope():
                self.index.names[stmt.var] = 0
                self.body(stmt.body)
            return
        trips = self.index.text(extent)
        if not trips.isidentifier() and not isinstance(extent, int):
            name = self.w.name("trips")
            self.w.line(f"const {self.index.type} {name} = {unbracketed(trips)};")
            trips = name
        with self.scope():
            variable = self.index.declare(stmt.var, (0, extent - 1), self.w.depth + 1)
            self.index.names[stmt.var] = variable
            with self.w.block(f"for ({self.index.type} {variable} = 0; {variable} < {trips}; ++{variable})"):
                self.body(stmt.body)

    def _same_in_all_lanes(self, index: Index, what: str) -> Index:
        if free_symbols(index) & self.lane_names:
            raise self.error(f"{what} differs between lanes; use where or select")
        return self.index.resolve(index)

    # ------------------------------------------------------------------------------------------------------ branches
    def _if(self, stmt: If) -> None:
        if self._differs(stmt.cond):
            raise self.error("a branch differs between lanes; use where or select")
        (cond,) = self.values.statement([stmt.cond])
        sides = {"1": stmt.then, "0": stmt.orelse}
        if cond in sides:
            with self.scope():
                self.body(sides[cond])
            return
        with self.scope(), self.w.captured() as then:
            self.body(stmt.then)
        with self.scope(), self.w.captured() as orelse:
            self.body(stmt.orelse)
        self.w.line(f"if ({unbracketed(cond)}) {{")
        self.w.blocks[-1].lines += then
        if orelse:
            self.w.line("} else {")
            self.w.blocks[-1].lines += orelse
        self.w.line("}")

    def _switch(self, stmt: Switch) -> None:
        index = self._same_in_all_lanes(stmt.index, "the index of a switch")
        if isinstance(index, int):
            if not 0 <= index < len(stmt.cases):
                raise self.error(f"case {index} of a switch with {len(stmt.cases)} cases")
            with self.scope():
                self.body(stmt.cases[index])
            return
        with self.w.block(f"switch ({unbracketed(self.index.text(index))})"):
            for number, case in enumerate(stmt.cases):
                with self.scope(), self.w.block(f"case {number}:", "} break;"):
                    self.body(case)

    def _outline(self, stmt: Outline) -> None:
        outline(self, stmt)

    def _intrinsic(self, stmt: Intrin) -> None:
        if self.lanes is not None:
            raise self.error(f"intrinsic {stmt.name} stands inside a vector loop")
        for line in intrinsic_text(self, stmt).splitlines():
            self.w.line(line)

    def _sync(self, stmt: Sync) -> None:
        for line in sync_text(self, stmt).splitlines():
            self.w.line(line)

    _rules: ClassVar[dict[type[Stmt], Callable[[Any, Any], None]]] = {
        Let: _let, Alloc: _alloc, Store: _store, For: _for, If: _if, Switch: _switch, Outline: _outline,
        Intrin: _intrinsic, Sync: _sync,
    }  # fmt: skip


LANE = "\0lane\0"  # stands for the number of the lane in the text of a value that each lane has


def _power(size: int) -> int:
    """The greatest power of two that is not above a positive size."""
    return 1 << (size.bit_length() - 1)
