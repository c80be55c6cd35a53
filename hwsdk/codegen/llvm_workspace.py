"""Where the Allocs of a kernel live: SSA values, the stack, or the worker's slice of the workspace.

Design choice: the workspace is a stack of scopes laid out before emission.  Buffers of one scope follow each other,
alternatives (cases, both sides of a branch) share the space, and every size is an expression over the kernel's dims,
so the host can allocate it before the launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.llvm_scan import cell_widths
from hwsdk.codegen.loop_ir import Alloc, Body, Buffer, For, FromIndex, If, Let, LoopKernel, Outline, Switch
from hwsdk.dtypes import dtype
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Dim, ceildiv, free_symbols, maximum, substitute
from hwsdk.target_desc.model import Target

STACK_BYTES = 4096  # a buffer up to this size lives on the stack
ALIGN_BYTES = 64


@dataclass(frozen=True)
class Storage:
    """kind: cells (width elements per SSA value), stack or workspace (at `offset` bytes)."""

    kind: str
    width: int = 0
    offset: Dim = 0


def size_bytes(buffer: Buffer) -> Dim:
    """Bytes that a dense buffer takes; with strides, up to its last element."""
    if buffer.strides is None:
        total: Dim = 1
        for extent in buffer.shape:
            total = total * extent
    else:
        total = 1
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
            total = total + (extent - 1) * stride
    return total * dtype(buffer.dtype).size_bytes


class Layout:
    """Storage of every Alloc of a kernel, by buffer name and object."""

    def __init__(self, kernel: LoopKernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.widths = cell_widths(kernel, target)
        self.storage: dict[int, Storage] = {}
        self.keep: list[Alloc] = []  # identities in `storage` stay valid
        self.total = self._body(kernel.body, 0, {})

    def of(self, alloc: Alloc) -> Storage:
        return self.storage[id(alloc)]

    def _body(self, body: Body, used: Dim, lets: dict[str, Dim]) -> Dim:
        """The peak of a body that starts with `used` bytes taken."""
        peak = used
        lets = dict(lets)
        for stmt in body:
            match stmt:
                case Let(name=name, value=FromIndex(index=index)):
                    lets[name] = substitute(index, lets)
                case Alloc(buffer=buffer):
                    used = self._place(stmt, buffer, used, lets)
                    peak = _larger(peak, used)
                case For(body=inner) | Outline(body=inner):
                    peak = _larger(peak, self._body(inner, used, lets))
                case If(then=then, orelse=orelse):
                    peak = _larger(peak, self._body(then, used, lets), self._body(orelse, used, lets))
                case Switch(cases=cases):
                    peak = _larger(peak, *(self._body(case, used, lets) for case in cases))
        return peak

    def _place(self, alloc: Alloc, buffer: Buffer, used: Dim, lets: dict[str, Dim]) -> Dim:
        self.keep.append(alloc)
        width = self.widths.get(id(alloc), 0)
        size = substitute(size_bytes(buffer), lets)
        if width:
            self.storage[id(alloc)] = Storage("cells", width)
            return used
        if isinstance(size, int) and size <= STACK_BYTES:
            self.storage[id(alloc)] = Storage("stack")
            return used
        strange = sorted(free_symbols(size) - set(self.kernel.dims))
        if strange:
            raise CodegenError(
                f"kernel {self.kernel.name}: the size of {buffer.name} depends on {', '.join(strange)}; "
                "only the kernel's dims are known when its workspace is allocated"
            )
        self.storage[id(alloc)] = Storage("workspace", offset=used)
        return used + ceildiv(size, ALIGN_BYTES) * ALIGN_BYTES


def _larger(*sizes: Dim) -> Dim:
    """The maximum, without writing max(x, x + y) for sizes y >= 0 that are constants."""
    distinct = list(dict.fromkeys(sizes))
    return distinct[0] if len(distinct) == 1 else maximum(*distinct)


def workspace_bytes(kernel: LoopKernel, target: Target) -> Dim:
    """Bytes of workspace that one worker needs, over the kernel's dims."""
    return Layout(kernel, target).total
