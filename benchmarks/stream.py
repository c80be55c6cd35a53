"""MiniLM-L6, f32, batch 1, over a stream of 40 sequence lengths: warm pass, each new length once, compile, reload.

    python -m benchmarks.stream [--threads 1,2] [--rounds 7] [--json FILE] [--quick]

hwsdk compiles the network from its weights; ONNX Runtime runs the same weights as an exporter would write them.
In each round both, in turn, are loaded anew, meet every length once (the cold pass) and then run the stream again
(the warm pass).

Design choice: cold and warm passes of one round are neighbours in time, and so are the two contestants; ratios are
taken within a round and the median of them is reported.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peak, peers, report
from benchmarks.compiling import compile_in_child, load_in_child
from benchmarks.measure import Sample, ratio, settle, turns
from benchmarks.subjects import Size, Subject, subject

Array = np.ndarray[Any, Any]
Call = Callable[[Mapping[str, Array]], Array]
LENGTHS = tuple(random.Random(0).sample(range(1, 257), 40))
OURS, PEER = "hwsdk", "onnxruntime"


@dataclass
class Contestant:
    """`open` loads the model: what runs it, and what frees it."""

    open: Callable[[], tuple[Call, Callable[[], object]]]
    loads: list[float] = field(default_factory=list)
    cold: Sample = field(default_factory=Sample)
    warm: Sample = field(default_factory=Sample)

    def turn(self, inputs: list[dict[str, Array]]) -> None:
        """Load, cold pass, warm pass."""
        start = time.perf_counter()
        run, close = self.open()
        self.loads.append(time.perf_counter() - start)
        calls = [lambda i=i: run(i) for i in inputs]
        self.cold.add(calls)
        self.warm.add(calls)
        close()


def ours(artifact: Path) -> Contestant:
    """hwsdk from an artifact."""
    import hwsdk

    def start() -> tuple[Call, Callable[[], object]]:
        executable = hwsdk.load(artifact)
        return lambda inputs: next(iter(executable(inputs).values())), executable.close

    return Contestant(start)


def theirs(model: Path, threads: int) -> Contestant:
    """ONNX Runtime from a file."""

    def start() -> tuple[Call, Callable[[], object]]:
        held = [peers.session(str(model), threads)]
        return lambda inputs: held[0].run(None, dict(inputs))[0], held.clear

    return Contestant(start)


def difference(one: Contestant, other: Contestant, inputs: list[dict[str, Array]]) -> dict[str, float]:
    """The largest difference over the stream, and the largest value."""
    (run, close), (peer, peer_close) = one.open(), other.open()
    worst = scale = 0.0
    for item in inputs:
        got, want = run(item), peer(item)
        if got.shape != want.shape:
            raise SystemExit(f"shapes differ: {got.shape}, {want.shape}")
        worst = max(worst, float(np.abs(got - want).max()))
        scale = max(scale, float(np.abs(want).max()))
    close()
    peer_close()
    return {"largest_difference": worst, "largest_value": scale}


def at(
    threads: int, artifact: Path, model: Path, inputs: list[dict[str, Array]], rounds: int
) -> dict[str, Any]:
    """All figures at one number of threads."""
    import hwsdk

    hwsdk.set_num_threads(threads)
    both = {OURS: ours(artifact), PEER: theirs(model, threads)}
    agreement = difference(both[OURS], both[PEER], inputs)
    peaks = []
    for number in range(rounds):
        peaks.append(peak.gflops(threads))
        for name in turns(list(both), number):
            settle(threads)
            both[name].turn(inputs)
    figures: dict[str, Any] = {
        "threads": threads,
        "rounds": rounds,
        **agreement,
        "peak_gflops": float(np.median(peaks)),
    }
    for name, c in both.items():
        figures[name] = {
            "load_s": float(np.median(c.loads)),
            "cold_s": c.cold.median(), "cold_best_s": c.cold.best(),
            "warm_s": c.warm.median(), "warm_best_s": c.warm.best(),
            "cold_to_warm": ratio(c.cold.passes(), c.warm.passes()),
            "cold_to_warm_best": c.cold.best() / c.warm.best(),
        }  # fmt: skip
        if threads == 1:
            cold, warm = c.cold.cpu_median(), c.warm.cpu_median()
            figures[name] |= {"cold_cpu_s": cold, "warm_cpu_s": warm, "cold_to_warm_cpu": cold / warm}
    figures["to_peer"] = {
        "warm": ratio(both[OURS].warm.passes(), both[PEER].warm.passes()),
        "warm_best": both[OURS].warm.best() / both[PEER].warm.best(),
    }
    if threads == 1:
        figures["to_peer"]["warm_cpu"] = figures[OURS]["warm_cpu_s"] / figures[PEER]["warm_cpu_s"]
    return figures


def measure(
    chosen: Subject, lengths: tuple[int, ...], target: str, threads: list[int], rounds: int
) -> dict[str, Any]:
    """Compile, then every number of threads."""
    sizes: list[Size] = [(1, n) for n in lengths]
    inputs = [chosen.inputs(s) for s in sizes]
    figures: dict[str, Any] = {
        **report.machine(),
        "subject": chosen.name,
        "lengths": list(lengths),
        "target": target,
    }
    with tempfile.TemporaryDirectory(prefix="hwsdk-stream-") as folder:
        artifact, model = Path(folder, "model.hwx"), Path(folder, "model.onnx")
        content = chosen.peer()
        assert isinstance(content, bytes)
        model.write_bytes(content)
        made = compile_in_child(chosen.name, artifact, target, sizes, times=2)
        figures["compile_cold"], figures["compile_warm"] = made
        figures["reload"] = load_in_child(artifact)
        figures["passes"] = [at(n, artifact, model, inputs, rounds) for n in threads]
    return figures


def show(figures: Mapping[str, Any]) -> None:
    """Tables of what `measure` found."""
    print(report.heading(figures))
    lengths, rounds = len(figures["lengths"]), figures["passes"][0]["rounds"]
    report.table(
        f"{figures['subject']} for {figures['target']}: one compile for {lengths} lengths; each row a fresh process",
        ("", "graph s", "compile s", "CPU s", "LLVM CPU s", "save s", "load s", "compiles", "runs", "arena MB", "MB"),
        [_compiled("empty cache", figures["compile_cold"]), _compiled("full cache", figures["compile_warm"]),
         ("reload", "", "", "", "", "", f"{figures['reload']['load_s']:.3f}", 0, "", "", "")],
    )  # fmt: skip
    report.table(
        f"The stream, {rounds} alternating rounds (median / best / CPU time of one thread)",
        ("", "load s", "cold pass s", "warm pass s", "cold ÷ warm"),
        [_row(p, name) for p in figures["passes"] for name in (OURS, PEER)],
    )
    report.table(
        f"{OURS} ÷ {PEER}, warm pass",
        ("threads", "median / best / CPU time", "largest difference", "largest value", "peak GFLOP/s"),
        [(p["threads"], _three(p["to_peer"], "warm", "warm_best", "warm_cpu"), f"{p['largest_difference']:.1e}",
          f"{p['largest_value']:.1f}", f"{p['peak_gflops']:.0f}")
         for p in figures["passes"]],
    )  # fmt: skip


def _compiled(name: str, found: Mapping[str, Any]) -> tuple[object, ...]:
    seconds = (
        f"{found[k]:.2f}" for k in ("model_s", "compile_s", "compile_cpu_s", "workers_cpu_s", "save_s")
    )
    megabytes = (f"{found[k] / 1e6:.1f}" for k in ("arena_bytes", "artifact_bytes"))
    return name, *seconds, "", found["compiles"], found["runs"], *megabytes


def _row(figures: Mapping[str, Any], name: str) -> tuple[object, ...]:
    found = figures[name]
    return (
        f"{name}, {figures['threads']} thread{'s' * (figures['threads'] > 1)}",
        f"{found['load_s']:.3f}",
        _three(found, "cold_s", "cold_best_s", "cold_cpu_s"),
        _three(found, "warm_s", "warm_best_s", "warm_cpu_s"),
        _three(found, "cold_to_warm", "cold_to_warm_best", "cold_to_warm_cpu"),
    )


def _three(found: Mapping[str, Any], *names: str) -> str:
    return " / ".join(f"{found[n]:.3f}" for n in names if n in found)


def main() -> None:
    options = report.arguments(__doc__).parse_args()
    threads = report.threads_of(options)
    if options.quick:
        figures = measure(subject("small_encoder"), (1, 7, 31, 64), options.target, threads[:1], 2)
    else:
        figures = measure(subject("minilm_l6"), LENGTHS, options.target, threads, options.rounds)
    if report.finish(figures, options.json):
        show(figures)


if __name__ == "__main__":
    main()
