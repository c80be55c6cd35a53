"""Reading and writing registers: closures that are made once per operand.

Design choice: a register holds an array of one element per lane of the batch, or of one element that stands for all
lanes.  Its dtype is that of the value last written; a reader asks for the bits as its own dtype of the same width.
Every full-size array belongs to exactly one register, so that writing for some lanes may happen in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.sim.simt.program import Array, Lanes, Read, Run, Write

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

BOOL = np.dtype(np.bool_)
_NONE = np.zeros(0, np.intp)


def register(index: int, dtype: np.dtype[Any]) -> Read:
    """Reads a register as `dtype`, which must be as wide as the register."""

    def read(frame: Frame, lanes: Lanes) -> Array:
        value = frame.registers[index]
        if lanes is not None and value.shape[0] != 1:
            value = value[lanes]
        return value if value.dtype is dtype else value.view(dtype)

    return read


def constant(value: Any, dtype: np.dtype[Any]) -> Read:
    """The same value for all lanes."""
    array = np.array([value], dtype)
    array.flags.writeable = False
    return lambda frame, lanes: array


def special(name: str) -> Read:
    """An index or size that the launch gives: one per lane or one for all."""

    def read(frame: Frame, lanes: Lanes) -> Array:
        value = frame.special[name]
        return value if lanes is None or value.shape[0] == 1 else value[lanes]

    return read


def converted(read: Read, convert: Callable[[Array], Array]) -> Read:
    return lambda frame, lanes: convert(read(frame, lanes))


def into(index: int) -> Write:
    """Writes a register.  For all lanes the array is kept, not copied: it must be fresh."""

    def write(frame: Frame, lanes: Lanes, value: Array) -> None:
        if lanes is None:
            frame.registers[index] = value
            return
        old = frame.registers[index]
        if old.shape[0] != frame.lanes:
            old = np.full(frame.lanes, old[0], old.dtype)
        if old.dtype is not value.dtype:
            old = old.view(value.dtype)
        old[lanes] = value
        frame.registers[index] = old

    return write


def choose(frame: Frame, lanes: Lanes, predicate: Array, negated: bool) -> Lanes:
    """The lanes among the active ones for which the predicate holds."""
    if predicate.shape[0] == 1:
        return lanes if bool(predicate[0]) != negated else _NONE
    wanted = ~predicate if negated else predicate
    if wanted.all():
        return lanes
    return np.flatnonzero(wanted) if lanes is None else lanes[wanted]


def guarded(run: Run, predicate: Read, negated: bool) -> Run:
    """The instruction only for lanes whose predicate holds."""

    def run_guarded(frame: Frame, lanes: Lanes) -> None:
        chosen = choose(frame, lanes, predicate(frame, lanes), negated)
        if chosen is None or chosen.size:
            run(frame, chosen)

    return run_guarded


def spread(frame: Frame, lanes: Lanes, value: Array) -> Array:
    """One element per active lane."""
    count = frame.lanes if lanes is None else lanes.size
    return value if value.shape[0] == count else np.broadcast_to(value, (count,))


def numbers(frame: Frame, lanes: Lanes) -> Array:
    """The active lanes' positions in the batch."""
    return frame.all_lanes if lanes is None else lanes


def unary(write: Write, function: Callable[[Array], Array], a: Read) -> Run:
    return lambda frame, lanes: write(frame, lanes, function(a(frame, lanes)))


def binary(write: Write, function: Callable[[Array, Array], Array], a: Read, b: Read) -> Run:
    return lambda frame, lanes: write(frame, lanes, function(a(frame, lanes), b(frame, lanes)))


def ternary(write: Write, function: Callable[[Array, Array, Array], Array], a: Read, b: Read, c: Read) -> Run:
    return lambda frame, lanes: write(
        frame, lanes, function(a(frame, lanes), b(frame, lanes), c(frame, lanes))
    )
