"""Faults planted in PTX text: each is caught, by name and at its line, also where the values come out right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hwsdk.errors import SimulationError
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from tests.targets.ptx import llvm_kernels as kernels
from tests.targets.ptx.harness import compiled, engine, kernel, program
from tests.targets.ptx.test_kernels import multiply

SHARED = ".shared .align 16 .b8 buffer[512];"
#: %r9: a lane's own word of the buffer; %d1: its word of the global array p0 (64 words)
START = """ld.param.u64 %d1, [p0]; mad.wide.u32 %d2, %t, 4, %d1; mov.u32 %r8, buffer; mad.lo.u32 %r9, %t, 4, %r8;
"""


@dataclass(frozen=True)
class Case:
    """body: after START.  kind and words: what the fault must say; text: of the instruction at fault."""

    name: str
    body: str
    kind: FaultKind
    words: str
    text: str = ""
    block: int = 64
    grid: int = 1


CASES = [
    Case(
        "missing barrier",
        "st.shared.u32 [%r9], %t; xor.b32 %r1, %t, 32; mad.lo.u32 %r1, %r1, 4, %r8; ld.shared.u32 %r2, [%r1];",
        FaultKind.RACE,
        r"this lane reads byte 128 of shared buffer .*, which lane \(32, 0, 0\) of block \(0, 0, 0\) writes",
        "ld.shared.u32 %r2, [%r1]",
    ),
    Case(
        "missing barrier before the buffer is used again",
        "st.shared.u32 [%r9], %t; bar.sync 0; xor.b32 %r1, %t, 32; mad.lo.u32 %r1, %r1, 4, %r8; "
        "ld.shared.u32 %r2, [%r1];"
        "st.shared.u32 [%r9], %r2;",
        FaultKind.RACE,
        "this lane writes .* reads",
        "st.shared.u32 [%r9], %r2",
    ),
    Case(
        "lanes of a warp exchange without a warp barrier",
        "st.shared.u32 [%r9], %t; xor.b32 %r1, %t, 1; mad.lo.u32 %r1, %r1, 4, %r8; ld.shared.u32 %r2, [%r1];",
        FaultKind.RACE,
        "this lane reads",
    ),
    Case(
        "all lanes write one word",
        "st.shared.u32 [%r8], 7;",
        FaultKind.RACE,
        "this lane writes .* writes in the same instruction",
    ),
    Case(
        "a plain read beside atomics",
        "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [%r8], 0; bar.sync 0; red.shared.add.u32 [%r8], 1; "
        "ld.shared.u32 %r1, [%r8];",
        FaultKind.RACE,
        "this lane reads .* changes atomically",
    ),
    Case(
        "blocks write the same global words",
        "st.global.u32 [%d2], 5;",
        FaultKind.RACE,
        r"this lane writes byte 0 of array .*, which lane \(0, 0, 0\) of block \(1, 0, 0\) writes",
        grid=2,
    ),
    Case(
        "a block reads what another writes",
        "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%d2], 5; "
        "@!%p1 ld.global.u32 %r2, [%d2];",
        FaultKind.RACE,
        r"reads .* block \(0, 0, 0\) writes",
        grid=2,
    ),
    Case(
        "global memory without a barrier",
        "st.global.u32 [%d2], 5; xor.b32 %r1, %t, 33; mad.wide.u32 %d3, %r1, 4, %d1; ld.global.u32 %r2, [%d3];",
        FaultKind.RACE,
        "this lane reads byte 132 of array",
    ),
    Case(
        "read past coherence of what was written",
        "st.global.u32 [%d2], 5; ld.global.nc.u32 %r2, [%d2];",
        FaultKind.RACE,
        "past coherence",
    ),
    Case(
        "uninitialised shared read",
        "ld.shared.u32 %r1, [%r9];",
        FaultKind.UNINITIALISED,
        "4-byte read of byte 0 of shared buffer",
    ),
    Case(
        "one byte of four is uninitialised",
        "st.shared.u16 [%r9], 1; st.shared.u8 [%r9+2], 1; ld.shared.u32 %r1, [%r9];",
        FaultKind.UNINITIALISED,
        "byte 3 of shared buffer",
    ),
    Case(
        "uninitialised global read",
        "ld.param.u64 %d3, [p1]; ld.global.u32 %r1, [%d3];",
        FaultKind.UNINITIALISED,
        r"byte 0 of fresh \(256 bytes\)",
    ),
    Case(
        "out of bounds by one element",
        "ld.global.u32 %r1, [%d2+4];",
        FaultKind.OUT_OF_BOUNDS,
        r"4-byte read reaches 0 bytes past the end of array \(256 bytes\).*lane \(63, 0, 0\)",
    ),
    Case(
        "missing bounds guard",
        "st.global.u32 [%d2], 1;",
        FaultKind.OUT_OF_BOUNDS,
        "4-byte write reaches 0 bytes past the end of array",
        block=96,
    ),
    Case("before the start", "ld.global.u32 %r1, [%d1+-4];", FaultKind.OUT_OF_BOUNDS, "4 bytes before array"),
    Case(
        "null", "mov.u64 %d3, 0; ld.global.u32 %r1, [%d3];", FaultKind.OUT_OF_BOUNDS, "bytes before|far from"
    ),
    Case(
        "wild",
        "mov.u64 %d3, 0xfffffffffffffff0; ld.global.u32 %r1, [%d3];",
        FaultKind.OUT_OF_BOUNDS,
        "where nothing is allocated",
    ),
    Case(
        "shared out of bounds",
        "st.shared.u32 [%r9+268], 1;",
        FaultKind.OUT_OF_BOUNDS,
        "4-byte write .* of shared",
    ),
    Case(
        "far out of shared memory",
        "st.shared.u32 [%r9+100000], 1;",
        FaultKind.OUT_OF_BOUNDS,
        "which has 512 bytes",
    ),
    Case(
        "misaligned vector",
        "ld.global.v2.u32 {%r1, %r2}, [%d2];",
        FaultKind.MISALIGNED,
        r"8-byte read of global memory at .* is not aligned to 8 .*lane \(1, 0, 0\)",
    ),
    Case("misaligned word", "ld.shared.u32 %r1, [%r9+2];", FaultKind.MISALIGNED, "not aligned to 4"),
    Case(
        "write to an input",
        "ld.param.u64 %d3, [p2]; mad.wide.u32 %d3, %t, 4, %d3; st.global.u32 [%d3], 1;",
        FaultKind.READ_ONLY,
        "4-byte write to byte 0 of constant",
    ),
    Case(
        "write to a parameter",
        "mov.b64 %d3, p0; cvta.param.u64 %d3, %d3; st.u32 [%d3], 1;",
        FaultKind.READ_ONLY,
        "byte 0 of the kernel's parameters",
    ),
    Case(
        "use after free",
        "ld.param.u64 %d3, [p3]; ld.global.u32 %r1, [%d3];",
        FaultKind.USE_AFTER_FREE,
        r"byte 0 of freed \(64 bytes\), which was freed",
    ),
    Case(
        "barrier for some lanes only",
        "setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 0;",
        FaultKind.DIVERGENT_BARRIER,
        "32 lanes of 64 wait at barrier 0, 32 have exited",
        "@%p1 bar.sync 0",
    ),
    Case(
        "two barriers that never meet",
        "setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 1; bra B; A: bar.sync 2; B: mov.u32 %r1, 0;",
        FaultKind.DIVERGENT_BARRIER,
        "32 lanes of 64 wait at barrier .*, 32 wait at another",
    ),
    Case(
        "lanes of a warp arrive at the barrier from two sides",
        "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; "
        "B: mov.u32 %r1, 0;",
        FaultKind.DIVERGENT_BARRIER,
        "lanes of one warp arrive by different instructions",
    ),
    Case(
        "shuffle from an inactive lane",
        "and.b32 %r1, %t, 31; setp.lt.u32 %p1, %r1, 16; @!%p1 exit; shfl.sync.bfly.b32 %r1, %t, 16, 31, -1;",
        FaultKind.INACTIVE_LANE,
        "the value of lane 16 of the warp is read, which is not active",
    ),
    Case(
        "shuffle from a lane outside the mask",
        "and.b32 %r1, %t, 31; setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r1, %t, 16, 31, 0xffff;",
        FaultKind.INACTIVE_LANE,
        "the value of lane 16",
    ),
    Case(
        "members that never come",
        "and.b32 %r1, %t, 31; setp.lt.u32 %p1, %r1, 16; @!%p1 bra W; vote.sync.ballot.b32 %r1, %p1, -1; "
        "W: bar.sync 0;",
        FaultKind.DIVERGED_WARP,
        r"lanes 0\.\.15 of the warp are here, the others wait at a barrier",
    ),
    Case(
        "a lane that is not in its own mask",
        "shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffff;",
        FaultKind.INACTIVE_LANE,
        r"not named by its own mask.*lane \(16, 0, 0\)",
    ),
    Case(
        "matrix product in a part of a warp",
        "setp.lt.u32 %p1, %t, 48; @!%p1 exit; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};",
        FaultKind.DIVERGED_WARP,
        r"lanes 0\.\.15 of the warp are here, the others have exited",
    ),
    Case(
        "matrix load in a block without whole warps",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r8];",
        FaultKind.DIVERGED_WARP,
        "the others do not exist",
        block=16,
    ),
    Case("division by zero", "div.u32 %r1, 5, %t;", FaultKind.DIVISION, "the divisor is 0"),
    Case(
        "late wait",
        "cp.async.ca.shared.global [%r9], [%d2], 4; cp.async.commit_group; ld.shared.u32 %r1, [%r9]; "
        "cp.async.wait_group 0;",
        FaultKind.IN_FLIGHT,
        "4-byte read of byte 0 of shared buffer .* before the wait for the copy",
    ),
    Case(
        "a wait without a commit",
        "cp.async.ca.shared.global [%r9], [%d2], 4; cp.async.wait_group 0; ld.shared.u32 %r1, [%r9];",
        FaultKind.IN_FLIGHT,
        "before the wait",
    ),
    Case(
        "a copied word of another lane without a barrier",
        "cp.async.ca.shared.global [%r9], [%d2], 4; cp.async.wait_all; xor.b32 %r1, %t, 1; "
        "mad.lo.u32 %r1, %r1, 4, %r8;"
        "ld.shared.u32 %r2, [%r1];",
        FaultKind.RACE,
        "this lane reads",
    ),
    Case(
        "the destination of a copy is written",
        "cp.async.ca.shared.global [%r9], [%d2], 4; st.shared.u32 [%r9], 1;",
        FaultKind.IN_FLIGHT,
        "4-byte write of byte 0 of shared buffer",
    ),
    Case(
        "the source of a copy is written",
        "cp.async.ca.shared.global [%r9], [%d2], 4; cp.async.commit_group; st.global.u32 [%d2], 1; "
        "cp.async.wait_group 0;",
        FaultKind.IN_FLIGHT,
        "store to the source of a copy",
    ),
    Case("trap", "trap;", FaultKind.TRAP, "gives up"),
    Case("an endless loop", "A: bra A;", FaultKind.NO_PROGRESS, "still running after"),
]


def launch(case: Case) -> None:
    from hwsdk.sim.simt.chip import Checks

    device = engine(checks=Checks(max_steps=5000))
    args: list[Any] = [device.copy_of(np.zeros(64, np.uint32), "array"), device.allocate(256, "fresh")]
    args.append(device.copy_of(np.zeros(64, np.uint32), "constant", read_only=True))
    args.append(device.copy_of(np.zeros(16, np.uint32), "freed"))
    device.free(args[3])
    device.launch(program(kernel(START + case.body, ["u64"] * 4, SHARED)), case.grid, case.block, args)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fault(case: Case) -> None:
    with pytest.raises(KernelFault) as caught:
        launch(case)
    fault = caught.value
    assert fault.kind is case.kind, str(fault)
    assert re.search(case.words, str(fault)), str(fault)
    assert isinstance(fault, SimulationError)
    assert fault.kernel == "k"
    assert fault.line > 0
    assert fault.block is not None
    if case.text:
        assert fault.text == case.text


REPAIRED = {
    "missing barrier": ("%t; xor", "%t; bar.sync 0; xor"),
    "missing barrier before the buffer is used again": ("%r2, [%r1];", "%r2, [%r1]; bar.sync 0;"),
    "lanes of a warp exchange without a warp barrier": ("%t; xor", "%t; bar.warp.sync -1; xor"),
    "a plain read beside atomics": ("1; ld.shared", "1; bar.sync 0; ld.shared"),
    "global memory without a barrier": ("5; xor", "5; bar.sync 0; xor"),
    "a copied word of another lane without a barrier": ("wait_all;", "wait_all; bar.sync 0;"),
    "late wait": ("commit_group; ld", "commit_group; cp.async.wait_group 0; ld"),
    "the source of a copy is written": ("commit_group; st", "commit_group; cp.async.wait_group 0; st"),
}


@pytest.mark.parametrize("name", list(REPAIRED))
def test_the_repaired_kernel_is_not_accused(name: str) -> None:
    case = next(c for c in CASES if c.name == name)
    old, new = REPAIRED[name]
    assert old in case.body
    launch(Case(name, case.body.replace(old, new), case.kind, ""))


# ------------------------------------------------------------------------------------------------ in a real kernel
@pytest.fixture(scope="module")
def text() -> str:
    return compiled(kernels.gemm("half"))


def broken(text: str, old: str, new: str, count: int = 1) -> str:
    assert old in text, old
    return text.replace(old, new, count)


def test_gemm_without_its_barrier(text: str) -> None:
    with pytest.raises(KernelFault) as caught:
        multiply(broken(text, "bar.sync \t0;", ""), "half", 64, 64, 96)
    assert caught.value.kind is FaultKind.RACE
    assert "ldmatrix" in caught.value.text


def test_gemm_that_waits_for_one_group_too_few(text: str) -> None:
    with pytest.raises(KernelFault) as caught:
        multiply(broken(text, "cp.async.wait_group \t1;", "cp.async.wait_group \t2;"), "half", 64, 64, 96)
    assert caught.value.kind is FaultKind.IN_FLIGHT


def test_gemm_that_fills_the_stage_being_read() -> None:
    """The ring is one stage shorter than the distance at which it is filled."""
    short = kernels.gemm("half")
    found = re.sub(r"(= urem i32 %v\d+), 3", r"\1, 2", re.sub(r"(= urem i32 %i), 3", r"\1, 2", short))
    assert found != short
    with pytest.raises(KernelFault) as caught:
        multiply(compiled(found), "half", 64, 64, 128)
    assert caught.value.kind is FaultKind.IN_FLIGHT  # what is read is already being filled again
    assert "ldmatrix" in caught.value.text


def test_gemm_with_too_little_shared_memory(text: str) -> None:
    with pytest.raises(KernelFault, match="of shared") as caught:
        multiply(text, "half", 64, 64, 96, shared=kernels.STAGES * 2 * kernels.STAGE_BYTES - 16)
    assert caught.value.kind is FaultKind.OUT_OF_BOUNDS
    with pytest.raises(
        KernelFault, match=r"a block needs 200000 bytes of shared memory, the chip has 166912"
    ) as caught:
        multiply(text, "half", 64, 64, 96, shared=200000)
    assert caught.value.kind is FaultKind.LAUNCH


def test_gemm_with_swapped_registers_is_wrong(text: str) -> None:
    """Nothing is forbidden about it, but the values are not those of the product."""
    found = re.search(r"mma\.\S+\s+\{[^}]*\}, \{(%r\d+), (%r\d+), ", text.replace("\n", " "))
    found = found or re.search(r"mma[^;]*?\{[^}]*\},\s*\{\s*(%r\d+),\s*(%r\d+)", text)
    assert found
    a, b = found.groups()
    whole = found.group()
    swapped = (
        whole[: whole.rindex(a)]
        + b
        + whole[whole.rindex(a) + len(a) : whole.rindex(b)]
        + a
        + whole[whole.rindex(b) + len(b) :]
    )
    got, (exact, bound), _ = multiply(broken(text, whole, swapped), "half", 64, 64, 96)
    assert (np.abs(got - exact) > bound).any()


def test_gemm_with_a_swizzle_that_disagrees() -> None:
    """The copies put pieces where the loads do not look for them."""
    good = kernels.gemm("half")
    at = good.index("xor i32")
    wrong = good[:at] + "or i32" + good[at + 7 :]
    with pytest.raises(KernelFault) as caught:
        multiply(compiled(wrong), "half", 64, 64, 96)
    assert caught.value.kind in (FaultKind.RACE, FaultKind.UNINITIALISED)


def test_gemm_without_a_swizzle_costs_bank_conflicts() -> None:
    good = kernels.gemm("half")
    plain = re.sub(r"xor i32 (%v\d+), %v\d+", r"or i32 \1, 0", good)
    got, (exact, bound), stats = multiply(compiled(plain), "half", 64, 64, 96)
    assert (np.abs(got - exact) <= bound).all()
    assert stats.bank_conflicts > 1000


def test_gemm_with_the_wrong_block(text: str) -> None:
    device = engine()
    with pytest.raises(
        KernelFault, match=r"compiled for blocks of \(128, 1, 1\), not \(64, 1, 1\)"
    ) as caught:
        device.launch(program(text, "gemm"), 1, 64, [0, 0, 0, 64, 64, 32], 1024)
    assert caught.value.kind is FaultKind.LAUNCH


def test_a_reduction_for_another_warp_width_is_refused() -> None:
    """A shuffle reduction over 64 lanes on a chip with 32: the first step reads past the warp."""
    wrong = kernels.shuffle_sum().replace("i32 16, i32 31)", "i32 32, i32 31)")
    device = engine()
    a = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    x, out = device.copy_of(a, "a", True), device.allocate(16)
    device.launch(program(compiled(wrong), "sum"), 1, 64, [x, out])
    got = device.read(out, np.float32, 2)
    assert abs(got[0] - a[:32].sum()) > 1e-3  # lane + 32 wraps to the lane itself: half the sum is missing
