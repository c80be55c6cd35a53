"""Matrix operations of a warp: fragments spread over lanes, a product, a fragment again.

Design choice: a fragment is a table from (row, column) to (lane, item), so one gather makes a matrix of it and one
scatter a fragment; which table an instruction uses is the front end's knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt import spaces
from hwsdk.sim.simt.costs import passes
from hwsdk.sim.simt.program import Array, Lanes, Read, Write
from hwsdk.sim.simt.races import Span
from hwsdk.sim.simt.registers import Held, numbers, spread
from hwsdk.sim.simt.spaces import Space
from hwsdk.sim.simt.storage import ALLOCATED, VALID

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame


@dataclass(frozen=True)
class Fragment:
    """rows x columns elements, `items` of them in each of `lanes` lanes.

    gather[row, column] = lane * items + item.  Build with `of`, which proves the map a bijection.
    """

    rows: int
    columns: int
    items: int
    gather: Array = field(repr=False)

    @staticmethod
    def of(rows: int, columns: int, lanes: int, where: Callable[[int, int], tuple[int, int]]) -> Fragment:
        """where(lane, item) is (row, column).  ValueError if two places hold the same element."""
        items = rows * columns // lanes
        gather = np.full((rows, columns), -1)
        for lane in range(lanes):
            for item in range(items):
                gather[where(lane, item)] = lane * items + item
        if (gather < 0).any():
            raise ValueError(f"a fragment of {rows} x {columns} over {lanes} lanes leaves elements out")
        return Fragment(rows, columns, items, gather)

    @cached_property
    def _inverse(self) -> Array:
        return np.argsort(self.gather, axis=None)

    def matrices(self, elements: Array) -> Array:
        """(warps * lanes, items) to (warps, rows, columns)."""
        flat = elements.reshape(-1, self.rows * self.columns)
        result: Array = flat.take(self.gather.reshape(-1), axis=1)
        return result.reshape(-1, self.rows, self.columns)

    def fragments(self, matrices: Array) -> Array:
        """(warps, rows, columns) to (warps * lanes, items)."""
        flat: Array = matrices.reshape(len(matrices), -1).take(self._inverse, axis=1)
        return flat.reshape(-1, self.items)


class Results:
    """Matrices that an operation gave, (warps, rows, columns), as fragments when someone asks for them: the next
    operation of a chain takes them as they are."""

    __slots__ = ("_columns", "fragment", "matrices")

    def __init__(self, fragment: Fragment, matrices: Array) -> None:
        self.fragment, self.matrices = fragment, matrices
        self._columns: Array | None = None

    def column(self, item: int) -> Array:
        if self._columns is None:
            self._columns = np.ascontiguousarray(self.fragment.fragments(self.matrices).T)
        column: Array = self._columns[item]
        return column


class Part:
    """One item of each lane's fragment: what a register holds."""

    __slots__ = ("item", "results")

    def __init__(self, results: Results, item: int) -> None:
        self.results, self.item = results, item

    @property
    def value(self) -> Array:
        return self.results.column(self.item)


def addend(
    frame: Frame, lanes: Lanes, fragment: Fragment, looks: Sequence[Held], reads: Sequence[Read]
) -> Array:
    """The matrices of an operand: as an operation gave them, or of the registers' fragments.  looks and reads: of the
    same operands."""
    if lanes is None:
        held = [look(frame) for look in looks]
        first = held[0]
        if isinstance(first, Part) and first.results.fragment is fragment:
            wanted = enumerate(held)
            if all(isinstance(h, Part) and h.results is first.results and h.item == j for j, h in wanted):
                return first.results.matrices
    return fragment.matrices(stacked(frame, lanes, [read(frame, lanes) for read in reads]))


