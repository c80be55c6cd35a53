"""What a front end hands to the engine: a program of segments, whose instructions are closures over arrays of lanes.

    Statement            a line of the kernel: Instruction, Label, Jump, Branch, Table, Exit or Barrier
    link(statements)     segments: straight runs of instructions with one ending, targets as numbers
    Program              the segments with what a launch must know: params, variables, register widths

Design choice: the engine knows no instruction set.  An instruction is a function of the frame and the active lanes
that was made once, when the program was loaded; only what moves control is data, because the scheduler needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hwsdk.sim.simt.order import ranks

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

Array: TypeAlias = npt.NDArray[Any]
#: Indices of the active lanes in the batch, ascending; None means all of them.
Lanes: TypeAlias = npt.NDArray[np.intp] | None
#: Performs an instruction for the active lanes.
Run: TypeAlias = "Callable[[Frame, Lanes], None]"
#: One value per active lane, or an array of one element that stands for all.
Read: TypeAlias = "Callable[[Frame, Lanes], Array]"
Write: TypeAlias = "Callable[[Frame, Lanes, Array], None]"


@dataclass(frozen=True)
class Place:
    """Where a statement stands in the kernel's text, for faults."""

    line: int
    text: str


@dataclass(frozen=True)
class Meeting:
    """Which lanes of the warp must arrive at an instruction before any of them may perform it.

    members: a bit per lane of the warp (lanes that have exited or do not exist are not waited for).  None: every
    lane of the warp, none of them exited.  warps: that many neighbouring warps must be complete together.
    """

    members: Read | None = None
    warps: int = 1


@dataclass(frozen=True)
class Instruction:
    """kind: the class under which it is counted."""

    run: Run
    kind: str
    place: Place
    meeting: Meeting | None = None


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Jump:
    """falls: there is no instruction, the next segment begins here."""

    target: str
    place: Place
    falls: bool = False


@dataclass(frozen=True)
class Branch:
    """To `target` where the predicate (inverted if `negated`) holds."""

    predicate: Read
    negated: bool
    target: str
    place: Place


@dataclass(frozen=True)
class Table:
    """To targets[index]; an index outside is a fault."""

    index: Read
    targets: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Exit:
    place: Place


@dataclass(frozen=True)
class Barrier:
    """Lanes of a block wait until all (or `count`) have arrived at barrier `number`.

    aligned: the lanes of a warp must arrive together.  waits: False for an arrival that goes on at once.
    """

    number: Read
    count: Read | None
    aligned: bool
    waits: bool
    place: Place


Ending: TypeAlias = Jump | Branch | Table | Exit | Barrier
Statement: TypeAlias = Instruction | Label | Ending


@dataclass(frozen=True)
class Segment:
    """A straight run.  targets: numbers of segments; for a branch (taken, not taken), else in the ending's order."""

    body: tuple[Instruction, ...]
    ending: Ending
    targets: tuple[int, ...]

    @property
    def meeting(self) -> Meeting | None:
        return self.body[0].meeting if self.body else None


@dataclass(frozen=True)
class Parameter:
    name: str
    offset_bytes: int
    size_bytes: int
    dtype: np.dtype[Any] | None = None  # of a scalar; None: bytes


@dataclass(frozen=True)
class Variable:
    """A variable of a module or a block.  content: initial bytes, None where there are none (global variables
    without an initialiser are zero, scratch variables are uninitialised)."""

    name: str
    size_bytes: int
    align_bytes: int
    content: bytes | None = None
    read_only: bool = False
    dynamic: bool = False  # sized by the launch
    references: tuple[tuple[int, str, int, bool], ...] = ()  # (offset, symbol, addend, generic address?)


@dataclass(frozen=True)
class Program:
    """One kernel.

    registers: width in bytes of each (0: a predicate).  shared: variables of the block.  local: of a lane.
    variables: of the module.
    granule_bytes: the narrowest access of the program to memory that lanes share; races are found at this grain.
    block: the block size that the kernel insists on, or None.
    """

    name: str
    segments: tuple[Segment, ...]
    registers: tuple[int, ...]
    parameters: tuple[Parameter, ...] = ()
    shared: tuple[Variable, ...] = ()
    variables: tuple[Variable, ...] = ()
    local: tuple[Variable, ...] = ()
    granule_bytes: int = 1
    block: tuple[int, int, int] | None = None
    max_block: tuple[int, int, int] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Position of each segment in the order in which groups of lanes are run."""
        return ranks([segment.targets for segment in self.segments])

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset_bytes + p.size_bytes for p in self.parameters), default=0)


def link(statements: Sequence[Statement]) -> tuple[Segment, ...]:
    """Cut at labels, meetings and endings; name targets by number.  KeyError for a label that is not there."""
    runs, labels = _cut(statements)
    segments = []
    for number, (body, ending) in enumerate(runs):
        after = number + 1
        targets: tuple[int, ...]
        if ending is None:
            targets = (after,)
            ending = Jump("", body[-1].place if body else Place(0, ""), falls=True)
        elif isinstance(ending, Jump):
            targets = (labels[ending.target],)
        elif isinstance(ending, Branch):
            targets = (labels[ending.target], after)
        elif isinstance(ending, Table):
            targets = tuple(labels[t] for t in ending.targets)
        else:
            targets = (after,)
        segments.append(Segment(tuple(body), ending, targets))
    return tuple(segments)


def _cut(
    statements: Sequence[Statement],
) -> tuple[list[tuple[list[Instruction], Ending | None]], dict[str, int]]:
    runs: list[tuple[list[Instruction], Ending | None]] = []
    labels: dict[str, int] = {}
    body: list[Instruction] = []

    def close(ending: Ending | None) -> None:
        nonlocal body
        runs.append((body, ending))
        body = []

    for statement in statements:
        if isinstance(statement, Label):
            if body:
                close(None)
            labels[statement.name] = len(runs)
        elif isinstance(statement, Instruction):
            if statement.meeting is not None and body:
                close(None)
            body.append(statement)
        else:
            close(statement)
    close(
        Exit(
            Place(
                statements[-1].place.line if statements and not isinstance(statements[-1], Label) else 0,
                "end",
            )
        )
    )
    return runs, labels
