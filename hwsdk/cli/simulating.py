"""`hwsdk sim`: a model on the LoopIR machine: values, capacity, bytes per level, races, predicted time.

Design choice: the answers are compared with the graph interpreter, so that a green run says more than "it
ended".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from hwsdk.cli import arguments
from hwsdk.cli.bench import random_inputs
from hwsdk.cli.options import DIMS, JSON, PRECISION, SCHEDULES
from hwsdk.cli.terminal import command, human_bytes, out, out_json, progress, table
from hwsdk.errors import SimulationError


@command
def sim(
    model: Path = typer.Argument(..., help="A model: ONNX, or the text of a graph (.graph)."),
    target: str = typer.Option(..., "--target", "-t", help="Target: name, family or path."),
    shapes: str = typer.Option("", "--shapes", help='Sizes of the symbolic dims: "batch=1,seq=16".'),
    dims: list[str] = DIMS,
    precision: str = PRECISION,
    schedules: Path = SCHEDULES,
    per_kernel: bool = typer.Option(False, "--per-kernel", help="Also one line per launch."),
    isa: bool = typer.Option(False, "--isa", help="Run the instructions of the kernels instead of LoopIR."),
    json: bool = JSON,
) -> None:
    """Run a model on the simulated chip: right values, places never over capacity, no races; and predict its
    time.

    Example: hwsdk sim model.onnx -t ./mychip.yaml --shapes batch=1,seq=16
    """
    from hwsdk.api import Simulation, instructions
    from hwsdk.cli.explaining import compilation
    from hwsdk.graph.interpret import interpret
    from hwsdk.sim.simt.stats import Stats as Counts

    made = compilation(model, target, dims, precision, schedules)
    machine = instructions(made) if isa else Simulation(made)
    inputs = random_inputs(machine, arguments.bindings(shapes))
    with progress(f"simulate {made.target.name}"):
        got = machine(inputs)
    error = _worst(got, interpret(made.graph, inputs))
    stats = machine.stats
    data = {
        "target": made.target.name,
        "sizes": {k: list(v.shape) for k, v in inputs.items()},
        "largest_error_of_scale": error,
        "stats": _plain(stats) if isinstance(stats, Counts) else stats.to_data(),
        "launches": [(name, _plain(s)) for name, s in machine.launches] if per_kernel else [],
    }
    if json:
        out_json(data)
    else:
        if isinstance(stats, Counts):
            _print_counts(made.target.name, stats, error, machine.launches if per_kernel else [])
        else:
            _print(made.target.name, stats, error)
            _print_launches(machine.launches if per_kernel else [])
    if error > _allowed(made.target):
        raise SimulationError(
            f"the results differ from the interpreter's by {error:.3g} of their largest value"
        )


def _print_launches(launches: list[tuple[str, Any]]) -> None:
    if launches:
        out()
        table(("kernel", "cycles", "bound by"), [(name, s.cycles, s.bound_by) for name, s in launches])


def _print_counts(target: str, stats: Any, error: float, launches: list[tuple[str, Any]]) -> None:
    """What interpreted instructions did; they predict no time."""
    out(f"{target}: {stats.launches} launches of {stats.blocks} workgroups, {stats.barriers} barriers")
    out(f"largest error {error:.2g} of the largest value\n")
    kinds = sorted(stats.instructions.items(), key=lambda item: -item[1])
    table(("instructions", "of lanes"), kinds)
    if launches:
        out()
        rows = [(name, s.blocks, s.lane_instructions) for name, s in launches]
        table(("kernel", "workgroups", "instructions of lanes"), rows)


def _plain(stats: Any) -> Any:
    import dataclasses

    return dataclasses.asdict(stats)


def _worst(got: dict[str, Any], want: dict[str, Any]) -> float:
    import numpy as np

    worst = 0.0
    for name, reference in want.items():
        ours = got[name]
        if ours.shape != reference.shape:
            raise SimulationError(
                f"output {name} has shape {ours.shape}, the interpreter says {reference.shape}"
            )
        scale = float(np.abs(reference.astype(np.float64)).max(initial=1e-30))
        error = np.abs(ours.astype(np.float64) - reference.astype(np.float64))
        same = (ours == reference) | ((ours != ours) & (reference != reference))
        worst = max(worst, float(np.where(same, 0.0, error).max(initial=0.0)) / scale)
    return worst


def _allowed(target: Any) -> float:
    """A coarse bound: conformance derives exact ones.  Narrow matrix operands allow more."""
    return 0.05 if target.codegen.default_precision in ("bf16", "f16") else 1e-3


def _print(name: str, stats: Any, error: float) -> None:
    out(
        f"{name}: {stats.launches} launches, {stats.cycles:,.0f} cycles, {stats.seconds * 1e3:.3f} ms predicted"
    )
    out(f"bound by {stats.bound_by or '-'}; largest error {error:.2g} of the largest value\n")
    rows: list[tuple[object, ...]] = []
    for place, p in stats.places.items():
        capacity = human_bytes(p.capacity_bytes) if p.capacity_bytes is not None else "-"
        moved = human_bytes(p.moved_bytes)
        rows.append(
            (
                place,
                human_bytes(p.read_bytes),
                human_bytes(p.written_bytes),
                moved,
                human_bytes(p.peak_bytes),
                capacity,
            )
        )
    table(("place", "read", "written", "moved in", "peak", "capacity"), rows)
    out()
    units = [(u, s.uses, s.ops, f"{100 * stats.utilisation(u):.1f} %") for u, s in stats.units.items()]
    table(("unit", "uses", "operations", "utilisation"), units)
