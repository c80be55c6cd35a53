"""LoopIR to LLVM text for cores that run one instruction stream over vectors.

    emit_kernel(kernel, target)       text of `define void @NAME(ptr %args, i64 %tile, i64 %worker)`
    workspace_bytes(kernel, target)   what one worker needs beside it

%args points to i64 slots: the address of every param, every dim, the workspace, the workspace bytes of one worker.
Design choice: the text is final.  Index arithmetic is placed outside the loops, register buffers are SSA values and
loops test at their end as it is written, so the code generator is run without any optimisation pass before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hwsdk.codegen.llvm_calls import emit_intrinsic, emit_outline, emit_sync
from hwsdk.codegen.llvm_memory import Memory
from hwsdk.codegen.llvm_poly import Leaf, Poly, Range, add, as_int, constant, multiply, single
from hwsdk.codegen.llvm_scan import index_names, shared_access, written_buffers
from hwsdk.codegen.llvm_state import ZERO_BYTES, Module, Place, State, Val
from hwsdk.codegen.llvm_text import Function
from hwsdk.codegen.llvm_types import cell_type, stored_type, vector
from hwsdk.codegen.llvm_values import Values
from hwsdk.codegen.llvm_workspace import ALIGN_BYTES, Layout, size_bytes, workspace_bytes
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    For,
    FromIndex,
    If,
    Intrin,
    Let,
    LoopKernel,
    Outline,
    Store,
    Switch,
    Sync,
    parallel_loop,
    walk,
)
from hwsdk.dtypes import DTYPES, dtype
from hwsdk.target_desc.model import Target

__all__ = ["emit_kernel", "workspace_bytes"]


def emit_kernel(kernel: LoopKernel, target: Target) -> str:
    """The kernel as LLVM text: its function and the internal functions and constants that go with it."""
    module = Module(kernel, target)
    params = [("ptr", "%args"), ("i64", "%tile"), ("i64", "%worker")]
    function = Function(kernel.name, params, "nounwind")
    state = State(function, module)
    layout = Layout(kernel, target)
    emitter = Emitter(state, layout, index_names(kernel.body))
    _bind_arguments(emitter, kernel, layout)
    emitter.body(kernel.body)
    text = "\n".join([*module.texts, function.text()])
    if module.zeros:
        text = (
            f"{module.zero_name} = internal constant [{ZERO_BYTES} x i8] zeroinitializer, align 64\n\n{text}"
        )
    return text


def _bind_arguments(emitter: Emitter, kernel: LoopKernel, layout: Layout) -> None:
    """Loads the argument slots; the workspace of this worker starts at base + worker * bytes."""
    state = emitter.s
    slot = 0

    def argument(kind: str) -> str:
        nonlocal slot
        pointer = state.f.op(f"getelementptr i64, ptr %args, i64 {slot}")
        slot += 1
        return state.f.op(f"load {kind}, ptr {pointer}, align 8")

    pointers = [argument("ptr") for _ in kernel.params]
    for name in kernel.dims:
        state.index.names[name] = single(Leaf(argument("i64"), 0, (0, None)))
    for buffer, pointer in zip(kernel.params, pointers):
        emitter.memory_place(buffer, pointer, max(buffer.align_bytes, dtype(buffer.dtype).size_bytes))
    if layout.total != 0:
        base, size = argument("ptr"), argument("i64")
        mine = state.f.op(f"mul nuw nsw i64 %worker, {size}")
        emitter.workspace = state.f.op(f"getelementptr i8, ptr {base}, i64 {mine}")


def vector_bytes(target: Target) -> int:
    """Width of the vector registers: of the kinds of registers, the one that there are most of."""
    found = [
        (m.count or 0, m.width_bytes)
        for m in target.memories
        if m.kind == "registers" and isinstance(m.width_bytes, int)
    ]
    return max(found, default=(0, 16))[1]


class Emitter:
    """Statements of one function."""

    def __init__(self, state: State, layout: Layout, indexed: frozenset[str], workspace: str = "") -> None:
        self.s = state
        self.layout = layout
        self.indexed = indexed
        self.workspace = workspace
        self.memory = Memory(state)
        self.values = Values(state, self.memory, vector_bytes(state.target))
        self.parallel = parallel_loop(state.module.kernel)

    def body(self, body: Body) -> None:
        for stmt in body:
            self._rules[type(stmt)](self, stmt)

    # ----------------------------------------------------------------------------------------------------- bindings
    def memory_place(self, buffer: Buffer, pointer: str, align: int) -> None:
        self.s.places[buffer.name] = Place(buffer, self.strides(buffer), pointer, 0, align)

    def strides(self, buffer: Buffer) -> tuple[Poly, ...]:
        if buffer.strides is not None:
            return tuple(self.s.index.poly(s) for s in buffer.strides)
        out: list[Poly] = []
        step = constant(1)
        for extent in reversed(buffer.shape):
            out.append(step)
            step = multiply(step, self.s.index.poly(extent))
        return tuple(reversed(out))

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        storage = self.layout.of(stmt)
        self.s.touch(buffer.name)
        if storage.kind == "cells":
            width = storage.width
            self.s.places[buffer.name] = Place(buffer, self.strides(buffer), "", width)
            self.s.cells.declare(buffer.name, vector(cell_type(buffer.dtype), width if width > 1 else 0))
        elif storage.kind == "stack":
            size = self.s.index.poly(size_bytes(buffer))
            count = (as_int(size) or 0) // dtype(buffer.dtype).size_bytes
            align = max(buffer.align_bytes, ALIGN_BYTES)
            space = next((m.address_space for m in self.s.target.memories if m.name == buffer.place), 0)
            found = self.s.f.alloca(stored_type(buffer.dtype), max(count, 1), align, space)
            self.memory_place(buffer, found, align)
        else:
            pointer = self.s.index.pointer(self.workspace, self.s.index.poly(storage.offset))
            self.memory_place(buffer, pointer, ALIGN_BYTES)

    def _let(self, stmt: Let) -> None:
        value = stmt.value
        if isinstance(value, FromIndex) and value.dtype == "i64":
            # The index itself is bound; the value is made where it is used as one.
            self.s.index.names[stmt.name] = self.s.index.poly(value.index)
            self.s.lets.pop(stmt.name, None)
            return
        val = self.values.emit(value)
        self.s.lets[stmt.name] = val
        if stmt.name in self.indexed and DTYPES[val.dtype].kind in "iub":
            self.s.index.names[stmt.name] = single(self._index_leaf(val))

    def _index_leaf(self, val: Val) -> Leaf:
        text = self.s.casts.convert(val.text, val.dtype, "i64", val.lanes)
        bits = DTYPES[val.dtype].bits
        span: Range = (None, None)
        if DTYPES[val.dtype].kind != "i":
            span = (0, (1 << bits) - 1 if bits < 64 else None)
        return Leaf(text, self.s.f.scope.depth, span, "vector" if val.lanes else "scalar")

    def _store(self, stmt: Store) -> None:
        where = None if stmt.where is None else self.values.emit(stmt.where)
        place = self.s.place(stmt.buffer)
        condition = None if place.width else self._branch_condition(stmt, where)
        if condition is None:
            value = self.values.emit(stmt.value)
            self.memory.store(stmt.buffer, stmt.index, value, where)
            return
        after = self.s.f.block("stored")
        then = self.s.f.block("store")
        value = self.values.emit(stmt.value)
        before = self.s.f.branch_if(condition, then, after)
        self.s.f.enter(then)
        with self.s.region("branch", before):
            self.memory.store(
                stmt.buffer, stmt.index, value, where if where is not None and where.lanes else None
            )
            self.s.f.branch(after)
        self.s.f.enter(after)

    def _branch_condition(self, stmt: Store, where: Val | None) -> str | None:
        """The one bit that decides whether the store happens at all, if there is one."""
        if where is not None and not where.lanes:
            return where.text
        if where is None or not self.s.lanes:
            return None
        offset = self.s.offset(self.s.place(stmt.buffer), stmt.index)
        if self.memory.lane_stride(offset)[1] != 0:
            return None
        mask = self.s.both(self.s.mask, where.text, self.s.lanes)
        return None if mask is None else self.s.any_lane(mask, self.s.lanes)

    # -------------------------------------------------------------------------------------------------------- loops
    def _for(self, stmt: For) -> None:
        extent = self.s.index.poly(stmt.extent)
        if stmt is self.parallel:
            self._tile_loop(stmt, extent)
        elif stmt.kind == "vector":
            self._vector(stmt, extent)
        elif stmt.kind == "unroll":
            for i in range(self._constant(stmt, extent)):
                with self.s.iteration():
                    self.s.index.names[stmt.var] = constant(i)
                    self.body(stmt.body)
        else:
            self._loop(stmt, extent)

    def _constant(self, stmt: For, extent: Poly) -> int:
        known = as_int(extent)
        if known is None:
            raise self.s.error(
                f"the {stmt.kind} loop over {stmt.var} needs a constant extent, not {stmt.extent}"
            )
        return known

    def _bind_variable(self, name: str, text: str, extent: Poly) -> None:
        """A loop variable and what follows from 0 <= variable < extent."""
        index = self.s.index
        high = index.range(extent)[1]
        leaf = Leaf(text, self.s.f.scope.depth, (0, None if high is None else max(high - 1, 0)))
        var = single(leaf)
        index.names[name] = var
        index.know(add(extent, var, -1), 1)
        if len(extent) == 1:
            ((monomial, factor),) = extent.items()
            op = monomial[0].op if len(monomial) == 1 and factor == 1 else None
            if op is not None and op[0] == "floordiv" and as_int(op[1][1]) is not None:
                # var <= a//c - 1, so a - c*var >= c
                c = as_int(op[1][1]) or 1
                index.know(add(op[1][0], var, -c), c)

    def _tile_loop(self, stmt: For, extent: Poly) -> None:
        with self.s.iteration():
            self._bind_variable(stmt.var, "%tile", extent)
            self.body(stmt.body)

    def _loop(self, stmt: For, extent: Poly) -> None:
        count = as_int(extent)
        if count is not None and count <= 0:
            return
        if count == 1:
            with self.s.iteration():
                self.s.index.names[stmt.var] = constant(0)
                self.body(stmt.body)
            return
        f = self.s.f
        trips = self.s.index.scalar(extent)
        guarded = not self.s.index.at_least(extent, 1)
        head, after = f.block("loop"), f.block("after")
        before = f.branch_if(f.op(f"icmp sgt i64 {trips}, 0"), head, after) if guarded else f.branch(head)
        f.enter(head)
        written = written_buffers(stmt.body)
        self._touch(written)
        self.s.cells.begin_loop(written)
        with self.s.region("loop", before):
            var = f.fresh()
            self._bind_variable(stmt.var, var, extent)
            self.body(stmt.body)
            step = f.op(f"add nuw nsw i64 {var}, 1")
            latch = f.branch_if(f.op(f"icmp ult i64 {step}, {trips}"), head, after)
            if any(isinstance(s, Sync) for s in walk(stmt.body)):
                f.stays_rolled(latch)
        head.phis.append(f"  {var} = phi i64 [ 0, %{before.label} ], [ {step}, %{latch.label} ]")
        f.enter(after)
        self.s.cells.end_loop(head, before, latch, after, guarded)
        self._touch(written)

    def _touch(self, names: frozenset[str]) -> None:
        for name in names:
            self.s.touch(name)

    def _vector(self, stmt: For, extent: Poly) -> None:
        lanes = self._constant(stmt, extent)
        if self.s.lanes:
            raise self.s.error(f"the vector loop over {stmt.var} is inside another vector loop")
        active = None if stmt.active is None else self.s.index.poly(stmt.active)
        if lanes == 0:
            return
        some = active is None or self.s.index.at_least(active, 1)
        if some or not (lanes == 1 or shared_access(stmt.body, stmt.var)):
            self._lockstep(stmt, lanes, active)
            return
        assert active is not None
        condition = self.s.f.op(f"icmp sgt i64 {self.s.index.scalar(active)}, 0")
        self.branch(condition, lambda: self._lockstep(stmt, lanes, active), None)

    def _lockstep(self, stmt: For, lanes: int, active: Poly | None) -> None:
        """All lanes together; with one lane the body is scalar code."""
        with self.s.iteration():
            if lanes == 1:
                self.s.index.names[stmt.var] = constant(0)
                self.body(stmt.body)
                return
            self.s.lanes = self.s.index.lanes = lanes
            self.s.index.names[stmt.var] = single(Leaf("", self.s.f.scope.depth, (0, lanes - 1), "lane"))
            if active is not None and not self.s.index.at_least(active, lanes):
                self.s.mask = self.values.lanes_below(active)
            try:
                self.body(stmt.body)
            finally:
                self.s.lanes = self.s.index.lanes = 0
                self.s.mask = None

    # ----------------------------------------------------------------------------------------------------- branches
    def branch(self, condition: str, then: Callable[[], None], orelse: Callable[[], None] | None) -> None:
        """Two sides as blocks; a side is a function that emits it."""
        f = self.s.f
        after = f.block("join")
        first = f.block("then")
        second = after if orelse is None else f.block("else")
        before = f.branch_if(condition, first, second)
        sides = []
        for block, emit in ((first, then), (second, orelse)):
            self.s.cells.begin_branch()
            last = before
            if emit is not None:
                f.enter(block)
                with self.s.region("branch", before):
                    emit()
                    last = f.branch(after)
            sides.append((self.s.cells.end_branch(), last))
        f.enter(after)
        self.s.cells.join(sides, after)

    def _if(self, stmt: If) -> None:
        cond = self.values.emit(stmt.cond)
        if cond.lanes:
            raise self.s.error("a branch differs between lanes; use where or select")
        if cond.text in ("true", "false"):
            with self.s.iteration():
                self.body(stmt.then if cond.text == "true" else stmt.orelse)
        else:
            orelse = (lambda: self.body(stmt.orelse)) if stmt.orelse else None
            self.branch(cond.text, lambda: self.body(stmt.then), orelse)

    def _switch(self, stmt: Switch) -> None:
        index = self.s.index.poly(stmt.index)
        known = as_int(index)
        if known is not None:
            if not 0 <= known < len(stmt.cases):
                raise self.s.error(f"case {known} of a switch with {len(stmt.cases)} cases")
            with self.s.iteration():
                self.body(stmt.cases[known])
            return
        f = self.s.f
        blocks = [f.block("case") for _ in stmt.cases]
        wrong, after = f.block("wrong"), f.block("join")
        table = " ".join(f"i64 {i}, label %{b.label}" for i, b in enumerate(blocks))
        f.current.end = f"  switch i64 {self.s.index.scalar(index)}, label %{wrong.label} [ {table} ]"
        sides = []
        for block, case in zip(blocks, stmt.cases):
            f.enter(block)
            self.s.cells.begin_branch()
            with self.s.region("case", None):
                self.body(case)
                last = f.branch(after)
            sides.append((self.s.cells.end_branch(), last))
        f.enter(wrong)
        f.do("call void @llvm.trap()")
        wrong.end = "  unreachable"
        f.enter(after)
        self.s.cells.join(sides, after)

    # -------------------------------------------------------------------------------------------------------- calls
    def _outline(self, stmt: Outline) -> None:
        emit_outline(self, stmt)

    def _intrinsic(self, stmt: Intrin) -> None:
        emit_intrinsic(self, stmt)

    def _sync(self, stmt: Sync) -> None:
        emit_sync(self, stmt)

    _rules: ClassVar[dict[type, Callable[..., None]]] = {
        Let: _let, Alloc: _alloc, Store: _store, For: _for, If: _if, Switch: _switch, Outline: _outline,
        Intrin: _intrinsic, Sync: _sync,
    }  # fmt: skip