def give(frame: Frame, lanes: Lanes, fragment: Fragment, matrices: Array, writes: Sequence[Write]) -> None:
    """Write the fragments of matrices to registers of the same width, one item each."""
    if lanes is None:
        results = Results(fragment, matrices)
        for item, write in enumerate(writes):
            write(frame, lanes, Part(results, item))  # type: ignore[arg-type]
        return
    values = fragment.fragments(matrices)
    for item, write in enumerate(writes):
        write(frame, lanes, np.ascontiguousarray(values[:, item]))


def stacked(frame: Frame, lanes: Lanes, registers: list[Array]) -> Array:
    """Registers of each lane side by side: (lanes, registers)."""
    return np.stack([spread(frame, lanes, r) for r in registers], 1)


def load_rows(frame: Frame, lanes: Lanes, addresses: Array, matrices: int, row_bytes: int = 16) -> Array:
    """Rows of 8 x 8 matrices of 2-byte elements from shared memory, lane 8 i + r giving the address of row r of
    matrix i: (warps, matrices, 8, 8) of uint16."""
    rows = 8 * matrices
    some, offsets, span = _row_offsets(frame, lanes, addresses, rows, row_bytes, "read")
    spaces.check_read(frame, some, frame.shared, offsets, row_bytes, span, Space.SHARED)
    table = frame.shared_races
    if table is not None and not table.note(offsets, row_bytes, frame.tags, some, span):
        spaces.watch(
            frame, some, Space.SHARED, lambda table, tags: table.read(offsets, row_bytes, tags, False, span)
        )
    parts = frame.shared.gather(offsets, np.dtype(np.uint64), row_bytes // 8)
    return np.stack(parts, 1).view(np.uint16).reshape(-1, matrices, 8, 8)


def store_rows(frame: Frame, lanes: Lanes, addresses: Array, matrices: Array, row_bytes: int = 16) -> None:
    """The reverse: (warps, matrices, 8, 8) of uint16 to shared memory."""
    rows = 8 * matrices.shape[1]
    some, offsets, span = _row_offsets(frame, lanes, addresses, rows, row_bytes, "write")
    spaces.check_write(frame, some, frame.shared, offsets, row_bytes, span, Space.SHARED)
    spaces.watch(frame, some, Space.SHARED, lambda table, tags: table.write(offsets, row_bytes, tags, span))
    data = np.ascontiguousarray(matrices).view(np.uint64).reshape(-1, row_bytes // 8)
    frame.shared.scatter(offsets, [data[:, j] for j in range(row_bytes // 8)])
    frame.shared.set_states(offsets, row_bytes, ALLOCATED | VALID)


def _row_offsets(
    frame: Frame, lanes: Lanes, addresses: Array, rows: int, row_bytes: int, verb: str
) -> tuple[Array, Array, Span]:
    warp = frame.chip.warp_lanes
    chosen = np.ascontiguousarray(numbers(frame, lanes).reshape(-1, warp)[:, :rows]).reshape(-1)
    given = np.ascontiguousarray(spread(frame, lanes, addresses).reshape(-1, warp)[:, :rows]).reshape(-1)
    _, offsets, span = spaces.locate(frame, chosen, given, row_bytes, Space.SHARED, verb)
    if frame.checks.costs:
        _count_rows(frame, lanes, given, row_bytes, rows, verb == "read")
    return chosen, offsets, span


def _count_rows(frame: Frame, lanes: Lanes, addresses: Array, row_bytes: int, rows: int, read: bool) -> None:
    per_block = frame.shape.padded // frame.chip.warp_lanes * rows if lanes is None else None
    needed, ideal = passes(addresses, row_bytes, per_block, 8, frame.chip)
    frame.tally.bank_conflicts += needed - ideal
    moved = addresses.size * row_bytes
    frame.tally.access("shared", moved if read else 0, 0 if read else moved, addresses.size, needed)


def product(a: Array, b: Array) -> Array:
    """(warps, m, k) by (warps, k, n) in float64: exact for small integers, one rounding each for the rest."""
    result: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return result
