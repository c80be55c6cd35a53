"""Loads and stores in every memory: where an address lies, what is checked there, what it costs.

Design choice: what `places` does not recognise as right is looked at lane by lane here, so that a fault names the lane
and the byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hwsdk.sim.simt import costs, places
from hwsdk.sim.simt.copies import mark_pending
from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.places import Place
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.races import ANYWHERE, RaceFault, RaceTable, Span
from hwsdk.sim.simt.registers import numbers, spread
from hwsdk.sim.simt.storage import (
    ALLOCATED,
    FREED,
    PENDING,
    READ_MASK,
    READ_ONLY,
    READ_WANT,
    READING,
    VALID,
    WRITE_MASK,
    WRITE_WANT,
    Storage,
)
from hwsdk.sim.simt.sums import Sum
from hwsdk.sim.simt.windows import BASES, WINDOW_SHIFT, WINDOWS, Access, Space

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

__all__ = ["BASES", "WINDOWS", "WINDOW_SHIFT", "Access", "Space", "load", "store"]


def load(frame: Frame, lanes: Lanes, addresses: Array | Sum, access: Access) -> list[Array]:
    """One array per element of the vector."""
    place = places.place_of(frame, lanes, addresses, access)
    if place is not None:
        found = places.load(frame, lanes, place, access)
        if found is not None:
            _count_place(frame, lanes, place, read=True)
            return found
    if isinstance(addresses, Sum):
        addresses = addresses.active(lanes)
    if access.space is Space.GENERIC:
        parts = _parts(frame, lanes, addresses)
        if len(parts) == 1:
            space, _, within = parts[0]
            return _load_in(frame, lanes, within, access, space)
        return _merge(frame, lanes, access, parts)
    return _load_in(frame, lanes, addresses, access, access.space)


def store(frame: Frame, lanes: Lanes, addresses: Array | Sum, access: Access, values: list[Array]) -> None:
    place = places.place_of(frame, lanes, addresses, access)
    if place is not None and _store_at(frame, lanes, place, access, values):
        return
    if isinstance(addresses, Sum):
        addresses = addresses.active(lanes)
    if access.space is Space.GENERIC:
        count = frame.lanes if lanes is None else lanes.size
        for space, where, within in _parts(frame, lanes, addresses):
            some = numbers(frame, lanes)[where] if where is not None else lanes
            chosen = [v if where is None or v.shape[0] != count else v[where] for v in values]
            _store_in(frame, some, within, access, chosen, space)
        return
    _store_in(frame, lanes, addresses, access, values, access.space)


def _store_at(frame: Frame, lanes: Lanes, place: Place, access: Access, values: list[Array]) -> bool:
    """False where the lanes must be looked at one by one."""
    if place.space is Space.GLOBAL or access.strong:
        return False
    allowed, written = places.may_write(frame, lanes, place)
    if not allowed:
        return False
    if place.space is Space.SHARED and frame.shared_races is not None:
        with _Explained(frame, place.space):
            frame.shared_races.write(place.offsets(lanes), access.size, _tags(frame, lanes), place.span)
    _count_place(frame, lanes, place, read=False)
    places.put(lanes, place, values, written)
    return True


def _count_place(frame: Frame, lanes: Lanes, place: Place, read: bool) -> None:
    addresses = place.addresses(lanes) if frame.checks.costs else place.root.array
    count_access(frame, lanes, addresses, place.size, place.space, read)


def _parts(frame: Frame, lanes: Lanes, addresses: Array) -> list[tuple[Space, Array | None, Array]]:
    """(space, positions among the active lanes or None for all, addresses inside it)."""
    window = addresses >> np.uint64(WINDOW_SHIFT)
    within = addresses & np.uint64((1 << WINDOW_SHIFT) - 1)
    first = int(window[0])
    if (window == first).all():
        return [(_window(first), None, within)]
    window, within = spread(frame, lanes, window), spread(frame, lanes, within)
    found: list[tuple[Space, Array | None, Array]] = []
    for number in np.unique(window).tolist():
        where = np.flatnonzero(window == number)
        found.append((_window(number), where, within[where]))
    return found


def _window(number: int) -> Space:
    if number >= len(WINDOWS):
        raise Fault(FaultKind.OUT_OF_BOUNDS, f"generic address in window {number}, where there is no memory")
    return WINDOWS[number]


def _merge(
    frame: Frame, lanes: Lanes, access: Access, parts: list[tuple[Space, Array | None, Array]]
) -> list[Array]:
    count = frame.lanes if lanes is None else lanes.size
    result = [np.zeros(count, access.dtype) for _ in range(access.count)]
    for space, where, within in parts:
        assert where is not None
        loaded = _load_in(frame, numbers(frame, lanes)[where], within, access, space)
        for whole, part in zip(result, loaded):
            whole[where] = part
    return result


# ------------------------------------------------------------------------------------------------ one space
def _load_in(frame: Frame, lanes: Lanes, addresses: Array, access: Access, space: Space) -> list[Array]:
    size = access.size
    storage, offsets, span = locate(frame, lanes, addresses, size, space, "read")
    if space is not Space.GLOBAL or not frame.memory.is_sealed(span):
        check_read(frame, lanes, storage, offsets, size, span, space)
        _watch_read(frame, lanes, storage, offsets, access, span, space)
    count_access(frame, lanes, addresses, size, space, read=True)
    return storage.gather(offsets, access.dtype, access.count)


def _store_in(
    frame: Frame, lanes: Lanes, addresses: Array, access: Access, values: list[Array], space: Space
) -> None:
    size = access.size
    storage, offsets, span = locate(frame, lanes, addresses, size, space, "write")
    check_write(frame, lanes, storage, offsets, size, span, space)
    table = races_of(frame, space)
    if table is not None:
        where, tags = spread(frame, lanes, offsets), _tags(frame, lanes)
        with _Explained(frame, space):
            (table.change if access.strong else table.write)(where, size, tags, span)
    count_access(frame, lanes, addresses, size, space, read=False)
    if offsets.shape[0] == 1:  # the last lane wins
        values = [v[-1:] for v in values]
    storage.scatter(offsets, values)
    if space is not Space.SHARED or not frame.filled.has(span):
        storage.set_states(offsets, size, ALLOCATED | VALID)


def check_read(
    frame: Frame, lanes: Lanes, storage: Storage, offsets: Array, size: int, span: Span, space: Space
) -> None:
    """May the bytes be read?"""
    if space is Space.SHARED and frame.filled.proves(storage, span, offsets.size * size):
        return
    mask, want = (READ_MASK, READ_WANT) if frame.checks.uninitialised else (ALLOCATED | PENDING, ALLOCATED)
    if not storage.all_states(offsets, size, mask, want):
        refuse(frame, lanes, storage, offsets, size, mask, want, space, "read")


def check_write(
    frame: Frame, lanes: Lanes, storage: Storage, offsets: Array, size: int, span: Span, space: Space
) -> None:
    """May the bytes be written?"""
    if space is Space.SHARED and frame.filled.has(span):
        return
    if not storage.all_states(offsets, size, WRITE_MASK, WRITE_WANT):
        refuse(frame, lanes, storage, offsets, size, WRITE_MASK, WRITE_WANT, space, "write")
    if space is Space.GLOBAL and frame.copies.pending:
        frame.copies.check_store(frame, lanes, offsets, size)


def locate(
    frame: Frame, lanes: Lanes, addresses: Array, size: int, space: Space, verb: str
) -> tuple[Storage, Array, Span]:
    """(storage, offsets in it, addresses touched); faults for addresses that are misaligned or outside a lane's or
    block's part."""
    if size > 1 and int(np.bitwise_or.reduce(addresses)) & (size - 1):
        at = int(np.flatnonzero(addresses & addresses.dtype.type(size - 1))[0])
        raise Fault(
            FaultKind.MISALIGNED,
            f"{size}-byte {verb} of {space.value} memory at {int(addresses[at]):#x} is not aligned to {size}",
            _lane(frame, lanes, addresses, at),
        )
    if space is Space.PARAMETER:
        return frame.parameters, addresses, ANYWHERE
    span = int(np.minimum.reduce(addresses)), int(np.maximum.reduce(addresses)) + size
    if space is Space.GLOBAL:
        return frame.memory.storage, addresses, span
    if space is Space.SHARED:
        storage, stride, base = frame.shared, frame.layout.stride, frame.shared_base
    else:
        storage, stride, base = frame.local, frame.local_stride, frame.local_base
    if span[1] > stride:
        at = int(np.flatnonzero(addresses + addresses.dtype.type(size) > stride)[0]) if stride >= size else 0
        raise Fault(
            FaultKind.OUT_OF_BOUNDS,
            f"{size}-byte {verb} at {int(addresses[at]):#x} of {space.value} memory, {_sizes(frame, space)}",
            _lane(frame, lanes, addresses, at),
        )
    base = base if lanes is None else base[lanes]
    return storage, np.add(base, addresses, dtype=np.int64, casting="unsafe"), span


