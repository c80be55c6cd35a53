"""Bindings executed: x86 through LLVM on this machine, the made-up accelerator through C text, a library op through
BLAS.

Nothing here knows an instruction: the code comes from the description, the right answer from its semantics.
"""

from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hwsdk.intrinsics import compiled, load_checked
from hwsdk.intrinsics.emit_source import wrapper_source
from hwsdk.intrinsics.trials import make_trial
from hwsdk.intrinsics.verify import failures, run_once, verify_native
from hwsdk.target_desc import load_target
from hwsdk.target_desc.host import host
from tests.target_desc.editing import DATA, ROOT, copies, edit

V3, V4 = (ROOT / "targets" / "x86" / f"x86-64-{level}.yaml" for level in ("v3", "v4"))
NPU = ROOT / "examples" / "new_chip" / "npu.yaml"
X86 = platform.machine() == "x86_64"
OPTIONAL = ["avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16"]

needs_avx2 = pytest.mark.skipif(not (X86 and host().has("avx2", {})), reason="this machine has no AVX2")
needs_avx512 = pytest.mark.skipif(
    not (X86 and host().has("avx512vl", {})), reason="this machine has no AVX-512"
)
needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="there is no C compiler (gcc) on this machine"
)


@needs_avx2
def test_avx2_bindings_mean_what_they_say() -> None:
    verdicts = verify_native(load_checked("x86-64-v3"), rounds=80)
    assert not failures(verdicts)
    assert len(verdicts) >= 25


@needs_avx512
def test_avx512_bindings_mean_what_they_say() -> None:
    assert not failures(verify_native(load_checked("x86-64-v4"), rounds=80))


@pytest.mark.parametrize(
    ("what", "intrinsic", "old", "new"),
    [
        (
            "signedness swapped",
            "dot2_u8i8_i16",
            'a: {dtype: u8, in: vreg, layout: "item = n*2 + k"}, b: {dtype: i8',
            'a: {dtype: i8, in: vreg, layout: "item = n*2 + k"}, b: {dtype: u8',
        ),
        (
            "items in another order",
            "dot2_i16_i32",
            'a: {dtype: i16, in: vreg, layout: "item = n*2 + k"}',
            'a: {dtype: i16, in: vreg, layout: "item = n*2 + 1 - k"}',
        ),
        ("saturation that is not there", "dot2_u8i8_i16", "i16.sat(sum", "i16(sum"),
        (
            "mask polarity",
            "masked_load_f32",
            "select(mask[n] < 0, src[n], 0)",
            "select(not (mask[n] < 0), src[n], 0)",
        ),
        ("rounded twice", "fma_f32", "rounding: fused", "rounding: each"),
        ("rounded twice in f64", "fma_f64", "rounding: fused", "rounding: each"),
        ("f16 read as bf16", "widen_f16_f32", "x: {dtype: f16, in: vreg}}", "x: {dtype: bf16, in: vreg}}"),
        (
            "arguments in the wrong order",
            "store_f32",
            '%src, ptr %dst, align ${b}"',
            'zeroinitializer, ptr %dst, align ${b}"',
        ),
        ("wrong instruction", "narrow_f32_f16", "d[n] = f16(x[n])", "d[n] = f16(x[n] + x[n])"),
    ],
)
@needs_avx2
def test_untrue_descriptions_are_caught_by_running(
    what: str, intrinsic: str, old: str, new: str, tmp_path: Path
) -> None:
    path, _ = edit(copies(tmp_path), "x86-64-v3", old, new)
    assert verify_native(load_target(path), [intrinsic], rounds=40)[intrinsic] is not None, what


# -------------------------------------------------------------------------------------------------- tile registers
def test_tiles_compile_to_tile_instructions() -> None:
    """Few machines have the tile unit; the chain zero, load, dot, store must at least select its instructions."""
    from tests.intrinsics.tiles import assembly

    text = assembly(str(V4), OPTIONAL)
    for instruction in ("tileloadd", "tdpbssd", "tdpbf16ps", "tilestored", "ldtilecfg"):
        assert instruction in text, instruction


# ------------------------------------------------------------------------------------------------------- source route
@needs_gcc
def test_accelerator_bindings_through_c_text(tmp_path: Path) -> None:
    target = load_checked(NPU)
    assert target.codegen.source is not None
    functions = {name: wrapper_source(target, name, name)[0] for name in target.intrinsics}
    (tmp_path / "k.c").write_text(target.codegen.source.prologue + "\n" + "\n".join(functions.values()))
    command = [
        "gcc",
        "-O1",
        "-ffp-contract=off",
        "-w",
        "-shared",
        "-fPIC",
        f"-I{Path(__file__).parent / 'data'}",
    ]
    subprocess.run(
        [*command, "-o", str(tmp_path / "k.so"), str(tmp_path / "k.c"), "-lm"],
        check=True,
        capture_output=True,
    )
    library, rng = ctypes.CDLL(str(tmp_path / "k.so")), np.random.default_rng(5)
    for name, x in compiled(target).items():
        function = getattr(library, name)

        def call(*addresses: int, run: object = function) -> None:
            run((ctypes.c_void_p * len(addresses))(*addresses))  # type: ignore[operator]

        for number in range(12):
            assert run_once(make_trial(x, rng), call) is None, f"{name} in round {number}"


def test_library_op_through_its_symbol() -> None:
    """A vendor library op is called from its binding alone; here BLAS in the wheel of NumPy."""
    x = compiled(load_target(DATA / "library.yaml", detect=False))["gemm_f32"]
    form = x.spec.emit["library"]
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    found = glob.glob(os.path.join(folder, form["file"].replace(".so", "*.so")))
    if not found:
        pytest.skip("this NumPy brings no BLAS library of its own")
    function, rng = getattr(ctypes.CDLL(found[0]), form["symbol"], None), np.random.default_rng(1)
    if function is None:
        pytest.skip(f"the library has no symbol {form['symbol']}")
    types = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "float": ctypes.c_float, "ptr": ctypes.c_void_p}
    for _ in range(10):
        trial, args = make_trial(x, rng), []
        buffers = {n: ctypes.create_string_buffer(trial.image(n), len(trial.image(n))) for n in "abc"}
        for entry in form["args"]:
            if isinstance(entry, str):
                kind, value = entry.split()
                args.append(types[kind](float(value) if kind == "float" else int(value)))
                continue
            ((name, kind),) = entry.items()
            address = ctypes.addressof(buffers[name]) if kind == "ptr" else None
            args.append(
                types[kind](
                    address if address is not None else trial.dims.get(name, int(trial.logical.get(name, 0)))
                )
            )
        function(*args)
        assert trial.wrong("c", buffers["c"].raw) is None
    assert re.search("k", " ".join(x.dims))
