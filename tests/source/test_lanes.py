"""Lanes with ids on the source route: CUDA C++ compiled by NVRTC and run as PTX, HIP C++ read by a host compiler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwsdk import api
from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.source import source_file
from hwsdk.codegen.source.toolchain import compile_sources
from hwsdk.errors import TargetError
from hwsdk.graph.interpret import interpret
from hwsdk.intrinsics.compiled import compiled
from hwsdk.target_desc import Target, load_target
from hwsdk.targets.cuda import nvrtc
from tests.codegen.compiled import assert_same, graph_of
from tests.codegen.test_compiler_ops import CASES

SHOWN = ("layer norm", "max pool", "scatter elements")
needs_nvrtc = pytest.mark.skipif(
    nvrtc.shared_object() is None, reason="no NVRTC here (pip install nvidia-cuda-nvrtc-cu12)"
)


def by_nvrtc(name: str) -> Target:
    """The chip with the alternative that needs no toolkit."""
    target = load_target(name, detect=False)
    assert target.codegen.source is not None
    command = next(c for c in target.codegen.source.compile if "hwsdk.targets.cuda.nvrtc" in c)
    source = replace(target.codegen.source, compile=(command,))
    return replace(target, codegen=replace(target.codegen, source=source))


def compilations(chosen: Target) -> dict[str, Compilation]:
    return {name: api.compile_stages(graph_of(*CASES[name][:2]), chosen) for name in SHOWN}


def renamed(made: Iterable[Compilation]) -> list[LoopKernel]:
    """The kernels of all, with names of their own: c0_NAME, c1_NAME ..."""
    return [replace(k, name=f"c{n}_{k.name}") for n, one in enumerate(made) for k in one.assembled.kernels]


# ---------------------------------------------------------------------------------------------------------- CUDA C++
@pytest.mark.slow
@needs_nvrtc
def test_ptx_of_the_text_agrees_with_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    target = by_nvrtc("cuda-sm80")
    made = compilations(target)
    texts = [(case, source_file(one.assembled.kernels, target)) for case, one in made.items()]
    compiled_texts = dict(zip(made, compile_sources(texts, target), strict=True))
    for case, one in made.items():
        monkeypatch.setattr(api, "device_code", lambda *_, ptx=compiled_texts[case], **__: [ptx])
        run = api.instructions(one)
        for given in CASES[case][2]:
            named = {f"x{i}": a for i, a in enumerate(given)}
            assert_same(run(named), interpret(one.graph, named), 2.0**-20)


@needs_nvrtc
@pytest.mark.parametrize("name", ["cuda-sm75", "cuda-sm80", "cuda-sm89"])
def test_every_intrinsic_compiles(name: str) -> None:
    target = by_nvrtc(name)
    (ptx,) = compile_sources([("uses", uses_of_all(target))], target)
    assert b".entry every_intrinsic" in ptx
    assert b"mma.sync" in ptx


def uses_of_all(target: Target) -> str:
    """One kernel with one use of each intrinsic that has text."""
    from hwsdk.intrinsics.emit_source import wrapper_source

    assert target.codegen.source is not None
    texts, calls = [target.codegen.source.prologue], []
    for name, x in compiled(target).items():
        if "source" in x.spec.emit and all(
            x.operands[o].dtype in target.codegen.source.types for o in x.operands
        ):
            body, _ = wrapper_source(target, name, f"use_{name}")
            texts.append(f"static __device__ {body}")
            calls.append(f"use_{name}(p);")
    return "\n".join(
        [*texts, f'extern "C" __global__ void every_intrinsic(void **p) {{ {" ".join(calls)} }}']
    )


# ----------------------------------------------------------------------------------------------------------- HIP C++
SHIM = """\
#include <math.h>
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(n)
struct index3 { unsigned x; };
static index3 blockIdx, threadIdx;
static inline int __shfl_xor(int v, int s) { return v + s; }
static inline void __syncthreads() {}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_text_for_the_vendors_compiler_is_sound_c_plus_plus(tmp_path: Path) -> None:
    target = load_target("dcu-gfx936", detect=False)
    text = source_file(renamed(compilations(target).values()), target)
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip" / "hip_runtime.h").write_text(SHIM)
    (tmp_path / "hip" / "hip_fp16.h").write_text("#define _Float16 short\n")
    (tmp_path / "all.cc").write_text(text)
    flags = ["-std=c++17", "-fsyntax-only", "-w", f"-I{tmp_path}"]
    done = subprocess.run(
        ["g++", *flags, str(tmp_path / "all.cc")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize("name", ["dcu-gfx926", "dcu-gfx928", "dcu-gfx936"])
def test_the_vendors_compiler_is_named_where_it_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        TargetError, match=r"is compiled by /opt/dtk/bin/hipcc or hipcc, which is not installed here"
    ):
        compile_sources([("k", "")], load_target(name, detect=False))


def test_machine_code_of_the_text_is_a_command_of_the_description() -> None:
    for name in ("dcu-gfx926", "dcu-gfx928", "dcu-gfx936"):
        target: Any = load_target(name, detect=False)
        for command in target.codegen.source.compile:
            assert f"--offload-arch={name.removeprefix('dcu-')}" in command
