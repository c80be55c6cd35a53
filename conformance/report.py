"""The report: one folder with JSON for machines, JUnit for CI and Markdown for people.

Design choice: everything is rendered from one dictionary, the JSON document, so that `hwsdk conformance
report` can rebuild the others from it and two reports can be compared.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from hwsdk.errors import InputError

from .device import Device
from .model import CONFORMANT, LEVELS, STATUSES, Outcome
from .runner import conformant

FORMAT = 1
TITLES = {
    "fail": "Failures",
    "not_run": "Not run on the device",
    "unexpected_pass": "Unexpected passes",
    "expected_failure": "Expected failures",
    "unsupported": "Unsupported",
}


def document(device: Device, outcomes: Sequence[Outcome], levels: Iterable[str]) -> dict[str, Any]:
    """Everything that is known about one run."""
    target = device.target
    return {
        "format": FORMAT,
        "target": target.name,
        "description": target.digest,
        "kind": device.kind,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": _versions(),
        "levels": sorted(levels),
        "conformant": conformant(outcomes),
        "counts": {level: _counts(outcomes, level) for level in LEVELS if _counts(outcomes, level)},
        "unconfirmed": sorted(f"{path}: {o.source}" for path, o in target.origins.items() if not o.confirmed),
        "outcomes": [
            {
                "level": o.level,
                "name": o.name,
                "status": o.status,
                "reason": o.reason,
                "seconds": round(o.seconds, 4),
                "launches": o.launches,
                "measured": dict(o.measured),
                "overrides": list(o.overrides),
            }
            for o in outcomes
        ],
    }


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in ("hwsdk", "numpy", "llvmlite", "onnx", "onnxruntime"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _counts(outcomes: Iterable[Outcome], level: str) -> dict[str, int]:
    counted = Counter(o.status for o in outcomes if o.level == level)
    return {s: counted[s] for s in STATUSES if counted[s]}


def write(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes report.json, report.md and junit.xml; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.json": json.dumps(data, indent=1, default=str) + "\n",
        "report.md": markdown(data),
        "junit.xml": junit(data),
    }
    for name, text in texts.items():
        partial = folder / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, folder / name)
    return [folder / name for name in texts]


def read(path: Path) -> dict[str, Any]:
    """A report.json, or the one in a folder."""
    file = path / "report.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as trouble:
        raise InputError(f"cannot read the report {file}: {trouble}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{file} is not a conformance report of format {FORMAT}")
    return data


def markdown(data: Mapping[str, Any]) -> str:
    """The report for people."""
    verdict = "conformant" if data["conformant"] else "NOT conformant"
    lines = [
        f"# Conformance of {data['target']}: {verdict}",
        "",
        f"{data['kind']} · {data['date']} · {data['host']} · "
        + ", ".join(f"{name} {version}" for name, version in data["versions"].items()),
        "",
        f"Description digest `{data['description'][:16]}`.",
        "",
        "| level | what | " + " | ".join(s.replace("_", " ") for s in STATUSES) + " |",
        "|---" * (2 + len(STATUSES)) + "|",
    ]
    for level, counts in data["counts"].items():
        numbers = " | ".join(str(counts.get(s, 0)) for s in STATUSES)
        lines.append(f"| {level} | {LEVELS.get(level, '')} | {numbers} |")
    for status, title in TITLES.items():
        lines += _section(title, [o for o in data["outcomes"] if o["status"] == status])
    overrides = [f"- {o['level']}/{o['name']}: {text}" for o in data["outcomes"] for text in o["overrides"]]
    if overrides:
        lines += ["", "## Tolerance overrides", "", *overrides]
    if data["unconfirmed"]:
        lines += ["", "## Numbers of the description that nobody has confirmed", ""]
        lines += [f"- {item}" for item in data["unconfirmed"]]
    return "\n".join([*lines, ""])


def _section(title: str, outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not outcomes:
        return []
    reasons: dict[str, list[str]] = {}
    for o in outcomes:
        reasons.setdefault(o["reason"], []).append(f"{o['level']}/{o['name']}")
    lines = ["", f"## {title} ({len(outcomes)})", ""]
    return lines + [f"- {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def junit(data: Mapping[str, Any]) -> str:
    """The report for continuous integration."""
    outcomes = data["outcomes"]
    failures = sum(o["status"] not in CONFORMANT for o in outcomes)
    skipped = sum(o["status"] in ("unsupported", "expected_failure") for o in outcomes)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={quoteattr("hwsdk conformance " + data["target"])} tests="{len(outcomes)}" '
        f'failures="{failures}" skipped="{skipped}" time="{sum(o["seconds"] for o in outcomes):.3f}">',
    ]
    for o in outcomes:
        head = f'<testcase classname={quoteattr(o["level"])} name={quoteattr(o["name"])} time="{o["seconds"]:.3f}"'
        if o["status"] == "pass":
            lines.append(f"  {head}/>")
            continue
        kind = "skipped" if o["status"] in CONFORMANT else "failure"
        message = quoteattr(f"{o['status']}: {_printable(o['reason'])}")
        lines.append(
            f"  {head}><{kind} message={message}>{escape(_printable(o['reason']))}</{kind}></testcase>"
        )
    return "\n".join([*lines, "</testsuite>", ""])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
