"""A counting simulator of a scratchpad core, and an exhaustive search over its tilings.

It walks every step of a tiled matrix product with true edge sizes, keeps a clock for the matrix unit and
one for an in-order copy engine, and knows when a buffer is free again.  It shares no code and no formula
with the planner: the planner's choice is judged by it.

The program that it walks, for step s: ask for the tiles of step s + buffers - 1 that changed; wait for
those of step s; multiply; if C moves on, send the C tile away (complete, or partial sums that must come
back later).
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import numpy as np

ORDERS = tuple("".join(p) for p in itertools.permutations("mnk"))
ACC = 4


@dataclass(frozen=True)
class Chip:
    unit: tuple[int, int, int] = (16, 16, 16)
    interval: float = 16
    pad: int = 256 * 1024
    acc: int = 64 * 1024  # 0: C is accumulated in the scratchpad
    dram: float = 16  # bytes per cycle
    feed: float = 64
    latency: float = 100
    setup: float = 30
    fill: float = 32  # cycles per accumulator tile
    engine: bool = True  # False: the program waits for every copy
    out: int = 1


@dataclass(frozen=True)
class Tiling:
    """Level tile, accumulator tile, loop order, buffers of each staged operand."""

    m: int
    n: int
    k: int
    mr: int
    nr: int
    order: str
    buffers: int


def pieces(extent: int, size: int) -> list[int]:
    return [min(size, extent - start) for start in range(0, extent, size)]


def scratchpad_need(chip: Chip, shape: tuple[int, int, int], t: Tiling) -> int | None:
    """Peak bytes in the scratchpad; None if the accumulators cannot hold their tile."""
    rows, columns, depth = shape
    if chip.acc and t.mr * t.nr * ACC > chip.acc:
        return None
    whole_a = t.m >= rows and t.k >= depth
    whole_b = t.n >= columns and t.k >= depth
    need = t.m * t.k * (1 if whole_a else t.buffers) + t.k * t.n * (1 if whole_b else t.buffers)
    if not c_sits_in_accumulators(chip, shape, t):
        need += t.m * t.n * ACC
    return need


def c_sits_in_accumulators(chip: Chip, shape: tuple[int, int, int], t: Tiling) -> bool:
    if not chip.acc:
        return False
    return t.k >= shape[2] or (t.order[2] == "k" and t.m <= t.mr and t.n <= t.nr)


def multiply_cycles(chip: Chip, m: int, n: int, k: int, t: Tiling, c_in_acc: bool) -> float:
    um, un, uk = chip.unit
    uses = math.ceil(m / um) * math.ceil(n / un) * math.ceil(k / uk)
    read = uses * (um * uk + uk * un)
    if not chip.acc:
        read += uses * 2 * um * un * ACC
    elif not c_in_acc:
        read += 2 * m * n * ACC
    starts = math.ceil(m / t.mr) * math.ceil(n / t.nr)
    return max(uses * chip.interval, read / chip.feed) + starts * chip.fill


def walk(chip: Chip, shape: tuple[int, int, int], t: Tiling, limit: float = math.inf) -> float:
    """Cycles of the whole product; inf as soon as it is certain that they exceed `limit`."""
    sizes = {"m": pieces(shape[0], t.m), "n": pieces(shape[1], t.n), "k": pieces(shape[2], t.k)}
    c_in_acc = c_sits_in_accumulators(chip, shape, t)
    work = {
        (m, n, k): multiply_cycles(chip, m, n, k, t, c_in_acc)
        for m in set(sizes["m"]) for n in set(sizes["n"]) for k in set(sizes["k"])
    }  # fmt: skip
    axes = [range(len(sizes[d])) for d in t.order]
    at = [t.order.index(d) for d in "mnk"]
    steps = [(s[at[0]], s[at[1]], s[at[2]]) for s in itertools.product(*axes)]
    left = _work_left(sizes, work)
    engine = unit = 0.0
    held: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
    arrived = {"a": [0.0] * len(steps), "b": [0.0] * len(steps)}
    free = {"a": [0.0] * t.buffers, "b": [0.0] * t.buffers}
    slot = {"a": [0] * len(steps), "b": [0] * len(steps)}
    turn = {"a": 0, "b": 0}
    seen: dict[tuple[int, int], int] = {}
    asked = 0
    c_back = 0.0
    ahead = t.buffers - 1
    for s, (im, i_n, ik) in enumerate(steps):
        while asked <= min(s + ahead, len(steps) - 1):
            jm, jn, jk = steps[asked]
            m, n, k = sizes["m"][jm], sizes["n"][jn], sizes["k"][jk]
            for x, tile, count in (("a", (jm, jk), m * k), ("b", (jk, jn), k * n)):
                if held[x] == tile:
                    arrived[x][asked], slot[x][asked] = arrived[x][asked - 1], slot[x][asked - 1]
                    continue
                if held[x] is not None:
                    turn[x] = (turn[x] + 1) % t.buffers
                held[x] = tile
                start = max(engine, free[x][turn[x]], 0.0 if chip.engine else unit)
                engine = start + chip.setup + count / chip.dram
                arrived[x][asked], slot[x][asked] = engine + chip.latency, turn[x]
                if not chip.engine:
                    unit = engine + chip.latency
            asked += 1
        m, n, k = sizes["m"][im], sizes["n"][i_n], sizes["k"][ik]
        spent = work[m, n, k]
        unit = max(unit, arrived["a"][s], arrived["b"][s], c_back) + spent
        left -= spent
        if unit + left >= limit:
            return math.inf
        free["a"][slot["a"][s]] = free["b"][slot["b"][s]] = unit
        c = (im, i_n)
        seen[c] = seen.get(c, 0) + 1
        following = steps[s + 1][:2] if s + 1 < len(steps) else None
        if following != c:
            done = seen[c] == len(sizes["k"])
            engine = max(engine, unit) + chip.setup + m * n * (chip.out if done else ACC) / chip.dram
            if not chip.engine:
                unit = engine + chip.latency
            if following in seen:
                fm, fn = sizes["m"][following[0]], sizes["n"][following[1]]
                engine = engine + chip.setup + fm * fn * ACC / chip.dram
                c_back = engine + chip.latency
                if not chip.engine:
                    unit = c_back
    return max(unit, engine)


def _work_left(sizes: dict[str, list[int]], work: dict[tuple[int, int, int], float]) -> float:
    counts = {d: {x: v.count(x) for x in set(v)} for d, v in sizes.items()}
    return sum(w * counts["m"][m] * counts["n"][n] * counts["k"][k] for (m, n, k), w in work.items())


# ------------------------------------------------------------------------------------------------ exhaustive search
def block_sizes(extent: int, granule: int) -> list[int]:
    """Every balanced block size."""
    granules = -(-extent // granule)
    return sorted({-(-granules // c) * granule for c in range(1, granules + 1)})


@dataclass(frozen=True)
class Found:
    cycles: float
    tiling: Tiling
    exact: bool
    walked: int
    considered: int


def search(
    chip: Chip, shape: tuple[int, int, int], seconds: float = 8.0, start: Tiling | None = None
) -> Found:
    """The best tiling over all balanced tiles, orders and buffers.

    Candidates are sorted by a bound that no schedule beats (the unit alone, the engine alone) and walked
    until the bound passes the best time: then the result is exact.  `start` gives a first best time.
    """
    rows = sorted(_bounded(chip, shape), key=lambda r: r[0])
    best = (walk(chip, shape, start), start) if start is not None else (math.inf, None)
    began, walked = time.monotonic(), 0
    exact = True
    for bound, m, n, k, mr, nr, order, buffers in rows:
        if bound >= best[0]:
            break
        if time.monotonic() - began > seconds:
            exact = False
            break
        tiling = Tiling(int(m), int(n), int(k), int(mr), int(nr), order, buffers)
        cycles = walk(chip, shape, tiling, best[0])
        walked += 1
        if cycles < best[0]:
            best = (cycles, tiling)
    assert best[1] is not None
    return Found(best[0], best[1], exact, walked, len(rows))


def _bounded(chip: Chip, shape: tuple[int, int, int]) -> list[tuple]:  # type: ignore[type-arg]
    rows, columns, depth = shape
    um, un, uk = chip.unit
    grid = np.array(
        list(itertools.product(block_sizes(rows, um), block_sizes(columns, un), block_sizes(depth, uk)))
    )
    m, n, k = grid.T.astype(float)
    found = []
    for mr, nr in _accumulator_tiles(chip, m, n):
        for buffers, order in itertools.product((1, 2) if chip.engine else (1,), ORDERS):
            ok = _fits(chip, shape, m, n, k, mr, nr, order, buffers)
            if ok.any():
                bound = _bound(chip, shape, *(x[ok] for x in (m, n, k, mr, nr)), order)
                found += [
                    (*z, order, buffers) for z in zip(bound, m[ok], n[ok], k[ok], mr[ok], nr[ok], strict=True)
                ]
    return found


def _accumulator_tiles(chip: Chip, m: np.ndarray, n: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The whole tile where the accumulators hold it; else tall, square and wide parts of it."""
    um, un, _ = chip.unit
    if not chip.acc:
        return [(np.full_like(m, um), np.full_like(n, un))]
    room = chip.acc // ACC
    whole = m * n <= room
    shapes = []
    for aspect in (0.25, 1.0, 4.0):
        mr = np.minimum(m, np.maximum(um, np.floor(np.sqrt(room * aspect) / um) * um))
        nr = np.minimum(n, np.maximum(un, np.floor(room / mr / un) * un))
        shapes.append((np.where(whole, m, mr), np.where(whole, n, nr)))
    return shapes if (~whole).any() else shapes[:1]


