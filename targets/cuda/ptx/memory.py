"""Loads, stores, atomic operations, asynchronous copies, fences.

Design choice: what a modifier says about caches is dropped, what it says about order and coherence is kept, because
it decides which accesses may meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import spaces
from hwsdk.sim.simt.atomics import atomic
from hwsdk.sim.simt.floats import maximum, minimum
from hwsdk.sim.simt.program import Array, Lanes, Write
from hwsdk.sim.simt.registers import Where, per_lane
from hwsdk.sim.simt.spaces import Access, Space
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.conversions import space_of
from hwsdk.targets.cuda.ptx.types import U32, Type, lifted

_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
_HINTS = (
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::evict_first",
    "L2::evict_last",
    "L2::evict_normal",
    "level::eviction_priority",
    "unified",
)
_SCOPES = ("cta", "cluster", "gpu", "sys")
_ORDERS = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")


def _space(context: Context, number: int) -> tuple[Where, Space]:
    """Addresses, and the memory that the modifiers or a variable's name say."""
    named = space_of(context)
    addresses, of_symbol = context.address(number)
    if of_symbol in (Space.LOCAL, Space.PARAMETER) and named in (Space.LOCAL, Space.PARAMETER):
        return addresses, of_symbol  # .param names a kernel's parameter or a variable of a call
    return addresses, named or Space.GENERIC


def _common(context: Context, kind: Type) -> tuple[int, bool]:
    """(elements of the vector, ordered?)"""
    lanes = context.take("v2", "v4", "v8")
    count = int(lanes[1]) if lanes else 1
    strong = bool([context.take(o) for o in _ORDERS if o in context.left])
    context.drop(("weak", *_SCOPES, *_CACHES, *_HINTS))
    if kind.bits == 0 or count * kind.bytes > 32:
        context.fail(f"{count} x .{kind.name} is no access")
    return count, strong


def load(context: Context) -> None:
    kind = context.type()
    constant = bool(context.take("nc")) or context.instruction.opcode == "ldu"
    addresses, space = _space(context, 1)
    count, strong = _common(context, kind)
    context.done(2)
    targets = context.vector(0)
    if len(targets) != count:
        context.fail(f"{len(targets)} registers for {count} elements")
    writes: list[Write] = [context.writer(o, kind) for o in targets]
    access = Access(space, kind.dtype, count, strong, constant)
    _watch(context, access)

    def run(frame: Any, lanes: Lanes) -> None:
        for write, value in zip(writes, spaces.load(frame, lanes, addresses(frame, lanes), access)):
            write(frame, lanes, value)

    context.emit(run, "load")


def store(context: Context) -> None:
    kind = context.type()
    addresses, space = _space(context, 0)
    count, strong = _common(context, kind)
    context.done(2)
    sources = context.vector(1)
    if len(sources) != count:
        context.fail(f"{len(sources)} registers for {count} elements")
    reads = [context.reader(o, kind) for o in sources]
    access = Access(space, kind.dtype, count, strong)
    _watch(context, access)

    def run(frame: Any, lanes: Lanes) -> None:
        values = [read(frame, lanes) for read in reads]
        spaces.store(frame, lanes, addresses(frame, lanes), access, values)

    context.emit(run, "store")


def _watch(context: Context, access: Access) -> None:
    if access.space in (Space.SHARED, Space.GLOBAL, Space.GENERIC):
        context.watch_width(access.size)


# ------------------------------------------------------------------------------------------------ atomics
_CHANGES: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}


def _change(kind: Type, name: str) -> Callable[..., Array]:
    if kind.is_float and name in ("min", "max"):
        return lifted(kind, minimum if name == "min" else maximum)
    if kind.pair or kind.kind == "bf":
        return lifted(kind, _CHANGES[name])
    return _CHANGES[name]


def atomic_operation(context: Context) -> None:
    kind = context.type()
    returns = context.instruction.opcode == "atom"
    where, space = _space(context, 1 if returns else 0)
    addresses = per_lane(where)
    name = context.take(*_CHANGES)
    if not name:
        context.fail("no atomic operation that is supported")
    context.drop(("noftz", "relaxed", "acquire", "release", "acq_rel", *_SCOPES, *_HINTS))
    first = 2 if returns else 1
    operands = 2 if name == "cas" else 1
    context.done(first + operands)
    reads = [context.read(first + i, kind) for i in range(operands)]
    sink = returns and getattr(context.operand(0), "text", "") == "_"
    write = context.write(0, kind) if returns and not sink else None
    access = Access(space, kind.dtype, 1, True)
    change = _change(kind, name)
    context.watch_width(access.size)

    def run(frame: Any, lanes: Lanes) -> None:
        values = [read(frame, lanes) for read in reads]
        where = addresses(frame, lanes)
        old = atomic(frame, lanes, where, access, change, values, write is not None)
        if write is not None:
            write(frame, lanes, old)

    context.emit(run, "atomic")


# ------------------------------------------------------------------------------------------------ copies
def copy(context: Context) -> None:
    if not context.take("async"):
        context.fail("only cp.async is supported")
    if context.take("commit_group"):
        context.done(0)
        context.emit(lambda frame, lanes: frame.copies.commit(frame, lanes), "copy")
    elif context.take("wait_group"):
        allowed = context.number(0)
        context.done(1)
        context.emit(lambda frame, lanes: frame.copies.wait(frame, lanes, allowed), "copy")
    elif context.take("wait_all"):
        context.done(0)
        context.emit(_wait_all, "copy")
    elif context.take("bulk", "mbarrier"):
        context.fail("bulk copies and mbarrier are not supported")
    else:
        _start_copy(context)


def _wait_all(frame: Any, lanes: Lanes) -> None:
    frame.copies.commit(frame, lanes)
    frame.copies.wait(frame, lanes, 0)


def _start_copy(context: Context) -> None:
    cache = context.take("ca", "cg")
    context.take("shared", "shared::cta")
    if not context.take("global"):
        context.fail("a copy goes from .global to .shared")
    context.drop(_HINTS)
    count = len(context.operands)
    if count not in (3, 4):
        context.fail(f"{count} operands where 3 or 4 belong")
    context.done(count)
    size = context.number(2)
    if size not in ((16,) if cache == "cg" else (4, 8, 16)):
        context.fail(f"a copy of {size} bytes")
    target = per_lane(context.address(0)[0])
    source = per_lane(context.address(1)[0])
    wanted = context.read(3, U32) if count == 4 else None
    context.watch_width(size if wanted is None else 1)

    def run(frame: Any, lanes: Lanes) -> None:
        amount = wanted(frame, lanes) if wanted is not None else None
        spaces.start_copy(frame, lanes, target(frame, lanes), source(frame, lanes), size, amount)

    context.emit(run, "copy")


# ------------------------------------------------------------------------------------------------ fences
def fence(context: Context) -> None:
    """One that hands shared memory over to products is followed; others order what is in order already."""
    if not (context.take("proxy") and context.take("async")):
        ignored(context)
        return
    context.drop(("shared::cta",))
    if context.left:  # of other memory
        ignored(context)
        return
    context.done(0)
    context.emit(lambda frame, lanes: frame.products.publish(lanes), "fence")


def ignored(context: Context) -> None:
    """Hints and orders of memory: lanes run in lock step, so memory is ordered already."""
    context.left.clear()
    context.emit(lambda frame, lanes: None, "fence")


BUILDERS: dict[str, Callable[[Context], None]] = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic_operation,
    "red": atomic_operation,
    "cp": copy,
    "fence": fence,
    **dict.fromkeys(("membar", "prefetch", "prefetchu", "applypriority", "discard"), ignored),
}
