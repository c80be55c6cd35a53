"""The planner's schedule against a measured sweep: every register tile that fits, timed on this machine.

python benchmarks/planner.py [--target x86] [--threads 1] [--rounds 7] [--shapes 128x384x384,512x512x512]

Design choice: `compare` takes any function from a schedule to a timed run, so the same table serves the
compiler on the host, a device, or a simulator.  Runs of all schedules are interleaved, each after one
untimed call; the best round counts; every figure is a ratio of runs made side by side.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np

from hwsdk.codegen.planner import Contraction, alternatives, plan
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.target_desc import load_target
from hwsdk.target_desc.model import Target

SHAPES = "1x1024x1024,16x384x384,128x384x384,128x1536x384,128x384x1536,512x512x512,127x383x385,333x777x555"
Run = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One problem: seconds of the planner's choice and of the best schedule in the sweep."""

    problem: Contraction
    chosen: ContractionSchedule
    best: ContractionSchedule
    seconds: float
    best_seconds: float
    median_seconds: float
    swept: int

    @property
    def ratio(self) -> float:
        return self.best_seconds / self.seconds

    @property
    def gflops(self) -> float:
        m, n, k = self.problem.extents
        return 2e-9 * m * n * k * self.problem.batches / self.seconds


def compare(
    target: Target,
    problem: Contraction,
    prepare: Callable[[ContractionSchedule], Run],
    rounds: int = 7,
    most: int = 40,
    clock: Clock = time.perf_counter,
) -> Row:
    """Time the plan and up to `most` alternatives; `prepare` builds what runs one schedule."""
    chosen = plan(target, problem)
    swept = [chosen]
    for schedule in alternatives(target, problem)[:most]:
        if schedule.register_tile != chosen.register_tile:
            swept.append(schedule)
    runs = [prepare(schedule) for schedule in swept]
    best = [math.inf] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            best[i] = min(best[i], _time(run, clock))
    order = sorted(range(len(runs)), key=best.__getitem__)
    median = best[order[len(order) // 2]]
    return Row(problem, chosen, swept[order[0]], best[0], best[order[0]], median, len(runs))


def _time(run: Run, clock: Clock, least: float = 2e-3) -> float:
    """Seconds per call, over at least `least` seconds, after one untimed call."""
    run()
    start, calls = clock(), 0
    while True:
        run()
        calls += 1
        spent = clock() - start
        if spent >= least:
            return spent / calls


def compiled(target: Target, problem: Contraction) -> Callable[[ContractionSchedule], Run]:
    """Runs of the product's own code: the compiler asks for a plan and is given the schedule under test."""
    import hwsdk
    import hwsdk.frontends.builder as hb

    m, n, k = problem.extents
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))

    def prepare(schedule: ContractionSchedule) -> Run:
        model = hb.Model("product")
        model.output("y", model.input("x", "f32", ("m", k)) @ w)
        with mock.patch("hwsdk.codegen.lower.simd.plan", return_value=schedule):
            executable = hwsdk.compile(model.graph(), target, cache=False)
        np.testing.assert_allclose(executable(x=x)["y"], x @ w, rtol=1e-3, atol=1e-3)

        def run() -> None:
            executable(x=x)

        return run

    return prepare


def table(rows: Sequence[Row]) -> str:
    """The rows with their geometric mean."""
    lines = ["M x N x K          chosen   GFLOP/s  best     chosen/best  median/best  swept"]
    for r in rows:
        m, n, k = r.problem.extents
        chosen, best = ("x".join(map(str, s.register_tile)) for s in (r.chosen, r.best))
        lines.append(
            f"{f'{m}x{n}x{k}':18} {chosen:8} {r.gflops:7.1f}  {best:8} {r.ratio:11.3f}"
            f" {r.best_seconds / r.median_seconds:12.3f} {r.swept:6}"
        )
    mean = math.exp(sum(math.log(r.ratio) for r in rows) / len(rows))
    return "\n".join([*lines, f"geometric mean {mean:.3f}, least {min(r.ratio for r in rows):.3f}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="x86")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--most", type=int, default=40, help="schedules timed per shape")
    parser.add_argument("--shapes", default=SHAPES)
    options = parser.parse_args()
    import hwsdk

    hwsdk.set_num_threads(options.threads)
    target = load_target(options.target)
    clock = time.process_time if options.threads == 1 else time.perf_counter  # others may hold the core
    rows = []
    for text in options.shapes.split(","):
        problem = Contraction(*map(int, text.split("x")), b_constant=True)
        rows.append(compare(target, problem, compiled(target, problem), options.rounds, options.most, clock))
        print(table(rows[-1:]).splitlines()[1], flush=True)
    print(f"\n{options.target}, {options.threads} thread(s)\n{table(rows)}")


if __name__ == "__main__":
    main()
