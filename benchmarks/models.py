"""Real models of the catalogue beside ONNX Runtime at a few shapes each, every one from a single compile.

    python -m benchmarks.models [--threads 1,2] [--rounds 7] [--models ppocr_det,attacut_c] [--json FILE] [--quick]

Both are called from Python with NumPy arrays, in alternating turns.  Compile time is that of a fresh process with an
empty cache of compiled code.

Design choice: a shape is met for the first time in the first turn, which is not counted: this program is about warm
calls, `benchmarks.stream` about cold ones.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers, report
from benchmarks.compiling import compile_in_child, load_in_child
from benchmarks.measure import settle, timed, turns
from benchmarks.subjects import LADDER, Size, Subject, subject

Array = np.ndarray[Any, Any]
TURN_S = 50e-3  # about how long a turn lasts
MOST_CALLS = 100
OURS, PEER = "hwsdk", "onnxruntime"


def row(
    size: Size, calls: Mapping[str, Callable[[], Sequence[Array]]], threads: int, rounds: int
) -> dict[str, Any]:
    """One shape: agreement, then alternating turns."""
    first, second = (calls[name]() for name in (OURS, PEER))
    worst = _difference(first, second)
    often = int(min(MOST_CALLS, max(1, TURN_S / max(1e-6, timed(calls[PEER])))))
    wall: dict[str, list[float]] = {name: [] for name in calls}
    busy: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in turns(list(calls), number):
            settle(threads)
            calls[name]()
            for _ in range(often):
                own = time.thread_time()
                wall[name].append(timed(calls[name]))
                busy[name].append(time.thread_time() - own)
    found: dict[str, Any] = {"size": list(size), "threads": threads, "calls": often * rounds}
    found["relative_difference"] = worst
    for name in calls:
        found[name] = {"s": statistics.median(wall[name]), "best_s": min(wall[name])}
        if threads == 1:
            found[name]["cpu_s"] = statistics.median(busy[name])
    found["ratio"] = {key: value / found[PEER][key] for key, value in found[OURS].items()}
    return found


def _difference(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest difference, each output's as a fraction of its largest value."""
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        if a.shape != b.shape:
            raise SystemExit(f"shapes differ: {a.shape}, {b.shape}")
        if a.size:
            scale = float(np.abs(b).max()) or 1.0
            worst = max(worst, float(np.abs(a.astype(np.float64) - b).max()) / scale)
    return worst


def one(
    chosen: Subject, sizes: Sequence[Size], target: str, threads: Sequence[int], rounds: int
) -> dict[str, Any]:
    """A model: one compile, every size, every number of threads."""
    import hwsdk

    found: dict[str, Any] = {"model": chosen.name, "rows": []}
    with tempfile.TemporaryDirectory(prefix="hwsdk-models-") as folder:
        artifact = Path(folder, "model.hwx")
        (found["compile"],) = compile_in_child(chosen.name, artifact, target, sizes)
        found["load_s"] = load_in_child(artifact)["load_s"]
        with hwsdk.load(artifact) as executable:
            names = [o.name for o in executable.signature.outputs]
            for count in threads:
                hwsdk.set_num_threads(count)
                session = peers.session(chosen.peer(), count)
                for size in sizes:
                    inputs = chosen.inputs(size)
                    calls = {
                        OURS: partial(_outputs, executable, inputs),
                        PEER: partial(session.run, names, inputs),
                    }
                    found["rows"].append(row(size, calls, count, rounds))
    return found


def _outputs(executable: Any, inputs: Mapping[str, Array]) -> list[Array]:
    return list(executable(inputs).values())


def measure(names: Sequence[str], target: str, threads: Sequence[int], rounds: int) -> dict[str, Any]:
    """All models."""
    figures: dict[str, Any] = {**report.machine(), "target": target, "models": []}
    for name in names:
        chosen = subject(name)
        figures["models"].append(one(chosen, chosen.sizes, target, threads, rounds))
    return figures


def show(figures: Mapping[str, Any]) -> None:
    """A table of the compiles, and one of the calls per number of threads."""
    print(report.heading(figures))
    report.table(
        f"One compile each for {figures['target']}, fresh process, empty cache",
        (
            "model",
            "import s",
            "compile s",
            "CPU s",
            "LLVM CPU s",
            "load s",
            "compiles",
            "runs",
            "arena MB",
        ),
        [_compiled(m) for m in figures["models"]],
    )
    every = [(m["model"], r) for m in figures["models"] for r in m["rows"]]
    for threads in dict.fromkeys(r["threads"] for _, r in every):
        mine = [(name, r) for name, r in every if r["threads"] == threads]
        mean = math.exp(statistics.fmean(math.log(r["ratio"]["best_s"]) for _, r in mine))
        report.table(
            f"{threads} thread{'s' * (threads > 1)}, ms: median / best; geometric mean of the best ratios {mean:.2f}",
            ("model", "size", OURS, PEER, f"{OURS} ÷ {PEER}, median / best / CPU", "relative difference"),
            [(name, "x".join(map(str, r["size"])), _milliseconds(r[OURS]), _milliseconds(r[PEER]),
              " / ".join(f"{v:.2f}" for v in r["ratio"].values()), f"{r['relative_difference']:.1e}")
             for name, r in mine],
        )  # fmt: skip


def _compiled(found: Mapping[str, Any]) -> list[object]:
    made = found["compile"]
    seconds = [f"{made[k]:.2f}" for k in ("model_s", "compile_s", "compile_cpu_s", "workers_cpu_s")]
    counts = [made["compiles"], made["runs"], f"{made['arena_bytes'] / 1e6:.1f}"]
    return [found["model"], *seconds, f"{found['load_s']:.3f}", *counts]


def _milliseconds(found: Mapping[str, float]) -> str:
    return f"{1e3 * found['s']:.3f} / {1e3 * found['best_s']:.3f}"


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument(
        "--models", default=",".join(LADDER), help="names in the catalogue, separated by commas"
    )
    options = parser.parse_args()
    threads = report.threads_of(options)
    if options.quick:
        figures = measure(["small_encoder"], options.target, threads[:1], 2)
    else:
        figures = measure(options.models.split(","), options.target, threads, options.rounds)
    if report.finish(figures, options.json):
        show(figures)


if __name__ == "__main__":
    main()
