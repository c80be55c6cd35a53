"""Shuffles, votes, matches, elections, matrix products and their fragments; divergence and reconvergence."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.sim.simt.faults import FaultKind, KernelFault
from tests.targets.ptx.harness import engine, kernel, program, run

ALL = 0xFFFFFFFF


def shuffle_source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The manual's pseudocode, one lane at a time."""
    b, mask, clamp = b & 31, c >> 8 & 31, c & 31
    limit = (lane & mask) | (clamp & ~mask & 31)
    if mode == "up":
        return (lane - b, True) if lane - b >= limit else (lane, False)
    target = {"down": lane + b, "bfly": lane ^ b, "idx": (lane & mask) | (b & ~mask & 31)}[mode]
    return (target, True) if target <= limit else (lane, False)


@given(
    st.sampled_from(["up", "down", "bfly", "idx"]),
    st.integers(0, 31),
    st.sampled_from([(32, 31), (16, 31), (8, 31), (4, 31), (32, 12)]),
)
@settings(max_examples=40, deadline=None)
def test_shuffles(mode: str, amount: int, form: tuple[int, int]) -> None:
    width, clamp = form
    c = (32 - width) << 8 | (0 if mode == "up" and clamp == 31 else clamp)
    (out, inside) = run(
        f"mov.u32 %r1, {amount}; add.u32 %r2, %i0, 100; shfl.sync.{mode}.b32 %o0|%p1, %r2, %r1, {c}, -1; "
        f"selp.b32 %o1, 1, 0, %p1;",
        [np.arange(64, dtype=np.uint32)],
        [np.uint32, np.uint32],
    )
    for lane in range(64):
        source, valid = shuffle_source(mode, lane % 32, amount, c)
        assert out[lane] == lane // 32 * 32 + source + 100
        assert bool(inside[lane]) == valid


def test_each_lane_may_choose_its_source() -> None:
    (out,) = run(
        "mul.lo.u32 %r1, %i0, 7; shfl.sync.idx.b32 %o0, %i0, %r1, 31, -1;",
        [np.arange(32, dtype=np.uint32)],
        [np.uint32],
    )
    assert out.tolist() == [lane * 7 % 32 for lane in range(32)]


