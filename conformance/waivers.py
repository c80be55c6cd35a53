"""What a port says beforehand about cases that cannot or do not yet pass: the file that `conformance.waivers`
names.

    - {case: "L3/sort-*", status: unsupported, reason: the chip has no compare-exchange}
    - {case: "L5/ppocr_det", status: expected_failure, reason: pooling bug 1234, expires: 2027-01-31}

Design choice: an expected failure without an expiry is refused, and one that has expired is a failure again.
"""

from __future__ import annotations

import datetime
import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsdk.errors import DescriptionError, Problem

FIELDS = ("case", "status", "reason", "expires")


@dataclass(frozen=True)
class Waiver:
    case: str
    status: str
    reason: str
    expires: datetime.date | None = None

    def covers(self, case_id: str) -> bool:
        return fnmatch.fnmatchcase(case_id, self.case)

    def expired(self, today: datetime.date) -> bool:
        return self.expires is not None and today > self.expires


def load(path: Path) -> tuple[Waiver, ...]:
    """The waivers of a file; DescriptionError with one line per mistake."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        entries = yaml.safe_load(text) or []
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as trouble:
        line = getattr(getattr(trouble, "problem_mark", None), "line", 0) + 1
        raise DescriptionError([Problem(str(path), line, f"cannot be read: {trouble}")]) from None
    if not isinstance(entries, list):
        raise DescriptionError([Problem(str(path), 1, "must be a list of waivers")])
    lines = [item.start_mark.line + 1 for item in node.value] if node is not None else []
    waivers, problems = [], []
    for entry, line in zip(entries, lines):
        made = _waiver(entry)
        if isinstance(made, Waiver):
            waivers.append(made)
        else:
            problems.append(Problem(str(path), line, made))
    if problems:
        raise DescriptionError(problems)
    return tuple(waivers)


def _waiver(entry: Any) -> Waiver | str:
    if not isinstance(entry, dict) or not {"case", "status", "reason"} <= set(entry) <= set(FIELDS):
        return f"a waiver has case, status, reason and perhaps expires; got {entry}"
    if entry["status"] not in ("unsupported", "expected_failure"):
        return f"status must be unsupported or expected_failure, not {entry['status']!r}"
    expires = entry.get("expires")
    if isinstance(expires, str):
        try:
            expires = datetime.date.fromisoformat(expires)
        except ValueError:
            return f"expires must be a date such as 2027-01-31, not {expires!r}"
    if entry["status"] == "expected_failure" and not isinstance(expires, datetime.date):
        return "an expected failure needs `expires`: the date from which it counts as a failure again"
    return Waiver(str(entry["case"]), entry["status"], str(entry["reason"]), expires)


def find(waivers: tuple[Waiver, ...], case_id: str) -> Waiver | None:
    """The first waiver that covers a case."""
    return next((w for w in waivers if w.covers(case_id)), None)
