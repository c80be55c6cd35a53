"""Calls of intrinsics: what a target passes in for its own, and those of LLVM itself.

Design choice: an intrinsic is a function that builds its call, with the operands at hand as closures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt import program as engine
from hwsdk.sim.simt.llvm_text import operations
from hwsdk.sim.simt.llvm_text.syntax import Constant, Instruction
from hwsdk.sim.simt.llvm_text.types import AddressSpaces, scalars
from hwsdk.sim.simt.program import Array, Meeting, Read, Run
from hwsdk.sim.simt.registers import Held, binary, ternary, unary

if TYPE_CHECKING:
    from hwsdk.sim.simt.llvm_text.builder import Builder


class Call:
    """A call of an intrinsic, with what is needed to build it."""

    def __init__(self, builder: Builder, instruction: Instruction, name: str) -> None:
        self.builder, self.instruction, self.name = builder, instruction, name
        self.layout = builder.layout

    def reads(self, number: int) -> list[Read]:
        """The scalars of an operand."""
        if number >= len(self.instruction.operands):
            self.builder.fail(f"operand {number + 1} is missing")
        return self.builder.operands.reads(*self.instruction.operands[number])

    def held(self, number: int) -> list[Held]:
        """What the scalars of an operand are for the whole batch."""
        return self.builder.operands.held(*self.instruction.operands[number])

    def read(self, number: int) -> Read:
        found = self.reads(number)
        if len(found) != 1:
            self.builder.fail("a scalar belongs here")
        return found[0]

    def number(self, number: int) -> int:
        """An operand that must be a constant."""
        value = self.instruction.operands[number][1]
        if not isinstance(value, Constant) or not isinstance(value.values[0], int):
            self.builder.fail(f"operand {number + 1} must be a constant")
        return value.values[0]

    @property
    def writes(self) -> list[engine.Write]:
        return self.builder.writes(self.instruction)

    def emit(self, run: Run, kind: str, meeting: Meeting | None = None) -> None:
        self.builder.emit(run, kind, meeting)

    def nothing(self) -> None:
        """It changes nothing here."""

    def value(self, read: Read, kind: str = "integer") -> None:
        """A scalar result."""
        (write,) = self.writes
        self.emit(lambda frame, lanes: write(frame, lanes, np.array(read(frame, lanes))), kind)

    def generic(self) -> None:
        """An intrinsic of LLVM itself, scalar by scalar."""
        name = self.name.split(".")[1]
        if name in ("lifetime", "assume", "dbg", "experimental"):
            return
        kinds = scalars(self.instruction.operands[0][0]) if self.instruction.operands else []
        function = operations.generic(name, kinds[0]) if kinds else None
        if function is None:
            self.builder.fail(f"intrinsic {self.name} is not supported")
        columns = [self.reads(i) for i in range(len(self.instruction.operands))]
        for j, write in enumerate(self.writes):
            parts = [c[j] if len(c) > 1 else c[0] for c in columns]
            self.emit(_joined(write, function, parts), "float" if kinds[0].kind != "int" else "integer")


def _joined(write: engine.Write, function: Callable[..., Array], parts: list[Read]) -> Run:
    if len(parts) == 1:
        return unary(write, function, parts[0])
    if len(parts) == 2:
        return binary(write, function, parts[0], parts[1])
    return ternary(write, function, parts[0], parts[1], parts[2])


#: Builds a call of one of the target's intrinsics.
Intrinsic = Callable[["Call"], None]


@dataclass(frozen=True)
class LlvmTarget:
    """intrinsics: by name or by a prefix that ends in a dot.  block: reads the block size that a kernel insists on
    from its attributes.  kernel: the calling convention of kernels; empty: every function is one."""

    layout: AddressSpaces
    intrinsics: Mapping[str, Intrinsic]
    block: Callable[[Mapping[str, str]], tuple[int, int, int] | None] = lambda attributes: None
    kernel: str = ""

    def intrinsic(self, name: str) -> Intrinsic | None:
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            found = self.intrinsics.get(".".join(parts[:count]))
            if found is not None:
                return found
        return None
