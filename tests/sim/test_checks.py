"""Planted faults: each check of the machine catches its own, and names kernel, statement, buffer and index."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.errors import SimulationError
from hwsdk.sim.machine import Machine, run
from tests.sim.chips import GROUPS, scratch


def kernel(body: str, params: str = "x: f32[n] in main; y: f32[n] in main out"):
    head = "".join(f"param {p.strip()}\n" for p in params.split(";"))
    return parse_kernel(f"kernel k {{\n{head}dim n\n{body}\n}}")


def launch(
    body: str, params: str = "x: f32[n] in main; y: f32[n] in main out", n: int = 8, target=None, **options
):
    k = kernel(body, params)
    arrays = {p.name: np.arange(256, dtype="f4")[: n if p.dtype == "f32" else 0] for p in k.params}
    arrays = {p.name: np.ones(n, bool) if p.dtype == "bool" else arrays[p.name].copy() for p in k.params}
    arrays = {p.name: np.arange(n, dtype="i4") if p.dtype == "i32" else arrays[p.name] for p in k.params}
    return run(k, target, arrays, {"n": n}, **options), arrays


FAULTS = {
    "load out of bounds": (
        "for i < n {\ny[i] = x[i + 1]\n}",
        r"kernel k: statement 2 \(y\[i\] = x\[i \+ 1\]\): out of bounds: index 8 of axis 0 of x is outside 0..7",
    ),
    "load below": ("for i < n {\ny[i] = x[i - 1]\n}", "index -1 of axis 0 of x"),
    "store out of bounds": (
        "vector l < 16 {\ny[l] = 0.0:f32\n}",
        "statement 2 .*index 15 of axis 0 of y is outside 0..7",
    ),
    "strided load": ("vector l < 8 {\ny[l] = x[2*l]\n}", "index 14 of axis 0 of x"),
    "strided by a dim": ("vector l < 8 {\ny[l] = x[n*l]\n}", "index 56 of axis 0 of x"),
    "backwards": ("vector l < 8 {\ny[l] = x[6 - l]\n}", "index -1 of axis 0 of x"),
    "gather out of bounds": (
        "vector l < 8 {\nlet q: i32 = i32(x[l])\ny[l] = x[q*q]\n}",
        "index 9 of axis 0 of x is outside 0..7",
    ),
    "a loop variable is named": (
        "parallel t < n {\nfor i < 3 {\ny[2*t] = x[t + i]\n}\n}",
        r"axis 0 of y.*at t = 4, i = 0",
    ),
    "uninitialised alloc": (
        "alloc t: f32[4, 4] in main\nt[1, 2] = 1.0:f32\ny[0] = t[1, 1]",
        r"statement 3 .*uninitialised read of t\[1, 1\]",
    ),
    "uninitialised lanes": (
        "alloc t: f32[8] in main\nvector l < 7 {\nt[l] = 1.0:f32\n}\nvector l < 8 {\ny[l] = t[l]\n}",
        r"t\[7\]",
    ),
    "uninitialised stride": (
        "alloc t: f32[16] in main\nvector l < 4 {\nt[2*l] = 1.0:f32\n}\nvector l < 4 {\ny[l] = t[3*l]\n}",
        r"t\[3\]",
    ),
    "an output holds nothing": ("for i < n {\ny[i] = y[i] + 1.0:f32\n}", r"uninitialised read of y\[0\]"),
    "masked off is not written": (
        "vector l < 8 {\ny[l] = 1.0:f32 where x[l] < 4.0:f32\n}\nfor i < n {\ny[i] = y[i] + 1.0:f32\n}",
        r"y\[4\]",
    ),
    "lanes meet": ("vector l < 8 {\ny[0] = x[l]\n}", "lanes store different values to one element of y"),
    "lanes meet in a scatter": (
        "vector l < 8 {\nlet q: i32 = i32(x[l] * 0.5:f32)\ny[q] = 1.0:f32\n}",
        "lanes store to the same element of y",
    ),
    "iterations write one element": (
        "parallel t < 4 {\ny[t//2] = 1.0:f32\n}",
        r"race: this iteration writes y\[0\], which iteration 0 writes at t = 1",
    ),
    "an iteration reads another's": (
        "parallel t < 4 {\ny[t] = 1.0:f32\nif 0.5:f32 < x[t] {\ny[t + 4] = y[t - 1]\n}\n}",
        r"reads y\[0\], which iteration 0 writes",
    ),
    "written after read": (
        "parallel t < 4 {\nlet s: f32 = y[3]\nif 2.5:f32 < x[t] {\ny[t] = s\n}\n}",
        r"writes y\[3\], which another iteration reads",
    ),
    "vectors overlap": ("parallel t < 2 {\nvector l < 5 {\ny[t*3 + l] = 1.0:f32\n}\n}", r"race: .* y\[3\]"),
    "switch": ("switch n {\ncase {\ny[0] = 1.0:f32\n}\n}", "switch index 8 is outside 0..0"),
    "division by zero": ("for i < n {\ny[n//i] = 1.0:f32\n}", "division by zero in an index at .*i = 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    body, message = FAULTS[name]
    options = (
        {"initialised": {"y": True}} if name in ("written after read", "an iteration reads another's") else {}
    )
    with pytest.raises(SimulationError, match=message):
        launch(body, **options)


def test_order_dependence_is_seen_with_any_seed() -> None:
    body = "parallel t < 4 {\ny[t] = x[t]\n}"
    for seed in (None, 0, 1, 2):
        _, arrays = launch(body, seed=seed)
        assert (arrays["y"][:4] == arrays["x"][:4]).all()


def test_what_stands_before_the_parallel_loop_is_private() -> None:
    body = (
        "alloc t: f32[1] in main\nparallel p < n {\n"
        "if 0.5:f32 < x[p] {\ny[p] = t[0]\n} else {\nt[0] = x[p]\ny[p] = t[0]\n}\n}"
    )
    with pytest.raises(SimulationError, match=r"uninitialised read of t\[0\]"):
        launch(body)


def test_more_iterations_than_tags() -> None:
    k = kernel("parallel t < n {\ny[t] = x[t]\n}")
    arrays = {"x": np.ones(1000, "f4"), "y": np.zeros(1000, "f4")}
    run(k, None, arrays, {"n": 1000})
    k = kernel("parallel t < n {\ny[t%700] = x[t]\n}")
    with pytest.raises(SimulationError, match=r"writes y\[0\], which another iteration writes at t = 700"):
        run(k, None, arrays, {"n": 1000})


def test_unwritten_outputs_are_counted() -> None:
    stats, _ = launch("for i < 5 {\ny[i] = x[i]\n}")
    assert stats.unwritten == {"y": 3}


def test_outputs_may_be_initialised() -> None:
    body = "for i < 4 {\ny[i] = y[i] + 1.0:f32\n}"
    _, arrays = launch(body, initialised={"y": np.arange(8) < 4})
    assert arrays["y"][3] == 4
    with pytest.raises(SimulationError, match=r"y\[4\]"):
        launch(body.replace("< 4", "< 5"), initialised={"y": np.arange(8) < 4})


# ---------------------------------------------------------------------------------------------------------- bindings
def test_arrays_that_do_not_fit() -> None:
    k = kernel("y[0] = x[0]")
    good = {"x": np.zeros(4, "f4"), "y": np.zeros(4, "f4")}
    with pytest.raises(SimulationError, match="no array is bound to param y"):
        run(k, None, {"x": good["x"]}, {"n": 4})
    with pytest.raises(SimulationError, match="dim n has no value"):
        run(k, None, good, {})
    with pytest.raises(SimulationError, match="param x is f32, the array bound to it float64"):
        run(k, None, {**good, "x": np.zeros(4)}, {"n": 4})
    with pytest.raises(SimulationError, match=r"param x has shape \[4\]"):
        run(k, None, {**good, "x": np.zeros(5, "f4")}, {"n": 4})
    with pytest.raises(SimulationError, match="is not dense"):
        run(k, None, {**good, "x": np.zeros(8, "f4")[::2]}, {"n": 4})
    y = np.zeros(4, "f4")
    y.flags.writeable = False
    with pytest.raises(SimulationError, match=r"statement 1 .*read-only"):
        run(k, None, {**good, "y": y}, {"n": 4})


def test_strided_params() -> None:
    k = parse_kernel(
        "kernel k {\nparam x: f32[3, 4] in main strides [8, 1]\nparam y: f32[3, 4] in main strides [1, 3] out\n"
        "for i < 3 {\nvector l < 4 {\ny[i, l] = x[i, l]\n}\n}\n}"
    )
    storage = np.arange(32, dtype="f4").reshape(4, 8)
    y = np.zeros(12, "f4")
    run(k, None, {"x": storage[:3, :4], "y": y}, {})
    assert (storage[:3, :4] == y.reshape(4, 3).T).all()


# ------------------------------------------------------------------------------------------ capacity and copies
PADS = "x: f32[n] in main; y: f32[n] in main out"


def test_too_large_tile_is_refused() -> None:
    body = "alloc a: f32[8, 16] in pad\nalloc b: f32[2, 8, 8] in pad\nfor i < n {\ny[i] = x[i]\n}"
    stats, _ = launch(body, target=scratch())
    assert stats.places["pad"].peak_bytes == 1024
    with pytest.raises(
        SimulationError,
        match=r"statement 2 .*over capacity: b takes 528 bytes of pad, 512 are live, an instance has 1024",
    ):
        launch(
            body.replace("[2, 8, 8]", "[2, 8, 8] in pad strides [65, 8, 1]").replace(
                "in pad strides [65, 8, 1] in pad", "in pad strides [65, 8, 1]"
            ),
            target=scratch(),
        )


def test_allocs_of_bodies_are_freed() -> None:
    body = "for i < 3 {\nalloc a: f32[200] in pad\na[0] = 1.0:f32\n}\ny[0] = x[0]"
    stats, _ = launch(body, target=scratch())
    assert stats.places["pad"].peak_bytes == 800


def test_alignment_counts() -> None:
    stats, _ = launch(
        "alloc a: f32[1] in pad\nalloc b: f32[1] in pad align 64\ny[0] = x[0]", target=scratch()
    )
    assert stats.places["pad"].peak_bytes == 16 + 64


def test_shared_place_holds_all_workers() -> None:
    body = "parallel(core) t < n {\nalloc a: f32[100] in common\ny[t] = x[t]\n}"
    launch(body, target=scratch(2), n=8)
    with pytest.raises(
        SimulationError, match=r"400 bytes of common, 0 are live, an instance has 1024, shared by 4 workers"
    ):
        launch(body, target=scratch(4), n=8)


LOAD = "use load(dst = &a[0, 0], src = &x[0], dst_ld = 4, src_ld = 4) dims(r = 2, c = 4)\n"
STORE = "use store(dst = &y[0], src = &a[0, 0], dst_ld = 4, src_ld = 4) dims(r = 2, c = 4)\n"
ALLOC = "alloc a: f32[4, 4] in pad\n"
WAIT = "sync dma_wait\n"
COPIES = {
    "read before the wait": (
        ALLOC + LOAD + "y[0] = a[1, 1]\n" + WAIT,
        r"race: a\[1, 1\] is read before the wait",
    ),
    "written before the wait": (
        ALLOC + LOAD + "a[0, 0] = 1.0:f32\n" + WAIT,
        r"race: a\[0, 0\] is written before the wait for the copy that writes it",
    ),
    "two copies to one place": (ALLOC + LOAD + LOAD + WAIT, r"race: a\[0, 0\] is written before the wait"),
    "copy out before the wait": (ALLOC + LOAD + STORE + WAIT, r"race: a\[0, 0\] is read before the wait"),
    "source overwritten": (
        ALLOC + LOAD + WAIT + STORE + "a[1, 3] = 1.0:f32\n" + WAIT,
        r"race: a\[1, 3\] is written before the wait for the copy that reads it",
    ),
    "used before the wait": (
        ALLOC + LOAD + "use add(d = &a[2, 0], x = &a[0, 0], y = &a[0, 0]) dims(n = 4)\n" + WAIT,
        r"race: a\[0, 0\] is read",
    ),
    "never waited for": (
        ALLOC + LOAD + "y[0] = x[0]",
        "a ends while a copy that was not waited for still works on it",
    ),
    "store never waited for": (
        "alloc b: f32[4] in pad\nfor q < 2 {\n"
        + ALLOC
        + LOAD
        + WAIT
        + STORE
        + WAIT
        + "}\n"
        + STORE.replace("a[0, 0]", "b[0]").replace("r = 2", "r = 0")
        + "y[0] = b[0]",
        "uninitialised read of b",
    ),
    "waited for one of two": (
        ALLOC
        + LOAD
        + LOAD.replace("a[0, 0]", "a[2, 0]")
        + "sync dma_wait pending 1\ny[0] = a[0, 0]\ny[1] = a[2, 0]\n"
        + WAIT,
        r"race: a\[2, 0\] is read",
    ),
    "copy of nothing": (ALLOC + "a[0, 0] = 0.0:f32\n" + STORE + WAIT, r"uninitialised read of a\[0, 1\]"),
    "operand out of bounds": (
        ALLOC + LOAD.replace("a[0, 0]", "a[3, 0]") + WAIT,
        r"operand dst touches elements 12..19 of a, which has 16",
    ),
    "operand begins outside": (
        ALLOC + LOAD.replace("a[0, 0]", "a[4, 0]") + WAIT,
        "begins at index 4 of axis 0 of a",
    ),
    "extent too large": (
        ALLOC + "use add(d = &a[0, 0], x = &a[0, 0], y = &a[0, 0]) dims(n = n + 16)",
        "n = 24 is not in 0..16",
    ),
    "misaligned": (
        "alloc c: f32[2, 20] in acc\nuse fill(d = &c[0, 4], s = value(1.0:f32))",
        r"operand d at c\[0, 4\] is not aligned to 32 bytes",
    ),
    "accumulate onto nothing": (
        "alloc c: f32[4, 4] in acc\nalloc a: f32[4, 4] in pad\n"
        "for i < 4 {\nfor j < 4 {\na[i, j] = 1.0:f32\n}\n}\n"
        "use mma(c = &c[0, 0], a = &a[0, 0], b = &a[0, 0], lda = 4)",
        r"uninitialised read of c\[0, 0\]",
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_planted_fault_of_intrinsics(name: str) -> None:
    body, message = COPIES[name]
    with pytest.raises(SimulationError, match=message):
        launch(body, target=scratch())


def test_the_same_kernel_done_right() -> None:
    stats, arrays = launch(ALLOC + LOAD + WAIT + STORE + WAIT, target=scratch())
    assert (arrays["y"] == arrays["x"]).all()
    assert stats.unwritten == {"y": 0}


def test_groups_wait_for_what_was_committed() -> None:
    target = scratch(1, tuple(GROUPS.items()))
    second = LOAD.replace("a[0, 0]", "a[2, 0]")
    right = (
        ALLOC
        + LOAD
        + "sync dma_commit\n"
        + second
        + "sync dma_commit\nsync dma_wait pending 1\ny[0] = a[0, 0]\n"
        + WAIT
    )
    launch(right, target=target)
    with pytest.raises(SimulationError, match=r"a\[2, 0\] is read before the wait"):
        launch(right.replace("y[0] = a[0, 0]", "y[0] = a[2, 0]"), target=target)
    with pytest.raises(SimulationError, match="still works on it"):
        launch(ALLOC + LOAD + WAIT, target=target)


def test_copies_of_iterations_race() -> None:
    body = "parallel(core) t < 2 {\n" + ALLOC + LOAD + WAIT + STORE.replace("y[0]", "y[t*4]") + WAIT + "}"
    with pytest.raises(
        SimulationError, match=r"race: this iteration writes y\[4\], which iteration 0 writes"
    ):
        launch(body, target=scratch(), n=16)


def test_masks_do_not_touch() -> None:
    params = "x: f32[n] in main; w: bool[n] in main; y: f32[n] in main out"
    body = (
        "alloc m: bool[8] in pad\nalloc v: f32[8] in pad\nvector l < 8 {\nm[l] = index(l):i32 < index(n - 4):i32\n}\n"
        "use masked_load(dst = &v[0], src = &x[4], mask = &m[0])\n"
        "use masked_store(dst = &y[4], src = &v[0], mask = &m[0])\n"
    )
    stats, arrays = launch(body, params, n=8, target=scratch())
    assert (arrays["y"][4:] == arrays["x"][4:]).all()
    assert stats.unwritten == {"y": 4}
    with pytest.raises(SimulationError, match="out of bounds: operand src reads element 8 of x"):
        launch(body.replace("n - 4", "n - 3"), params, n=8, target=scratch())
    with pytest.raises(SimulationError, match="out of bounds"):
        launch(body.replace("&x[4]", "&x[0]").replace("n - 4", "n - 3"), params, n=8, target=scratch())


def test_masked_stores_of_iterations_do_not_race() -> None:
    params = "x: f32[n] in main; y: f32[n] in main out"
    body = (
        "parallel(core) t < 4 {\nalloc m: bool[8] in pad\nalloc v: f32[8] in pad\n"
        "vector l < 8 {\nm[l] = index(l):i32 < WIDTH:i32\nv[l] = 1.0:f32\n}\n"
        "use masked_store(dst = &y[4*t], src = &v[0], mask = &m[0])\n}"
    )
    launch(body.replace("WIDTH", "4"), params, n=20, target=scratch())
    with pytest.raises(SimulationError, match=r"writes y\[4\], which iteration 0 writes"):
        launch(body.replace("WIDTH", "5"), params, n=20, target=scratch())


# ------------------------------------------------------------------------------------------------------- barriers
def test_barrier_orders_iterations() -> None:
    body = "parallel(core) t < 4 {\ny[t] = x[t]\nsync meet\nlet s: f32 = y[(t + 1)%4]\nsync meet\ny[t + 4] = s\n}"
    _, arrays = launch(body, target=scratch(4))
    assert arrays["y"].tolist() == [0, 1, 2, 3, 1, 2, 3, 0]
    with pytest.raises(SimulationError, match=r"uninitialised read of y\[1\]"):
        launch(body.replace("sync meet\n", "", 1), target=scratch(4))


def test_barrier_divergence() -> None:
    body = "parallel(core) t < 4 {\ny[t] = x[t]\nif x[t] < 1.5:f32 {\nsync meet\n}\n}"
    with pytest.raises(
        SimulationError, match=r"barrier divergence: t = 2 ends; t = 0 waits at statement 4 \(sync meet\)"
    ):
        launch(body, target=scratch(4))


def test_unchecked_runs_give_the_same_values() -> None:
    k = kernel(ALLOC + LOAD + WAIT + STORE + WAIT)
    x, y = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    Machine(k, scratch(), check=False).run({"x": x, "y": y}, {"n": 8})
    assert (x == y).all()
