"""Small chips for tests, as YAML text, loaded like any other description."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hwsdk.target_desc import Target, load_target

SCRATCH = """
hwsdk: 1
name: scratch
family: scratch
source: "choice of this test"
execution:
  - {name: device, count: 1}
  - {name: core, count: CORES, clock_ghz: 1.0}
memory:
  - {name: main, kind: dram, per: device, size_bytes: 1048576,
     align_bytes: 64, granule_bytes: 16, read_gb_per_s: 16, write_gb_per_s: 16, latency_cycles: 100}
  - {name: pad, kind: scratchpad, per: core, size_bytes: 1024,
     align_bytes: 16, read_bytes_per_cycle: 64, write_bytes_per_cycle: 64, latency_cycles: 2}
  - {name: acc, kind: accumulator, per: core, size_bytes: 512,
     align_bytes: 16, read_bytes_per_cycle: 64, write_bytes_per_cycle: 64, latency_cycles: 2}
  - {name: common, kind: scratchpad, per: device, size_bytes: 1024,
     align_bytes: 16, read_bytes_per_cycle: 64, write_bytes_per_cycle: 64, latency_cycles: 2}
units:
  - {name: matrix, kind: matrix, per: core, count: 1}
  - {name: vector, kind: vector, per: core, count: 1}
  - {name: dma, kind: dma, per: core, count: 1, in_flight: 2,
     setup_cycles: 10, bytes_per_cycle: 8, copies: engine, completion: in_order, wait: dma_wait}
  - {name: block, kind: dma, per: core, count: 1, setup_cycles: 10, bytes_per_cycle: 8, copies: blocking}
  - {name: control, kind: scalar, per: core, count: 1}
dtypes: {f32: native, i32: native, bool: native}
intrinsics:
  - name: load
    unit: dma
    dims: {r: {max: 64}, c: {max: 64}}
    semantics: "dst[r, c] = src[r, c]"
    operands:
      dst: {dtype: f32, in: pad, layout: "item = r*dst_ld + c"}
      src: {dtype: f32, in: main, layout: "item = r*src_ld + c"}
      dst_ld: {dtype: i32, in: scalar}
      src_ld: {dtype: i32, in: scalar}
    emit: {source: {text: "load({dst}, {src}, {dst_ld}, {src_ld}, {r}, {c});"}}
    cost: {issue_per_cycle: 1/4, latency_cycles: 60}
  - name: store
    unit: dma
    dims: {r: {max: 64}, c: {max: 64}}
    semantics: "dst[r, c] = src[r, c]"
    operands:
      dst: {dtype: f32, in: main, layout: "item = r*dst_ld + c"}
      src: {dtype: f32, in: pad, layout: "item = r*src_ld + c"}
      dst_ld: {dtype: i32, in: scalar}
      src_ld: {dtype: i32, in: scalar}
    emit: {source: {text: "store({dst}, {src}, {dst_ld}, {src_ld}, {r}, {c});"}}
    cost: {issue_per_cycle: 1/4, latency_cycles: 60}
  - name: pull
    unit: block
    dims: {n: {max: 64}}
    semantics: "dst[n] = src[n]"
    operands: {dst: {dtype: f32, in: pad}, src: {dtype: f32, in: main}}
    emit: {source: {text: "pull({dst}, {src}, {n});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 60}
  - name: mma
    unit: matrix
    dims: {m: 4, n: 4, k: 4}
    semantics: "c[m, n] += sum[k](a[m, k] * b[k, n])"
    rounding: free
    operands:
      c: {dtype: f32, in: acc, layout: "item = m*4 + n"}
      a: {dtype: f32, in: pad, layout: "item = m*lda + k"}
      b: {dtype: f32, in: pad, layout: "item = k*4 + n"}
      lda: {dtype: i32, in: scalar}
    emit: {source: {text: "mma({c}, {a}, {b}, {lda});"}}
    cost: {issue_per_cycle: 1/4, latency_cycles: 20, chain_cycles: 8}
  - name: add
    unit: vector
    dims: {n: {max: 16}}
    semantics: "d[n] = x[n] + y[n]"
    operands: {d: {dtype: f32, in: pad}, x: {dtype: f32, in: pad}, y: {dtype: f32, in: pad}}
    emit: {source: {text: "add({d}, {x}, {y}, {n});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 6}
  - name: fill
    unit: vector
    dims: {n: 16}
    semantics: "d[n] = s"
    operands: {d: {dtype: f32, in: acc, align_bytes: 32}, s: {dtype: f32, in: scalar}}
    emit: {source: {text: "fill({d}, {s});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: masked_load
    unit: vector
    dims: {n: 8}
    semantics: "dst[n] = select(mask[n], src[n], 0)"
    operands: {dst: {dtype: f32, in: pad}, src: {dtype: f32, in: main}, mask: {dtype: bool, in: pad}}
    emit: {source: {text: "masked_load({dst}, {src}, {mask});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
  - name: masked_store
    unit: vector
    dims: {n: 8}
    semantics: "dst[n] = src[n] where mask[n]"
    operands: {dst: {dtype: f32, in: main}, src: {dtype: f32, in: pad}, mask: {dtype: bool, in: pad}}
    emit: {source: {text: "masked_store({dst}, {src}, {mask});"}}
    cost: {issue_per_cycle: 1, latency_cycles: 4}
sync:
  - {name: dma_wait, kind: wait, scope: core,
     unit: dma, orders: [main, pad], cost_cycles: 3, emit: {source: "wait({pending});"}}
  - {name: meet, kind: barrier, scope: device, orders: [main], cost_cycles: 20, emit: {source: "meet();"}}
codegen:
  route: source
  model: sequential
  source: {language: c, extension: .c, prologue: "", kernel: "void {name}({params})", declare: "{type} {name};"}
runtime: {port: "none:None", launch_us: 1}
detect: [{driver: none}]
"""

GROUPS = {
    "completion: in_order, wait: dma_wait": "completion: groups, commit: dma_commit, wait: dma_wait",
    "sync:\n": 'sync:\n  - {name: dma_commit, kind: commit, scope: core, unit: dma, emit: {source: "commit();"}}\n',
}


@lru_cache
def scratch(cores: int = 1, changes: tuple[tuple[str, str], ...] = ()) -> Target:
    """The chip above; `changes` replace pieces of its text."""
    text = SCRATCH.replace("CORES", str(cores))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scratch.yaml"
        path.write_text(text)
        return load_target(path)
