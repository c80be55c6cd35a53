"""A hand-made model for the tests of running: two kernels in LLVM text and the host program that launches
them.

    u[b, n] = x[b, n] * w[n]          two versions: `scale_wide` where n >= 8, else `scale_narrow`
    t[b, n] = u[b, n] * 2             the 2 is a constant array; one tile per row everywhere
    y[b] = sum over n of t[b, n]      one tile per row, accumulated in the worker's workspace
    shape = (b, n)                    a shape tensor
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_emit import emit_host
from hwsdk.codegen.host_ir import (
    Binding,
    Check,
    HostBuffer,
    HostProgram,
    Launch,
    Needs,
    Signature,
    Version,
    Write,
)
from hwsdk.graph.dims import ge, sym

ROOT = Path(__file__).resolve().parents[2]
HOST_FOLDER = ROOT / "targets" / "x86"

_SCALE = """
define void @NAME(ptr %args, i64 %tile, i64 %worker) nounwind {
entry:
  %t = load ptr, ptr %args
  %x.p = getelementptr i64, ptr %args, i64 1
  %x = load ptr, ptr %x.p
  %w.p = getelementptr i64, ptr %args, i64 2
  %w = load ptr, ptr %w.p
  %n.p = getelementptr i64, ptr %args, i64 3
  %n = load i64, ptr %n.p
  %row = mul i64 %tile, %n
  %none = icmp sle i64 %n, 0
  br i1 %none, label %out, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %at = add i64 %row, %i
  %xa = getelementptr float, ptr %x, i64 %at
  %wa = getelementptr float, ptr %w, i64 %i
  %ta = getelementptr float, ptr %t, i64 %at
  %xv = load float, ptr %xa
  %wv = load float, ptr %wa
  %p = fmul float %xv, %wv
  store float %p, ptr %ta
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

_SUM = """
define void @row_sum(ptr %args, i64 %tile, i64 %worker) nounwind {
entry:
  %y = load ptr, ptr %args
  %t.p = getelementptr i64, ptr %args, i64 1
  %t = load ptr, ptr %t.p
  %n.p = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %n.p
  %ws.p = getelementptr i64, ptr %args, i64 3
  %ws = load ptr, ptr %ws.p
  %size.p = getelementptr i64, ptr %args, i64 4
  %size = load i64, ptr %size.p
  %own = mul i64 %worker, %size
  %acc = getelementptr i8, ptr %ws, i64 %own
  store float 0.0, ptr %acc
  %row = mul i64 %tile, %n
  %none = icmp sle i64 %n, 0
  br i1 %none, label %out, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %at = add i64 %row, %i
  %ta = getelementptr float, ptr %t, i64 %at
  %tv = load float, ptr %ta
  %old = load volatile float, ptr %acc
  %new = fadd float %old, %tv
  store volatile float %new, ptr %acc
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  %sum = load float, ptr %acc
  %ya = getelementptr float, ptr %y, i64 %tile
  store float %sum, ptr %ya
  ret void
}
"""

KERNELS = (
    ("scale", _SCALE.replace("NAME", "scale_wide") + _SCALE.replace("NAME", "scale_narrow")),
    ("row_sum", _SUM),
)
N = 24


def program(work: int = 0) -> HostProgram:
    """The host program; `work` is the hint of both launches."""
    b, n = sym("b"), sym("n")
    return HostProgram(
        inputs=(Signature("x", "f32", (b, n)), Signature("w", "f32", (n,))),
        outputs=(Signature("y", "f32", (b,)), Signature("shape", "i64", (2,)), Signature("t", "f32", (b, n))),
        bindings=(Binding("b", 0, 0), Binding("n", 0, 1)),
        checks=(
            Check(0, 1, high=1000, reason="rows of the table"),
            Check(1, 0, expected=n, reason="x and w are multiplied"),
        ),
        buffers=(
            HostBuffer("x", "f32", (b, n), "input", 0),
            HostBuffer("w", "f32", (n,), "input", 1),
            HostBuffer("two", "f32", (1000,), "constant", 0),
            HostBuffer("u", "f32", (b, n), "arena", 64),
            HostBuffer("y", "f32", (b,), "output", 0),
            HostBuffer("shape", "i64", (2,), "output", 1),
            HostBuffer("t", "f32", (b, n), "output", 2),
        ),
        launches=(
            Launch(
                "scale",
                (Version("scale_wide", b, ge(n, 8)), Version("scale_narrow", b)),
                ("u", "x", "w"),
                (n,),
                work,
                ("u",),
            ),
            Launch("double", (Version("scale_wide", b),), ("t", "u", "two"), (n,), work, ("t",)),
            Launch("row_sum", (Version("row_sum", b, None, Needs(4)),), ("y", "t"), (n,), work, ("y",)),
        ),
        arena_bytes=64 + 4 * b * n,
        workspace_bytes=4,
        writes=(Write("shape", (b, n)),),
    )


def expected(x: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    """What the model computes."""
    t = x * w * np.float32(2)
    return {"y": t.sum(1), "shape": np.array(x.shape), "t": t}


@functools.cache
def compile_text(text: str, large: bool = False) -> bytes:
    """An object of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    kind = {} if large else {"codemodel": "small", "reloc": "pic"}
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), opt=2, **kind).emit_object(module)


def pool_code() -> bytes:
    """The compiled thread pool."""
    return compile_text((HOST_FOLDER / "pool.ll").read_text())


def bundle(work: int = 0, native: bool = True, host: HostProgram | None = None) -> Bundle:
    """The compiled model."""
    host = host or program(work)
    return Bundle(
        name="tiny",
        target="host-test",
        folder=str(HOST_FOLDER),
        port="ral:HostPort",
        program=host,
        code=tuple((name, compile_text(text)) for name, text in KERNELS),
        constants={"two": np.full(1000, 2, np.float32)},
        support=(("pool", pool_code()),),
        host_code=compile_text(emit_host(host)) if native else None,
        constraints=("n <= 1000",),
        kernels={"scale": {"schedule": "rows"}},
    )
