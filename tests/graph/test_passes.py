"""Each pass on small graphs written as text: what it makes of them, that it verifies, and that values stay.

A case of `passes/*.txt` is two comment lines (what it shows; `run:` the passes), a graph, `=>`, and the
result.  After a change that is meant, HWSDK_UPDATE=1 writes the results anew; read the difference before
committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hwsdk.errors import GraphError
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.graph.passes import DEFAULT_PIPELINE, PASSES, run_passes, trace_passes
from hwsdk.graph.text import parse_graph, print_graph
from hwsdk.graph.verify import verify
from tests.graph.random_inputs import random_inputs

FOLDER = Path(__file__).parent / "passes"


class Externals(dict[str, np.ndarray]):
    """External constants of the cases: any name has an array, of the shape that the text states."""

    def __init__(self, text: str) -> None:
        super().__init__()
        for line in text.splitlines():
            if line.strip().startswith("const") and line.endswith("external"):
                name = line.split("%")[1].split(":")[0].strip('"')
                shape = [int(s) for s in line.split("[")[1].split("]")[0].split(",")]
                self[name] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def cases() -> list[tuple[Path, int, str]]:
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for i, text in enumerate(path.read_text().split("\n\n")):
            found.append((path, i, text.strip() + "\n"))
    return found


def split(text: str) -> tuple[str, list[str], str, str]:
    """(title, passes, before, after)."""
    head, _, rest = text.partition("\n")
    run, _, rest = rest.partition("\n")
    before, _, after = rest.partition("=>\n")
    return head.removeprefix("# "), run.removeprefix("# run: ").split(), before, after


def assert_same_values(before: Graph, after: Graph) -> None:
    for seed in range(2):
        feed = random_inputs(before, np.random.default_rng(seed))
        one, two = interpret(before, feed), interpret(after, feed)
        assert one.keys() == two.keys()
        for name, array in one.items():
            assert array.dtype == two[name].dtype
            if array.dtype.kind == "f":
                np.testing.assert_allclose(two[name], array, rtol=2e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(two[name], array)


@pytest.mark.parametrize("path, position, text", cases(), ids=[split(t)[0] for _, _, t in cases()])
def test_case(path: Path, position: int, text: str) -> None:
    title, passes, before_text, wanted = split(text)
    before = parse_graph(before_text, Externals(before_text))
    after = run_passes(before, passes, verify=True)
    assert_same_values(before, after)
    got = print_graph(after)
    if os.environ.get("HWSDK_UPDATE") == "1":
        parts = path.read_text().split("\n\n")
        run = f"# run: {' '.join(passes)}"
        parts[position] = f"# {title}\n{run}\n{before_text}=>\n{got}".rstrip("\n")
        path.write_text("\n\n".join(p.rstrip("\n") for p in parts) + "\n")
        return
    assert got == wanted, f"{path.name}: {title}: run with HWSDK_UPDATE=1 if the change is meant"
    again = run_passes(after, passes, verify=True)
    lines = [sorted(print_graph(g).splitlines()) for g in (again, after)]
    assert lines[0] == lines[1], "a pass that runs again changes nothing"


def test_pipeline_is_made_of_passes() -> None:
    assert set(DEFAULT_PIPELINE) == set(PASSES)
    assert all(PASSES[name].name == name for name in PASSES)


def test_unknown_pass() -> None:
    graph = parse_graph('graph "g" {\n  input %x: f32[2]\n  output %x "y"\n}\n')
    with pytest.raises(GraphError, match="unknown graph pass 'simplfy'; did you mean 'simplify'"):
        run_passes(graph, ["simplfy"])
    assert [name for name, _ in trace_passes(graph)] == list(DEFAULT_PIPELINE)
    assert run_passes(graph).outputs == ("x",)


def test_a_wrong_rule_is_named() -> None:
    from hwsdk.graph.passes import RewritePass

    def wrong(r: object, m: object) -> object:
        return m.inputs[0]  # type: ignore[attr-defined]

    graph = parse_graph('graph "g" {\n  input %x: f32[2]\n  %s: bool[2] = isnan(%x)\n  output %s "y"\n}\n')
    with pytest.raises(GraphError, match="rule wrong at node s turned isnan of type"):
        RewritePass("bad", {"isnan": [wrong]})(graph)  # type: ignore[list-item]
    verify(graph)
