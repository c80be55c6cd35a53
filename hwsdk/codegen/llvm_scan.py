"""What the LLVM emitter must know about a kernel before it writes the first line.

Which buffers a body writes, which names occur in indices, how the register buffers divide into cells, what is free in
an outlined body.  Design choice: these are plain walks over the IR that decide nothing about instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import gcd, prod

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
    Reduce,
    Ref,
    Stmt,
    Store,
    Switch,
    Value,
    View,
    substatements,
    value_children,
    walk,
)
from hwsdk.graph.dims import free_symbols
from hwsdk.target_desc.model import Target

MAX_CELLS = 1024  # a register buffer with more cells than this is an array, whatever its place


def statement_values(stmt: Stmt) -> Iterator[Value]:
    """The values that stand directly in a statement."""
    match stmt:
        case Let(value=value):
            yield value
        case Store(value=value, where=where):
            yield value
            if where is not None:
                yield where
        case If(cond=cond):
            yield cond
        case Intrin(operands=operands):
            yield from (o for _, o in operands if isinstance(o, Value))


def statement_indices(stmt: Stmt) -> Iterator[Index]:
    """The indices that stand directly in a statement, not those inside its values."""
    match stmt:
        case Store(index=index):
            yield from index
        case For(extent=extent, active=active):
            yield extent
            if active is not None:
                yield active
        case Switch(index=index):
            yield index
        case Alloc(buffer=buffer):
            yield from buffer_indices(buffer)
        case Intrin(operands=operands, dims=dims):
            for _, o in operands:
                if isinstance(o, View):
                    yield from o.index
                elif not isinstance(o, Value):
                    yield o
            yield from (d for _, d in dims)


def buffer_indices(buffer: Buffer) -> Iterator[Index]:
    yield from buffer.shape
    yield from buffer.strides or ()


def value_nodes(roots: Iterable[Value], into_reduce: bool = True) -> Iterator[Value]:
    """Every value reachable from the roots, each object once; a Reduce may be left for the caller to enter."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        v = stack.pop()
        if id(v) not in seen:
            seen.add(id(v))
            yield v
            if into_reduce or not isinstance(v, Reduce):
                stack += value_children(v)


def body_values(body: Body) -> Iterator[Value]:
    yield from value_nodes(v for stmt in walk(body) for v in statement_values(stmt))


def written_buffers(body: Body) -> frozenset[str]:
    """Buffers that a body may change; every View of an intrinsic counts."""
    found: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Store):
            found.add(stmt.buffer)
        elif isinstance(stmt, Intrin):
            found |= {o.buffer for _, o in stmt.operands if isinstance(o, View)}
    return frozenset(found)


def index_names(body: Body) -> frozenset[str]:
    """All names that occur in an index anywhere in a body."""
    found: set[str] = set()
    for stmt in walk(body):
        for i in statement_indices(stmt):
            found |= free_symbols(i)
    for v in body_values(body):
        if isinstance(v, Load):
            for i in v.index:
                found |= free_symbols(i)
        elif isinstance(v, FromIndex):
            found |= free_symbols(v.index)
    return frozenset(found)


def shared_access(body: Body, lane: str) -> bool:
    """May some access of a vector body be one element for all lanes?"""
    for stmt in walk(body):
        if isinstance(stmt, Intrin) or (isinstance(stmt, Store) and not _mentions(stmt.index, lane)):
            return True
    return any(isinstance(v, Load) and not _mentions(v.index, lane) for v in body_values(body))


def _mentions(index: Iterable[Index], name: str) -> bool:
    return any(name in free_symbols(i) for i in index)


# ------------------------------------------------------------------------------------------------------------- free
@dataclass
class Free:
    """What a body uses and does not define."""

    buffers: dict[str, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)


def free_in(body: Body) -> Free:
    """Free buffers and names (loop variables, dims and Lets alike) of a body, in order of first use."""
    free = Free()
    _free_body(body, frozenset(), free)
    return free


def _free_body(body: Body, bound: frozenset[str], free: Free) -> None:
    for stmt in body:
        inner = bound | {stmt.var} if isinstance(stmt, For) else bound
        for i in statement_indices(stmt):
            _free_index(i, bound, free)
        for v in statement_values(stmt):
            _free_value(v, bound, free)
        names = [stmt.buffer] if isinstance(stmt, Store) else []
        if isinstance(stmt, Intrin):
            names = [o.buffer for _, o in stmt.operands if isinstance(o, View)]
        free.buffers.update((n, None) for n in names if n not in bound)
        for nested in substatements(stmt):
            _free_body(nested, inner, free)
        if isinstance(stmt, Let):
            bound |= {stmt.name}
        elif isinstance(stmt, Alloc):
            bound |= {stmt.buffer.name}


def _free_index(index: Index, bound: frozenset[str], free: Free) -> None:
    free.names.update((n, None) for n in sorted(free_symbols(index)) if n not in bound)


