"""Run one op through builder, verifier and interpreter, with the dims of its operands made symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import GraphBuilder
from hwsdk.graph.interpret import interpret
from hwsdk.graph.text import parse_graph, print_graph
from hwsdk.graph.verify import verify


def run_op(
    op: str, *arrays: Any, symbolic: bool = True, fixed: Sequence[tuple[int, int]] = (), **attrs: Any
) -> Any:
    """The results of a graph of one node.

    Axis a of operand i is the symbol `d{i}_{a}` unless (i, a) is in `fixed` or `symbolic` is false.
    """
    b = GraphBuilder("one")
    values, feed = [], {}
    for i, array in enumerate(map(np.asarray, arrays)):
        shape = [
            sym(f"d{i}_{a}") if symbolic and (i, a) not in fixed else s for a, s in enumerate(array.shape)
        ]
        values.append(b.input(f"x{i}", from_numpy(array.dtype), shape))
        feed[f"x{i}"] = array
    result = b.node(op, values, **attrs)
    results = result if isinstance(result, tuple) else (result,)
    for i, value in enumerate(results):
        b.output(value, f"y{i}")
    graph = b.finish()
    verify(graph)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    out = interpret(graph, feed)
    return out["y0"] if len(results) == 1 else tuple(out[f"y{i}"] for i in range(len(results)))
