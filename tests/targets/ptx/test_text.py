"""What is no PTX, or PTX that is not supported, is one clear error with lines, whatever the text."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from hwsdk.targets.cuda.ptx import Module, PtxError
from tests.targets.ptx import llvm_kernels as kernels
from tests.targets.ptx.harness import HEAD, compiled, engine, kernel


def test_everything_that_is_unknown_is_listed_at_once() -> None:
    text = kernel(
        """mbarrier.inval.b64 [%d1];
        add.u32 %r1, %r2, 3;
        tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [tex, {%r1, %r2}];
        add.rz.f64 %g1, %g2, %g3;
        ld.global.u32.banana %r1, [%d1];
        mul.u32 %r1, %r2, %r3;
        add.u32 %r1, %r2;
        add.u32 %r1, %q7, 1;
        st.global.u64 [%d1], %r1;
        setp.eq.u32 %r1, %r2, 3;
        bra NOWHERE;
        call.uni nothing, ();
        mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1}, {%r2}, {%r3}, {%r4};"""
    )
    with pytest.raises(PtxError) as caught:
        Module.parse(text)
    found = [str(p) for p in caught.value.problems]
    words = [
        "this instruction is not supported: mbarrier.inval.b64 [%d1]",
        "this instruction is not supported: tex.2d",
        ".rz is supported for .f32 only: add.rz.f64",
        ".banana is not a type that is supported here",
        "must say .lo, .hi or .wide: mul.u32",
        "2 operands where 3 belong",
        "%q7 is not declared and no special register",
        "%r1 has 32 bits, u64 has 64",
        "%r1 is .b32, which cannot hold .pred",
        "the label is not in this function: bra NOWHERE",
        "function nothing has no body here",
        "this shape or layout of a matrix product is not supported",
    ]
    assert len(found) == len(words)
    lines = text.split("\n")
    for problem, line, word in zip(caught.value.problems, found, words):
        assert word in line
        assert problem.text.split()[0] in lines[problem.line - 1]


@pytest.mark.parametrize(
    "text,words",
    [
        (".version 7.0\n.target sm_80\n.address_size 32\n", "line 3: only 64-bit addresses"),
        (HEAD + ".entry k() {", "line 4: the text ends in the middle"),
        (HEAD + ".entry k() { add.u32 %r1, [%r2; }", "line 4: expected ']', found ';'"),
        (HEAD + "banana;", "'banana' begins no definition"),
        (HEAD + ".entry k() { .reg .b77 %r<3>; }", "type .b77 is not supported"),
        (HEAD + ".entry k() { .reg .b32 %r<0>; }", "0 registers"),
        (HEAD + ".global .b32 x = y;", "y is no 64-bit address of a variable"),
        (HEAD + ".global .b32 x[2] = {1, 2, 3};", "more values than elements"),
        (HEAD + ".entry k() { § }", "line 4: this begins no word of PTX"),
        (HEAD + ".entry k() {" + "{" * 100, "more than 64 levels of braces"),
        (HEAD + ".entry k() { mov.b32 %r1, " + "{" * 100, "more than 64 levels of braces"),
        (HEAD + ".func f() { call f, (); ret; } .entry k() { call f, (); ret; }", "function f calls itself"),
        (HEAD + ".entry k() { 5; }", "'5' begins no statement"),
        (HEAD + ".global .b8 x[99999999999];", ""),
    ],
)
def test_malformed_text(text: str, words: str) -> None:
    if not words:
        assert Module.parse(text).kernels == {}
        return
    with pytest.raises(PtxError) as caught:
        Module.parse(text)
    assert words in str(caught.value)


def test_comments_lines_and_debugging_facts_are_skipped() -> None:
    text = kernel(
        """/* a comment
        over lines */ .loc 1 5 3
        .pragma "nounroll"; // another
        L: @%p1 bra L;""",
        directives=".maxntid 64, 1, 1\n.minnctapersm 2",
    )
    text = '.file 1 "a.cu"\n' + text + "\n.section .debug_str\n{ .b8 65 }\n"
    found = Module.parse(text).kernels["k"]
    assert found.max_block == (64, 1, 1)
    assert any(s.ending.place.line == text[: text.index("@%p1")].count("\n") + 1 for s in found.segments)


def lines_of_problems(text: str) -> list[int]:
    """None if the text parses; anything but a PtxError gets out."""
    try:
        Module.parse(text)
    except PtxError as problem:
        return [p.line for p in problem.problems]
    return []


@pytest.mark.parametrize("seed", range(3))
def test_damaged_text_never_fails_in_another_way(seed: int) -> None:
    chosen = random.Random(seed)
    whole = compiled(kernels.TREE)
    refused = 0
    for _ in range(40):
        words = re.findall(r"\s+|[\w$%.]+|.", whole)
        for _ in range(chosen.randint(1, 3)):
            at = chosen.randrange(len(words))
            change = chosen.randrange(4)
            if change == 0:
                del words[at]
            elif change == 1:
                words[at] = chosen.choice(words)
            elif change == 2:
                words[at] = chosen.choice(
                    ["-1", "0f123", "{", "}", "[", "%p1", "%rd1", '"', ".v4", "é", "99999999999999999999"]
                )
            else:
                words = words[: at + 1]
        lines = lines_of_problems("".join(words))
        assert min(lines, default=1) >= 1
        refused += bool(lines)
    assert refused > 10


def test_module_facts() -> None:
    module = Module.parse(compiled(kernels.TREE))
    assert module.target == "sm_80"
    assert list(module.kernels) == ["tree"]
    tree = module.kernels["tree"]
    assert tree.block == (256, 1, 1)
    assert [p.size_bytes for p in tree.parameters] == [8, 8]
    assert tree.granule_bytes == 4
    assert [(v.name, v.size_bytes) for v in tree.shared] == [("buffer", 1024)]


def test_launches_from_several_threads_do_not_mix() -> None:
    from concurrent.futures import ThreadPoolExecutor

    tree = Module.parse(compiled(kernels.TREE)).kernels["tree"]
    device = engine()

    def once(seed: int) -> bool:
        a = np.random.default_rng(seed).integers(0, 100, 256).astype(np.float32)
        x, out = device.copy_of(a), device.allocate(4)
        device.launch(tree, 1, 256, [x, out])
        return bool(device.read(out, np.float32, 1)[0] == a.sum())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(once, range(32)))
