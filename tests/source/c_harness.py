"""Kernels as C text, compiled by the machine's C compiler and called on NumPy arrays."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwsdk.codegen.llvm_workspace import workspace_bytes
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.source import source_file
from hwsdk.graph.dims import evaluate
from hwsdk.target_desc import Target, load_target
from tests.codegen import llvm_harness

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
TILE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@cache
def c_target() -> Target:
    """The small description of this machine, with the language of the C target."""
    host = llvm_harness.host_target()
    source = load_target("x86-64-c").codegen.source
    return replace(host, codegen=replace(host.codegen, route="source", source=source))


def shared_library(text: str, level: str = "-O1") -> ctypes.CDLL:
    """The text compiled with the flags of the description, but another level of optimisation."""
    source = c_target().codegen.source
    assert source is not None
    flags = [f for f in source.compile[0][1:] if f.startswith(("-std", "-f", "-march"))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.c").write_text(text)
        argv = ["gcc", *flags, level, "-Wall", "-Werror=implicit", "-w", "-shared", "-o", f"{folder}/k.so"]
        subprocess.run([*argv, f"{folder}/k.c", "-lm"], check=True)
        return ctypes.CDLL(f"{folder}/k.so")


class CompiledC(llvm_harness.Compiled):
    """Like the other route's: `run` takes arrays by param name and dims."""

    def __init__(self, kernel: LoopKernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.text = source_file([kernel], target)
        self.workspace = workspace_bytes(kernel, target)
        self.loaded = shared_library(self.text)
        self.function = TILE((kernel.name, self.loaded))


def agree_c(
    kernel: LoopKernel,
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int],
    target: Target | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> dict[str, np.ndarray]:
    """The kernel as C and on the machine that defines LoopIR: the outputs are the same (or close)."""
    return llvm_harness.agree(kernel, arrays, dims, c_target(), rtol, atol, CompiledC)


def run_kernel(
    function: TILE,
    kernel: LoopKernel,
    target: Target,
    buffers: Sequence[np.ndarray],
    dims: Sequence[int],
    grid: int,
) -> None:
    """All tiles of one launch, on copies between guard bytes; outputs are copied back."""
    size = int(evaluate(workspace_bytes(kernel, target), dict(zip(kernel.dims, dims))))
    scratch = llvm_harness.aligned(max(size, 64), np.uint8)
    copies = [llvm_harness.padded_copy(np.ascontiguousarray(b).reshape(-1)) for b in buffers]
    slots = np.array([*(c.ctypes.data for c in copies), *dims, scratch.ctypes.data, size], np.int64)
    for tile in range(grid):
        function(slots.ctypes.data, tile, 0)
    for param, buffer, copy in zip(kernel.params, buffers, copies):
        around = copy.base.view(np.uint8).reshape(-1)  # type: ignore[union-attr]
        outside = np.concatenate([around[:64], around[len(around) - 64 :]])
        assert (outside == llvm_harness.GUARD).all(), f"{kernel.name}: wrote outside of {param.name}"
        if param.name in kernel.outputs:
            buffer.reshape(-1)[...] = copy
