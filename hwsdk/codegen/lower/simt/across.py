"""One value from all lanes of a row: exchanges inside a lockstep group, then the scratchpad across groups.

Design choice: the exchange is an intrinsic found by its meaning (`d[l] = x[l ^ s]`, or `d[l] = x[i[l] % n]`).  What is
narrower than 32 bits travels widened; a dtype that no exchange carries goes through the scratchpad in halves.
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
        """The first that moves 32 bits among `width` lanes."""
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
        wide = carried(dtype)
        if self.exchange is None or wide is None:
            return self._halves(name, op, dtype, partial)
        if wide != dtype:
            kind = {"any": "max", "all": "min"}.get(op, op)
            statements, widened = self.reduce(name, kind, wide, Cast(wide, partial))
            return statements, Cast(dtype, widened)
        one = f"x_{name}"
        out: list[Stmt] = [
            Alloc(Buffer(one, dtype, (1,), self.chip.registers.name)),
            Store(one, (0,), partial),
            *self._exchanges(name, op, dtype),
        ]
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
        assert self.exchange is not None
        e, one, other, lanes = self.exchange, f"x_{name}", f"y_{name}", f"i_{name}"
        place = self.chip.registers.name
        out: list[Stmt] = [Alloc(Buffer(other, dtype, (1,), place))]
        if e.by_register:
            out.append(Alloc(Buffer(lanes, e.intrinsic.operands[e.where].dtype, (1,), place)))
        step = (self.team or self.chip.width) // 2
        while step:
            where: View | Index = step
            if e.by_register:
                kind = e.intrinsic.operands[e.where].dtype
                partner = Binary(kind, "xor", FromIndex(kind, sym("lane")), Const(kind, step))
                out.append(Store(lanes, (0,), partner))
                where = View(lanes, (0,))
            operands = {e.result: View(other, (0,)), e.source: View(one, (0,)), e.where: where}
            out.append(Intrin(e.intrinsic.name, tuple((n, operands[n]) for n in e.intrinsic.operands)))
            both = Binary(dtype, COMBINE[op], Load(dtype, one, (0,)), Load(dtype, other, (0,)))
            out.append(Store(one, (0,), both))
            step //= 2
        return out

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

    def carries(self, dtype: str) -> bool:
        """Can a lockstep group reduce this dtype alone?"""
        return self.exchange is not None and carried(dtype) is not None


def carried(dtype: str) -> str | None:
    """The dtype of 32 bits in which lanes exchange values; None where the values are wider."""
    d = DTYPES[dtype]
    if d.bits > 32:
        return None
    return dtype if d.bits == 32 else "f32" if d.kind == "f" else "u32" if d.kind == "u" else "i32"
