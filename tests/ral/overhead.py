"""What running costs beside the kernels: `python -m tests.ral.overhead`.

Prints the Python and native share of a call with three inputs, the cost of a launch, hand-off in the thread
pool, and the time to load an artifact of 90 MB.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hwsdk.codegen import artifact
from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_emit import emit_host
from hwsdk.codegen.host_ir import Binding, Check, HostBuffer, HostProgram, Launch, Signature, Version
from hwsdk.graph.dims import sym
from hwsdk.ral_port import threads
from hwsdk.ral_port.executable import Executable
from tests.ral import tiny

NOTHING = "define void @nothing(ptr %args, i64 %tile, i64 %worker) nounwind {\n  ret void\n}\n"


def model(launches: int, constants: dict[str, np.ndarray] | None = None) -> Bundle:
    """Three integer inputs like a text encoder's, one output, launches of a kernel that does nothing."""
    b, s = sym("batch"), sym("seq")
    names = ("ids", "mask", "types")
    buffers = [HostBuffer(n, "i64", (b, s), "input", i) for i, n in enumerate(names)]
    buffers += [HostBuffer("y", "f32", (b, s, 384), "output"), HostBuffer("t", "f32", (b, s, 384), "arena")]
    buffers += [
        HostBuffer(n, "f32", a.shape, "constant", i) for i, (n, a) in enumerate((constants or {}).items())
    ]
    program = HostProgram(
        inputs=tuple(Signature(n, "i64", (b, s)) for n in names),
        outputs=(Signature("y", "f32", (b, s, 384)),),
        bindings=(Binding("batch", 0, 0), Binding("seq", 0, 1)),
        checks=tuple(Check(i, a, expected=(b, s)[a]) for i in (1, 2) for a in (0, 1)),
        buffers=tuple(buffers),
        launches=tuple(
            Launch(
                f"k{i}",
                (Version("nothing", b * s + i),),
                ("y", "t", "ids"),
                (b, s, b * s * (i + 1)),
                1,
                ("y", "t"),
            )
            for i in range(launches)
        ),
        arena_bytes=1536 * b * s,
    )
    code = (("kernels", tiny.compile_text(NOTHING)),)
    support = (("pool", tiny.pool_code()),)
    host = tiny.compile_text(emit_host(program))
    return Bundle(
        "overhead", "host", str(tiny.HOST_FOLDER), "ral:HostPort", program, code, constants or {},
        support=support, host_code=host,
    )  # fmt: skip


def microseconds(run: Callable[[], object], count: int = 100, rounds: int = 200) -> float:
    """The fastest of many short rounds, so that a busy machine disturbs little."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            run()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def call_overhead(launches: int) -> float:
    """Microseconds of one call at batch 1, length 1."""
    exe = Executable(model(launches))
    ids, mask, types = (np.ones((1, 1), np.int64) for _ in range(3))
    return microseconds(lambda: exe(ids=ids, mask=mask, types=types))


def load_seconds() -> float:
    """Seconds to load and open an artifact with 90 MB of constants."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.hwx"
        artifact.save(model(60, {"w": np.ones(90 << 18, np.float32)}), path)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            Executable(artifact.load(path), folder=tiny.HOST_FOLDER)
            times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    threads.set_num_threads(1)
    nothing, sixty = call_overhead(0), call_overhead(60)
    print(f"call, 3 inputs, no launches   {nothing:8.2f} us")
    print(
        f"call, 3 inputs, 60 launches   {sixty:8.2f} us   ({(sixty - nothing) / 60 * 1e3:.0f} ns per launch)"
    )
    print(f"load an artifact of 90 MB     {load_seconds() * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
