"""The object loader: code models, references across objects, the C library; corrupt objects are errors, not
crashes."""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Sequence

import pytest

from tests.ral.tiny import HOST_FOLDER, compile_text

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="native port"
)

if sys.platform == "linux":
    from hwsdk.ral_port.loader import port_module

    elf, link = port_module("elf", HOST_FOLDER), port_module("link", HOST_FOLDER)

A = """
@table = constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@counter = global i64 5
@zeros = internal global [1000 x i64] zeroinitializer
declare i64 @twice(i64)
declare double @sin(double)
define i64 @lookup(i64 %i) {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  %c = load i64, ptr @counter
  %c1 = add i64 %c, 1
  store i64 %c1, ptr @counter
  %z.p = getelementptr i64, ptr @zeros, i64 %i
  %z = load i64, ptr %z.p
  %s.0 = add i64 %v, %c
  %s = add i64 %s.0, %z
  ret i64 %s
}
define i64 @call(i64 %i) {
  %r = call i64 @twice(i64 %i)
  ret i64 %r
}
define double @sine(double %x) {
  %r = call double @sin(double %x)
  ret double %r
}
define i64 @jump(i64 %i) {
entry:
  switch i64 %i, label %other [ i64 0, label %a
                                i64 1, label %b
                                i64 2, label %c
                                i64 3, label %d
                                i64 4, label %e
                                i64 5, label %f ]
a: call void asm sideeffect "nop", ""()
   ret i64 11
b: call void asm sideeffect "nop;nop", ""()
   ret i64 7
c: call void asm sideeffect "nop;nop;nop", ""()
   ret i64 99
d: call void asm sideeffect "", ""()
   ret i64 3
e: call void asm sideeffect "nop;nop;nop;nop", ""()
   ret i64 1234
f: call void asm sideeffect "nop;nop;nop;nop;nop", ""()
   ret i64 5
other:
  ret i64 0
}
"""
B = """
@counter = external global i64
@table = external constant [4 x i64]
define i64 @twice(i64 %x) {
  %c = load i64, ptr @counter
  %y = add i64 %x, %x
  %z = add i64 %y, %c
  ret i64 %z
}
define ptr @where() {
  ret ptr @table
}
"""


def objects(*codes: bytes) -> Sequence[object]:
    return [elf.parse(code, f"object {i}") for i, code in enumerate(codes)]


def function(
    image: object, name: str, result: type = ctypes.c_int64, argument: type = ctypes.c_int64
) -> object:
    return ctypes.CFUNCTYPE(result, argument)(image.symbols[name])  # type: ignore[attr-defined]


@pytest.mark.parametrize("large", [False, True], ids=["small-pic", "large"])
def test_objects_refer_to_each_other(large: bool) -> None:
    image = link.Image(objects(compile_text(A, large), compile_text(B, large)))
    lookup, call = function(image, "lookup"), function(image, "call")
    assert [lookup(0), lookup(1)] == [15, 26]
    assert call(100) == 207
    assert function(image, "sine", ctypes.c_double, ctypes.c_double)(0.5) == pytest.approx(0.479425538604203)
    assert [function(image, "jump")(i) for i in range(7)] == [11, 7, 99, 3, 1234, 5, 0]
    place = ctypes.CFUNCTYPE(ctypes.c_int64)(image.symbols["where"])()
    assert list((ctypes.c_int64 * 4).from_address(place)) == [10, 20, 30, 40]
    image.close()
    image.close()


def test_static_small_code_model() -> None:
    import llvmlite.binding as llvm

    compile_text(A)  # initialises the compiler
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(codemodel="small", reloc="static", opt=2)
    codes = [machine.emit_object(llvm.parse_assembly(text)) for text in (A, B)]
    image = link.Image(objects(*codes))
    assert function(image, "lookup")(2) == 35
    assert [function(image, "jump")(i) for i in range(7)] == [11, 7, 99, 3, 1234, 5, 0]
    image.close()


def test_code_is_not_writable() -> None:
    image = link.Image(objects(compile_text(B), compile_text(A)))
    address = image.symbols["twice"]
    with open("/proc/self/maps") as maps:
        modes = [
            x.split()[1]
            for x in maps
            if int(x.split("-")[0], 16) <= address < int(x.split()[0].split("-")[1], 16)
        ]
    assert modes == ["r-xp"]
    image.close()


def test_undefined_symbol() -> None:
    code = compile_text(
        "declare void @nowhere_to_be_found()\ndefine void @f() {\n  call void @nowhere_to_be_found()\n  ret void\n}"
    )
    with pytest.raises(elf.ElfError, match="undefined symbol 'nowhere_to_be_found'"):
        link.Image(objects(code))


def test_two_definitions() -> None:
    with pytest.raises(elf.ElfError, match="object 1: symbol twice is already defined in object 0"):
        link.Image(objects(compile_text(B), compile_text(B)))


def test_thread_local_is_refused() -> None:
    code = compile_text("@t = thread_local global i64 1\ndefine ptr @f() {\n  ret ptr @t\n}")
    with pytest.raises(elf.ElfError, match="not supported"):
        link.Image(objects(code))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "too short"),
        (b"\x7fELF" + bytes(60), "not a 64-bit"),
        (b"MZ" + bytes(100), "not a 64-bit"),
    ],
)
def test_not_an_object(code: bytes, message: str) -> None:
    with pytest.raises(elf.ElfError, match=message):
        elf.parse(code, "object 0")


def test_truncated_objects() -> None:
    code = compile_text(A)
    for length in range(0, len(code), 37):
        with pytest.raises(elf.ElfError):
            link.Image(objects(code[:length]))


def test_corrupt_objects_never_crash() -> None:
    """Whatever bytes are altered: an error, or an image (its code is not run here)."""
    rng = random.Random(5)
    refused = 0
    for code in (compile_text(A), compile_text(A, True)):
        for _ in range(400):
            broken = bytearray(code)
            for _ in range(rng.choice([1, 1, 2, 8])):
                broken[rng.randrange(len(broken))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                link.Image(objects(bytes(broken), compile_text(B))).close()
            except elf.ElfError:
                refused += 1
    assert refused > 100
