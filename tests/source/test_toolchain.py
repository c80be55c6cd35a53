"""The vendor's compiler as a command: found, missing, failing, slow, cached.  The compilers here are small programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import hwsdk
from hwsdk.codegen.llvm_cache import ObjectCache
from hwsdk.codegen.source import toolchain
from hwsdk.codegen.source.toolchain import compile_sources
from hwsdk.errors import CodegenError, TargetError
from hwsdk.target_desc import Target, load_target
from tests.codegen.compiled import graph_of
from tests.codegen.test_compiler_ops import CASES

COPY = "open(sys.argv[2], 'w').write(open(sys.argv[1]).read().upper())"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(tmp_path / "cache"))


def compiled_by(*commands: tuple[str, ...], probe: tuple[str, ...] = ()) -> Target:
    target = load_target("x86-64-c")
    assert target.codegen.source is not None
    source = replace(target.codegen.source, compile=commands, probe=probe)
    return replace(target, codegen=replace(target.codegen, source=source))


def program(body: str) -> tuple[str, ...]:
    """A compiler that runs this Python."""
    return ("{python}", "-c", f"import os, sys, time; {body}", "{in}", "{out}")


def test_outputs_come_in_order() -> None:
    target = compiled_by(("no-such-cc", "{in}"), program(COPY))
    assert compile_sources([("a", "x y"), ("b", "z")], target) == [b"X Y", b"Z"]


def test_a_missing_compiler_is_one_line_that_says_what_to_install() -> None:
    target = compiled_by(("/opt/vendor/bin/no-such-cc", "{in}"), ("no-such-cc", "{in}"))
    with pytest.raises(TargetError) as caught:
        compile_sources([("a", "")], target)
    assert str(caught.value) == (
        "target x86-64-c is compiled by /opt/vendor/bin/no-such-cc or no-such-cc, which is not installed here:"
        " install it, or put it on PATH"
    )


def test_a_model_for_a_missing_compiler_is_refused_the_same_way() -> None:
    inputs, build, _ = CASES["gather"]
    with pytest.raises(TargetError, match="is compiled by no-such-cc, which is not installed here"):
        hwsdk.compile(graph_of(inputs, build), compiled_by(("no-such-cc", "{in}")))


def test_a_failure_shows_the_first_errors_and_keeps_the_text(tmp_path: Path) -> None:
    body = "print('warning: dull'); print('k.c:3: error: no', *range(3), sep=chr(10)); sys.exit(1)"
    with pytest.raises(CodegenError) as caught:
        compile_sources([("k", "the text"), ("fine", "")], compiled_by(program(body)))
    lines = str(caught.value).splitlines()
    kept = tmp_path / "cache" / "failed" / "k.c"
    assert lines[0] == f"kernel k: {Path(sys.executable).name} failed (its text: {kept}):"
    assert lines[1:5] == ["  k.c:3: error: no", "  0", "  1", "  2"]
    assert kept.read_text() == "the text"


@pytest.mark.parametrize(
    ("body", "why"), [("pass", "wrote no output"), ("sys.exit(3)", "ended with status 3 and no message")]
)
def test_a_compiler_that_says_nothing(body: str, why: str) -> None:
    with pytest.raises(CodegenError, match=why):
        compile_sources([("k", "")], compiled_by(program(body)))


def test_a_compiler_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "TIMEOUT_S", 0.2)
    with pytest.raises(CodegenError, match="took longer than 0 s"):
        compile_sources([("k", "")], compiled_by(program("time.sleep(30)")))


def test_a_result_is_kept_until_text_or_command_or_version_changes(tmp_path: Path) -> None:
    count = tmp_path / "count"
    counted = f"open({str(count)!r}, 'a').write('1'); {COPY}"
    store = ObjectCache(tmp_path / "store")

    def runs(target: Target, text: str = "x") -> int:
        compile_sources([("k", text)], target, store=store)
        return len(count.read_text())

    plain = compiled_by(program(counted))
    assert [runs(plain), runs(plain), runs(plain, "y")] == [1, 1, 2]
    assert runs(compiled_by(program(f"{counted}; 0"))) == 3
    newer = compiled_by(program(counted), probe=(sys.executable, "-c", "print('version 2')"))
    assert [runs(newer), runs(newer)] == [4, 4]


def test_equal_texts_are_compiled_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    target = compiled_by(program(f"open({str(count)!r}, 'a').write('1'); {COPY}"))
    assert compile_sources([("a", "x"), ("b", "x")], target) == [b"X", b"X"]
    assert count.read_text() == "1"


def test_words_of_a_shell_are_words(tmp_path: Path) -> None:
    """An argument is passed as it is: nothing in a description reaches a shell."""
    target = compiled_by((*program(COPY), f"; touch {tmp_path / 'ran'}"))
    assert compile_sources([("k", "x")], target) == [b"X"]
    assert not (tmp_path / "ran").exists()
