"""Iterations whose loads are on their way together: what unrolling a loop does to the registers of a lane.

Design choice: the size of an iteration is counted in instructions of about the same weight, and the loop is unrolled
as common code generators do it, wholly up to FULL and in part up to PART instructions; how many of those iterations
then wait for memory at once is for the chip to say (`codegen.ahead_bytes`, `codegen.predication`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwsdk.codegen.llvm_scan import in_registers, statement_values, value_nodes
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Const,
    For,
    FromIndex,
    If,
    Intrin,
    Let,
    Load,
    Ref,
    Stmt,
    Store,
    Sync,
    Value,
    substatements,
    walk,
)
from hwsdk.dtypes import DTYPES
from hwsdk.target_desc.model import Target

FULL = 300  # instructions
PART = 170


def words(width: int, dtype: str, count: int = 1) -> int:
    """Registers of `width` bytes for so many neighbouring elements."""
    return max(1, -(-DTYPES[dtype].bits * count // (8 * width)))


@dataclass(frozen=True)
class Ahead:
    """places: of the buffers that are known.  widths: elements per cell, by Alloc.  width: bytes of a register.
    room: registers that may wait for later iterations."""

    target: Target
    places: Mapping[str, str]
    widths: Mapping[int, int]
    width: int
    room: int

    def together(self, loop: For, iterations: int, around: int) -> int:
        """Of the iterations of a loop that are one stretch of code, those that wait together.  around: the same of the
        loops around it, with which its own multiply."""
        if iterations == 1:
            return around
        if any(isinstance(s, Sync) for s in walk(loop.body)):
            return 1
        return min(around * iterations, 1 + self.room // max(1, self._coming(loop.body, 1)))

    def unrolled(self, loop: For, around: int) -> int:
        """Iterations of a serial loop that become one stretch of code."""
        extent = loop.extent
        if not isinstance(extent, int):
            return 1
        each = max(1, self._instructions(loop.body, 1)) * around
        if each * extent <= FULL:
            return extent
        return max(1, 1 << (min(extent, PART // each) or 1).bit_length() - 1)

    def predicated(self, stmt: Stmt) -> bool:
        """Is it a branch that becomes predicates?"""
        if not isinstance(stmt, If) or stmt.orelse or not self.target.codegen.predication:
            return False
        return all(
            isinstance(s, Let | Store) or (isinstance(s, For) and s.kind == "vector") for s in walk(stmt.then)
        )

    def held(self, alloc: Alloc) -> int:
        """Registers of a buffer; none for one that must be an array in memory."""
        width = self.widths.get(id(alloc), 0)
        if not width or not in_registers(self.target, alloc.buffer.place):
            return 0
        cells = prod(int(str(d)) for d in alloc.buffer.shape) // width
        return cells * words(self.width, alloc.buffer.dtype, width)

    def in_memory(self, buffer: str) -> bool:
        return buffer in self.places and not in_registers(self.target, self.places[buffer])

    def waits(self, value: Value) -> bool:
        """Is it a load that starts early?"""
        if not isinstance(value, Load) or not self.in_memory(value.buffer):
            return False
        return value.where is None or self.target.codegen.predication

    def _coming(self, body: Body, wide: int) -> int:
        """Words of one iteration that wait for memory."""
        total = 0
        for stmt in body:
            match stmt:
                case Alloc():
                    total += self.held(stmt)
                case For(extent=extent, body=inner, kind=kind):
                    times = extent if isinstance(extent, int) else 1
                    total += (
                        self._coming(inner, wide * times)
                        if kind == "vector"
                        else times * self._coming(inner, wide)
                    )
                case If(then=then) if self.predicated(stmt):
                    total += self._coming(then, wide)
                case Store(buffer=buffer, value=Load()) if not self.in_memory(buffer):
                    pass  # where it waits is the buffer
                case _:
                    found = (v for v in value_nodes(statement_values(stmt)) if self.waits(v))
                    total += wide * sum(words(self.width, v.dtype) for v in found)
        return total

    def _instructions(self, body: Body, wide: int) -> int:
        """About how many a body is; loads and stores of neighbours are one."""
        total = 0
        for stmt in body:
            times, each = 1, wide
            if isinstance(stmt, For) and isinstance(stmt.extent, int):
                times, each = (1, wide * stmt.extent) if stmt.kind == "vector" else (stmt.extent, wide)
            total += sum(self._instructions(b, each) for b in substatements(stmt)) * times
            total += isinstance(stmt, If | Intrin)
            total += isinstance(stmt, Store) and self.in_memory(stmt.buffer)
            for value in value_nodes(statement_values(stmt)):
                if isinstance(value, Load):
                    total += self.in_memory(value.buffer)
                elif not isinstance(value, Const | Ref | FromIndex) and value.dtype != "bool":
                    total += wide if getattr(value, "op", "") != "mul" else 0  # fused with an addition
        return total
