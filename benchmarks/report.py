"""What was measured, as tables for people and as JSON for programs.

Design choice: a program first builds one plain dict and then shows it; what is printed is a view of what is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "llvmlite", "onnx", "onnxruntime")


def arguments(about: str | None) -> argparse.ArgumentParser:
    """The options that all programs share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="x86", help="description to compile for (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="alternating rounds (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that the program works")
    parser.add_argument(
        "--json", metavar="FILE", help="write the figures there; - prints them instead of tables"
    )
    return parser


def threads_of(options: argparse.Namespace) -> list[int]:
    """The numbers of threads asked for, without those that this process has no cores for."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [n for n in map(int, options.threads.split(",")) if n == 1 or n <= usable]


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was."""
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found["processor"] = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        found["processor"] = platform.processor()
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if hasattr(os, "getloadavg"):
        found["load_average"] = round(os.getloadavg()[0], 2)
    return found


def heading(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    busy = f", load average {facts['load_average']}" if "load_average" in facts else ""
    versions = ", ".join(f"{name} {facts[name]}" for name in ("onnxruntime", "numpy"))
    return f"{facts['processor']}, {facts['cores']} cores{busy}; {versions}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers stand to the right."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        shown.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        shown.add_row(*map(str, row))
    Console(width=None if os.isatty(1) else 140).print(shown)


def finish(figures: Mapping[str, Any], destination: str | None) -> bool:
    """Write the JSON form; True when tables are wanted too."""
    if destination is None:
        return True
    text = json.dumps(figures, indent=1)
    if destination == "-":
        print(text)
        return False
    Path(destination).write_text(text + "\n", encoding="utf-8")
    return True
