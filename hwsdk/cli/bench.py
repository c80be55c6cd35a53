"""`hwsdk bench`: timings over shapes, beside peers.

Design choice: peers run in the same process and alternate with hwsdk call by call, so that a slow minute of
the machine hits both; what is printed beside the medians is their ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwsdk.cli import arguments
from hwsdk.cli.options import JSON, SCHEDULES
from hwsdk.cli.terminal import command, out, out_json, progress, table
from hwsdk.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np

    Inputs = dict[str, np.ndarray[Any, Any]]
Runner = Callable[["Inputs"], object]


@command
def bench(
    model: Path = typer.Argument(..., help="An artifact (.hwx) or a model."),
    shapes: str = typer.Option(
        "",
        "--shapes",
        help='Sizes of the symbolic dims, several separated by ";": "batch=1,seq=7;batch=2,seq=64".',
    ),
    target: str = typer.Option(None, "--target", "-t", help="Target for a model (default: this machine's)."),
    threads: int = typer.Option(0, "--threads", help="Threads (default: the physical cores)."),
    repeats: int = typer.Option(30, "--repeats", min=1, help="Timed calls per shape."),
    peers: str = typer.Option("", "--peers", help="Runtimes to compare with, separated by commas: ort."),
    onnx: Path = typer.Option(None, "--onnx", help="The ONNX file for the peers, when MODEL is an artifact."),
    schedules: Path = SCHEDULES,
    json: bool = JSON,
) -> None:
    """Time a model at several shapes.

    Example: hwsdk bench model.onnx --shapes "batch=1,seq=16;batch=1,seq=128" --peers ort
    """
    import hwsdk
    from hwsdk.cli.compiling import executable
    from hwsdk.ral_port.threads import num_threads

    if threads:
        hwsdk.set_num_threads(threads)
    exe = executable(model, target, schedules=schedules)
    runners: dict[str, Runner] = {"hwsdk": lambda inputs: exe(inputs)}
    for name in filter(None, (p.strip() for p in peers.split(","))):
        runners[name] = _peer(name, onnx or model, num_threads())
    rows: list[dict[str, Any]] = []
    bindings = [arguments.bindings(text) for text in shapes.split(";") if text.strip()] or [{}]
    with progress("bench", total=len(bindings)) as advance:
        for sizes in bindings:
            rows.append({"sizes": sizes, **_times(runners, random_inputs(exe, sizes), repeats)})
            advance(1)
    if json:
        out_json(
            {"model": str(model), "threads": num_threads(), "compiles": exe.stats.compiles, "rows": rows}
        )
        return
    others = [name for name in runners if name != "hwsdk"]
    columns = ["sizes", "first ms", "median ms", *(f"{n} ms" for n in others), *(f"/ {n}" for n in others)]
    lines = []
    for row in rows:
        text = " ".join(f"{k}={v}" for k, v in row["sizes"].items()) or "-"
        ours = row["hwsdk"]["median_ms"]
        theirs = [row[n]["median_ms"] for n in others]
        lines.append((text, row["hwsdk"]["first_ms"], ours, *theirs, *(ours / t for t in theirs)))
    table(columns, lines)
    out(f"\nthreads: {num_threads()}; compiles: {exe.stats.compiles}")


def _times(runners: Mapping[str, Runner], inputs: Inputs, repeats: int) -> dict[str, dict[str, float]]:
    """First call and median of each runner; the runners take turns."""
    first = {name: _seconds(run, inputs) for name, run in runners.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(repeats):
        for name, run in runners.items():
            times[name].append(_seconds(run, inputs))
    return {
        name: {
            "first_ms": first[name] * 1e3,
            "median_ms": statistics.median(taken) * 1e3,
            "fastest_ms": min(taken) * 1e3,
        }
        for name, taken in times.items()
    }


def _seconds(run: Runner, inputs: Inputs) -> float:
    start = time.perf_counter()
    run(inputs)
    return time.perf_counter() - start


def _peer(name: str, model: Path, threads: int) -> Runner:
    if name != "ort":
        raise InputError(f"no peer {name!r}{nearest(name, ('ort',))}")
    if model.suffix != ".onnx":
        raise InputError(f"peer ort needs the ONNX file: {model} is none; give it with --onnx")
    try:
        import onnxruntime
    except ImportError:
        raise InputError("peer ort: onnxruntime is not installed; pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def random_inputs(
    exe: Any, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]] | None = None, seed: int = 0
) -> Inputs:
    """Inputs for an executable at the given sizes: floats from a normal distribution, integers 0 or 1.

    Such integers are valid as ids, masks and flags alike.  Symbols that are not given are 1.  `shapes` fixes whole
    shapes, right or wrong.
    """
    import numpy as np

    from hwsdk.dtypes import DTYPES, numpy_dtype
    from hwsdk.graph.dims import evaluate, free_symbols

    signature = exe.signature.inputs
    known = {s for value in signature for d in value.shape for s in free_symbols(d)}
    for name in sizes:
        if name not in known:
            raise InputError(f"the model has no symbolic dim {name!r}{nearest(name, known)}")
    bound = {name: sizes.get(name, 1) for name in known}
    rng = np.random.default_rng(seed)
    made = {}
    for value in signature:
        given = (shapes or {}).get(value.name)
        shape = given if given is not None else tuple(int(evaluate(d, bound)) for d in value.shape)
        floats = DTYPES[value.dtype].kind == "f"
        try:
            drawn: np.ndarray[Any, Any] = rng.standard_normal(shape) if floats else rng.integers(0, 2, shape)
        except (ValueError, MemoryError):
            raise InputError(f"input {value.name}: {shape} is too large for a random array") from None
        made[value.name] = drawn.astype(numpy_dtype(value.dtype))
    return made
