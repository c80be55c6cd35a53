"""Schedules changed by hand: for each kernel, the decisions that replace the planner's.

    k0_contraction:
      register_tile: [4, 16]
      tiles: [128, 256, 512]

Design choice: what may be changed is exactly what the lowering of that kernel reads (`Lowered.decisions`);
anything else is refused, so that no change is silently without effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hwsdk.codegen.lower.lowered import Lowered, versions
from hwsdk.codegen.schedule import S, override
from hwsdk.errors import PlanError, nearest
from hwsdk.target_desc.nodes import Map, read

Changes = Mapping[str, Mapping[str, Any]]


class Overrides:
    """Changes by kernel name, each applied when its kernel is lowered."""

    def __init__(self, changes: Changes | None = None) -> None:
        self.changes = changes or {}
        for kernel, decisions in self.changes.items():
            if not isinstance(kernel, str) or not isinstance(decisions, Mapping):
                raise PlanError(f"schedule of {kernel}: a mapping from decision to value is expected")

    def __contains__(self, kernel: str) -> bool:
        return kernel in self.changes

    def concerns(self, kernel: str) -> bool:
        """Is something changed about the kernel or about one that its lowering adds?"""
        return any(name == kernel or name.startswith(f"{kernel}_") for name in self.changes)

    def apply(self, kernel: str, schedule: S, decisions: tuple[str, ...]) -> S:
        """The schedule with the changes of this kernel; PlanError that says what is wrong with them."""
        changes = self.changes.get(kernel)
        if changes is None:
            return schedule
        for name in changes:
            if name not in decisions:
                self.refuse(kernel, f"{name!r} is no decision that may be changed{nearest(name, decisions)}")
        try:
            return override(schedule, changes)
        except PlanError as error:
            self.refuse(kernel, str(error).removeprefix("schedule: "))
            raise

    def refuse(self, kernel: str, why: str) -> None:
        """PlanError about the changes of one kernel, with the line where they were written."""
        place = self.changes.keys_at[kernel] if isinstance(self.changes, Map) else None
        where = f"{place.file}:{place.line}: " if place else ""
        raise PlanError(f"{where}schedule of {kernel}: {why}") from None

    def check_kernels(self, lowered: Iterable[Lowered]) -> None:
        """PlanError for a name that is no kernel of this model, or none whose schedule can be changed."""
        known = {item.kernel: decided(item) for item in lowered}
        open_ = [name for name, decisions in known.items() if decisions]
        for kernel in self.changes:
            if kernel not in known:
                self.refuse(kernel, f"the model has no such kernel on this target{nearest(kernel, open_)}")
            if not known[kernel]:
                self.refuse(kernel, f"nothing about it may be changed{nearest(kernel, open_)}")


def read_overrides(path: Path) -> Changes:
    """Changes from a YAML or JSON file; DescriptionError or PlanError with the line."""
    found = read(path, "a file of schedules")
    for kernel, decisions in found.items():
        if not isinstance(decisions, Map):
            at = found.at(kernel)
            raise PlanError(
                f"{at.file}:{at.line}: schedule of {kernel}: a mapping from decision to value is expected"
            )
    return found


def decided(item: Lowered) -> dict[str, Any]:
    """The decisions of a kernel that may be changed, with their values: what `Overrides` takes back.

    Of several versions, the first that says which of its decisions may be changed.
    """
    one = next((v for v in versions(item) if v.decisions), item)
    values = {name: getattr(one.schedule, name) for name in one.decisions}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
