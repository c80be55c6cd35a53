"""The slow, general accesses of generated code: any index per lane, any mask.

Design choice: one pair of functions with all checks.  Speed comes from not needing them; see `access_source`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from hwsdk.sim.cells import Array, Cell, Integers
from hwsdk.sim.faults import Fault, check_read_at, check_write_at, out_of_bounds, race_read_at, race_write_at


@lru_cache(maxsize=256)
def _counting(count: int, trailing: int) -> Integers:
    values = np.arange(count).reshape((count,) + (1,) * trailing)
    values.flags.writeable = False
    return values


def lanes(base: int, count: int, trailing: int) -> Integers:
    """base, base + 1, ... along one axis, with `trailing` axes of length 1 behind it."""
    values = _counting(count, trailing)
    return values + base if base else values


def accumulate(ufunc: Any, old: Any, part: Any, count: int, behind: int) -> Array:
    """old combined with part[0], part[1], ... in order along the axis that has `behind` axes after it."""
    old, part = np.asarray(old), np.asarray(part)
    first = np.broadcast_shapes(old.shape, (1,) * (behind + 1))
    shape = np.broadcast_shapes(first, part.shape, (count,) + (1,) * behind)
    axis = len(shape) - behind - 1
    start = np.broadcast_to(old, (*shape[:axis], 1, *shape[axis + 1 :]))
    steps = np.concatenate([start, np.broadcast_to(part, shape)], axis)
    done: Array = ufunc.accumulate(steps, axis, steps.dtype)
    return done[(slice(None),) * axis + (slice(-1, None),)]


def clash(cell: Cell) -> NoReturn:
    """Several lanes store to one element."""
    raise Fault(f"lanes store to the same element of {cell.name}")


def no_case(index: int, cases: int) -> NoReturn:
    """A switch has no such case."""
    raise Fault(f"switch index {index} is outside 0..{cases - 1}")


def _locate(cell: Cell, index: tuple[Any, ...], mask: Any) -> tuple[Integers, Any]:
    """Offsets of all lanes and the mask, of one shape; where the mask is false the offset is 0."""
    parts = np.broadcast_arrays(*(np.asarray(i, np.int64) for i in index), True if mask is None else mask)
    active = None if mask is None else np.asarray(parts[-1])
    offset: Any = 0
    for axis, part in enumerate(parts[:-1]):
        extent = cell.shape[axis]
        bad = (part < 0) | (part >= extent)
        if active is not None:
            bad &= active
        if bad.any():
            wrong = int(part[bad].flat[0])
            out_of_bounds(cell, axis, wrong, wrong)
        offset = offset + part * cell.strides[axis]
    offset = np.asarray(offset, np.int64)
    return (offset if active is None else np.where(active, offset, 0)), active


def gather(cell: Cell, index: tuple[Any, ...], mask: Any, me: int, counts: list[int], counter: int) -> Array:
    """The elements at `index`; zero where the mask is false, without touching memory there."""
    where, active = _locate(cell, index, mask)
    touched = where if active is None else where[active]
    counts[counter] += touched.size
    if touched.size and cell.state:
        check_read_at(cell, touched)
    if touched.size and me:
        race_read_at(cell, me, touched)
    if active is None:
        return cell.flat[where]
    if not touched.size:
        return np.zeros(where.shape, cell.dtype)
    return np.where(active, cell.flat[where], np.zeros((), cell.dtype))


def scatter(
    cell: Cell, index: tuple[Any, ...], mask: Any, value: Any, me: int, counts: list[int], counter: int
) -> None:
    """Stores `value` at `index` where the mask holds; no two lanes may meet."""
    where, active = _locate(cell, index, mask)
    shape = np.broadcast_shapes(where.shape, np.shape(value))
    where, value = np.broadcast_to(where, shape), np.broadcast_to(value, shape)
    if active is not None:
        active = np.broadcast_to(active, shape)
        where, value = where[active], value[active]
    counts[counter] += where.size
    if not where.size:
        return
    if where.size > 1 and np.unique(where).size != where.size:
        clash(cell)
    if cell.state:
        check_write_at(cell, where)
    if me:
        race_write_at(cell, me, where)
    cell.flat[where] = value
    if cell.state:
        cell.valid[where] = 1
