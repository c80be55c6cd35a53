"""`hwsdk demo`: the main job, offline and without optional packages.

Design choice: it proves what it prints.  Every answer is compared with the NumPy form of the model in f64
under a bound derived from the depth of the model, and the number of compiles is read from the executable, not
assumed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from hwsdk.cli.terminal import command, compiling, is_terminal, out, out_json, progress, table
from hwsdk.errors import HwsdkError

if TYPE_CHECKING:
    import numpy as np

STREAM = (
    (1, 1),
    (1, 2),
    (1, 7),
    (1, 64),
    (1, 31),
    (2, 17),
    (1, 128),
    (3, 61),
    (1, 255),
    (8, 32),
    (1, 512),
    (1, 127),
)
# Rounding of the deepest path: two layers of (projection, scores, softmax, merge, norm, up, gelu, down, norm), each
# accumulating K terms with an error of 4 sqrt(K) u: about 1000 u of the largest value.
DEPTH_ROUNDINGS = 1000
UNIT = 2.0**-24


class DemoError(HwsdkError):
    """The demo's own check failed."""


@command
def demo(
    target: str = typer.Option(
        None, "--target", "-t", help="Target to compile for (default: this machine's)."
    ),
    threads: int = typer.Option(0, "--threads", help="Threads to use (default: the physical cores)."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Compile a small transformer once, run it at many batch and sequence lengths, check every answer.

    Example: hwsdk demo
    """
    import numpy as np

    import hwsdk
    from hwsdk.cli import demo_model
    from hwsdk.cli.detection import target_or_host

    chosen = target_or_host(target)
    if threads:
        hwsdk.set_num_threads(threads)
    w = demo_model.weights()
    start = time.perf_counter()
    with compiling(f"compile for {chosen.name}") as follow:
        exe = hwsdk.compile(demo_model.build(w), chosen, cache=False, progress=follow)
    compile_s = time.perf_counter() - start

    rng = np.random.default_rng(0)
    rows = []
    with progress("run", total=len(STREAM)) as advance:
        for batch, seq in STREAM:
            rows.append(_one(exe, w, demo_model.inputs(rng, batch, seq)))
            advance()
    result = {
        "target": chosen.name,
        "compile_seconds": compile_s,
        "compiles": exe.stats.compiles,
        "runs": rows,
        "worst_error": max(r["error"] for r in rows),
        "allowed_error": max(r["allowed"] for r in rows),
    }
    if json:
        out_json(result)
    else:
        _print(result)
    _judge(result)


def _one(
    exe: Any, w: dict[str, np.ndarray[Any, Any]], inputs: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Any]:
    """The first call at a shape, a warm call, and the check."""
    import numpy as np

    from hwsdk.cli import demo_model

    times = []
    for _ in range(4):
        start = time.perf_counter()
        got = exe(**inputs)["states"]
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    want = demo_model.reference(w, inputs["ids"], inputs["mask"])
    numpy_s = time.perf_counter() - start
    batch, seq = inputs["ids"].shape
    return {
        "batch": batch,
        "seq": seq,
        "first_ms": times[0] * 1e3,
        "warm_ms": min(times[1:]) * 1e3,
        "numpy_f64_ms": numpy_s * 1e3,
        "error": float(np.abs(got - want).max(initial=0.0)) if got.shape == want.shape else float("inf"),
        "allowed": DEPTH_ROUNDINGS * UNIT * float(np.abs(want).max(initial=0.0)),
    }


def _print(result: dict[str, Any]) -> None:
    out(
        f"target {result['target']}: compiled once in {result['compile_seconds']:.2f} s, for every batch and length"
    )
    rows = [
        (
            r["batch"],
            r["seq"],
            r["first_ms"],
            r["warm_ms"],
            r["error"],
            "yes" if r["error"] <= r["allowed"] else "NO",
        )
        for r in result["runs"]
    ]
    if is_terminal():
        out()
    table(("batch", "seq", "first call ms", "warm ms", "largest error", "right"), rows)
    out(f"\ncompiles: {result['compiles']}")


def _judge(result: dict[str, Any]) -> None:
    wrong = [f"{r['batch']} x {r['seq']}" for r in result["runs"] if not r["error"] <= r["allowed"]]
    if wrong:
        raise DemoError(f"wrong answer at {', '.join(wrong)}")
    if result["compiles"] != 1:
        raise DemoError(f"{result['compiles']} compiles for {len(STREAM)} shapes; one was expected")
