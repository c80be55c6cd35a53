"""Schedules of row reductions (softmax, layer norm): where a row lives between passes, how rows are shared
out.

Design choice: one time per element decides everything.  A row's home is the innermost place that holds all
that is row-long; the first pass reads from where the data is, later passes from home; merging passes is
taken only if it is faster, because merged statistics may cost arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hwsdk.codegen.planner.explain import reason
from hwsdk.codegen.planner.levels import Place
from hwsdk.codegen.planner.problem import RowProblem, typical
from hwsdk.codegen.planner.vectors import VectorCore, vector_core
from hwsdk.codegen.schedule import Reason, RowSchedule
from hwsdk.dtypes import dtype
from hwsdk.target_desc.model import Target

FORKS_PER_TASK = 4  # a task takes at least this many fork times
FORKS_TO_SPLIT = 3  # splitting one row costs two hand-offs and a combine
TASKS_PER_WORKER = 4
INTERLEAVED = 8  # vectors in flight that hide the latency of horizontal reductions


@dataclass(frozen=True)
class _Variant:
    """One way through a row: passes that read and write, vector operations per vector."""

    reads: int
    writes: int
    work: float
    merged: bool


def plan_rows(target: Target, problem: RowProblem) -> RowSchedule:
    """The schedule of one row kernel at the typical size of its problem."""
    core = vector_core(target, problem.dtype)
    rows, length = max(1, typical(problem.rows)), max(1, typical(problem.length))
    size = dtype(problem.dtype).size_bytes
    buffers = 2 if core.staged else 1
    held = (problem.arrays * buffers + problem.parameters) * length * size
    home = core.holder(held)
    source = core.holder(rows * problem.arrays * length * size) if not core.staged else core.levels[-2]
    busy = min(core.workers, rows)
    variants = [_Variant(problem.reads, problem.writes, problem.work, False)]
    if problem.merged_reads is not None:
        work = problem.work if problem.merged_work is None else problem.merged_work
        variants.append(_Variant(problem.merged_reads, problem.writes, work, True))
    timed = [(_per_element(core, problem, v, length, home, source, busy), v) for v in variants]
    (each, bound), variant = min(timed, key=lambda t: t[0][0])
    parts = _split(core, rows, length * each)
    per_task = _rows_per_task(core, rows, length * each)
    held_rows = _rows_per_tile(core, problem, length, size, buffers)
    waves = math.ceil(rows / max(1, busy))
    return RowSchedule(
        home=home.name,
        passes=(source.name, *[home.name] * (variant.reads - 1)),
        online=variant.merged,
        lanes=core.lanes,
        interleave=min(INTERLEAVED, math.ceil(INTERLEAVED * core.lanes / length)) if parts == 1 else 1,
        rows_per_task=per_task,
        split=parts,
        accumulators=_accumulators(core, length),
        rows_per_tile=held_rows,
        buffers=buffers,
        chunk=0 if held_rows or not core.staged else _chunk(core, problem, size, buffers),
        cycles=waves * length * each / parts + core.fork,
        bound_by=bound,
        why=_reasons(core, problem, held, home, variant, per_task, parts),
    )


def _per_element(
    core: VectorCore,
    problem: RowProblem,
    variant: _Variant,
    length: int,
    home: Place,
    source: Place,
    busy: int,
) -> tuple[float, str]:
    """Cycles per element, and what they are spent on."""
    size = dtype(problem.dtype).size_bytes
    again = max(0, variant.reads + variant.writes - problem.arrays) + problem.parameters
    memory = size * (problem.arrays / core.rate(source, busy) + again / core.rate(home, busy))
    unit = variant.work / (core.lanes * core.issue)
    reducing = problem.reductions * math.log2(max(2, core.lanes)) * 2 * core.latency / length
    unit += reducing / (INTERLEAVED if length < core.lanes * INTERLEAVED else 1)
    shown = (1 - source.overlap) * min(memory, unit)
    return max(memory, unit) + shown, source.name if memory > unit else core.unit


def _split(core: VectorCore, rows: int, row_cycles: float) -> int:
    """Workers per row: more than one only if rows are scarce and the gain pays for the hand-offs."""
    parts = core.workers // rows
    if parts < 2 or row_cycles * (1 - 1 / parts) <= FORKS_TO_SPLIT * core.fork:
        return 1
    return parts


def _rows_per_task(core: VectorCore, rows: int, row_cycles: float) -> int:
    """As many rows as make a task long against a fork, and few enough that every worker gets several tasks."""
    least = math.ceil(FORKS_PER_TASK * core.fork / row_cycles)
    wanted = math.ceil(rows / (core.workers * TASKS_PER_WORKER)) if core.workers > 1 else rows
    return max(1, min(math.ceil(rows / core.workers), max(least, wanted)))


def _accumulators(core: VectorCore, length: int) -> int:
    """Partial results that hide the latency of the combining operation, no more than the row has vectors."""
    wanted = math.ceil(core.latency * core.issue)
    most = max(1, core.registers // 4) if core.registers else 1
    return max(1, min(wanted, most, math.ceil(length / core.lanes)))


def _rows_per_tile(core: VectorCore, problem: RowProblem, length: int, size: int, buffers: int) -> int:
    """Rows staged together in a scratchpad; 0: not even one fits."""
    if not core.staged:
        return 1
    room = core.near.bytes - problem.parameters * length * size
    return max(0, int(room // (problem.arrays * buffers * length * size)))


def _chunk(core: VectorCore, problem: RowProblem, size: int, buffers: int) -> int:
    """Elements of a row staged at once when a whole row does not fit."""
    each = (problem.arrays * buffers + problem.parameters) * size
    return max(core.lanes, int(core.near.bytes // each) // core.lanes * core.lanes)


def _reasons(
    core: VectorCore,
    problem: RowProblem,
    held: float,
    home: Place,
    variant: _Variant,
    per_task: int,
    parts: int,
) -> tuple[Reason, ...]:
    target = core.target
    caches = [f"memory.{p.name}.size_bytes" for p in core.levels if p.kind != "dram"]
    rates = [f"memory.{p.name}.read_bytes_per_cycle" for p in core.levels]
    arrays = f"{problem.arrays} arrays and {problem.parameters} parameters take {held:.0f} bytes per row"
    passes = (
        f"{variant.reads} read, {variant.writes} written{', merged statistics' if variant.merged else ''}"
    )
    return (
        reason(target, "home", f"{home.name} ({arrays})", *caches),
        reason(target, "passes", passes, *rates, f"units.{core.unit}.count"),
        reason(target, "lanes", core.lanes, *core.lane_fields),
        reason(target, "rows_per_task", per_task, *core.worker_fields),
        reason(target, "split", parts, *core.worker_fields),
    )
