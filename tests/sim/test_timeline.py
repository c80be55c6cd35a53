"""The predicted time: each rule of the timeline and of plain costs, with numbers worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.sim.accounting import makespan
from hwsdk.sim.machine import run
from hwsdk.sim.stats import Stats
from tests.sim.chips import scratch

HEAD = "kernel k {\nparam x: f32[n] in main\nparam y: f32[n] in main out\ndim n\n"
FILL = "alloc p: f32[64] in pad\nalloc c: f32[64] in acc\nuse pull(dst = &p[0], src = &x[0]) dims(n = 64)\n"


def cycles(body: str, cores: int = 1, n: int = 64, changes: tuple[tuple[str, str], ...] = ()) -> Stats:
    kernel = parse_kernel(HEAD + body + "\n}")
    arrays = {"x": np.arange(n, dtype="f4"), "y": np.zeros(n, "f4")}
    return run(kernel, scratch(cores, changes), arrays, {"n": n})


# A blocking copy of 256 bytes: descriptor 1, setup 10, 256 bytes at min(8, 16, 64) = 32 cycles, then 60 - 10 more.
PULL = 1 + 10 + 32 + 50


def test_blocking_copy_holds_the_stream() -> None:
    stats = cycles(FILL)
    assert stats.cycles == PULL
    assert stats.units["block"].busy_cycles == 42
    assert stats.seconds == pytest.approx(PULL * 1e-9 + 1e-6)


def test_one_use_costs_its_latency() -> None:
    add = "use add(d = &p[0], x = &p[16], y = &p[32]) dims(n = 16)"
    assert cycles(FILL + add).cycles == PULL + 6


def test_independent_uses_are_pipelined() -> None:
    uses = "".join(f"use add(d = &p[{d}], x = &p[48], y = &p[48]) dims(n = 4)\n" for d in (0, 4, 8, 12))
    assert cycles(FILL + uses).cycles == PULL + 3 + 6


def test_dependent_uses_wait_for_each_other() -> None:
    uses = "".join(f"use add(d = &p[{d + 4}], x = &p[{d}], y = &p[48]) dims(n = 4)\n" for d in (0, 4, 8, 12))
    assert cycles(FILL + uses).cycles == PULL + 4 * 6


def test_accumulation_chains() -> None:
    fill = "use fill(d = &c[0], s = value(0.0:f32))\n"
    mma = "use mma(c = &c[0], a = &p[0], b = &p[16], lda = 4)\n"
    one = cycles(FILL + fill + mma).cycles
    assert one == PULL + 4 + 20  # after the fill
    assert cycles(FILL + fill + mma * 3).cycles == one + 2 * 8  # chain_cycles
    two = cycles(
        FILL + fill + fill.replace("c[0]", "c[16]") + (mma + mma.replace("c[0]", "c[16]")) * 3
    ).cycles
    assert two == one + 5 * 4  # two chains keep the unit busy: 4 cycles between starts


def test_overwriting_waits_for_the_reader() -> None:
    fill = "use fill(d = &c[0], s = value(0.0:f32))\n"
    slow = (
        "cost: {issue_per_cycle: 1/4, latency_cycles: 20, chain_cycles: 8}",
        "cost: {issue_per_cycle: 1/40, latency_cycles: 50}",
    )
    mma = "use mma(c = &c[0], a = &p[0], b = &p[16], lda = 4)\n"
    over = "use add(d = &p[0], x = &p[32], y = &p[48]) dims(n = 16)\n"
    stats = cycles(FILL + fill + mma + over, changes=(slow,))
    assert stats.cycles == PULL + 4 + max(50, 40 + 6)
    assert stats.units["vector"].busy_cycles == 2


def test_asynchronous_copies_run_beside() -> None:
    load = "use load(dst = &p[{0}], src = &x[{0}], dst_ld = 16, src_ld = 16) dims(r = 1, c = 16)\n"
    head = "alloc p: f32[64] in pad\n"
    # descriptor 4, setup 10, 64 bytes at 8 = 8, 50 more; wait 3
    one = cycles(head + load.format(0) + "sync dma_wait").cycles
    assert one == 4 + 10 + 8 + 50 + 3
    two = cycles(head + load.format(0) + load.format(16) + "sync dma_wait").cycles
    assert two == one + 18  # the engine is busy for setup + bytes
    # in_flight 2: the third descriptor waits until the first copy is there (72), then setup, bytes, 50 more
    three = cycles(head + "".join(load.format(i) for i in (0, 16, 32)) + "sync dma_wait").cycles
    assert three == 72 + 10 + 8 + 50 + 3


def test_two_engines_share_the_memory() -> None:
    load = "use load(dst = &p[{0}], src = &x[{0}], dst_ld = 32, src_ld = 32) dims(r = 1, c = 32)\n"
    body = "alloc p: f32[64] in pad\n" + load.format(0) + load.format(32) + "sync dma_wait"
    engines = (("per: core, count: 1, in_flight: 2", "per: core, count: 2, in_flight: 2"),)
    slow = (*engines, ("read_gb_per_s: 16, write_gb_per_s: 16", "read_gb_per_s: 4, write_gb_per_s: 4"))
    assert cycles(body).cycles == 4 + 2 * (10 + 16) + 50 + 3
    # the memory gives 16 a cycle, each engine takes 8: the second follows when half of the first has left
    assert cycles(body, changes=engines).cycles == 4 + 10 + 8 + 16 + 50 + 3
    assert (
        cycles(body, changes=slow).cycles == 4 + 10 + 2 * 32 + 50 + 3
    )  # 256 bytes at 4 a cycle, whoever carries them


def test_partial_granules_move_whole() -> None:
    load = "use load(dst = &p[0], src = &x[0], dst_ld = 2, src_ld = 8) dims(r = 8, c = 1)\n"
    stats = cycles("alloc p: f32[64] in pad\n" + load + "sync dma_wait")
    assert stats.places["main"].read_bytes == 32
    assert stats.places["main"].moved_bytes == 8 * 16
    assert stats.places["pad"].moved_bytes == 32


def test_plain_work_moves_the_clock() -> None:
    assert (
        cycles("for i < n {\ny[i] = 1.0:f32\n}").cycles == 64 * 100
    )  # a store costs the latency of its place
    body = "alloc p: f32[64] in pad\nfor i < n {\np[i] = 1.0:f32\n}\nfor i < n {\np[i] = p[i] * p[i] + 1.0:f32\n}"
    stats = cycles(body)
    assert stats.cycles == 64 * 2 + 64 * (2 * 2 + 2 + 2)
    assert stats.units["control"].ops == 128
    assert stats.places["pad"].written_bytes == 512
    assert stats.places["pad"].read_bytes == 512


def test_plain_access_waits_for_intrinsics() -> None:
    add = "use add(d = &p[0], x = &p[16], y = &p[32]) dims(n = 16)\n"
    assert cycles(FILL + add + "y[0] = p[0]").cycles == PULL + 6 + 2 + 100
    assert cycles(FILL + add + "y[0] = 1.0:f32").cycles == PULL + 100


def test_iterations_share_workers() -> None:
    body = "parallel(core) t < 6 {\ny[t] = 1.0:f32\n}"
    assert cycles(body).cycles == 600
    stats = cycles(body, cores=4)
    assert stats.cycles == 200
    assert stats.workers == 4
    assert stats.utilisation("control") == pytest.approx(600 / (200 * 4))
    assert makespan([5, 1, 1, 1, 1, 1], 2) == 5
    assert makespan([], 3) == 0


def test_shared_memory_bounds_the_launch() -> None:
    load = "use load(dst = &p[0], src = &x[0], dst_ld = 64, src_ld = 64) dims(r = 1, c = 64)\n"
    body = "parallel(core) t < 8 {\nalloc p: f32[64] in pad\n" + load * 1 + "sync dma_wait\ny[t] = 1.0:f32\n}"
    slow = (("read_gb_per_s: 16, write_gb_per_s: 16", "read_gb_per_s: 2, write_gb_per_s: 2"),)
    stats = cycles(body, cores=8, changes=slow)
    assert stats.cycles >= 8 * 256 / 2
    assert stats.bound_by == "main"


def test_fork_is_paid_once() -> None:
    fork = (("clock_ghz: 1.0}", "clock_ghz: 1.0, fork_cycles: 500}"),)
    body = "parallel(core) t < 6 {\ny[t] = 1.0:f32\n}"
    assert cycles(body, changes=fork).cycles == 1100


SIMD = (
    ("memory:\n", "memory:\n  - {name: regs, kind: registers, per: core, count: 16, width_bytes: 32}\n"),
    (
        "  - {name: control, kind: scalar, per: core, count: 1}\n",
        "  - {name: ls, kind: load_store, per: core, count: 1}\n",
    ),
)


def test_vectors_take_registers_at_a_time() -> None:
    head = "alloc p: f32[64] in pad\nvector l < 64 {\np[l] = 1.0:f32\n}\n"  # eight registers are stored
    assert cycles(head, changes=SIMD).cycles == 8
    # one unit loads and stores, so these add up; multiplies hide behind them
    assert cycles(head + "vector l < 16 {\np[l] = p[l] * 2.0:f32\n}", changes=SIMD).cycles == 8 + 4
    stats = cycles(head + "for j < 4 {\nvector l < 16 {\np[j*16 + l] = exp(p[j*16 + l])\n}\n}", changes=SIMD)
    assert stats.cycles == 8 + 4 * 2 * 12
    assert stats.units["vector"].ops == 64


def test_memory_bounds_plain_work() -> None:
    assert cycles("vector l < 64 {\ny[l] = x[l]\n}", changes=SIMD).cycles == 2 * 64 * 4 / 16


def test_what_lies_behind_a_cache_crosses_once() -> None:
    near = "  - {name: near, kind: cache, per: core, size_bytes: 4096, read_bytes_per_cycle: 64, latency_cycles: 4}\n"
    cached = (*SIMD, ("units:\n", near + "units:\n"))
    body = "for j < 10 {\nvector l < 64 {\nlet s: f32 = x[l]\n}\n}"
    assert cycles(body, changes=SIMD).places["main"].moved_bytes == 2560
    stats = cycles(body, changes=cached)
    assert stats.places["main"].read_bytes == 2560
    assert stats.places["main"].moved_bytes == 256


def test_registers_are_counted_in_rows() -> None:
    stats = cycles("alloc r: f32[3, 9] in regs\ny[0] = 1.0:f32", changes=SIMD)
    assert stats.places["regs"].peak_bytes == 3 * 2 * 32
    assert stats.places["regs"].capacity_bytes == 512


def test_statistics_add_up_and_are_json() -> None:
    stats = cycles(FILL)
    both = Stats.merged([stats, stats])
    assert both.launches == 2
    assert both.cycles == 2 * stats.cycles
    assert both.places["pad"].peak_bytes == stats.places["pad"].peak_bytes
    assert both.places["main"].read_bytes == 2 * stats.places["main"].read_bytes
    data = json.loads(both.to_json())
    assert data["units"]["block"]["utilisation"] == pytest.approx(both.utilisation("block"))
    table = str(both)
    assert "pad" in table
    assert "512" in table
    assert "cycles" in table
