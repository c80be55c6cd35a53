"""LoopIR: loops, places, loads, stores, copies and intrinsics; its whole grammar is this file.

    kernel = name, params: buffers, dims: run-time integers, body
    stmt   = Let(name, value)                      bind a value; an integer may then be used in indices
           | Alloc(buffer)                         lives until the end of the enclosing body
           | Store(buffer, index, value, where?)
           | For(var, extent, body, kind)          kind = serial | unroll | vector | parallel(level)
           | If(cond, then, orelse)  | Switch(index, cases)
           | Outline(name, body)                   same meaning as body; emitted as a function of its own
           | Intrin(name, operands, dims)          one use of an intrinsic of the target
           | Sync(name, pending)                   a sync of the target: barrier, commit, wait
    value  = Const | Load(buffer, index, where?) | Ref(name) | FromIndex(index) | Unary | Binary | Ternary | Select
           | Cast | Reduce(op, var, extent, value)
    index  = int | Expr                            integer expression over dims, loop variables and integer Lets

Design choice: vectors are not types here.  A `vector` loop runs all its iterations in lockstep, statement by statement;
an access is a vector load, a broadcast or a gather according to how its index depends on the loop variable.  So the
interpreter (`hwsdk.sim.machine`, the definition of this IR) needs no lane types and every lowering stays readable.

Value nodes compare by identity: a value used twice is computed once (emitters and the machine memoise on the object).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hwsdk.graph.dims import Expr

Index = int | Expr


@dataclass(frozen=True)
class Buffer:
    """A named array in one place (a memory of the target).  strides in elements; None: row-major."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    place: str
    strides: tuple[Index, ...] | None = None
    align_bytes: int = 0


# ------------------------------------------------------------------------------------------------------------ values
@dataclass(frozen=True, eq=False)
class Value:
    """Base of values; `dtype` is the element type of the result."""

    dtype: str


@dataclass(frozen=True, eq=False)
class Const(Value):
    value: int | float | bool


@dataclass(frozen=True, eq=False)
class Load(Value):
    """One element.  Where `where` is false the memory is not touched and the value is zero."""

    buffer: str
    index: tuple[Index, ...]
    where: Value | None = None


@dataclass(frozen=True, eq=False)
class Ref(Value):
    """A value bound by Let."""

    name: str


@dataclass(frozen=True, eq=False)
class FromIndex(Value):
    """An index as a value of an integer or float dtype."""

    index: Index


@dataclass(frozen=True, eq=False)
class Unary(Value):
    """op: a name of arity 1 in `hwsdk.graph.scalar.SCALAR`."""

    op: str
    x: Value


@dataclass(frozen=True, eq=False)
class Binary(Value):
    """op: a name of arity 2 in SCALAR; both sides have the same dtype (comparisons give bool)."""

    op: str
    x: Value
    y: Value


@dataclass(frozen=True, eq=False)
class Ternary(Value):
    """op: fma(x, y, z) = x*y + z, rounded once where the target fuses."""

    op: str
    x: Value
    y: Value
    z: Value


@dataclass(frozen=True, eq=False)
class Select(Value):
    cond: Value
    x: Value
    y: Value


@dataclass(frozen=True, eq=False)
class Cast(Value):
    """Numeric conversion by the rules of the graph op `cast`; mode `bits` reinterprets the same number of bits."""

    x: Value
    mode: str = "value"


@dataclass(frozen=True, eq=False)
class Reduce(Value):
    """op (sum, max, min, prod, any, all) over `var` in [0, extent) of `value`; extent is a constant."""

    op: str
    var: str
    extent: int
    value: Value


# -------------------------------------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Stmt:
    """Base of statements."""


Body = tuple[Stmt, ...]


@dataclass(frozen=True)
class Let(Stmt):
    name: str
    value: Value


@dataclass(frozen=True)
class Alloc(Stmt):
    """Uninitialised until written."""

    buffer: Buffer


