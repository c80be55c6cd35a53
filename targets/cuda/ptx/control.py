"""Branches, returns, barriers, traps.

Design choice: these become the engine's own statements, since the scheduler must see where lanes go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.program import Barrier, Branch, Exit, Jump, Lanes, Read, Table
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.types import U32
from hwsdk.targets.cuda.ptx.warp import synchronise


def branch(context: Context) -> None:
    context.take("uni")
    context.done(1)
    target = context.label(0)
    guard = context.guard()
    if guard is None:
        context.add(Jump(target, context.place))
    else:
        context.add(Branch(guard, context.instruction.negated, target, context.place))


def indexed_branch(context: Context) -> None:
    if not context.take("idx"):
        context.fail("only brx.idx is supported")
    context.take("uni")
    context.done(2)
    context.around(Table(context.read(0, U32), context.targets(1), context.place))


def leave(context: Context) -> None:
    context.take("uni")
    context.done(0)
    context.builder.leave(context)


def finish(context: Context) -> None:
    context.done(0)
    context.around(Exit(context.place))


def barrier(context: Context) -> None:
    """bar and barrier: wait for the block or for a number of its lanes; or only arrive; or a warp's own."""
    if context.take("warp"):
        context.take("sync")
        synchronise(context)
        return
    aligned = bool(context.take("aligned")) or context.instruction.opcode == "bar"
    context.take("cta")
    what = context.take("sync", "arrive")
    count = len(context.operands)
    context.done(count)
    if not what or count not in (1, 2) or (what == "arrive" and count != 2):
        context.fail("this form of barrier is not supported")
    number: Read = context.read(0, U32)
    many: Read | None = context.read(1, U32) if count == 2 else None
    context.around(Barrier(number, many, aligned, what == "sync", context.place))


def trap(context: Context) -> None:
    context.left.clear()

    def run(frame: Any, lanes: Lanes) -> None:
        raise Fault(FaultKind.TRAP, "the kernel gives up here")

    context.emit(run, "control")


def nothing(context: Context) -> None:
    context.left.clear()
    context.emit(lambda frame, lanes: None, "control")


BUILDERS: dict[str, Callable[[Context], None]] = {
    "bra": branch,
    "brx": indexed_branch,
    "ret": leave,
    "exit": finish,
    "bar": barrier,
    "barrier": barrier,
    "trap": trap,
    "brkpt": nothing,
    "nanosleep": nothing,
    "pmevent": nothing,
}