def _sizes(frame: Frame, space: Space) -> str:
    if space is Space.SHARED:
        layout = frame.layout
        return f"which has {layout.used_bytes} bytes, {layout.dynamic_bytes} of them given by the launch"
    return f"which has {sum(v.size_bytes for v in frame.program.local)} bytes"


def refuse(
    frame: Frame,
    lanes: Lanes,
    storage: Storage,
    offsets: Array,
    size: int,
    mask: int,
    want: int,
    space: Space,
    verb: str,
) -> NoReturn:
    """Say why the state of the bytes does not allow the access."""
    at, byte, state = storage.first_bad(offsets, size, mask, want)
    lane = _lane(frame, lanes, offsets, at)
    place = describe(frame, space, byte)
    if state & FREED:
        raise Fault(FaultKind.USE_AFTER_FREE, f"{size}-byte {verb} of {place}, which was freed", lane)
    if not state & ALLOCATED:
        raise Fault(FaultKind.OUT_OF_BOUNDS, f"{size}-byte {verb} reaches {place}", lane)
    if state & PENDING:
        wait = "before the wait for the copy that fills it"
        raise Fault(FaultKind.IN_FLIGHT, f"{size}-byte {verb} of {place} {wait}", lane)
    if verb == "write" and state & READING:
        wait = "before the wait for the product that reads it"
        raise Fault(FaultKind.IN_FLIGHT, f"{size}-byte write to {place} {wait}", lane)
    if verb == "write" and state & READ_ONLY:
        raise Fault(FaultKind.READ_ONLY, f"{size}-byte write to {place}", lane)
    raise Fault(FaultKind.UNINITIALISED, f"{size}-byte read of {place}, which nothing has written", lane)


