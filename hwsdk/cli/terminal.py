"""How commands speak: tables, JSON, progress, one-line errors and exit codes.

Design choice: what a command prints goes to standard output and is plain text unless that is a terminal;
progress and errors go to standard error.  A deliberate error (`HwsdkError`) is one sentence and its own exit
code, never a traceback; HWSDK_DEBUG=1 shows the traceback too.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from hwsdk.errors import HwsdkError

INTERRUPTED = 130
INTERNAL = 70  # EX_SOFTWARE: a defect of hwsdk itself
Command = TypeVar("Command", bound=Callable[..., Any])


def command(function: Command) -> Command:
    """Wraps the function of a command: errors become one message and an exit code."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as trouble:
            if isinstance(trouble, typer.Exit | typer.Abort | typer.BadParameter):
                raise
            raise typer.Exit(report(trouble)) from None

    return guarded  # type: ignore[return-value]


def report(trouble: BaseException) -> int:
    """Prints what went wrong and returns the exit code for it."""
    if os.environ.get("HWSDK_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exception(trouble)
    text, code = _explain(trouble)
    if text:
        say(text)
    if isinstance(trouble, BrokenPipeError):  # the reader is gone: nothing more may be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _explain(trouble: BaseException) -> tuple[str, int]:
    if isinstance(trouble, HwsdkError):
        return f"error: {trouble}", trouble.exit_code
    if isinstance(trouble, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(trouble, BrokenPipeError):
        return "", 1
    if isinstance(trouble, MemoryError):
        return "error: out of memory", 1
    if isinstance(trouble, OSError):
        return f"error: {trouble}", 1
    kind = type(trouble).__name__
    hint = "this is a defect of hwsdk; HWSDK_DEBUG=1 shows the traceback"
    return f"internal error: {kind}: {' '.join(str(trouble).split())} ({hint})", INTERNAL


def say(text: str) -> None:
    """A message for the person, on standard error."""
    print(text, file=sys.stderr, flush=True)


def out(text: str = "") -> None:
    """A line of the command's result."""
    print(text)


def out_json(data: Any) -> None:
    """The command's result for a machine: one JSON document."""
    print(json.dumps(_finite(data), indent=2, default=_plain))


def _finite(data: Any) -> Any:
    """JSON has no NaN and no infinities: they become text."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return list(map(_finite, data)) if isinstance(data, list | tuple) else data


def _plain(value: Any) -> Any:
    for convert in ("tolist", "_asdict"):  # NumPy scalars and arrays, named tuples
        if hasattr(value, convert):
            return getattr(value, convert)()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Rows under headings.  Numbers are right-aligned; a terminal gets a drawn table, a pipe plain columns."""
    cells = [[_cell(c) for c in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    if is_terminal():
        _drawn_table(columns, cells, right, title)
        return
    if title:
        out(title)
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right)]
        out("  ".join(padded).rstrip())


def _drawn_table(columns: Sequence[str], cells: list[list[str]], right: list[bool], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for name, numeric in zip(columns, right):
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*(cell.replace("[", r"\[") for cell in row))
    Console().print(drawn)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """A bar on standard error while the body runs; yields `advance(amount=1, text=None, done=None, total=None)`.

    Where standard error is no terminal nothing is drawn.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda amount=1, text=None, done=None, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)

        def advance(
            amount: float | None = 1,
            text: str | None = None,
            done: float | None = None,
            total: float | None = None,
        ) -> None:
            bars.update(task, advance=amount, description=text, completed=done, total=total)

        yield advance


@contextmanager
def compiling(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar that follows a compilation; yields the `progress` argument of `hwsdk.compile`."""
    with progress(what, total=1) as advance:

        def follow(stage: str, done: int, total: int) -> None:
            advance(None, f"{what}: {stage}", done, total)

        yield follow


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
