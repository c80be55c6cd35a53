"""Operands that a matrix intrinsic reads from the scratchpad: where their elements lie there, read off the layouts.

A layout says where one use finds its operand.  Where an immediate is part of it, its values lay several uses along k
side by side, and one piece of the scratchpad serves them all; otherwise a piece serves one use.  A staged block is a
grid of such pieces.

Design choice: the layout's own text becomes the address of each lane's chunk, and a table of all places says which
other chunks are a displacement away; so any layout does that keeps chunks whole and fills its pieces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.loop_ir import Binary, Buffer, Const, FromIndex, Index, Value
from hwsdk.codegen.lower.simt.fragments import Fragment, MatrixUse, TargetKey, fragment
from hwsdk.codegen.lower.simt.panel import Panel
from hwsdk.codegen.planner.roles import Roles, contraction_roles
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import evaluate, floordiv, mod
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.intrinsics.layouts import Layout
from hwsdk.intrinsics.syntax import Binary as BinaryExpr
from hwsdk.intrinsics.syntax import Expr, Name, Number
from hwsdk.target_desc.model import Intrinsic, Target

MEMBER = "member"  # the lane's number among those that execute one use
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "^": "xor", "//": "floordiv", "%": "mod"}


@dataclass(frozen=True, kw_only=True)
class Resident(Fragment):
    """row, deep: names of the coordinates along rows and k; rows, k: their extents in one use; step: the immediate that
    chooses among `steps` uses (empty: one); align_bytes: of a piece."""

    row: str
    deep: str
    rows: int
    k: int
    step: str
    steps: int
    align_bytes: int
    layout: Layout = field(compare=False, repr=False)

    @property
    def depth(self) -> int:
        """Elements along k of a piece."""
        return self.k * self.steps

    @property
    def piece(self) -> int:
        """Elements of a piece."""
        return self.rows * self.depth

    @property
    def along_k(self) -> bool:
        """Are neighbours along k neighbours here?"""
        return self.k > 1 and int(self.places[0, 1] - self.places[0, 0]) == 1

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where (row, place along k) lies in a piece."""
        sizes = {self.row: self.rows, self.deep: self.k}
        parts = []
        for number in range(self.steps):
            _, item = self.layout.places(sizes, {self.step: number} if self.step else {})
            parts.append(item if self.coords[0] == self.row else item.T)
        return np.concatenate(parts, axis=1)

    def keeps(self, wide: int, along_k: bool) -> bool:
        """Are all pieces full, and `wide` neighbours along k (or along rows) one chunk?"""
        table = self.places if along_k else self.places.T
        length = table.shape[1]
        if not np.array_equal(np.sort(table, axis=None), np.arange(self.piece)) or length % wide:
            return False
        chunks = table.reshape(len(table), length // wide, wide)
        first = chunks[..., :1]
        return bool((chunks == first + np.arange(wide)).all() and (first % wide == 0).all())

    def place(self, row: Index, depth: Index) -> Value:
        """The same as a value, from the text of the layout."""
        known: dict[str, Index] = {self.row: row, self.deep: mod(depth, self.k)}
        if self.step:
            known[self.step] = floordiv(depth, self.k)

        def visit(e: Expr) -> Index | Value:
            match e:
                case Number(value=value):
                    return int(value)
                case Name(name=name):
                    return known[name]
                case BinaryExpr(op=op, x=x, y=y):
                    return _combined(op, visit(x), visit(y))
            raise ValueError(f"{e} is no part of a layout")

        return _value(visit(self.layout.item_expr))


def _combined(op: str, x: Index | Value, y: Index | Value) -> Index | Value:
    if not (isinstance(x, Value) or isinstance(y, Value) or op == "^"):
        plain = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y}
        return {**plain, "//": lambda: floordiv(x, y), "%": lambda: mod(x, y)}[op]()
    return Binary("i64", _OPERATIONS[op], _value(x), _value(y))


def _value(x: Index | Value) -> Value:
    return x if isinstance(x, Value) else FromIndex("i64", x)


@dataclass(frozen=True)
class ResidentUse(MatrixUse):
    """left, right: A and B.  together: lockstep groups that execute one use.  commit, wait: of its unit; handed: fences
    for registers; published: fences for what lanes wrote to the scratchpad."""

    left: Resident
    right: Resident
    together: int
    commit: str
    wait: str
    handed: tuple[str, ...]
    published: tuple[str, ...]

    @property
    def members(self) -> int:
        return self.together


def resident_uses(target: Target) -> tuple[ResidentUse, ...]:
    """All matrix intrinsics of lockstep groups that read A and B from the scratchpad, beside the instruction stream."""
    return _resident_uses(TargetKey(target))


@lru_cache(maxsize=16)
def _resident_uses(key: TargetKey) -> tuple[ResidentUse, ...]:
    made = (_use(key.target, x) for x in key.target.intrinsics.values())
    return tuple(u for u in made if u is not None)


