"""What is bound where: names and buffers of a kernel that is being verified.

Design choice: the verifier's whole state is here, so that rules about statements and rules about values are two
modules that meet in one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from hwsdk.codegen.loop_ir import Buffer, Index, LoopKernel
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError, nearest
from hwsdk.graph.dims import Expr, free_symbols
from hwsdk.target_desc.model import Target


@dataclass(frozen=True)
class Name:
    """kind: dim, loop, unroll, lane, reduce or let.  dtype: of a Let.  varies: differs between the lanes."""

    kind: str
    dtype: str = "i64"
    varies: bool = False


class Scope:
    """The names that hold at one statement of a kernel.  where: that statement, for messages."""

    def __init__(self, kernel: LoopKernel, target: Target | None) -> None:
        self.kernel, self.target = kernel, target
        self.names: dict[str, Name] = {}
        self.buffers: dict[str, Buffer] = {}
        self.fixed: set[str] = set()  # params and dims
        self.where = "its head"
        self._memories = {} if target is None else {m.name: m for m in target.memories}

    def fail(self, why: str) -> NoReturn:
        raise CodegenError(f"kernel {self.kernel.name}: {self.where}: {why}")

    def need(self, ok: object, why: str) -> None:
        if not ok:
            self.fail(why)

    @contextmanager
    def inner(self) -> Iterator[None]:
        """What is bound inside is forgotten behind."""
        names, buffers = dict(self.names), dict(self.buffers)
        yield
        self.names, self.buffers = names, buffers

    def bind(self, name: str, binding: Name) -> None:
        self.unhidden(name)
        self.names[name] = binding
        self.buffers.pop(name, None)

    def unhidden(self, name: str) -> None:
        self.need(name not in self.fixed, f"the name {name!r} hides a param or dim")

    def declare(self, buffer: Buffer) -> None:
        name = buffer.name
        self.unhidden(name)
        if buffer.dtype not in DTYPES:
            self.fail(f"{name}: unknown dtype {buffer.dtype!r}{nearest(buffer.dtype, DTYPES)}")
        self.need(DTYPES[buffer.dtype].numpy is not None, f"{name}: no storage for dtype {buffer.dtype}")
        for extent in buffer.shape:
            self.uniform(extent, f"an extent of {name}")
            self.need(not isinstance(extent, int) or extent >= 0, f"{name} has a negative extent")
        if buffer.strides is not None:
            self.need(
                len(buffer.strides) == len(buffer.shape),
                f"{name} has {len(buffer.shape)} dims and {len(buffer.strides)} strides",
            )
            for stride in buffer.strides:
                self.uniform(stride, f"a stride of {name}")
        self.need(buffer.align_bytes >= 0, f"{name}: negative alignment")
        if self.target is not None and buffer.place not in self._memories:
            self.fail(f"{name}: no memory {buffer.place!r}{nearest(buffer.place, self._memories)}")
        if self.memory_kind(buffer) == "registers":
            constant = all(isinstance(x, int) for x in (*buffer.shape, *(buffer.strides or ())))
            self.need(constant, f"{name} is in registers: its shape must be constant")
        self.buffers[name] = buffer
        self.names.pop(name, None)

    def memory_kind(self, buffer: Buffer) -> str:
        return self._memories[buffer.place].kind if buffer.place in self._memories else ""

    def index(self, index: Index) -> bool:
        """Checks the names of an index; does it vary over the lanes?"""
        if not isinstance(index, Expr):
            self.need(type(index) is int, f"an index must be an int or a dim, not {type(index).__name__}")
            return False
        varies = False
        for name in free_symbols(index):
            binding = self.names.get(name)
            if binding is None:
                self.fail(f"{name!r} in the index {index} is not bound{nearest(name, self.names)}")
            integer = binding.kind != "let" or DTYPES[binding.dtype].kind in "iu"
            self.need(integer, f"{name} is {binding.dtype}: only an integer may be used in an index")
            varies |= binding.varies
        return varies

    def uniform(self, index: Index, what: str) -> None:
        self.need(not self.index(index), f"{what} ({index}) differs between lanes")

    def access(self, name: str, index: Sequence[Index]) -> Buffer:
        buffer = self.buffers.get(name)
        if buffer is None:
            self.fail(f"no buffer {name!r} here{nearest(name, self.buffers)}")
        self.need(
            len(index) == len(buffer.shape), f"{name} has {len(buffer.shape)} dims, the index {len(index)}"
        )
        for i in index:
            self.index(i)
            if self.memory_kind(buffer) == "registers":
                dynamic = [n for n in sorted(free_symbols(i)) if self.names[n].kind in ("dim", "loop", "let")]
                self.need(
                    not dynamic,
                    f"{name} is in registers and {dynamic[0] if dynamic else ''} is not a constant there",
                )
        return buffer
