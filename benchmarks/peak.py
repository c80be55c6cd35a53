"""The most that this processor can do: a loop of nothing but independent fused multiply-adds.

Design choice: the loop is LLVM text of its own, compiled here; it knows nothing of the compiler that it judges.
Accumulators never meet memory, and there are more of them than latency times units of any processor of the kind.
Each thread's rate is that of its own processor time, so that neighbours do not lower the peak.
"""

from __future__ import annotations

import ctypes
import threading
import time
from functools import cache
from typing import Any

STEPS = 300_000


def lanes() -> int:
    """f32 lanes of the widest vector that this processor has."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx") else 4


def loop_text(width: int, chains: int) -> str:
    """`@peak(i64 steps, ptr out)`: `chains` dependent sequences of multiply-adds of vectors, `steps` times."""
    vector = f"<{width} x float>"
    names = range(chains)
    phis = [f"  %a{i} = phi {vector} [ %x, %entry ], [ %b{i}, %loop ]" for i in names]
    adds = [
        f"  %b{i} = call {vector} @llvm.fma.v{width}f32({vector} %a{i}, {vector} %m, {vector} %x)"
        for i in names
    ]
    total = [f"  %s{i} = fadd {vector} {f'%s{i - 1}' if i else '%x'}, %b{i}" for i in names]
    return "\n".join([
        f"declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})",
        "define void @peak(i64 %steps, ptr %out) #0 {",
        "entry:",
        f"  %m = load {vector}, ptr %out, align 4",
        f"  %from = getelementptr {vector}, ptr %out, i64 1",
        f"  %x = load {vector}, ptr %from, align 4",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis, *adds,
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %steps",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *total,
        f"  store {vector} %s{chains - 1}, ptr %out, align 4",
        "  ret void",
        "}",
        'attributes #0 = { "prefer-vector-width"="512" }',
    ])  # fmt: skip


@cache
def _compiled(width: int, chains: int) -> tuple[Any, Any]:
    """The function, and the engine that owns its code."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(loop_text(width, chains)), machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
    return kind(engine.get_function_address("peak")), engine


def chains_of(width: int) -> int:
    """Accumulators that fit the registers with the two operands."""
    return 24 if width == 16 else 12


def gflops(threads: int = 1, steps: int = STEPS) -> float:
    """f32 GFLOP/s of `threads` threads that run the loop at the same time."""
    width = lanes()
    chains = chains_of(width)
    function, _ = _compiled(width, chains)
    gate = threading.Barrier(threads)
    seconds: list[float] = []

    def work() -> None:
        data = (ctypes.c_float * (2 * width))(*([0.5] * width), *([1.0] * width))
        gate.wait()
        start = time.thread_time()
        function(steps, ctypes.addressof(data))
        seconds.append(time.thread_time() - start)

    others = [threading.Thread(target=work) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    return sum(2e-9 * width * chains * steps / s for s in seconds)
