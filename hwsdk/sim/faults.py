"""What the machine refuses, at the moment it happens: the check failed, the place is found later.

Design choice: generated code carries no statement numbers.  A check raises a Fault; whoever runs the kernel
maps the line of generated code where it was raised back to the statement, and reads the loop variables from
that frame.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from hwsdk.sim.cells import PENDING, VALID, Cell, Integers


class Fault(Exception):
    """A check of the machine failed; becomes a SimulationError with kernel and statement."""


def out_of_bounds(cell: Cell, axis: int, low: int, high: int) -> NoReturn:
    """Index low..high of `axis` is not inside the buffer."""
    extent = cell.shape[axis]
    bad = low if low < 0 else high
    inside = f"0..{extent - 1}" if extent else "an empty range"
    raise Fault(f"out of bounds: index {bad} of axis {axis} of {cell.name} is outside {inside}")


def check_reach(cell: Cell, axis: int, first: int, *spans: int) -> None:
    """Is first + (0 or span) + ... inside the axis for every combination?  For spans whose sign is not
    known."""
    low = first + sum(s for s in spans if s < 0)
    high = first + sum(s for s in spans if s > 0)
    if low < 0 or high >= cell.shape[axis]:
        out_of_bounds(cell, axis, low, high)


def offsets(start: int, counts: tuple[int, ...], steps: tuple[int, ...]) -> Integers:
    """Every element of an affine region, as offsets in elements."""
    total = np.array(start, np.int64)
    for count, step in zip(counts, steps):
        total = total[..., None] + step * np.arange(count)
    return total


def check_read(cell: Cell, start: int, counts: tuple[int, ...] = (), steps: tuple[int, ...] = ()) -> None:
    """Fault unless every element is initialised and not being written by a copy."""
    check_read_at(cell, offsets(start, counts, steps))


def check_read_at(cell: Cell, where: Integers) -> None:
    """The same for elements given by their offsets."""
    bad = (cell.valid[where] & (VALID | PENDING)) != VALID
    if not bad.any():
        return
    at = int(np.asarray(where)[bad].flat[0])
    if cell.valid[at] & PENDING:
        raise Fault(f"race: {cell.element(at)} is read before the wait for the copy that writes it")
    raise Fault(f"uninitialised read of {cell.element(at)}")


def check_write(cell: Cell, start: int, counts: tuple[int, ...] = (), steps: tuple[int, ...] = ()) -> None:
    """Fault if a copy that was not waited for writes or reads one of the elements."""
    check_write_at(cell, offsets(start, counts, steps))


def check_write_at(cell: Cell, where: Integers) -> None:
    """The same for elements given by their offsets."""
    bad = cell.valid[where] > VALID
    if bad.any():
        at = int(np.asarray(where)[bad].flat[0])
        doing = "writes" if cell.valid[at] & PENDING else "reads"
        raise Fault(f"race: {cell.element(at)} is written before the wait for the copy that {doing} it")


# ------------------------------------------------------------------------------- iterations of the parallel
# loop
def race_read(
    cell: Cell, me: int, start: int, counts: tuple[int, ...] = (), steps: tuple[int, ...] = ()
) -> None:
    """Iteration `me` reads: nobody else may have written; remember the reader."""
    race_read_at(cell, me, offsets(start, counts, steps))


def race_read_at(cell: Cell, me: int, where: Integers) -> None:
    """The same for elements given by their offsets."""
    tags = cell.writers_view[where]
    bad = (tags != 0) & (tags != me)
    if bad.any():
        at = int(np.asarray(where)[bad].flat[0])
        raise Fault(
            f"race: this iteration reads {cell.element(at)}, which {cell.iteration(tags[bad].flat[0])} writes"
        )
    readers = cell.readers_view[where]
    cell.readers_view[where] = np.where((readers == 0) | (readers == me), me, 255)


def race_write(
    cell: Cell, me: int, start: int, counts: tuple[int, ...] = (), steps: tuple[int, ...] = ()
) -> None:
    """Iteration `me` writes: nobody else may have written or read; remember the writer."""
    race_write_at(cell, me, offsets(start, counts, steps))


def race_write_at(cell: Cell, me: int, where: Integers) -> None:
    """The same for elements given by their offsets."""
    for tags, verb in ((cell.writers_view[where], "writes"), (cell.readers_view[where], "reads")):
        bad = (tags != 0) & (tags != me)
        if bad.any():
            at = int(np.asarray(where)[bad].flat[0])
            other = cell.iteration(tags[bad].flat[0])
            raise Fault(f"race: this iteration writes {cell.element(at)}, which {other} {verb}")
    cell.writers_view[where] = me
