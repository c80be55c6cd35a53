"""`hwsdk targets`: the descriptions that can be found, what they say, whether they are sound, which fit this
machine.

Design choice: `show` prints the merged and detected numbers with the place each came from, because that is
what the planner sees.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwsdk.cli.terminal import command, human_bytes, out, out_json, say, table

if TYPE_CHECKING:
    from hwsdk.errors import Problem
    from hwsdk.target_desc import Target

app = typer.Typer(no_args_is_help=True, help="Target descriptions: list, show, lint, detect.")
JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command("list")
@command
def list_all(json: bool = JSON) -> None:
    """List every description that a name can mean, with the folders that were searched.

    Example: hwsdk targets list
    """
    from hwsdk.target_desc import find_roots, list_targets

    entries = sorted(list_targets(), key=lambda e: (e.family or "", e.name))
    if json:
        out_json(
            [{"name": e.name, "family": e.family, "abstract": e.abstract, "file": e.path} for e in entries]
        )
        return
    rows = [(e.name, e.family, "base only" if e.abstract else "", e.path) for e in entries]
    table(("target", "family", "", "file"), rows)
    out("\nsearched: " + ", ".join(map(str, find_roots())))


@app.command()
@command
def show(
    target: str = typer.Argument(..., help="Name, family or path of a description."),
    json: bool = JSON,
    detect: bool = typer.Option(True, help="Replace probed numbers by this machine's."),
    sources: bool = typer.Option(False, "--sources", help="Also list where each number came from."),
) -> None:
    """Show one description after inheritance and detection.

    Example: hwsdk targets show ./mychip.yaml --sources
    """
    from hwsdk.target_desc import load_target

    loaded = load_target(target, detect=detect)
    if json:
        out_json(_as_data(loaded))
        return
    _show(loaded)
    if sources:
        rows = [
            (path, f"{Path(o.file).name}:{o.line}", o.source or "(not stated)", o.probe)
            for path, o in loaded.origins.items()
        ]
        out()
        table(("number", "place", "source", "probe"), rows)


def _show(target: Target) -> None:
    out(f"{target.name}  ({' < '.join(target.lineage)})\n{target.file}")
    out(f"features: {' '.join(target.features) or '-'}")
    route = target.codegen
    out(f"code generation: {route.route}, {route.model}; port: {target.runtime.port or 'none, simulated'}\n")
    rows: list[tuple[object, ...]] = [
        (v.name, v.count or (f"up to {v.max}" if v.max else "unknown"), v.clock_ghz) for v in target.levels
    ]
    table(("level", "count", "GHz"), rows)
    out()
    rows = [
        (m.name, m.kind, m.per, _size(m), m.read_bytes_per_cycle, m.write_bytes_per_cycle, m.latency_cycles)
        for m in target.memories
    ]
    table(("memory", "kind", "per", "size", "read B/cycle", "write B/cycle", "latency"), rows)
    out()
    table(("unit", "kind", "per", "count"), [(u.name, u.kind, u.per, u.count) for u in target.units])
    out()
    rows = [(i.name, i.unit, i.scope, i.semantics) for i in target.intrinsics.values()]
    table(("intrinsic", "unit", "scope", "semantics"), rows)
    out("\ndtypes: " + ", ".join(f"{name} {d.use}" for name, d in target.dtypes.items()))


def _size(memory: Any) -> str:
    if memory.size_bytes is not None:
        return human_bytes(memory.size_bytes)
    return f"{memory.count} x {memory.width_bytes} B" if memory.count else "unknown"


def _as_data(value: Any) -> Any:
    """Dataclasses and mappings as plain data."""
    import dataclasses
    from collections.abc import Mapping

    if dataclasses.is_dataclass(value):
        return {f.name: _as_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _as_data(v) for k, v in value.items()}
    return [_as_data(v) for v in value] if isinstance(value, tuple | list) else value


@app.command()
@command
def lint(
    files: list[str] = typer.Argument(..., help="YAML files, or names of targets."),
    backend: bool = typer.Option(True, help="Also give every binding to the code generator."),
    json: bool = JSON,
) -> None:
    """Check descriptions: keys, types, peaks, layouts, bindings.  One line per problem; exit code 2 if any.

    Example: hwsdk targets lint mychip.yaml
    """
    from hwsdk.target_desc import resolve

    problems = [problem for file in files for problem in _problems(resolve(file), backend)]
    if json:
        out_json([{"file": p.file, "line": p.line, "message": p.message} for p in problems])
    else:
        for problem in problems:
            out(str(problem))
        say(f"{len(files)} checked, {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    if problems:
        raise typer.Exit(2)


def _problems(file: Path, backend: bool) -> list[Problem]:
    """What the code generator says is asked for only where nothing else is wrong."""
    from hwsdk.codegen.backend_check import backend_problems
    from hwsdk.intrinsics import lint as lint_file
    from hwsdk.target_desc import read_description

    found = lint_file(file)
    return found if found or not backend else backend_problems(read_description(file))


@app.command()
@command
def detect(json: bool = JSON) -> None:
    """Say which descriptions fit this machine, and why the others do not.

    Example: hwsdk targets detect
    """
    from hwsdk.target_desc.detection import verdicts

    found = verdicts()
    if json:
        out_json(
            [{"target": v.target, "family": v.family, "fits": v.fits, "reason": v.reason} for v in found]
        )
        return
    table(("target", "family", "fits", "reason"), [(v.target, v.family, v.fits, v.reason) for v in found])
