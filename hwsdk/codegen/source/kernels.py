"""Whole kernels and files of C-family text.

    source_file(kernels, target)    text of one file: prologue, the helper functions that are used, the kernels

Design choice: one emitter, two ways of starting.  Where a core runs one stream (`model: simd`) a kernel has the calling
convention of all kernels there (argument slots, tile, worker) around a function with typed parameters; where lanes have
ids, or one core is the whole machine, the parameters are the kernel's buffers and dims.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.llvm_simt import SimtLayout, threads
from hwsdk.codegen.llvm_workspace import Layout
from hwsdk.codegen.loop_ir import Buffer, For, Index, LoopKernel, group_loops
from hwsdk.codegen.source.dialect import INDEX, Dialect, fill
from hwsdk.codegen.source.operations import Operations
from hwsdk.codegen.source.statements import Emitter, Facts
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Expr, floordiv, mod
from hwsdk.target_desc.model import Target


def source_file(kernels: Sequence[LoopKernel], target: Target) -> str:
    """Text of one file.  CodegenError where a kernel needs something that the description does not give."""
    dialect = Dialect.of(target)
    ops = Operations(dialect)
    texts = [_kernel(kernel, dialect, ops) for kernel in kernels]
    return "\n\n".join(filter(None, [dialect.words.prologue.rstrip(), ops.helpers(), *texts])) + "\n"


def _kernel(kernel: LoopKernel, dialect: Dialect, ops: Operations) -> str:
    if not kernel.name.isidentifier():
        raise CodegenError(f"kernel {kernel.name!r}: its name is no word of the language")
    if dialect.target.codegen.model == "simd":
        return _streamed(kernel, dialect, ops)
    if dialect.target.codegen.model != "simt":
        raise CodegenError(
            f"target {dialect.target.name}: text is written for cores and for lanes with ids (codegen.model simd,"
            f" simt), not for model {dialect.target.codegen.model}"
        )
    layout = SimtLayout(kernel, dialect.target)
    emitter = LaneEmitter(kernel, dialect, ops, Facts.of(kernel, dialect, layout))
    params = _bind_params(emitter, kernel)
    emitter.scratchpad()
    emitter.body(kernel.body)
    return _function(_head(kernel, dialect, ", ".join(params)), emitter)


def _head(kernel: LoopKernel, dialect: Dialect, params: str) -> str:
    words = {"name": kernel.name, "params": params, "threads": threads(kernel)}
    return fill(dialect.words.kernel, words)


def _function(head: str, emitter: Emitter) -> str:
    return f"{head} {{\n{emitter.w.text()}\n}}"


def _bind_params(emitter: Emitter, kernel: LoopKernel) -> list[str]:
    """The typed parameters: buffers, then dims."""
    d = emitter.d
    for name in kernel.dims:
        emitter.index.names[name] = emitter.index.declare(name, (0, None), 0)
    heads: list[str] = []
    for buffer in kernel.params:
        name = emitter.w.name(buffer.name)
        pointer = _pointer(kernel, buffer, d)
        emitter.bind_place(buffer, name, pointer)
        heads.append(f"{pointer}{_gap(d.words.restrict)} {name}")
    heads += [f"{emitter.index.type} {emitter.index.names[name]}" for name in kernel.dims]
    return heads


def _gap(word: str) -> str:
    return f" {word}" if word else ""


def _pointer(kernel: LoopKernel, buffer: Buffer, dialect: Dialect) -> str:
    const = "" if buffer.name in kernel.outputs else "const "
    qualifier = dialect.target.memory(buffer.place).qualifier if buffer.place else ""
    return dialect.pointer(f"{const}{dialect.stored(buffer.dtype)}", qualifier)


# ------------------------------------------------------------------------------------------------- one stream per core
def _streamed(kernel: LoopKernel, dialect: Dialect, ops: Operations) -> str:
    """A function with typed parameters, and the kernel, which takes them from their slots."""
    layout = Layout(kernel, dialect.target)
    emitter = Emitter(kernel, dialect, ops, Facts.of(kernel, dialect, layout))
    params = _bind_params(emitter, kernel)
    integer, byte = emitter.index.type, dialect.type("u8")
    tile = emitter.index.declare("tile", (0, None), 0)
    emitter.tile = tile
    params.append(f"{integer} {tile}")
    slots = [f"({_pointer(kernel, b, dialect)})args[{i}]" for i, b in enumerate(kernel.params)]
    first = len(slots)
    slots += [f"args[{first + i}]" for i in range(len(kernel.dims))]
    slots.append("tile")
    if layout.total != 0:
        emitter.base = emitter.w.name("workspace")
        params.append(f"{byte} *{_gap(dialect.words.restrict)} {emitter.base}")
        end = first + len(kernel.dims)
        slots.append(f"({byte} *)args[{end}] + worker * args[{end + 1}]")
    emitter.body(kernel.body)
    name = f"{kernel.name}_body"
    words = {"type": "void", "name": name, "params": ", ".join(params)}
    head = _head(kernel, dialect, f"const {integer} *args, {integer} tile, {integer} worker")
    call = f"{head} {{\n  (void)worker;\n  {name}({', '.join(slots)});\n}}"
    body = _function(fill(dialect.words.function, words), emitter)
    return "\n\n".join([*emitter.texts, body, call])


# --------------------------------------------------------------------------------------------------- lanes with ids
class LaneEmitter(Emitter):
    """Statements as one lane executes them."""

    def scratchpad(self) -> None:
        """Declares the scratchpad of a workgroup, where the kernel has buffers in it."""
        total = self.facts.layout.total
        if total == 0:
            return
        template = self.d.words.scratchpad
        if not template or ("{bytes}" in template and not isinstance(total, int)):
            raise self.error(
                f"it needs {total} bytes of scratchpad, and codegen.source.scratchpad of target {self.d.target.name}"
                " declares none of that kind"
            )
        self.base = self.w.name("scratch")
        self.w.line(fill(template, {"bytes": total, "name": self.base}))

    def group(self, stmt: For) -> None:
        """Bind the workgroup's number and the lane's numbers, then the body."""
        extent = self.index.resolve(stmt.extent)
        self.index.names[stmt.var] = self._number(stmt.var, stmt.level or "", extent)
        loops = group_loops(self.kernel)
        if loops:
            count = threads(self.kernel)
            if not count:
                raise self.error("the loops inside a workgroup need constant extents")
            rest: Index = self._number(
                loops[0].var if len(loops) == 1 else "thread", loops[-1].level or "", count
            )
            for loop in reversed(loops):
                first, size = loop is loops[0], loop.extent if isinstance(loop.extent, int) else 1
                self.index.define(loop.var, rest if first else mod(rest, size))
                rest = rest if first else floordiv(rest, size)
        self.body(stmt.body)

    def _number(self, name: str, level: str, extent: Index) -> Expr:
        """The number of this instance of a level, as a variable."""
        text = self.d.words.index.get(level)
        if text is None:
            raise self.error(
                f"codegen.source.index of target {self.d.target.name} gives no index of level {level!r}"
            )
        variable = self.index.declare(name, (0, extent - 1))
        self.w.line(f"const {self.index.type} {variable} = ({self.d.type(INDEX)}){text};")
        return variable


__all__ = ["CodegenError", "source_file"]
