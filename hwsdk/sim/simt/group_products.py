"""Products of several warps beside the instruction stream: operands in shared memory, sums in registers.

    fence      registers as they are now may be taken
    start      a product reads its operands and adds to its sums, which nobody may look at
    commit     what each group of warps has started becomes its next set
    wait       all but the latest sets of a group are done
    publish    what lanes have written to shared memory may be read by products

Design choice: the numbers are computed when a product starts, for nothing may change its operands or sums before the
wait, and who tries is at fault.  Bytes that are being read have a state; a register of sums holds an object that
refuses to be looked at.  Which lane wrote a byte, and whether it published since, is asked of the table of races.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hwsdk.sim.simt import spaces
from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.matrix import Fragment, product, stacked
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.registers import numbers
from hwsdk.sim.simt.spaces import Space
from hwsdk.sim.simt.sums import Lazy, Live

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

PIECE = 16  # bytes that an operand's address stands for at least
_OPEN = np.iinfo(np.int64).max


class Sums:
    """matrices: (groups of the batch, rows, columns); flying: products under way to each group's; seen: has a register
    been looked at since the last fence?"""

    def __init__(self, fragment: Fragment, matrices: Array, lanes: int) -> None:
        self.fragment, self.matrices, self.lanes = fragment, matrices, lanes
        self.flying = np.zeros(len(matrices), np.int64)
        self.seen = False
        self._columns: Array | None = None

    def add(self, groups: Array, more: Array, scale: Array) -> None:
        old = np.where(scale[:, None, None], self.matrices[groups], 0)
        self.matrices[groups] = (old + more).astype(self.matrices.dtype)
        self.flying[groups] += 1
        self._columns = None

    def column(self, item: int, lanes: Lanes) -> Array:
        """One item of each lane's fragment, if no product is under way to any of `lanes`."""
        if self.flying.any():
            asked = np.arange(len(self.flying) * self.lanes) if lanes is None else lanes
            busy = self.flying[asked // self.lanes] > 0
            if busy.any():
                words = "a register is read before the wait for the product that adds to it"
                raise Fault(FaultKind.IN_FLIGHT, words, int(asked[np.argmax(busy)]))
        self.seen = True
        if self._columns is None:
            self._columns = np.ascontiguousarray(self.fragment.fragments(self.matrices).T)
        column: Array = self._columns[item]
        return column


class Item(Live):
    """What a register of sums holds."""

    __slots__ = ("item", "sums")

    def __init__(self, sums: Sums, item: int) -> None:
        self.sums, self.item = sums, item

    def read(self, lanes: Lanes) -> Array:
        return self.sums.column(self.item, lanes)


@dataclass(frozen=True)
class Operand:
    """addresses: of its pieces in shared memory, (groups, pieces).  numbers: bytes (groups, pieces, PIECE) to what is
    multiplied, (groups, rows, columns)."""

    addresses: Array
    numbers: Callable[[Array], Array]


@dataclass
class _Flight:
    """One product of some groups.  offsets: bytes of shared storage that it reads, (groups, pieces); set: its number in
    the group, or not committed yet."""

    groups: Array
    sums: Sums
    registers: tuple[int, ...]
    offsets: Array
    set: Array


class GroupProducts:
    """Those of a batch.  lanes: of one group."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.flights: list[_Flight] = []
        self.sets: dict[int, Array] = {}  # committed by each group, by lanes of a group
        self._fenced: list[tuple[Array, list[Array | Lazy]]] = []  # lanes, registers as they were

    # ------------------------------------------------------------------------------------------------- registers
    def fence(self, lanes: Lanes) -> None:
        frame = self.frame
        for held in frame.registers:
            if isinstance(held, Item):
                held.sums.seen = False
        mine = np.zeros(frame.lanes, bool)
        mine[numbers(frame, lanes)] = True
        kept = [] if lanes is None else [(old & ~mine, r) for old, r in self._fenced if (old & ~mine).any()]
        self._fenced = [*kept, (mine, list(frame.registers))]

    def _sums(self, lanes: Lanes, size: int, fragment: Fragment, registers: tuple[int, ...]) -> Sums:
        """What the registers hold: the sums of an earlier product, or numbers that a fence has handed over."""
        frame = self.frame
        first = frame.registers[registers[0]]
        if isinstance(first, Item) and first.sums.fragment is fragment and not first.sums.seen:
            held = (frame.registers[r] for r in registers)
            if all(isinstance(h, Item) and h.sums is first.sums and h.item == i for i, h in enumerate(held)):
                return first.sums
        self._check_fence(lanes, registers)
        before = [frame.registers[r] for r in registers]
        parts = [h if isinstance(h, np.ndarray) else h.value for h in before]
        matrices = fragment.matrices(stacked(frame, None, [p.view(np.float32) for p in parts])).copy()
        sums = Sums(fragment, matrices, size)
        for item, register in enumerate(registers):
            frame.registers[register] = Item(sums, item)
        return sums

    def _check_fence(self, lanes: Lanes, registers: tuple[int, ...]) -> None:
        frame = self.frame
        mine = numbers(frame, lanes)
        for fenced, held in self._fenced:
            here = fenced[mine]
            if here.any() and any(frame.registers[r] is not held[r] for r in registers):
                self._unfenced(int(mine[np.argmax(here)]))
            mine = mine[~here]
        if mine.size:
            self._unfenced(int(mine[0]))

    def _unfenced(self, lane: int) -> NoReturn:
        words = "registers of a product were used by other instructions, with no fence for products since"
        raise Fault(FaultKind.UNFENCED, words, lane)

    # -------------------------------------------------------------------------------------------------- products
    def start(
        self, lanes: Lanes, size: int, fragment: Fragment, registers: tuple[int, ...],
        operands: tuple[Operand, Operand], keep: Array, sign: int,
    ) -> None:  # fmt: skip
        """sums = keep * sums + sign * a @ b for the groups of `size` lanes that `lanes` make up."""
        frame = self.frame
        first = numbers(frame, lanes).reshape(-1, size)[:, 0]
        groups = first // size
        sums = self._sums(lanes, size, fragment, registers)
        sides = []
        offsets = []
        for operand in operands:
            where, raw = self._read(first, operand.addresses)
            sides.append(operand.numbers(raw))
            offsets.append(where)
        sums.add(groups, sign * product(*sides), keep)
        flight = _Flight(groups, sums, registers, np.concatenate(offsets, 1), np.full(groups.size, _OPEN))
        self.flights.append(flight)
        frame.shared.start_reading(flight.offsets.reshape(-1), PIECE)

    def _read(self, first: Array, addresses: Array) -> tuple[Array, Array]:
        """(offsets in shared storage, bytes) of pieces; first: a lane of each group."""
        frame = self.frame
        pieces = addresses.shape[1]
        lanes, given = np.repeat(first, pieces), np.ascontiguousarray(addresses.reshape(-1))
        storage, offsets, span = spaces.locate(frame, lanes, given, PIECE, Space.SHARED, "read")
        spaces.check_read(frame, lanes, storage, offsets, PIECE, span, Space.SHARED)
        spaces.watch(
            frame, lanes, Space.SHARED, lambda table, tags: table.read(offsets, PIECE, tags, False, span)
        )
        self._check_published(offsets)
        frame.filled.lose(span)  # it may not be written now
        moved = PIECE * given.size
        frame.tally.access(
            "shared", moved, 0, given.size, moved // (frame.chip.banks * frame.chip.bank_bytes)
        )
        raw = np.stack(storage.gather(offsets, np.dtype(np.uint64), PIECE // 8), 1).view(np.uint8)
        return offsets.reshape(first.size, pieces), raw.reshape(first.size, pieces, PIECE)

    def commit(self, lanes: Lanes, size: int) -> None:
        frame = self.frame
        groups = numbers(frame, lanes).reshape(-1, size)[:, 0] // size
        done = self.sets.setdefault(size, np.zeros(frame.lanes // size, np.int64))
        for flight in self.flights:
            mine = (flight.set == _OPEN) & np.isin(flight.groups, groups)
            flight.set[mine] = done[flight.groups[mine]]
        done[groups] += 1

    def wait(self, lanes: Lanes, size: int, allowed: int) -> None:
        """All but the latest `allowed` sets of the groups are done."""
        frame = self.frame
        groups = numbers(frame, lanes).reshape(-1, size)[:, 0] // size
        sets = self.sets.setdefault(size, np.zeros(frame.lanes // size, np.int64))
        left = []
        for flight in self.flights:
            done = np.isin(flight.groups, groups) & (flight.set < sets[flight.groups] - allowed)
            if done.any():
                self._finish(flight, done)
                if done.all():
                    continue
                for name in ("groups", "offsets", "set"):
                    setattr(flight, name, getattr(flight, name)[~done])
            left.append(flight)
        if len(left) < len(self.flights):
            for flight in left:  # what they share with those that are done
                frame.shared.start_reading(flight.offsets.reshape(-1), PIECE)
        self.flights = left

    def _finish(self, flight: _Flight, done: Array) -> None:
        frame = self.frame
        for item, register in enumerate(flight.registers):
            held = frame.registers[register]
            if not (isinstance(held, Item) and held.sums is flight.sums and held.item == item):
                words = "a register was written before this wait for the product that adds to it"
                raise Fault(FaultKind.IN_FLIGHT, words, int(flight.groups[0]) * flight.sums.lanes)
        flight.sums.flying[flight.groups[done]] -= 1
        frame.shared.stop_reading(flight.offsets[done].reshape(-1), PIECE)

    # ------------------------------------------------------------------------------------------- shared memory
    def publish(self, lanes: Lanes) -> None:
        if self.frame.shared_races is not None:
            self.frame.shared_races.publish(self.frame.tags if lanes is None else self.frame.tags[lanes])

    def _check_published(self, offsets: Array) -> None:
        table = self.frame.shared_races
        found = None if table is None else table.unpublished(offsets, PIECE)
        if found is None:
            return
        offset, lane = found
        place = spaces.describe(self.frame, Space.SHARED, offset)
        block, thread = self.frame.where(lane - self.frame.first * self.frame.shape.padded)
        wrote = f"lane {thread} of block {block} wrote"
        words = f"a product reads {place}, which {wrote} without a fence for products since"
        raise Fault(FaultKind.UNFENCED, words)
