"""Kernels with loops of their own (sorting, scanning, scattering): one lane per task.

Design choice: the loops come from the rooms that every target shares, written for tasks of one stream; here a task
becomes a lane, and what a task holds for itself becomes private to the lane.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.loop_ir import Alloc, Body, For, FromIndex, If, Let, Outline, Stmt, Switch, parallel_loop
from hwsdk.codegen.lower.lowered import Lowered, compare
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.errors import PlanError
from hwsdk.graph.dims import ceildiv, sym

WAVES = 2  # few lanes in a workgroup: tasks are long and seldom many


def tasks_on_lanes(made: Lowered, chip: SimtChip) -> Lowered:
    """The kernel with its tasks as lanes.  PlanError where a task needs memory whose size is known only at run time."""
    loop = parallel_loop(made.loop)
    if loop is None:
        raise PlanError(f"kernel {made.loop.name} has no tasks to spread over lanes")
    waves = chip.waves(WAVES)
    lanes = waves * chip.width
    body: Body = (
        Let(loop.var, FromIndex("i64", sym("group") * lanes + sym("t"))),
        If(compare("lt", sym(loop.var), loop.extent), private(loop.body, chip, made.loop.name)),
    )
    grid = ceildiv(loop.extent, lanes)
    spread = For("group", grid, chip.lanes(waves, body), "parallel", chip.group.name)
    head = private(tuple(s for s in made.loop.body if s is not loop), chip, made.loop.name)
    kernel = replace(made.loop, body=(*head, spread))
    fallback = None if made.fallback is None else tasks_on_lanes(made.fallback, chip)
    return replace(made, loop=kernel, grid=ceildiv(made.grid, lanes), fallback=fallback)


def private(body: Body, chip: SimtChip, kernel: str) -> Body:
    """The body with what it allocates in a lane's registers.  PlanError where that has no constant size."""
    return tuple(_statement(s, chip, kernel) for s in body)


def _statement(stmt: Stmt, chip: SimtChip, kernel: str) -> Stmt:
    match stmt:
        case Alloc(buffer=buffer):
            if not all(isinstance(e, int) for e in buffer.shape):
                raise PlanError(f"kernel {kernel}: {buffer.name} of a lane has no constant size")
            return Alloc(replace(buffer, place=chip.registers.name))
        case For(body=body) | Outline(body=body):
            return replace(stmt, body=private(body, chip, kernel))
        case If(then=then, orelse=orelse):
            return replace(stmt, then=private(then, chip, kernel), orelse=private(orelse, chip, kernel))
        case Switch(cases=cases):
            return replace(stmt, cases=tuple(private(c, chip, kernel) for c in cases))
    return stmt
