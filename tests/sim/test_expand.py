"""Uses of simple intrinsics run as plain statements give the bits, counts and checks of the uses themselves."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import Intrin, walk
from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.errors import SimulationError
from hwsdk.sim import kernel_source
from hwsdk.sim.expand import expand_kernel
from hwsdk.sim.machine import Machine
from tests.sim.chips import scratch

INTRINSICS = """
  - name: move
    unit: ls
    dims: {n: 8}
    semantics: "d[n] = x[n]"
    operands: {d: {dtype: f32, in: regs}, x: {dtype: f32, in: main}}
    emit: {source: {text: "move({d}, {x});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: spread
    unit: ls
    dims: {n: 8}
    semantics: "d[n] = x[]"
    operands: {d: {dtype: f32, in: regs}, x: {dtype: f32, in: main}}
    emit: {source: {text: "spread({d}, {x});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: put
    unit: ls
    dims: {n: 8}
    semantics: "d[n] = x[n]"
    operands: {d: {dtype: f32, in: main}, x: {dtype: f32, in: regs}}
    emit: {source: {text: "put({d}, {x});"}}
    cost: {issue_per_cycle: 1/2, latency_cycles: 4}
  - name: fma
    unit: vector
    dims: {n: 8}
    semantics: "acc[n] += a[n] * b[n]"
    rounding: fused
    operands: {acc: {dtype: f32, in: regs}, a: {dtype: f32, in: regs}, b: {dtype: f32, in: regs}}
    emit: {source: {text: "fma({acc}, {a}, {b});"}}
    cost: {issue_per_cycle: 2, latency_cycles: 4}
  - name: sum8
    unit: vector
    dims: {n: 8}
    semantics: "d[n] = max(x[n] * y[n] + 0.5, -x[n])"
    operands: {d: {dtype: f32, in: regs}, x: {dtype: f32, in: regs}, y: {dtype: f32, in: regs}}
    emit: {source: {text: "sum8({d}, {x}, {y});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: dot
    unit: vector
    dims: {n: 8, k: 4}
    semantics: "acc[n] += sum[k](i32(a[n, k]) * i32(b[n, k]))"
    operands:
      acc: {dtype: i32, in: regs}
      a: {dtype: u8, in: regs, layout: "item = n*4 + k"}
      b: {dtype: i8, in: regs, layout: "item = n*4 + k"}
    emit: {source: {text: "dot({acc}, {a}, {b});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: product
    unit: vector
    dims: {m: 2, n: 8, k: 2}
    semantics: "c[m, n] += sum[k](f32(a[m, k]) * f32(b[k, n]))"
    rounding: free
    operands:
      c: {dtype: f32, in: regs, layout: "item = m*8 + n"}
      a: {dtype: bf16, in: main, layout: "item = m*lda + k"}
      b: {dtype: bf16, in: main, layout: "item = k*8 + n"}
      lda: {dtype: i32, in: scalar}
    emit: {source: {text: "product({c}, {a}, {b}, {lda});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: narrow
    unit: vector
    dims: {n: 8}
    semantics: "d[n] = i8.sat(x[n])"
    operands: {d: {dtype: i8, in: regs}, x: {dtype: i32, in: regs}}
    emit: {source: {text: "narrow({d}, {x});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
"""
CHANGES = (
    ("memory:\n", "memory:\n  - {name: regs, kind: registers, per: core, count: 32, width_bytes: 32}\n"),
    ("  - {name: control, kind: scalar, per: core, count: 1}\n",
     "  - {name: ls, kind: load_store, per: core, count: 1}\n"),
    ("model: sequential", "model: simd"),
    ("dtypes: {f32: native,", "dtypes: {bf16: storage, i8: native, u8: native, f32: native,"),
    ("read_gb_per_s: 16, write_gb_per_s: 16", "read_gb_per_s: 1600, write_gb_per_s: 1600"),
    ("intrinsics:\n", "intrinsics:" + INTRINSICS),
)  # fmt: skip
SIMD = scratch(2, CHANGES)

GEMM = """
kernel gemm {
  param a: f32[m*k] in main
  param b: f32[k*16] in main
  param c: f32[m*16] in main out
  dim m
  dim k
  parallel(core) t < m//4 {
    alloc acc: f32[4, 2, 8] in regs
    unroll i < 4 {
      unroll v < 2 {
        vector l < 8 {
          acc[i, v, l] = 0.0:f32
        }
      }
    }
    for q < k {
      alloc line: f32[2, 8] in regs
      unroll v < 2 {
        use move(d = &line[v, 0], x = &b[16*q + 8*v])
      }
      unroll i < 4 {
        alloc one: f32[8] in regs
        use spread(d = &one[0], x = &a[k*(4*t + i) + q])
        unroll v < 2 {
          use fma(acc = &acc[i, v, 0], a = &one[0], b = &line[v, 0])
        }
      }
    }
    unroll i < 4 {
      unroll v < 2 {
        use put(d = &c[16*(4*t + i) + 8*v], x = &acc[i, v, 0])
      }
    }
  }
}
"""


def both(text: str, arrays: dict, dims: dict, monkeypatch: pytest.MonkeyPatch):
    """(arrays, stats) of the expanded kernel and of the one that is not."""
    results = []
    for expand in (True, False):
        if not expand:
            monkeypatch.setattr(kernel_source, "expand_kernel", lambda kernel, target: (kernel, {}))
        mine = {k: v.copy() for k, v in arrays.items()}
        results.append((mine, Machine(parse_kernel(text), SIMD).run(mine, dims)))
    return results


def test_product(monkeypatch: pytest.MonkeyPatch) -> None:
    m, k = 8, 37
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal(m * k, "f4"),
        "b": rng.standard_normal(k * 16, "f4"),
        "c": np.zeros(m * 16, "f4"),
    }
    kernel, origins = expand_kernel(parse_kernel(GEMM), SIMD)
    assert not any(isinstance(s, Intrin) for s in walk(kernel.body))
    assert len(origins) == 4
    (fast, one), (slow, two) = both(GEMM, arrays, {"m": m, "k": k}, monkeypatch)
    assert fast["c"].tobytes() == slow["c"].tobytes()
    np.testing.assert_allclose(
        fast["c"].reshape(m, 16), arrays["a"].reshape(m, k) @ arrays["b"].reshape(k, 16), rtol=1e-4
    )
    assert one.units["vector"].intrinsics == two.units["vector"].intrinsics == {"fma": m * 2 * k}
    assert one.units["vector"].ops == two.units["vector"].ops == m * 16 * k * 2
    assert one.units["vector"].busy_cycles == pytest.approx(m * k)
    assert one.units["ls"].uses == two.units["ls"].uses == (m // 4) * k * 6 + m * 2
    assert {n: (p.read_bytes, p.written_bytes) for n, p in one.places.items()} == {
        n: (p.read_bytes, p.written_bytes) for n, p in two.places.items()
    }
    assert one.places["regs"].peak_bytes == (8 + 2 + 1) * 32
    assert (
        one.cycles == k * 6 + 8 * 2
    )  # loads and stores are the busiest: 6 a step, a store keeps its unit 2 cycles


CASES = {
    "sum8": ("use sum8(d = &r[0], x = &p[0], y = &p[8])", True),
    "product": ("use product(c = &c[0, 0], a = &h[2], b = &h[8], lda = 3)", True),
    "product with a stride of a dim": ("use product(c = &c[0, 0], a = &h[2], b = &h[8], lda = n)", False),
    "narrow": ("use narrow(d = &s[0], x = &q[0])", False),
    "rows that an index cannot say": ("use product(c = &t[0, 0], a = &h[0], b = &h[0], lda = 2)", False),
    "dot": ("use dot(acc = &q[0], a = &u[0, 0], b = &s4[0, 0])", True),
    "flat dot": ("use dot(acc = &q[0], a = &uf[0], b = &sf[0])", True),
}  # fmt: skip
PRELUDE = """
kernel k {
  param x: f32[64] in main
  param h: bf16[64] in main
  param y: f32[64] in main out
  param z: i32[8] in main out
  param w: i8[8] in main out
  dim n
  alloc r: f32[8] in regs
  alloc p: f32[16] in regs
  alloc c: f32[2, 8] in regs
  alloc t: f32[4, 4] in regs
  alloc q: i32[8] in regs
  alloc s: i8[8] in regs
  alloc u: u8[8, 4] in regs
  alloc s4: i8[8, 4] in regs
  alloc uf: u8[32] in regs
  alloc sf: i8[32] in regs
  vector l < 16 {
    p[l] = x[l]
  }
  vector l < 32 {
    uf[l] = index(l*7):u8
    sf[l] = index(50 - l*5):i8
  }
  vector l < 8 {
    r[l] = 0.0:f32
    q[l] = index(l*60 - 200):i32
    s[l] = 0:i8
    unroll j < 4 {
      u[l, j] = index(l + j):u8
      s4[l, j] = index(l - j):i8
    }
  }
  unroll i < 2 {
    vector l < 8 {
      c[i, l] = x[8*i + l]
    }
  }
  unroll i < 4 {
    vector l < 4 {
      t[i, l] = 0.0:f32
    }
  }
  USE
  vector l < 8 {
    y[l] = r[l] + p[l + 4]
    z[l] = q[l]
    w[l] = s[l]
  }
  unroll i < 2 {
    vector l < 8 {
      y[8 + 8*i + l] = c[i, l]
    }
  }
  unroll i < 4 {
    vector l < 4 {
      y[24 + 4*i + l] = t[i, l]
    }
  }
}
"""


@pytest.mark.parametrize("name", CASES)
def test_each_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ml_dtypes

    use, expands = CASES[name]
    text = PRELUDE.replace("USE", use)
    kernel, origins = expand_kernel(parse_kernel(text), SIMD)
    assert (not any(isinstance(s, Intrin) for s in walk(kernel.body))) == expands
    assert bool(origins) == expands or not expands
    rng = np.random.default_rng(1)
    arrays = {
        "x": rng.standard_normal(64, "f4"), "h": rng.standard_normal(64).astype(ml_dtypes.bfloat16),
        "y": np.zeros(64, "f4"), "z": np.zeros(8, "i4"), "w": np.zeros(8, "i1"),
    }  # fmt: skip
    (fast, one), (slow, two) = both(text, arrays, {"n": 3}, monkeypatch)
    for output in ("y", "z", "w"):
        assert fast[output].tobytes() == slow[output].tobytes()
    assert one.units["vector"].intrinsics == two.units["vector"].intrinsics


def test_faults_name_the_use() -> None:
    text = GEMM.replace("x = &b[16*q + 8*v]", "x = &b[16*q + 8*v + 8]")
    arrays = {"a": np.ones(8, "f4"), "b": np.ones(32, "f4"), "c": np.zeros(64, "f4")}
    with pytest.raises(
        SimulationError,
        match=r"statement 10 \(use move\(d = &line\[v, 0\].*out of bounds: index 39 of axis 0 of b",
    ):
        Machine(parse_kernel(text), SIMD).run(arrays, {"m": 4, "k": 2})
    text = GEMM.replace("for q < k", "for q < 0")
    text = text.replace("acc[i, v, l] = 0.0:f32", "acc[i, 0, l] = 0.0:f32")
    with pytest.raises(SimulationError, match=r"use put.*uninitialised read of acc\[0, 1, 0\]"):
        Machine(parse_kernel(text), SIMD).run(arrays, {"m": 4, "k": 2})
