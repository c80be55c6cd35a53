"""Every scalar operation and conversion, on every dtype and on extreme values, as C: exactly the definition."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import Binary, Buffer, Cast, For, Load, LoopKernel, Store, Ternary, Unary, Value
from hwsdk.codegen.source import source_file
from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.dims import sym
from hwsdk.graph.scalar import SCALAR, convert, np_scalar
from tests.codegen.test_llvm_random import contents
from tests.source.c_harness import TILE, c_target, needs_gcc, run_kernel, shared_library

pytestmark = needs_gcc
DTYPES_HERE = "f32 f64 f16 bf16 i64 i32 i16 i8 u64 u32 u16 u8 bool".split()
SIZE = 97
Array = np.ndarray[Any, Any]


def operand(name: str, dtype: str) -> Load:
    return Load(dtype, name, (sym("i"),))


def elementwise(name: str, dtypes: tuple[str, ...], result: str, value: Value) -> LoopKernel:
    params = [Buffer(f"x{k}", d, (SIZE,), "dram") for k, d in enumerate(dtypes)]
    loop = For("i", SIZE, (Store("y", (sym("i"),), value),))
    return LoopKernel(name, (*params, Buffer("y", result, (SIZE,), "dram")), (), (loop,), ("y",))


def operations() -> Iterator[tuple[str, str, LoopKernel]]:
    for op in SCALAR.values():
        for dtype in (d for d in DTYPES_HERE if DTYPES[d].kind in op.kinds):
            result = "bool" if op.result == "bool" else dtype
            operands = [operand(f"x{k}", dtype) for k in range(op.arity)]
            node = {1: Unary, 2: Binary, 3: Ternary}[op.arity]
            value = node(result, op.name, *operands)
            yield op.name, dtype, elementwise(f"op_{op.name}_{dtype}", (dtype,) * op.arity, result, value)


def casts() -> Iterator[tuple[str, str, str, LoopKernel]]:
    for have in DTYPES_HERE:
        for want in DTYPES_HERE:
            modes = ["value"]
            if DTYPES[have].size_bytes == DTYPES[want].size_bytes and "bool" not in (have, want):
                modes.append("bits")
            for mode in modes:
                value = Cast(want, operand("x0", have), mode)
                yield have, want, mode, elementwise(f"cast_{have}_{want}_{mode}", (have,), want, value)


@cache
def library() -> Any:
    """All of them in one file: one run of the compiler."""
    made = [k for *_, k in operations()] + [k for *_, k in casts()]
    return shared_library(source_file(made, c_target()), "-O0")


def computed(kernel: LoopKernel, inputs: list[Array]) -> Array:
    out = np.zeros(SIZE, numpy_dtype(kernel.params[-1].dtype))
    run_kernel(TILE((kernel.name, library())), kernel, c_target(), [*inputs, out], (), 1)
    return out


@pytest.mark.parametrize("dtype", DTYPES_HERE)
def test_operations(dtype: str) -> None:
    for name, own, kernel in operations():
        if own != dtype:
            continue
        inputs = [contents(dtype, SIZE, 7 * k + 1) for k in range(SCALAR[name].arity)]
        with np.errstate(all="ignore"):
            want = np_scalar(name, *inputs)
        got = computed(kernel, inputs)
        if SCALAR[name].inexact or name == "fma":
            close = (
                {"f64": 1e-13, "f32": 2e-6, "f16": 2e-3, "bf16": 1e-2}[dtype]
                if DTYPES[dtype].kind == "f"
                else 0
            )
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(
                    got.astype("f8"), want.astype("f8"), rtol=close, atol=1e-30, err_msg=name
                )
        else:
            np.testing.assert_array_equal(wide(got), wide(want), err_msg=name)


@pytest.mark.parametrize("have", DTYPES_HERE)
def test_conversions(have: str) -> None:
    for own, want, mode, kernel in casts():
        if own != have:
            continue
        x = contents(have, SIZE, 5)
        with np.errstate(all="ignore"):
            expected = x.view(numpy_dtype(want)) if mode == "bits" else convert(x, want)
        np.testing.assert_array_equal(wide(computed(kernel, [x])), wide(expected), err_msg=f"{want} {mode}")


def wide(x: Array) -> Array:
    """NumPy knows that NaN equals NaN only for its own dtypes."""
    return x.astype(np.float32) if x.dtype.kind == "V" or x.dtype == np.float16 else x
