"""The package as users get it: from a wheel, editable, and from the checkout; and the time its import takes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import time
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROBE = """
import importlib, json, pathlib, hwsdk
print(json.dumps({
    "home": str(pathlib.Path(hwsdk.__file__).parent),
    "targets": list(importlib.import_module("hwsdk.targets").__path__)[0],
    "conformance": list(importlib.import_module("hwsdk.conformance").__path__)[0],
    "version": hwsdk.__version__,
}))
"""
DATA = (".yaml", ".json", ".ll", ".h", ".py")


def python(code: str, *, exe: str = sys.executable, path: str | None = None, cwd: Path | None = None) -> str:
    """What `code` prints in a fresh process that sees only `path` (and what `exe` has installed)."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path is not None:
        env["PYTHONPATH"] = path
    done = subprocess.run(
        [exe, "-c", code], env=env, cwd=cwd or "/", capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def pip(*arguments: str, path: str | None = None) -> None:
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    env.pop("PYTHONPATH", None)
    if path is not None:
        env["PYTHONPATH"] = path
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def probe(**where: object) -> dict[str, str]:
    import json

    found: dict[str, str] = json.loads(python(PROBE, **where))  # type: ignore[arg-type]
    return found


def data_files(top: Path) -> set[str]:
    return {
        str(p.relative_to(top)) for p in top.rglob("*") if p.suffix in DATA and "__pycache__" not in p.parts
    }


@pytest.mark.slow
def test_wheel_has_everything(tmp_path: Path) -> None:
    source = tmp_path / "source"  # built from a copy: a build leaves a build/ folder and an egg-info behind
    copy_tracked(source)
    pip(
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path / "wheels"),
        str(source),
    )
    (wheel,) = (tmp_path / "wheels").glob("hwsdk-*.whl")
    site = tmp_path / "site"
    pip("install", "-q", "--no-deps", "--target", str(site), str(wheel))
    found = probe(path=str(site))
    assert found["home"] == str(site / "hwsdk")
    assert found["targets"] == str(site / "hwsdk" / "targets")
    assert found["conformance"] == str(site / "hwsdk" / "conformance")
    for folder in ("hwsdk", "targets", "conformance"):
        installed = site / "hwsdk" if folder == "hwsdk" else site / "hwsdk" / folder
        missing = data_files(source / folder) - data_files(installed)
        assert not missing, f"not in the wheel, from {folder}/: {sorted(missing)}"
    assert not (site / "tests").exists()
    listed = python(
        "import hwsdk; print(len(hwsdk.list_targets()))", path=f"{site}{os.pathsep}{packages_here()}"
    )
    assert int(listed) >= 1


@pytest.mark.slow
def test_editable_install(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy_tracked(source)
    env = tmp_path / "env"
    venv.create(env, with_pip=False)
    exe = str(env / "bin" / "python")
    pip(
        "--python",
        exe,
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-e",
        str(source),
        path=packages_here(),
    )
    found = probe(exe=exe)
    assert found["home"] == str(source / "hwsdk")
    assert found["targets"] == str(source / "targets")
    assert found["conformance"] == str(source / "conformance")
    command = env / "bin" / "hwsdk"
    assert command.exists()


def test_checkout() -> None:
    found = probe(path=str(ROOT))
    assert found["home"] == str(ROOT / "hwsdk")
    assert found["targets"] == str(ROOT / "targets")
    assert found["conformance"] == str(ROOT / "conformance")


def test_import_is_fast_and_lazy() -> None:
    heavy = ("numpy", "llvmlite", "onnx", "rich", "typer")
    code = f"import sys, hwsdk; print(*[m for m in {heavy} if m in sys.modules])"
    assert python(code, path=str(ROOT)) == "", "import hwsdk pulls these in"
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        python("import hwsdk", path=str(ROOT))
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 0.3, f"import hwsdk (interpreter start included) took {seconds}"


def test_the_core_install_is_small() -> None:
    """What the core requirements put on disk, compiled Python left out: under 250 MiB."""
    sizes = {name: _size(found) for name, found in _closure("hwsdk", {}).items()}
    if "hwsdk" not in sizes:
        pytest.skip("hwsdk is not installed here, only on the path")
    largest = ", ".join(f"{n} {s >> 20} MiB" for n, s in sorted(sizes.items(), key=lambda x: -x[1])[:5])
    assert sum(sizes.values()) < 250 << 20, largest


def _closure(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """A distribution and everything that it requires here, by name."""
    if name not in found:
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return found
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                _closure(wanted.name.lower().replace("_", "-"), found)
    return found


def _size(distribution: metadata.Distribution) -> int:
    paths = [Path(str(f.locate())) for f in distribution.files or () if f.suffix != ".pyc"]
    return sum(p.stat().st_size for p in paths if p.is_file())


def test_public_names_resolve() -> None:
    code = "import hwsdk\nfor n in hwsdk.__all__: getattr(hwsdk, n)\nassert {*hwsdk.__all__} <= {*dir(hwsdk)}"
    python(code, path=str(ROOT))
    assert "no attribute" in python(
        "import hwsdk\ntry: hwsdk.nothing\nexcept AttributeError as e: print(e)", path=str(ROOT)
    )


def packages_here() -> str:
    """The folder with the dependencies of this process (its editable hooks are not followed)."""
    return sysconfig.get_paths()["purelib"]


def copy_tracked(target: Path) -> None:
    """The working tree without ignored files, or (no git) without caches."""
    import shutil

    ignore = shutil.ignore_patterns("__pycache__", ".git", ".tox", "build", "dist", "*.egg-info", ".*_cache")
    for name in ("hwsdk", "targets", "conformance"):
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, target / name)
