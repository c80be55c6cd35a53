"""How much rounding noise the values of a graph carry.

Every operation adds its rounding to the noise of its inputs, and the noisiest path decides.  An operation that
accumulates K terms adds g(K) u (see `tolerance`), any other one u.  A chip that multiplies in a narrower type
than f32 rounds both operands of each product to that type first.

Design choice: one number per value, relative to the value's largest element; so it needs the graph and the
sizes, but no data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Graph, Node
from hwsdk.target_desc import Target

from .tolerance import growth, unit

Array = np.ndarray[Any, Any]


def path_noise(graph: Graph, inputs: Mapping[str, Array], target: Target) -> dict[str, float]:
    """Relative noise of every value on the target: the sum of the roundings along the noisiest path to it."""
    from hwsdk.graph.interpret import bind_symbols

    sizes = bind_symbols(graph, inputs)
    narrow = target.codegen.default_precision
    operands = unit(narrow) if narrow and narrow != "f32" else 0.0
    noise: dict[str, float] = {}
    for node in graph.nodes:
        before = max((noise.get(name, 0.0) for name in node.inputs), default=0.0)
        after = before + _added(graph, node, sizes, operands)
        for name in node.outputs:
            noise[name] = after if DTYPES[graph.values[name].dtype].kind == "f" else 0.0
    return {name: noise.get(name, 0.0) for name in graph.values}


EXACT = frozenset(
    "reshape transpose broadcast_in_dim slice reverse concat pad gather gather_elements gather_nd select max min"
    " neg abs iota full dims cast sort top_k reduce_window scatter_nd scatter_elements".split()
)


LINEAR = frozenset("reshape transpose broadcast_in_dim slice reverse concat pad add dims full cast".split())


def sums_of_products(graph: Graph) -> bool:
    """Is every output a sum of products?  Then its terms may cancel, and their magnitudes scale the noise."""
    return all(node.op in PRODUCTS or node.op in LINEAR for node in graph.nodes)


PRODUCTS = ("dot_general", "conv", "conv_transpose")


def _added(graph: Graph, node: Node, sizes: Mapping[str, int], operands: float) -> float:
    if node.op in EXACT and node.attrs.get("kind", "max") == "max":
        return 0.0
    own = graph.values[node.inputs[0]].dtype if node.inputs else ""
    narrowed = node.op in PRODUCTS and own in ("f32", "f16") and operands > unit(own)
    return growth(max(1, _terms(graph, node, sizes))) * unit("f32") + (2 * operands if narrowed else 0.0)


def _terms(graph: Graph, node: Node, sizes: Mapping[str, int]) -> int:
    """How many values one result of the node accumulates."""
    shape = [int(evaluate(d, sizes)) for d in graph.values[node.inputs[0]].shape] if node.inputs else []
    if node.op == "dot_general":
        return math.prod(shape[a] for a, _ in node.attrs["contract"])
    if node.op in ("conv", "conv_transpose"):
        weight = [int(evaluate(d, sizes)) for d in graph.values[node.inputs[1]].shape]
        return math.prod(weight[:-1])
    if node.op == "reduce" and node.attrs["kind"] in ("sum", "prod"):
        return math.prod(shape[a] for a in node.attrs["axes"])
    if node.op == "reduce_window" and node.attrs["kind"] == "sum":
        return math.prod(int(evaluate(d, sizes)) for d in node.attrs["window"])
    return shape[node.attrs["axis"]] if node.op == "cumulative" and shape else 1
