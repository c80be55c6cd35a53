"""What kernels take is read back from the code that ships."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import static
from hwsdk import api
from hwsdk.errors import CodegenError, TargetError
from hwsdk.frontends import builder as hb
from hwsdk.intrinsics import load_target
from hwsdk.ral_port.resources import Resources, ToolMissing, inspect_code
from hwsdk.targets.cuda import resources as cuda
from hwsdk.targets.gpu import code_object

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k1' for 'sm_80'
ptxas info    : Function properties for k1
    80 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 80 bytes cumulative stack size, 4096 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 6.0 ms
ptxas info    : Compiling entry function 'k2' for 'sm_80'
ptxas info    : Function properties for k2
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cmem[0]
"""
TEXT = ".visible .entry k1(\n\t.param .u64 p\n)\n.reqntid 128, 1, 1\n{\nret;\n}\n.visible .entry k2()\n{\nret;\n}\n"


def test_the_assemblers_words() -> None:
    assert cuda._words(PTXAS, TEXT) == {
        "k1": Resources(255, spill_bytes=24, private_bytes=56, scratch_bytes=4096, lanes=128),
        "k2": Resources(32),
    }
    with pytest.raises(CodegenError, match="the assembler's report is not understood"):
        cuda._words("ptxas info    : Compiling entry function 'k1'\nnew words", "")


def test_instructions_of_the_listing() -> None:
    listing = ".text.k1:\n HMMA.16816.F32 R4, R8, R12 ;\n FFMA R1, R2, R3 ;\n IMMA.16832 R1 ;\n.text.k2:\n IMAD R1 ;"
    assert cuda._matrix_instructions(listing) == {"k1": 2}


def twice(name: str) -> tuple[object, tuple[tuple[str, bytes], ...]]:
    m = hb.Model("twice")
    x = m.input("x", "f32", ("n",))
    m.output("y", x + x)
    made = api.compile_stages(m.graph(), name)
    return made.target, api.bundle_of(made).code


@pytest.mark.parametrize(
    "name", ["cuda-sm75", "cuda-sm80", "cuda-sm90", "cuda-sm100", "rocm-gfx90a", "dcu-gfx906"]
)
def test_kernels_of_every_kind_of_code(name: str) -> None:
    try:
        target, code = twice(name)
        found = inspect_code(target, code)  # type: ignore[arg-type]
    except TargetError as missing:  # a tool
        pytest.skip(str(missing))
    assert found.keys() == {name for name, _ in code}
    for taken in found.values():
        assert 4 <= taken.registers <= 64
        assert taken.spill_bytes == taken.private_bytes == 0
        assert taken.lanes in (64, 128, 256, 512, 1024)


def test_what_cannot_be_read() -> None:
    target = load_target("cuda-sm80")
    none = replace(target, runtime=replace(target.runtime, inspector=""))
    with pytest.raises(TargetError, match=r"cuda-sm80 has no runtime\.inspector"):
        inspect_code(none, ())
    wrong = replace(target, runtime=replace(target.runtime, inspector="hwsdk.targets.cuda.resources:nothing"))
    with pytest.raises(TargetError, match=r"hwsdk\.targets\.cuda\.resources has no function nothing"):
        inspect_code(wrong, ())
    if cuda.tool("ptxas") is None:
        pytest.skip("no ptxas")
    with pytest.raises(CodegenError, match="module k: the assembler refuses it for sm_80: "):
        inspect_code(target, [("k", b".version 7.0\n.target sm_80\n.entry k() { nonsense; }")])


def test_a_missing_assembler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "tool", lambda name: None)
    with pytest.raises(ToolMissing, match="no ptxas on the path and no package with one"):
        cuda.read([("k", b"")], "sm_80")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"text", b"\x7fELF" + bytes(200)])
def test_what_is_no_code_object(data: bytes) -> None:
    pytest.importorskip("elftools")
    pytest.importorskip("msgpack")
    with pytest.raises(CodegenError, match="module k: "):
        code_object.read([("k", data)], "gfx90a")


def test_spills_and_missing_matrix_instructions_are_problems() -> None:
    fine = {"spill_bytes": 0, "planned_matrix": True, "matrix_instructions": 4}
    assert static.problems({"a": fine, "b": {**fine, "matrix_instructions": None}}) == []
    assert static.problems({"a": {**fine, "spill_bytes": 8}, "b": {**fine, "matrix_instructions": 0}}) == [
        "a spills 8 bytes per lane",
        "b was planned for matrix instructions and contains none",
    ]
