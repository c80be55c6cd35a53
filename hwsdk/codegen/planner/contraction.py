"""From a target and a contraction to schedules: cost all candidates, take the least.

Design choice: nothing here branches on a chip.  What differs is data of the description: the kind of the nearest place,
whether copies overlap, whether an execution level lies inside the worker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.blocks import stays
from hwsdk.codegen.planner.candidates import candidates
from hwsdk.codegen.planner.cost import Cost, copies_b, cost
from hwsdk.codegen.planner.explain import reasons
from hwsdk.codegen.planner.fits import Fit, fits, inner_groups
from hwsdk.codegen.planner.levels import Machine, machines
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import Tiles, even
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import PlanError
from hwsdk.target_desc.model import Target

DEFAULT = Abilities()
REFINED = 48  # candidates of a staged nest whose edges are priced exactly


def plan(target: Target, problem: Contraction, abilities: Abilities = DEFAULT) -> ContractionSchedule:
    """The schedule with the least predicted time; ranges are planned at their typical value."""
    return plan_top(target, problem, 1, abilities)[0]


def plan_top(
    target: Target, problem: Contraction, count: int, abilities: Abilities = DEFAULT
) -> tuple[ContractionSchedule, ...]:
    """The `count` best schedules, best first."""
    problem = problem.at()
    ranked: list[_Ranked] = []
    for machine in machines(target, problem):
        for tiles in candidates(machine, problem, abilities):
            fit = fits(machine, problem, tiles, abilities)
            if fit.mask.any():
                ranked += _least(machine, problem, fit.kept(), max(count, REFINED))
    if not ranked:
        raise PlanError(_nothing_fits(target, problem))
    ranked = _refined(sorted(ranked, key=lambda r: r.cycles)[: max(count, REFINED)])
    return tuple(r.schedule() for r in ranked[:count])


def predict(
    target: Target, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities = DEFAULT
) -> float:
    """Predicted cycles of `schedule` on another problem: its blocks are balanced anew; infinite where it does not fit."""
    problem = problem.at()
    for machine in machines(target, problem):
        if machine.engine.intrinsic == schedule.intrinsic:
            fit = fits(machine, problem, _adapted(machine, problem, schedule), abilities)
            return float(cost(machine, problem, fit.tiles, exact=True).cycles[0]) if fit.mask[0] else np.inf
    raise PlanError(f"target {target.name}: no intrinsic {schedule.intrinsic!r} for {problem}")


def check(target: Target, problem: Contraction, schedule: ContractionSchedule, abilities: Abilities = DEFAULT) -> None:
    """PlanError if `schedule` (perhaps overridden by hand) does not fit the target."""
    problem = problem.at()
    for machine in machines(target, problem):
        if machine.engine.intrinsic != schedule.intrinsic:
            continue
        fit = fits(machine, problem, _adapted(machine, problem, schedule), abilities)
        if not fit.mask[0]:
            need = f"{fit.used[0]:.0f} bytes of {machine.near.name} ({machine.near.bytes:.0f} usable)"
            store = machine.store
            if store is not None and fit.registers[0] > store.bytes:
                need = f"{fit.registers[0]:.0f} bytes of {store.name} ({store.bytes:.0f} usable)"
            raise PlanError(f"target {target.name}: schedule does not fit: needs {need}: {schedule}")
        return
    raise PlanError(f"target {target.name}: no intrinsic {schedule.intrinsic!r} for {problem}")


@dataclass(frozen=True)
class _Ranked:
    machine: Machine
    problem: Contraction
    fit: Fit
    cost: Cost
    index: int

    @property
    def cycles(self) -> float:
        return float(self.cost.cycles[self.index])

    def schedule(self) -> ContractionSchedule:
        machine, problem, i = self.machine, self.problem, self.index
        tiles, engine, store = self.fit.tiles, machine.engine, machine.store
        row = tiles.row(i)
        register = (_up(row["mr"], engine.m), _up(row["nr"], engine.n))
        packs = not machine.staged
        layout = "in_place" if not packs else "packed" if problem.b_constant else "in_place"
        if packs and not problem.b_constant and copies_b(machine, problem):
            layout = "copied"
        schedule = ContractionSchedule(
            shape=problem.extents,
            intrinsic=engine.intrinsic,
            unit=engine.unit,
            unit_shape=(engine.m, engine.n, engine.k),
            register_tile=register,
            tiles=(row["m"], row["n"], row["k"]),
            worker_tile=(row["pm"], row["pn"], row["pk"]),
            order=tiles.order,
            register_order=tiles.register_order,
            buffers=tiles.buffers,
            k_chains=int(tiles.chains[i]) if tiles.chains is not None else 1,
            panel=register[1] if layout != "in_place" else 0,
            b_layout=layout,
            near=machine.near.name,
            accumulate=store.name if store is not None else machine.near.name,
            c_stays=bool(stays(machine, tiles)[i]),
            groups=int(inner_groups(tiles)[i]) if machine.inner is not None else 1,
            occupancy=int(tiles.occupancy[i]) if tiles.occupancy is not None else 1,
            used_bytes=int(self.fit.used[i]),
            cycles=self.cycles,
            bound_by=self.cost.bound_by(i),
        )
        return reasons(machine, problem, schedule)


def _least(machine: Machine, problem: Contraction, fit: Fit, count: int) -> list[_Ranked]:
    costs = cost(machine, problem, fit.tiles)
    ties = costs.cycles * (1 + 1e-7 * fit.tiles.m)
    return [_Ranked(machine, problem, fit, costs, int(i)) for i in np.argsort(ties, kind="stable")[:count]]


def _refined(ranked: list[_Ranked]) -> list[_Ranked]:
    """Price the best candidates of staged nests again, edges apart; the others keep their cost."""
    batches: dict[int, list[_Ranked]] = {}
    for r in ranked:
        batches.setdefault(id(r.fit), []).append(r)
    refined = []
    for batch in batches.values():
        machine, problem, fit = batch[0].machine, batch[0].problem, batch[0].fit
        if machine.staged:
            small = fit.pick(np.array([r.index for r in batch]))
            costs = cost(machine, problem, small.tiles, exact=True)
            batch = [_Ranked(machine, problem, small, costs, i) for i in range(len(batch))]
        refined += batch
    return sorted(refined, key=lambda r: r.cycles)


def _adapted(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Tiles:
    """The schedule's tiles on this problem: what covered a dim still covers it, blocks are balanced, all is clipped."""
    engine = machine.engine
    granules = (engine.m, engine.n, engine.k)
    worker, level = [], []
    for d, extent in enumerate(problem.extents):
        whole = schedule.worker_tile[d] >= schedule.shape[d]
        tile = extent if whole else min(schedule.worker_tile[d], extent)
        covered = schedule.tiles[d] >= schedule.worker_tile[d] and d == 1
        worker.append(tile)
        level.append(tile if covered else even(tile, schedule.tiles[d], granules[d]))
    row = np.array([[*worker, *level, *schedule.register_tile]], float)
    return Tiles.of(row, schedule.order, schedule.register_order, schedule.buffers)


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _nothing_fits(target: Target, problem: Contraction) -> str:
    limits = [f"memory.{m.name} ({m.usable_bytes} bytes)" for m in target.memories if m.kind in ("scratchpad", "accumulator")]
    return f"target {target.name}: no tile of {problem} fits {' and '.join(limits) or 'its registers'}"
