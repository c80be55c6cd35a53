"""What the documents tell people to type exists, and the Python in them runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "user-guide.md")
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """(file name, text) of every fenced block in a language."""
    return [
        (path.name, text)
        for path in DOCUMENTS
        for kind, text in FENCE.findall(path.read_text())
        if kind == language
    ]


def commands() -> list[tuple[str, ...]]:
    """Every `hwsdk ...` line, as words."""
    found = []
    for _, text in blocks("sh"):
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if "hwsdk" in words:
                found.append(tuple(words[words.index("hwsdk") + 1 :]))
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_command_exists_with_its_options(hwsdk: Invoke, words: tuple[str, ...]) -> None:
    depth = 2 if words[0] in ("targets", "models", "conformance") else 1
    done = hwsdk(*words[:depth], "--help")
    assert done.code == 0, words
    for option in (w for w in words if w.startswith("-")):
        assert re.search(rf"(^|\s){re.escape(option)}\b", done.out), (
            f"{' '.join(words[:depth])} has no {option}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name, text", blocks("python"), ids=lambda v: v if len(v) < 20 else "")
def test_python_runs(name: str, text: str, tmp_path: Path) -> None:
    """Blocks run one by one; those that need a model file of the reader's get a small one, and its inputs."""
    onnx = pytest.importorskip("onnx")
    ids = [
        onnx.helper.make_tensor_value_info(n, 7, ["batch", "seq"]) for n in ("input_ids", "attention_mask")
    ]
    out = onnx.helper.make_tensor_value_info("y", 7, ["batch", "seq"])
    node = onnx.helper.make_node("Mul", ["input_ids", "attention_mask"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", ids, [out]), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "model.onnx")
    lines = [line for line in text.splitlines() if '"x.1"' not in line]  # names of another model
    given = "import hwsdk, numpy as np\nids = mask = np.ones((2, 5), np.int64)\n"
    done = subprocess.run(
        [sys.executable, "-c", given + "\n".join(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{name}:\n{text}\n{done.stderr}"
