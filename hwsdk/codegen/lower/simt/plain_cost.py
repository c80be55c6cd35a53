"""Predicted cycles of a product by plain arithmetic of lanes: staged blocks of k, one after the other.

Design choice: the same roofline as for matrix intrinsics with the one term that decides here spelled out: a workgroup
waits for every block, and only others on its core hide that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import MatrixUse
from hwsdk.codegen.lower.simt.schedules import LaneProductSchedule, lanes_reason
from hwsdk.codegen.lower.simt.tensor import BlockTile
from hwsdk.codegen.planner import Contraction
from hwsdk.codegen.planner.cost import TOGETHER
from hwsdk.codegen.planner.explain import reason
from hwsdk.codegen.planner.levels import Place, worker_level
from hwsdk.codegen.planner.roles import contraction_roles
from hwsdk.codegen.planner.vectors import vector_core
from hwsdk.dtypes import DTYPES


@dataclass(frozen=True)
class PlainMachine:
    """What prices a product.

    issue: multiply-adds of one core per cycle.  shared: places that all cores draw from, outer to inner.  latency:
    cycles from the outermost into a staged block.  fork: cycles of a launch.
    """

    chip: SimtChip
    unit: str
    issue: float
    workers: int
    shared: tuple[Place, ...]
    latency: float
    fork: float

    @staticmethod
    def of(chip: SimtChip, dtype: str) -> PlainMachine:
        """The machine for products that are summed in `dtype`."""
        target = chip.target
        core = vector_core(target, dtype)
        unit, issue = core.unit, core.lanes * core.issue
        for x in target.intrinsics.values():
            roles = contraction_roles(target, x)
            if roles is not None and x.scope == chip.lane.name and x.operands[roles.acc].dtype == dtype:
                unit = x.unit
                issue = (
                    target.unit(unit).count * (x.cost.issue_per_cycle or 1.0) * roles.m * roles.n * roles.k
                )
                break
        shared = tuple(p for p in core.levels if p.depth < worker_level(target))
        latency = sum(p.latency for p in (*shared, core.near))
        return PlainMachine(chip, unit, issue, core.workers, shared, latency, core.fork)

    def resident(self, use: MatrixUse, tile: BlockTile) -> int:
        """Workgroups that one core keeps in flight."""
        target, chip = self.chip.target, self.chip
        holder = target.levels[worker_level(target)]
        size = DTYPES[use.acc.dtype].size_bytes
        lanes, registers = tile.waves * chip.width, chip.registers
        word = int(registers.width_bytes) if isinstance(registers.width_bytes, int) else 4
        each = (use.acc.items + use.a.items + use.b.items) * max(size, word) + registers.reserved_bytes
        limits = [holder.resident.get(chip.group.name, inf)]
        if chip.wave is not None:
            limits.append(holder.resident.get(chip.wave.name, inf) // tile.waves)
        if pool := registers.pool_bytes_per.get(holder.name):
            limits.append(pool // (lanes * each))
        if chip.scratch is not None and (pool := chip.scratch.pool_bytes_per.get(holder.name)):
            limits.append(pool // ((tile.bm + tile.bn) * tile.bk * size + chip.scratch.reserved_bytes))
        return int(max(1, min(limits))) if min(limits) < inf else 1

    def cycles(self, problem: Contraction, use: MatrixUse, tile: BlockTile, part: int) -> float:
        """Of one launch; with parts of k (0: none) of both launches."""
        (m, n, k), (rows, columns) = problem.extents, (use.a.items, use.b.items)
        parts = ceil(k / part) if part else 1
        blocks = ceil(m / tile.bm) * ceil(n / tile.bn) * problem.batches * parts
        steps, turns = ceil((part or k) / tile.bk), ceil(blocks / self.workers)
        flight = min(turns, self.resident(use, tile))
        moved = (min(m, tile.bm) * problem.a_bytes + min(n, tile.bn) * problem.b_bytes) * tile.bk
        work = tile.bm * tile.bn * tile.bk * (1 + (rows + columns) / (rows * columns)) / self.issue
        busy = steps * max(work, *(moved / p.reader for p in self.shared))
        one = busy + steps * self.latency
        own = max(turns * busy + turns * (one - busy) / flight, ceil(turns / flight) * one)
        results = (
            problem.batches * m * n * (problem.out_bytes + (2 * parts * problem.acc_bytes if part else 0))
        )
        least = problem.batches * (m * k * problem.a_bytes + k * n * problem.b_bytes) + results
        drawn = [least, *[blocks * steps * moved + results] * (len(self.shared) - 1)]
        own = max(own, *(x / p.read for x, p in zip(drawn, self.shared, strict=True)))
        summing = self.fork + ceil(parts / TOGETHER) * sum(p.latency for p in self.shared)
        return own + self.fork + (summing if part else 0.0)

    def schedule(
        self, problem: Contraction, use: MatrixUse, tile: BlockTile, part: int
    ) -> LaneProductSchedule:
        """The decision at the sizes of a problem, with the fields behind it."""
        chip, target = self.chip, self.chip.target
        lanes = tile.waves * chip.width
        cycles = self.cycles(problem, use, tile, part)
        rates = [
            f"memory.{p.name}.{f}" for p in self.shared for f in ("latency_cycles", "read_bytes_per_cycle")
        ]
        holder = target.levels[worker_level(target)]
        forks = [f"execution.{x.name}.fork_cycles" for x in target.levels if x.fork_cycles]
        counts = [
            f"execution.{x.name}.count" for x in target.levels if x.count is not None and x is not chip.lane
        ]
        why = [
            lanes_reason(chip, lanes),
            reason(
                target,
                "block",
                "x".join(map(str, (tile.bm, tile.bn, tile.bk))),
                f"units.{self.unit}.count",
                *counts,
            ),
        ]
        if part:
            without = self.cycles(problem, use, tile, 0)
            parts = -(-problem.extents[2] // part)
            text = f"{part} ({parts} parts, added up by a second launch; {without:.0f} cycles without)"
            fields = (*forks, *counts, *rates, f"execution.{holder.name}.resident")
            why.append(reason(target, "k_part", text, *fields))
        if holder.clock_ghz is not None:
            text = f"{cycles / holder.clock_ghz / 1e3:.1f} us (predicted)"
            why.append(reason(target, "time", text, f"execution.{holder.name}.clock_ghz", *rates))
        shape = (tile.bm, tile.bn, tile.bk)
        return LaneProductSchedule(
            lanes, use.a.items, use.b.items, shape, part, problem.extents, cycles, tuple(why)
        )
