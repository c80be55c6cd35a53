"""Versions of one contraction for sizes that are known only at run time, and the rule that picks one.

Design choice: cost every possible version at sample sizes, then add versions greedily while each lowers the
mean log cost noticeably; those that give parts of k to several workers come last, so that they change nothing for
sizes that keep all workers busy.  The full cost function judges at compile time; the selector's short expression
chooses at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from hwsdk.codegen.planner.candidates import fitting_registers
from hwsdk.codegen.planner.contraction import (
    DEFAULT,
    PARTS_GAIN,
    bare_schedule,
    plan,
    plan_parts,
    schedule_of,
)
from hwsdk.codegen.planner.cost import cost
from hwsdk.codegen.planner.explain import reasons
from hwsdk.codegen.planner.fits import Fit, fits
from hwsdk.codegen.planner.levels import Machine, machines
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.problem import Abilities, Contraction, Extent, Range
from hwsdk.codegen.planner.runtime import RunTiles, run_tiles
from hwsdk.codegen.planner.selector import scale_of, select, version_cost
from hwsdk.codegen.planner.tiles import Tiles, Vector
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import PlanError
from hwsdk.graph.dims import Atom, Dim, eq, evaluate, substitute
from hwsdk.target_desc.model import Target

GAIN = 0.02  # a further version must lower the mean log cost by this
SPLIT_CHAINS = 0.01  # what a version with split accumulators must gain, per set: it is longer code
MOST_SAMPLES = 16
MOST_IN_PARTS = 2  # versions that give parts of k to several workers
IMPOSSIBLE = 1e3  # times the best: a version that does not fit a sample

Point = tuple[int, int, int]


@dataclass(frozen=True)
class Version:
    """schedule: at the typical size; tiles: at run time; cost: scaled cycles, to be compared with
    other versions only.  All over the symbols m, n, k (and batch) that are not constant."""

    schedule: ContractionSchedule
    tiles: RunTiles
    cost: Dim


@dataclass(frozen=True)
class Family:
    """select: index of the version for given m, n, k; guards: at which sampled sizes each version is taken;
    mean, worst: predicted time of the best version per size divided by the selected one's."""

    versions: tuple[Version, ...]
    select: Dim
    guards: tuple[str, ...]
    mean: float
    worst: float

    def guard(self, version: int) -> Dim:
        """1 where `version` is the one to take, else 0."""
        return eq(self.select, version)

    def __str__(self) -> str:
        head = (
            f"{len(self.versions)} version(s), {self.mean:.3f} of the best per size (worst {self.worst:.3f})"
        )
        return "\n".join(
            [head, *(f"  {g}: {v.schedule}" for g, v in zip(self.guards, self.versions, strict=True))]
        )


def family(
    target: Target,
    problem: Contraction,
    samples: Sequence[Point] = (),
    most: int = 4,
    abilities: Abilities = DEFAULT,
) -> Family:
    """Versions for a contraction with ranges; `samples`: (m, n, k) to plan for (else the ranges' own
    samples)."""
    points = tuple(samples) or sample_points(problem)
    found = machines(target, problem.at(), abilities)
    scale = scale_of(found)
    whole = replace(abilities, split_k=False)
    pools = [(m, tuple(_pool(m, target, problem, points, whole))) for m in found]
    table = np.concatenate([_costs(m, problem, pool, points, abilities) for m, pool in pools])
    if not np.isfinite(table.min(0)).all():
        raise PlanError(f"target {target.name}: no version of {problem.at()} fits every size")
    owners = [(m, v) for m, pool in pools for v in pool]
    plainer = 1 + SPLIT_CHAINS * np.array([[v.schedule.k_chains - 1] for _, v in owners])
    chosen = greedy(np.minimum(table / table.min(0), IMPOSSIBLE) * plainer, most)
    if abilities.split_k:
        more, costs = _in_parts(target, problem, found, points, table[chosen].min(0), abilities)
        chosen += range(len(owners), len(owners) + len(more))
        owners, table = owners + more, np.concatenate([table, costs])
    table = np.minimum(table / table.min(0), IMPOSSIBLE)
    priced = [(owners[i][0], _priced(owners[i][0], problem, owners[i][1], scale)) for i in chosen]
    versions = tuple(_shown(m, v, problem.at(), abilities) for m, v in priced)
    choice = select([v.cost for v in versions])
    picks = [int(evaluate(choice, _sizes(problem.at(*p)))) for p in points]
    loss = table[[chosen[v] for v in picks], range(len(points))]
    guards = _guards(points, picks, len(versions))
    return Family(versions, choice, guards, float(np.exp(-np.log(loss).mean())), float(1 / loss.max()))