def describe(frame: Frame, space: Space, offset: int) -> str:
    """A byte of a storage in words."""
    if space is Space.GLOBAL:
        return frame.memory.describe(offset)
    if space is Space.SHARED:
        address = offset % frame.layout.stride
        name = frame.layout.name_of(address)
        return f"byte {address - frame.layout.offsets.get(name, 0)} of shared {name} ({_sizes(frame, space)[10:]})"
    if space is Space.LOCAL:
        return f"byte {offset % frame.local_stride} of local memory"
    return f"byte {offset} of the kernel's parameters"


def _lane(frame: Frame, lanes: Lanes, like: Array, at: int) -> int:
    active = numbers(frame, lanes)
    return int(active[at]) if like.shape[0] == active.size else int(active[0])


# ------------------------------------------------------------------------------------------------ races and costs
def races_of(frame: Frame, space: Space) -> RaceTable | None:
    if space is Space.SHARED:
        return frame.shared_races
    return frame.global_races if space is Space.GLOBAL else None


def _tags(frame: Frame, lanes: Lanes) -> Array:
    return frame.tags if lanes is None else frame.tags[lanes]


def _watch_read(
    frame: Frame, lanes: Lanes, storage: Storage, offsets: Array, access: Access, span: Span, space: Space
) -> None:
    table = races_of(frame, space)
    if table is None or (space is Space.GLOBAL and storage.has_state(offsets, access.size, READ_ONLY)):
        return
    plain = not access.constant and not access.strong
    if plain and table.note(offsets, access.size, frame.tags, lanes, span):
        return
    where = spread(frame, lanes, offsets)
    if access.constant:
        at = table.written(where, access.size)
        if at is not None:
            raise Fault(
                FaultKind.RACE,
                f"read past coherence of {describe(frame, space, int(where[at]))}, which this launch has written",
                _lane(frame, lanes, where, at),
            )
    with _Explained(frame, space):
        table.read(where, access.size, _tags(frame, lanes), access.strong, span)


def watch(frame: Frame, lanes: Lanes, space: Space, act: Callable[[RaceTable, Array], None]) -> None:
    """Let `act` tell the table of a space about an access; a race is reported with its place."""
    table = races_of(frame, space)
    if table is not None:
        with _Explained(frame, space):
            act(table, _tags(frame, lanes))


