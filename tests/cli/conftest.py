"""How the tests of the command line call it: in this process for speed, as a process where that is the
point.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hwsdk.cli.main import app

Invoke = Callable[..., "Result"]


class Result:
    """What a call printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


@pytest.fixture
def hwsdk() -> Invoke:
    """Calls a command in this process."""

    def call(*arguments: object) -> Result:
        done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
        return Result(done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def hwsdk_process() -> Invoke:
    """Runs the command as a process of its own."""

    def call(*arguments: object, cwd: Path | None = None, **env: str) -> Result:
        import os

        done = subprocess.run(
            [sys.executable, "-m", "hwsdk", *map(str, arguments)],
            capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}, timeout=240, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    return call


#: A model in the text form of graphs: y = max(x w + b, 0), with a symbolic batch.
@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy as np

    import hwsdk.frontends.builder as hb
    from hwsdk.graph.text import print_graph

    rng = np.random.default_rng(0)
    m = hb.Model("tiny")
    x = m.input("x", "f32", (m.dim("batch", 1, 64), 6))
    w = rng.standard_normal((6, 5)).astype(np.float32)
    m.output("y", hb.relu(x @ w + np.arange(5, dtype=np.float32)))
    path = tmp_path_factory.mktemp("models") / "tiny.graph"
    graph = m.graph()
    path.write_text(print_graph(graph))
    np.savez(path.with_suffix(".npz"), **graph.constants)
    return path
