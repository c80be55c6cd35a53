"""Compiles kernels in this process and calls them on NumPy arrays (the tests' own loader: MCJIT)."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import llvmlite.binding as llvm
import numpy as np

from hwsdk.codegen.llvm_emit import emit_kernel, workspace_bytes
from hwsdk.codegen.loop_ir import LoopKernel, parallel_loop
from hwsdk.graph.dims import evaluate
from hwsdk.sim.machine import run
from hwsdk.target_desc.model import Codegen, DTypeSupport, Level, LlvmCodegen, Memory, Target


@cache
def host_target(registers: int = 16, width: int = 32) -> Target:
    """A small description of this machine, enough for emission."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = tuple(sorted(k for k, v in llvm.get_host_cpu_features().items() if v))
    half = DTypeSupport("storage", needs=("f16c",) if platform.machine() == "x86_64" else ())
    return Target(
        name="host",
        file="host.yaml",
        features=features,
        levels=(Level("core", count=1),),
        memories=(
            Memory("dram", "dram", "core", align_bytes=64),
            Memory("l1", "cache", "core", size_bytes=32768),
            Memory("vreg", "registers", "core", count=registers, width_bytes=width),
        ),
        dtypes=MappingProxyType({"f16": half, "f32": DTypeSupport("native")}),
        codegen=Codegen(
            "llvm",
            "simd",
            LlvmCodegen(llvm.get_default_triple(), llvm.get_host_cpu_name(), features=features),
        ),
    )


def machine() -> llvm.TargetMachine:
    host_target()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


def assembly(text: str) -> str:
    module = llvm.parse_assembly(text)
    module.verify()
    return machine().emit_assembly(module)


class Compiled:
    """A kernel in memory.  `run` takes arrays by param name and dims; it runs all tiles, worker 0."""

    def __init__(self, kernel: LoopKernel, target: Target | None = None) -> None:
        self.kernel = kernel
        self.target = target or host_target()
        self.text = emit_kernel(kernel, self.target)
        self.workspace = workspace_bytes(kernel, self.target)
        module = llvm.parse_assembly(self.text)
        module.verify()
        self.engine = llvm.create_mcjit_compiler(module, machine())
        self.engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.function = signature(self.engine.get_function_address(kernel.name))

    def arguments(self, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> np.ndarray:
        size = int(evaluate(self.workspace, dict(dims)))
        self.scratch = aligned(max(size, 64), np.uint8)
        slots = [arrays[b.name].ctypes.data for b in self.kernel.params]
        slots += [dims[d] for d in self.kernel.dims]
        return np.array([*slots, self.scratch.ctypes.data, size], np.int64)

    def run(self, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> None:
        args = self.arguments(arrays, dims)
        loop = parallel_loop(self.kernel)
        tiles = 1 if loop is None else int(evaluate(loop.extent, dict(dims)))
        for tile in range(tiles):
            self.function(args.ctypes.data, tile, 0)


def aligned(count: int, dtype: object = np.float32, align: int = 64) -> np.ndarray:
    """An uninitialised array at a multiple of `align` bytes."""
    size = np.dtype(dtype).itemsize  # type: ignore[call-overload]
    raw = np.empty(count * size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + count * size].view(dtype)


def agree(
    kernel: LoopKernel,
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int],
    target: Target | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    compiled: Callable[[LoopKernel, Target], Compiled] = Compiled,
) -> dict[str, np.ndarray]:
    """Runs the kernel compiled and on the machine that defines LoopIR; the outputs must be the same (or close)."""
    target = target or host_target()
    machine_side = {n: a.copy() for n, a in arrays.items()}
    run(kernel, target, machine_side, dims, cost=False, initialised=dict.fromkeys(kernel.outputs, True))
    native_side = {n: padded_copy(a) for n, a in arrays.items()}
    compiled(kernel, target).run(native_side, dims)
    for name in arrays:
        want, got = machine_side[name], native_side[name]
        if rtol or atol:
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=name
            )
        else:
            np.testing.assert_array_equal(comparable(got), comparable(want), err_msg=name)
        base = got.base if got.base is not None else got
        assert (base.view(np.uint8).reshape(-1)[:64] == GUARD).all(), f"{name}: wrote before its beginning"
        assert (base.view(np.uint8).reshape(-1)[-64:] == GUARD).all(), f"{name}: wrote behind its end"
    return native_side


GUARD = 0xA5


def comparable(array: np.ndarray) -> np.ndarray:
    """Narrow floats as f32: NumPy knows that NaN equals NaN only for its own dtypes."""
    return array.astype(np.float32) if array.dtype.kind == "V" or array.dtype == np.float16 else array


def padded_copy(array: np.ndarray) -> np.ndarray:
    """A copy between two stretches of guard bytes."""
    raw = np.full(array.nbytes + 128, GUARD, np.uint8)
    inner = raw[64 : 64 + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner
