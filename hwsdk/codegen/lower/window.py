"""Window kernels on a SIMD core: a small reduction for every output element (pooling, depthwise convolution,
sums over outer axes), vectorised along the dim that is contiguous in the result.

Design choice: the reduction runs innermost over one vector of outputs whose accumulator is a register;
outputs beside each other are independent, so the core overlaps them without help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import Alloc, Binary, Buffer, Const, For, Index, Load, Stmt, Store
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    Tasks,
    at,
    finish_kernel,
    finished,
    flatten_block,
    lets_for,
    merge,
    rows_per_task,
    vector_loop,
)
from hwsdk.codegen.lower.map import vector_iter
from hwsdk.codegen.lower.strips import StripLowering
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.schedule import WindowSchedule
from hwsdk.graph.dims import Ranges, product

OPERATIONS_PER_TASK = 16384
DECISIONS = ("pixels",)  # what is read of a schedule, where outputs along a row share their taps


def lower_window(
    kernel: Kernel, machine: Machine, ranges: Ranges, level: str, schedule: WindowSchedule | None = None
) -> list[Lowered]:
    (block,) = kernel.blocks
    namer = Namer(kernel)
    flat = flatten_block(kernel, block, namer, ranges)
    outer, gone = merge(block.parallel, [flat])
    reduce, gone_too = merge(block.reduce, [flat])
    flat = at(flat, {**gone, **gone_too})
    flat = replace(flat, block=replace(block, iters=(*outer, *reduce)))
    lanes = machine.lanes(block.accumulator or flat.value.dtype)
    vector = vector_iter(flat, outer, lanes)
    depth = product(i.extent for i in reduce)
    lanes = lanes if vector is not None else 1
    rows = [i for i in outer if i is not vector]
    done: set[str] = set()
    head: list[Stmt] = list(lets_for(flat, frozenset(r.name for r in rows), done))
    accumulator = Buffer("c", block.accumulator or flat.value.dtype, (lanes,), machine.registers.name)
    head.append(Alloc(accumulator))

    def element(i: Index, lane: Index) -> list[Stmt]:
        here = at(flat, {vector.name: i} if vector is not None else {})
        return _reduction(here, accumulator, lane, reduce, set(done))

    width: Index = 1 if vector is None else vector.extent
    strip = None if vector is None or lanes == 1 else _strip_iter(flat, rows, vector, reduce)
    inner: Sequence[Stmt]
    decisions: tuple[str, ...] = ()
    if strip is not None and vector is not None and not done:
        rows.remove(strip)
        size = 2 if schedule is None else max(2, schedule.pixels)
        decisions = () if schedule is None else DECISIONS
        plain = lambda here, lane: _reduction(here, accumulator, lane, reduce, set())  # noqa: E731
        place = machine.registers.name
        inner = StripLowering(flat, strip, vector, reduce, size, lanes, place, namer, plain).row()
        width = width * strip.extent
    else:
        inner = vector_loop(width, lanes, namer, element)
    tasks = Tasks(tuple(rows), rows_per_task(width * depth, OPERATIONS_PER_TASK))
    body = tasks.loop(level, namer, (*head, *inner))
    return [
        finish_kernel(
            kernel,
            namer,
            machine,
            body,
            tasks.grid,
            tasks.rows * width * depth,
            schedule=schedule,
            decisions=decisions,
        )
    ]


def _strip_iter(flat: FlatBlock, rows: list[Iter], vector: Iter, taps: list[Iter]) -> Iter | None:
    """The innermost dim along which outputs can share taps."""
    for it in reversed(rows):
        if (not isinstance(it.extent, int) or it.extent > 2) and StripLowering.suits(flat, it, vector, taps):
            return it
    return None


def _reduction(
    flat: FlatBlock, accumulator: Buffer, lane: Index, reduce: list[Iter], done: set[str]
) -> list[Stmt]:
    """acc = neutral; acc = acc op value, over the reduce iters; out = finish(acc)."""
    dtype, name = accumulator.dtype, accumulator.name
    combiner = flat.block.combiner or "sum"
    old = Load(dtype, name, (lane,))
    outside = frozenset(i.name for i in flat.block.iters) - {i.name for i in reduce}
    out: list[Stmt] = [Store(name, (lane,), Const(dtype, neutral(combiner, dtype)))]
    out += lets_for(flat, outside, done)
    lets = lets_for(flat, frozenset(i.name for i in flat.block.iters), done)
    step: tuple[Stmt, ...] = (*lets, Store(name, (lane,), Binary(dtype, COMBINE[combiner], old, flat.value)))
    for i in reversed(reduce):
        step = (For(i.name, i.extent, step),)
    out += step
    total = finished(flat.finish, Load(dtype, name, (lane,)))
    out.append(Store("o0", (flat.offset,), total))
    return out
