"""Loads, stores, vectors, variables, local memory, calls, atomics and asynchronous copies: what arrives where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk.errors import InputError
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from tests.targets.ptx.harness import engine, kernel, program, run


def launch(
    text: str, arrays: list[Any], out_bytes: int, block: int = 32, grid: int = 1, shared: int = 0
) -> Any:
    """The bytes of an output that is the last parameter."""
    device = engine()
    args = [device.copy_of(a) if isinstance(a, np.ndarray) else a for a in arrays]
    out = device.copy_of(np.zeros(out_bytes, np.uint8))
    device.launch(program(text), grid, block, [*args, out], shared)
    return device.copy_out(out, out_bytes)


@pytest.mark.parametrize("kind,dtype", [("u8", "u1"), ("s8", "i1"), ("u16", "u2"), ("s16", "i2")])
def test_narrow_loads_extend(kind: str, dtype: str) -> None:
    values = np.arange(-16, 16).astype(dtype)
    text = kernel(
        f"""ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mad.wide.u32 %d0, %t, {values.itemsize}, %d0;
        mad.wide.u32 %d1, %t, 4, %d1; ld.global.{kind} %r1, [%d0]; st.global.u32 [%d1], %r1;""",
        ["u64", "u64"],
    )
    out = launch(text, [values], 128).view(np.int32 if kind[0] == "s" else np.uint32)
    assert (out == values).all()


@pytest.mark.parametrize("count", [2, 4, 8])
def test_vectors(count: int) -> None:
    values = np.arange(32 * count, dtype=np.uint32)
    registers = ", ".join(f"%r{i + 1}" for i in range(count))
    text = kernel(
        f"""ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mad.wide.u32 %d0, %t, {4 * count}, %d0;
        mad.wide.u32 %d1, %t, {4 * count}, %d1; ld.global.v{count}.b32 {{{registers}}}, [%d0];
        add.u32 %r1, %r1, 1000; st.global.v{count}.b32 [%d1], {{{registers}}};""",
        ["u64", "u64"],
    )
    want = values.copy()
    want[::count] += 1000
    assert (launch(text, [values], values.nbytes).view(np.uint32) == want).all()


def test_parameters_of_all_kinds() -> None:
    text = (
        kernel(
            """ld.param.u64 %d1, [p5]; ld.param.b32 %r1, [p0+4]; ld.param.b8 %h1, [p1];
                ld.param.v2.b32 {%r2, %r3}, [p2];
        mov.b64 %d2, p0; ld.param.b32 %r4, [%d2+8]; cvta.param.u64 %d3, %d2; ld.b32 %r5, [%d3];
        ld.param.f64 %g1, [p3]; ld.param.b16 %h2, [p4]; cvt.u32.u16 %r6, %h1; cvt.u32.u16 %r7, %h2;
        st.global.v4.b32 [%d1], {%r1, %r2, %r3, %r4}; st.global.v4.b32 [%d1+16], {%r5, %r6, %r7, 0};
        st.global.f64 [%d1+32], %g1;""",
            ["align 4 .b8", "u8", "align 8 .b8", "f64", "f16", "u64"],
        )
        .replace("b8 p0", "b8 p0[12]")
        .replace("b8 p2", "b8 p2[8]")
    )
    device = engine()
    out = device.allocate(64)
    args = [np.array([7, 8, 9], np.int32), 200, np.array([1, 2], np.int32), 2.5, 1.0, out]
    device.launch(program(text), 1, 1, args)
    assert device.read(out, np.uint32, 7).tolist() == [8, 1, 2, 9, 7, 200, 0x3C00]
    assert device.read(out + 32, np.float64, 1)[0] == 2.5
    with pytest.raises(InputError, match="p1: 300 does not fit"):
        device.launch(program(text), 1, 1, [args[0], 300, *args[2:]])
    with pytest.raises(InputError, match="6 parameters, not 2"):
        device.launch(program(text), 1, 1, args[:2])
    with pytest.raises(InputError, match="p0: 8 bytes given for 12"):
        device.launch(program(text), 1, 1, [args[2], *args[1:]])


def test_variables_of_the_module_live_between_launches() -> None:
    outside = """.const .align 4 .b32 table[4] = {10, 20, -30};
