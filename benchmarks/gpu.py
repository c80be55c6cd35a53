"""One command for a machine with a GPU: conformance L1 to L5, kernels and a network beside the vendor's libraries.

    python -m benchmarks.gpu [--device 0] [--target T] [--budget 450] [--sections gemm,encoder] [--json gpu.json]
    python -m benchmarks.gpu --prepare DIR --target cuda-sm90     compile the programs, on any machine
    python -m benchmarks.gpu --artifacts DIR                      run prepared programs, where nothing can be compiled
    python -m benchmarks.gpu --sections probe                     what to try first on a machine that nobody knows

Each section has a share of the budget and names what it left out.  The JSON file is written again after each section.
Exit code: 0 all is well, 1 something failed, 2 there is no device.

Design choice: a section runs in a process of its own, which is started again where a fault has taken the device's
context with it, and ended when its time is over; so no kernel that hangs or faults costs more than its section.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import gpu_encoder, gpu_programs, gpu_suite, gpu_table, report
from benchmarks.gpu_bench import Bench, Gone, Job

Section = Callable[[Bench], Iterable[Job]]
Figures = dict[str, Any]
#: name -> (part of the budget, jobs); in the order in which they run
SECTIONS: dict[str, tuple[float, Section]] = {
    "l1": (15, partial(gpu_suite.level, name="L1")),
    "gemm": (80, gpu_table.gemm),
    "memory": (45, gpu_table.memory),
    "attention": (35, gpu_table.attention),
    "encoder": (130, gpu_encoder.encoder),
    "l2": (25, partial(gpu_suite.level, name="L2")),
    "l5": (35, partial(gpu_suite.level, name="L5")),
    "l3": (65, partial(gpu_suite.level, name="L3")),
    "l4": (30, partial(gpu_suite.level, name="L4")),
}
PROBE: tuple[float, Section] = (60, gpu_suite.probe)
PACKAGES = ("hwsdk", "numpy", "llvmlite", "cupy-cuda12x", "cupy-rocm-7-0", "torch", "tensorrt", "onnxruntime")
GRACE_S = 12.0  # after its time a section may finish the row that it is at
DEAD = 3  # exit code of a child whose device is gone
TIME_OVER = 99  # stands for the exit code of a child that was ended
NO_DEVICE = 2


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=int, default=0, help="number of the device (default: %(default)s)")
    parser.add_argument("--target", default="", help="description (default: the one that fits a device here)")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="default: %(default)s; also: probe")
    parser.add_argument("--budget", type=float, default=450.0, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument(
        "--artifacts", type=Path, metavar="DIR", help="run programs that --prepare left there"
    )
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="compile the programs into DIR, and end")
    parser.add_argument("--json", default="gpu.json", metavar="FILE", help="default: %(default)s")
    parser.add_argument("--peer", metavar="DEVICE", help="where torch runs (default: cuda:N); empty: nowhere")
    parser.add_argument("--quick", action="store_true", help="tiny shapes: shows that the program works")
    parser.add_argument("--one-process", action="store_true", help="sections in this process, to debug them")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)  # a section, or `facts`
    parser.add_argument(
        "--skip", type=int, default=0, help=argparse.SUPPRESS
    )  # jobs that a child before it did
    options = parser.parse_args(arguments)
    for name in options.sections.split(","):
        if name != "probe" and name not in SECTIONS:
            parser.error(f"no section {name!r}; there are {', '.join([*SECTIONS, 'probe'])}")
    if options.peer is None:
        options.peer = f"cuda:{options.device}"
    if options.quick:
        gpu_programs.SMALL.append(True)
    return options


# ------------------------------------------------------------------------------------------------------- what is here
def fitting_target() -> str:
    """The description that fits a device here; SystemExit(2) with a line where none does."""
    from hwsdk.target_desc.detection import verdicts

    found = [v for v in verdicts() if not v.processor]
    for verdict in found:
        if verdict.best:
            return verdict.target
    reasons = "; ".join(dict.fromkeys(v.reason for v in found)) or "no description of a device was found"
    raise nothing(f"no device here fits a description: {reasons}")


def nothing(text: str) -> SystemExit:
    """One line, exit code 2."""
    sys.stderr.write(f"benchmarks.gpu: {' '.join(text.split())}\n")
    return SystemExit(NO_DEVICE)


def facts(target: Any, device: int) -> Figures:
    """The device's name, driver and properties.  DeviceError where it cannot be opened."""
    from hwsdk.ral_port.loader import open_port

    with open_port(target.runtime.port, Path(target.file).resolve().parent, device) as port:
        known = port.properties()
        found = {
            "name": known.name,
            "memory_bytes": known.memory_bytes,
            "records": known.records,
            **known.extra,
        }
    runtime = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "runtime", None)
    for name, ask in (("driver", "driverGetVersion"), ("runtime", "runtimeGetVersion")):
        if hasattr(runtime, ask):
            found[name] = int(getattr(runtime, ask)())
    return found


