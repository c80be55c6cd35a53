"""Mutated descriptions: whatever is in the file, the answer is a list of problems, never a traceback or a hang.

A mutant is a copy of a description with a few edits of its text (bytes, lines, words) or of its words (hostile values).
The seed of a failing mutant is in the test's message; HWSDK_FUZZ_SECONDS makes the run longer.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwsdk.errors import DescriptionError, HwsdkError
from hwsdk.intrinsics import compiled, lint
from hwsdk.intrinsics.emit_llvm import wrapper_function
from hwsdk.intrinsics.emit_source import wrapper_source
from hwsdk.intrinsics.syntax import SemanticsError, parse
from hwsdk.target_desc import load_target
from hwsdk.target_desc.merge import expand_each
from hwsdk.target_desc.nodes import parse as read_text
from tests.target_desc.editing import ROOT, copies

SECONDS = float(os.environ.get("HWSDK_FUZZ_SECONDS", "3"))
FILES = ("simd", "warp", "scalable", "library", "npu")
HOSTILE = (
    "0",
    "-1",
    "1e999",
    "1e308",
    "99999999999999999999999",
    "0x7fffffffffffffff",
    "9223372036854775807",
    "1/0",
    "1/3",
    "unknown",
    "null",
    "true",
    "[]",
    "{}",
    "''",
    '"${t}"',
    "nan",
    ".inf",
    "[[[[]]]]",
    "{a: {b: {c: d}}}",
    "core",
    "f32",
    "*x",
    "&x 1",
    "!!int 3",
    "%n",
    "item = n",
    '"item = n*9223372036854775807*n"',
    '"item = n // (n - n)"',
    '"lane = n; item = lane"',
    '"x[n] = x[n"',
    '"a[] = a[a[]]"',
    '"d[n] = i8(1e9)"',
    "\u00e9",
    "\u2028",
    "<8 x float>",
    "<0 x i8>",
    "999999 x i32",
    "<vscale x 4 x float>",
    "{max: 3}",
    "{min: 9, max: 3, multiple: 7}",
    "2147483648",
)
WORDS = re.compile(r"[A-Za-z0-9_./%$*+<>=-]+")


def mutants(texts: dict[str, str], seed: int) -> Iterator[tuple[int, str, str]]:
    edits: tuple[Callable[[str, random.Random], str], ...] = (byte, line, word, word, hostile, hostile, swap)
    for number in range(seed, seed + 10**9):
        rng = random.Random(number)
        name = rng.choice(FILES)
        text = texts[name]
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            text = rng.choice(edits)(text, rng)
        yield number, name, text


def byte(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice("\t\0:{}[],#&*!|>'\"%@`-\n \x7f\u00ff") + text[at + rng.randrange(2) :]


def line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines[at] = "\n"
        case 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        case 2:
            lines[at] = rng.choice(("  ", "    ", "")) + lines[at].lstrip()
        case _:
            lines = lines[: at + 1]
    return "".join(lines)


def word(text: str, rng: random.Random) -> str:
    found = list(WORDS.finditer(text))
    if not found:
        return text
    one, other = rng.choice(found), rng.choice(found)
    return text[: one.start()] + other.group() + text[one.end() :]


def hostile(text: str, rng: random.Random) -> str:
    found = list(WORDS.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(HOSTILE) + text[one.end() :]


def swap(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r'"[^"\n]*"', text))
    if not found:
        return text
    one = rng.choice(found)
    inner = list(one.group())
    for _ in range(rng.randrange(1, 4)):
        inner.insert(rng.randrange(1, len(inner)), rng.choice("+-*/%^()[]{}=;,.<>nmkabd 019"))
    return text[: one.start()] + "".join(inner) + text[one.end() :]


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    copies(tmp_path)
    return {name: (tmp_path / f"{name}.yaml").read_text() for name in FILES}


def test_mutated_descriptions(texts: dict[str, str], tmp_path: Path) -> None:
    start, count, refused, worst = time.monotonic(), 0, 0, 0.0
    for seed, name, text in mutants(texts, seed=0):
        if time.monotonic() - start > SECONDS:
            break
        path = tmp_path / "mutant.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        began = time.monotonic()
        try:
            problems = lint(path)
            if not problems:
                use(path)
        except Exception as error:
            raise AssertionError(f"mutant {seed} of {name}: {type(error).__name__}: {error}") from error
        worst = max(worst, time.monotonic() - began)
        assert all(p.line >= 1 and p.message and "\n" not in p.message for p in problems), (
            f"mutant {seed} of {name}"
        )
        count, refused = count + 1, refused + bool(problems)
    assert count > 20
    assert refused > count // 4
    assert worst < 20


def use(path: Path) -> None:
    """A description that lint accepts can be loaded and emitted."""
    target = load_target(path)
    for name, x in compiled(target).items():
        if "llvm" in x.spec.emit:
            wrapper_function(target, name, "f")
        elif "source" in x.spec.emit and target.codegen.source is not None:
            try:
                wrapper_source(target, name, "f")
            except SemanticsError as error:
                if "codegen.source.types" not in str(error):
                    raise


def test_mutated_yaml(texts: dict[str, str]) -> None:
    """The loader alone, up to the merged tree."""
    refused = 0
    for number, (seed, name, text) in enumerate(mutants(dict.fromkeys(FILES, texts["simd"]), seed=10**6)):
        if number == 800:
            break
        try:
            expand_each(read_text(text, "mutant.yaml"))
        except DescriptionError as error:
            refused += 1
            bad = [p for p in error.problems if p.line < 1]
            if bad:
                pytest.fail(f"mutant {seed} of {name}: {bad[0]}")
    assert 0 < refused < 800


def test_mutated_programs() -> None:
    """The expression parser alone: thousands of mutants a second."""
    good = re.findall(
        r'semantics: "([^"]*)"|layout: "([^"]*)"', (ROOT / "examples/new_chip/npu.yaml").read_text()
    )
    pool = [a or b for a, b in good]
    rng, refused = random.Random(5), 0
    for _ in range(4000):
        text = list(rng.choice(pool))
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.choice("+-*/%^()[]{}=;,.<>!nmkabd 0123e_")
        try:
            parse("".join(text))
        except SemanticsError:
            refused += 1
    assert 0 < refused < 4000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{a: " * 5_000,
        b"- " * 20_000,
        b"a: " + b"9" * 5_000,
        b"42",
        b"[1, 2]",
        b"a: &x [*x]\n",
        b"? [a]\n: b\n",
        b"hwsdk: 1\nname: x\nextends: ../../../../etc/passwd\n",
        b"%YAML 3.0\n---\na: b\n",
        b"hwsdk: 1\nname: x\nextends: .\n",
        b"a: 'x\n",
        b"a: |\n  " + b"x" * 100_000,
        b'a: "\\ud800"\n',
        b"---\n---\n",
    ],
)
def test_hostile_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    problems = lint(path)
    assert problems
    assert all(p.line >= 1 for p in problems)


def test_not_a_file(tmp_path: Path) -> None:
    assert "cannot read" in lint(tmp_path / "absent.yaml")[0].message
    assert "cannot read" in lint(tmp_path)[0].message
    with pytest.raises(HwsdkError):
        load_target(str(tmp_path / "absent.yaml"))
    with pytest.raises(HwsdkError):
        load_target("no\0name")
