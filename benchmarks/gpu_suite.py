"""The conformance suite on a GPU that is lent for minutes: cases in an order that covers everything early.

Design choice: cases are taken in strides, so that a run which is cut has seen some of every operation and dtype.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu_bench import Bench, Disagrees, Job, Row

STRIDE = 7
TEXT = 4000  # characters of a reason that are kept


def level(bench: Bench, name: str) -> Iterator[Job]:
    """One row for each case of a level."""
    from hwsdk.conformance import suite
    from hwsdk.conformance.devices import open_device

    device = open_device(bench.target, number=bench.device)
    cases = suite.collect(bench.target, [name])
    if bench.quick:
        cases = cases[:3]
    for start in range(STRIDE):
        for case in cases[start::STRIDE]:
            yield case.id, lambda case=case: _case(case, device)  # type: ignore[misc]


def _case(case: Any, device: Any) -> Row:
    import datetime

    from hwsdk.conformance import runner
    from hwsdk.conformance.model import Session

    found = runner.run_one(case, Session(device, 0, 10), None, datetime.date.today())
    if not found.conformant:
        raise Disagrees(f"{found.status}: {found.reason[:TEXT]}")
    kept = {"reason": found.reason[:TEXT]} if found.reason else {}
    return {
        "case": found.id,
        "status": found.status,
        "seconds": round(found.seconds, 3),
        **found.measured,
        **kept,
    }


def probe(bench: Bench) -> Iterator[Job]:
    """The port step by step, then one small program: what to run first on a machine that nobody has tried."""
    yield "properties", lambda: _properties(bench)
    yield from level(bench, "L1")
    yield "one kernel", lambda: _one_kernel(bench)


def _properties(bench: Bench) -> Row:
    from pathlib import Path

    from hwsdk.ral_port.loader import open_port

    with open_port(bench.target.runtime.port, Path(bench.target.file).resolve().parent, bench.device) as port:
        facts = port.properties()
        return {"step": "properties", "name": facts.name, "memory_bytes": facts.memory_bytes, "records": facts.records,
                "features": sorted(facts.features), **facts.extra}  # fmt: skip


def _one_kernel(bench: Bench) -> Row:
    """Made, loaded, started: the time of each, and the code itself where that fails."""
    import numpy as np

    start = time.perf_counter()
    exe = bench.program("tiny")
    if exe is None:
        raise Disagrees(bench.notes[-1])
    opened = time.perf_counter() - start
    a, b = (np.arange(7, dtype=np.float32) + i for i in (1, 5))
    try:
        got = exe(a=a, b=b)["y"]
    except Exception as trouble:
        code = "\n".join(text.decode(errors="replace")[:TEXT] for _, text in exe.bundle.code)
        raise Disagrees(
            f"{type(trouble).__name__}: {trouble}; launches {exe.bundle.program.launches}; {code}"
        ) from trouble
    if not np.array_equal(got, a + b):
        raise Disagrees(f"got {got}, expected {a + b}")
    return {"step": "one kernel", "opened_s": opened, "native": exe.native,
            "device_us": 1e6 * exe.device_seconds(a=a, b=b)}  # fmt: skip
