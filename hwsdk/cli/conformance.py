"""`hwsdk conformance`: run the suite, list its cases, show a report.

Design choice: the folder that `--out` names holds the whole result; what is printed is a summary of it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwsdk.cli.terminal import command, out, out_json, progress, say, table

if TYPE_CHECKING:
    from hwsdk.target_desc import Target

app = typer.Typer(no_args_is_help=True, help="The suite that a port must pass.")
TARGET = typer.Option(None, "--target", "-t", help="Target: name, family or path (default: this machine's).")
LEVEL = typer.Option("", "--level", help="Levels, for example L1,L3 (default: all).")
FILTER = typer.Option("", "--filter", help="Only cases whose id contains or matches this (several: a,b).")
JSON = typer.Option(False, "--json", help="Print JSON.")


def _collect(
    target: Target, level: str, pattern: str, graphs: int | None = None
) -> tuple[list[str], list[Any]]:
    from hwsdk.conformance import runner, suite

    levels = runner.known_levels(level)
    return levels, runner.select(suite.collect(target, levels, pattern, graphs), levels, pattern)


@app.command("list")
@command
def list_cases(target: str = TARGET, level: str = LEVEL, pattern: str = FILTER, json: bool = JSON) -> None:
    """List the cases for a target without running them.

    Example: hwsdk conformance list --level L3 --filter reduce
    """
    from hwsdk.cli.detection import target_or_host
    from hwsdk.conformance.model import LEVELS

    _, cases = _collect(target_or_host(target), level, pattern)
    if json:
        out_json([{"level": c.level, "name": c.name} for c in cases])
        return
    for case in cases:
        out(case.id)
    counts = Counter(c.level for c in cases)
    say("; ".join(f"{counts[level]} of {level} ({what})" for level, what in LEVELS.items() if counts[level]))


@app.command()
@command
def run(
    target: str = TARGET,
    level: str = LEVEL,
    pattern: str = FILTER,
    folder: Path = typer.Option(None, "--out", "-o", help="Write report.json, report.md and junit.xml here."),
    seed: int = typer.Option(0, "--seed", help="Seed of all random inputs."),
    shapes: int = typer.Option(10, "--shapes", min=1, max=10, help="Shapes per real model (L5)."),
    graphs: int = typer.Option(30, "--graphs", min=0, help="Number of random graphs (L4)."),
    simulate: bool = typer.Option(
        False, "--simulate", help="Run on the LoopIR machine even if the chip is here."
    ),
    isa: bool = typer.Option(
        False, "--isa", help="Simulate the instructions of the kernels that ship instead of LoopIR."
    ),
    json: bool = JSON,
) -> None:
    """Run the suite.  Exit code 0 only if the port is conformant in what was run.

    Example: hwsdk conformance run -t ./mychip.yaml --level L1,L3 --out report
    """
    from hwsdk.cli.detection import target_or_host
    from hwsdk.conformance import report, runner, waivers
    from hwsdk.conformance.devices import open_device
    from hwsdk.conformance.l0_description import waiver_file
    from hwsdk.errors import InputError

    chosen = target_or_host(target)
    levels, cases = _collect(chosen, level, pattern, graphs)
    if not cases:
        raise InputError(
            f"no case matches --level {level or 'all'} --filter {pattern!r}; see: hwsdk conformance list"
        )
    file = waiver_file(chosen)
    waived = waivers.load(file) if file is not None else ()
    device = open_device(chosen, simulate=simulate, isa=isa)
    with progress(f"conformance of {chosen.name}", total=len(cases)) as advance:

        def observe(outcome: Any) -> None:
            advance(1, outcome.id)
            if not outcome.conformant:
                say(f"{outcome.status}: {outcome.id}: {outcome.reason}")

        outcomes = runner.run(cases, device, waived, seed=seed, shapes=shapes, observe=observe)
    data = report.document(device, outcomes, levels or sorted({c.level for c in cases}))
    if folder is not None:
        for path in report.write(data, folder):
            say(f"wrote {path}")
    out_json(data) if json else _summary(data)
    if not data["conformant"]:
        raise typer.Exit(1)


@app.command("report")
@command
def show_report(
    path: Path = typer.Argument(..., help="A report folder or report.json."),
    rebuild: bool = typer.Option(False, "--rebuild", help="Write the Markdown and JUnit files again."),
    json: bool = JSON,
) -> None:
    """Show a report that was written before.  Exit code 0 only if it says conformant.

    Example: hwsdk conformance report report/
    """
    from hwsdk.conformance import report

    data = report.read(path)
    if rebuild:
        report.write(data, path if path.is_dir() else path.parent)
    if json:
        out_json(data)
    else:
        out(report.markdown(data))
    if not data["conformant"]:
        raise typer.Exit(1)


def _summary(data: dict[str, Any]) -> None:
    from hwsdk.conformance.model import LEVELS, STATUSES

    rows = [(level, *(c.get(s, 0) for s in STATUSES), LEVELS[level]) for level, c in data["counts"].items()]
    table(("level", *(s.replace("_", " ") for s in STATUSES), "what"), rows)
    seconds = sum(o["seconds"] for o in data["outcomes"])
    verdict = "conformant" if data["conformant"] else "NOT conformant"
    out(f"\n{data['target']} ({data['kind']}): {verdict}; {len(data['outcomes'])} cases in {seconds:.1f} s")
