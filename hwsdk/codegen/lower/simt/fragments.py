"""Operands of a matrix intrinsic in the registers of a lockstep group: which lane holds which coordinate.

A layout says where a coordinate lies; code for one lane needs the inverse, as expressions over the lane's number.
Design choice: the inverse is read off a table of all places.  In every layout that hardware has, each bit of the lane's
number adds a constant to each coordinate, so the expressions are sums of bit fields; any other layout is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower.simt.rounding import stored_as
from hwsdk.codegen.planner.roles import Roles, contraction_roles
from hwsdk.graph.dims import floordiv, mod, sym
from hwsdk.intrinsics import compiled
from hwsdk.target_desc.model import Intrinsic, Target

LANE = "lane"  # the loop variable over lanes of a lockstep group


@dataclass(frozen=True)
class Fragment:
    """coords: names of the coordinates; base[item][c]: coordinate c of the item in lane 0; fields[c]: (shift, bits,
    weight) of the lane's number that are added; number: what that number is called."""

    operand: str
    dtype: str
    coords: tuple[str, ...]
    base: tuple[tuple[int, ...], ...]
    fields: tuple[tuple[tuple[int, int, int], ...], ...]
    number: str = LANE

    @property
    def stored(self) -> str:
        """The dtype in which its elements lie in registers and memory."""
        return stored_as(self.dtype)

    @property
    def items(self) -> int:
        """Elements of one lane."""
        return len(self.base)

    def table(self, lanes: int) -> NDArray[np.int64]:
        """Coordinate c of every (lane, item): [lanes, items, c]."""
        number = np.arange(lanes)
        moved = [
            sum(((number >> shift) % (1 << bits)) * weight for shift, bits, weight in row)
            for row in self.fields
        ]
        lane = np.stack([np.broadcast_to(x, lanes) for x in moved], axis=-1)
        return np.asarray(np.array(self.base, np.int64)[None] + lane[:, None])

    def at(self, item: int, coord: str) -> Index:
        """The coordinate of an item, over the lane's number."""
        c = self.coords.index(coord)
        total: Index = self.base[item][c]
        for shift, bits, weight in self.fields[c]:
            lane = sym(self.number)
            part = floordiv(lane, 1 << shift) if shift else lane
            total = total + mod(part, 1 << bits) * weight
        return total

    def runs(self, coord: str) -> tuple[tuple[int, int], ...]:
        """(first item, length) of neighbours along a coordinate with all others equal, aligned to their length."""
        c = self.coords.index(coord)
        length = self.items
        while length > 1 and not all(self._run(first, length, c) for first in range(0, self.items, length)):
            length //= 2
        return tuple((first, length) for first in range(0, self.items, max(1, length)))

    def _run(self, first: int, length: int, c: int) -> bool:
        if first + length > self.items:
            return False
        for a, b in pairwise(self.base[first : first + length]):
            if tuple(y - x for x, y in zip(a, b)) != tuple(int(i == c) for i in range(len(a))):
                return False
        return True


def fragment(target: Target, intrinsic: str, operand: str) -> Fragment | None:
    """The fragment of an operand; None where its layout is no sum of bit fields, or leaves holes."""
    x = compiled(target)[intrinsic]
    places = x.sample(operand)
    coords = x.coords(operand)
    lanes, items = x.lanes, places.items
    table = np.full((lanes, items, len(coords)), -1, np.int64)
    for index in np.ndindex(places.lane.shape):
        table[places.lane[index], places.item[index]] = index[: len(coords)]  # the rest: copies of it
    if (table < 0).any():
        return None
    return fragment_of(operand, x.operands[operand].dtype, coords, table)


