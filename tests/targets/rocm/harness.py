"""Texts of lanes on the lock-step engine: what the tests of this folder share."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.sim.simt.engine import Engine
from hwsdk.targets.rocm.lanes import chip, programs

GLOBAL, LDS = "ptr addrspace(1)", "ptr addrspace(3)"


def engine(wave: int = 64) -> Engine:
    return Engine(chip(wave), memory_bytes=1 << 24)


def lanes(
    body: str, inputs: list[tuple[str, Any]], result: tuple[str, Any], outside: str = "", wave: int = 64
) -> Any:
    """%x0, %x1 ... are loaded per lane; %r is stored.  inputs: (LLVM type, array)."""
    count = len(inputs[0][1])
    names = [f"{GLOBAL} %p{i}" for i in range(len(inputs))]
    loads = "".join(
        f"  %q{i} = getelementptr {kind}, {GLOBAL} %p{i}, i32 %t\n  %x{i} = load {kind}, {GLOBAL} %q{i}\n"
        for i, (kind, _) in enumerate(inputs)
    )
    text = f"""{outside}
define amdgpu_kernel void @k({", ".join(names)}, {GLOBAL} %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{loads}{body}
  %qr = getelementptr {result[0]}, {GLOBAL} %out, i32 %t
  store {result[0]} %r, {GLOBAL} %qr
  ret void
}}
"""
    device = engine(wave)
    args = [device.copy_of(a, f"input {i}", True) for i, (_, a) in enumerate(inputs)]
    dtype = np.dtype(result[1])
    out = device.allocate(count * dtype.itemsize, "out")
    device.launch(programs(text)["k"], 1, count, [*args, out])
    return device.read(out, dtype.base, (count, *dtype.shape))
