"""One value from all lanes of a row: exchanges inside a lockstep group, then the scratchpad across groups.

Design choice: the exchange is an intrinsic found by its meaning (`d[l] = x[l ^ s]`, or `d[l] = x[i[l] % n]`).  What is
narrower than 32 bits travels widened, what is wider in words; without an exchange, values meet in the scratchpad.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    FromIndex,
    If,
    Index,
    Intrin,
    Load,
    Reduce,
    Stmt,
    Store,
    Sync,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.neutral import COMBINE
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import sym
from hwsdk.target_desc.model import Intrinsic, Target

_XOR = re.compile(r"(\w+)\[(\w+)\]=(\w+)\[\2\^(\w+)(?:%\d+)?\]")
_PICK = re.compile(r"(\w+)\[(\w+)\]=(\w+)\[(\w+)\[\2\]%(\d+)\]")


@dataclass(frozen=True)
class Exchange:
    """How lanes of a lockstep group read each other's registers.  by: lane xor a scalar, or a lane from a register."""

    intrinsic: Intrinsic
    result: str
    source: str
    where: str
    by_register: bool

    @staticmethod
    def of(target: Target, width: int) -> Exchange | None:
        """The first that moves 32 bits among `width` lanes; None where a lockstep group has none."""
        for x in target.intrinsics.values():
            text = "".join(x.semantics.split())
            xor, pick = _XOR.fullmatch(text), _PICK.fullmatch(text)
            if xor and list(x.dims.values()) == [width] and _bits(x, xor[1]) == 32:
                return Exchange(x, xor[1], xor[3], xor[4], False)
            if (
                pick
                and list(x.dims.values()) == [width]
                and int(pick[5]) == width
                and _bits(x, pick[1]) == 32
            ):
                return Exchange(x, pick[1], pick[3], pick[4], True)
        return None


def _bits(x: Intrinsic, operand: str) -> int:
    return DTYPES[x.operands[operand].dtype].bits


