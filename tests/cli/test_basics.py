"""Help, versions, exit codes, one-line errors, JSON, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from hwsdk import __version__
from hwsdk.cli import terminal
from hwsdk.errors import ModelError
from tests.cli.conftest import Invoke

COMMANDS = (
    "demo", "doctor", "targets list", "targets show", "targets lint", "targets detect", "models list", "models fetch",
    "compile", "run", "bench", "inspect", "explain", "dump", "sim", "conformance run", "conformance list",
    "conformance report",
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
def test_help_has_an_example(hwsdk: Invoke, words: str) -> None:
    done = hwsdk(*words.split(), "--help")
    assert done.code == 0
    assert "Example: hwsdk" in done.out


def test_version_and_no_command(hwsdk: Invoke) -> None:
    assert hwsdk("--version").out.strip() == f"hwsdk {__version__}"
    assert "demo" in hwsdk().out + hwsdk().err


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hwsdk.cli.main import app\n"
        "print(*[m for m in ('numpy', 'llvmlite', 'onnx', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "words, code, message",
    [
        (("targets", "show", "nothere"), 2, "no target 'nothere'"),
        (("targets", "show", "./nothere.yaml"), 2, "nothere.yaml"),
        (("targets", "show", "cuda"), 2, "no target of family 'cuda' fits this machine"),
        (("models", "fetch", "minilm"), 3, "no model 'minilm'"),
        (("compile", "nothere.onnx"), 3, "nothere.onnx"),
        (("compile", "nothere.graph"), 3, "nothere.graph"),
        (("run", "nothere.hwx"), 5, "nothere.hwx"),
        (("inspect", "nothere.hwx"), 5, "nothere.hwx"),
        (("conformance", "report", "nothere"), 6, "nothere"),
        (("conformance", "list", "--level", "L9"), 6, "L9"),
        (("dump", "nothere.onnx", "--stage", "lop"), 6, "did you mean 'loop'"),
        (("bench",), 2, "Missing argument"),
        (("nosuch",), 2, "No such command"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(
    hwsdk: Invoke, words: tuple[str, ...], code: int, message: str
) -> None:
    done = hwsdk(*words)
    assert done.code == code, done
    assert message in done.err, done
    assert "Traceback" not in done.out + done.err
    assert done.out == ""


def test_debug_shows_the_traceback(hwsdk_process: Invoke) -> None:
    done = hwsdk_process("targets", "show", "nothere", HWSDK_DEBUG="1")
    assert done.code == 2
    assert "Traceback" in done.err


def _raising(trouble: BaseException) -> int:
    @terminal.command
    def fails() -> None:
        raise trouble

    with pytest.raises(typer.Exit) as caught:
        fails()
    return int(caught.value.exit_code)


@pytest.mark.parametrize(
    "trouble, code, text",
    [
        (ModelError("node a: bad"), 3, "error: node a: bad"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
        (PermissionError(13, "denied", "/x"), 1, "denied"),
        (ZeroDivisionError("oops"), 70, "internal error: ZeroDivisionError: oops"),
    ],
)
def test_reports(capsys: pytest.CaptureFixture[str], trouble: BaseException, code: int, text: str) -> None:
    assert _raising(trouble) == code
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1


def test_tables_are_plain_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.table(("name", "ms"), [("a", 1.5), ("bb", 22.25)])
    assert capsys.readouterr().out.splitlines() == ["name    ms", "a      1.5", "bb    22.2"]
    assert terminal.human_bytes(1536) == "1.5 KiB"


@pytest.mark.parametrize("words", ["targets list", "targets detect", "models list", "doctor", "targets show"])
def test_json(hwsdk: Invoke, words: str) -> None:
    more = (json.loads(hwsdk("targets", "list", "--json").out)[0]["name"],) if words == "targets show" else ()
    done = hwsdk(*words.split(), *more, "--json")
    assert done.code == 0, done
    assert json.loads(done.out)


def test_every_listed_target_can_be_shown(hwsdk: Invoke) -> None:
    for entry in json.loads(hwsdk("targets", "list", "--json").out):
        if not entry["abstract"]:
            assert hwsdk("targets", "show", entry["name"], "--sources").code == 0


def test_lint(hwsdk: Invoke, tmp_path: Path) -> None:
    for entry in json.loads(hwsdk("targets", "list", "--json").out):
        assert hwsdk("targets", "lint", entry["file"]).code == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text("hwsdk: 1\nname: bad\nexecutoin: []\n")
    done = hwsdk("targets", "lint", bad)
    assert done.code == 2
    assert f"{bad}:3" in done.out
    assert "did you mean 'execution'" in done.out


def test_doctor_reports_an_unwritable_cache(hwsdk_process: Invoke, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = hwsdk_process("doctor", HWSDK_CACHE_DIR=str(blocked / "inside"))
    assert done.code == 0
    assert "cache" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.3, 0.8, 1.5])
def test_interrupt(tmp_path: Path, delay: float) -> None:
    """Ctrl-C at any moment: one message, exit code 130, nothing left behind."""
    code = "import sys; from hwsdk.__main__ import main; print('ready', flush=True); sys.argv[1:] = ['demo']; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert list(tmp_path.iterdir()) == []
    if process.returncode == 0:
        pytest.skip("the demo was done before it could be interrupted")
    assert process.returncode == 130, (out, err)
    assert err.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
