"""Emission from bindings: pieces, constants, computed arguments, tied assembly, renamed temporaries, text."""

from __future__ import annotations

import pytest

from hwsdk.intrinsics import SemanticsError, emit_llvm, emit_source, natural_type
from hwsdk.intrinsics.bindings import parse_argument, parse_piece
from hwsdk.target_desc import load_target
from tests.target_desc.editing import DATA, ROOT


def fresh() -> object:
    numbers = iter(range(1000))
    return lambda: f"%t{next(numbers)}"


def emit(file: str, name: str, **values: str) -> tuple[list[str], dict[str, str]]:
    target = load_target(DATA / f"{file}.yaml", detect=False)
    return emit_llvm(target, name, values, fresh())  # type: ignore[arg-type]


def test_call() -> None:
    lines, out = emit("simd", "fma_f32", acc="%c", a="%a", b="%b")
    assert lines == ["%t0 = call <8 x float> @llvm.fma.v8f32(<8 x float> %a, <8 x float> %b, <8 x float> %c)"]
    assert out == {"acc": "%t0"}


def test_pieces_are_cut_and_joined() -> None:
    lines, out = emit("warp", "mma_m16n8k16_bf16", a="%a", b="%b", c="%c", d="%d")
    assert lines[0] == "%t0 = bitcast <8 x bfloat> %a to <4 x i32>"
    assert lines[1] == "%t1 = extractelement <4 x i32> %t0, i32 0"
    (call,) = (line for line in lines if "llvm.nvvm.mma" in line)
    assert call.count("float") == 4 + 4
    assert lines[-1] == f"{out['d']} = bitcast <4 x i32> %t{int(out['d'][2:]) - 1} to <4 x float>"


def test_constants_and_scalars() -> None:
    lines, _ = emit("warp", "shuffle_xor", x="%x", s="5")
    assert lines == ["%t0 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %x, i32 5, i32 31)"]


def test_computed_arguments_and_tied_assembly() -> None:
    lines, out = emit("warp_group", "wgmma_m64n64k16_bf16", acc="%c", a="@pad", b="@pad2", step="3")
    assert any(line.endswith("ptrtoint ptr addrspace(3) @pad to i64") for line in lines)
    assert any("mul i64 3, 32" in line for line in lines)
    (call,) = (line for line in lines if "asm sideeffect" in line)
    assert ",".join(["=f"] * 32) + "," + ",".join(map(str, range(32))) + ",l,l" in call
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 { $0, $1" in call
    assert (
        natural_type(load_target(DATA / "warp_group.yaml", detect=False), "wgmma_m64n64k16_bf16", "acc")
        == "<32 x float>"
    )
    assert out["acc"].startswith("%t")


def test_runtime_extents_and_scalable_types() -> None:
    lines, _ = emit("scalable", "load_f32", src="%p", n="%n")
    assert lines == [
        "%t0 = call <vscale x 2 x float> @llvm.riscv.vle.nxv2f32.p0.i64(<vscale x 2 x float> poison, ptr %p, i64 %n)"
    ]


def test_temporaries_are_renamed_at_each_use() -> None:
    target = load_target(ROOT / "targets/x86/x86-64-v3.yaml", detect=False)
    names = fresh()
    first, one = emit_llvm(target, "broadcast_f32", {"src": "%p"}, names)  # type: ignore[arg-type]
    second, two = emit_llvm(target, "broadcast_f32", {"src": "%q"}, names)  # type: ignore[arg-type]
    assert first[0] == "%t0 = load float, ptr %p, align 4"
    assert second[0] == "%t3 = load float, ptr %q, align 4"
    assert (one["dst"], two["dst"]) == ("%t2", "%t5")


def test_narrow_scalars_are_widened_for_an_address() -> None:
    target = load_target(ROOT / "targets/x86/x86-64-v4.yaml", detect=False, features=["amx-tile"])
    lines, _ = emit_llvm(target, "tile_store_f32", {"dst": "%c", "src": "%t", "ld": "%ld"}, fresh())  # type: ignore[arg-type]
    assert lines == [
        "%t0 = mul i64 %ld, 4",
        "call void @llvm.x86.tilestored64.internal(i16 16, i16 64, ptr %c, i64 %t0, x86_amx %t)",
    ]
    assert natural_type(target, "tile_store_f32", "src") == "x86_amx"


def test_source_text() -> None:
    target = load_target(ROOT / "examples/new_chip/npu.yaml")
    values = {"acc": "c", "ldc": "16", "a": "a + 4", "lda": "ld", "b": "b", "ldb": "n"}
    assert emit_source(target, "mma_bf16", values) == "npu_mma_bf16(c, 16, a + 4, ld, b, n, 16, 16, 16);"
    with pytest.raises(SemanticsError, match="no value is given for 'n'"):
        emit_source(target, "vadd_f32", {"d": "d", "x": "x", "y": "y"})


def test_what_is_missing_is_said() -> None:
    with pytest.raises(SemanticsError, match="no value is given for 'b'"):
        emit("simd", "fma_f32", acc="%c", a="%a")
    with pytest.raises(SemanticsError, match="has no emission for the route 'llvm'"):
        emit_llvm(load_target(ROOT / "examples/new_chip/npu.yaml"), "vadd_f32", {}, fresh())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "count", "kind", "bits"),
    [
        ("i32", 1, "i32", 32),
        ("4 x i32", 4, "i32", 32),
        ("<16 x bfloat>", 1, "<16 x bfloat>", 256),
        ("ptr", 1, "ptr", None),
        ("2 x <2 x half>", 2, "<2 x half>", 32),
        ("<vscale x 4 x float>", 1, "<vscale x 4 x float>", 128),
        ("i1", 1, "i1", 1),
    ],
)
def test_piece_types(text: str, count: int, kind: str, bits: int | None) -> None:
    piece = parse_piece(text)
    assert (piece.count, piece.type, piece.bits) == (count, kind, bits)


@pytest.mark.parametrize(
    "text", ["", "i0", "int", "<4 x >", "<4 x i32", "4 x", "4 x ptr", "<0 x i8>", "0 x i32", "[4 x i32]"]
)
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(SemanticsError):
        parse_piece(text)


def test_constants() -> None:
    assert parse_argument("<16 x i8> zeroinitializer").constant == "<16 x i8> zeroinitializer"
    with pytest.raises(SemanticsError, match="not a constant"):
        parse_argument("zeroinitializer")
