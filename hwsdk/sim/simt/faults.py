"""What the engine refuses, by name: each fault says what happened and where: kernel, line, block, lane.

Design choice: code that works on arrays raises a Fault that knows the lane's place in the batch; the scheduler, which
knows the instruction, turns it into the KernelFault that users see.
"""

from __future__ import annotations

from enum import Enum

from hwsdk.errors import SimulationError


class FaultKind(Enum):
    """The named faults."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned access"
    READ_ONLY = "write to read-only memory"
    USE_AFTER_FREE = "use after free"
    UNINITIALISED = "uninitialised read"
    RACE = "race"
    IN_FLIGHT = "asynchronous work in flight"
    UNFENCED = "missing fence"
    DIVERGENT_BARRIER = "divergent barrier"
    DIVERGED_WARP = "diverged warp"
    INACTIVE_LANE = "inactive lane"
    OPERAND = "operand of a warp's operation"
    DIVISION = "integer division by zero"
    BRANCH = "branch outside its table"
    TRAP = "trap"
    NO_PROGRESS = "no progress"
    LAUNCH = "refused launch"


class Fault(Exception):
    """lane: position in the batch of one lane that is at fault, or None."""

    def __init__(self, kind: FaultKind, message: str, lane: int | None = None) -> None:
        self.kind, self.message, self.lane = kind, message, lane
        super().__init__(message)


class KernelFault(SimulationError):
    """A kernel did what it must not.  block and thread are three-dimensional indices, or None before the start."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        kernel: str,
        line: int = 0,
        text: str = "",
        block: tuple[int, ...] | None = None,
        thread: tuple[int, ...] | None = None,
    ) -> None:
        self.kind, self.message, self.kernel = kind, message, kernel
        self.line, self.text, self.block, self.thread = line, text, block, thread
        where = f"kernel {kernel}"
        if line:
            where += f", line {line}: {text}"
        if block is not None:
            where += f", block {_triple(block)}"
        if thread is not None:
            where += f", lane {_triple(thread)}"
        super().__init__(f"{kind.value}: {message} ({where})")


def _triple(index: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, index)) + ")"
