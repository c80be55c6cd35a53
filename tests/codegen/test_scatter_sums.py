"""Many updates of one element: sums in a narrow float are kept in the accumulation dtype and rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from tests.codegen.compiled import graph_of, runner

UPDATES = 700  # of 1: a bf16 that is rounded after each stays at 256
SHAPES = {"scatter_nd": ((sym("n"), 1), (sym("n"),)), "scatter_elements": ((sym("n"),), (sym("n"),))}


def scattering(op: str, kind: str, combiner: str) -> Graph:
    index, updates = SHAPES[op]
    attrs = {"axis": 0} if op == "scatter_elements" else {}
    inputs = [(kind, (3,)), ("i64", index), (kind, updates)]
    return graph_of(inputs, lambda b, x, i, u: b.node(op, [x, i, u], combiner=combiner, **attrs))


@pytest.mark.parametrize("name", ["interpreter", "x86", "npu", "lanes"])
@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("op", SHAPES)
def test_many_updates_of_one_element(op: str, kind: str, name: str) -> None:
    storage = numpy_dtype(kind)
    for combiner, step, wanted in (("add", 1, 1 + UPDATES), ("mul", 1.0078125, 1.0078125**UPDATES)):
        graph = scattering(op, kind, combiner)
        run = (lambda x, g=graph: interpret(g, x)) if name == "interpreter" else runner(graph, name)
        index = np.zeros((UPDATES, 1) if op == "scatter_nd" else UPDATES, np.int64) + 1
        given = {"x0": np.ones(3).astype(storage), "x1": index, "x2": np.full(UPDATES, step).astype(storage)}
        got = run(given)["y0"]
        relative = np.finfo(np.float32).eps * UPDATES if combiner == "mul" else 0
        rounding = 2.0 ** -{"bf16": 8, "f16": 11, "f32": 24}[kind]
        assert abs(float(got[1]) - wanted) <= wanted * (relative + rounding)
        np.testing.assert_array_equal(got[[0, 2]].astype(np.float32), 1)


def test_updates_of_a_whole_value_add_up_the_same_way() -> None:
    """scatter_nd without coordinates: each update meets all of the data."""
    inputs = [("bf16", (2,)), ("i64", (sym("n"), 0)), ("bf16", (sym("n"), 2))]
    graph = graph_of(inputs, lambda b, x, i, u: b.node("scatter_nd", [x, i, u], combiner="add"))
    ones = np.ones((UPDATES, 2)).astype(numpy_dtype("bf16"))
    given = {"x0": ones[0], "x1": np.zeros((UPDATES, 0), np.int64), "x2": ones}
    for run in (lambda x: interpret(graph, x), runner(graph, "x86")):
        np.testing.assert_array_equal(run(given)["y0"].astype(np.float32), 700)  # 701, rounded once
