"""Products of four warps: values against NumPy, and each fence, wait and layout that is left out is named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.targets.cuda.ptx import Module, PtxError
from tests.targets.ptx.harness import engine, kernel

Array = np.ndarray[Any, Any]
STEPS = 4  # products along k: a line of 64 elements
DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
TURNED = 1 << 62


def turned(byte: Array) -> Array:
    """Where the byte of a plain matrix of 128-byte lines lies, as the manual has it: bits 4-6 by bits 7-9."""
    return byte ^ ((byte >> 7 & 7) << 4)


def image_along_k(matrix: Array) -> Array:
    """[rows, 64] elements of two bytes."""
    rows, columns = np.indices(matrix.shape)
    out = np.zeros(matrix.size, matrix.dtype)
    out[turned(rows * 128 + columns * 2) // 2] = matrix
    return out


def image_along_rows(matrix: Array) -> Array:
    """[64, columns]: 16 lines of 64 columns, then the next 64 columns, then the next 16 lines."""
    k, n = np.indices(matrix.shape)
    columns = matrix.shape[1]
    byte = k // 16 * columns * 32 + n // 64 * 2048 + k % 16 * 128 + n % 64 * 2
    out = np.zeros(matrix.size, matrix.dtype)
    out[turned(byte) // 2] = matrix
    return out


def text(columns: int, dtype: str, along_rows: bool = False, groups: int = 1) -> str:
    """Copies A (64 x 64 per group) and B into shared memory, adds STEPS products to the sums in p2."""
    items = columns // 2
    a_bytes, b_bytes = groups * 8192, columns * 128
    sums = [f"%s{i}" for i in range(items)]
    body = [f".reg .f32 %s<{items}>; .reg .b64 %q<8>;"]
    body += ["ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; ld.param.u64 %d3, [p2];"]
    body += ["mov.u64 %d4, buffer;"]
    for at in range(0, a_bytes + b_bytes, 2048 * groups):  # 16 bytes of each lane
        name, start = ("%d1", at) if at < a_bytes else ("%d2", at - a_bytes)
        body += [f"mad.wide.u32 %d5, %t, 16, {name}; mad.wide.u32 %d6, %t, 16, %d4;"]
        body += [f"cp.async.cg.shared.global [%d6+{at}], [%d5+{start}], 16;"]
    body += [f"mad.wide.u32 %d7, %t, {items * 4}, %d3;"]
    body += [f"ld.global.f32 {s}, [%d7+{4 * i}];" for i, s in enumerate(sums)]
    body += [
        "cp.async.wait_all;",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "wgmma.fence.sync.aligned;",
    ]
    body += ["shr.u32 %r1, %t, 7; mad.wide.u32 %d8, %r1, 8192, %d4;"]
    far = 128 << 16 if along_rows else 0
    for step in range(STEPS):
        b_at = a_bytes + (step * columns * 32 if along_rows else step * 32)
        for register, base, at, more in (("%q0", "%d8", step * 32, 0), ("%q1", "%d4", b_at, far)):
            body += [f"add.u64 {register}, {base}, {at}; shr.u64 {register}, {register}, 4;"]
            body += [f"add.u64 {register}, {register}, {TURNED + (64 << 32) + more};"]
        shape = f"m64n{columns}k16.f32.{dtype}.{dtype}"
        body += [
            f"wgmma.mma_async.sync.aligned.{shape} {{{', '.join(sums)}}}, %q0, %q1, 1, 1, 1, 0, {int(along_rows)};"
        ]
    body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "// after"]
    body += [f"st.global.f32 [%d7+{4 * i}], {s};" for i, s in enumerate(sums)]
    return kernel(
        "\n".join(body), ["u64"] * 3, f".shared .align 1024 .b8 buffer[{a_bytes + b_bytes}];"
    ).replace("sm_100", "sm_90a")


def places(columns: int) -> tuple[Array, Array]:
    """(lane, item) of every sum, from the manual's picture: 16 rows a warp, 8 rows of 4 lanes, pairs of columns."""
    m, n = np.indices((64, columns))
    return m // 16 * 32 + m % 8 * 4 + n % 8 // 2, n // 8 * 4 + m % 16 // 8 * 2 + n % 2