.global .align 4 .u32 counter = 5;
.global .align 8 .u64 pointer[2] = {counter, generic(table)+4};
.global .f32 half = 0f3F000000;
"""
    text = kernel(
        """ld.param.u64 %d1, [p0]; atom.global.add.u32 %r1, [counter], 2; ld.global.u64 %d2, [pointer+8];
        ld.const.b32 %r2, [table+8]; ld.b32 %r3, [%d2]; ld.global.f32 %r4, [half];
        st.global.v4.b32 [%d1], {%r1, %r2, %r3, %r4};""",
        ["u64"],
        outside,
    )
    device = engine()
    out = device.allocate(16)
    found = program(text)
    for first in (5, 7):
        device.launch(found, 1, 1, [out])
        assert device.read(out, np.int32, 3).tolist() == [first, -30, 20]
        assert device.read(out + 12, np.float32, 1)[0] == 0.5
    other = engine()
    again = other.allocate(16)
    other.launch(found, 1, 1, [again])
    assert other.read(again, np.int32, 1)[0] == 5


def test_local_memory_is_the_lane_s_own() -> None:
    text = kernel(
        """.local .align 16 .b8 depot[64]; mov.u64 %d1, depot; cvta.local.u64 %d2, %d1;
        mad.wide.u32 %d3, %t, 2, %d1; and.b32 %r1, %t, 7; mul.wide.u32 %d4, %r1, 4; add.s64 %d3, %d1, %d4;
        add.s64 %d5, %d2, %d4; st.local.u32 [%d3], %t; ld.u32 %r2, [%d5]; ld.param.u64 %d6, [p0];
        mad.wide.u32 %d6, %t, 4, %d6; st.global.u32 [%d6], %r2;""",
        ["u64"],
    )
    assert launch(text, [], 128).view(np.uint32).tolist() == list(range(32))


def test_generic_addresses_may_differ_by_lane() -> None:
    text = kernel(
        """ld.param.u64 %d1, [p0]; mov.u64 %d2, buffer; cvta.shared.u64 %d2, %d2; cvta.to.shared.u64 %d7, %d2;
        mul.wide.u32 %d3, %t, 4; add.u64 %d2, %d2, %d3; add.u64 %d7, %d7, %d3; add.u64 %d4, %d1, %d3;
        st.shared.u32 [%d7], %t;
        and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; selp.b64 %d5, %d2, %d4, %p1; isspacep.shared %p2, %d5;
        add.u32 %r2, %t, 100; st.u32 [%d5], %r2; ld.shared.u32 %r3, [%d7]; selp.b32 %r5, 1000, 0, %p2;
        add.u32 %r3, %r3, %r5;
        st.global.u32 [%d4+128], %r3;""",
        ["u64"],
        ".shared .align 4 .b8 buffer[128];",
    )
    out = launch(text, [], 256).view(np.uint32)
    lane = np.arange(32)
    assert (out[:32] == np.where(lane % 2 == 1, lane + 100, 0)).all()
    assert (out[32:] == np.where(lane % 2 == 0, lane + 1100, lane)).all()


def test_functions_are_called_with_structures_and_nested() -> None:
    outside = """
