"""What the lanes of a warp do together: shuffles, votes, matches, reductions, elections, synchronisation.

Design choice: `.sync` forms have a meeting, so the scheduler brings the members of the mask together before the
instruction runs; a member that never comes is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import warps
from hwsdk.sim.simt.program import Array, Lanes, Meeting, Read
from hwsdk.sim.simt.registers import numbers, spread
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.types import PREDICATE, U32

_ALL = np.array([0xFFFFFFFF], np.uint32)


def shuffle(context: Context) -> None:
    sync = bool(context.take("sync"))
    mode = context.take("up", "down", "bfly", "idx")
    kind = context.type()
    if not mode or kind.bits != 32:
        context.fail("a shuffle moves 32 bits up, down, bfly or idx")
    context.done(5 if sync else 4)
    first, second = context.pair(0)
    write = context.writer(first, kind)
    flag = context.writer(second, PREDICATE) if second is not None else None
    value, amount, clamp = context.read(1, kind), context.read(2, U32), context.read(3, U32)
    members: Read = context.read(4, U32) if sync else (lambda frame, lanes: _present(frame, lanes))

    def run(frame: Any, lanes: Lanes) -> None:
        lane = (numbers(frame, lanes) % frame.chip.warp_lanes).astype(np.int64)
        source, valid = _source(mode, lane, amount(frame, lanes), clamp(frame, lanes))
        found = warps.shuffle(frame, lanes, value(frame, lanes), source, valid, members(frame, lanes))
        write(frame, lanes, found)
        if flag is not None:
            flag(frame, lanes, np.array(np.broadcast_to(valid, found.shape)))

    context.emit(run, "warp", Meeting(members) if sync else None)


def _present(frame: Any, lanes: Lanes) -> Array:
    return warps.active_mask(frame, lanes)


def _source(mode: str, lane: Array, amount: Array, clamp: Array) -> tuple[Array, Array]:
    """(source lane, is it inside?), as the manual's pseudocode has it."""
    b = (amount & np.uint32(31)).astype(np.int64)
    c, segment = (
        (clamp & np.uint32(31)).astype(np.int64),
        ((clamp >> np.uint32(8)) & np.uint32(31)).astype(np.int64),
    )
    most = (lane & segment) | (c & ~segment)
    least = lane & segment
    if mode == "up":
        source = lane - b
        return source, source >= most
    if mode == "down":
        source = lane + b
    elif mode == "bfly":
        source = lane ^ b
    else:
        source = least | (b & ~segment)
    return source, source <= most


def vote(context: Context) -> None:
    sync = bool(context.take("sync"))
    mode = context.take("ballot", "all", "any", "uni")
    kind = context.type()
    context.done(3 if sync else 2)
    predicate = context.read(1, PREDICATE)
    members: Read = context.read(2, U32) if sync else _present
    write = context.write(0, kind)

    def run(frame: Any, lanes: Lanes) -> None:
        mask = spread(frame, lanes, members(frame, lanes)).astype(np.uint64)
        voters = mask & warps.active_mask(frame, lanes)
        holds = warps.ballot(frame, lanes, predicate(frame, lanes), mask)
        if mode == "ballot":
            write(frame, lanes, holds.astype(np.uint32))
        elif mode == "any":
            write(frame, lanes, holds != 0)
        elif mode == "all":
            write(frame, lanes, holds == voters)
        else:
            write(frame, lanes, (holds == 0) | (holds == voters))

    if not mode:
        context.fail("no vote that is supported")
    context.emit(run, "warp", Meeting(members) if sync else None)


def match(context: Context) -> None:
    mode = context.take("any", "all")
    sync = context.take("sync")
    kind = context.type()
    context.done(3)
    if not sync or not mode:
        context.fail("match is any or all, with .sync")
    first, second = context.pair(0)
    write = context.writer(first, U32)
    flag = context.writer(second, PREDICATE) if second is not None else None
    value, members = context.read(1, kind), context.read(2, U32)

    def run(frame: Any, lanes: Lanes) -> None:
        mask = spread(frame, lanes, members(frame, lanes)).astype(np.uint64)
        same = warps.match(frame, lanes, value(frame, lanes), mask)
        if mode == "any":
            write(frame, lanes, same.astype(np.uint32))
            return
        everyone = same == (mask & warps.active_mask(frame, lanes))
        write(frame, lanes, np.where(everyone, mask, np.uint64(0)).astype(np.uint32))
        if flag is not None:
            flag(frame, lanes, everyone)

    context.emit(run, "warp", Meeting(members))


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce(context: Context) -> None:
    name = context.take(*_COMBINE)
    sync = context.take("sync")
    kind = context.type()
    context.done(3)
    if not name or not sync or kind.bits != 32 or kind.is_float:
        context.fail("a reduction of 32-bit integers with .sync belongs here")
    write, value, members = context.write(0, kind), context.read(1, kind), context.read(2, U32)

    def run(frame: Any, lanes: Lanes) -> None:
        mask = members(frame, lanes)
        write(frame, lanes, warps.reduce(frame, lanes, value(frame, lanes), mask, _COMBINE[name]))

    context.emit(run, "warp", Meeting(members))


def active_mask(context: Context) -> None:
    kind = context.type()
    context.done(1)
    write = context.write(0, kind)
    context.emit(
        lambda frame, lanes: write(frame, lanes, warps.active_mask(frame, lanes).astype(np.uint32)), "warp"
    )


def elect(context: Context) -> None:
    """One lane of the members, the lowest: its number, and a predicate that is true for it."""
    if not context.take("sync"):
        context.fail("elect needs .sync")
    context.done(2)
    first, second = context.pair(0)
    write = context.writer(first, U32)
    flag = context.writer(second, PREDICATE) if second is not None else None
    members = context.read(1, U32)

    def run(frame: Any, lanes: Lanes) -> None:
        mask = spread(frame, lanes, members(frame, lanes)).astype(np.uint64) & warps.active_mask(frame, lanes)
        lowest = np.bitwise_count((mask & (~mask + np.uint64(1))) - np.uint64(1)).astype(np.uint32)
        write(frame, lanes, lowest)
        if flag is not None:
            flag(frame, lanes, numbers(frame, lanes) % frame.chip.warp_lanes == lowest)

    context.emit(run, "warp", Meeting(members))


def synchronise(context: Context) -> None:
    """bar.warp.sync"""
    context.done(1)
    members = context.read(0, U32)
    context.emit(warps.synchronise, "warp", Meeting(members))


BUILDERS: dict[str, Callable[[Context], None]] = {
    "shfl": shuffle,
    "vote": vote,
    "match": match,
    "redux": reduce,
    "activemask": active_mask,
    "elect": elect,
}