def sample_points(problem: Contraction) -> tuple[Point, ...]:
    """Sizes to plan for: all combinations of the dynamic dims' samples, thinned."""

    def values(extent: Extent, count: int) -> tuple[int, ...]:
        return extent.samples(count) if isinstance(extent, Range) else (max(1, extent),)

    dynamic = sum(isinstance(x, Range) for x in (problem.m, problem.n, problem.k))
    count = {0: 1, 1: 12, 2: 4, 3: 3}[dynamic]
    points = list(product(*(values(x, count) for x in (problem.m, problem.n, problem.k))))
    step = -(-len(points) // MOST_SAMPLES)
    return tuple((m, n, k) for m, n, k in points[::step])


def _pool(
    machine: Machine,
    target: Target,
    problem: Contraction,
    points: Sequence[Point],
    abilities: Abilities,
) -> Iterator[Version]:
    """At caches every register tile that fits, in both orders; else the distinct plans of the sampled
    sizes.  Only those that are chosen get their price: most of the pool never needs one."""
    seen = set()
    if machine.staged:
        for point in points:
            schedule = plan(target, problem.at(*point), abilities)
            key = (schedule.register_tile, schedule.tiles, schedule.order, schedule.buffers)
            if schedule.intrinsic == machine.engine.intrinsic and key not in seen:
                seen.add(key)
                yield Version(schedule, run_tiles(machine, problem, schedule, abilities), 0)
        return
    largest = problem.at(*(max(p[d] for p in points) for d in range(3)))
    fit = fitting_registers(machine, largest, abilities)
    costs = cost(fit.nest)
    for i in range(len(fit.nest)):
        schedule = bare_schedule(fit, costs, i)
        tiles = run_tiles(machine, problem, schedule, abilities)  # whatever the order
        for order, register_order in abilities.cache_orders:
            ordered = replace(schedule, order=order, register_order=register_order)
            yield Version(ordered, tiles, 0)


def _in_parts(
    target: Target,
    problem: Contraction,
    found: Sequence[Machine],
    points: Sequence[Point],
    least: Vector,
    abilities: Abilities,
) -> tuple[list[tuple[Machine, Version]], Vector]:
    """Versions whose workers take parts of k, and their costs: a few that gain much on `least`, the cost of all others
    at each point."""
    pool: dict[tuple[object, ...], tuple[Machine, Version]] = {}
    for point, than in zip(points, least, strict=True):
        schedule = plan_parts(target, problem.at(*point), float(than), abilities)
        if schedule is not None:
            machine = next(m for m in found if m.engine.intrinsic == schedule.intrinsic)
            key = (
                machine.engine.intrinsic,
                schedule.register_tile,
                schedule.tiles,
                schedule.buffers,
                schedule.k_part,
            )
            pool[key] = machine, Version(schedule, run_tiles(machine, problem, schedule, abilities), 0)
    versions = [x for m in found for x in pool.values() if x[0] is m]
    rows = [_costs(m, problem, [v for x, v in versions if x is m], points, abilities) for m in found]
    costs = np.concatenate(rows)
    chosen = greedy(costs * (1 + PARTS_GAIN), MOST_IN_PARTS, least)
    return [versions[i] for i in chosen], costs[chosen]


def _priced(machine: Machine, problem: Contraction, version: Version, scale: int) -> Version:
    """The version with what it costs at run time; constant extents are put in."""
    extents = zip(("m", "n", "k", "batch"), (problem.m, problem.n, problem.k, problem.batch), strict=True)
    constants = {d: x for d, x in extents if isinstance(x, int)}
    schedule, tiles = version.schedule, version.tiles
    price = version_cost(machine, problem, schedule, tiles, scale)

    def fixed(triple: tuple[Dim, Dim, Dim]) -> tuple[Dim, Dim, Dim]:
        m, n, k = (substitute(d, constants) for d in triple)
        return m, n, k

    tiles = RunTiles(fixed(tiles.worker), fixed(tiles.level), substitute(tiles.rows, constants))
    return Version(schedule, tiles, substitute(price, constants))


def _sizes(problem: Contraction) -> dict[str, int]:
    return dict(zip("mnk", problem.extents, strict=True)) | {"batch": problem.batches}


def tiles_at(version: Version, problems: Sequence[Contraction]) -> list[Tiles]:
    """The version's tiles at some sizes."""
    tiles = _with_tiles(version, _values(version, _columns(problems)))
    return [tiles.where(np.array([i])) for i in range(len(problems))]


def _columns(problems: Sequence[Contraction]) -> dict[str, Vector]:
    columns = [_sizes(p) for p in problems]
    return {name: np.array([c[name] for c in columns]) for name in columns[0]}


def _values(
    version: Version, sizes: Mapping[str, Vector], known: dict[Atom, Any] | None = None
) -> tuple[Vector, Vector, Vector]:
    """Worker tiles, level tiles and rows at some sizes; known: what `evaluate` found at these sizes before."""
    count = np.zeros(len(sizes["m"]))
    known = {} if known is None else known
    at = {n: np.asarray(x, np.int64) for n, x in sizes.items()}
    worker, level, rows = (
        np.stack([evaluate(d, at, known) + count for d in dims])
        for dims in (version.tiles.worker, version.tiles.level, (version.tiles.rows,))
    )
    return worker, level, rows


def _with_tiles(version: Version, values: tuple[Vector, Vector, Vector]) -> Tiles:
    s, (worker, level, rows) = version.schedule, values
    register = np.concatenate([rows, np.full_like(rows, s.register_tile[1])])
    return Tiles.of(worker, level, register, s.order, s.register_order, s.buffers)


def _at_size(machine: Machine, problem: Contraction, tiles: Tiles, abilities: Abilities) -> Fit:
    return fits(Nest(machine, problem, tiles), abilities)


def _costs(
    machine: Machine,
    problem: Contraction,
    pool: Sequence[Version],
    points: Sequence[Point],
    abilities: Abilities,
) -> Vector:
    """Full cost of every version (rows) at every size (columns); infinite where it does not fit."""
    table = np.full((len(pool), len(points)), np.inf)
    if not pool:
        return table
    problems = [problem.at(*p) for p in points]
    sizes = _columns(problems)
    values: dict[int, tuple[Vector, Vector, Vector]] = {}  # versions that differ in order share their tiles
    known: dict[Atom, Any] = {}  # and tiles that differ share most of their operations
    for v in pool:
        if id(v.tiles) not in values:
            values[id(v.tiles)] = _values(v, sizes, known)
    every = Tiles.join([_with_tiles(v, values[id(v.tiles)]) for v in pool])
    for j, sized in enumerate(problems):
        fit = _at_size(machine, sized, every.where(np.arange(j, len(every), len(points))), abilities)
        idle = ~fit.nest.splits_k | (fit.nest.worker_tiles <= machine.workers)
        table[:, j] = np.where(fit.mask & idle, cost(fit.nest).cycles, np.inf)
    return table


def _shown(machine: Machine, version: Version, sized: Contraction, abilities: Abilities) -> Version:
    """The version with its schedule worked out at one size."""
    fit = _at_size(machine, sized, tiles_at(version, [sized])[0], abilities)
    shown = schedule_of(fit, cost(fit.nest), 0)
    register = version.schedule.register_tile
    panel = register[1] if shown.panel else 0
    if machine.inner is not None:  # the tile and what it needs are what they are, whatever the size
        mine = version.schedule
        shown = replace(
            shown, tiles=mine.tiles, groups=mine.groups, lanes=mine.lanes, registers=mine.registers,
            used_bytes=mine.used_bytes, occupancy=mine.occupancy, k_part=mine.k_part,
            why=reasons(machine, sized, mine),
        )  # fmt: skip
    return replace(version, schedule=replace(shown, register_tile=register, panel=panel))


def greedy(table: Vector, most: int, known: Vector | None = None) -> list[int]:
    """Rows of `table` (cost per sample) whose least is low on average, added one by one; known: what there is
    without them."""
    chosen: list[int] = []
    logs = np.log(table)
    least = np.full(table.shape[1], np.inf) if known is None else np.log(known)
    current = least.mean()
    while len(chosen) < min(most, len(table)):
        scores = np.minimum(logs, least).mean(1)
        i = int(np.argmin(scores))
        if current - scores[i] < GAIN:
            break
        chosen.append(i)
        least, current = np.minimum(least, logs[i]), scores[i]
    return chosen


def _guards(points: Sequence[Point], picks: Sequence[int], count: int) -> tuple[str, ...]:
    """Words for the selector: the sampled sizes at which each version is taken, as ranges of the dims that
    vary."""
    varying = [d for d in range(3) if len({p[d] for p in points}) > 1]
    words = []
    for version in range(count):
        mine = [p for p, pick in zip(points, picks, strict=True) if pick == version]
        if len(mine) == len(points) or not mine:
            words.append("always" if mine else "never sampled")
            continue
        spans = [f"{min(p[d] for p in mine)} <= {'mnk'[d]} <= {max(p[d] for p in mine)}" for d in varying]
        words.append(" and ".join(spans))
    return tuple(words)
