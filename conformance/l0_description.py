"""L0: is the description sound?  Nothing here needs the chip.

Design choice: the lint is the same that `hwsdk targets lint` runs; the other cases check what only a loaded
target shows.
"""

from __future__ import annotations

from pathlib import Path

from hwsdk.target_desc import Target, load_target

from . import waivers
from .model import LEVELS, Case, Mismatch, Session


def cases(target: Target) -> list[Case]:
    """The cases of level L0."""
    table = {"lint": _lint, "stable": _stable, "claims": _claims, "waivers": _waivers, "capacity": _capacity}
    return [Case("L0", name, run, on_device=False) for name, run in table.items()]


def waiver_file(target: Target) -> Path | None:
    """The file that `conformance.waivers` names, beside the description."""
    named = target.conformance.get("waivers")
    return Path(target.file).parent / str(named) if named else None


def _lint(session: Session) -> None:
    from hwsdk.intrinsics import lint

    problems = lint(Path(session.device.target.file))
    if problems:
        raise Mismatch("; ".join(map(str, problems)))


def _stable(session: Session) -> None:
    """The same file gives the same target: cache keys depend on it."""
    first, second = (load_target(session.device.target.file) for _ in range(2))
    if first.digest != second.digest or first != second:
        raise Mismatch("two loads of the file give different targets")


def _claims(session: Session) -> None:
    claims = session.device.target.conformance.get("claims", ())
    unknown = [str(c) for c in claims if c not in LEVELS and not str(c).startswith(("L", "P"))]
    if unknown:
        raise Mismatch(f"conformance.claims names levels that do not exist: {', '.join(unknown)}")


def _waivers(session: Session) -> None:
    file = waiver_file(session.device.target)
    if file is not None:
        waivers.load(file)


def _capacity(session: Session) -> None:
    """Every place that programs fill has a size, or nothing could be planned into it."""
    for memory in session.device.target.memories:
        if memory.kind in ("scratchpad", "accumulator") and memory.usable_bytes is None:
            raise Mismatch(f"memory.{memory.name} has no size: the planner cannot use it")
