"""What the machine computes: matrix products, reductions, gathers, long loops, deep nests, and intrinsics."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.errors import CodegenError
from hwsdk.sim import kernel_source
from hwsdk.sim.machine import Machine, run
from hwsdk.target_desc import load_target

MATMUL = """
kernel matmul {
  param a: f32[m, k] in main
  param b: f32[k, n] in main
  param c: f32[m, n] in main out
  dim m
  dim n
  dim k
  parallel t < ceildiv(m, 4) {
    for p < ceildiv(n, 16) {
      alloc acc: f32[4, 16] in main
      for r < 4 {
        vector l < 16 {
          acc[r, l] = 0.0:f32
        }
      }
      for q < k {
        for r < min(4, m - t*4) {
          vector l < 16, active n - p*16 {
            acc[r, l] = fma(a[t*4 + r, q], b[q, p*16 + l], acc[r, l])
          }
        }
      }
      for r < min(4, m - t*4) {
        vector l < 16, active n - p*16 {
          c[t*4 + r, p*16 + l] = acc[r, l]
        }
      }
    }
  }
}
"""


@pytest.mark.parametrize(
    "m, n, k", [(1, 1, 1), (4, 16, 3), (5, 17, 7), (13, 31, 5), (0, 3, 2), (3, 0, 2), (3, 2, 0)]
)
@pytest.mark.parametrize("budget", [1 << 16, 8])
def test_matmul(m: int, n: int, k: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_source, "BUDGET", budget)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), "f4"), rng.standard_normal((k, n), "f4")
    c = np.full((m, n), np.nan, "f4")
    stats = run(parse_kernel(MATMUL), None, {"a": a, "b": b, "c": c}, {"m": m, "n": n, "k": k}, seed=3)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
    assert stats.unwritten == {"c": 0}
    assert stats.iterations == -(-m // 4)


def test_long_loops_run_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    kernel k {
      param x: f32[n, 3] in main
      param y: f32[n, 3] in main out
      dim n
      for i < n {
        for j < 3 {
          let v: i64 = i64(x[i, j])
          y[i, j] = x[i, (v + i)%3] + index(i*3 + j):f32
        }
      }
    }
    """
    n = 1000
    x = np.random.default_rng(1).integers(0, 9, (n, 3)).astype("f4")
    i, j = np.mgrid[:n, :3]
    want = x[i, (x.astype(int) + i) % 3] + (i * 3 + j).astype("f4")
    for budget in (1 << 16, 1000, 7, 1):
        monkeypatch.setattr(kernel_source, "BUDGET", budget)
        y = np.zeros((n, 3), "f4")
        stats = run(parse_kernel(text), None, {"x": x, "y": y}, {"n": n})
        assert (y == want).all()
        assert stats.places["main"].written_bytes == n * 12
        assert stats.places["main"].read_bytes == n * 24


def test_deep_nests() -> None:
    depth = 40
    head = "".join(f"for i{d} < 1 {{\nfor j{d} < 2 {{\ny[0] = y[0] + 1.0:f32\n" for d in range(5)) + "".join(
        f"for q{d} < 1 {{\n" for d in range(depth - 10)
    )
    text = (
        f"kernel k {{\nparam y: f32[1] in main out\n{head}y[0] = y[0] * 1.0:f32\n{'}' + chr(10)}"
        + "}\n" * (depth - 1)
        + "}\n"
    )
    y = np.zeros(1, "f4")
    run(parse_kernel(text), None, {"y": y}, {}, initialised={"y": True})
    assert y[0] == 2 + 4 + 8 + 16 + 32


def test_iterations_that_yield_in_deep_nests() -> None:
    from tests.sim.chips import scratch

    depth = 30
    text = (
        "kernel k {\nparam y: f32[n] in main out\ndim n\nparallel(core) t < 2 {\ny[t] = 1.0:f32\n"
        + "".join(f"for i{d} < 1 {{\n" for d in range(depth))
        + "sync meet\n"
        + "}\n" * depth
        + "let s: f32 = y[1 - t]\nsync meet\ny[t] = s + 1.0:f32\n}\n}"
    )
    y = np.zeros(2, "f4")
    stats = run(parse_kernel(text), scratch(2), {"y": y}, {"n": 2})
    assert (y == 2).all()
    assert stats.cycles >= 40


def test_shared_values_are_computed_once() -> None:
    text = (
        "kernel k {\nparam x: f32[4] in main\nparam y: f32[4] in main out\n"
        "vector l < 4 {\n%0 = x[l] + 1.0:f32\ny[l] = %0 * %0 + %0\n}\n}"
    )
    y = np.zeros(4, "f4")
    stats = run(parse_kernel(text), None, {"x": np.arange(4, dtype="f4"), "y": y}, {})
    assert y.tolist() == [2, 6, 12, 20]
    assert stats.places["main"].read_bytes == 16


def test_a_let_keeps_what_a_store_changes() -> None:
    text = (
        "kernel k {\nparam y: f32[4] in main out\n"
        "vector l < 4 {\nlet old: f32 = y[l]\ny[l] = 5.0:f32\ny[l] = y[l] + old\n}\n}"
    )
    y = np.arange(4, dtype="f4")
    run(parse_kernel(text), None, {"y": y}, {}, initialised={"y": True})
    assert y.tolist() == [5, 6, 7, 8]


