"""How fast models run on interpreted instructions: seconds per inference and instructions of lanes per second.

    python -m benchmarks.simulators [--models attacut_c] [--targets cuda-sm80,rocm-gfx90a] [--shapes 3] [--json FILE]

Design choice: processor time of one core, because the interpreter uses one and other work on the machine should not
count.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from hwsdk import api
from hwsdk.conformance.data import generator
from hwsdk.conformance.l5_models import MODELS, Model
from hwsdk.frontends import catalogue, load
from hwsdk.intrinsics import load_target


def measure(model: Model, target: str, shapes: int) -> dict[str, Any]:
    """One compile, `shapes` inferences."""
    start = time.process_time()
    graph = load(str(catalogue.fetch(model.name)))
    made = api.compile_stages(graph, load_target(target))
    compiled = time.process_time()
    run = api.instructions(made)
    read = time.process_time()
    runs = []
    for size in model.sizes[:shapes]:
        inputs = model.inputs(generator(0, model.name, size), size)
        begin = time.process_time()
        run(inputs)
        seconds = time.process_time() - begin
        runs.append({"size": size, "seconds": seconds, "lane_instructions": run.stats.lane_instructions})
    total = sum(r["seconds"] for r in runs)
    return {
        "model": model.name,
        "target": target,
        "compile_seconds": compiled - start,
        "read_seconds": read - compiled,
        "run_seconds": total,
        "millions_per_second": sum(r["lane_instructions"] for r in runs) / total / 1e6,
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="surfaces_mlp,attacut_c")
    parser.add_argument("--targets", default="cuda-sm80,cuda-sm90,rocm-gfx90a,dcu-gfx906")
    parser.add_argument("--shapes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    print(f"{'model':16}{'target':14}{'compile s':>10}{'read s':>8}{'run s':>8}{'M lanes/s':>11}")
    for name in given.models.split(","):
        model = next(m for m in MODELS if m.name == name)
        for target in given.targets.split(","):
            r = measure(model, target, given.shapes)
            found.append(r)
            times = f"{r['compile_seconds']:10.1f}{r['read_seconds']:8.1f}{r['run_seconds']:8.1f}"
            print(f"{name:16}{target:14}{times}{r['millions_per_second']:11.0f}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
