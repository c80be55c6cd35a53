"""What the lanes of a warp do together: exchange values, vote, find who is there.

Design choice: values are laid out as rows of a warp over the whole batch, absent lanes included, so that an exchange
is one gather; whether a source lane takes part is a gather of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Array, Lanes, Meeting
from hwsdk.sim.simt.races import after_warp_sync
from hwsdk.sim.simt.registers import numbers, spread

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame


def present(frame: Frame, lanes: Lanes) -> Array:
    """A boolean per lane of the batch."""
    if lanes is None:
        return np.ones(frame.lanes, bool)
    mask = np.zeros(frame.lanes, bool)
    mask[lanes] = True
    return mask


def whole(frame: Frame, lanes: Lanes, value: Array) -> Array:
    """One element per lane of the batch; absent lanes have zero."""
    if lanes is None:
        return spread(frame, lanes, value)
    result = np.zeros(frame.lanes, value.dtype)
    result[lanes] = value
    return result


def bits_of(frame: Frame, flags: Array) -> Array:
    """Flags of all lanes of the batch as one 64-bit mask per warp: shape (warps,)."""
    width = frame.chip.warp_lanes
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    result: Array = np.where(flags.reshape(-1, width), weights, np.uint64(0)).sum(1, dtype=np.uint64)
    return result


def active_mask(frame: Frame, lanes: Lanes) -> Array:
    """For each active lane the mask of active lanes of its warp."""
    result: Array = bits_of(frame, present(frame, lanes))[frame.warp_of[numbers(frame, lanes)]]
    return result


def member_flags(frame: Frame, lanes: Lanes, members: Array) -> Array:
    """For each active lane: is it named by its own mask?"""
    lane = (numbers(frame, lanes) % frame.chip.warp_lanes).astype(np.uint64)
    result: Array = (members.astype(np.uint64) >> lane) & np.uint64(1) != 0
    return result


def missing(frame: Frame, lanes: Lanes, meeting: Meeting) -> Array | None:
    """Which of the active lanes must still wait for others of their warp: a boolean per active lane, or None.

    members None: all lanes of the warp must be here, exited ones are missing too.
    """
    members, size = meeting.members, frame.chip.warp_lanes * meeting.warps
    if frame.shape.padded % size:
        words = f"{meeting.warps} warps meet, and a block has {frame.shape.padded // frame.chip.warp_lanes}"
        raise Fault(FaultKind.DIVERGED_WARP, words)
    if lanes is None and members is None:
        return None
    here = present(frame, lanes)
    if members is None:
        complete = np.asarray(here.reshape(-1, size).all(axis=1))
        absent = ~complete[numbers(frame, lanes) // size]
        return absent if absent.any() else None
    mask = spread(frame, lanes, members(frame, lanes)).astype(np.uint64)
    inside = member_flags(frame, lanes, mask)
    if not inside.all():
        at = int(numbers(frame, lanes)[np.flatnonzero(~inside)[0]])
        raise Fault(FaultKind.INACTIVE_LANE, "the lane is not named by its own mask of members", at)
    if lanes is None:
        return None
    there = bits_of(frame, here | frame.exited)[frame.warp_of[lanes]]
    absent = (mask & ~there & _width_mask(frame)) != 0
    return absent if absent.any() else None


def _width_mask(frame: Frame) -> np.uint64:
    return np.uint64((1 << frame.chip.warp_lanes) - 1)


def shuffle(frame: Frame, lanes: Lanes, value: Array, source: Array, valid: Array, members: Array) -> Array:
    """Each active lane gets the value of lane `source` of its warp, or keeps its own where not `valid`.

    Fault if a valid source does not take part.
    """
    width = frame.chip.warp_lanes
    mine = numbers(frame, lanes)
    own = mine % width
    lane = np.where(valid, spread(frame, lanes, source), own).astype(np.int64)
    taken = (mine - own) + lane
    if lanes is not None or frame.exited.any():
        here = present(frame, lanes) & ~frame.exited
        _check_sources(frame, mine, lane, here[taken], "is not active")
    named = (spread(frame, lanes, members).astype(np.uint64) >> lane.astype(np.uint64)) & np.uint64(1) != 0
    _check_sources(frame, mine, lane, named, "is not named by the mask of members")
    result: Array = whole(frame, lanes, value)[taken]
    return result


def _check_sources(frame: Frame, mine: Array, lane: Array, good: Array, why: str) -> None:
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        raise Fault(
            FaultKind.INACTIVE_LANE,
            f"the value of lane {int(lane[at])} of the warp is read, which {why}",
            int(mine[at]),
        )


def ballot(frame: Frame, lanes: Lanes, predicate: Array, members: Array) -> Array:
    """For each active lane the mask of members whose predicate holds (64 bits)."""
    flags = whole(frame, lanes, spread(frame, lanes, predicate)) & present(frame, lanes)
    seen = bits_of(frame, flags)[frame.warp_of[numbers(frame, lanes)]]
    result: Array = seen & spread(frame, lanes, members).astype(np.uint64)
    return result


def match(frame: Frame, lanes: Lanes, value: Array, members: Array) -> Array:
    """For each active lane the mask of members that have the same value (64 bits)."""
    width = frame.chip.warp_lanes
    rows = whole(frame, lanes, spread(frame, lanes, value)).reshape(-1, width)
    same = rows[:, :, None] == rows[:, None, :]
    same &= present(frame, lanes).reshape(-1, 1, width)
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    masks = np.where(same, weights, np.uint64(0)).sum(2, dtype=np.uint64).reshape(-1)
    result: Array = masks[numbers(frame, lanes)] & spread(frame, lanes, members).astype(np.uint64)
    return result


def reduce(
    frame: Frame, lanes: Lanes, value: Array, members: Array, combine: Callable[[Array, Array], Array]
) -> Array:
    """For each active lane the combination of the values of its members."""
    width = frame.chip.warp_lanes
    rows = whole(frame, lanes, spread(frame, lanes, value)).reshape(-1, width)
    mine = numbers(frame, lanes)
    mask = spread(frame, lanes, members).astype(np.uint64)
    result = np.zeros(mine.size, value.dtype)
    for warp, bits in {(int(w), int(b)) for w, b in zip(frame.warp_of[mine], mask)}:
        chosen = [rows[warp, i : i + 1] for i in range(width) if bits >> i & 1]
        total = chosen[0]
        for more in chosen[1:]:
            total = combine(total, more)
        result[(frame.warp_of[mine] == warp) & (mask == np.uint64(bits))] = total
    return result


def synchronise(frame: Frame, lanes: Lanes) -> None:
    """The active lanes' accesses before this are ordered before those after it, within the warp."""
    frame.tags = after_warp_sync(frame.tags, present(frame, lanes), frame.chip.warp_lanes)
