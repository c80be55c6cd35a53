"""Schedules of maps and small windows: vectors per step, outputs per register tile, elements per task.

Design choice: the same cost terms as everywhere (issue, chain, loads, bytes) over a few dozen candidates; a
task is as long as some fork times, so that sharing out never costs more than it gains.
"""

from __future__ import annotations

import math

import numpy as np

from hwsdk.codegen.planner.blocks import both
from hwsdk.codegen.planner.explain import reason
from hwsdk.codegen.planner.problem import MapProblem, WindowProblem, typical
from hwsdk.codegen.planner.rows import FORKS_PER_TASK, TASKS_PER_WORKER
from hwsdk.codegen.planner.tiles import grid
from hwsdk.codegen.planner.vectors import VectorCore, vector_core
from hwsdk.codegen.schedule import MapSchedule, WindowSchedule
from hwsdk.dtypes import dtype
from hwsdk.target_desc.model import Target

MOST_UNROLLED = 4
MOST_PIXELS = 8
STEP = 8.0  # cycles to start a tile of outputs: addresses, the store at its end


def plan_map(target: Target, problem: MapProblem) -> MapSchedule:
    """The schedule of independent elements at the typical size."""
    core = vector_core(target, problem.dtype)
    elements = max(1, typical(problem.elements))
    moved = problem.read_bytes + problem.write_bytes
    source = core.levels[-2] if core.staged else core.holder(elements * moved)
    memory = moved / core.rate(source, core.workers)
    unit = problem.work / (core.lanes * core.issue)
    each = max(memory, unit) + (1 - source.overlap) * min(memory, unit)
    unroll = max(1, min(MOST_UNROLLED, math.ceil(core.latency * core.issue / max(1.0, problem.work))))
    step = core.lanes * unroll
    per_task = _up(_per_task(core, elements, each), step)
    buffers = 2 if core.staged else 1
    chunk = max(step, int(core.near.bytes // (moved * buffers)) // step * step) if core.staged else 0
    busy = min(core.workers, math.ceil(elements / per_task))
    return MapSchedule(
        lanes=core.lanes,
        unroll=unroll,
        elements_per_task=per_task,
        tasks=math.ceil(elements / per_task),
        chunk=chunk,
        buffers=buffers,
        cycles=elements * each / busy + (core.fork if busy > 1 else 0.0),
        bound_by=source.name if memory > unit else core.unit,
        why=(
            reason(target, "lanes", core.lanes, *core.lane_fields),
            reason(target, "unroll", unroll, f"units.{core.unit}.count"),
            reason(target, "elements_per_task", per_task, *core.worker_fields),
            reason(target, "bound_by", source.name, f"memory.{source.name}.read_bytes_per_cycle"),
        ),
    )


def plan_window(target: Target, problem: WindowProblem) -> WindowSchedule:
    """Outputs along a row x vectors of channels whose accumulators stay in registers while the window is
    walked."""
    core = vector_core(target, problem.dtype)
    rows, width, channels = (max(1, typical(x)) for x in (problem.rows, problem.pixels, problem.channels))
    high, wide = problem.window
    pixels, vectors = grid(range(1, min(MOST_PIXELS, width) + 1), range(1, MOST_UNROLLED + 1))
    registers = pixels * vectors + vectors * problem.weights + 1
    fits = registers <= (core.registers or np.inf)
    pixels, vectors = pixels[fits | (pixels * vectors == 1)], vectors[fits | (pixels * vectors == 1)]
    columns = np.ceil(channels / core.lanes)
    tiles = np.ceil(width / pixels) * np.ceil(columns / vectors)
    issue = np.full(len(tiles), width * columns * problem.taps / core.issue)
    chain = tiles * problem.taps * core.latency
    inputs = (pixels - 1) * problem.strides[1] + wide
    loads = tiles * high * (inputs + wide * problem.weights) * np.minimum(vectors, columns)
    slots = loads / core.near.loads if core.near.loads else loads * core.lanes * 4 / core.near.read
    cycles = np.maximum(both(issue, chain), slots) + tiles * STEP
    best = int(np.argmin(cycles))
    row = float(cycles[best])
    per_task = _per_task(core, rows, row)
    size = dtype(problem.dtype).size_bytes
    return WindowSchedule(
        lanes=core.lanes,
        pixels=int(pixels[best]),
        vectors=int(vectors[best]),
        rows_per_task=per_task,
        cycles=rows * row / min(core.workers, math.ceil(rows / per_task)) + core.fork,
        bound_by=core.unit if issue[best] >= slots[best] else core.near.name,
        why=(
            reason(target, "lanes", core.lanes, *core.lane_fields),
            reason(
                target,
                "pixels",
                f"{int(pixels[best])} x {int(vectors[best])} vectors of {core.lanes * size} bytes",
                *core.lane_fields,
                f"memory.{core.near.name}.loads_per_cycle",
                f"units.{core.unit}.count",
            ),
            reason(target, "rows_per_task", per_task, *core.worker_fields),
        ),
    )


def _per_task(core: VectorCore, items: int, each: float) -> int:
    """Items per task: long against a fork, several tasks per worker."""
    least = math.ceil(FORKS_PER_TASK * core.fork / each)
    wanted = math.ceil(items / (core.workers * TASKS_PER_WORKER)) if core.workers > 1 else items
    return max(1, min(items, max(least, wanted)))


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
