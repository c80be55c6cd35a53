"""What the text looks like, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwsdk.codegen.loop_ir import Alloc, Cast, For, Intrin, LoopKernel, Stmt, Sync, View
from hwsdk.codegen.source import source_file
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import sym
from hwsdk.target_desc import Target, load_target
from tests.codegen.loop_words import X, Y, b, buf, c, i, kernel, ld, loop, n, q, st, vec

DOUBLED = kernel((X, Y), ("n",), loop("i", n, st("y", i, b("mul", ld("x", i), c(2.0)))))


def worded(name: str, **words: object) -> Target:
    """A target with other words of its language."""
    target = load_target(name, detect=False)
    assert target.codegen.source is not None
    source = replace(target.codegen.source, **words)  # type: ignore[arg-type]
    return replace(target, codegen=replace(target.codegen, source=source))


def function(text: str, name: str) -> str:
    """One function of a file, as it stands there."""
    start = text.index(f"{name}(")
    start = text.rindex("\n", 0, start) + 1
    return text[start : text.index("\n}\n", start) + 3]


def test_a_kernel_of_a_core() -> None:
    text = source_file([DOUBLED], load_target("x86-64-c"))
    assert text == (
        "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
        "\n"
        "static inline void k_body(const float * restrict x, float * restrict y, int64_t n, int64_t tile) {\n"
        "  for (int64_t i = 0; i < n; ++i) {\n"
        "    y[i] = x[i] * 2.0f;\n"
        "  }\n"
        "}\n"
        "\n"
        "void k(const int64_t *args, int64_t tile, int64_t worker) {\n"
        "  (void)worker;\n"
        "  k_body((const float *)args[0], (float *)args[1], args[2], tile);\n"
        "}\n"
    )


def test_lanes_of_a_vector_read_before_any_writes() -> None:
    body = vec(st("y", q + 1, ld("y", q)))
    text = source_file([kernel((buf("y", 9),), (), body)], load_target("x86-64-c"))
    assert function(text, "k_body") == (
        "static inline void k_body(float * restrict y, int64_t tile) {\n"
        "  float lanes[8];\n"
        "#pragma GCC ivdep\n"
        "  for (int64_t l = 0; l < 8; ++l) {\n"
        "    lanes[l] = y[l];\n"
        "  }\n"
        "#pragma GCC ivdep\n"
        "  for (int64_t l_1 = 0; l_1 < 8; ++l_1) {\n"
        "    y[l_1 + 1] = lanes[l_1];\n"
        "  }\n"
        "}\n"
    )


def test_lanes_that_write_one_element_promise_nothing() -> None:
    text = source_file(
        [kernel((X, buf("y", 1)), ("n",), vec(st("y", 0, ld("x", q))))], load_target("x86-64-c")
    )
    assert "ivdep" not in text


def test_divisions_stand_as_far_out_as_they_are_known() -> None:
    inner = loop("j", n, st("y", i // 3, ld("x", i)))
    text = source_file([kernel((X, Y), ("n",), loop("i", n, inner))], load_target("x86-64-c"))
    lines = [line.strip() for line in function(text, "k_body").splitlines()]
    assert lines[2] == "const int64_t quotient = hw_divide_index(i, 3);"
    assert lines[4] == "y[quotient] = x[i];"


def lane_kernel(*body: Stmt) -> LoopKernel:
    lanes = For("lane", 32, body, "parallel", "lane")
    return kernel((X, Y), ("n",), For("group", n, (lanes,), "parallel", "workgroup"))


def test_a_kernel_of_lanes() -> None:
    lane = sym("lane")
    text = source_file(
        [
            lane_kernel(
                Alloc(buf("r", 1, place="regs")),
                st("r", 0, ld("x", lane)),
                Intrin("shuffle_xor_b32", (("d", View("r", (0,))), ("x", View("r", (0,))), ("s", 16))),
                Sync("barrier"),
                st("y", lane, ld("r", 0)),
            )
        ],
        load_target("cuda-sm80", detect=False),
    )
    assert text[text.index('extern "C"') :] == (
        'extern "C" __global__ void __launch_bounds__(32) k(const float * __restrict__ x, float * __restrict__ y,'
        " long long n) {\n"
        "  const long long group = (long long)blockIdx.x;\n"
        "  const long long lane = (long long)threadIdx.x;\n"
        "  union { float v[1]; int p0[1]; } r;\n"
        "  r.v[0] = x[lane];\n"
        "  r.p0[0] = __shfl_xor_sync(0xffffffffu, r.p0[0], 16 & 31);\n"
        "  __syncthreads();\n"
        "  y[lane] = r.v[0];\n"
        "}\n"
    )


def test_the_description_may_have_its_own_text_for_an_operation() -> None:
    target = worded(
        "x86-64-c", operations={"mul.f32": "chip_mul({0}, {1})", "narrow.f16": "chip_narrow({0})"}
    )
    assert "y[i] = chip_mul(x[i], 2.0f);" in source_file([DOUBLED], target)
    half = kernel((X, buf("y", n, dtype="f16")), ("n",), loop("i", n, st("y", i, Cast("f16", ld("x", i)))))
    text = source_file([half], target)
    assert "static inline uint16_t hw_narrow_f16(float x) { return chip_narrow(x); }" in text
    assert "y[i] = chip_narrow(hw_round_f16(x[i]));" in text


@pytest.mark.parametrize(
    ("words", "body", "why"),
    [
        (
            {"types": {"f32": "float"}},
            st("y", 0, c(1.0)),
            "codegen.source.types of target .* has no entry for i64",
        ),
        (
            {"index": {}},
            st("y", 0, c(1.0)),
            "codegen.source.index of target .* gives no index of level 'workgroup'",
        ),
        ({"scratchpad": ""}, Alloc(buf("s", 4, place="shared")), "needs 128 bytes of scratchpad"),
        ({}, Sync("nothing"), "has no sync 'nothing'"),
        ({}, st("z", 0, c(1.0)), "buffer 'z' is not defined here"),
    ],
)
def test_what_is_missing_is_one_line(words: dict[str, object], body: Stmt, why: str) -> None:
    with pytest.raises(CodegenError, match=why) as caught:
        source_file([lane_kernel(body)], worded("cuda-sm80", **words))
    assert "\n" not in str(caught.value)


def test_an_intrinsic_without_text_is_one_line() -> None:
    rocm, dcu = (load_target(name, detect=False) for name in ("rocm-gfx90a", "dcu-gfx906"))
    use = Intrin("mfma_16x16x4_f32", ())
    with pytest.raises(CodegenError, match="mfma_16x16x4_f32 has no emission for the source route"):
        source_file([lane_kernel(use)], replace(rocm, codegen=dcu.codegen))


def test_a_machine_of_one_instruction_stream_is_refused() -> None:
    target = load_target("x86-64-c")
    target = replace(target, codegen=replace(target.codegen, model="sequential"))
    with pytest.raises(CodegenError, match="not for model sequential"):
        source_file([DOUBLED], target)
