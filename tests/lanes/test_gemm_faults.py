"""Faults planted in the text of the matrix product that ships: each is caught, and named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.codegen.llvm_simt import scratch_bytes, threads
from hwsdk.graph.dims import evaluate, free_symbols
from hwsdk.sim.simt.describe import chip_of
from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.sim.simt.stats import Stats
from hwsdk.targets.cuda.ptx import Module
from tests.lanes.test_gemm_text import shipped

Array = np.ndarray[Any, Any]
SIZES = {"m": 128, "n": 128, "k": 512}
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Outcome:
    """Greatest error of the values, and what the launch cost."""

    error: float
    stats: Stats


def launch(text: str, sizes: dict[str, int] | None = None, scratch: float = 1.0) -> Outcome:
    """The kernel on one block of the result; `scratch`: the part of its shared memory that it gets."""
    target, version, _ = shipped("cuda-sm80", "rows")
    loop, sizes = version.loop, sizes or SIZES
    rng = np.random.default_rng(0)
    a, b = (
        (rng.integers(-8, 9, shape) / 16).astype(BF16)
        for shape in ((sizes["m"], sizes["k"]), (sizes["k"], sizes["n"]))
    )
    engine = Engine(chip_of(target))
    out = engine.allocate(sizes["m"] * sizes["n"] * 2, "c")
    inputs = {"x": a, "w": b}
    args = [engine.copy_of(inputs[n], n, read_only=True) if n in inputs else out for n in version.args]
    dims = [sizes[name.rstrip("$")] for name in loop.dims]
    grid = int(evaluate(version.grid, {s: sizes[s.rstrip("$")] for s in free_symbols(version.grid)}))
    shared = int(int(str(scratch_bytes(loop, target))) * scratch)
    program = Module.parse(text).kernels[loop.name]
    stats = engine.launch(program, (grid,), (threads(loop),), [*args, *dims], shared)
    got = engine.read(out, BF16, (sizes["m"], sizes["n"])).astype(np.float64)
    return Outcome(float(np.abs(got - a.astype(np.float64) @ b.astype(np.float64)).max()), stats)


def text() -> str:
    return shipped("cuda-sm80", "rows")[2]


def edit(pattern: str, new: str, count: int = 1, after: str = "") -> str:
    """The text with a pattern replaced behind the first place of another."""
    found = text()
    start = re.search(after, found).end() if after else 0  # type: ignore[union-attr]
    changed, done = re.subn(pattern, new, found[start:], count=count, flags=re.MULTILINE)
    assert done, f"nothing in the text looks like {pattern}"
    return found[:start] + changed


LOOP = r"cp\.async\.wait_group"  # the first is that of the main loop
SWAPPED = r"(mma\.sync\S*\s+\{[^}]*\},\s+\{)(%r\d+), (%r\d+)"


def fall_through() -> str:
    """Without the branch around the stores that ask nothing."""
    found = text()
    store = found.index("st.global.b32")
    branch = [m for m in re.finditer(r"^\s*@!?%p\d+ bra[^\n]*\n", found, re.MULTILINE) if m.end() < store][-1]
    return found[: branch.start()] + found[branch.end() :]


def shifted_line() -> str:
    """The last place that is turned, the one of a fragment, a chunk further."""
    found = text()
    last = list(re.finditer(r"xor\.b64\s+(%rd\d+), [^\n]*\n", found))[-1]
    return f"{found[: last.end()]}\tadd.s64 {last[1]}, {last[1]}, 1;\n{found[last.end() :]}"


def plain_lines() -> str:
    """Every chunk at its own place in its line, where it is stored and where it is read."""
    return re.sub(r"xor\.b64(\s+%rd\d+, %rd\d+), %rd\d+;", r"mov.b64\1;", text())


@dataclass(frozen=True)
class Case:
    """kind: the fault's name; None: the values are wrong."""

    name: str
    make: Callable[[], str]
    kind: FaultKind | None
    sizes: dict[str, int] | None = None
    scratch: float = 1.0


CASES = (
    Case("no barrier", lambda: edit(r"^\s*bar\.sync[^\n]*\n", "", after=LOOP), FaultKind.RACE),
    Case("late wait", lambda: edit(r"wait_group\s+2", "wait_group 3", count=99), FaultKind.IN_FLIGHT),
    Case("little shared memory", text, FaultKind.OUT_OF_BOUNDS, scratch=0.75),
    Case("swizzle off by one", shifted_line, None),
    Case("swapped fragments", lambda: edit(SWAPPED, r"\1\3, \2"), None),
    Case("no guard", fall_through, FaultKind.OUT_OF_BOUNDS, {"m": 120, "n": 128, "k": 512}),
    Case("a copy less", lambda: edit(r"^\s*cp\.async\.cg[^\n]*\n", "", count=99), FaultKind.UNINITIALISED),
)


def test_the_text_itself_is_right_and_meets_no_bank_twice() -> None:
    for sizes in (SIZES, {"m": 120, "n": 136, "k": 168}):
        made = launch(text(), sizes)
        assert made.error <= 2.0**-7 * 16
        assert made.stats.bank_conflicts == 0 or sizes is not SIZES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_planted_fault_is_named(case: Case) -> None:
    if case.kind is None:
        assert launch(case.make(), case.sizes).error > 2.0**-7 * 16
        return
    with pytest.raises(KernelFault) as caught:
        launch(case.make(), case.sizes, case.scratch)
    assert caught.value.kind is case.kind, str(caught.value)


def test_lines_without_a_swizzle_are_a_cost() -> None:
    made = launch(plain_lines())
    assert made.error <= 2.0**-7 * 16
    assert made.stats.bank_conflicts > 1000