def run(ptx: str, columns: int, dtype: str, along_rows: bool = False, groups: int = 1) -> float:
    """Greatest error."""
    rng = np.random.default_rng(columns)
    a = rng.integers(-8, 9, (groups * 64, 64)).astype(DTYPES[dtype])
    b = rng.integers(-8, 9, (columns, 64)).astype(DTYPES[dtype])
    c = rng.integers(-99, 99, (groups, 64, columns)).astype(np.float32)
    lane, item = places(columns)
    sums = np.zeros((groups, 128, columns // 2), np.float32)
    sums[:, lane, item] = c
    e = engine()
    images = (image_along_k(a), image_along_rows(b.T.copy()) if along_rows else image_along_k(b), sums)
    args = [e.copy_of(x.view(np.uint8), f"p{i}", read_only=i < 2) for i, x in enumerate(images)]
    e.launch(Module.parse(ptx).kernels["k"], 1, 128 * groups, args)
    got = e.read(args[2], np.float32, sums.shape)[:, lane, item]
    want = c + (a.astype(np.float64) @ b.astype(np.float64).T).reshape(c.shape)
    return float(np.abs(got - want).max())


@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize(("columns", "dtype", "groups"), [(64, "f16", 1), (128, "bf16", 2), (256, "f16", 1)])
def test_values(columns: int, dtype: str, groups: int, along_rows: bool) -> None:
    assert run(text(columns, dtype, along_rows, groups), columns, dtype, along_rows, groups) == 0


PRODUCT = r"wgmma\.mma_async[^\n]*\n"
WAIT = r"wgmma\.wait_group[^\n]*\n"


@dataclass(frozen=True)
class Case:
    """pattern, new: what is changed in the text.  kind None: the values are wrong."""

    name: str
    pattern: str
    new: str
    kind: FaultKind | None
    words: str = ""


CASES = (
    Case("no wait", WAIT, "", FaultKind.IN_FLIGHT, "is read before the wait"),
    Case("wait for all sets but one", r"wait_group(\S*) 0", r"wait_group\1 1", FaultKind.IN_FLIGHT, "is read before"),
    Case("no commit", r"wgmma\.commit_group[^\n]*\n", "", FaultKind.IN_FLIGHT, "is read before the wait"),
    Case("no fence", r"wgmma\.fence[^\n]*\n", "", FaultKind.UNFENCED, "registers of a product"),
    Case("registers written behind the fence", r"(wgmma\.fence[^\n]*\n)", r"\1 mov.f32 %s3, 0f00000000;\n",
         FaultKind.UNFENCED, "registers of a product"),
    Case("sums written in flight", f"({WAIT})", r"mov.f32 %s3, 0f00000000;\n\1", FaultKind.IN_FLIGHT, "was written"),
    Case("read, then added to again", r"// after", "mov.f32 %f0, %s0;\n" + "again", FaultKind.UNFENCED, "registers of"),
    Case("shared memory not handed over", r"fence\.proxy[^\n]*\n", "", FaultKind.UNFENCED, "without a fence"),
    Case("handed over too early", r"(cp\.async\.wait_all;)\n(fence\.proxy[^\n]*)\n", r"\2\n\1\n", FaultKind.UNFENCED,
         "without a fence"),
    Case("no barrier", r"bar\.sync 0;\n", "", FaultKind.RACE, "reads .* which lane"),
    Case("copy still under way", r"cp\.async\.wait_all;\n", "", FaultKind.IN_FLIGHT, "before the wait for the copy"),
    Case("operand overwritten in flight", f"({WAIT})", r"st.shared.u32 [%d8], %t;\n\1", FaultKind.IN_FLIGHT,
         "before the wait for the product that reads it"),
    Case("operand overwritten after the wait, before a barrier", r"// after", "st.shared.u32 [%d4+8192], %t;",
         FaultKind.RACE, "writes .* reads"),
    Case("another layout", str(TURNED + (64 << 32)), str(64 << 32), FaultKind.OPERAND, "layout 0"),
    Case("lines elsewhere", str(TURNED + (64 << 32)), str(TURNED + (32 << 32)), None),
    Case("a chunk off", r"add\.u64 %q0, %d8, 32;", "add.u64 %q0, %d8, 48;", None),
    Case("lanes disagree", r"add\.u64 %q0, %d8, 32;", "add.u64 %q0, %d8, 32; mad.wide.u32 %q0, %t, 16, %q0;",
         FaultKind.OPERAND, "different operands"),
    Case("one warp is elsewhere", r"(wgmma\.fence)", r"setp.gt.u32 %p1, %t, 95; @%p1 bra away;\n\1",
         FaultKind.DIVERGED_WARP, "have exited"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_planted_fault_is_named(case: Case) -> None:
    plain = text(64, "bf16")
    again = re.findall(PRODUCT, plain)[0]
    changed, count = re.subn(case.pattern, case.new.replace("again", again.replace("\\", "")), plain)
    assert count, case.pattern
    changed = changed.replace("    ret;", "away:\n    ret;") if "away" in changed else changed
    if case.kind is None:
        assert run(changed, 64, "bf16") > 0
        return
    with pytest.raises(KernelFault, match=case.words) as caught:
        run(changed, 64, "bf16")
    assert caught.value.kind is case.kind, str(caught.value)


def test_a_set_may_stay_in_flight_while_the_next_is_started() -> None:
    """Sums of one shape need no fence between sets, and a wait for all but one set frees the operands of the first."""
    plain = text(64, "f16")
    products = re.findall(PRODUCT, plain)
    commit = "wgmma.commit_group.sync.aligned;\n"
    wait = "wgmma.wait_group.sync.aligned 1;\n"
    split = plain.replace(products[2], f"{commit}{products[2]}", 1)
    assert run(split.replace("wgmma.wait_group", f"{wait}wgmma.wait_group"), 64, "f16") == 0
    early = split.replace("wgmma.wait_group", f"{wait}st.shared.u32 [%d8], %t;\nwgmma.wait_group")
    with pytest.raises(
        KernelFault, match="before the wait for the product"
    ):  # the second set reads the same lines
        run(early, 64, "f16")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("m64n64k16.f16.f16.f16", "sums are .f32"),
        ("m64n64k8.f32.tf32.tf32", "shape m64n64k8 is not supported"),
        ("m64n60k16.f32.f16.f16", "shape m64n60k16 is not supported"),
    ],
)
def test_other_products_are_refused_when_the_text_is_read(form: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        Module.parse(text(64, "f16").replace("m64n64k16.f32.f16.f16", form))