def _free_value(root: Value, bound: frozenset[str], free: Free) -> None:
    for v in value_nodes([root], into_reduce=False):
        if isinstance(v, Load):
            if v.buffer not in bound:
                free.buffers[v.buffer] = None
            for i in v.index:
                _free_index(i, bound, free)
        elif isinstance(v, FromIndex):
            _free_index(v.index, bound, free)
        elif isinstance(v, Ref) and v.name not in bound:
            free.names[v.name] = None
        elif isinstance(v, Reduce):
            _free_value(v.value, bound | {v.var}, free)


# -------------------------------------------------------------------------------------------------- register buffers
@dataclass
class _Use:
    """How one register buffer is accessed."""

    widths: set[int] = field(default_factory=set)
    dynamic: bool = False


def in_registers(target: Target, place: str) -> bool:
    return place == "" or target.memory(place).kind == "registers"


def cell_widths(kernel: LoopKernel, target: Target) -> dict[int, int]:
    """Elements per cell of the register buffer of every Alloc (by identity); 0 for one that must be an array after all,
    because an index is only known at run time."""
    scan = _RegisterScan(target)
    scan.body(kernel.body, {}, {})
    return {key: _width(buffer, use) for key, (buffer, use) in scan.uses.items()}


def _width(buffer: Buffer, use: _Use) -> int:
    if use.dynamic or buffer.strides is not None or not all(isinstance(d, int) for d in buffer.shape):
        return 0
    elements = prod(d for d in buffer.shape if isinstance(d, int))
    width = max(1, gcd(elements, *use.widths)) if use.widths else 1
    return width if elements // width <= MAX_CELLS else 0


class _RegisterScan:
    """Walks a kernel and notes how each register buffer is used.

    `constants`: names that are numbers when the code is written: unroll variables (0) and lanes (their count).
    `scope`: buffer names to the use of the Alloc that they mean at this point.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.uses: dict[int, tuple[Buffer, _Use]] = {}
        self.types: dict[tuple[str, str], str] = {}

    def body(self, body: Body, constants: dict[str, int], scope: dict[str, _Use]) -> None:
        scope = dict(scope)
        for stmt in body:
            if isinstance(stmt, Alloc):
                self._alloc(stmt, scope)
            elif isinstance(stmt, Store) and stmt.buffer in scope:
                self._index(stmt.index, scope[stmt.buffer], constants)
            elif isinstance(stmt, Intrin):
                self._intrinsic(stmt, constants, scope)
            for v in statement_values(stmt):
                self._value(v, constants, scope)
            inner = constants
            if isinstance(stmt, For) and isinstance(stmt.extent, int) and stmt.kind in ("unroll", "vector"):
                inner = {
                    **constants,
                    stmt.var: stmt.extent if stmt.kind == "vector" and stmt.extent > 1 else 0,
                }
            for nested in substatements(stmt):
                self.body(nested, inner, scope)

    def _alloc(self, stmt: Alloc, scope: dict[str, _Use]) -> None:
        scope.pop(stmt.buffer.name, None)
        if in_registers(self.target, stmt.buffer.place):
            use = self.uses.setdefault(id(stmt), (stmt.buffer, _Use()))[1]
            scope[stmt.buffer.name] = use

    def _value(self, root: Value, constants: dict[str, int], scope: dict[str, _Use]) -> None:
        for v in value_nodes([root], into_reduce=False):
            if isinstance(v, Load) and v.buffer in scope:
                self._index(v.index, scope[v.buffer], constants)
            elif isinstance(v, Reduce):
                self._value(v.value, {**constants, v.var: 0}, scope)

    @staticmethod
    def _index(index: tuple[Index, ...], use: _Use, constants: dict[str, int]) -> None:
        for i in index:
            for name in free_symbols(i):
                if name not in constants:
                    use.dynamic = True
                elif constants[name]:
                    use.widths.add(constants[name])

    def _intrinsic(self, stmt: Intrin, constants: dict[str, int], scope: dict[str, _Use]) -> None:
        for operand, o in stmt.operands:
            if isinstance(o, View) and o.buffer in scope:
                self._index(o.index, scope[o.buffer], constants)
                text = natural(self.target, stmt.name, operand, self.types)
                scope[o.buffer].widths.add(natural_items(text))


def natural(target: Target, intrinsic: str, operand: str, known: dict[tuple[str, str], str]) -> str:
    """LLVM type of an operand's value."""
    from hwsdk.intrinsics import (
        natural_type,
    )  # imported where used: kernels without intrinsics need none of it

    found = known.get((intrinsic, operand))
    if found is None:
        found = known[intrinsic, operand] = natural_type(target, intrinsic, operand)
    return found


def natural_items(text: str) -> int:
    """Elements of an operand that lives in registers, from its LLVM type."""
    return int(text[1:].split(" ", 1)[0]) if text.startswith("<") else 1
