"""LoopIR to LLVM text for machines whose lanes have ids (`codegen.model: simt`).

    emit_simt_kernel(kernel, target)   text of one device function: addresses of the params, then the dims as i64
    scratch_bytes(kernel, target)      what one workgroup needs of the scratchpad
    threads(kernel)                    lanes of one workgroup

The outermost parallel loop is the grid; parallel loops inside it are the lanes of a workgroup, numbered row-major.
Everything chip-specific is text of the description: calling convention, attributes, id intrinsics, address spaces.
Design choice: accesses go through generic pointers cast once at entry; the code generator's own address-space
inference makes them specific again, and no other room has to carry address spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, ClassVar

from hwsdk.codegen.llvm_emit import Emitter
from hwsdk.codegen.llvm_poly import Leaf, Poly, constant, single
from hwsdk.codegen.llvm_scan import index_names
from hwsdk.codegen.llvm_state import Module, State
from hwsdk.codegen.llvm_text import Function, symbol
from hwsdk.codegen.llvm_workspace import Layout, Storage, size_bytes
from hwsdk.codegen.loop_ir import Alloc, Body, Buffer, For, LoopKernel, Outline, Stmt, group_loops
from hwsdk.dtypes import dtype
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Dim, ceildiv, substitute
from hwsdk.intrinsics.bindings import pointer_type
from hwsdk.intrinsics.emit_lanes import lane_attributes
from hwsdk.target_desc.model import Memory, Target

__all__ = ["emit_simt_kernel", "scratch_bytes", "threads"]

SCRATCH_ALIGN = 128


def threads(kernel: LoopKernel) -> int:
    """Lanes of one workgroup."""
    return prod(loop.extent if isinstance(loop.extent, int) else 0 for loop in group_loops(kernel))


def scratch_bytes(kernel: LoopKernel, target: Target) -> Dim:
    """Bytes of the scratchpad that one workgroup needs, over the kernel's dims."""
    return SimtLayout(kernel, target).total


def emit_simt_kernel(kernel: LoopKernel, target: Target) -> str:
    """The kernel as LLVM text.  CodegenError where it needs something that the description does not give."""
    settings = target.codegen.llvm.kernel if target.codegen.llvm is not None else {}
    memories = {m.name: m for m in target.memories}
    attributes = settings.get("pointer_attributes", "")
    params = [
        (f"{_pointer(memories[p.place])} {attributes}".rstrip(), f"%p{n}")
        for n, p in enumerate(kernel.params)
    ]
    params += [("i64", f"%d{n}") for n in range(len(kernel.dims))]
    function = Function(
        kernel.name,
        params,
        f"nounwind {lane_attributes(settings, threads(kernel))}",
        settings.get("convention", ""),
    )
    state = State(function, Module(kernel, target))
    layout = SimtLayout(kernel, target)
    emitter = SimtEmitter(state, layout, index_names(kernel.body))
    for number, name in enumerate(kernel.dims):
        state.index.names[name] = single(Leaf(f"%d{number}", 0, (0, None)))
    for number, buffer in enumerate(kernel.params):
        memory = memories[buffer.place]
        generic = _generic(function, f"%p{number}", memory)
        emitter.memory_place(buffer, generic, memory.align_bytes or dtype(buffer.dtype).size_bytes)
    head = ""
    if layout.total != 0:
        name = symbol(f"{kernel.name}_scratch")
        scratch = next(m for m in target.memories if m.kind == "scratchpad")
        head = f"{name} = {_declared(kernel, target, settings, layout.total)}\n\n"
        emitter.scratch = _generic(function, name, scratch)
    emitter.body(kernel.body)
    return head + "\n".join([*state.module.texts, function.text()])


def _declared(kernel: LoopKernel, target: Target, settings: Mapping[str, Any], total: Dim) -> str:
    """The scratchpad of a workgroup as a global: sized at launch where the description knows how, else now."""
    if "dynamic_scratchpad" in settings:
        return str(settings["dynamic_scratchpad"])
    if "static_scratchpad" not in settings or not isinstance(total, int):
        raise CodegenError(
            f"kernel {kernel.name} needs {total} bytes of scratchpad, and codegen.llvm.kernel of target {target.name}"
            " declares none of that kind (dynamic_scratchpad, static_scratchpad)"
        )
    return str(settings["static_scratchpad"]).replace("{bytes}", str(total))


