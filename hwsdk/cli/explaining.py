"""`hwsdk explain` and `hwsdk dump`: what the compiler decided and why, and every IR as text.

Design choice: both compile once through the ordinary driver and print what its stages left behind; nothing is
computed a second way for show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from hwsdk.cli import arguments
from hwsdk.cli.options import DIMS, JSON, PRECISION, SCHEDULES
from hwsdk.cli.refusals import refusals
from hwsdk.cli.terminal import command, compiling, out, out_json
from hwsdk.errors import InputError, nearest

if TYPE_CHECKING:
    from hwsdk.codegen.driver import Compilation
    from hwsdk.codegen.loop_ir import LoopKernel

MODEL = typer.Argument(..., help="A model: ONNX, or the text of a graph (.graph).")
TARGET = typer.Option(None, "--target", "-t", help="Target: name, family or path (default: this machine's).")
KERNEL = typer.Option("", "--kernel", help="Only kernels whose name contains this.")


def compilation(
    model: Path, target: str | None, dims: list[str], precision: str | None, schedules: Path | None = None
) -> Compilation:
    """All stages of compiling a model, with a progress bar."""
    from hwsdk.api import compile_stages
    from hwsdk.cli.detection import target_or_host

    chosen = target_or_host(target)
    known = arguments.dim_options(dims)
    with compiling(f"compile for {chosen.name}") as follow:
        return compile_stages(
            model, chosen, precision=precision, dims=known, schedules=schedules, progress=follow
        )


@command
def explain(
    model: Path = MODEL,
    target: str = TARGET,
    kernel: str = KERNEL,
    dims: list[str] = DIMS,
    precision: str = PRECISION,
    schedules: Path = SCHEDULES,
    json: bool = JSON,
) -> None:
    """Say what was decided for each kernel: fusion, tiles, intrinsic, versions, and the field of the
    description behind each number.

    Example: hwsdk explain model.onnx -t ./mychip.yaml --kernel matmul
    """
    made = compilation(model, target, dims, precision, schedules)
    entries = [e for e in _entries(made) if kernel in e["kernel"]]
    if kernel and not entries:
        raise InputError(f"no kernel {kernel!r}{nearest(kernel, [e['kernel'] for e in _entries(made)])}")
    unconfirmed = sorted(path for path, o in made.target.origins.items() if not o.confirmed)
    if json:
        out_json({"target": made.target.name, "kernels": entries, "unconfirmed": unconfirmed})
        return
    out(f"{made.graph.name} for {made.target.name}: {len(made.graph.nodes)} nodes in {len(entries)} kernels")
    for entry in entries:
        _print_entry(entry)
    if unconfirmed:
        out(f"\nestimates that nobody has confirmed: {', '.join(unconfirmed)}")


def _entries(made: Compilation) -> list[dict[str, Any]]:
    """One record per launch, in order."""
    from hwsdk.codegen.footprint import footprint
    from hwsdk.codegen.overrides import decided

    lanes = made.target.codegen.model == "simt"
    regions = {name: region for region in made.partition.regions for name in region.nodes}
    launches = {launch.kernel: launch for launch in made.assembled.program.launches}
    refused = {k.sources: refusals(k, made.target) for k in made.kernels}
    unfused = _unfused(made)
    entries = []
    for item in made.lowered:
        region = next((regions[n] for n in item.sources if n in regions), None)
        launch = launches.get(item.loop.name)
        why = getattr(item.schedule, "why", ())
        entries.append(
            {
                "kernel": item.loop.name,
                "compiled_as": made.assembled.symbol_of.get(item.loop.name, item.loop.name),
                "kind": region.kind if region else "",
                "nodes": list(item.sources),
                "fusion": region.reason if region else "",
                "unfused": unfused.pop(item.loop.name, []),
                "schedule": str(item.schedule) if item.schedule is not None else "",
                "decisions": [
                    {"decision": r.decision, "value": r.value, "fields": list(r.fields), "source": r.source}
                    for r in why
                ],
                "override": {item.kernel: changeable} if (changeable := decided(item)) else {},
                "footprint": str(footprint(item.loop, made.target)) if lanes else "",
                "grid": str(
                    next((v.grid for v in launch.versions if v.grid != 0), 0) if launch else item.grid
                ),
                "work_cycles": str(launch.work if launch else item.work),
                "refused": {}
                if item.schedule is None
                else _unused(refused.get(item.sources, {}), item.schedule),
                "versions": [
                    {
                        "symbol": v.symbol if v.grid != 0 else "(none)",
                        "guard": "always" if v.guard is None else str(v.guard),
                    }
                    for v in (launch.versions if launch else ())
                ],
                "notes": list(item.loop.notes),
            }
        )
    return entries


def _unfused(made: Compilation) -> dict[str, list[dict[str, str]]]:
    """By launch: who reads a value that it makes, and why the two are not one kernel."""
    homes: dict[str, list[str]] = {}
    names = {item.loop.name: item.kernel for item in made.lowered}
    for item in made.lowered:
        for node in item.sources:
            homes.setdefault(node, []).append(item.loop.name)
    found: dict[str, list[dict[str, str]]] = {}
    for edge in made.partition.edges:
        makers, readers = homes.get(edge.producer, []), homes.get(edge.consumer, [])
        if makers and readers and not set(makers) & set(readers):
            found.setdefault(makers[-1], []).append(
                {
                    "value": edge.value,
                    "reader": edge.reader,
                    "kernel": names[readers[-1]],
                    "reason": edge.reason,
                }
            )
    return found


def _unused(refused: Mapping[str, str], schedule: object) -> dict[str, str]:
    """Without what the schedule uses after all (on operands that it converts first)."""
    return {name: why for name, why in refused.items() if name not in str(schedule)}


def _print_said(entry: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if entry[name]:
            out(f"  {name}: {entry[name]}")


def _print_entry(entry: Mapping[str, Any]) -> None:
    same = "" if entry["compiled_as"] == entry["kernel"] else f", code shared with {entry['compiled_as']}"
    out(f"\n{entry['kernel']} ({entry['kind'] or 'copy'}{same})")
    out(f"  nodes: {', '.join(entry['nodes']) or '-'}")
    _print_said(entry, "fusion")
    for edge in entry["unfused"]:
        out(f"  apart from {edge['kernel']} ({edge['reader']} reads {edge['value']}): {edge['reason']}")
    _print_said(entry, "schedule", "footprint")
    for reason in entry["decisions"]:
        source = f" [{reason['source']}]" if reason["source"] else ""
        out(f"    {reason['decision']} = {reason['value']} <- {', '.join(reason['fields'])}{source}")
    for name, decisions in entry["override"].items():
        values = ", ".join(f"{k}: {v}" for k, v in decisions.items())
        out(f"  to change it (--schedules FILE): {name}: {{{values}}}")
    for name, why in entry["refused"].items():
        out(f"  not by {name}: {why}")
    out(f"  grid: {entry['grid']}; work: {entry['work_cycles']} cycles")
    if len(entry["versions"]) > 1:
        for version in entry["versions"]:
            out(f"  version {version['symbol']}: {version['guard']}")
    for note in entry["notes"]:
        out(f"  note: {note}")


# ---------------------------------------------------------------------------------------------------------------- dump
@command
def dump(
    model: Path = MODEL,
    target: str = TARGET,
    stage: str = typer.Option(
        ..., "--stage", "-s", help="imported, graph, fused, schedule, loop, host, llvm, source, asm."
    ),
    after: str = typer.Option("", "--after", help="With --stage graph: stop after this pass."),
    kernel: str = KERNEL,
    dims: list[str] = DIMS,
    precision: str = PRECISION,
    schedules: Path = SCHEDULES,
) -> None:
    """Print an IR of a model.

    Example: hwsdk dump model.onnx --stage loop --kernel matmul
    """
    if stage not in STAGES:
        raise InputError(f"--stage {stage!r}{nearest(stage, STAGES)}")
    if stage in ("imported", "graph") and (after or stage == "imported"):
        out(_early_graph(model, dims, after))
        return
    made = compilation(model, target, dims, precision, schedules)
    text = "\n\n".join(STAGES[stage](made, kernel))
    if not text:
        raise InputError(f"nothing to print: no kernel contains {kernel!r} at stage {stage}")
    out(text.rstrip("\n"))


def _early_graph(model: Path, dims: list[str], after: str) -> str:
    """The graph as imported, or after the passes up to a named one."""
    from hwsdk.api import load_graph
    from hwsdk.graph.text import print_graph

    graph = load_graph(model, arguments.dim_options(dims))
    if after:
        from hwsdk.graph.passes import DEFAULT_PIPELINE, run_passes

        names = list(DEFAULT_PIPELINE)
        if after not in names:
            raise InputError(f"--after: no pass {after!r} in the pipeline{nearest(after, names)}")
        graph = run_passes(graph, names[: names.index(after) + 1])
    return print_graph(graph)


def _graph(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.graph.text import print_graph

    yield print_graph(made.graph)


def _fused(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.codegen.loop_print import print_value

    for k in made.kernels:
        if kernel not in k.name:
            continue
        lines = [f"kernel {k.name} {k.kind}  # {', '.join(k.sources)}"]
        for role, tensors in (("in", k.inputs), ("out", k.outputs), ("temp", k.temps)):
            lines += [f"  {role} {t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors]
        for b in k.blocks:
            iters = ", ".join(
                f"{i.name} < {i.extent}{'' if i.kind == 'parallel' else ' reduce'}" for i in b.iters
            )
            lines.append(f"  block {b.name} ({iters})")
            lines += [f"    let {x.name} = {print_value(x.value)}" for x in b.lets]
            combine = f"{b.combiner} in {b.accumulator}: " if b.combiner else ""
            lines.append(f"    {b.output}[{', '.join(map(str, b.index))}] = {combine}{print_value(b.value)}")
            if b.finish is not None:
                lines.append(f"    finish {print_value(b.finish)}")
            if b.where is not None:
                lines.append(f"    where {print_value(b.where)}")
        yield "\n".join(lines)


def _schedule(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.codegen.schedule import Decided, explain

    for item in made.lowered:
        if kernel in item.loop.name:
            text = explain(cast("Decided", item.schedule)) if item.schedule else "no schedule"
            yield f"{item.loop.name}: {text}"


def _loops(made: Compilation, kernel: str) -> Iterator[LoopKernel]:
    return (k for k in made.assembled.kernels if kernel in k.name)


def _loop(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.codegen.loop_text import print_kernel

    return (print_kernel(k) for k in _loops(made, kernel))


def _host(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.codegen.host_text import print_program

    yield print_program(made.assembled.program)


def _llvm(made: Compilation, kernel: str) -> Iterator[str]:
    if not made.ir or made.target.codegen.route != "llvm":
        raise InputError(f"target {made.target.name} is not built through LLVM (codegen.route)")
    return (made.ir[k.name] for k in _loops(made, kernel))


def _source(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.codegen.source import source_file

    return (source_file([k], made.target) for k in _loops(made, kernel))


def _asm(made: Compilation, kernel: str) -> Iterator[str]:
    from hwsdk.api import assembly

    return (assembly(made, k.name) for k in _loops(made, kernel))


STAGES: Mapping[str, Callable[[Compilation, str], Iterator[str]]] = {
    "imported": _graph,
    "graph": _graph,
    "fused": _fused,
    "schedule": _schedule,
    "loop": _loop,
    "host": _host,
    "llvm": _llvm,
    "source": _source,
    "asm": _asm,
}
