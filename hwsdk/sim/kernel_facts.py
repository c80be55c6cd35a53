"""What a whole kernel does to each of its buffers: stores, loads, uses by intrinsics, asynchronous copies.

Design choice: facts are by name and hold for the whole kernel; they only decide which checks are generated,
and a check too many does no harm.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import (
    Alloc,
    For,
    Index,
    Intrin,
    Load,
    LoopKernel,
    Stmt,
    Store,
    Switch,
    View,
    parallel_loop,
    walk,
)
from hwsdk.codegen.loop_print import statement_values
from hwsdk.codegen.loop_verify_value import value_indices
from hwsdk.codegen.rewrite import subvalues
from hwsdk.graph.dims import Expr, free_symbols
from hwsdk.target_desc.model import Target


class Facts:
    """What the whole kernel does to each buffer, by name."""

    def __init__(self, kernel: LoopKernel, target: Target | None) -> None:
        self.target = target
        self.stored: set[str] = set()
        self.loaded: set[str] = set()
        self.asynchronous: set[str] = set()
        self.used: set[str] = set()  # by intrinsics
        self.indices: set[str] = set()
        self.parallel = parallel_loop(kernel)
        for stmt in walk(kernel.body):
            self.note(stmt)

    def note(self, stmt: Stmt) -> None:
        for value in subvalues(*statement_values(stmt)):
            if isinstance(value, Load):
                self.loaded.add(value.buffer)
            for index in value_indices(value):
                self.indices |= free_symbols(index)
        for index in _statement_indices(stmt):
            self.indices |= free_symbols(index)
        if isinstance(stmt, Store):
            self.stored.add(stmt.buffer)
        if isinstance(stmt, Intrin):
            names = {o.buffer for _, o in stmt.operands if isinstance(o, View)}
            self.loaded |= names
            self.used |= names
            self.stored |= {
                o.buffer for n, o in stmt.operands if isinstance(o, View) and self.may_write(stmt.name, n)
            }
            if self.target is None or is_asynchronous(self.target, stmt.name):
                self.asynchronous |= names

    def may_write(self, intrinsic: str, operand: str) -> bool:
        spec = None if self.target is None else self.target.intrinsics.get(intrinsic)
        return spec is None or operand in written_operands(spec.semantics)

    def written(self, name: str) -> bool:
        return name in self.stored

    def shared(self, name: str) -> bool:
        return self.parallel is not None and name in self.stored

    def meets(self, sync: str) -> bool:
        """Do the iterations of the parallel loop meet at this sync?"""
        if self.target is None or self.parallel is None or sync not in self.target.syncs:
            return False
        spec = self.target.syncs[sync]
        names = [x.name for x in self.target.levels]
        if spec.kind != "barrier" or spec.scope not in names:
            return False
        level = self.parallel.level if self.parallel.level in names else names[-1]
        return names.index(spec.scope) < names.index(level)


def written_operands(semantics: str) -> set[str]:
    """The operands on the left sides of a semantics text."""
    return {part.split("[")[0].strip() for part in semantics.split(";") if "[" in part}


def is_asynchronous(target: Target, intrinsic: str) -> bool:
    """Does the intrinsic take effect only at a later wait?"""
    spec = target.intrinsics.get(intrinsic)
    unit = None if spec is None else next((u for u in target.units if u.name == spec.unit), None)
    return unit is not None and unit.completion is not None


def touched_buffers(stmt: Stmt) -> set[str]:
    """The buffers that a let or store accesses."""
    names = {v.buffer for v in subvalues(*statement_values(stmt)) if isinstance(v, Load)}
    return names | {stmt.buffer} if isinstance(stmt, Store) else names


def _statement_indices(stmt: Stmt) -> list[Index]:
    match stmt:
        case Alloc(buffer=b):
            return [*b.shape, *(b.strides or ())]
        case Store(index=index):
            return list(index)
        case For(extent=extent, active=active):
            return [extent, active if active is not None else 0]
        case Switch(index=index):
            return [index]
        case Intrin(operands=operands, dims=dims):
            views = [i for _, o in operands if isinstance(o, View) for i in o.index]
            return [*views, *(e for _, e in dims), *(o for _, o in operands if isinstance(o, int | Expr))]
    return []
