"""What can go wrong with artifacts, files that are written, the cache and the command line; no file is left
half-written.

Design choice: everything goes through the public functions or the command; the rooms test their own refusals.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsdk
from hwsdk.codegen import artifact
from hwsdk.errors import ArtifactError, DeviceError
from tests.bad_input.support import (
    W,
    command,
    model,
    node,
    normal,
)

# ------------------------------------------------------------------------------------------------------ artifacts
_HEADER = struct.Struct("<8sIIQQ32s")


def _sealed(raw: bytes, manifest: bytes) -> bytes:
    """The artifact with another manifest under a right digest."""
    magic, version, zero, end, _, _ = _HEADER.unpack(raw[:64])
    return (
        _HEADER.pack(magic, version, zero, end, len(manifest), sha256(manifest).digest())
        + raw[64:end]
        + manifest
    )


def _manifests(raw: bytes) -> Iterator[bytes]:
    end = _HEADER.unpack(raw[:64])[3]
    good = json.loads(raw[end:])
    yield from (b"null", b"[1]", b"[" * 100_000, b"\xff\xfe", b"{}")
    for key in good:
        for value in (None, 5, "x", [[]], {"a": 1}):
            if type(value) is not type(good[key]) or key in ("constants", "sections"):
                yield json.dumps({**good, key: value}).encode()
    for position, section in enumerate(good["sections"]):
        for key in section:
            for value in (-1, 1 << 62, None, "x", [], 3.5):
                sections = [{**s, key: value} if i == position else s for i, s in enumerate(good["sections"])]
                if key != "name":
                    yield json.dumps({**good, "sections": sections}).encode()


def test_manifests_that_were_made_up(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    bad = tmp_path / "bad.hwx"
    refused = 0
    for manifest in _manifests(raw):
        bad.write_bytes(_sealed(raw, manifest))
        try:
            hwsdk.load(bad).close()
        except (ArtifactError, DeviceError):
            refused += 1
    assert refused > 80


def test_every_altered_or_missing_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    bad = tmp_path / "bad.hwx"
    for position in [*range(64), *range(64, len(raw), 97)]:
        flipped = bytearray(raw)
        flipped[position] ^= 1
        bad.write_bytes(flipped)
        with pytest.raises(ArtifactError):
            artifact.load(bad)
    for size in (0, 1, 63, 64, 100, len(raw) // 2, len(raw) - 1):
        bad.write_bytes(raw[:size])
        with pytest.raises(ArtifactError):
            artifact.load(bad)
        with pytest.raises(ArtifactError):
            artifact.read_manifest(bad)


def test_an_artifact_of_another_processor(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    manifest = json.loads(raw[_HEADER.unpack(raw[:64])[3] :])
    other = tmp_path / "other.hwx"
    other.write_bytes(_sealed(raw, json.dumps({**manifest, "features": ["sse4.2", "avx9000"]}).encode()))
    code, out, err = command("run", other)
    assert (code, out) == (5, "")
    assert "avx9000" in err
    assert "which" in err
    assert command("inspect", other)[0] == 0


# ----------------------------------------------------------------------------------------------- files that are written
def test_no_file_is_left_half_written(exe: Any, tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = tmp_path / "kept.hwx"
    exe.save(kept)
    before = kept.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(ArtifactError, match="cannot be written: File too large"):
            exe.save(kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert kept.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["kept.hwx"]


@pytest.mark.parametrize("place", [".", "", "folder", "nowhere/x", "pipe", "/proc/x"])
def test_places_where_no_file_can_be(
    exe: Any, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="cannot be written"):
        exe.save(place)
    code, _, err = command("run", saved, "--save", place)
    assert code == 6
    assert "cannot write" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_of_any_name_are_saved(compiled: Callable[..., Any], tmp_path: Path) -> None:
    compiled(
        model([node("Relu", ["x"], ["file"]), node("Log", ["x"], ["a/b"])], {"x": ["n"]}, ["file", "a/b"])
    ).save(tmp_path / "m.hwx")
    code, out, _ = command("run", tmp_path / "m.hwx", "-r", "x=9", "--save", tmp_path / "o.npz", "--json")
    assert code == 0
    json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert sorted(np.load(tmp_path / "o.npz")) == ["a/b", "file"]


@pytest.mark.parametrize("kind", ["file", "full", "garbage", "folders"])
def test_a_cache_that_does_not_work_is_only_slower(
    compiled: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(cache))
    source = model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"])
    if kind == "file":
        cache.write_text("")
        with pytest.warns(UserWarning, match="object cache .* is not usable"):
            exe = compiled(source)
    else:
        compiled(source)
        for entry in [p for p in cache.rglob("*") if p.is_file()]:
            entry.unlink() if kind == "folders" else entry.write_bytes(
                b"garbage" if kind == "garbage" else b""
            )
            if kind == "folders":
                entry.mkdir()
        if kind == "folders":
            with pytest.warns(UserWarning, match="Is a directory"):
                exe = compiled(source)
        else:
            exe = compiled(source)
    assert exe(x=np.array([-1, 2], np.float32))["y"].tolist() == [0, 2]


# --------------------------------------------------------------------------------------------------- command line
@pytest.mark.parametrize(
    "words, code, message",
    [
        (("compile", "m.onnx", "-t", ","), 6, "no target is named"),
        (("compile", "m.onnx", "-t", "x86-64-v5"), 2, "did you mean 'x86-64-v4'"),
        (("run", "m.onnx", "-t", "abstract.yaml"), 2, "is abstract"),
        (("run", "m.onnx", "-t", "npu.yaml"), 4, "hwsdk sim"),
        (("bench", "m.onnx", "-t", "npu.yaml"), 4, "hwsdk sim"),
        (("run", "m.onnx", "-r", "x=99999999999999999999999"), 6, "a shape is written"),
        (("run", "m.onnx", "-r", "x=999999999999999999"), 6, "too large"),
        (("bench", "m.onnx", "--shapes", "n=²"), 6, "write the sizes"),
        (
            ("conformance", "run", "-t", "x86", "--level", "L0", "--filter", "nothing_at_all"),
            6,
            "no case matches",
        ),
    ],
)
def test_commands_that_cannot_be_done(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(
        model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"]).SerializeToString()
    )
    (tmp_path / "abstract.yaml").write_text("hwsdk: 1\nname: abs\nabstract: true\n")
    (tmp_path / "npu.yaml").write_bytes((root / "examples" / "new_chip" / "npu.yaml").read_bytes())
    before = sorted(p.name for p in tmp_path.iterdir())
    got, out, err = command(*words)
    assert (got, out) == (code, ""), err
    assert message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_two_processes_compile_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(
        model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 6]}, ["y"], w=W).SerializeToString()
    )
    words = [sys.executable, "-m", "hwsdk", "compile", "m.onnx", "-o", "m.hwx"]
    env = {**os.environ, "HWSDK_CACHE_DIR": str(tmp_path / "cache")}
    started = [subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE) for _ in range(2)]
    assert [p.wait(120) for p in started] == [0, 0]
    for p in started:
        p.communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "m.hwx", "m.onnx"]
    assert not list((tmp_path / "cache").rglob(".new-*"))
    x = normal(3, 6)
    np.testing.assert_allclose(hwsdk.load(tmp_path / "m.hwx")(x=x)["y"], x @ W, 1e-5, 1e-5)