@dataclass(frozen=True)
class Store(Stmt):
    buffer: str
    index: tuple[Index, ...]
    value: Value
    where: Value | None = None


@dataclass(frozen=True)
class For(Stmt):
    """`var` runs over [0, extent).

    kind serial: in order.  unroll: extent is a constant, the emitter repeats the body.  vector: extent is a constant
    number of lanes in lockstep; only lanes below `active` act (None: all).  parallel: iterations run on instances of
    execution level `level`; those of the outermost one are independent, those inside it are the lanes of a workgroup,
    which may meet at a Sync.
    """

    var: str
    extent: Index
    body: Body
    kind: str = "serial"
    level: str | None = None
    active: Index | None = None


@dataclass(frozen=True)
class If(Stmt):
    cond: Value
    then: Body
    orelse: Body = ()


@dataclass(frozen=True)
class Switch(Stmt):
    """Runs cases[index]; an index outside the cases is an error."""

    index: Index
    cases: tuple[Body, ...]


@dataclass(frozen=True)
class Outline(Stmt):
    """Equal outlines (same name) of one kernel are emitted once."""

    name: str
    body: Body


@dataclass(frozen=True)
class View:
    """The address of one element of a buffer: where an intrinsic's operand begins."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Intrin(Stmt):
    """operands: for each operand of the intrinsic a View (in a memory or registers) or an Index (scalar, immediate)
    or a Value (scalar of another dtype).  dims: the run-time extents."""

    name: str
    operands: tuple[tuple[str, View | Index | Value], ...]
    dims: tuple[tuple[str, Index], ...] = ()


@dataclass(frozen=True)
class Sync(Stmt):
    """A sync entry of the target; pending: how many asynchronous uses may stay outstanding (wait)."""

    name: str
    pending: int = 0


@dataclass(frozen=True)
class LoopKernel:
    """params: buffers bound at launch, outputs last.  dims: names of run-time integers, bound at launch.

    The body is some Lets and Allocs and at most one outermost parallel loop; its extent is the launch size.  Parallel
    loops may stand directly inside it, one in the other (`loop_verify_lanes`).
    """

    name: str
    params: tuple[Buffer, ...]
    dims: tuple[str, ...]
    body: Body
    outputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)


def substatements(stmt: Stmt) -> Iterator[Body]:
    """The bodies nested directly in a statement."""
    match stmt:
        case For(body=body) | Outline(body=body):
            yield body
        case If(then=then, orelse=orelse):
            yield then
            yield orelse
        case Switch(cases=cases):
            yield from cases


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement of a body, outer first."""
    for stmt in body:
        yield stmt
        for inner in substatements(stmt):
            yield from walk(inner)


def parallel_loop(kernel: LoopKernel) -> For | None:
    """The outermost parallel loop, or None for a serial kernel."""
    for stmt in kernel.body:
        if isinstance(stmt, For) and stmt.kind == "parallel":
            return stmt
    return None


def nested_parallel(loop: For) -> For | None:
    """The parallel loop directly inside a parallel loop."""
    return next((s for s in loop.body if isinstance(s, For) and s.kind == "parallel"), None)


def group_loops(kernel: LoopKernel) -> tuple[For, ...]:
    """The parallel loops inside a workgroup, outer to inner; none where an iteration is one stream."""
    out: list[For] = []
    loop = parallel_loop(kernel)
    while loop is not None:
        loop = nested_parallel(loop)
        if loop is not None:
            out.append(loop)
    return tuple(out)


def value_children(value: Value) -> tuple[Value, ...]:
    """The operands of a value, `where` included."""
    match value:
        case Unary(x=x) | Cast(x=x):
            return (x,)
        case Binary(x=x, y=y):
            return (x, y)
        case Ternary(x=x, y=y, z=z):
            return (x, y, z)
        case Select(cond=cond, x=x, y=y):
            return (cond, x, y)
        case Load(where=where) if where is not None:
            return (where,)
        case Reduce(value=inner):
            return (inner,)
    return ()
