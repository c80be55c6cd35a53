"""Compiling in a fresh process, as the first user of a model sees it: how long each part takes.

    python -m benchmarks.compiling minilm_l6 model.hwx --target x86

Design choice: a process that has compiled before is warm in many small ways, so every figure about compiling and
loading comes from a child that does it once.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, child_environment
from benchmarks.subjects import Size, subject


def compile_in_child(
    name: str, artifact: Path, target: str, sizes: Sequence[Size], times: int = 1
) -> list[dict[str, Any]]:
    """Compile a subject, run it at all sizes, save it; the child's report.

    times: fresh processes, one after another; the first finds no compiled code in its cache, the others all of it.
    """
    _prepare(target)
    with tempfile.TemporaryDirectory(prefix="hwsdk-bench-") as folder:
        _share_models(Path(folder))
        return [_child(name, artifact, target, sizes, {"HWSDK_CACHE_DIR": folder}) for _ in range(times)]


@cache
def _prepare(target: str) -> None:
    """Run every module once in a child, so that Python's own compiler is not measured."""
    with tempfile.TemporaryDirectory(prefix="hwsdk-bench-") as folder:
        artifact = Path(folder, "model.hwx")
        _child("small_encoder", artifact, target, [(1, 3)], {"HWSDK_CACHE_DIR": folder})
        load_in_child(artifact)


def _share_models(folder: Path) -> None:
    """Shows the fetched models of the ordinary cache in the empty one."""
    from hwsdk.frontends import catalogue

    catalogue.cache_dir().mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(catalogue.cache_dir().resolve(), target_is_directory=True)


def _child(
    name: str, artifact: Path, target: str, sizes: Sequence[Size], home: dict[str, str]
) -> dict[str, Any]:
    shapes = ["x".join(map(str, s)) for s in sizes]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiling", name, str(artifact), "--target", target, "--sizes", *shapes],
        cwd=ROOT, env=child_environment(**home), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def load_in_child(artifact: Path) -> dict[str, Any]:
    """Seconds of `import hwsdk` and of loading an artifact in a fresh process."""
    code = (
        "import json, sys, time; a = time.perf_counter(); import hwsdk; b = time.perf_counter();"
        "exe = hwsdk.load(sys.argv[1]); c = time.perf_counter();"
        "print(json.dumps({'import_s': b - a, 'load_s': c - b, 'cpu_s': time.process_time()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(artifact)],
        cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def _of_workers() -> float:
    """Processor time of the processes that ran LLVM (they end here)."""
    from hwsdk.codegen.llvm_pool import shared_pool

    shared_pool().close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--target", default="x86")
    parser.add_argument("--sizes", nargs="*", default=[], help="sizes to run, such as 1x77")
    options = parser.parse_args()
    times = [time.perf_counter()]

    def lap() -> float:
        times.append(time.perf_counter())
        return times[-1] - times[-2]

    import hwsdk

    report: dict[str, Any] = {"import_s": lap()}
    chosen = subject(options.name)
    model = chosen.model()
    report["model_s"] = lap()
    busy = time.process_time()
    executable = hwsdk.compile(model, options.target)
    report["compile_s"] = lap()
    report["compile_cpu_s"] = time.process_time() - busy  # of this process, without the workers that run LLVM
    report["workers_cpu_s"] = _of_workers()
    lap()
    executable.save(options.artifact)
    report["save_s"] = lap()
    for size in options.sizes:
        executable(**chosen.inputs(tuple(map(int, size.split("x")))))
    stats = executable.stats
    report |= {"compiles": stats.compiles, "runs": stats.runs, "arena_bytes": stats.arena_bytes}
    report["artifact_bytes"] = options.artifact.stat().st_size
    print(json.dumps(report))


if __name__ == "__main__":
    main()
