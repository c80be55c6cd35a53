"""Random graphs with symbolic dims, and random inputs that satisfy a graph's constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.dims import Dim, evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value

Rng = np.random.Generator


def random_array(rng: Rng, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers of any dtype."""
    if dtype(kind).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype(kind).kind == "f":
        return rng.standard_normal(shape).astype(np.float32).astype(numpy_dtype(kind))
    low = 0 if dtype(kind).kind == "u" else -3
    return rng.integers(low, 4, shape).astype(numpy_dtype(kind))


class NoSizes(Exception):
    """The constraints of the graph exclude everything small."""


def random_sizes(graph: Graph, rng: Rng) -> Mapping[str, int]:
    """Values of the symbols that break no constraint; small, 0 and 1 among them."""
    for _ in range(500):
        env = {}
        for name in graph.constraints.symbols():
            low, high = graph.constraints.ranges[name]
            step = graph.constraints.multiples.get(name, 1)
            top = low + 5 * step if high is None else min(high, low + 5 * step)
            env[name] = int(rng.integers(low, top + 1)) // step * step
        if not graph.constraints.violations(env):
            return env
    raise NoSizes


def random_inputs(graph: Graph, rng: Rng, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Inputs of sizes that the graph allows."""
    env = random_sizes(graph, rng) if sizes is None else sizes
    return {
        v.name: random_array(rng, v.dtype, tuple(evaluate(d, env) for d in v.shape)) for v in graph.inputs
    }


def random_graph(seed: int, nodes: int = 14) -> Graph:
    """A graph of some inputs and about `nodes` nodes over the ops that move, compute and reduce."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder(f"random{seed}")
    dims: list[Dim] = [sym("n"), sym("m"), 1, 2, 3]
    shapes = [tuple(dims[i] for i in rng.integers(0, len(dims), rng.integers(1, 4))) for _ in range(2)]
    values = [b.input(f"x{i}", "f32", shape) for i, shape in enumerate([*shapes, shapes[0]])]
    values.append(b.input("anchor", "f32", (sym("n"), sym("m"))))
    steps: list[Callable[[GraphBuilder, Rng, list[Value]], Value]] = [
        _unary,
        _binary,
        _binary,
        _transpose,
        _reduce,
        _reshape,
        _broadcast,
        _slice,
        _pad,
        _concat,
        _constant,
        _window,
        _dot,
        _select,
    ]
    for _ in range(nodes):
        step = steps[int(rng.integers(len(steps)))]
        try:
            values.append(step(b, rng, values))
        except GraphError:  # this op does not fit that value
            continue
    for i, value in enumerate(values[-3:]):
        b.output(value, f"y{i}")
    return b.finish()


def _pick(rng: Rng, values: list[Value]) -> Value:
    return values[int(rng.integers(len(values)))]


def _unary(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    names = ["neg", "abs", "tanh", "exp", "floor", "sign", "round"]
    x = _pick(rng, values)
    return (
        b.node("exp", [b.node("tanh", [x])])
        if rng.integers(4) == 0
        else b.node(names[rng.integers(len(names))], [x])
    )


def _binary(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    same = [v for v in values if v.rank == x.rank]
    return b.node(str(rng.choice(["add", "sub", "mul", "max", "min"])), [x, _pick(rng, same)])


def _transpose(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    return b.node("transpose", [x], perm=rng.permutation(x.rank).tolist())


def _reduce(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    axes = [int(a) for a in range(x.rank) if rng.integers(2)]
    kept = b.node(
        "reduce", [x], kind=str(rng.choice(["sum", "max", "min"])), axes=axes, keepdims=bool(rng.integers(2))
    )
    if kept.rank == x.rank and rng.integers(2):
        return b.node("broadcast_in_dim", [kept], shape=x.shape, dims=range(x.rank))
    return kept


def _reshape(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    shape = list(x.shape)
    if len(shape) > 1 and rng.integers(2):
        at = int(rng.integers(len(shape) - 1))
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif len(shape) < 5:
        shape.insert(int(rng.integers(len(shape) + 1)), 1)
    return b.node("reshape", [x], shape=shape)


def _broadcast(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, [v for v in values if v.rank < 4])
    shape: list[Dim] = list(x.shape)
    at = int(rng.integers(len(shape) + 1))
    shape.insert(at, [2, sym("n")][int(rng.integers(2))])
    return b.node("broadcast_in_dim", [x], shape=shape, dims=[i if i < at else i + 1 for i in range(x.rank)])


def _slice(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    starts = [int(rng.integers(2)) if isinstance(d, int) else 0 for d in x.shape]
    return b.node(
        "slice", [x], starts=starts, limits=x.shape, strides=[int(rng.integers(1, 3)) for _ in x.shape]
    )


def _pad(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    low, high = ([int(v) for v in rng.integers(0, 2, x.rank)] for _ in range(2))
    return b.node("pad", [x], low=low, high=high, value=float(rng.integers(2)))


def _concat(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, [v for v in values if v.rank])
    same = [v for v in values if v.rank == x.rank]
    return b.node("concat", [x, _pick(rng, same)], axis=int(rng.integers(x.rank)))


def _constant(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    number = b.constant(np.float32(rng.choice([0, 1, -1, 2, 0.5])))
    spread = b.node("broadcast_in_dim", [number], shape=x.shape, dims=())
    return b.node(str(rng.choice(["add", "mul", "sub", "div", "max"])), [x, spread])


def _window(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, [v for v in values if v.rank])
    window = [int(w) for w in rng.integers(1, 3, x.rank)]
    return b.node(
        "reduce_window",
        [x],
        kind=str(rng.choice(["sum", "max"])),
        window=window,
        low=[w - 1 for w in window],
        high=[0] * x.rank,
        strides=[int(s) for s in rng.integers(1, 3, x.rank)],
        dilations=[1] * x.rank,
    )


def _dot(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, [v for v in values if 1 <= v.rank <= 3])
    y = _pick(rng, [v for v in values if 1 <= v.rank <= 3])
    return b.node("dot_general", [x, y], contract=((int(rng.integers(x.rank)), int(rng.integers(y.rank))),))


def _select(b: GraphBuilder, rng: Rng, values: list[Value]) -> Value:
    x = _pick(rng, values)
    y = _pick(rng, [v for v in values if v.rank == x.rank])
    condition = b.node(str(rng.choice(["lt", "ge"])), [x, y])
    return b.node("select", [b.node("not", [condition]) if rng.integers(2) else condition, x, y])
