"""Operand layouts: coordinates -> (lane, item), in the expression language of the semantics.

Design choice: a layout is its text; questions about it are answered on the two integer arrays that it gives over the
grid of coordinates (is it one-to-one, which lanes, pack, unpack, compare, compose).  Only one algebraic fact is taken
from the text: its strides, when it is affine, because buffers in memory have strides too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwsdk.intrinsics.integers import integer
from hwsdk.intrinsics.numbers import Array
from hwsdk.intrinsics.syntax import Binary, Expr, Name, Number, SemanticsError, Unary, names, parse

MAX_PLACES = 1 << 20
_CACHED_PLACES = 1 << 16  # larger grids are cheaper to rebuild than to keep
_CACHED_LAYOUTS = 256


@dataclass(frozen=True)
class Places:
    """A layout over a grid: the coordinates' axes first, then one axis per replicating dim."""

    lane: Array
    item: Array
    axes: tuple[str, ...]
    rank: int  # how many of the axes are coordinates

    @property
    def lanes(self) -> int:
        return int(self.lane.max()) + 1 if self.lane.size else 0

    @property
    def items(self) -> int:
        return int(self.item.max()) + 1 if self.item.size else 0

    def collision(self) -> tuple[str, str, int, int] | None:
        """Two coordinates at one place, with the lane and item; None when the layout is one-to-one."""
        if not self.item.size:
            return None
        key = (self.lane.astype(np.int64) * self.items + self.item).ravel()
        order = np.argsort(key, kind="stable")
        same = np.nonzero(np.diff(key[order]) == 0)[0]
        if not len(same):
            return None
        pair = [np.unravel_index(order[same[0] + step], self.item.shape) for step in (0, 1)]
        first, second = (", ".join(f"{n}={int(i)}" for n, i in zip(self.axes, p, strict=True)) for p in pair)
        return first, second, int(self.lane[pair[0]]), int(self.item[pair[0]])

    def pack(self, logical: Array, lanes: int | None = None, items: int | None = None) -> Array:
        """Logical tensor -> physical [lanes, items]; replicas are copies, unused places are zero."""
        logical = np.asarray(logical)
        source = np.broadcast_to(
            logical.reshape(logical.shape + (1,) * (len(self.axes) - self.rank)), self.item.shape
        )
        out = np.zeros((lanes or max(1, self.lanes), self.items if items is None else items), logical.dtype)
        out[self.lane, self.item] = source
        return out

    def unpack(self, physical: Array) -> Array:
        """Physical [lanes, items] -> logical tensor (the first replica)."""
        values = np.asarray(physical[self.lane, self.item])
        return (
            values.reshape(*values.shape[: self.rank], -1)[..., 0] if len(self.axes) > self.rank else values
        )