@dataclass(frozen=True)
class Across:
    """Reductions over the lanes that share a row: `waves` lockstep groups, or `team` neighbours inside one (0: all)."""

    chip: SimtChip
    waves: int
    exchange: Exchange | None
    team: int = 0

    def reduce(self, name: str, op: str, dtype: str, partial: Value) -> tuple[list[Stmt], Value]:
        """Statements that combine `partial` of every lane, and the value that all lanes then hold."""
        if self.exchange is None:
            return self._halves(name, op, dtype, partial)
        wide = carried(dtype)
        if wide != dtype:
            kind = {"any": "max", "all": "min"}.get(op, op)
            statements, widened = self.reduce(name, kind, wide, Cast(wide, partial))
            return statements, Cast(dtype, widened)
        one = f"x_{name}"
        kept = Buffer(one, dtype, (1,), self.chip.registers.name)
        out: list[Stmt] = [Alloc(kept), Store(one, (0,), partial), *self._exchanges(name, op, dtype)]
        total: Value = Load(dtype, one, (0,))
        if self.waves == 1:
            return out, total
        shared = self._scratch(name, dtype, self.waves)
        out += [
            Alloc(shared),
            If(compare("eq", sym("lane"), 0), (Store(shared.name, (sym("wave"),), total),)),
            self.barrier(),
        ]
        return out, Reduce(dtype, op, "w", self.waves, Load(dtype, shared.name, (sym("w"),)))

    def _exchanges(self, name: str, op: str, dtype: str) -> list[Stmt]:
        one, other = f"x_{name}", f"y_{name}"
        out = self.registers(one, other, dtype)
        step = (self.team or self.chip.width) // 2
        while step:
            out += self.swapped(one, other, dtype, step)
            both = Binary(dtype, COMBINE[op], Load(dtype, one, (0,)), Load(dtype, other, (0,)))
            out.append(Store(one, (0,), both))
            step //= 2
        return out

    def registers(self, one: str, other: str, dtype: str) -> list[Stmt]:
        """What `swapped` needs beside `one`: `other`, and registers of its own."""
        assert self.exchange is not None
        e, place = self.exchange, self.chip.registers.name
        out: list[Stmt] = [Alloc(Buffer(other, dtype, (1,), place))]
        if DTYPES[dtype].bits == 64:
            out += [Alloc(Buffer(f"{x}_words", "u32", (2,), place)) for x in (one, other)]
        if e.by_register:
            out.append(Alloc(Buffer(f"{one}_from", e.intrinsic.operands[e.where].dtype, (1,), place)))
        return out

    def swapped(self, one: str, other: str, dtype: str, step: int) -> list[Stmt]:
        """`other` becomes what `one` is in the lane whose number differs by `step` (a power of two): buffers of one
        element of 32 or 64 bits."""
        assert self.exchange is not None
        e, out = self.exchange, list[Stmt]()
        where: View | Index = step
        if e.by_register:
            kind = e.intrinsic.operands[e.where].dtype
            partner = Binary(kind, "xor", FromIndex(kind, sym("lane")), Const(kind, step))
            out.append(Store(f"{one}_from", (0,), partner))
            where = View(f"{one}_from", (0,))

        def move(to: View, source: View) -> Intrin:
            operands = {e.result: to, e.source: source, e.where: where}
            return Intrin(e.intrinsic.name, tuple((n, operands[n]) for n in e.intrinsic.operands))

        if DTYPES[dtype].bits == 32:
            return [*out, move(View(other, (0,)), View(one, (0,)))]
        bits = Cast("u64", Load(dtype, one, (0,)), "bits")
        high = Binary("u64", "shr", bits, Const("u64", 32))
        for n, word in enumerate((bits, high)):
            out.append(Store(f"{one}_words", (n,), Cast("u32", word)))
        out += [move(View(f"{other}_words", (n,)), View(f"{one}_words", (n,))) for n in range(2)]
        low, up = (Cast("u64", Load("u32", f"{other}_words", (n,))) for n in range(2))
        both = Binary("u64", "or", low, Binary("u64", "shl", up, Const("u64", 32)))
        return [*out, Store(other, (0,), both if dtype == "u64" else Cast(dtype, both, "bits"))]

    def _halves(self, name: str, op: str, dtype: str, partial: Value) -> tuple[list[Stmt], Value]:
        """All lanes' values in the scratchpad, folded in halves."""
        lanes = self.waves * self.chip.width
        shared = self._scratch(name, dtype, lanes)
        out: list[Stmt] = [Alloc(shared), Store(shared.name, (sym("t"),), partial), self.barrier()]
        half = lanes
        while half > 1:
            rest, half = half, -(-half // 2)
            mine = Load(dtype, shared.name, (sym("t"),))
            other = Load(dtype, shared.name, (sym("t") + half,))
            fold: Body = (Store(shared.name, (sym("t"),), Binary(dtype, COMBINE[op], mine, other)),)
            out += [If(compare("lt", sym("t"), rest - half), fold), self.barrier()]
        return out, Load(dtype, shared.name, (0,))

    def _scratch(self, name: str, dtype: str, count: int) -> Buffer:
        if self.chip.scratch is None:
            raise PlanError(
                f"target {self.chip.target.name}: no scratchpad per {self.chip.group.name} to reduce in"
            )
        return Buffer(f"w_{name}", dtype, (count,), self.chip.scratch.name)

    def barrier(self) -> Sync:
        """All lanes of the workgroup meet; what they wrote is then seen by all."""
        for sync in self.chip.target.syncs.values():
            if sync.kind == "barrier" and sync.scope == self.chip.group.name:
                return Sync(sync.name)
        raise PlanError(f"target {self.chip.target.name}: sync lists no barrier of {self.chip.group.name}")

    @property
    def alone(self) -> bool:
        """Can a lockstep group reduce by itself?"""
        return self.exchange is not None


def carried(dtype: str) -> str:
    """The dtype in which lanes exchange values: of 32 bits, or of 64 in two words."""
    d = DTYPES[dtype]
    return dtype if d.bits >= 32 else "f32" if d.kind == "f" else "u32" if d.kind == "u" else "i32"