def test_votes_and_matches() -> None:
    values = np.array([(i * 5) % 3 for i in range(64)], np.uint32)
    outs = run(
        """setp.eq.u32 %p1, %i0, 1; vote.sync.ballot.b32 %o0, %p1, -1; vote.sync.any.pred %p2, %p1, -1;
        vote.sync.all.pred %p3, %p1, -1; setp.lt.u32 %p5, %i0, 9; vote.sync.uni.pred %p4, %p5, -1;
        match.any.sync.b32 %o1, %i0, -1;
        match.all.sync.b32 %o2|%p6, %i0, -1; elect.sync %o3|%p7, -1; activemask.b32 %o4;
        selp.b32 %o5, 1, 0, %p2; selp.b32 %o6, 1, 0, %p3; selp.b32 %o7, 1, 0, %p4; selp.b32 %o8, 1, 0, %p7;
        redux.sync.add.u32 %o9, %i0, -1;""",
        [values],
        [np.uint32] * 10,
    )
    for lane in range(64):
        row = values[lane // 32 * 32 :][:32]
        assert outs[0][lane] == sum(1 << i for i in range(32) if row[i] == 1)
        assert outs[1][lane] == sum(1 << i for i in range(32) if row[i] == values[lane])
        assert (outs[2][lane], outs[3][lane], outs[4][lane]) == (0, 0, ALL)
        assert [int(o[lane]) for o in outs[5:9]] == [1, 0, 1, int(lane % 32 == 0)]
        assert outs[9][lane] == row.sum()


def test_lanes_meet_again_after_loops_of_different_length() -> None:
    """Every lane loops its own number of times; the shuffle behind needs them all."""
    (out,) = run(
        """mov.u32 %r1, 0; mov.u32 %r2, 0;
        AGAIN: setp.ge.u32 %p1, %r1, %i0; @%p1 bra DONE; add.u32 %r2, %r2, %r1; add.u32 %r1, %r1, 1; bra AGAIN;
        DONE: shfl.sync.bfly.b32 %o0, %r2, 1, 31, -1;""",
        [np.arange(64, dtype=np.uint32)],
        [np.uint32],
    )
    assert out.tolist() == [sum(range(lane ^ 1)) for lane in range(64)]


def test_members_that_come_from_behind_are_waited_for() -> None:
    """The block with the vote stands before the block where odd lanes come from."""
    (out,) = run(
        """and.b32 %r1, %i0, 1; setp.eq.u32 %p1, %r1, 1; mov.u32 %r3, 0; bra START;
        MEET: vote.sync.ballot.b32 %o0, %p1, -1; bra END;
        START: @%p1 bra ODD; bra MEET;
        ODD: add.u32 %r3, %r3, 1; bra MEET;
        END: add.u32 %r3, %r3, 0;""",
        [np.arange(32, dtype=np.uint32)],
        [np.uint32],
    )
    assert set(out.tolist()) == {0xAAAAAAAA}


def test_halves_of_a_warp_meet_separately() -> None:
    (out,) = run(
        """setp.lt.u32 %p1, %i0, 16; @%p1 bra LOW; shfl.sync.down.b32 %o0, %i0, 1, 31, 0xffff0000; bra END;
        LOW: shfl.sync.bfly.b32 %o0, %i0, 1, 31, 0xffff; END: mov.u32 %r1, 0;""",
        [np.arange(32, dtype=np.uint32)],
        [np.uint32],
    )
    assert out.tolist() == [i ^ 1 for i in range(16)] + [min(i + 1, 31) for i in range(16, 32)]


def test_switch_and_early_exit() -> None:
    text = kernel(
        """ld.param.u64 %d1, [p0]; setp.ge.u32 %p1, %t, 40; @%p1 exit; and.b32 %r1, %t, 3;
        TABLE: .branchtargets A, B, C, A; brx.idx %r1, TABLE;
        A: mov.u32 %r2, 10; bra END; B: mov.u32 %r2, 20; bra END; C: mov.u32 %r2, 30;
        END: mad.wide.u32 %d1, %t, 4, %d1; st.global.u32 [%d1], %r2;""",
        ["u64"],
    )
    device = engine()
    out = device.copy_of(np.zeros(64, np.uint32))
    device.launch(program(text), 1, 64, [out])
    want = [(10, 20, 30, 10)[i % 4] if i < 40 else 0 for i in range(64)]
    assert device.read(out, np.uint32, 64).tolist() == want
    outside = text.replace("A, B, C, A", "A, B, C")
    with pytest.raises(KernelFault, match="index 3 into a table of 3") as caught:
        device.launch(program(outside), 1, 64, [out])
    assert caught.value.kind is FaultKind.BRANCH


def test_blocks_that_are_no_multiple_of_the_warp() -> None:
    text = kernel(
        """ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %t;
        mov.u32 %r4, buffer; mad.lo.u32 %r5, %t, 4, %r4; st.shared.u32 [%r5], %r1; bar.sync 0; xor.b32 %r6, %t, 1;
        min.u32 %r6, %r6, 40; mad.lo.u32 %r6, %r6, 4, %r4; ld.shared.u32 %r7, [%r6]; mad.wide.u32 %d1, %r1, 4, %d1;
        st.global.u32 [%d1], %r7;""",
        ["u64"],
        ".shared .align 4 .b8 buffer[164];",
    )
    device = engine()
    out = device.allocate(4 * 41 * 300)
    device.launch(program(text), 300, 41, [out])
    lane = np.arange(41)
    want = (np.arange(300)[:, None] * 41 + np.minimum(lane ^ 1, 40)).reshape(-1)
    assert (device.read(out, np.uint32, 41 * 300) == want).all()


def test_three_dimensions() -> None:
    text = kernel(
        """ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.y;
            mov.u32 %r4, %ctaid.z;
        mov.u32 %r5, %ctaid.x; mad.lo.u32 %r6, %r2, 3, %r1; mad.lo.u32 %r6, %r6, 4, %t; mad.lo.u32 %r7, %r4, 2, %r3;
        mad.lo.u32 %r7, %r7, 5, %r5; mad.lo.u32 %r8, %r7, 24, %r6; mad.wide.u32 %d1, %r8, 4, %d1;
        st.global.u32 [%d1], %r8;""",
        ["u64"],
    )
    device = engine()
    out = device.allocate(4 * 24 * 30)
    device.launch(program(text), (5, 2, 3), (4, 3, 2), [out])
    assert (device.read(out, np.uint32, 720) == np.arange(720)).all()


def test_named_barriers_join_parts_of_a_block() -> None:
    """Warps 0 and 1 hand over through barrier 1 (64 lanes) while warp 2 does not come."""
    text = kernel(
        """ld.param.u64 %d1, [p0]; mov.u32 %r4, buffer; setp.ge.u32 %p2, %t, 64; @%p2 bra END;
            setp.ge.u32 %p1, %t, 32;
        and.b32 %r5, %t, 31; mad.lo.u32 %r5, %r5, 4, %r4; @%p1 bra TAKE; st.shared.u32 [%r5], %t;
        barrier.cta.arrive.aligned 1, 64; bra END;
        TAKE: barrier.cta.sync.aligned 1, 64; ld.shared.u32 %r6, [%r5]; mad.wide.u32 %d1, %t, 4, %d1;
        st.global.u32 [%d1], %r6;
        END: mov.u32 %r1, 0;""",
        ["u64"],
        ".shared .align 4 .b8 buffer[128];",
    )
    device = engine()
    out = device.copy_of(np.zeros(96, np.uint32))
    device.launch(program(text), 1, 96, [out])
    assert device.read(out, np.uint32, 96)[32:64].tolist() == list(range(32))


def test_a_lock_is_passed_on() -> None:
    """Lanes of one warp take turns; whoever holds the lock stands behind those that spin."""
    text = kernel(
        """ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1];
        SPIN: atom.global.cas.b32 %r1, [%d1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra SPIN;
        ld.volatile.global.u32 %r2, [%d2]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%d2], %r2; membar.gl;
        atom.global.exch.b32 %r1, [%d1], 0;""",
        ["u64", "u64"],
    )
    device = engine()
    lock, count = (device.copy_of(np.zeros(1, np.uint32)) for _ in range(2))
    device.launch(program(text), 1, 8, [lock, count])
    assert device.read(count, np.uint32, 1)[0] == 8


# ------------------------------------------------------------------------------------------------ matrices
def product_text(shape: str, types: str, counts: tuple[int, int, int], kind: str) -> str:
    """Every lane loads its registers of a, b, c from memory, lane by lane, and stores d the same way."""
    a, b, c = counts
    wide = 8 if kind == "f64" else 4
    letter = {8: "%m", 4: "%s"}[wide]
    lines = [f".reg .b64 %m<{a + b + 2 * c}>; .reg .b32 %s<{a + b + 2 * c}>;"]
    at = 0
    for number, count in enumerate((a, b, c)):
        lines.append(f"ld.param.u64 %d1, [p{number}]; mad.wide.u32 %d1, %t, {count * wide}, %d1;")
        lines += [f"ld.global.b{wide * 8} {letter}{at + i}, [%d1+{i * wide}];" for i in range(count)]
        at += count

    def names(start: int, count: int) -> str:
        return "{" + ", ".join(f"{letter}{start + i}" for i in range(count)) + "}"

    lines.append(
        f"mma.sync.aligned.{shape}.row.col.{types} {names(at, c)}, {names(0, a)}, {names(a, b)}, {names(a + b, c)};"
    )
    lines.append(f"ld.param.u64 %d1, [p3]; mad.wide.u32 %d1, %t, {c * wide}, %d1;")
    lines += [f"st.global.b{wide * 8} [%d1+{i * wide}], {letter}{at + i};" for i in range(c)]
    return kernel("\n".join(lines), ["u64"] * 4)


def a_place(m: int, k: int, e: int, lane: int, item: int) -> tuple[int, int]:
    """The manual's formulas for A, case by case.  e: bits of an element."""
    group, thread = lane >> 2, lane % 4
    if e == 64:
        return group, thread
    if e == 32:  # tf32
        row = group if item in (0, 2) else group + 8
        return row, thread + (4 if item >= 2 else 0)
    if e == 16:
        row = group if item in (0, 1, 4, 5) else group + 8
        return row, thread * 2 + (item & 1) + (8 if item >= 4 else 0)
    if m == 8:
        return group, thread * 4 + item
    if k == 16:
        return (group if item < 4 else group + 8), thread * 4 + (item & 3)
    row = group if item < 4 or 8 <= item < 12 else group + 8
    return row, thread * 4 + (item & 3) + (16 if item >= 8 else 0)


def b_place(k: int, e: int, lane: int, item: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    if e == 64:
        return thread, group
    if e == 32:
        return thread + 4 * item, group
    if e == 16:
        return thread * 2 + (item & 1) + (8 if item >= 2 else 0), group
    return thread * 4 + (item & 3) + (16 if item >= 4 else 0), group


def c_place(lane: int, item: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if item >= 2 else 0), (lane % 4) * 2 + (item & 1)


CASES = [
    ("m16n8k8", "f32.f16.f16.f32", np.float16, np.float16),
    ("m16n8k16", "f32.f16.f16.f32", np.float16, np.float16),
    ("m16n8k16", "f16.f16.f16.f16", np.float16, np.float16),
    ("m16n8k8", "f32.bf16.bf16.f32", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("m16n8k16", "f32.bf16.bf16.f32", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ("m16n8k4", "f32.tf32.tf32.f32", np.float32, np.float32),
    ("m16n8k8", "f32.tf32.tf32.f32", np.float32, np.float32),
    ("m16n8k16", "s32.s8.s8.s32", np.int8, np.int8),
    ("m16n8k32", "s32.s8.u8.s32", np.int8, np.uint8),
    ("m16n8k32", "satfinite.s32.u8.u8.s32", np.uint8, np.uint8),
    ("m8n8k16", "s32.u8.s8.s32", np.uint8, np.int8),
    ("m16n8k32", "f32.e4m3.e5m2.f32", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    ("m8n8k4", "f64.f64.f64.f64", np.float64, np.float64),
]


@pytest.mark.parametrize("shape,types,left,right", CASES)
def test_matrix_products(shape: str, types: str, left: Any, right: Any) -> None:
    m, n, k = (int(x) for x in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    rng = np.random.default_rng(11)
    result = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "f64": np.float64}[types.split(".")[-1]]

    def random(dtype: Any, *sizes: int) -> np.ndarray:
        kind = np.dtype(dtype)
        if kind.kind in "iu":
            return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, sizes, endpoint=True).astype(kind)
        values = rng.standard_normal(sizes).astype(kind)
        if "tf32" in types and kind == np.float32:
            values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return values

    warps = 2
    a, b = random(left, warps, m, k), random(right, warps, k, n)
    c = (
        rng.standard_normal((warps, m, n)).astype(result)
        if result != np.int32
        else random(np.int32, warps, m, n) // 4
    )
    e = np.dtype(left).itemsize * 8
    items = (m * k // 32, k * n // 32, m * n // 32)
    inputs = []
    for matrix, count, place in (
        (a, items[0], lambda lane, i: a_place(m, k, e, lane, i)),
        (b, items[1], lambda lane, i: b_place(k, e, lane, i)),
        (c, items[2], c_place),
    ):
        lanes = [(w, lane) for w in range(warps) for lane in range(32)]
        rows = [[matrix[(w, *place(lane, i))] for i in range(count)] for w, lane in lanes]
        inputs.append(np.array(rows, matrix.dtype))
    wide = 8 if e == 64 else 4
    counts = tuple(x[0].nbytes // wide for x in inputs)
    device = engine()
    args = [device.copy_of(x.view(np.uint8)) for x in inputs]
    out = device.allocate(inputs[2].nbytes)
    device.launch(
        program(product_text(shape, types, counts, "f64" if e == 64 else "")), 1, 32 * warps, [*args, out]
    )
    got = device.read(out, result, (warps, 32, items[2]))
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    if "satfinite" in types:
        exact = np.clip(exact, -(2**31), 2**31 - 1)
    for w in range(warps):
        for lane in range(32):
            for i in range(items[2]):
                want = exact[(w, *c_place(lane, i))]
                if result == np.int32:
                    assert got[w, lane, i] == np.int64(want).astype(np.int32)
                else:  # one rounding, and sums of k products in float64
                    assert abs(got[w, lane, i] - want) <= np.finfo(result).eps * max(1.0, abs(want))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_from_and_to_shared_memory(count: int, transposed: bool) -> None:
    """ldmatrix: lane l gets row l / 4, elements 2 (l % 4) and the next, of each matrix; stmatrix is its inverse."""
    source = np.random.default_rng(2).integers(0, 65536, (count, 8, 8)).astype(np.uint16)
    registers = "{" + ", ".join(f"%r{20 + i}" for i in range(count)) + "}"
    trans = ".trans" if transposed else ""
    text = kernel(
        f"""ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; mov.u32 %r1, buffer; setp.lt.u32 %p1, %t, {8 * count};
        mad.wide.u32 %d3, %t, 16, %d1; mad.lo.u32 %r2, %t, 48, %r1; add.u32 %r9, %r2, 2048;
        @!%p1 mov.u32 %r2, %r1; @!%p1 add.u32 %r9, %r1, 2048;
        @%p1 ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d3];
        @%p1 st.shared.v4.b32 [%r2], {{%r3, %r4, %r5, %r6}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [%r2];
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r9], {registers}; bar.sync 0;
        mad.wide.u32 %d2, %t, {4 * count}, %d2;
        {"".join(f"st.global.b32 [%d2+{4 * i}], %r{20 + i};" for i in range(count))}
        @%p1 ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r9]; mad.wide.u32 %d4, %t, 16, %d1;
        @%p1 st.global.v4.b32 [%d4+{16 * 8 * count}], {{%r3, %r4, %r5, %r6}};""",
        ["u64", "u64"],
        ".shared .align 128 .b8 buffer[4096];",
    )
    device = engine()
    memory = device.copy_of(np.concatenate([source.reshape(-1), np.zeros(64 * count, np.uint16)]))
    out = device.allocate(32 * 4 * count)
    device.launch(program(text), 1, 32, [memory, out])
    got = device.read(out, np.uint16, (32, count, 2))
    for lane in range(32):
        for i in range(count):
            part = source[i].T if transposed else source[i]
            assert got[lane, i].tolist() == part[lane // 4, 2 * (lane % 4) :][:2].tolist()
    assert (device.read(memory + source.nbytes, np.uint16, source.shape) == source).all()
