"""Lowering for SIMD cores: chooses the family of each kernel and turns its schedule into loops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hwsdk.codegen.blocks import Block, Kernel, Tensor
from hwsdk.codegen.loop_ir import Index
from hwsdk.codegen.lower import contraction, row, window
from hwsdk.codegen.lower import map as map_
from hwsdk.codegen.lower.attention import AttentionLowering
from hwsdk.codegen.lower.contraction import ContractionLowering
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.lower.lowered import Lowered, Machine
from hwsdk.codegen.lower.microkernel import Names, RegisterTile
from hwsdk.codegen.lower.node_loops import lower_library
from hwsdk.codegen.lower.problems import map_problem, row_problem, window_problem
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.planner import (
    Abilities,
    Contraction,
    Family,
    check,
    family,
    plan,
    plan_map,
    plan_rows,
    plan_window,
)
from hwsdk.codegen.planner.selector import select
from hwsdk.codegen.schedule import ContractionSchedule, MapSchedule
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import Ranges, evaluate, floordiv, maximum, product, substitute
from hwsdk.graph.expr_ranges import bounds
from hwsdk.graph.graph import Graph
from hwsdk.target_desc.model import Intrinsic, Target

LONGEST_SUM = 1024  # terms that one accumulator takes: the error of a sum grows with its length
ABILITIES = Abilities(max_vectors=4, max_depth=LONGEST_SUM)


class SimdLowering:
    def __init__(self, target: Target, graph: Graph, ranges: Ranges, overrides: Overrides) -> None:
        self.target, self.graph, self.ranges, self.overrides = target, graph, ranges, overrides
        self.machine = Machine.of(target)
        self.level = target.levels[-1].name
        self.constants = frozenset(graph.constants)
        self._extra: list[Tensor] = []  # of the kernel that is lowered now
        self._plans: dict[Contraction, ContractionSchedule] = {}
        self._families: dict[Contraction, Family] = {}

    def lower(self, kernel: Kernel) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
        """The kernel's loops, and the buffers between them that are no graph values (operands packed at run time)."""
        self._extra = []
        return tuple(self._loops(kernel)), tuple(self._extra)

    def _loops(self, kernel: Kernel) -> list[Lowered]:
        match kernel.kind:
            case "attention":
                return self._attention(kernel)
            case "map":
                return map_.lower_map(kernel, self.machine, self.ranges, self.level, self._map)
            case "row":
                rows = plan_rows(self.target, row_problem(kernel, self.ranges))
                rows = self.overrides.apply(kernel.name, rows, row.DECISIONS)
                return row.lower_row(kernel, self.machine, self.ranges, self.level, rows)
            case "library":
                return lower_library(kernel, self.graph, self.machine, self.ranges, self.level)
            case "contraction" if ContractionLowering.accepts(kernel, self.ranges):
                return self._contraction(kernel)
        schedule = plan_window(self.target, window_problem(kernel, self.ranges))
        schedule = self.overrides.apply(kernel.name, schedule, window.DECISIONS)
        return window.lower_window(kernel, self.machine, self.ranges, self.level, schedule)

    def _map(self, kernel: Kernel, block: Block) -> MapSchedule:
        schedule = plan_map(self.target, map_problem(kernel, block, self.ranges))
        return self.overrides.apply(kernel.name, schedule, map_.DECISIONS)

    def _attention(self, kernel: Kernel) -> list[Lowered]:
        """One streaming kernel, or its parts one after the other where they do not fit together."""
        if AttentionLowering.accepts(kernel, self.ranges):
            lowering = AttentionLowering(kernel, self.machine, self.ranges, self.level, self.constants)
            if lowering.fits():
                schedules = [self._plan(self._problem(p)) for p in (lowering.first, lowering.second)]
                tiles = [
                    self._tile(s, p.dtype)
                    for s, p in zip(schedules, (lowering.first, lowering.second), strict=True)
                ]
                out = lowering.lower((tiles[0], tiles[1]), schedules[0])
                self._extra += lowering.packed
                return out
        return [x for part in kernel.parts for x in self._loops(part)]

    def _problem(self, lowering: ContractionLowering) -> Contraction:
        """What the planner is asked for one contraction."""
        m, n, k = (planner_extent(e, self.ranges) for e in lowering.extents)
        return Contraction(
            m,
            n,
            k,
            a=lowering.parts.a.dtype,
            b=lowering.parts.b.dtype,
            acc=lowering.dtype,
            out=lowering.kernel.outputs[0].dtype,
            b_constant=True,
        )

    def _contraction(self, kernel: Kernel) -> list[Lowered]:
        lowering = ContractionLowering(kernel, self.machine, self.ranges, self.level, self.constants)
        choice, tiles = self._tiles(lowering)
        if kernel.name in self.overrides:
            choice, tiles = 0, [self._changed(lowering, tiles[0][1])]
        out = lowering.lower_versions(tiles, choice)
        if len(out) > 1:
            self._extra.append(lowering.packed_tensor)
        return out

    def _tiles(self, lowering: ContractionLowering) -> tuple[Index, list[tuple[RegisterTile, object | None]]]:
        """Versions over the dims that are known only at run time, and the expression that picks one.

        A version with another panel width needs B a second time: only small constants are kept twice, the rest
        shares the layout of the version for the likely size.
        """
        problem = self._problem(lowering)
        if not problem.dynamic:
            schedule = self._plan(problem)
            return 0, [(self._tile(schedule, lowering.dtype), schedule)]
        found = self._family(problem)
        m, n, k = (maximum(1, e) for e in lowering.extents)
        outers = maximum(1, product(i.extent for i in lowering.outer))
        sizes: dict[str, Index] = {"m": m, "n": n, "k": k, "batch": outers}
        likely = dict(zip(("m", "n", "k", "batch"), (*problem.extents, problem.batches), strict=True))
        main = found.versions[int(evaluate(found.select, likely))]
        width = self._tile(main.schedule, lowering.dtype).width
        kept = [
            v
            for v in found.versions
            if self._tile(v.schedule, lowering.dtype).width == width or self._small(lowering)
        ]
        tiles: list[tuple[RegisterTile, object | None]] = []
        for version in kept:
            (wm, wn, _), (lm, _, lk) = version.tiles.worker, version.tiles.level
            tile = self._tile(version.schedule, lowering.dtype)
            blocks = (substitute(x, sizes) for x in (wm, floordiv(wn, width), lm, lk))
            row_block, panel_block, sub_rows, depth = (maximum(1, b) for b in blocks)
            moved = replace(
                tile,
                row_block=row_block,
                panel_block=panel_block,
                sub_rows=sub_rows,
                depth=None if self._whole(lk, lowering) else depth,
            )
            tiles.append((moved, version.schedule))
        choice = select([v.cost for v in kept])
        return (substitute(choice, sizes)), tiles

    def _changed(
        self, lowering: ContractionLowering, schedule: object | None
    ) -> tuple[RegisterTile, object | None]:
        """One version for all sizes: the schedule that someone asked for."""
        assert isinstance(schedule, ContractionSchedule)
        name = lowering.kernel.name
        schedule = self.overrides.apply(name, schedule, contraction.DECISIONS)
        try:
            check(self.target, self._problem(lowering), schedule, ABILITIES)
        except PlanError as error:
            self.overrides.refuse(name, str(error))
        tile = self._tile(schedule, lowering.dtype)
        depth = None if self._whole(schedule.tiles[2], lowering) else schedule.tiles[2]
        return replace(tile, depth=depth), schedule

    def _whole(self, depth: Index, lowering: ContractionLowering) -> bool:
        """Does one block of `depth`, a dim over k, hold the largest k that can occur?"""
        _, most = bounds(lowering.extents[2], self.ranges)
        return isinstance(most, int) and int(evaluate(depth, {"k": max(1, most)})) >= most

    def _small(self, lowering: ContractionLowering) -> bool:
        """Is B a constant of at most a quarter of the cache outside the nearest one?"""
        if lowering.b_name not in self.constants:
            return False
        size = product(lowering.kernel.tensor(lowering.b_name).shape)
        caches = [m for m in self.target.memories if m.kind == "cache"]
        room = caches[-2].usable_bytes if len(caches) > 1 else None
        return isinstance(size, int) and size * DTYPES[lowering.parts.b.dtype].size_bytes * 4 <= (room or 0)

    def _family(self, problem: Contraction) -> Family:
        if problem not in self._families:
            self._families[problem] = family(self.target, problem, most=3, abilities=ABILITIES)
        return self._families[problem]

    def _plan(self, problem: Contraction) -> ContractionSchedule:
        """Equal problems are planned once."""
        if problem not in self._plans:
            self._plans[problem] = plan(self.target, problem, ABILITIES)
        return self._plans[problem]

    def _tile(self, schedule: ContractionSchedule, dtype: str) -> RegisterTile:
        lanes = self.machine.lanes(dtype)
        vectors = -(-schedule.register_tile[1] // lanes)
        width = vectors * lanes
        unit = self.target.unit(schedule.unit) if schedule.unit else None
        cost = self.target.intrinsics[schedule.intrinsic].cost if schedule.intrinsic else None
        chains = 1
        if unit is not None and cost is not None:
            latency = cost.chain_cycles or cost.latency_cycles or 1
            chains = round(latency * (cost.issue_per_cycle or 1) * unit.count)
        return RegisterTile(
            rows=schedule.register_tile[0],
            vectors=vectors,
            lanes=lanes,
            row_block=max(schedule.register_tile[0], schedule.worker_tile[0]),
            panel_block=max(1, schedule.worker_tile[1] // width),
            sub_rows=max(schedule.register_tile[0], schedule.tiles[0]),
            depth=schedule.tiles[2] if schedule.tiles[2] < schedule.shape[2] else None,
            chains=chains,
            intrinsics=self._names(schedule.intrinsic, dtype, lanes),
        )

    def _names(self, multiply: str, dtype: str, lanes: int) -> Names | None:
        """The load and the broadcast that feed the registers of a lane-wise multiply-add."""
        if not multiply:
            return None
        x = self.target.intrinsics[multiply]
        operands = list(x.operands)
        if (
            operands != ["acc", "a", "b"]
            or x.operands["acc"].dtype != dtype
            or list(x.dims.values()) != [lanes]
        ):
            return None
        load = self._feeding(x, r"dst\[n\]=src\[n\]")
        broadcast = self._feeding(x, r"dst\[n\]=src\[\]")
        return Names(multiply, load, broadcast) if load and broadcast else None

    def _feeding(self, user: Intrinsic, pattern: str) -> str | None:
        """An intrinsic of this meaning from the nearest memory into the registers that `user` reads."""
        want = user.operands["b"]
        for x in self.target.intrinsics.values():
            ends: Mapping[str, object] = x.operands
            if set(ends) != {"dst", "src"} or not re.fullmatch(pattern, "".join(x.semantics.split())):
                continue
            dst, src = x.operands["dst"], x.operands["src"]
            if (dst.dtype, dst.place, src.dtype) == (
                want.dtype,
                want.place,
                want.dtype,
            ) and x.dims == user.dims:
                return x.name
        return None
