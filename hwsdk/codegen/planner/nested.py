"""Several scratchpads, one inside the other: plan the outermost, then each survivor's tile as the next
one's problem.

Design choice: no joint search.  The outer nest is ranked as if everything further in were ideal; the best
few get a real inner plan, whose time then stands for the engine in the outer pipeline.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwsdk.codegen.planner.cost import cost
from hwsdk.codegen.planner.fits import Fit
from hwsdk.codegen.planner.levels import NEVER, Machine
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.tiles import K, M, N

BEAM = 8
END_TILE = 3  # intrinsics along each side of the first and last inner tiles, about


def outermost(machine: Machine) -> Machine:
    """Down to the outermost scratchpad.  What lies further in costs the engine's own time and, per block,
    about what an inner pipeline cannot hide: three copies and the tiles at its two ends."""
    first = machine.scratchpads[0]
    pad = replace(machine.levels[first], read=NEVER)
    engine = replace(
        machine.engine, rereads_a=False, rereads_b=False, tile_overhead=0.0, block_overhead=_ends(machine)
    )
    return replace(machine, levels=(*machine.levels[:first], pad), store=None, engine=engine)


def _ends(machine: Machine) -> float:
    copies, engine, first = machine.copies, machine.engine, machine.scratchpads[0]
    assert copies is not None
    source, sink = machine.levels[first], machine.levels[first + 1]
    rate = min(source.read, copies.bytes_per_cycle, sink.write)
    tile = END_TILE**2 * (engine.m * engine.k + engine.k * engine.n + engine.m * engine.n)
    return 3 * copies.setup + source.latency + engine.tile_overhead + tile / rate


def further_in(machine: Machine) -> Machine:
    """From the outermost scratchpad inwards, which is now where operands come from."""
    first = machine.scratchpads[0]
    source = replace(machine.levels[first], kind="dram", bytes=NEVER)
    return replace(machine, levels=(source, *machine.levels[first + 1 :]), workers=1)


def block_problem(problem: Contraction, fit: Fit, i: int) -> Contraction:
    """One full block of an outer candidate as a contraction of its own; partial sums keep their own type."""
    m, n, k = (int(x) for x in fit.nest.tiles.level[:, i])
    out = problem.acc if k < problem.extents[2] else problem.out
    return replace(problem, m=m, n=n, k=k, batch=1, out=out, taps=1, a_reuse=1.0, warm=False)


def with_inner_cycles(fit: Fit, cycles: list[float]) -> Fit:
    """The candidates with the time that a full block really takes."""
    nest = fit.nest
    held = Nest(nest.machine, nest.problem, nest.tiles, np.asarray(cycles))
    return replace(fit, nest=held)


def best_outer(fit: Fit) -> Fit:
    """The few outer candidates that deserve an inner plan: the best ones of distinct tiles."""
    cycles = cost(fit.nest).cycles
    tiles = fit.nest.tiles.level
    seen: set[tuple[float, ...]] = set()
    chosen = []
    for i in np.argsort(cycles, kind="stable"):
        key = (float(tiles[M, i]), float(tiles[N, i]), float(tiles[K, i]))
        if key not in seen:
            seen.add(key)
            chosen.append(int(i))
        if len(chosen) == BEAM:
            break
    return fit.pick(np.array(chosen))