def versions() -> dict[str, str]:
    """What is installed."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load(name: str) -> Any:
    """A description, from its YAML alone."""
    from hwsdk.target_desc import load_target

    return load_target(name)


# ----------------------------------------------------------------------------------------------------------- a section
def section(name: str, options: argparse.Namespace, until: float, keep: Callable[[Figures], None]) -> Figures:
    """Run the jobs of a section until that time (`time.monotonic`); `keep` is given the figures after each row."""
    target = load(options.target)
    bench = Bench(target, options.device, options.artifacts, until, peer=options.peer, quick=options.quick)
    jobs = (PROBE if name == "probe" else SECTIONS[name])[1](bench)
    try:
        bench.run(jobs, options.skip, lambda: keep(bench.figures()))
    finally:
        keep(bench.figures())
    return bench.figures()


def child(options: argparse.Namespace) -> int:
    """What a process for one section does; its figures are in the JSON file after every job."""
    from hwsdk.errors import HwsdkError

    path, until = Path(options.json), time.monotonic() + options.budget
    try:
        if options.child == "facts":
            write(path, facts(load(options.target), options.device))
        else:
            section(options.child, options, until, partial(write, path))
    except Gone:
        return DEAD
    except HwsdkError as trouble:
        sys.stderr.write(f"{' '.join(str(trouble).split())}\n")
        return 1
    return 0


def write(path: Path, figures: Mapping[str, Any]) -> None:
    """The whole file or the old one."""
    partial_file = path.with_name(f".{path.name}.partial")
    partial_file.write_text(json.dumps(figures, indent=1, default=str) + "\n", encoding="utf-8")
    os.replace(partial_file, path)


def in_child(name: str, options: argparse.Namespace, seconds: float) -> Figures:
    """The section in a process of its own, started again where a fault took the device."""
    end = time.monotonic() + seconds
    total: Figures = {"rows": [], "failures": [], "notes": [], "left_out": [], "jobs": 0, "seconds": 0.0}
    while True:
        status, found, said = _spawn(name, options, end - time.monotonic(), total["jobs"])
        for key in total:
            total[key] += found.get(key, type(total[key])())
        if not status:
            return total
        if found.get("at"):  # it ended in the middle of a job
            total["failures"].append(f"{found['at']}: {said}")
            total["jobs"] += 1
        elif status != DEAD:
            total["failures"].append(f"{name}: {said}")
        if (
            status == TIME_OVER
            or not found.get("jobs", 0) + bool(found.get("at"))
            or end - time.monotonic() < 5
        ):
            return total
        total["notes"].append("what came next ran in another process, because that one had lost the device")


def _spawn(name: str, options: argparse.Namespace, seconds: float, skip: int) -> tuple[int, Figures, str]:
    """Exit code (not 0: trouble), figures, what to say of it."""
    with tempfile.TemporaryDirectory(prefix="hwsdk-gpu-") as folder:
        path = Path(folder, "section.json")
        command = [sys.executable, "-m", "benchmarks.gpu", "--child", name, "--json", str(path),
                   "--target", options.target,
                   "--device", str(options.device), "--budget", str(max(1.0, seconds)), "--skip", str(skip),
                   "--peer", options.peer, *(["--quick"] if options.quick else []),
                   *(["--artifacts", str(options.artifacts)] if options.artifacts else [])]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                _, errors = process.communicate(timeout=max(1.0, seconds) + GRACE_S)
                last = (errors.strip().splitlines() or [""])[-1]
                status, said = process.returncode, f"exit code {process.returncode}: {last}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                status, said = TIME_OVER, f"ended after {seconds + GRACE_S:.0f} s: it did not come back"
        return status, json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}, said


# ----------------------------------------------------------------------------------------------------------- all of it
def run(options: argparse.Namespace) -> Figures:
    """Every section in its share of the time that is left."""
    end = time.monotonic() + options.budget
    options.target = options.target or fitting_target()
    target = load(options.target)
    figures: Figures = {
        "program": "benchmarks.gpu", "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": _device(options), "target": target.name, "description": target.digest, "machine": report.machine(),
        "versions": versions(), "budget_s": options.budget, "peaks": gpu_table.peaks(target), "sections": {},
    }  # fmt: skip
    names = options.sections.split(",")
    parts = {name: (PROBE if name == "probe" else SECTIONS[name])[0] for name in names}
    for number, name in enumerate(names):
        left = end - time.monotonic() - GRACE_S / 2
        share = left * parts[name] / sum(parts[n] for n in names[number:])
        figures["sections"][name] = {"state": "running"}
        write(Path(options.json), figures)
        if share < 1:
            figures["sections"][name] = {"left_out": ["all of it: no time is left"]}
        else:
            figures["sections"][name] = _one(name, options, share)
        figures["failed"] = [n for n, s in figures["sections"].items() if s.get("failures")]
        figures["seconds"] = round(options.budget - (end - time.monotonic()), 1)
        write(Path(options.json), figures)
    return figures


def _device(options: argparse.Namespace) -> Figures:
    """Facts about the device; one line and exit code 2 where there is none."""
    from hwsdk.errors import HwsdkError

    if options.one_process:
        try:
            return facts(load(options.target), options.device)
        except HwsdkError as trouble:
            raise nothing(str(trouble)) from None
    status, found, said = _spawn("facts", options, 60, 0)
    if status:
        raise nothing(f"{options.target}, device {options.device}: {said}")
    return found


def _one(name: str, options: argparse.Namespace, share: float) -> Figures:
    if not options.one_process:
        return {"share_s": round(share, 1), **in_child(name, options, share)}
    try:
        return {
            "share_s": round(share, 1),
            **section(name, options, time.monotonic() + share, lambda figures: None),
        }
    except Exception as trouble:  # noqa: BLE001 - the others must run
        return {"failures": [f"{name}: {type(trouble).__name__}: {trouble}"]}


def show(figures: Mapping[str, Any]) -> None:
    """What was found, in tables."""
    device = figures["device"]
    print(f"{device.get('name')}, driver {device.get('driver', '?')}; {figures['target']}; {figures['date']}")
    for name, found in figures["sections"].items():
        rows = found.get("rows", [])
        if rows and name in ("gemm", "memory", "attention", "encoder"):
            head = list(
                dict.fromkeys(k for row in rows for k in row if k not in ("versions", "rate", "repeats"))
            )
            report.table(name, head, [[_cell(row.get(k, "")) for k in head] for row in rows])
        failed, left = len(found.get("failures", [])), len(found.get("left_out", []))
        print(f"{name}: {len(rows)} rows, {failed} failures, {left} left out, {found.get('seconds', 0)} s")
        for text in (*found.get("failures", []), *found.get("notes", [])):
            print(f"  {text[:400]}")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = options_of(arguments)
    if options.child:
        return child(options)
    if options.prepare is not None:
        refused = gpu_programs.prepare(options.prepare, options.target or fitting_target())
        for name, why in refused.items():
            print(f"{name}: {why}")
        return 0
    figures = run(options)
    show(figures)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
