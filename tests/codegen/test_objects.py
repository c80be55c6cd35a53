"""Objects: worker processes that may die, the cache on disk, bad targets, interruption."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from hwsdk.codegen.llvm_cache import ObjectCache, default_directory, key_of
from hwsdk.codegen.llvm_pool import shared_pool
from hwsdk.codegen.objects import assembly, compile_modules, settings_of, split_module
from hwsdk.errors import CodegenError, TargetError
from hwsdk.target_desc.model import Target
from tests.codegen.llvm_harness import host_target

ADD = "define i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"
# There is no way to select this: LLVM ends the process.
ABORT = """
declare i32 @llvm.amdgcn.workitem.id.x()
define i32 @bad() {
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  ret i32 %x
}
"""


def module(name: str, n: int = 1) -> tuple[str, str]:
    return name, ADD.format(name=name, n=n)


def with_llvm(**changes: object) -> Target:
    target = host_target()
    assert target.codegen.llvm is not None
    llvm = dataclasses.replace(target.codegen.llvm, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(target, codegen=dataclasses.replace(target.codegen, llvm=llvm))


@pytest.fixture
def store(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def entries(store: ObjectCache) -> list[Path]:
    return sorted(p for p in store.directory.rglob("*") if p.is_file())


def test_objects_come_in_order_and_from_the_cache(store: ObjectCache) -> None:
    modules = [module(f"f{i}", i) for i in range(5)] + [module("f0", 0)]
    steps: list[tuple[int, int]] = []
    first = compile_modules(
        modules, host_target(), store=store, progress=lambda _, a, b: steps.append((a, b))
    )
    assert all(o[:4] == b"\x7fELF" for o in first)
    assert first[0] == first[5]
    assert [b"f%d\0" % i in o for i, o in enumerate(first[:5])] == [True] * 5
    assert steps[-1][1] == 6
    assert len(entries(store)) == 5
    before = [p.stat().st_mtime_ns for p in entries(store)]
    assert compile_modules(modules, host_target(), store=store) == first
    assert [p.stat().st_mtime_ns for p in entries(store)] == before


def test_everything_that_matters_is_in_the_key(store: ObjectCache) -> None:
    settings = settings_of(host_target())
    keys = {key_of("a", settings), key_of("b", settings), key_of("a", {**settings, "cpu": "other"})}
    keys |= {key_of("a", {**settings, "features": []}), key_of("a", {**settings, "llvm": "0"})}
    assert len(keys) == 5


@pytest.mark.parametrize("damage", ["truncate", "alter", "empty", "garbage"])
def test_a_damaged_entry_is_compiled_again(store: ObjectCache, damage: str) -> None:
    want = compile_modules([module("f")], host_target(), store=store)
    (entry,) = entries(store)
    data = entry.read_bytes()
    entry.write_bytes(
        {"truncate": data[:-7], "alter": data[:-3] + b"xyz", "empty": b"", "garbage": os.urandom(300)}[damage]
    )
    assert compile_modules([module("f")], host_target(), store=store) == want
    assert entries(store)[0].read_bytes() == data


def test_an_unusable_directory_warns_once(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    store = ObjectCache(blocker / "cache")
    with pytest.warns(UserWarning, match="object cache .* is not usable .*going on without it") as seen:
        compile_modules([module("f"), module("g")], host_target(), store=store)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(compile_modules([module("h")], host_target(), store=store)) == 1


def test_a_full_disk_leaves_nothing_half_written(store: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(UserWarning, match="No space left"):
        compile_modules([module("f")], host_target(), store=store)
    assert entries(store) == []


def test_directory_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(tmp_path))
    assert default_directory() == tmp_path / "objects"


def test_invalid_text_names_the_module(store: ObjectCache) -> None:
    with pytest.raises(CodegenError, match=r"module wrong: the text is not valid: [^|]*expected instruction"):
        compile_modules([module("f"), ("wrong", "define void @f() { oops }")], host_target(), store=store)
    assert len(entries(store)) == 1  # the other module is there


def test_a_dying_worker_takes_only_its_module_with_it(store: ObjectCache) -> None:
    modules = [module("a", 1), ("bad", ABORT), module("b", 2), module("c", 3)]
    with pytest.raises(
        CodegenError, match=r"module bad: the code generator gave up: LLVM ERROR.*\(SIGABRT\)"
    ) as caught:
        compile_modules(modules, host_target(), store=store)
    assert "module a" not in str(caught.value)
    assert len(entries(store)) == 3
    assert len(compile_modules([module("d", 4)], host_target(), store=store)) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu": "x86-64-v9"}, r"has no cpu 'x86-64-v9'"),
        ({"features": ("avx2", "avx2000")}, r"has no feature 'avx2000'"),
        ({"triple": "quantum-unknown-none"}, r"triple 'quantum-unknown-none': No available targets"),
    ],
)
def test_unknown_names_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        compile_modules([module("f")], with_llvm(**changes), use_cache=False)


def test_unknown_name_suggests_the_nearest() -> None:
    shared_pool().stop()  # LLVM lists the names only once per process
    with pytest.raises(TargetError, match=r"did you mean 'x86-64-v3'\?"):
        compile_modules([module("f")], with_llvm(cpu="x86-64-v33"), use_cache=False, jobs=1)


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_other_machines(triple: str) -> None:
    target = with_llvm(
        triple=triple, cpu="generic", features=("neon",) if "aarch64" in triple else ("m", "d")
    )
    (data,) = compile_modules([module("f")], target, use_cache=False)
    assert int.from_bytes(data[18:20], "little") == {"aarch64": 183, "riscv64": 243}[triple.split("-")[0]]


def test_assembly_text() -> None:
    text = assembly("f", ADD.format(name="f", n=7), host_target())
    assert re.search(r"^f:", text, re.MULTILINE)


def test_interruption_ends_the_workers(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long compile: the caller ends by it, no worker is left, nothing half written."""
    program = f"""
import signal
import sys
sys.path.insert(0, {str(Path.cwd())!r})
from pathlib import Path
from hwsdk.codegen.llvm_cache import ObjectCache
from hwsdk.codegen.llvm_pool import shared_pool
from hwsdk.codegen.objects import compile_modules
from tests.codegen.llvm_harness import host_target
body = "".join(f"  %y{{i}} = mul i64 %y{{i - 1}}, %y{{max(i - 9, 0)}}\\n" for i in range(1, 60000))
text = "define i64 @f(i64 %y0) {{\\n" + body + "  ret i64 %y59999\\n}}\\n"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
target = host_target()
shared_pool().start(1)
print(shared_pool().workers[0].process.pid, flush=True)
compile_modules([("f", text)], target, store=ObjectCache(Path({str(tmp_path)!r})), jobs=1)
"""
    caller = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert caller.stdout is not None
    worker = int(caller.stdout.readline())
    time.sleep(0.5)
    caller.send_signal(signal.SIGINT)
    _, err = caller.communicate(timeout=20)
    assert "KeyboardInterrupt" in err
    for _ in range(50):
        if not Path(f"/proc/{worker}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_split_spreads_functions_and_declares_across() -> None:
    text = "@c = internal constant i64 3\n\n" + "\n".join(
        f"define internal fastcc void @k.{i}(ptr %p, i64 %n, <8 x float> %v) nounwind noinline {{\n  ret void\n}}\n"
        for i in range(4)
    )
    text += "define void @k(ptr %p) nounwind {\n" + "".join(
        f"  call fastcc void @k.{i}(ptr %p, i64 {i}, <8 x float> zeroinitializer)\n" for i in range(4)
    )
    text += "  ret void\n}\n"
    parts = split_module(text, 2)
    assert len(parts) == 2
    assert "declare hidden fastcc void @k.0(ptr, i64, <8 x float>)" in parts[1]
    assert all("@c = internal constant" in p for p in parts)
    objects = compile_modules([(f"p{i}", p) for i, p in enumerate(parts)], host_target(), use_cache=False)
    assert len(objects) == 2
    assert split_module(text, 1) == [text]