.func (.param .b32 r) inner(.param .b32 a)
{ .reg .b32 %x<3>; ld.param.b32 %x1, [a]; mul.lo.u32 %x2, %x1, 3; st.param.b32 [r], %x2; ret; }
.func (.param .align 8 .b8 r[8]) outer(.param .align 8 .b8 s[8])
{ .reg .pred %q; .reg .b32 %x<6>; ld.param.v2.b32 {%x1, %x2}, [s]; setp.gt.u32 %q, %x1, 15; @%q bra OUT;
  { .param .b32 v; .param .b32 w; st.param.b32 [v], %x1; call.uni (w), inner, (v); ld.param.b32 %x1, [w]; }
OUT: add.u32 %x3, %x1, %x2; st.param.v2.b32 [r], {%x3, %x1}; ret; }
"""
    text = kernel(
        """{ .param .align 8 .b8 v[8]; .param .align 8 .b8 w[8]; st.param.b32 [v], %t; st.param.b32 [v+4], 100;
        call.uni (w), outer, (v); ld.param.v2.b32 {%r1, %r2}, [w]; }
        { .param .b32 v; .param .b32 w; st.param.b32 [v], %r2; call (w), inner, (v); ld.param.b32 %r2, [w+0]; }
        ld.param.u64 %d1, [p0]; mad.wide.u32 %d1, %t, 8, %d1; st.global.v2.b32 [%d1], {%r1, %r2};""",
        ["u64"],
        outside,
    )
    out = launch(text, [], 256).view(np.uint32).reshape(32, 2)
    lane = np.arange(32)
    first = np.where(lane > 15, lane, lane * 3)
    assert (out[:, 0] == first + 100).all()
    assert (out[:, 1] == first * 3).all()


INTEGER_CHANGES = {
    "add": lambda old, v: old + v,
    "min": min,
    "max": max,
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "exch": lambda old, v: v,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
}


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("word", list(INTEGER_CHANGES))
def test_atomics_in_the_order_of_lanes(word: str, space: str) -> None:
    rng = np.random.default_rng(3)
    cells, values = rng.integers(0, 5, 64).astype(np.uint32), rng.integers(0, 40, 64).astype(np.uint32)
    kind = "b32" if word in ("and", "or", "xor", "exch") else "u32"
    text = kernel(
        f"""ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; ld.param.u64 %d3, [p2]; mad.wide.u32 %d1, %t, 4, %d1;
        mad.wide.u32 %d2, %t, 4, %d2; ld.global.u32 %r1, [%d1]; ld.global.u32 %r2, [%d2]; mov.u64 %d4, cells;
        setp.lt.u32 %p1, %t, 8; mad.wide.u32 %d5, %t, 4, %d4; @%p1 st.{space}.u32 [%d5], 17; bar.sync 0;
        mad.wide.u32 %d6, %r1, 4, %d4; atom.{space}.{word}.{kind} %r3, [%d6], %r2; bar.sync 0;
        mad.wide.u32 %d7, %t, 4, %d3; st.global.u32 [%d7], %r3; @%p1 ld.{space}.u32 %r4, [%d5];
        @%p1 st.global.u32 [%d7+256], %r4;""",
        ["u64"] * 3,
        f".{space} .align 4 .b8 cells[32];",
    )
    out = launch(text, [cells, values], 288, 64).view(np.uint32)
    state, old = [17] * 8, []
    for c, v in zip(cells.tolist(), values.tolist()):
        old.append(state[c])
        state[c] = INTEGER_CHANGES[word](state[c], v)
    assert out[:64].tolist() == old
    assert out[64:].tolist() == state


@pytest.mark.parametrize("form", ["red", "atom"])
@pytest.mark.parametrize("kind,dtype", [("u32", "u4"), ("f32", "f4"), ("u64", "u8"), ("f64", "f8")])
def test_sums_over_blocks(kind: str, dtype: str, form: str) -> None:
    text = kernel(
        f"""ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; add.u32 %r1, %r1, %t;
            cvt{".rn" if kind[0] == "f" else ""}.{kind}.u32
        %v, %r1; {form}.global.add.{kind} {"%w, " if form == "atom" else ""}[%d1], %v;""",
        ["u64"],
        "",
    ).replace(".reg .b32 %t;", f".reg .b32 %t; .reg .b{kind[1:]} %v, %w;")
    device = engine()
    out = device.copy_of(np.zeros(1, dtype))
    device.launch(program(text), 10, 64, [out])
    assert device.read(out, dtype, 1)[0] == 10 * 63 * 32 + 64 * 45


def test_compare_and_swap() -> None:
    text = kernel("ld.param.u64 %d1, [p0]; atom.global.cas.b32 %r1, [%d1], %t, 99;", ["u64"])
    device = engine()
    out = device.copy_of(np.array([5], np.uint32))
    device.launch(program(text), 1, 32, [out])
    assert device.read(out, np.uint32, 1)[0] == 99


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copies_fill_with_zeros(size: int) -> None:
    source = np.arange(1, 32 * size + 1, dtype=np.int64).astype(np.uint8)
    text = kernel(
        f"""ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; mov.u32 %r1, buffer; mad.lo.u32 %r2, %t, {size}, %r1;
        mad.wide.u32 %d1, %t, {size}, %d1; rem.u32 %r3, %t, {size + 1};
        cp.async.ca.shared.global [%r2], [%d1], {size}, %r3;
        cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; xor.b32 %r4, %t, 1;
        mad.lo.u32 %r4, %r4, {size}, %r1;
        mad.wide.u32 %d2, %t, 4, %d2; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d2], %r5;""",
        ["u64", "u64"],
        f".shared .align 16 .b8 buffer[{32 * size}];",
    )
    out = launch(text, [source], 128).reshape(32, 4)
    for lane in range(32):
        other = lane ^ 1
        row = source[other * size : other * size + size].copy()
        row[other % (size + 1) :] = 0
        assert (out[lane] == row[:4]).all()


def test_groups_arrive_one_by_one() -> None:
    """Three groups in flight; waiting until two are left delivers the first only."""
    body = """ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; mov.u32 %r1, buffer; mad.lo.u32 %r2, %t, 4, %r1;
        mad.wide.u32 %d1, %t, 4, %d1; mad.wide.u32 %d2, %t, 4, %d2;
        cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r2+128], [%d1+128], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r2+256], [%d1+256], 4; cp.async.commit_group;
        cp.async.wait_group 2; ld.shared.u32 %r3, [%r2]; LOAD st.global.u32 [%d2], %r3;"""
    outside = ".shared .align 16 .b8 buffer[384];"
    source = np.arange(96, dtype=np.uint32)
    good = kernel(body.replace("LOAD", ""), ["u64", "u64"], outside)
    assert launch(good, [source], 128).view(np.uint32).tolist() == list(range(32))
    early = kernel(body.replace("LOAD", "ld.shared.u32 %r3, [%r2+128];"), ["u64", "u64"], outside)
    with pytest.raises(KernelFault, match="before the wait for the copy that fills it") as caught:
        launch(early, [source], 128)
    assert caught.value.kind is FaultKind.IN_FLIGHT
    assert caught.value.text == "ld.shared.u32 %r3, [%r2+128]"


def test_sectors_and_bytes_are_counted() -> None:
    device = engine()
    buffer = device.copy_of(np.zeros(4096, np.float32))
    for step, sectors in ((4, 4), (8, 8), (128, 32), (0, 1)):
        text = kernel(
            f"ld.param.u64 %d1, [p0]; mad.wide.u32 %d1, %t, {step}, %d1; ld.global.u32 %r1, [%d1];", ["u64"]
        )
        stats = device.launch(program(text), 3, 64, [buffer])
        space = stats.spaces["global"]
        assert (space.read_bytes, space.accesses, space.transactions) == (3 * 64 * 4, 3 * 64, 3 * 2 * sectors)
        assert stats.instructions["load"] == 2 * 3 * 64
        assert stats.warp_instructions["load"] == 2 * 3 * 2


@pytest.mark.parametrize(
    "size,step,passes",
    [(4, 4, 1), (4, 8, 2), (4, 128, 32), (4, 132, 1), (4, 0, 1), (8, 8, 2), (16, 16, 4), (16, 32, 8)],
)
def test_bank_conflicts_are_counted(size: int, step: int, passes: int) -> None:
    registers = {4: "%r1", 8: "{%r1, %r2}", 16: "{%r1, %r2, %r3, %r4}"}[size]
    vector = {4: "", 8: ".v2", 16: ".v4"}[size]
    if step == 0:
        body = (
            "mov.u32 %r9, buffer; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.b32 [%r9], 0; bar.sync 0; "
            f"ld.shared{vector}.b32 {registers}, [%r9];"
        )
        writes = 1
    else:
        values = registers.replace("%r", "")
        body = f"mov.u32 %r9, buffer; mad.lo.u32 %r9, %t, {step}, %r9; st.shared{vector}.b32 [%r9], {values};"
        writes = 0
    stats = engine().launch(program(kernel(body, [], ".shared .align 16 .b8 buffer[8192];")), 2, 32, [])
    least = max(1, size * 32 // 128)
    assert stats.spaces["shared"].transactions - 2 * writes == 2 * passes
    assert stats.bank_conflicts == 2 * (passes - least)


def test_unread_registers_and_special_ones() -> None:
    outs = run(
        "mov.u32 %o0, %laneid; mov.u32 %o1, %lanemask_lt; mov.u32 %o2, %warpid; mov.u32 %o3, %ntid.x; "
        "mov.u32 %o4, %nctaid.y;",
        [np.zeros(64, np.uint32)],
        [np.uint32] * 5,
    )
    lane = np.arange(64) % 32
    assert (outs[0] == lane).all()
    assert (outs[1] == (np.uint64(1) << lane.astype(np.uint64)) - np.uint64(1)).all()
    assert outs[2].tolist() == [0] * 32 + [1] * 32
    assert set(outs[3].tolist()) == {64}
    assert set(outs[4].tolist()) == {1}
