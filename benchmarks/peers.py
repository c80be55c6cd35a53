"""The peers: ONNX Runtime in this process, OpenBLAS (through NumPy) in a process of its own.

Design choice: OpenBLAS reads its settings when it is loaded, so a child gets a clean environment (variables that
choose another processor's kernels are removed) and the number of threads under test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parent.parent
FOREIGN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def session(model: str | bytes, threads: int, optimised: Path | None = None) -> Any:
    """An ONNX Runtime session with all graph optimisations; `optimised`: where to leave the graph that it runs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def child_environment(**changes: str) -> dict[str, str]:
    """The environment of a child process that finds this checkout.

    Python's bytecode is kept in a folder of this run, as it is kept by an installed package: nobody pays for
    compiling Python twice.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {k: v for k, v in os.environ.items() if k not in (*FOREIGN, "PYTHONDONTWRITEBYTECODE")}
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONPYCACHEPREFIX": _bytecode().name}
    return {**kept, **own, **changes}


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hwsdk-bytecode-")


class OpenBlas:
    """f32 products of random matrices by `numpy.matmul` in a child process."""

    def __init__(self, threads: int) -> None:
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=child_environment(**dict.fromkeys(names, str(threads))),
        )  # fmt: skip

    def run(self, extents: tuple[int, int, int], calls: int) -> list[float]:
        """Seconds of each call."""
        stream = cast(IO[str], self.process.stdin)
        stream.write(json.dumps([*extents, calls]) + "\n")
        stream.flush()
        return list(json.loads(cast(IO[str], self.process.stdout).readline()))

    def close(self) -> None:
        self.process.communicate()


def call_time(call: Callable[[], object], threads: int) -> float:
    """Seconds of a call; with one thread without the time in which another process held the core."""
    busy, start = time.thread_time(), time.perf_counter()
    call()
    wall, busy = time.perf_counter() - start, time.thread_time() - busy
    return min(wall, busy) if threads == 1 else wall


def _serve(threads: int) -> None:
    """The child: one request per line."""
    operands: Mapping[tuple[int, ...], tuple[Array, Array, Array]] = {}
    rng = np.random.default_rng(0)
    for line in sys.stdin:
        m, n, k, calls = json.loads(line)
        if (m, n, k) not in operands:
            a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
            operands = {(m, n, k): (a, b, np.empty((m, n), np.float32))}
        a, b, c = operands[m, n, k]
        np.matmul(a, b, out=c)
        product = partial(np.matmul, a, b, out=c)
        print(json.dumps([call_time(product, threads) for _ in range(calls)]), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
