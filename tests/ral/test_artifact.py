"""Artifacts: what goes in comes out; whatever is missing, altered or foreign is refused with its reason."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwsdk.codegen import artifact
from hwsdk.errors import ArtifactError, DeviceError
from hwsdk.ral_port.executable import Executable, load
from tests.ral import tiny
from tests.ral.python_port import CODE, ArrayPort

native = pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="native port")


def portable(**changes: object) -> artifact.Bundle:
    """The hand-made model for the port in Python: no machine code."""
    made = artifact.Bundle(
        name="tiny",
        target="array",
        folder="/somewhere/array",
        port="ral:ArrayPort",
        program=tiny.program(),
        code=(("kernels", CODE),),
        constants={"two": np.full(1000, 2, np.float32)},
        features=("tables",),
        constraints=("n <= 1000",),
        kernels={"scale": {"schedule": "rows"}},
        extras={"seconds": 1.5},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.hwx"
    artifact.save(portable(), path)
    return path


def test_round_trip(saved: Path) -> None:
    bundle, made = artifact.load(saved), portable()
    for name in (
        "name",
        "target",
        "port",
        "program",
        "code",
        "features",
        "support",
        "host_code",
        "constraints",
    ):
        assert getattr(bundle, name) == getattr(made, name), name
    assert bundle.folder == "array", "an artifact does not say where code is to be taken from"
    assert dict(bundle.kernels) == made.kernels
    assert dict(bundle.extras) == made.extras
    np.testing.assert_array_equal(bundle.constants["two"], made.constants["two"])
    manifest = artifact.read_manifest(saved)
    assert manifest["inputs"][0] == ["x", "f32", ["b", "n"]]
    assert manifest["versions"]["scale"] == [["scale_wide", "ge(n, 8)"], ["scale_narrow", None]]


def test_constants_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    constants = {f"c{i}": np.arange(i * 7, dtype=np.int8) for i in range(5)} | {
        "scalar": np.float64(3).reshape(()),
        "matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 3), np.float32),
    }
    path = tmp_path / "c.hwx"
    artifact.save(portable(constants=constants), path)
    found = artifact.load(path).constants
    for name, array in constants.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        if array.size:
            assert found[name].ctypes.data % 64 == 0
            assert not found[name].flags.writeable
    with open("/proc/self/maps") as maps:
        assert any(str(path) in line and line.split()[1] == "r--s" for line in maps)


def test_bfloat16_constant(tmp_path: Path) -> None:
    from hwsdk.dtypes import numpy_dtype

    array = np.arange(5).astype(numpy_dtype("bf16"))
    artifact.save(portable(constants={"w": array}), tmp_path / "b.hwx")
    np.testing.assert_array_equal(artifact.load(tmp_path / "b.hwx").constants["w"], array)


def test_every_altered_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    rng = random.Random(3)
    places = [*range(64), *rng.sample(range(64, len(data)), 120), len(data) - 1]
    broken = tmp_path / "broken.hwx"
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        broken.write_bytes(changed)
        with pytest.raises(ArtifactError, match=r"broken\.hwx: (not an hwsdk|format|altered|truncated)"):
            artifact.load(broken)


def test_every_truncation_is_noticed(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    short = tmp_path / "short.hwx"
    for length in [*range(70), *range(70, len(data), 397), len(data) - 1]:
        short.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"truncated|not an hwsdk"):
            artifact.load(short)
    short.write_bytes(data + b"x")
    with pytest.raises(ArtifactError, match="altered"):
        artifact.load(short)


def test_other_files(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04", b"{}", os.urandom(500)):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ArtifactError, match="not an hwsdk artifact"):
            artifact.load(tmp_path / "x")
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        artifact.load(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match="cannot be read: Is a directory"):
        artifact.load(tmp_path)


def test_other_version(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[8] = 9
    saved.write_bytes(data)
    with pytest.raises(
        ArtifactError, match="format version 9, this hwsdk reads version 3; compile the model again"
    ):
        artifact.load(saved)


def test_a_program_that_reads_what_nothing_filled(tmp_path: Path) -> None:
    """Digests right, launches in another order: refused before anything runs."""
    good = tiny.program()
    artifact.save(portable(program=replace(good, launches=good.launches[::-1])), tmp_path / "x.hwx")
    with pytest.raises(
        ArtifactError, match=r"x\.hwx: host program: launch of row_sum: it reads t, which nothing"
    ):
        load(tmp_path / "x.hwx", port=ArrayPort())


def test_a_manifest_that_makes_no_sense(saved: Path) -> None:
    """Digests right, contents wrong: still one error."""
    data = saved.read_bytes()
    magic, version, zero, end, _size, _ = artifact._HEADER.unpack(data[:64])
    good = json.loads(data[end:])
    for change in (
        {"sections": []},
        {"sections": 5},
        {"constants": [{}]},
        {"features": None},
        {"program": 1},
    ):
        text = json.dumps(
            {**good, **change} if "program" not in change else {"sections": good["sections"]}
        ).encode()
        header = artifact._HEADER.pack(
            magic, version, zero, end, len(text), artifact._sha256(memoryview(text))
        )
        saved.write_bytes(header + data[64:end] + text)
        with pytest.raises(ArtifactError):
            artifact.load(saved)


# ---------------------------------------------------------------------------------------------------- writing
def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "m.hwx"
    path.write_bytes(b"precious")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, old[1]))
    try:
        with pytest.raises(ArtifactError, match="cannot be written: File too large"):
            artifact.save(portable(constants={"two": np.zeros(100000, np.float32)}), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert [p.name for p in tmp_path.iterdir()] == ["m.hwx"]
    assert path.read_bytes() == b"precious"


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match=r"m.hwx: cannot be written: No space left on device"):
        artifact.save(portable(), tmp_path / "m.hwx")
    assert not list(tmp_path.iterdir())


def test_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artifact.save(portable(), tmp_path / "m.hwx")
    assert not list(tmp_path.iterdir())


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written: No such file or directory"):
        artifact.save(portable(), tmp_path / "none" / "m.hwx")


# ---------------------------------------------------------------------------------------------------- loading
def test_missing_feature(saved: Path) -> None:
    artifact.save(portable(features=("tables", "warp.drive")), saved)
    with pytest.raises(
        ArtifactError, match=r"tiny.hwx: made for array with warp.drive, which array does not have"
    ):
        load(saved, port=ArrayPort())


def test_missing_and_wrong_constants() -> None:
    with pytest.raises(ArtifactError, match="constant 'two' is missing"):
        Executable(portable(constants={}), port=ArrayPort())
    with pytest.raises(ArtifactError, match="constant 'two' has shape"):
        Executable(portable(constants={"two": np.zeros(3, np.float32)}), port=ArrayPort())


def test_port_that_is_not_installed(saved: Path) -> None:
    with pytest.raises(DeviceError, match="no installed target folder is called 'array'"):
        load(saved)


@native
def test_runs_without_compiler_and_frontends(tmp_path: Path) -> None:
    """A process that only loads and runs imports neither; and a 90 MB artifact loads fast."""
    path = tmp_path / "tiny.hwx"
    artifact.save(tiny.bundle(), path)
    script = (
        "import sys, numpy as np\n"
        "from hwsdk.ral_port.executable import load\n"
        f"exe = load({str(path)!r}, folder={str(tiny.HOST_FOLDER)!r})\n"
        "x, w = np.ones((3, 5), np.float32), np.ones(5, np.float32)\n"
        "assert (exe(x=x, w=w)['y'] == 10).all() and exe.native\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('llvmlite', 'onnx', 'yaml', 'jsonschema', 'typer')\n"
        "       or m.startswith(('hwsdk.frontends', 'hwsdk.codegen.llvm', 'hwsdk.intrinsics'))]\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tiny.ROOT, env={**os.environ, "PYTHONPATH": str(tiny.ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_large_artifact_loads_fast(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    import time

    path = tmp_path / "large.hwx"
    artifact.save(
        portable(constants={"two": np.ones(1000, np.float32), "w": np.ones(90 << 18, np.float32)}), path
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        bundle = artifact.load(path)
        times.append(time.perf_counter() - start)
    record_property("load_seconds", min(times))
    assert bundle.constants["w"][-1] == 1
    assert min(times) < 0.3
