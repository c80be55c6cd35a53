"""Schedules of lanes changed by hand: what every kind of kernel asks of them.

Design choice: a changed schedule is never adjusted.  What the chip or the kernel cannot have is refused with both
numbers, before the loops are made where that can be known, else from the loops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hwsdk.codegen.footprint import overflow
from hwsdk.codegen.lower.lowered import Lowered
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.schedule import Decided, noted

NONE = Overrides()


def waves_of(changes: Overrides, kernel: str, chip: SimtChip, lanes: int, decision: str = "lanes") -> int:
    """The lockstep groups of a workgroup of so many lanes; PlanError where it cannot have them."""
    waves, rest = divmod(lanes, chip.width)
    if rest or not waves or chip.waves(waves) != waves:
        most = chip.width if chip.wave is None else (chip.wave.max or waves) * chip.width
        changes.refuse(
            kernel,
            f"{decision} {lanes}: a {chip.group.name} has a multiple of {chip.width} lanes, {most} at most",
        )
    return waves


def power_of_two(changes: Overrides, kernel: str, decision: str, value: int, most: int) -> None:
    """PlanError if a decision is no power of two up to `most`."""
    if value < 1 or value > most or value & (value - 1):
        changes.refuse(kernel, f"{decision} {value}: a power of two is expected, {most} at most")


def fitting(changes: Overrides, kernel: str, chip: SimtChip, made: Lowered) -> Lowered:
    """The kernel, with the reasons of what was changed; PlanError where the chip cannot hold it."""
    if kernel not in changes:
        return made
    if made.decisions:
        if lacking := overflow(made.loop, chip.target):
            changes.refuse(kernel, f"it needs {lacking}")
        plan = noted(cast("Decided", made.schedule), changes.changes[kernel])
        made = replace(made, schedule=plan)
    rest = made.fallback
    return made if rest is None else replace(made, fallback=fitting(changes, kernel, chip, rest))