def fragment_of(
    operand: str, dtype: str, coords: tuple[str, ...], table: NDArray[np.int64]
) -> Fragment | None:
    """table[lane, item, c]: coordinate c of a place.  None where it is no sum of bit fields of the lane's number."""
    lanes, items, _ = table.shape
    if lanes & (lanes - 1):
        return None
    weights = [
        [int(table[1 << bit, 0, c] - table[0, 0, c]) for bit in range(lanes.bit_length() - 1)]
        for c in range(len(coords))
    ]
    number = np.arange(lanes)
    for c, row in enumerate(weights):
        moved = sum(((number >> bit) & 1) * w for bit, w in enumerate(row))
        if (table[:, :, c] != table[0, :, c] + np.broadcast_to(moved, lanes)[:, None]).any():
            return None
    base = tuple(tuple(int(v) for v in table[0, item]) for item in range(items))
    fields = tuple(_fields(row) for row in weights)
    return Fragment(operand, dtype, coords, base, fields)


def _fields(weights: list[int]) -> tuple[tuple[int, int, int], ...]:
    """Bits of the lane's number that count up together."""
    out: list[tuple[int, int, int]] = []
    bit = 0
    while bit < len(weights):
        if not weights[bit]:
            bit += 1
            continue
        end = bit + 1
        while end < len(weights) and weights[end] == 2 * weights[end - 1]:
            end += 1
        out.append((bit, end - bit, weights[bit]))
        bit = end
    return tuple(out)


@dataclass(frozen=True)
class MatrixUse:
    """A product of fragments by a lockstep group: a matrix intrinsic, or plain arithmetic of each lane (None)."""

    intrinsic: Intrinsic | None
    roles: Roles
    a: Fragment
    b: Fragment
    acc: Fragment
    addend: str  # operand that holds c; the same as acc.operand where it is updated in place

    @property
    def members(self) -> int:
        """Lockstep groups that execute one use."""
        return 1

    @property
    def row(self) -> str:
        """Name of the coordinate along rows."""
        return next(c for c in self.acc.coords if c in self.a.coords)

    @property
    def column(self) -> str:
        return next(c for c in self.acc.coords if c in self.b.coords)

    @property
    def depth(self) -> str:
        return next(c for c in self.a.coords if c in self.b.coords)


def plain_use(width: int, across: int, rows: int, columns: int, dtype: str) -> MatrixUse:
    """Lanes in a grid, `across` of them side by side, each with rows x columns elements of the result."""
    bits, shift = width.bit_length() - 1, across.bit_length() - 1
    down = ((shift, bits - shift, rows),) if bits > shift else ()
    side = ((0, shift, columns),) if shift else ()
    a = Fragment("a", dtype, ("m", "k"), tuple((i, 0) for i in range(rows)), (down, ()))
    b = Fragment("b", dtype, ("k", "n"), tuple((0, j) for j in range(columns)), ((), side))
    cells = tuple((i, j) for i in range(rows) for j in range(columns))
    acc = Fragment("acc", dtype, ("m", "n"), cells, (down, side))
    roles = Roles("a", "b", "acc", width // across * rows, across * columns, 1, False)
    return MatrixUse(None, roles, a, b, acc, "acc")


class TargetKey:
    """A target as a cache key, by identity."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __hash__(self) -> int:
        return id(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TargetKey) and other.target is self.target


def matrix_uses(target: Target) -> tuple[MatrixUse, ...]:
    """All matrix intrinsics of lockstep groups whose operands lie in registers."""
    return _matrix_uses(TargetKey(target))


@lru_cache(maxsize=16)
def _matrix_uses(key: TargetKey) -> tuple[MatrixUse, ...]:
    target = key.target
    out = []
    registers = {m.name for m in target.memories if m.kind == "registers"}
    for x in target.intrinsics.values():
        roles = contraction_roles(target, x)
        if roles is None or roles.broadcast_a or compiled(target)[x.name].lanes == 1:
            continue
        if any(o.place not in registers for o in x.operands.values()) or roles.k < 2:
            continue
        parts = [fragment(target, x.name, o) for o in (roles.a, roles.b, roles.acc)]
        rest = [o for o in x.operands if o not in (roles.a, roles.b, roles.acc)]
        if any(p is None for p in parts) or len(rest) > 1:
            continue
        a, b, acc = parts
        assert a is not None
        assert b is not None
        assert acc is not None
        out.append(MatrixUse(x, roles, a, b, acc, rest[0] if rest else roles.acc))
    return tuple(out)
