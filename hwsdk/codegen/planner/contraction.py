"""From a target and a contraction to schedules: cost all candidates, take the least.

Design choice: nothing here branches on a chip.  What differs is data of the description: the kind of the
nearest place, whether copies overlap, whether an execution level lies inside the worker.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hwsdk.codegen.planner.candidates import candidates, coarse_candidates, in_parts
from hwsdk.codegen.planner.cost import Cost, copies_b, cost, summing
from hwsdk.codegen.planner.explain import reasons
from hwsdk.codegen.planner.fits import Fit, fits
from hwsdk.codegen.planner.levels import Machine, machines, register_width
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.nested import best_outer, block_problem, further_in, outermost, with_inner_cycles
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import K, Tiles, Vector, constant, even
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import PlanError
from hwsdk.target_desc.model import Target

DEFAULT = Abilities()
PARTS_GAIN = 0.1  # what parts of k must gain: they are a second launch and memory between the two


def plan(target: Target, problem: Contraction, abilities: Abilities = DEFAULT) -> ContractionSchedule:
    """The schedule with the least predicted time; ranges are planned at their typical value."""
    best = plan_top(target, problem, 1, abilities)[0]
    return (plan_parts(target, problem, best.cycles, abilities) if abilities.split_k else None) or best


def plan_parts(
    target: Target, problem: Contraction, than: float, abilities: Abilities = DEFAULT
) -> ContractionSchedule | None:
    """The best schedule whose workers take parts of k, if it gains enough on `than` cycles; else None."""
    problem, goal = problem.at(), than * (1 - PARTS_GAIN)
    found: ContractionSchedule | None = None
    for machine in machines(target, problem, abilities):
        if machine.inner is None or least_in_parts(machine, problem) > goal:
            continue
        fit = in_parts(machine, problem, abilities)
        if fit is None:
            continue
        costs = cost(fit.nest)
        i = int(np.argmin(costs.cycles))
        if costs.cycles[i] < goal:
            found, goal = schedule_of(fit, costs, i), float(costs.cycles[i])
    return found


def least_in_parts(machine: Machine, problem: Contraction) -> float:
    """Cycles that parts of k need at the very least: two launches around perfectly shared work."""
    (m, n, k), engine = problem.extents, machine.engine
    uses = math.prod(-(-x // g) for x, g in zip((m, n, k), (engine.m, engine.n, engine.k), strict=True))
    work = uses * problem.batches * engine.interval / (engine.count * machine.workers)
    return (
        machine.fork
        + float(summing(machine, np.ones(1))[0])
        + max(work, problem.batches * problem.total_bytes / machine.levels[0].read)
    )


def plan_top(
    target: Target, problem: Contraction, count: int, abilities: Abilities = DEFAULT
) -> tuple[ContractionSchedule, ...]:
    """The `count` best schedules, best first."""
    problem = problem.at()
    planned: list[ContractionSchedule] = []
    for machine in machines(target, problem, abilities):
        planned += _plans(machine, problem, count, abilities)
    if not planned:
        raise PlanError(_nothing_fits(target, problem))
    return tuple(sorted(planned, key=lambda s: s.cycles)[:count])


def _plans(
    machine: Machine, problem: Contraction, count: int, abilities: Abilities
) -> list[ContractionSchedule]:
    """The best schedules for one machine, best first."""
    if len(machine.scratchpads) > 1:
        return _nested(machine, problem, count, abilities)
    fit = candidates(machine, problem, abilities)
    if fit is None:
        return []
    costs = cost(fit.nest)
    tiles = fit.nest.tiles
    # of equal ones the one that runs ahead, and the one whose parts are larger
    ties = costs.cycles * (1 + 1e-7 * tiles.level[0] - 1e-9 * tiles.buffers + 1e-10 * fit.nest.groups)
    return [schedule_of(fit, costs, int(i)) for i in np.argsort(ties, kind="stable")[:count]]


def _nested(
    machine: Machine, problem: Contraction, count: int, abilities: Abilities
) -> list[ContractionSchedule]:
    """Plan the outermost scratchpad, then the blocks of its best candidates."""
    fit = candidates(outermost(machine), problem, abilities)
    if fit is None:
        return []
    fit = best_outer(fit)
    inner = [
        _plans(further_in(machine), block_problem(problem, fit, i), 1, abilities)
        for i in range(len(fit.nest))
    ]
    fit = fit.pick(np.array([i for i, plans in enumerate(inner) if plans], int))
    found = [plans[0] for plans in inner if plans]
    if not found:
        return []
    fit = with_inner_cycles(fit, [s.cycles for s in found])
    costs = cost(fit.nest)
    best = np.argsort(costs.cycles, kind="stable")[:count]
    return [replace(schedule_of(fit, costs, int(i)), nested=(found[int(i)],)) for i in best]


def alternatives(
    target: Target, problem: Contraction, abilities: Abilities = DEFAULT
) -> tuple[ContractionSchedule, ...]:
    """The best schedule of each register tile (staged: of each level tile), best first: what a sweep should
    time."""
    problem = problem.at()
    found: dict[tuple[object, ...], ContractionSchedule] = {}
    for machine in machines(target, problem, abilities):
        fit = coarse_candidates(machine, problem, abilities)
        if fit is None:
            continue
        costs, tiles = cost(fit.nest), fit.nest.tiles
        which = tiles.level if machine.staged else tiles.register
        for i in np.argsort(costs.cycles, kind="stable"):
            key = (machine.engine.intrinsic, *which[:, i])
            if key not in found:
                found[key] = schedule_of(fit, costs, int(i))
    return tuple(sorted(found.values(), key=lambda s: s.cycles))


def predict(
    target: Target, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities = DEFAULT
) -> float:
    """Predicted cycles of `schedule` on another problem: its blocks are balanced anew; infinite where it
    does not fit."""
    fit = fits(_adapted(_machine_of(target, problem.at(), schedule), problem.at(), schedule), abilities)
    return float(cost(fit.nest).cycles[0]) if fit.mask[0] else np.inf


def check(
    target: Target, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities = DEFAULT
) -> None:
    """PlanError if `schedule` (perhaps overridden by hand) does not fit the target."""
    machine = _machine_of(target, problem.at(), schedule)
    fit = fits(_adapted(machine, problem.at(), schedule), abilities)
    if fit.mask[0]:
        return
    near, store = machine.near, machine.store
    need = f"{fit.used[0]:.0f} bytes of {near.name} ({near.bytes:.0f} usable)"
    if store is not None and not (machine.staged and fit.used[0] > near.bytes):
        need = f"{fit.registers[0]:.0f} bytes of {store.name} ({store.bytes:.0f} usable)"
    raise PlanError(f"target {target.name}: schedule does not fit: needs {need}: {schedule}")


def _machine_of(target: Target, problem: Contraction, schedule: ContractionSchedule) -> Machine:
    for machine in machines(target, problem):
        if machine.engine.intrinsic == schedule.intrinsic:
            return machine
    raise PlanError(f"target {target.name}: no intrinsic {schedule.intrinsic!r} for {problem}")


def schedule_of(fit: Fit, costs: Cost, i: int) -> ContractionSchedule:
    """Candidate `i` as a schedule, with its reasons."""
    schedule = bare_schedule(fit, costs, i)
    return replace(schedule, why=reasons(fit.nest.machine, fit.nest.problem, schedule))


def bare_schedule(fit: Fit, costs: Cost, i: int) -> ContractionSchedule:
    """Candidate `i` as a schedule that nobody will be shown."""
    nest = fit.nest
    machine, problem, tiles = nest.machine, nest.problem, nest.tiles
    engine, store = machine.engine, machine.store
    mr, nr = (int(x) for x in tiles.register[:, i])
    register = (_up(mr, engine.m), _up(nr, engine.n))
    layout = "in_place"
    if not machine.staged:
        layout = "packed" if problem.b_constant else "copied" if copies_b(machine, problem) else layout
    return ContractionSchedule(
        shape=problem.extents,
        intrinsic=engine.intrinsic,
        unit=engine.unit,
        unit_shape=(engine.m, engine.n, engine.k),
        register_tile=register,
        tiles=_triple(tiles.level[:, i]),
        worker_tile=_triple(tiles.worker[:, i]),
        order=tiles.order_text(i),
        register_order="nm" if tiles.columns_outer[i] else "mn",
        buffers=int(tiles.buffers[i]),
        k_chains=int(tiles.chains[i]),
        panel=register[1] if layout != "in_place" else 0,
        b_layout=layout,
        near=machine.near.name,
        accumulate=store.name if store is not None else machine.near.name,
        c_stays=bool(nest.stays[i]),
        groups=int(nest.groups[i]) if machine.inner is not None else 1,
        occupancy=int(tiles.occupancy[i]),
        k_part=int(tiles.worker[K, i]) if nest.splits_k[i] else 0,
        used_bytes=int(fit.used[i]),
        lanes=int(nest.groups[i]) * machine.inner.lanes if machine.inner is not None else 0,
        registers=_registers(fit, i),
        cycles=float(costs.cycles[i]),
        bound_by=costs.bound_by(i),
    )


def _registers(fit: Fit, i: int) -> int:
    """Predicted registers of a lane, those of the code generator included; 0 where no lanes share a tile."""
    machine = fit.nest.machine
    if machine.inner is None or machine.store is None:
        return 0
    home = machine.target.memory(machine.store.name)
    each = float(fit.registers[i]) / machine.inner.lanes + machine.store.reserved
    return math.ceil(each / register_width(machine.target, home))


def _adapted(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Nest:
    """The schedule's tiles on this problem: what covered a dim still covers it, blocks are balanced, all is
    clipped."""
    engine = machine.engine
    if machine.inner is not None:
        return _grouped(machine, problem, schedule)
    worker, level = [], []
    for d, (extent, granule) in enumerate(zip(problem.extents, (engine.m, engine.n, engine.k), strict=True)):
        whole = schedule.worker_tile[d] >= schedule.shape[d]
        tile = extent if whole else min(schedule.worker_tile[d], extent)
        covered = schedule.tiles[d] >= schedule.worker_tile[d] and not machine.staged and d == 1
        worker.append(tile)
        level.append(tile if covered else even(tile, schedule.tiles[d], granule))
    columns = (constant(worker, 1), constant(level, 1), constant(schedule.register_tile, 1))
    tiles = Tiles.of(
        *columns, order=schedule.order, register_order=schedule.register_order, buffers=schedule.buffers
    )
    return Nest(machine, problem, tiles)


def _grouped(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Nest:
    """Instances of an inner level have their parts of a tile for good; only k may be shorter."""
    m, n, k = schedule.tiles
    depth = min(problem.extents[2], schedule.k_part or problem.extents[2])
    columns = (constant((m, n, depth), 1), constant((m, n, k), 1), constant(schedule.register_tile, 1))
    tiles = Tiles.of(*columns, order=schedule.order, register_order="mn", buffers=schedule.buffers)
    return Nest(machine, problem, tiles)


def _triple(values: Vector) -> tuple[int, int, int]:
    m, n, k = (int(v) for v in values)
    return m, n, k


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _nothing_fits(target: Target, problem: Contraction) -> str:
    allocated = [m for m in target.memories if m.kind in ("scratchpad", "accumulator")]
    limits = [f"memory.{m.name} ({m.usable_bytes} bytes)" for m in allocated]
    return f"target {target.name}: no tile of {problem} fits {' and '.join(limits) or 'its registers'}"