def test_loops_with_dependences_stay_loops() -> None:
    text = "kernel k {\nparam y: f32[n] in main out\ndim n\nfor i < n - 1 {\ny[i + 1] = y[i] + y[i + 1]\n}\n}"
    y = np.ones(20, "f4")
    run(parse_kernel(text), None, {"y": y}, {"n": 20}, initialised={"y": True})
    assert y.tolist() == list(range(1, 21))


def test_bad_kernels_are_refused_before_they_run() -> None:
    with pytest.raises(CodegenError, match="'j' in the index"):
        Machine(parse_kernel("kernel k {\nparam y: f32[n] in main out\ndim n\ny[j] = 1.0:f32\n}"))


# -------------------------------------------------------------------------------------------- a whole accelerator
GEMM = """
kernel gemm {
  param a: bf16[m, k] in dram
  param b: bf16[k, n] in dram
  param c: f32[m, n] in dram out
  dim m
  dim n
  dim k
  parallel(core) t < m//32 {
    alloc sa: bf16[2, 32, 32] in spad
    alloc sb: bf16[2, 32, 32] in spad
    alloc so: f32[32, 32] in spad
    alloc acc: f32[32, 32] in acc
    for j < n//32 {
      for f < 32 {
        use vfill_f32(d = &acc[f, 0], s = value(0.0:f32)) dims(n = 32)
      }
      LOAD(0, 0)
      for l < k//32 {
        if index(l + 1):i32 < index(k//32):i32 {
          LOAD(NEXT, l*32 + 32)
          sync dma_wait pending 2
        } else {
          sync dma_wait
        }
        for x < 2 {
          for y < 2 {
            for z < 2 {
              use mma_bf16(acc = &acc[x*16, y*16], a = &sa[SLOT, x*16, z*16], b = &sb[SLOT, z*16, y*16], LDS)
            }
          }
        }
      }
      for f < 32 {
        use vstore_f32_f32(d = &so[f, 0], x = &acc[f, 0]) dims(n = 32)
      }
      use dma_store_f32(dst = &c[t*32, j*32], src = &so[0, 0], dst_ld = n, src_ld = 32) dims(r = 32, c = 32)
      sync dma_wait
    }
  }
}
"""


def gemm(buffers: int) -> str:
    """Double or single buffered."""
    load = (
        "use dma_load_bf16(dst = &sa[{0}, 0, 0], src = &a[t*32, {1}], dst_ld = 32, src_ld = k) dims(r = 32, c = 32)\n"
        "use dma_load_bf16(dst = &sb[{0}, 0, 0], src = &b[{1}, j*32], dst_ld = 32, src_ld = n) dims(r = 32, c = 32)\n"
    )
    text = GEMM.replace("LOAD(0, 0)", load.format(0, 0)).replace("LDS", "ldc = 32, lda = 32, ldb = 32")
    if buffers == 2:
        text = text.replace("LOAD(NEXT, l*32 + 32)", load.format("(l + 1)%2", "l*32 + 32"))
        return text.replace("SLOT", "l%2")
    text = text.replace("LOAD(NEXT, l*32 + 32)\n          sync dma_wait pending 2", "sync dma_wait")
    tail = "            }\n          }\n        }\n"
    after = load.format(0, "l*32 + 32")
    return text.replace("SLOT", "0").replace(
        tail, f"{tail}if index(l + 1):i32 < index(k//32):i32 {{\n{after}}}\n"
    )


def test_product_on_the_example_accelerator(root) -> None:
    target = load_target(root / "examples/new_chip/npu.yaml")
    m, n, k = 64, 64, 128
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    times = {}
    for buffers in (1, 2):
        c = np.zeros((m, n), "f4")
        stats = run(parse_kernel(gemm(buffers)), target, {"a": a, "b": b, "c": c}, {"m": m, "n": n, "k": k})
        np.testing.assert_allclose(c, a.astype("f4") @ b.astype("f4"), rtol=1e-5, atol=1e-5)
        times[buffers] = stats.cycles
        uses = m * n * k // 4096
        matrix = stats.units["matrix"]
        assert matrix.uses == uses
        assert matrix.ops == 2 * m * n * k
        assert matrix.busy_cycles == uses * 16
        assert matrix.intrinsics == {"mma_bf16": uses}
        assert 0 < stats.utilisation("matrix") < 1
        spad = stats.places["spad"]
        assert spad.peak_bytes == 2 * 2 * 32 * 32 * 2 + 4096
        assert spad.capacity_bytes == 262144
        assert (
            stats.places["dram"].moved_bytes
            == stats.places["dram"].read_bytes + stats.places["dram"].written_bytes
        )
        assert stats.places["dram"].written_bytes == m * n * 4
    assert times[2] < 0.9 * times[1]  # copies hide behind arithmetic


def test_unchecked_and_checked_runs_agree(root) -> None:
    target = load_target(root / "examples/new_chip/npu.yaml")
    a, b = (np.ones((32, 32)).astype(ml_dtypes.bfloat16) for _ in range(2))
    results = []
    for check, cost in ((True, True), (False, True), (False, False)):
        c = np.zeros((32, 32), "f4")
        machine = Machine(parse_kernel(gemm(2)), target, check=check, cost=cost)
        stats = machine.run({"a": a, "b": b, "c": c}, {"m": 32, "n": 32, "k": 32})
        assert (c == 32).all()
        results.append(stats)
    assert results[0].cycles == results[1].cycles > 0
    assert results[0].places == results[1].places
    assert results[0].places["spad"].read_bytes == results[2].places["spad"].read_bytes
