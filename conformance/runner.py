"""Runs cases on a device and says what came of each.

Design choice: a case passes only if its function returned *and* the device's launch counter moved: a result
that the device did not compute proves nothing about it.
"""

from __future__ import annotations

import datetime
import fnmatch
import time
from collections.abc import Callable, Iterable, Sequence

from hwsdk.errors import DeviceError, HwsdkError, UnsupportedError

from .device import Device
from .model import LEVELS, Case, Mismatch, Outcome, Session, Unsupported
from .waivers import Waiver, find

Observer = Callable[[Outcome], None]


def select(cases: Iterable[Case], levels: Sequence[str] = (), pattern: str = "") -> list[Case]:
    """Cases of the given levels whose id contains or matches `pattern` (several alternatives: a,b)."""
    wanted = [p.strip() for p in pattern.split(",") if p.strip()]
    return [c for c in cases if (not levels or c.level in levels) and (not wanted or _hit(c.id, wanted))]


def _hit(case_id: str, patterns: Sequence[str]) -> bool:
    return any(p in case_id or fnmatch.fnmatchcase(case_id, p) for p in patterns)


def run(
    cases: Sequence[Case],
    device: Device,
    waivers: tuple[Waiver, ...] = (),
    *,
    seed: int = 0,
    shapes: int = 10,
    observe: Observer = lambda outcome: None,
    today: datetime.date | None = None,
) -> list[Outcome]:
    """The outcome of each case, in order.  Interrupting stops at once; what `observe` was told stands."""
    day = today or datetime.date.today()
    outcomes = []
    for case in cases:
        outcome = run_one(case, Session(device, seed, shapes), find(waivers, case.id), day)
        observe(outcome)
        outcomes.append(outcome)
    return outcomes


def run_one(case: Case, session: Session, waiver: Waiver | None, today: datetime.date) -> Outcome:
    """Runs one case and applies its waiver."""
    before = session.device.launches
    start = time.perf_counter()
    status, reason = _attempt(case, session)
    seconds = time.perf_counter() - start
    launches = session.device.launches - before
    if status == "pass" and case.on_device and launches == 0:
        status, reason = "not_run", "the device launched nothing: this result came from elsewhere"
    status, reason = _waived(status, reason, waiver, today)
    return Outcome(
        case.level,
        case.name,
        status,
        reason,
        seconds,
        launches,
        dict(session.measured),
        tuple(session.overrides),
    )


def _attempt(case: Case, session: Session) -> tuple[str, str]:
    try:
        case.run(session)
    except Unsupported as refusal:
        return "unsupported", str(refusal)
    except UnsupportedError as refusal:
        return "fail", f"refused by the compiler: {refusal}"
    except (Mismatch, DeviceError, HwsdkError) as trouble:
        return "fail", str(trouble)
    except Exception as trouble:  # noqa: BLE001 - whatever breaks inside a case is that case's failure
        return "fail", f"{type(trouble).__name__}: {trouble}"
    return "pass", ""


def _waived(status: str, reason: str, waiver: Waiver | None, today: datetime.date) -> tuple[str, str]:
    if waiver is None:
        return status, reason
    if status == "pass":
        return (
            "unexpected_pass",
            f"waived as {waiver.status} ({waiver.reason}), but it passes: remove the waiver",
        )
    if waiver.status == "unsupported":
        return "unsupported", waiver.reason
    if waiver.expired(today):
        return status, f"{reason} (expected failure expired on {waiver.expires}: {waiver.reason})"
    return "expected_failure", f"{waiver.reason} (until {waiver.expires}): {reason}"


def conformant(outcomes: Iterable[Outcome]) -> bool:
    """Nothing failed, and something ran."""
    seen = list(outcomes)
    return bool(seen) and all(o.conformant for o in seen) and any(o.status == "pass" for o in seen)


def known_levels(text: str) -> list[str]:
    """`L1,L3` -> ['L1', 'L3']; empty means all."""
    from hwsdk.errors import InputError, nearest

    levels = [w.strip().upper() for w in text.split(",") if w.strip()]
    for level in levels:
        if level not in LEVELS:
            raise InputError(f"no conformance level {level!r}{nearest(level, LEVELS)}")
    return levels
