"""Reading and writing registers: closures that are made once per operand.

Design choice: a register holds an array of one element per lane of the batch, or of one element that stands for all
lanes.  Its dtype is that of the value last written; a reader asks for the bits as its own dtype of the same width.
Every full-size array belongs to exactly one register, so that writing for some lanes may happen in place; a lazy value
may be held by many, and is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hwsdk.sim.simt.program import Array, Lanes, Read, Run, Write
from hwsdk.sim.simt.sums import Lazy, Live, Root, Sum

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

#: What stands in a register for the whole batch.
Held: TypeAlias = "Callable[[Frame], Lazy | Array]"
#: The same, or None where it is neither.
Maybe: TypeAlias = "Callable[[Frame], Lazy | Array | None]"
#: Addresses: of all lanes of the batch as a Sum, or as an array of one per active lane or one for all.
Where: TypeAlias = "Callable[[Frame, Lanes], Array | Sum]"
BOOL = np.dtype(np.bool_)
_NONE = np.zeros(0, np.intp)


def register(index: int, dtype: np.dtype[Any]) -> Read:
    """Reads a register as `dtype`, which must be as wide as the register."""

    def read(frame: Frame, lanes: Lanes) -> Array:
        held = frame.registers[index]
        value = held if isinstance(held, np.ndarray) else as_array(held, lanes)
        if lanes is not None and value.shape[0] != 1:
            value = value.take(lanes)
        return value if value.dtype is dtype else value.view(dtype)

    return read


def as_array(held: Lazy, lanes: Lanes) -> Array:
    """All lanes of the batch, of which `lanes` will be looked at."""
    return held.read(lanes) if isinstance(held, Live) else held.value


def held(index: int) -> Held:
    """What a register holds for all lanes of the batch: a lazy value, or an array of one element."""

    def look(frame: Frame) -> Lazy | Array:
        value = frame.registers[index]
        if isinstance(value, Live):
            value = value.read(None).copy()
        if not isinstance(value, np.ndarray) or value.shape[0] == 1:
            return value
        value = frame.registers[index] = Sum(Root(value))
        return value

    return look


def everywhere(read: Read) -> Where:
    """Addresses that are no register's."""
    return read


def at_register(index: int, offset: int, dtype: np.dtype[Any]) -> Where:
    """A register plus a number, as unsigned addresses."""
    look, step = held(index), np.array([offset & ((1 << 8 * dtype.itemsize) - 1)], dtype)

    def where(frame: Frame, lanes: Lanes) -> Array | Sum:
        value = look(frame)
        if isinstance(value, Sum):
            return value.plus(offset) if offset else value
        plain = value if isinstance(value, np.ndarray) else value.value
        if lanes is not None and plain.shape[0] != 1:
            plain = plain.take(lanes)
        result: Array = plain.view(dtype) + step
        return result

    return where


def per_lane(where: Where) -> Read:
    """Addresses as an array."""

    def read(frame: Frame, lanes: Lanes) -> Array:
        found = where(frame, lanes)
        return found.active(lanes) if isinstance(found, Sum) else found

    return read


def moved(target: int, look: Held, plain: Run) -> Run:
    """Copies what is as wide as the register.  plain: the same for some lanes."""

    def run(frame: Frame, lanes: Lanes) -> None:
        if lanes is None:
            value = look(frame)
            frame.registers[target] = np.copy(value) if isinstance(value, np.ndarray) else value
        else:
            plain(frame, lanes)

    return run


def added(target: int, a: Maybe, b: Maybe, sign: int, plain: Run) -> Run:
    """a + b, or with sign -1 a - b, of integers as wide as their registers.  plain: the same for some lanes."""

    def run(frame: Frame, lanes: Lanes) -> None:
        if lanes is None:
            x, y = a(frame), b(frame)
            if isinstance(x, Sum) and isinstance(y, np.ndarray):
                frame.registers[target] = x.plus(sign * int(y[0]))
                return
            if isinstance(y, Sum) and isinstance(x, np.ndarray) and sign > 0:
                frame.registers[target] = y.plus(int(x[0]))
                return
        plain(frame, lanes)

    return run


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
        found = frame.registers[index]
        old: Array = found if isinstance(found, np.ndarray) else as_array(found, lanes).copy()
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
    holds = np.count_nonzero(predicate)
    if holds == (0 if negated else predicate.size):
        return lanes
    if holds == (predicate.size if negated else 0):
        return _NONE
    wanted = ~predicate if negated else predicate
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