class Layout:
    """`lane = EXPR; item = EXPR` over `coords`; other names are replicating dims or scalar operands (strides)."""

    def __init__(
        self, text: str, coords: tuple[str, ...], dims: Mapping[str, Any], scalars: frozenset[str]
    ) -> None:
        self.text, self.coords = text, coords
        self.lane_expr, self.item_expr = _parts(text)
        used = names(self.item_expr, *(() if self.lane_expr is None else (self.lane_expr,)))
        unknown = sorted(used - set(dims) - scalars)
        if unknown:
            raise SemanticsError(f"unknown name {unknown[0]!r} in the layout; dims: {' '.join(dims)}")
        self.replicas = tuple(d for d in dims if d in used and d not in coords)
        self.scalars = tuple(sorted(used & scalars))
        self.missing = tuple(c for c in coords if c not in used)
        self._cache: dict[tuple[Any, ...], Places] = {}

    @property
    def has_lane(self) -> bool:
        return self.lane_expr is not None

    @property
    def axes(self) -> tuple[str, ...]:
        return self.coords + self.replicas

    def places(
        self, dims: Mapping[str, int], scalars: Mapping[str, int] | None = None
    ) -> tuple[Array, Array]:
        """(lane, item) arrays over the coordinates (and replicating dims, last) for these extents and strides."""
        grid = self.grid(dims, scalars)
        return grid.lane, grid.item

    def grid(self, dims: Mapping[str, int], scalars: Mapping[str, int] | None = None) -> Places:
        """Like `places`, with the operations on them; the arrays are read-only and may be shared."""
        given = scalars or {}
        try:
            key = (*(int(dims[d]) for d in self.axes), *(int(given[s]) for s in self.scalars))
        except KeyError as error:
            raise SemanticsError(f"the layout {self.text!r} needs a value for {error.args[0]!r}") from None
        found = self._cache.get(key)
        if found is None:
            found = self._evaluate(key)
            if found.item.size <= _CACHED_PLACES:
                if len(self._cache) >= _CACHED_LAYOUTS:
                    self._cache.pop(next(iter(self._cache)))
                self._cache[key] = found
        return found

    def _evaluate(self, key: tuple[int, ...]) -> Places:
        shape = key[: len(self.axes)]
        for coordinate in self.missing:
            if shape[self.axes.index(coordinate)] > 1:
                raise SemanticsError(
                    f"the layout does not depend on {coordinate!r}, so elements that differ only in {coordinate} "
                    "collide"
                )
        values: dict[str, Any] = dict(zip(self.scalars, key[len(self.axes) :], strict=True))
        for axis, (name, size) in enumerate(zip(self.axes, shape, strict=True)):
            values[name] = np.arange(size).reshape([size if a == axis else 1 for a in range(len(shape))])
        lane = 0 if self.lane_expr is None else integer(self.lane_expr, values)
        try:
            arrays = [
                np.broadcast_to(np.asarray(v, np.int64), shape)
                for v in (lane, integer(self.item_expr, values))
            ]
        except (OverflowError, ValueError, TypeError):
            raise SemanticsError(f"the layout {self.text!r} is out of range") from None
        return Places(arrays[0], arrays[1], self.axes, len(self.coords))

    def coefficients(self) -> dict[str, Expr | int] | None:
        """Coordinate -> stride of `item` when it is affine with offset 0 and there is no lane; else None.

        A stride is an integer, or an expression over scalar operands (`m*lda + k` gives {m: lda, k: 1}).
        """
        return None if self._affine is None else dict(self._affine)

    @cached_property
    def _affine(self) -> dict[str, Expr | int] | None:
        if self.lane_expr is not None or self.replicas:
            return None
        found: dict[str, Expr | int] = {}
        if not _collect(self.item_expr, set(self.coords), found):
            return None
        return {c: found.get(c, 0) for c in self.coords}

    def strides(self, scalars: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """`coefficients` with the scalars' values."""
        found = self._affine
        if found is None:
            return None
        return {c: s if isinstance(s, int) else int(integer(s, scalars or {})) for c, s in found.items()}


def _parts(text: str) -> tuple[Expr | None, Expr]:
    parts: dict[str, Expr] = {}
    for statement in parse(text):
        if statement.target not in ("lane", "item") or statement.index is not None or statement.assign != "=":
            raise SemanticsError(f"a layout assigns 'lane' and 'item' only, not {statement.target!r}")
        if statement.where is not None or statement.target in parts:
            raise SemanticsError(f"a layout assigns {statement.target!r} once and without a condition")
        parts[statement.target] = statement.expr
    if "item" not in parts:
        raise SemanticsError("a layout must assign 'item'")
    return parts.get("lane"), parts["item"]


def _collect(expr: Expr, coords: set[str], found: dict[str, Expr | int]) -> bool:
    """Add the terms of a sum of (coordinate * stride) to `found`; False if it is something else."""
    match expr:
        case Number(value=0):
            return True
        case Binary(op="+", x=x, y=y):
            return _collect(x, coords, found) and _collect(y, coords, found)
        case Name(name=name) if name in coords:
            return _add(name, 1, found)
        case Binary(op="*", x=x, y=y):
            for one, other in ((x, y), (y, x)):
                if isinstance(one, Name) and one.name in coords and not names(other) & coords:
                    stride = (
                        other.value if isinstance(other, Number) and isinstance(other.value, int) else other
                    )
                    return _add(one.name, stride, found)
    return False


def _add(name: str, stride: Expr | int, found: dict[str, Expr | int]) -> bool:
    if name in found or isinstance(stride, Unary):
        return False
    found[name] = stride
    return True