def _use(target: Target, x: Intrinsic) -> ResidentUse | None:
    roles, width = contraction_roles(target, x), target.levels[-1].count or 1
    c = compiled(target)[x.name]
    if (
        roles is None
        or roles.broadcast_a
        or c.lanes % width
        or c.lanes == 1
        or not target.levels[-1].lockstep
    ):
        return None
    kinds = {m.name: m.kind for m in target.memories}
    where = [kinds.get(x.operands[o].place) for o in (roles.a, roles.b, roles.acc)]
    unit = target.unit(x.unit)
    if where != ["scratchpad", "scratchpad", "registers"] or not (unit.commit and unit.wait):
        return None
    acc = fragment(target, x.name, roles.acc)
    a, b = _resident(c, roles, roles.a, roles.m), _resident(c, roles, roles.b, roles.n)
    rest = set(x.operands) - {roles.a, roles.b, roles.acc}
    if acc is None or a is None or b is None or rest - {a.step, b.step}:
        return None
    if a.step and b.step and (a.step, a.steps) != (b.step, b.steps):
        return None
    fences = [s for s in target.syncs.values() if s.kind == "fence" and s.unit == unit.name]
    handed, published = (
        tuple(s.name for s in fences if kind in {kinds.get(p) for p in s.orders})
        for kind in ("registers", "scratchpad")
    )
    own = Fragment(acc.operand, acc.dtype, acc.coords, acc.base, acc.fields, MEMBER)
    return ResidentUse(
        x, roles, a, b, own, roles.acc, a, b, c.lanes // width, unit.commit, unit.wait, handed, published
    )


def _resident(c: CompiledIntrinsic, roles: Roles, name: str, rows: int) -> Resident | None:
    """An operand, if it has two coordinates and at most one immediate that counts from 0."""
    coords, layout, operand = c.coords(name), c.layout(name), c.operands[name]
    acc = c.coords(roles.acc)
    along = [x for x in coords if x in acc]
    steps = [s for s in layout.scalars if re.search(rf"\b{s}\b", c.layout_text(name))]
    if len(coords) != 2 or len(along) != 1 or layout.has_lane or layout.replicas or len(steps) > 1:
        return None
    values = c.operands[steps[0]].values if steps else (0,)
    if values != tuple(range(len(values))) or (steps and c.operands[steps[0]].place != "immediate"):
        return None
    deep = next(x for x in coords if x != along[0])
    return Resident(
        name, operand.dtype, coords, (), (), row=along[0], deep=deep, rows=rows, k=roles.k,
        step=steps[0] if steps else "", steps=len(values), align_bytes=operand.align_bytes or 1, layout=layout,
    )  # fmt: skip


@dataclass(frozen=True)
class ResidentPanel(Panel):
    """A panel whose blocks lie as an intrinsic reads them."""

    tables: list[tuple[NDArray[np.int64], Index]] = field(
        default_factory=list
    )  # chunks by lane, and their names

    @property
    def resident(self) -> Resident:
        assert isinstance(self.part, Resident)
        return self.part

    @property
    def block(self) -> int:
        return self.lines * self.length

    def buffer(self) -> Buffer:
        assert self.chip.scratch is not None
        align = max(128, self.resident.align_bytes)
        shape = (self.slots * self.block,)
        return Buffer(f"s{self.name}", self.part.stored, shape, self.chip.scratch.name, align_bytes=align)

    @property
    def fits(self) -> bool:
        """Are blocks whole pieces, and chunks whole in them?"""
        own = self.resident
        whole = self.count % own.rows == 0 and self.depth % own.depth == 0
        aligned = own.piece * DTYPES[own.stored].size_bytes % own.align_bytes == 0
        return whole and aligned and own.keeps(self.wide, self.along_k)

    @cached_property
    def across(self) -> int:
        """Lanes side by side in a line: a row of the banks, so that lanes that are served together meet none twice."""
        assert self.chip.scratch is not None
        row = (self.chip.scratch.banks or 0) * (self.chip.scratch.bank_bytes or 0) // self.chip.access_bytes
        across = min(self.length // self.wide, max(super().across, row))
        while across < self.length // self.wide and self.lanes // across > self.lines:
            across *= 2
        return across

    def at(self, row: Index, depth: int) -> Index:
        """Where the piece begins that holds `row`, a multiple of a piece's rows, and `depth`."""
        own = self.resident
        return row * self.depth + depth // own.depth * own.piece

    def _place(self, line: Index, moved: int, inner: Index, run: int) -> Index:
        own, whole = self.resident, line + moved
        row, depth = (whole, inner) if self.along_k else (inner, whole)
        lanes = {"t": np.arange(self.lanes)}
        rows, depths = (np.broadcast_to(evaluate(x, lanes), self.lanes) for x in (row, depth))
        pieces = (rows // own.rows * (self.depth // own.depth) + depths // own.depth) * own.piece
        table = (pieces + own.places[rows % own.rows, depths % own.depth]) // self.wide
        for known, name in self.tables:
            apart = np.unique(table - known)
            if len(apart) == 1:
                return (name + int(apart[0])) * self.wide
        start = (floordiv(row, own.rows) * (self.depth // own.depth) + floordiv(depth, own.depth)) * own.piece
        value = Binary(
            "i64", "add", FromIndex("i64", start), own.place(mod(row, own.rows), mod(depth, own.depth))
        )
        name = self._bound("x", Binary("i64", "floordiv", value, Const("i64", self.wide)))
        self.tables.append((table, name))
        return name * self.wide
