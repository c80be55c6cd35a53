"""The rules of LoopIR, checked: a kernel that passes can be run, printed and emitted.

    names    every name is bound where it is used; a later binding hides an earlier one of the same name until its
             body ends, but nothing hides a param or a dim
    types    dtypes of operands agree, conditions are bool, ranks of buffers and indices agree
    shape    vector and unroll extents are constants; `parallel` is outermost, beside Lets and Allocs alone
    lanes    in a vector loop control flow is the same for all lanes, and no intrinsic or sync stands there
    places   registers have constant shapes and are indexed by constants, unrolled variables and lanes
    target   places, levels, syncs and intrinsics exist; an intrinsic gets every operand and run-time extent,
             each of its dtype and place

Design choice: one walk with a scope; the first broken rule is one CodegenError naming kernel and statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Outline,
    Reduce,
    Ref,
    Select,
    Stmt,
    Store,
    Switch,
    Sync,
    Ternary,
    Unary,
    Value,
    View,
    value_children,
)
from hwsdk.codegen.loop_print import (
    COMPARISONS,
    REDUCTIONS,
    implied_dtype,
    print_kernel,
    print_statement,
    print_value,
)
from hwsdk.codegen.loop_verify_use import use_problems
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError, nearest
from hwsdk.graph.dims import Expr, free_symbols
from hwsdk.graph.scalar import SCALAR
from hwsdk.target_desc.model import Target

KINDS = ("serial", "unroll", "vector", "parallel")
_MAX_DEPTH = 60


def verify_kernel(kernel: LoopKernel, target: Target | None = None) -> None:
    """CodegenError if the kernel breaks a rule of LoopIR; with a target, also if that lacks something."""
    _Verifier(kernel, target).run()


@dataclass(frozen=True)
class _Name:
    """kind: dim, loop, unroll, lane, reduce or let.  dtype: of a Let.  varies: differs between the lanes."""

    kind: str
    dtype: str = "i64"
    varies: bool = False


class _Verifier:
    def __init__(self, kernel: LoopKernel, target: Target | None) -> None:
        self.kernel, self.target = kernel, target
        self.names: dict[str, _Name] = {}
        self.buffers: dict[str, Buffer] = {}
        self.fixed: set[str] = set()  # params and dims
        self.outlines: dict[str, Outline] = {}
        self.count = 0
        self.where = "its head"
        self.depth = 0
        self.in_vector = False
        self.memories = {} if target is None else {m.name: m for m in target.memories}

    def fail(self, why: str) -> NoReturn:
        raise CodegenError(f"kernel {self.kernel.name}: {self.where}: {why}")

    def need(self, ok: object, why: str) -> None:
        if not ok:
            self.fail(why)

    # ------------------------------------------------------------------------------------------------- kernel
    def run(self) -> None:
        kernel = self.kernel
        for name in kernel.dims:
            self.bind(name, _Name("dim"))
            self.fixed.add(name)
        for buffer in kernel.params:
            self.declare(buffer)
            self.fixed.add(buffer.name)
            kind = self.memory_kind(buffer)
            self.need(
                kind not in ("registers", "scratchpad", "accumulator"),
                f"param {buffer.name} is in {buffer.place}",
            )
        names = [p.name for p in kernel.params]
        for output in kernel.outputs:
            if output not in names:
                self.fail(f"output {output!r} is not a param{nearest(output, names)}")
        self.need(
            names[len(names) - len(kernel.outputs) :] == list(kernel.outputs),
            "outputs are the last params, in order",
        )
        loops = [s for s in kernel.body if isinstance(s, For) and s.kind == "parallel"]
        self.need(len(loops) <= 1, "more than one parallel loop")
        if loops:
            extra = [s for s in kernel.body if not isinstance(s, Let | Alloc) and s is not loops[0]]
            self.need(not extra, "beside a parallel loop only let and alloc may stand" + _at(extra))
            self.need(kernel.body[-1] is loops[0], "the parallel loop must be the last statement")
        self.body(kernel.body, outermost=True)

    def body(self, body: Body, outermost: bool = False) -> None:
        """A body with a scope of its own."""
        names, buffers = dict(self.names), dict(self.buffers)
        self.depth += 1
        self.need(self.depth <= _MAX_DEPTH, "statements nested too deeply")
        for stmt in body:
            self.count += 1
            self.where = f"statement {self.count} ({_short(stmt)})"
            self.statement(stmt, outermost)
        self.depth -= 1
        self.names, self.buffers = names, buffers

    def statement(self, stmt: Stmt, outermost: bool) -> None:
        match stmt:
            case Let(name=name, value=value):
                self.value(value)
                self.bind(name, _Name("let", value.dtype, self.varies(value)))
            case Alloc(buffer=buffer):
                self.need(not self.in_vector, "alloc inside a vector loop")
                self.declare(buffer)
            case Store(buffer=name, index=index, value=value, where=where):
                buffer = self.access(name, index)
                self.need(
                    value.dtype == buffer.dtype, f"{name} holds {buffer.dtype}, the value is {value.dtype}"
                )
                self.need(name not in self.inputs, f"store to the input {name}")
                self.value(value)
                self.condition(where)
            case For():
                self.loop(stmt, outermost)
            case If(cond=cond, then=then, orelse=orelse):
                self.value(cond)
                self.need(cond.dtype == "bool", f"the condition is {cond.dtype}, not bool")
                self.need(not self.varies(cond), "the condition differs between lanes; use where or select")
                self.body(then)
                self.body(orelse)
            case _:
                self.other(stmt)

    def other(self, stmt: Stmt) -> None:
        match stmt:
            case Switch(index=index, cases=cases):
                self.uniform(index, "the index")
                self.need(cases, "a switch without cases")
                for case in cases:
                    self.body(case)
            case Outline():
                self.outline(stmt)
            case Intrin():
                self.intrinsic(stmt)
            case Sync():
                self.sync(stmt)
            case _:
                self.fail(f"{type(stmt).__name__} is not a statement of LoopIR")

    @property
    def inputs(self) -> set[str]:
        """Params that are not written; a kernel that names no outputs may write them all."""
        params = {p.name for p in self.kernel.params}
        return params - set(self.kernel.outputs) if self.kernel.outputs else set()

    def outline(self, stmt: Outline) -> None:
        known = self.outlines.setdefault(stmt.name, stmt)
        self.need(
            known is stmt or _text(known) == _text(stmt), f"outline {stmt.name} has two different bodies"
        )
        self.body(stmt.body)

    # -------------------------------------------------------------------------------------------------- loops
    def loop(self, loop: For, outermost: bool) -> None:
        kind = loop.kind
        if kind not in KINDS:
            self.fail(f"unknown kind of loop {kind!r}{nearest(kind, KINDS)}")
        self.uniform(loop.extent, "the extent")
        if kind in ("unroll", "vector"):
            self.need(isinstance(loop.extent, int), f"the extent of a {kind} loop must be a constant")
        self.need(not isinstance(loop.extent, int) or loop.extent >= 0, "the extent is negative")
        self.need(loop.level is None or kind == "parallel", "only a parallel loop has a level")
        self.need(loop.active is None or kind == "vector", "only a vector loop has active lanes")
        if loop.active is not None:
            self.uniform(loop.active, "the number of active lanes")
        if kind == "parallel":
            self.need(outermost, "a parallel loop must stand directly in the kernel")
            if self.target is not None and loop.level is not None:
                levels = [x.name for x in self.target.levels]
                if loop.level not in levels:
                    self.fail(f"no execution level {loop.level!r}{nearest(loop.level, levels)}")
        names, vector = dict(self.names), self.in_vector
        self.in_vector |= kind == "vector"
        what = {"vector": "lane", "unroll": "unroll"}.get(kind, "loop")
        self.bind(loop.var, _Name(what, varies=kind == "vector"))
        self.body(loop.body)
        self.names, self.in_vector = names, vector

    # -------------------------------------------------------------------------------------- names and indices
    def bind(self, name: str, binding: _Name) -> None:
        self.unhidden(name)
        self.names[name] = binding
        self.buffers.pop(name, None)

    def unhidden(self, name: str) -> None:
        self.need(name not in self.fixed, f"the name {name!r} hides a param or dim")

    @contextmanager
    def bound(self, name: str, binding: _Name) -> Iterator[None]:
        names, buffers = dict(self.names), dict(self.buffers)
        self.bind(name, binding)
        yield
        self.names, self.buffers = names, buffers

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
        if self.target is not None and buffer.place not in self.memories:
            self.fail(f"{name}: no memory {buffer.place!r}{nearest(buffer.place, self.memories)}")
        if self.memory_kind(buffer) == "registers":
            constant = all(isinstance(x, int) for x in (*buffer.shape, *(buffer.strides or ())))
            self.need(constant, f"{name} is in registers: its shape must be constant")
        self.buffers[name] = buffer
        self.names.pop(name, None)

    def memory_kind(self, buffer: Buffer) -> str:
        return self.memories[buffer.place].kind if buffer.place in self.memories else ""

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

    # ------------------------------------------------------------------------------------------------- values
    def condition(self, where: Value | None) -> None:
        if where is not None:
            self.value(where)
            self.need(where.dtype == "bool", f"the condition of an access is {where.dtype}, not bool")

    def value(self, root: Value) -> None:
        """Checks a value, operands first; a node that occurs twice under the same binders is checked once."""
        self.nodes(root, set())

    def nodes(self, root: Value, seen: set[int]) -> None:
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if ready:
                self.node(value)
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            if value.dtype not in DTYPES:
                self.fail(
                    f"unknown dtype {value.dtype!r} in {type(value).__name__}{nearest(value.dtype, DTYPES)}"
                )
            stack.append((value, True))
            if isinstance(value, Reduce):
                self.reduction(value)
            else:
                stack.extend((c, False) for c in value_children(value))

    def reduction(self, value: Reduce) -> None:
        if value.op not in REDUCTIONS:
            self.fail(f"unknown reduction {value.op!r}{nearest(value.op, REDUCTIONS)}")
        self.need(
            type(value.extent) is int and value.extent >= 0, "the extent of a reduction must be a constant"
        )
        with self.bound(value.var, _Name("reduce")):
            self.nodes(value.value, set())

    def node(self, value: Value) -> None:
        match value:
            case Const() | Load() | Ref() | FromIndex():
                self.leaf(value)
                return
            case Unary() | Binary() | Ternary():
                self.operation(value)
            case Select(cond=cond, x=x, y=y):
                self.need(cond.dtype == "bool", f"select: the condition is {cond.dtype}, not bool")
                self.need(x.dtype == y.dtype, f"select: {x.dtype} and {y.dtype}")
            case Cast(dtype=dtype, x=x, mode=mode):
                self.need(mode in ("value", "bits"), f"unknown mode of a cast {mode!r}")
                same = mode == "value" or DTYPES[dtype].bits == DTYPES[x.dtype].bits
                self.need(same, f"{x.dtype} and {dtype} differ in bits")
        implied = implied_dtype(value)
        if implied is not None and implied != value.dtype:
            self.fail(f"{print_value(value)} is {implied}, not {value.dtype}")

    def leaf(self, value: Value) -> None:
        match value:
            case Const(dtype=dtype, value=x):
                self.constant(dtype, x)
            case Load(dtype=dtype, buffer=name, index=index, where=where):
                buffer = self.access(name, index)
                self.need(dtype == buffer.dtype, f"{name} holds {buffer.dtype}, the load is {dtype}")
                self.need(where is None or where.dtype == "bool", "the condition of a load is not bool")
            case Ref(dtype=dtype, name=name):
                binding = self.names.get(name)
                if binding is None or binding.kind != "let":
                    lets = [n for n, b in self.names.items() if b.kind == "let"]
                    self.fail(f"no let {name!r} here{nearest(name, lets)}")
                self.need(dtype == binding.dtype, f"{name} is {binding.dtype}, not {dtype}")
            case FromIndex(dtype=dtype, index=index):
                self.index(index)
                self.need(DTYPES[dtype].kind in "iuf", f"an index cannot be {dtype}")

    def operation(self, value: Unary | Binary | Ternary) -> None:
        op, operands = value.op, value_children(value)
        if op not in SCALAR or SCALAR[op].arity != len(operands):
            known = [n for n, s in SCALAR.items() if s.arity == len(operands)]
            self.fail(f"no operation {op!r} with {len(operands)} operands{nearest(op, known)}")
        dtypes = {x.dtype for x in operands}
        self.need(len(dtypes) == 1, f"{op}: the operands are {' and '.join(x.dtype for x in operands)}")
        if op in COMPARISONS:
            self.need(value.dtype == "bool", f"{op} gives bool, not {value.dtype}")

    def constant(self, dtype: str, x: float | bool) -> None:
        kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
        fits = x in (0, 1) and isinstance(x, int) if kind == "b" else not isinstance(x, bool)
        self.need(fits, f"{x!r} is not a constant of dtype {dtype}")
        if kind in "iu":
            self.need(type(x) is int, f"{x!r} is not a constant of dtype {dtype}")
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)
            self.need(low <= x <= high, f"{x} does not fit {dtype}")

    def varies(self, root: Value) -> bool:
        """Can the value differ between lanes?"""
        stack, seen = [root], set()
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            names: set[str] = {value.name} if isinstance(value, Ref) else set()
            for i in (
                value.index
                if isinstance(value, Load)
                else (value.index,)
                if isinstance(value, FromIndex)
                else ()
            ):
                names |= free_symbols(i)
            if any(self.names[n].varies for n in names if n in self.names):
                return True
            stack.extend(value_children(value))
        return False

    # --------------------------------------------------------------------------------- intrinsics and syncs
    def intrinsic(self, use: Intrin) -> None:
        self.need(not self.in_vector, "an intrinsic inside a vector loop")
        for _, operand in use.operands:
            self.operand(operand)
        for _, extent in use.dims:
            self.index(extent)
        if self.target is not None:
            for problem in use_problems(use, self.target, self.buffers):
                self.fail(problem)

    def operand(self, operand: View | Index | Value) -> None:
        if isinstance(operand, View):
            self.access(operand.buffer, operand.index)
        elif isinstance(operand, Value):
            self.value(operand)
        else:
            self.index(operand)

    def sync(self, stmt: Sync) -> None:
        self.need(not self.in_vector, "a sync inside a vector loop")
        self.need(
            type(stmt.pending) is int and stmt.pending >= 0, "pending must be a number that is not negative"
        )
        if self.target is not None:
            known = self.target.syncs
            if stmt.name not in known:
                self.fail(f"target {self.target.name} has no sync {stmt.name!r}{nearest(stmt.name, known)}")


def value_indices(value: Value) -> Sequence[Index]:
    """The index expressions that stand in a value itself."""
    return value.index if isinstance(value, Load) else (value.index,) if isinstance(value, FromIndex) else ()


def _short(stmt: Stmt) -> str:
    text = print_statement(stmt)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(stmt: Outline) -> str:
    return print_kernel(LoopKernel("", (), (), stmt.body))


def _at(stmts: Sequence[Stmt]) -> str:
    return f": {_short(stmts[0])}" if stmts else ""
