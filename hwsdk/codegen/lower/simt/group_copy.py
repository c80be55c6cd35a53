"""Copies of a lockstep group from the scratchpad into registers that deal elements out among its lanes.

Such a copy reads lines: some lanes each give the address of a few neighbours, and every lane receives elements of
several lines.  Design choice: whether one can fill a fragment, and which address a lane must then give, is read off the
layouts of its two operands; nothing is known of it beside that it copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.loop_ir import Intrin, View
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment, fragment_of
from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics import compiled

_COPY = re.compile(r"(\w+)\[([\w,]+)\]=(\w+)\[([\w,]+)\]")


@dataclass(frozen=True, eq=False)
class GroupCopy:
    """came[lane, item]: the lane that gave the address of the element that arrives there, and which of its neighbours
    it is.  givers: lanes that give addresses, from 0 on; length: neighbours behind one address."""

    name: str
    target: str
    source: str
    operands: tuple[str, ...]
    bits: int
    align: int  # bytes that each address is a multiple of
    came: NDArray[np.int64]
    givers: int
    length: int

    @property
    def items(self) -> int:
        """Elements that one lane receives."""
        return int(self.came.shape[1])

    def use(self, target: View, source: View) -> Intrin:
        """One use: registers from `target` on; each lane's own address."""
        ends = {self.target: target, self.source: source}
        return Intrin(self.name, tuple((n, ends[n]) for n in self.operands))

    def lines(self, part: Fragment, coord: str, size: int, first: int, inner: str) -> Fragment | None:
        """What each lane must give the address of, to fill items `first` .. of fragments that follow each other along
        `coord` in steps of `size`; None where the neighbours of an address do not lie along `inner`."""
        return _lines(self, part, coord, size, first, inner)


@lru_cache(maxsize=4096)  # asked for every fragment of an unrolled loop, with few different answers
def _lines(copy: GroupCopy, part: Fragment, coord: str, size: int, first: int, inner: str) -> Fragment | None:
    if DTYPES[part.dtype].bits != copy.bits:
        return None
    lanes = copy.came.shape[0]
    own = part.table(lanes)
    along = part.coords.index(coord)
    wanted = np.empty((lanes, copy.items, len(part.coords)), np.int64)
    for item in range(copy.items):
        tile, place = divmod(first + item, part.items)
        wanted[:, item] = own[:, place]
        wanted[:, item, along] += tile * size
    given = np.full((lanes, copy.length, len(part.coords)), -1, np.int64)
    given[copy.came[..., 0], copy.came[..., 1]] = wanted
    given[copy.givers :] = given[np.arange(copy.givers, lanes) % copy.givers]
    steps = np.zeros((copy.length, len(part.coords)), np.int64)
    steps[:, part.coords.index(inner)] = np.arange(copy.length)
    if (given < 0).any() or (given != given[:, :1] + steps).any():
        return None
    return fragment_of(part.operand, part.dtype, part.coords, given)


def group_copies(chip: SimtChip) -> tuple[GroupCopy, ...]:
    """All of a description, those that move most first."""
    return _found(_Key(chip))


class _Key:
    """A chip as a cache key, by the identity of its description."""

    def __init__(self, chip: SimtChip) -> None:
        self.chip = chip

    def __hash__(self) -> int:
        return id(self.chip.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.chip.target is self.chip.target


@lru_cache(maxsize=16)
def _found(key: _Key) -> tuple[GroupCopy, ...]:
    found = [c for name in key.chip.target.intrinsics if (c := _copy(key.chip, name)) is not None]
    return tuple(sorted(found, key=lambda c: -c.items))


def _copy(chip: SimtChip, name: str) -> GroupCopy | None:
    x = compiled(chip.target)[name]
    match = _COPY.fullmatch("".join(x.spec.semantics.split()))
    if match is None or chip.scratch is None or x.lanes != chip.width or x.runtime_dims:
        return None
    target, source = match[1], match[3]
    ends = x.operands
    if set(ends) != {target, source} or ends[target].dtype != ends[source].dtype:
        return None
    if (ends[target].place, ends[source].place) != (chip.registers.name, chip.scratch.name):
        return None
    names = x.coords(target)
    if (match[2].split(","), match[4].split(",")) != (list(names), list(x.coords(source))):
        return None
    to, since = x.sample(target), x.sample(source)
    turn = [x.coords(source).index(n) for n in names]
    giver, place = (np.transpose(a, turn) for a in (since.lane, since.item))
    came = np.full((x.lanes, to.items, 2), -1, np.int64)
    came[to.lane, to.item, 0], came[to.lane, to.item, 1] = giver, place
    givers = int(giver.max()) + 1
    if (came < 0).any() or givers & (givers - 1):
        return None
    bits, align = DTYPES[ends[target].dtype].bits, ends[source].align_bytes or 1
    return GroupCopy(name, target, source, tuple(ends), bits, align, came, givers, int(place.max()) + 1)
