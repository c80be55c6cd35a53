"""Objects become loadable code through the linker that the description names; what is missing is one line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hwsdk import api
from hwsdk.codegen.linking import available, link_objects, linker
from hwsdk.errors import CodegenError, TargetError
from hwsdk.frontends import builder as hb
from hwsdk.intrinsics import load_target
from hwsdk.target_desc.model import Target


def with_link(*commands: tuple[str, ...]) -> Target:
    target = load_target("rocm-gfx90a")
    llvm = target.codegen.llvm
    assert llvm is not None
    return replace(target, codegen=replace(target.codegen, llvm=replace(llvm, link=commands)))


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_missing_linker_is_one_line_that_says_what_to_install() -> None:
    target = with_link(("/no/such/ld", "{in}"), ("{python}", "-m", "no_such_package", "ld", "{in}"))
    with pytest.raises(TargetError) as raised:
        linker(target)
    assert str(raised.value) == (
        "target rocm-gfx90a: no linker was found (looked for /no/such/ld, {python} -m no_such_package); "
        "one comes with: pip install no_such_package"
    )


def test_a_model_is_refused_before_anything_is_compiled() -> None:
    m = hb.Model("twice")
    x = m.input("x", "f32", ("n",))
    m.output("y", x + x)
    made = api.compile_stages(m.graph(), with_link(("/no/such/ld", "{in}")))
    with pytest.raises(TargetError, match="no linker was found"):
        api.bundle_of(made)


def test_the_first_that_is_here_is_taken(tmp_path: Path) -> None:
    here = script(tmp_path, 'cp "$2" "$1"')
    target = with_link(("/no/such/ld",), (here, "{out}", "{in}"), (here, "other"))
    assert linker(target) == (here, "{out}", "{in}")
    assert link_objects([("a", b"code"), ("b", b"more")], target, use_cache=False) == [b"code", b"more"]


def test_a_package_counts_as_a_tool() -> None:
    assert available(("{python}", "-m", "pytest"))
    assert not available(("{python}", "-m", "no_such_package"))
    assert available((sys.executable,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "echo 'error: bad relocation' >&2; exit 3",
            "kernel k: the linker .*tool refuses it: error: bad relocation",
        ),
        ("exit 3", "kernel k: the linker .*tool refuses it: exit status 3"),
        ("exit 0", "kernel k: the linker .*tool refuses it: exit status 0"),  # and writes nothing
    ],
)
def test_what_the_linker_refuses(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        link_objects([("k", b"code")], with_link((script(tmp_path, text), "{in}")), use_cache=False)


def test_linked_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(tmp_path / "cache"))
    log = tmp_path / "log"
    tool = script(tmp_path, f'echo run >> {log}; cat "$2" > "$1"')
    target = with_link((tool, "{out}", "{in}"))
    for _ in range(2):
        assert link_objects([("k", b"some code")], target) == [b"some code"]
    assert log.read_text() == "run\n"
    assert link_objects([("k", b"other code")], target) == [b"other code"]
    assert log.read_text() == "run\nrun\n"


def test_objects_of_a_real_linker_are_shared_objects() -> None:
    target = load_target("rocm-gfx90a")
    try:
        linker(target)
    except TargetError:
        pytest.skip("no linker here (pip install ziglang)")
    m = hb.Model("twice")
    x = m.input("x", "f32", ("n",))
    m.output("y", x + x)
    bundle = api.bundle_of(api.compile_stages(m.graph(), target))
    for _, code in bundle.code:
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[16:18], "little") == 3  # a shared object, as the driver loads it
        assert int.from_bytes(code[18:20], "little") == 224  # for the machine that the description means
