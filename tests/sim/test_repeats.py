"""Loops of uses as one operation: values, statistics and faults are those of the uses one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.errors import SimulationError
from hwsdk.sim import repeats
from hwsdk.sim.machine import Machine
from tests.sim.chips import scratch

SIZE = 96  # elements of each buffer
BUFFERS = {"p": "[96]", "q": "[4, 24]"}


def view(random: Random, loops: list[str]) -> str:
    """Where an operand begins: mostly inside, sometimes not, now and then not affine."""
    terms = [f"{random.choice((0, 1, 3, 4, 8, 8, 16))}*{v}" for v in loops] + [
        str(random.choice((0, 0, 5, 8)))
    ]
    flat = " + ".join(terms)
    if random.random() < 0.5:
        return f"&p[{flat}]"
    u = loops[-1]
    return random.choice((f"&q[{u}, {random.randrange(8)}]", f"&q[{u}//2, 8*({u}%2)]", f"&q[1, {flat}]"))


def use(random: Random, loops: list[str]) -> str:
    u = loops[-1]
    extent = random.choice(("8", "4", "1", "n", f"min(8, 20 - 8*{u})", f"min(8, n + 6 - 2*{u})"))
    match random.choice(("add", "add", "add", "fill", "mma", "load", "pull")):
        case "add":
            d = view(random, loops)
            x = random.choice((d, view(random, loops)))
            return f"use add(d = {d}, x = {x}, y = {view(random, loops)}) dims(n = {extent})"
        case "fill":
            return f"use fill(d = &a[{random.choice((8, 16, 4))}*{u}], s = value(0.5:f32))"
        case "mma":
            return f"use mma(c = &a[16*{u}], a = &p[0], b = {view(random, loops)}, lda = 4)"
        case "load":
            return f"use load(dst = {view(random, loops)}, src = &x[{u}], dst_ld = 4, src_ld = 4) dims(r = 2, c = 4)"
    return f"use pull(dst = {view(random, loops)}, src = &x[4*{u}]) dims(n = {extent})"


def loop(random: Random) -> str:
    outer = random.random() < 0.3
    inner = f"for u < {random.choice((2, 3, 4, 5))} {{\n{use(random, ['v', 'u'] if outer else ['u'])}\n}}"
    return f"for v < {random.choice((2, 3))} {{\n{inner}\n}}" if outer else inner


def kernel_text(random: Random) -> str:
    lines = ["kernel k {", "param x: f32[96] in main", "param y: f32[192] in main out", "dim n"]
    lines += [f"alloc {b}: f32{shape} in pad" for b, shape in BUFFERS.items()]
    lines += ["alloc a: f32[96] in acc"]
    if random.random() < 0.95:  # otherwise what is read first was not written
        for b, zeros in (("p", "0"), ("q", "0, 0")):
            lines.append(
                f"use load(dst = &{b}[{zeros}], src = &x[0], dst_ld = 24, src_ld = 24) dims(r = 4, c = 24)"
            )
        lines.append("for u < 6 {\nuse fill(d = &a[16*u], s = value(0.5:f32))\n}")
    lines += ["sync dma_wait"] * (random.random() < 0.95)
    for _ in range(random.randrange(1, 6)):
        lines.append(loop(random))
        lines += ["sync dma_wait"] * (random.random() < 0.4)
    lines.append("sync dma_wait")
    for b, zeros, at in (("p", "0", 0), ("q", "0, 0", SIZE)):
        lines.append(
            f"use store(dst = &y[{at}], src = &{b}[{zeros}], dst_ld = 24, src_ld = 24) dims(r = 4, c = 24)"
        )
    return "\n".join([*lines, "sync dma_wait", "}"])


def outcome(text: str, n: int, repeat: bool, **options: bool) -> tuple[object, bytes]:
    """Statistics or the fault, and the output."""
    arrays = {"x": np.linspace(-3, 7, SIZE).astype(np.float32), "y": np.zeros(2 * SIZE, np.float32)}
    machine = Machine(parse_kernel(text), scratch(), repeat=repeat, **options)
    try:
        return machine.run(arrays, {"n": n}), arrays["y"].tobytes()
    except SimulationError as fault:
        return str(fault), arrays["y"].tobytes()


def compare(seed: Random) -> str:
    """Both ways agree; the fault, if there was one."""
    text, n = kernel_text(seed), seed.choice((0, 1, 3, 8))
    one_by_one = outcome(text, n, False)
    assert outcome(text, n, True) == one_by_one, text
    if not isinstance(one_by_one[0], str):
        assert outcome(text, n, True, check=False, cost=False)[1] == one_by_one[1], text
    return one_by_one[0] if isinstance(one_by_one[0], str) else ""


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_values_statistics_and_faults_are_those_of_single_uses(random: Random) -> None:
    compare(random)


def test_random_kernels_repeat_fault_and_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison above sees: many loops done at once, every kind of fault, and plain success."""
    done = []
    execute = repeats.execute
    monkeypatch.setattr(repeats, "execute", lambda *args: done.append(execute(*args)) or done[-1])
    faults = [compare(Random(seed)) for seed in range(150)]
    assert len(done) > 60
    assert all(done)
    assert sum(not f for f in faults) > 30
    for kind in ("out of bounds", "uninitialised", "race", "not aligned", "is not in"):
        assert any(kind in f for f in faults), kind
