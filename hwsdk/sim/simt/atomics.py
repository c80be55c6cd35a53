"""Read, change and write back, one lane after the other in their order.

Design choice: lanes with different addresses are done at once; where addresses repeat, in rounds: the first of each
address, then the second, and so on.  What nobody reads back goes through the ufunc's own `at`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hwsdk.sim.simt import spaces
from hwsdk.sim.simt.faults import FaultKind
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.registers import numbers, spread
from hwsdk.sim.simt.spaces import Access, Space
from hwsdk.sim.simt.storage import READ_MASK, READ_WANT

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame

#: new value from (old, operand, ...); arrays of equal length
Change = Callable[..., Array]

__all__ = ["Change", "FaultKind", "atomic"]


def atomic(
    frame: Frame,
    lanes: Lanes,
    addresses: Array,
    access: Access,
    change: Change,
    operands: list[Array],
    wanted: bool,
) -> Array:
    """The old values.  `wanted` False: nobody reads them, and the result means nothing."""
    addresses = spread(frame, lanes, addresses)
    operands = [spread(frame, lanes, o) for o in operands]
    if access.space is not Space.GENERIC:
        return _in_space(frame, lanes, addresses, access, change, operands, wanted, access.space)
    old = np.zeros(addresses.size, access.dtype)
    for space, where, within in spaces._parts(frame, lanes, addresses):
        chosen = np.arange(addresses.size) if where is None else where
        some = numbers(frame, lanes)[chosen]
        part = [o[chosen] for o in operands]
        old[chosen] = _in_space(frame, some, within, access, change, part, wanted, space)
    return old


def _in_space(
    frame: Frame,
    lanes: Lanes,
    addresses: Array,
    access: Access,
    change: Change,
    operands: list[Array],
    wanted: bool,
    space: Space,
) -> Array:
    size = access.size
    storage, offsets, span = spaces.locate(frame, lanes, addresses, size, space, "atomic")
    if frame.checks.uninitialised and not storage.all_states(offsets, size, READ_MASK, READ_WANT):
        spaces.refuse(frame, lanes, storage, offsets, size, READ_MASK, READ_WANT, space, "atomic")
    spaces.check_write(frame, lanes, storage, offsets, size, span, space)
    spaces.watch(frame, lanes, space, lambda table, tags: table.change(offsets, size, tags, span))
    spaces.count_access(frame, lanes, addresses, size, space, read=True)
    view = storage.view(access.dtype)
    index = (offsets >> offsets.dtype.type(size.bit_length() - 1)).astype(np.int64)
    if not wanted and isinstance(change, np.ufunc):
        change.at(view, index, operands[0])
        return operands[0]
    return _in_rounds(view, index, change, operands)


def _in_rounds(view: Array, index: Array, change: Change, operands: list[Array]) -> Array:
    old = np.empty(index.size, view.dtype)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    rank = np.arange(index.size) - np.repeat(starts, np.diff(np.append(starts, index.size)))
    for number in range(int(rank.max()) + 1 if index.size else 0):
        some = order[rank == number]
        old[some] = view[index[some]]
        view[index[some]] = change(old[some], *(o[some] for o in operands))
    return old