class _Explained:
    """Turns the numbers of a race into block, lane and variable."""

    def __init__(self, frame: Frame, space: Space) -> None:
        self.frame, self.space = frame, space

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        if isinstance(fault, RaceFault):
            frame, padded = self.frame, self.frame.shape.padded
            block = frame.shape.block_index(fault.other // padded)
            thread = frame.shape.thread_index(fault.other % padded)
            where = describe(frame, self.space, fault.address)
            message = (
                f"this lane {fault.verb} {where}, which lane {thread} of block {block} {fault.their_verb}"
                f" with nothing between that orders the two"
            )
            raise Fault(FaultKind.RACE, message, fault.me - frame.first * padded) from None


def count_access(
    frame: Frame, lanes: Lanes, addresses: Array, size: int, space: Space, read: bool, warp_lanes: int = 0
) -> None:
    """Count bytes and transactions.  warp_lanes: lanes of one pass's warp if not the chip's."""
    count = frame.lanes if lanes is None else lanes.size
    transactions = 0
    if frame.checks.costs and space in (Space.GLOBAL, Space.SHARED):
        where = spread(frame, lanes, addresses)
        if space is Space.GLOBAL:
            warps = frame.warp_of if lanes is None else frame.warp_of[lanes]
            transactions = costs.sectors(where, warps, size, frame.chip)
        else:
            transactions = _bank_passes(frame, lanes, where, size, warp_lanes or frame.chip.warp_lanes)
    moved = size * count
    frame.tally.access(space.value, moved if read else 0, 0 if read else moved, count, transactions)


def _bank_passes(frame: Frame, lanes: Lanes, addresses: Array, size: int, warp_lanes: int) -> int:
    chip = frame.chip
    if lanes is None:
        needed, ideal = costs.passes(addresses, size, frame.shape.padded, warp_lanes, chip)
        frame.tally.bank_conflicts += needed - ideal
        return needed
    # absent lanes ask for what the first active one of their warp asks for, which costs nothing
    warps = frame.warp_of[lanes]
    first = np.concatenate([[True], warps[1:] != warps[:-1]])
    rows = np.repeat(addresses[first][:, None], chip.warp_lanes, 1)
    rows[np.cumsum(first) - 1, lanes % chip.warp_lanes] = addresses
    needed, ideal = costs.passes(rows.reshape(-1), size, None, warp_lanes, chip)
    frame.tally.bank_conflicts += needed - ideal
    return needed


# ------------------------------------------------------------------------------------------------ copies
def start_copy(
    frame: Frame, lanes: Lanes, destination: Array, source: Array, size: int, read_bytes: Array | None
) -> None:
    """Begin to copy `size` bytes from global to shared memory; beyond read_bytes (per lane) zeros are written."""
    active = numbers(frame, lanes)
    count = active.size
    shared, offsets, span = locate(
        frame, lanes, spread(frame, lanes, destination), size, Space.SHARED, "write"
    )
    check_write(frame, lanes, shared, offsets, size, span, Space.SHARED)
    watch(frame, lanes, Space.SHARED, lambda table, tags: table.write(offsets, size, tags, span))
    addresses = spread(frame, lanes, source)
    wanted = (
        np.full(count, size, np.int64)
        if read_bytes is None
        else spread(frame, lanes, read_bytes).astype(np.int64)
    )
    if (wanted > size).any():
        raise Fault(
            FaultKind.OUT_OF_BOUNDS, f"a copy of {size} bytes reads more", _lane(frame, lanes, wanted, 0)
        )
    data = np.zeros((count, size), np.uint8)
    for amount in np.unique(wanted).tolist():
        if amount:
            some = np.flatnonzero(wanted == amount)
            data[some] = _source_bytes(frame, active[some], addresses[some], size, amount)
    count_access(frame, lanes, destination, size, Space.SHARED, read=False)
    mark_pending(frame, offsets, size)
    frame.filled.lose(span)
    frame.copies.start(active, offsets, addresses.astype(np.int64), data, wanted)


def _source_bytes(frame: Frame, lanes: Array, addresses: Array, size: int, amount: int) -> Array:
    locate(frame, lanes, addresses, size, Space.GLOBAL, "read")  # the whole copy's alignment
    width = next(w for w in (8, 4, 2, 1) if amount % w == 0)
    single = amount & (amount - 1) == 0  # one access, else one per element
    access = Access(Space.GLOBAL, np.dtype(f"u{width}"), amount // width if single else 1)
    columns = []
    for at in range(0, amount, access.size):
        columns += _load_in(frame, lanes, addresses + addresses.dtype.type(at), access, Space.GLOBAL)
    result = np.zeros((lanes.size, size), np.uint8)
    result[:, :amount] = np.stack(columns, 1).view(np.uint8).reshape(lanes.size, -1)
    return result
