"""f32 matrix products with a constant right-hand side, beside the processor's peak, OpenBLAS and ONNX Runtime.

    python -m benchmarks.gemm [--threads 1,2] [--rounds 7] [--shapes 128x384x384,512x512x512] [--json FILE] [--quick]

Shapes are M x N x K.  hwsdk goes through the ordinary compiler: one compile for each (N, K), with M dynamic.  Its time
is that of the launch, from the clock that the compiled host program reads around it (`Executable.profile`), so that no
Python call is in it.  OpenBLAS is `numpy.matmul(a, b, out=c)` in a process of its own (about 1 us of call), ONNX
Runtime a MatMul with bound input and output (`run_with_iobinding`, about 10 us of call).  With one thread a call counts
with its processor time where that is less than its wall time: another process held the core meanwhile.

Design choice: a round gives everybody a turn of many calls.  Reported are the median of all calls and the best one;
the fraction is that of the highest peak measured in the same rounds, by code that knows nothing of hwsdk.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import peak, peers, report
from benchmarks.measure import settle, turns

Array = np.ndarray[Any, Any]
Extents = tuple[int, int, int]
Turn = Callable[[int], list[float]]

SHAPES = (
    "1x1024x1024,16x384x384,128x384x384,128x1536x384,128x384x1536,256x768x768,512x512x512,1024x1024x1024,"
    "2048x2048x2048,127x383x385,333x777x555"
)
QUICK = "5x48x33,16x64x64"
TURN_S = 20e-3  # about how long a turn lasts
GUESS_GFLOPS = 60.0
OURS = "hwsdk"


@dataclass
class Runner:
    """One contestant: `turn(calls)` gives the seconds of each call."""

    turn: Turn
    seconds: list[float] = field(default_factory=list)


def products(extents: Sequence[Extents], target: str) -> dict[tuple[int, int], tuple[Any, Array]]:
    """An executable and its constant for each (N, K): y = x @ w with x f32[m, K]."""
    import hwsdk
    import hwsdk.frontends.builder as hb

    found: dict[tuple[int, int], tuple[Any, Array]] = {}
    for _, n, k in extents:
        if (n, k) not in found:
            w = np.random.default_rng((n, k)).standard_normal((k, n), np.float32)
            model = hb.Model(f"product_{n}_{k}")
            model.output("y", model.input("x", "f32", (model.dim("m"), k)) @ w)
            found[n, k] = hwsdk.compile(model.graph(), target), w
    return found


def agrees(y: Array, x: Array, w: Array) -> None:
    """AssertionError where y is further from x @ w than the sums of k terms of about one that f32 rounds may be."""
    np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-5, atol=2.0**-22 * x.shape[1])


def ours(executable: Any, x: Array, threads: int) -> Turn:
    """The launches of the compiled program."""

    def turn(calls: int) -> list[float]:
        seconds = []
        for _ in range(calls):
            start = time.thread_time()
            launches = executable.profile(x=x).seconds
            busy = time.thread_time() - start  # of the whole call: never less than the launches took
            seconds.append(min(launches, busy) if threads == 1 else launches)
        return seconds

    return turn


def runtime(x: Array, w: Array, threads: int) -> Turn:
    """ONNX Runtime with the right-hand side as an initializer."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", w.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", w.shape[1]])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = peers.session(model.SerializeToString(), threads)
    binding = session.io_binding()
    y = np.empty((x.shape[0], w.shape[1]), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    agrees(y, x, w)

    def turn(
        calls: int, held: tuple[Array, Array] = (x, y)
    ) -> list[float]:  # the binding knows only addresses
        return [peers.call_time(lambda: session.run_with_iobinding(binding), threads) for _ in range(calls)]

    return turn


def row(
    extents: Extents, product: tuple[Any, Array], blas: peers.OpenBlas, threads: int, rounds: int
) -> dict[str, Any]:
    """One shape: all contestants, alternating."""
    m, n, k = extents
    executable, w = product
    x = np.random.default_rng(m).standard_normal((m, k), np.float32)
    agrees(executable(x=x)["y"], x, w)
    runners = {
        OURS: Runner(ours(executable, x, threads)),
        "OpenBLAS": Runner(lambda calls: blas.run(extents, calls)),
        "onnxruntime": Runner(runtime(x, w, threads)),
    }
    flop = 2.0 * m * n * k
    calls = int(min(200, max(2, TURN_S * GUESS_GFLOPS * threads * 1e9 / flop)))
    peaks = []
    for number in range(rounds):
        peaks.append(peak.gflops(threads))
        for name in turns(list(runners), number):
            settle(threads)
            runners[name].turn(max(1, calls // 10))
            runners[name].seconds += runners[name].turn(calls)
    found: dict[str, Any] = {"shape": list(extents), "threads": threads, "calls": calls * rounds}
    found["peak_gflops"] = max(peaks)
    for name, runner in runners.items():
        median, best = (1e-9 * flop / s for s in (statistics.median(runner.seconds), min(runner.seconds)))
        found[name] = {
            "gflops": median, "best_gflops": best,
            "of_peak": median / found["peak_gflops"], "best_of_peak": best / found["peak_gflops"],
        }  # fmt: skip
    return found


def measure(shapes: str, target: str, threads: Sequence[int], rounds: int) -> dict[str, Any]:
    """Every shape at every number of threads."""
    import hwsdk

    extents = [_extents(text) for text in shapes.split(",")]
    compiled = products(extents, target)
    figures: dict[str, Any] = {**report.machine(), "target": target, "lanes": peak.lanes(), "rows": []}
    for count in threads:
        hwsdk.set_num_threads(count)
        blas = peers.OpenBlas(count)
        for each in extents:
            figures["rows"].append(row(each, compiled[each[1:]], blas, count, rounds))
        blas.close()
    return figures


def _extents(text: str) -> Extents:
    m, n, k = map(int, text.split("x"))
    return m, n, k


def show(figures: Mapping[str, Any]) -> None:
    """One table per number of threads."""
    print(report.heading(figures))
    for threads in dict.fromkeys(r["threads"] for r in figures["rows"]):
        rows = [r for r in figures["rows"] if r["threads"] == threads]
        names = [n for n in rows[0] if isinstance(rows[0][n], dict)]
        report.table(
            f"f32 GFLOP/s, {threads} thread{'s' * (threads > 1)}: median / best (best as a fraction of the peak)",
            ("M x N x K", "peak", *names, f"{OURS} ÷ best peer"),
            [_cells(r, names) for r in rows],
        )


def _cells(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    shape = "x".join(map(str, found["shape"]))
    return [shape, f"{found['peak_gflops']:.0f}", *(_cell(found[n]) for n in names), _ahead(found, names)]


def _cell(found: Mapping[str, float]) -> str:
    return f"{found['gflops']:.1f} / {found['best_gflops']:.1f} ({100 * found['best_of_peak']:.0f} %)"


def _ahead(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """Ratio to the fastest peer, of medians and of best calls."""
    others = [found[n] for n in names if n != OURS]
    return " / ".join(f"{found[OURS][k] / max(o[k] for o in others):.2f}" for k in ("gflops", "best_gflops"))


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument("--shapes", default=SHAPES, help="M x N x K, separated by commas")
    options = parser.parse_args()
    threads = report.threads_of(options)
    if options.quick:
        figures = measure(QUICK, options.target, threads[:1], 2)
    else:
        figures = measure(options.shapes, options.target, threads, options.rounds)
    if report.finish(figures, options.json):
        show(figures)


if __name__ == "__main__":
    main()