def _pointer(memory: Memory) -> str:
    return pointer_type(memory.address_space)


def _generic(function: Function, pointer: str, memory: Memory) -> str:
    if not memory.address_space:
        return pointer
    return function.op(f"addrspacecast {_pointer(memory)} {pointer} to ptr")


class SimtLayout(Layout):
    """Allocs are SSA values, private memory of a lane, or a part of the workgroup's scratchpad."""

    def _place(self, alloc: Alloc, buffer: Buffer, used: Dim, lets: dict[str, Dim]) -> Dim:
        self.keep.append(alloc)
        width = self.widths.get(id(alloc), 0)
        size = substitute(size_bytes(buffer), lets)
        kind = next(m.kind for m in self.target.memories if m.name == buffer.place)
        if kind == "scratchpad":
            if buffer.align_bytes > SCRATCH_ALIGN:
                used = ceildiv(used, buffer.align_bytes) * buffer.align_bytes
            self.storage[id(alloc)] = Storage("scratch", offset=used)
            return used + ceildiv(size, SCRATCH_ALIGN) * SCRATCH_ALIGN
        if not width and not isinstance(size, int):
            raise CodegenError(
                f"kernel {self.kernel.name}: {buffer.name} is private to a lane and has no constant size"
            )
        self.storage[id(alloc)] = Storage("cells", width) if width else Storage("stack")
        return used


class SimtEmitter(Emitter):
    """Statements as one lane executes them."""

    scratch = ""

    def _for(self, stmt: For) -> None:
        if stmt is self.parallel:
            self._groups(stmt)
        elif stmt.kind == "parallel":
            self.body(stmt.body)  # its variable was bound with the grid's
        else:
            Emitter._for(self, stmt)

    def _groups(self, stmt: For) -> None:
        """Bind the workgroup's number and the lane's numbers, then the body."""
        with self.s.iteration():
            group = self._id(stmt.level or "", None)
            self._bind_variable(stmt.var, group, self.s.index.poly(stmt.extent))
            loops = group_loops(self.s.module.kernel)
            if loops:
                self._lanes(loops)
            self.body(stmt.body)

    def _lanes(self, loops: tuple[For, ...]) -> None:
        count = threads(self.s.module.kernel)
        if not count:
            raise self.s.error("the loops inside a workgroup need constant extents")
        index = self.s.index
        rest: Poly = single(Leaf(self._id(loops[-1].level or "", count), 0, (0, count - 1)))
        for loop in reversed(loops):
            extent = constant(loop.extent if isinstance(loop.extent, int) else 1)
            first = loop is loops[0]
            index.names[loop.var] = rest if first else index.apply("mod", (rest, extent))
            rest = rest if first else index.apply("floordiv", (rest, extent))

    def _id(self, level: str, count: int | None) -> str:
        """The number of this instance of a level, as i64."""
        found = next((x for x in self.s.target.levels if x.name == level), None)
        if found is None or not found.index:
            raise self.s.error(f"level {level!r} of target {self.s.target.name} gives no index")
        f = self.s.f
        text = f.op(f"call i32 @{found.index[0]}()")
        return f.op(f"zext i32 {text} to i64") if count is None else f.op(f"zext nneg i32 {text} to i64")

    def _alloc(self, stmt: Alloc) -> None:
        storage = self.layout.of(stmt)
        if storage.kind != "scratch":
            Emitter._alloc(self, stmt)
            return
        self.s.touch(stmt.buffer.name)
        pointer = self.s.index.pointer(self.scratch, self.s.index.poly(storage.offset))
        self.memory_place(stmt.buffer, pointer, max(stmt.buffer.align_bytes, SCRATCH_ALIGN))

    def _outline(self, stmt: Outline) -> None:
        """Code of a lane is never called: its registers and scratchpad are laid out for one function."""
        with self.s.iteration():
            self.body(stmt.body)

    def body(self, body: Body) -> None:
        for stmt in body:
            self._simt_rules.get(type(stmt), self._rules.get(type(stmt)))(self, stmt)  # type: ignore[misc]

    _simt_rules: ClassVar[dict[type[Stmt], Callable[..., None]]] = {
        For: _for,
        Alloc: _alloc,
        Outline: _outline,
    }
