"""What the parts of the LLVM emitter share while one function is being written.

Design choice: there is one mutable object, this one, and it lives for one function.  Everything else about a kernel is
frozen data.  Lanes are a property of the current position (inside a `vector` loop or not), never of an IR node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hwsdk.codegen.llvm_casts import Casts
from hwsdk.codegen.llvm_cells import Cells
from hwsdk.codegen.llvm_index import Indexer
from hwsdk.codegen.llvm_ops import Ops
from hwsdk.codegen.llvm_poly import Leaf, Poly, add, as_int, multiply
from hwsdk.codegen.llvm_text import Function, symbol
from hwsdk.codegen.llvm_types import splat_text, value_type, vector
from hwsdk.codegen.loop_ir import Buffer, LoopKernel, Value
from hwsdk.dtypes import dtype
from hwsdk.errors import CodegenError, nearest
from hwsdk.target_desc.model import Target


@dataclass(frozen=True)
class Val:
    """An SSA value: a scalar (lanes 0) or one value per lane."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return vector(value_type(self.dtype), self.lanes)


@dataclass(frozen=True)
class Place:
    """Where a buffer is.  Register buffers have `width` elements per cell; others a pointer."""

    buffer: Buffer
    strides: tuple[Poly, ...]
    pointer: str = ""
    width: int = 0
    align: int = 1  # bytes that the pointer is a multiple of

    @property
    def element_bytes(self) -> int:
        return dtype(self.buffer.dtype).size_bytes


@dataclass
class Module:
    """Text that goes beside the function: outlined functions and constants."""

    kernel: LoopKernel
    target: Target
    outlined: dict[tuple[object, ...], str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    types: dict[tuple[str, str], str] = field(default_factory=dict)  # of intrinsics' operands
    intrinsics: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict)  # text of one use
    zeros: bool = False

    @property
    def zero_name(self) -> str:
        """Memory that reads as zeros: what a load reads when its condition is false."""
        self.zeros = True
        return symbol(f"{self.kernel.name}.zeros")


ZERO_BYTES = 512
Entry = tuple[
    Value, Val, tuple[tuple[str, int], ...]
]  # the value, its result, the buffer versions it has read


class State:
    """One function being written."""

    def __init__(self, function: Function, module: Module) -> None:
        self.f = function
        self.module = module
        self.target = module.target
        self.lane_branches = module.target.codegen.model == "simt"
        self.index = Indexer(function, hide=not self.lane_branches)
        self.cells = Cells(function)
        self.casts = Casts(function, module.target)
        self.ops = Ops(function, self.casts)
        self.places: dict[str, Place] = {}
        self.lets: dict[str, Val] = {}
        self.versions: dict[str, int] = {}
        self.lanes = 0
        self.lane: Leaf | None = None
        self.mask: str | None = None  # lanes that act; None: all
        self.loads: dict[object, Val] = {}  # what has been read and dominates the current position
        self.memo: dict[int, Entry] = {}  # values computed so far, by identity
        self.trail: list[list[tuple[int, Entry | None]]] = [[]]  # per region: what to put back when it ends

    # ------------------------------------------------------------------------------------------------------ places
    def place(self, name: str) -> Place:
        try:
            return self.places[name]
        except KeyError:
            raise self.error(f"buffer {name!r} is not defined here{nearest(name, self.places)}") from None

    def error(self, sentence: str) -> CodegenError:
        return CodegenError(f"kernel {self.module.kernel.name}: {sentence}")

    def offset(self, place: Place, index: tuple[object, ...]) -> Poly:
        """Linear offset in elements."""
        if len(index) != len(place.strides):
            raise self.error(f"{place.buffer.name} has {len(place.strides)} dims, not {len(index)}")
        total: Poly = {}
        for i, stride in zip(index, place.strides):
            total = _add_product(total, self.index.poly(i), stride)  # type: ignore[arg-type]
        return total

    def touch(self, buffer: str) -> None:
        """The contents of a buffer have changed."""
        self.versions[buffer] = self.versions.get(buffer, 0) + 1

    def remember(self, value: Value, val: Val, versions: tuple[tuple[str, int], ...]) -> None:
        """Keep the result of a value until the innermost region ends."""
        self.trail[-1].append((id(value), self.memo.get(id(value))))
        self.memo[id(value)] = (value, val, versions)

    # ------------------------------------------------------------------------------------------------------- lanes
    def splat(self, v: Val, lanes: int) -> Val:
        """The value in all lanes."""
        if v.lanes or not lanes:
            return v
        element = value_type(v.dtype)
        if not v.text.startswith("%"):
            return Val(splat_text(v.text, element, lanes), v.dtype, lanes)
        key = ("splat", v.text, lanes)
        found = self.f.remembered(key, 0)
        if found is None:
            kind = vector(element, lanes)
            first = self.f.op(f"insertelement {kind} poison, {element} {v.text}, i64 0")
            found = self.f.op(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
            self.f.scope.memo[key] = found
        return Val(found, v.dtype, lanes)

    def any_lane(self, mask: str, lanes: int) -> str:
        """Is any lane of the mask set?"""
        key = ("any", mask)
        found = self.f.remembered(key, 0)
        if found is None:
            found = self.f.op(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {mask})")
            self.f.scope.memo[key] = found
        return found

    def both(self, a: str | None, b: str | None, lanes: int) -> str | None:
        """Conjunction of two masks, None being all."""
        if a is None or b is None or a == b:
            return a if b is None else b
        return self.f.op(f"and {vector('i1', lanes)} {a}, {b}")

    # ------------------------------------------------------------------------------------------------------ regions
    @contextmanager
    def region(self, kind: str, before: object) -> Iterator[None]:
        """A nested body: bindings, memoised values and facts made inside end with it."""
        loads, self.loads = self.loads, dict(self.loads)
        try:
            with self.iteration(), self.f.region(kind, before):  # type: ignore[arg-type]
                yield
        finally:
            self.loads = loads

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Like `region`, without a place of its own in the control flow (one unrolled iteration)."""
        names, facts, places, lets = self.index.names, self.index.facts, self.places, self.lets
        self.index.names, self.places, self.lets = dict(names), dict(places), dict(lets)
        self.trail.append([])
        try:
            yield
        finally:
            for key, entry in reversed(self.trail.pop()):
                if entry is None:
                    del self.memo[key]
                else:
                    self.memo[key] = entry
            self.index.names, self.index.facts, self.places, self.lets = names, facts, places, lets


def _add_product(total: Poly, a: Poly, b: Poly) -> Poly:
    """total + a*b."""
    factor = as_int(b)
    return add(total, a, factor) if factor is not None else add(total, multiply(a, b))
