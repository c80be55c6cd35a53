"""The rules of LoopIR, checked: a kernel that passes can be run, printed and emitted.

    names    every name is bound where it is used; a later binding hides an earlier one of the same name until its
             body ends, but nothing hides a param or a dim
    types    dtypes of operands agree, conditions are bool, ranks of buffers and indices agree
    shape    vector and unroll extents are constants; `parallel` is outermost, beside Lets and Allocs alone, or stands
             in another parallel loop (`loop_verify_lanes` has the rules for those)
    lanes    in a vector loop control flow is the same for all lanes, and no intrinsic or sync stands there
    places   registers have constant shapes and are indexed by constants, unrolled variables and lanes
    target   places, levels, syncs and intrinsics exist; an intrinsic gets every operand and run-time extent,
             each of its dtype and place

Design choice: one walk with a scope; the first broken rule is one CodegenError naming kernel and statement.  Here are
the rules of statements; `loop_verify_value` has those of values, `loop_verify_scope` those of names.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    If,
    Index,
    Intrin,
    Let,
    LoopKernel,
    Outline,
    Stmt,
    Store,
    Switch,
    Sync,
    Value,
    View,
)
from hwsdk.codegen.loop_print import (
    print_kernel,
    print_statement,
)
from hwsdk.codegen.loop_verify_lanes import lane_problems
from hwsdk.codegen.loop_verify_scope import Name, Scope
from hwsdk.codegen.loop_verify_use import use_problems
from hwsdk.codegen.loop_verify_value import ValueRules
from hwsdk.errors import nearest
from hwsdk.target_desc.model import Target

KINDS = ("serial", "unroll", "vector", "parallel")
_MAX_DEPTH = 60


def verify_kernel(kernel: LoopKernel, target: Target | None = None) -> None:
    """CodegenError if the kernel breaks a rule of LoopIR; with a target, also if that lacks something."""
    _Verifier(kernel, target).run()


class _Verifier:
    def __init__(self, kernel: LoopKernel, target: Target | None) -> None:
        self.scope = Scope(kernel, target)
        self.values = ValueRules(self.scope)
        self.outlines: dict[str, Outline] = {}
        self.count = 0
        self.depth = 0
        self.in_vector = False

    # ------------------------------------------------------------------------------------------------- kernel
    def run(self) -> None:
        kernel = self.scope.kernel
        for name in kernel.dims:
            self.scope.bind(name, Name("dim"))
            self.scope.fixed.add(name)
        for buffer in kernel.params:
            self.scope.declare(buffer)
            self.scope.fixed.add(buffer.name)
            kind = self.scope.memory_kind(buffer)
            self.scope.need(
                kind not in ("registers", "scratchpad", "accumulator"),
                f"param {buffer.name} is in {buffer.place}",
            )
        names = [p.name for p in kernel.params]
        for output in kernel.outputs:
            if output not in names:
                self.scope.fail(f"output {output!r} is not a param{nearest(output, names)}")
        self.scope.need(
            names[len(names) - len(kernel.outputs) :] == list(kernel.outputs),
            "outputs are the last params, in order",
        )
        loops = [s for s in kernel.body if isinstance(s, For) and s.kind == "parallel"]
        self.scope.need(len(loops) <= 1, "more than one parallel loop")
        if loops:
            extra = [s for s in kernel.body if not isinstance(s, Let | Alloc) and s is not loops[0]]
            self.scope.need(not extra, "beside a parallel loop only let and alloc may stand" + _at(extra))
            self.scope.need(kernel.body[-1] is loops[0], "the parallel loop must be the last statement")
        self.body(kernel.body, outermost=True)
        for stmt, why in lane_problems(kernel, self.scope.target):
            self.scope.where = f"statement ({_short(stmt)})"
            self.scope.fail(why)

    def body(self, body: Body, outermost: bool = False) -> None:
        """A body with a scope of its own."""
        self.depth += 1
        self.scope.need(self.depth <= _MAX_DEPTH, "statements nested too deeply")
        with self.scope.inner():
            for stmt in body:
                self.count += 1
                self.scope.where = f"statement {self.count} ({_short(stmt)})"
                self.statement(stmt, outermost)
        self.depth -= 1

    def statement(self, stmt: Stmt, outermost: bool) -> None:
        match stmt:
            case Let(name=name, value=value):
                self.values.value(value)
                self.scope.bind(name, Name("let", value.dtype, self.values.varies(value)))
            case Alloc(buffer=buffer):
                self.scope.need(not self.in_vector, "alloc inside a vector loop")
                self.scope.declare(buffer)
            case Store(buffer=name, index=index, value=value, where=where):
                buffer = self.scope.access(name, index)
                self.scope.need(
                    value.dtype == buffer.dtype, f"{name} holds {buffer.dtype}, the value is {value.dtype}"
                )
                self.scope.need(name not in self.inputs, f"store to the input {name}")
                self.values.value(value)
                self.values.condition(where)
            case For():
                self.loop(stmt, outermost)
            case If(cond=cond, then=then, orelse=orelse):
                self.values.value(cond)
                self.scope.need(cond.dtype == "bool", f"the condition is {cond.dtype}, not bool")
                self.scope.need(
                    not self.values.varies(cond), "the condition differs between lanes; use where or select"
                )
                self.body(then)
                self.body(orelse)
            case _:
                self.other(stmt)

    def other(self, stmt: Stmt) -> None:
        match stmt:
            case Switch(index=index, cases=cases):
                self.scope.uniform(index, "the index")
                self.scope.need(cases, "a switch without cases")
                for case in cases:
                    self.body(case)
            case Outline():
                self.outline(stmt)
            case Intrin():
                self.intrinsic(stmt)
            case Sync():
                self.sync(stmt)
            case _:
                self.scope.fail(f"{type(stmt).__name__} is not a statement of LoopIR")

    @property
    def inputs(self) -> set[str]:
        """Params that are not written; a kernel that names no outputs may write them all."""
        params = {p.name for p in self.scope.kernel.params}
        return params - set(self.scope.kernel.outputs) if self.scope.kernel.outputs else set()

    def outline(self, stmt: Outline) -> None:
        known = self.outlines.setdefault(stmt.name, stmt)
        self.scope.need(
            known is stmt or _text(known) == _text(stmt), f"outline {stmt.name} has two different bodies"
        )
        self.body(stmt.body)

    # -------------------------------------------------------------------------------------------------- loops
    def loop(self, loop: For, outermost: bool) -> None:
        kind = loop.kind
        if kind not in KINDS:
            self.scope.fail(f"unknown kind of loop {kind!r}{nearest(kind, KINDS)}")
        self.scope.uniform(loop.extent, "the extent")
        if kind in ("unroll", "vector"):
            self.scope.need(isinstance(loop.extent, int), f"the extent of a {kind} loop must be a constant")
        self.scope.need(not isinstance(loop.extent, int) or loop.extent >= 0, "the extent is negative")
        self.scope.need(loop.level is None or kind == "parallel", "only a parallel loop has a level")
        self.scope.need(loop.active is None or kind == "vector", "only a vector loop has active lanes")
        if loop.active is not None:
            self.scope.uniform(loop.active, "the number of active lanes")
        if kind == "parallel":
            self.scope.need(outermost, "a parallel loop must stand directly in the kernel or in another one")
            if self.scope.target is not None and loop.level is not None:
                levels = [x.name for x in self.scope.target.levels]
                if loop.level not in levels:
                    self.scope.fail(f"no execution level {loop.level!r}{nearest(loop.level, levels)}")
        vector = self.in_vector
        self.in_vector |= kind == "vector"
        what = {"vector": "lane", "unroll": "unroll"}.get(kind, "loop")
        with self.scope.inner():
            self.scope.bind(loop.var, Name(what, varies=kind == "vector"))
            self.body(loop.body, outermost=kind == "parallel")
        self.in_vector = vector

    # --------------------------------------------------------------------------------- intrinsics and syncs
    def intrinsic(self, use: Intrin) -> None:
        self.scope.need(not self.in_vector, "an intrinsic inside a vector loop")
        for _, operand in use.operands:
            self.operand(operand)
        for _, extent in use.dims:
            self.scope.index(extent)
        if self.scope.target is not None:
            for problem in use_problems(use, self.scope.target, self.scope.buffers):
                self.scope.fail(problem)

    def operand(self, operand: View | Index | Value) -> None:
        if isinstance(operand, View):
            self.scope.access(operand.buffer, operand.index)
        elif isinstance(operand, Value):
            self.values.value(operand)
        else:
            self.scope.index(operand)

    def sync(self, stmt: Sync) -> None:
        self.scope.need(not self.in_vector, "a sync inside a vector loop")
        self.scope.need(
            type(stmt.pending) is int and stmt.pending >= 0, "pending must be a number that is not negative"
        )
        if self.scope.target is not None:
            known = self.scope.target.syncs
            if stmt.name not in known:
                self.scope.fail(
                    f"target {self.scope.target.name} has no sync {stmt.name!r}{nearest(stmt.name, known)}"
                )


def _short(stmt: Stmt) -> str:
    text = print_statement(stmt)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(stmt: Outline) -> str:
    return print_kernel(LoopKernel("", (), (), stmt.body))


def _at(stmts: Sequence[Stmt]) -> str:
    return f": {_short(stmts[0])}" if stmts else ""