def _fits(chip: Chip, shape, m, n, k, mr, nr, order, buffers) -> np.ndarray:  # type: ignore[no-untyped-def]
    rows, columns, depth = shape
    need = m * k * np.where((m >= rows) & (k >= depth), 1, buffers)
    need = need + k * n * np.where((n >= columns) & (k >= depth), 1, buffers)
    in_acc = (chip.acc > 0) & ((k >= depth) | ((order[2] == "k") & (m <= mr) & (n <= nr)))
    need = need + np.where(in_acc, 0, m * n * ACC)
    return (need <= chip.pad) & ((chip.acc == 0) | (mr * nr * ACC <= chip.acc))


def _bound(chip: Chip, shape, m, n, k, mr, nr, order) -> np.ndarray:  # type: ignore[no-untyped-def]
    """What unit and engine each need at least."""
    extent = dict(zip("mnk", shape, strict=True))
    tile = {"m": m, "n": n, "k": k}
    trips = {d: np.ceil(extent[d] / tile[d]) for d in "mnk"}
    granules = [np.ceil(extent[d] / u) for d, u in zip("mnk", chip.unit, strict=True)]
    uses = granules[0] * granules[1] * granules[2]
    read = uses * (chip.unit[0] + chip.unit[1]) * chip.unit[2]
    if not chip.acc:
        read = read + uses * 2 * chip.unit[0] * chip.unit[1] * ACC
    starts = np.maximum(trips["m"], np.ceil(extent["m"] / mr)) * np.maximum(
        trips["n"], np.ceil(extent["n"] / nr)
    )
    unit = np.maximum(uses * chip.interval, read / chip.feed) + starts * trips["k"] * chip.fill
    count, volume = {}, {}
    for x, dims in (("a", "mk"), ("b", "kn"), ("c", "mn")):
        count[x], repeats = np.ones_like(m), np.ones_like(m)
        for depth in (2, 1, 0):  # outside the innermost loop that moves x, every loop repeats or moves it
            d = order[depth]
            moves = np.logical_or.reduce(
                [trips[order[i]] > 1 for i in range(depth, 3) if order[i] in dims] or [trips[d] < 0]
            )
            count[x] = np.where(moves, count[x] * trips[d], count[x])
            repeats = np.where(moves & (d not in dims), repeats * trips[d], repeats)
        volume[x] = extent[dims[0]] * extent[dims[1]] * repeats
    outputs = extent["m"] * extent["n"]
    visits = volume["c"] / outputs
    bytes_ = volume["a"] + volume["b"] + outputs * (chip.out + (visits - 1) * 2 * ACC)
    copies = count["a"] + count["b"] + 2 * count["c"] - trips["m"] * trips["n"]
    engine = bytes_ / chip.dram + copies * chip.setup
    first = chip.latency + 2 * chip.setup + (m * k + k * n) / chip.dram
    last = chip.setup
    return np.maximum(unit + first + last, engine) if chip.engine else unit + engine + copies * chip.latency
