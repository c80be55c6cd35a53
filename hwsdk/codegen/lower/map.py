"""Map kernels on a SIMD core: independent elements, vectorised along the dim that is contiguous in the
result.

Design choice: the iteration space is first made as flat as its accesses allow, so that most maps become one
long loop and only genuinely strided ones keep rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hwsdk.codegen.blocks import Block, Iter, Kernel
from hwsdk.codegen.loop_ir import Body, For, Index, Stmt, Store
from hwsdk.codegen.lower.extents import LIKELY
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    Tasks,
    at,
    finish_kernel,
    flatten_block,
    inputs_of,
    lets_for,
    merge,
    offsets_of,
    rows_per_task,
    vector_loop,
)
from hwsdk.codegen.schedule import MapSchedule
from hwsdk.graph.dims import Ranges, ceildiv, coefficient, minimum, product, sym

ELEMENTS_PER_TASK = 8192
DECISIONS = ("elements_per_task",)  # what is read of a schedule


Plan = Callable[[Kernel, Block], MapSchedule]
Planned = dict[str, Any]


def lower_map(
    kernel: Kernel, machine: Machine, ranges: Ranges, level: str, plan: Plan | None = None
) -> list[Lowered]:
    """One launch per block (a concatenation has several)."""
    named = [
        replace(kernel, name=f"{kernel.name}_{i}" if i else kernel.name) for i in range(len(kernel.blocks))
    ]
    return [
        _lower(one, b, machine, ranges, level, None if plan is None else plan(one, b))
        for one, b in zip(named, kernel.blocks, strict=True)
    ]


def _lower(
    kernel: Kernel, block: Block, machine: Machine, ranges: Ranges, level: str, schedule: MapSchedule | None
) -> Lowered:
    per_task = ELEMENTS_PER_TASK if schedule is None else schedule.elements_per_task
    planned: Planned = {} if schedule is None else {"schedule": schedule, "decisions": DECISIONS}
    kernel = replace(kernel, blocks=(block,), inputs=inputs_of(kernel, block))
    namer = Namer(kernel)
    flat = flatten_block(kernel, block, namer, ranges)
    iters, gone = merge(block.iters, [flat])
    flat = at(flat, gone)
    flat = replace(flat, block=replace(block, iters=tuple(iters)))
    lanes = machine.lanes(kernel.tensor(block.output).dtype, "f32")
    vector = vector_iter(flat, iters, lanes)
    out = namer.outputs[0]
    total = product(i.extent for i in iters)
    if vector is None:
        body: Body = (For(namer.fresh("task"), 1, _element(flat, out, {}, set()), "parallel", level),)
        return finish_kernel(kernel, namer, machine, body, 1, 1, schedule=schedule)
    if len(iters) == 1:
        chunk = -(-per_task // lanes) * lanes
        task = namer.fresh("task")
        count = minimum(chunk, vector.extent - sym(task) * chunk)
        inner = vector_loop(
            count,
            lanes,
            namer,
            lambda i, _: _element(flat, out, {vector.name: sym(task) * chunk + i}, set()),
        )
        grid = ceildiv(vector.extent, chunk)
        body = (For(task, grid, tuple(inner), "parallel", level),)
        return finish_kernel(kernel, namer, machine, body, grid, total, **planned)
    rows = [i for i in iters if i is not vector]
    tasks = Tasks(tuple(rows), rows_per_task(vector.extent, per_task))
    done: set[str] = set()
    head = lets_for(flat, frozenset(r.name for r in rows), done)
    inner = vector_loop(
        vector.extent, lanes, namer, lambda i, _: _element(flat, out, {vector.name: i}, set(done))
    )
    body = tasks.loop(level, namer, (*head, *inner))
    return finish_kernel(kernel, namer, machine, body, tasks.grid, total, **planned)


def contiguous_iter(iters: list[Iter], offset: Index) -> Iter | None:
    """The iter that is contiguous in the result; the longest known one if none is."""
    for it in reversed(iters):
        if isinstance(offset, int):
            break
        if coefficient(offset, it.name) == 1:
            return it
    return iters[-1] if iters else None


ROW_OVERHEAD = 12.0  # to find where a row begins, in the unit of one strided access


def vector_iter(flat: FlatBlock, iters: Sequence[Iter], lanes: int) -> Iter | None:
    """The iter along which vectors are cheapest.

    Per element an access costs 1/lanes where it is contiguous or constant, 1 where it is strided; lanes that stay
    empty cost as much as full ones, and every row costs its overhead.
    """
    moves, _ = offsets_of(flat)

    def cost(it: Iter) -> float:
        extent = it.extent if isinstance(it.extent, int) else LIKELY
        steps = -(-extent // lanes)
        access = 0.0
        for offset in moves:
            step = 0 if isinstance(offset, int) else coefficient(offset, it.name)
            access += steps if step in (0, 1) else extent
        return (access + ROW_OVERHEAD) / max(1, extent)

    return min(reversed(iters), key=cost, default=None)


def _element(flat: FlatBlock, out: str, where: dict[str, Index], done: set[str]) -> tuple[Stmt, ...]:
    moved = at(flat, where)
    iters = frozenset(i.name for i in flat.block.iters)
    lets = lets_for(moved, iters, done)
    return (*lets, Store(out, (moved.offset,), moved.value, moved.where))
