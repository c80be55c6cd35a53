"""Every kernel that the LLVM route is tested with, as C: it does what the machine that defines LoopIR does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.loop_text import print_kernel
from tests.codegen import test_llvm_emit, test_llvm_programs, test_llvm_random
from tests.source.c_harness import agree_c, needs_gcc

pytestmark = needs_gcc
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    ("case", "argument"),
    [
        ("vector_loop_with_a_masked_tail", 31),
        ("vector_loop_with_a_masked_tail", 0),
        ("parallel_loop_takes_the_tile_number", 5),
        ("nested_loops_with_zero_trips", None),
        ("unrolled_loop_sees_constants", None),
        ("broadcast_load_and_reversed_and_strided_lanes", None),
        ("masked_gather_and_scatter", 5),
        ("gather_through_an_index_vector", None),
        ("lane_in_divisions", None),
        ("where_per_lane_and_for_all_lanes", 4),
        ("memory_under_a_false_condition_is_not_touched", None),
        ("strides_and_unaligned_rows", None),
        ("branch_inside_lanes", None),
        ("floor_division_of_negative_numbers", None),
        ("index_operations", None),
        ("division_by_a_dim_outside_a_loop_that_does_not_run", None),
        ("unary_minus_and_abs_of_lanes", None),
        ("buffers_of_one_name_in_different_cases", None),
    ],
)
def test_construct(case: str, argument: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_llvm_emit, "agree", agree_c)
    test = getattr(test_llvm_emit, f"test_{case}")
    test() if argument is None else test(argument)


@FEW
@given(test_llvm_random.kernels(), some.integers(0, 3), some.integers(0, 19), some.integers(0, 1 << 30))
def test_random_kernels(made: tuple[LoopKernel, dict[str, str]], n: int, m: int, seed: int) -> None:
    kernel, dtypes = made
    note(print_kernel(kernel))
    arrays = {
        name: test_llvm_random.contents(dtype, n * m, seed + k)
        for k, (name, dtype) in enumerate(dtypes.items())
    }
    agree_c(kernel, arrays, {"n": n, "m": m})


@FEW
@given(test_llvm_programs.kernels(), some.integers(0, 3), some.integers(0, 1000))
def test_random_programs(kernel: LoopKernel, n: int, seed: int) -> None:
    note(print_kernel(kernel))
    rng = np.random.default_rng(seed)
    arrays = {name: rng.integers(-9, 10, test_llvm_programs.SIZE).astype(np.int32) for name in ("x", "y")}
    agree_c(kernel, arrays, {"n": n})
