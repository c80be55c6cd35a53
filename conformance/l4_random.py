"""L4: random graphs, one compile each, at three sizes, against the graph interpreter.

A case is a seed: `hwsdk conformance run --level L4 --filter L4/seed-17` repeats one, also beyond the default number,
and `--graphs 500` runs more of them.  The reference is the interpreter in f64, the bound of each element follows from
the operations before it (`error_bounds`).  A graph that fails is made small first (`shrinking`) and printed.

Design choice: what the description cannot express is found by compiling one node of each kind, so every graph of a
target uses all that it has and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.errors import HwsdkError, UnsupportedError
from hwsdk.graph.dims import evaluate, sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value
from hwsdk.graph.scalar import SCALAR
from hwsdk.graph.text import print_graph
from hwsdk.target_desc import Target

from . import data
from .error_bounds import SLACK, Known, bounds
from .l3_ops import build
from .model import Case, Mismatch, Session, Unsupported
from .random_graphs import Sample, Sizes
from .random_steps import sample
from .shrinking import Failure, shrink

Array = np.ndarray[Any, Any]
GRAPHS = 30
DTYPES_USED = ("f32", "bf16", "f16", "i64", "i32", "i8", "u8", "bool")
SHRINK_SECONDS = 45.0


def cases(target: Target, seeds: Iterable[int] = range(GRAPHS)) -> list[Case]:
    """One case per seed."""
    return [Case("L4", f"seed-{seed}", partial(_run, seed)) for seed in seeds]


def seeds(graphs: int | None, pattern: str) -> list[int]:
    """The first ones, and those that a pattern names: `seed-4711`."""
    first = range(GRAPHS if graphs is None else graphs)
    return [*first, *sorted({int(s) for s in re.findall(r"seed-(\d+)", pattern)} - set(first))]


def _run(seed: int, session: Session) -> None:
    target = session.device.target
    made = sample(seed, _dtypes(target), partial(expressible, target))
    program = _built(session, made, seed)
    checked = total = 0
    worst = 0.0
    for sizes in made.sizes:
        inputs = draw(made, sizes, seed, session)
        try:
            ratio, sure, count = _check(made.graph, inputs, program(inputs), target)
        except (Mismatch, HwsdkError) as wrong:
            failure = Failure(made.graph, inputs, _said(wrong))
            raise Mismatch(_report(seed, _small(failure, session), session)) from None
        worst, checked, total = max(worst, ratio), checked + sure, total + count
    if program.compiles != 1:
        raise Mismatch(f"{program.compiles} compiles for {len(made.sizes)} sizes, 1 expected")
    session.measured.update(
        nodes=len(made.graph.nodes), error_of_bound=round(worst, 4), elements=total, checked=checked
    )


def _built(session: Session, made: Sample, seed: int) -> Any:
    try:
        return build(session, made.graph)
    except Unsupported:
        raise
    except Exception as trouble:  # noqa: BLE001 - whatever breaks inside the compiler is a finding
        inputs = draw(made, made.sizes[0], seed, session)
        failure = _small(Failure(made.graph, inputs, _said(trouble)), session)
        raise Mismatch(_report(seed, failure, session)) from None


def _dtypes(target: Target) -> list[str]:
    """Those that the description lists, and whose features this chip has."""
    found = [d for d in DTYPES_USED if d in target.dtypes and target.dtypes[d].use != "none"
             and all(f in target.features for f in target.dtypes[d].needs)]  # fmt: skip
    if not any(DTYPES[d].kind == "f" for d in found):
        raise Unsupported("the description lists no float dtype")
    return found


def draw(made: Sample, sizes: Sizes, seed: int, session: Session) -> dict[str, Array]:
    """Inputs at these sizes."""
    flush = session.device.target.numerics.denormals == "flush"
    inputs = {}
    for value in made.graph.inputs:
        shape = tuple(int(evaluate(d, sizes)) for d in value.shape)
        rng = data.generator(session.seed, seed, value.name, tuple(sizes.items()))
        drawn = data.draw(rng, value.dtype, shape, made.domains[value.name])
        inputs[value.name] = data.flushed(drawn) if flush else drawn
    return inputs


# ---------------------------------------------------------------------------------------------------------- comparison
def _check(
    graph: Graph, inputs: Mapping[str, Array], got: Mapping[str, Array], target: Target
) -> tuple[float, int, int]:
    """Largest error as a fraction of its bound, elements compared, elements; Mismatch where one is too far off."""
    known = bounds(graph, inputs, target)
    worst, sure, total = 0.0, 0, 0
    for name, value in zip(graph.output_names, graph.outputs):
        one = known[value]
        ratio = compare(name, got[name], one, graph.values[value].dtype)
        worst, sure, total = (
            max(worst, ratio),
            sure + int(np.isfinite(one.error).sum()),
            total + one.error.size,
        )
    return worst, sure, total


def compare(what: str, got: Array, known: Known, dtype: str) -> float:
    """The largest error as a fraction of its bound, among the elements of which something is known."""
    if got.shape != known.value.shape or got.dtype != numpy_dtype(dtype):
        raise Mismatch(f"{what}: {got.dtype}{list(got.shape)}, expected {dtype}{list(known.value.shape)}")
    sure = np.isfinite(known.error)
    if DTYPES[dtype].kind != "f":
        bad, ratio = sure & (got != known.value), 0.0
        bound = known.error
    else:
        bound = SLACK * known.error
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.float64) - known.value)
            bad = sure & ~(error <= bound)
            ratio = float(np.where(sure & (bound > 0), error / bound, 0.0).max(initial=0.0))
    if bad.any():
        place = tuple(int(i[0]) for i in np.nonzero(bad))
        allowed = f" within {bound[place]:.3g}" if DTYPES[dtype].kind == "f" else ""
        raise Mismatch(
            f"{what}: {np.count_nonzero(bad)} of {bad.size} elements differ; first at {list(place)}: "
            f"got {got[place]!s}, expected {known.value[place]!s}{allowed}"
        )
    return ratio


# ----------------------------------------------------------------------------------------------------------- shrinking
def _small(failure: Failure, session: Session) -> Failure:
    target = session.device.target
    kind = failure.message.split(":", 1)[0]

    def fails(graph: Graph, inputs: Mapping[str, Array]) -> str:
        try:
            known = bounds(graph, inputs, target)
        except HwsdkError:
            return ""
        try:
            got = session.device.build(graph)(inputs)
            for name, value in zip(graph.output_names, graph.outputs):
                compare(name, got[name], known[value], graph.values[value].dtype)
        except Exception as trouble:  # noqa: BLE001 - the same kind of failure counts, whatever it is
            said = _said(trouble)
            return said if said.split(":", 1)[0] == kind else ""
        return ""

    def values(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {name: known.value for name, known in bounds(graph, inputs, target).items()}

    return shrink(failure, fails, values, SHRINK_SECONDS)


def _said(trouble: Exception) -> str:
    return f"{type(trouble).__name__}: {trouble}"


def _report(seed: int, failure: Failure, session: Session) -> str:
    shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in failure.inputs.items())
    return (
        f"{failure.message}\nseed {seed}, smallest failing part, inputs {shapes}; again: hwsdk conformance run "
        f"-t {session.device.target.name} --level L4 --filter L4/seed-{seed}\n{print_graph(failure.graph)}"
    )


# -------------------------------------------------------------------------------------------- what a target can express
@lru_cache(maxsize=4096)
def expressible(target: Target, kind: str, dtype: str) -> bool:
    """Does a node of that kind compile for the target?  Only asked where every operation must be an intrinsic."""
    if target.codegen.route != "source":
        return True
    from hwsdk import api

    try:
        graph = _single(kind, dtype)
    except HwsdkError:
        return True  # no such node alone: the graph's own rules decide
    try:
        api.compile_stages(graph, target)
    except UnsupportedError:
        return False
    return True


def _single(kind: str, dtype: str) -> Graph:
    """A graph of one node."""
    op, _, sub = kind.partition(".")
    g = GraphBuilder("one")
    n = sym("n")

    def x(name: str, *shape: Any, of: str = dtype) -> Value:
        return g.input(name, of, shape)

    if op in SCALAR:
        y = g.node(op, [x(f"x{i}", n, 8) for i in range(SCALAR[op].arity)])
    elif op == "select":
        y = g.node(op, [x("c", n, 8, of="bool"), x("x", n, 8), x("y", n, 8)])
    elif op == "cast":
        y = g.node(op, [x("x", n, 8)], dtype="f32" if dtype != "f32" else "i32")
    else:
        y = _shaped(g, op, sub, x, dtype)
    g.output(y[0] if isinstance(y, tuple) else y, "y")
    return g.finish()


def _shaped(g: GraphBuilder, op: str, sub: str, x: Any, dtype: str) -> Any:
    """An operation with attributes."""
    n = sym("n")
    ones = {"strides": (1,), "low": (0,), "high": (0,), "dilations": (1,)}
    index = ("i", n, 1)
    table: dict[str, tuple[list[tuple[Any, ...]], dict[str, Any]]] = {
        "broadcast_in_dim": ([("x", n)], {"shape": (n, 8), "dims": (0,)}),
        "reshape": ([("x", n, 8)], {"shape": (n * 8,)}),
        "transpose": ([("x", n, 8)], {"perm": (1, 0)}),
        "slice": ([("x", n, 8)], {"starts": (0, 2), "limits": (n, 8), "strides": (1, 1)}),
        "reverse": ([("x", n, 8)], {"axes": (1,)}),
        "concat": ([("x", n, 8), ("y", n, 8)], {"axis": 1}),
        "pad": ([("x", n, 8)], {"low": (0, 1), "high": (0, 1)}),
        "iota": ([], {"dtype": dtype, "shape": (n, 8), "axis": 1}),
        "reduce": ([("x", n, 8)], {"kind": sub, "axes": (1,)}),
        "reduce_window": ([("x", n, 8)], {"kind": sub, "window": (1, 2), "strides": (1, 1), "low": (0, 1),
                                          "high": (0, 0), "dilations": (1, 1)}),
        "cumulative": ([("x", n, 8)], {"kind": sub, "axis": 1}),
        "sort": ([("x", n, 8)], {"axis": 1}),
        "top_k": ([("x", n, 8)], {"axis": 1, "k": 2}),
        "gather": ([("x", n, 8), index], {"axis": 0}),
        "scatter_nd": ([("x", n, 8), index, ("u", n, 8)], {"combiner": "add"}),
        "dot_general": ([("x", n, 8), ("y", 8, n)], {"batch": (), "contract": ((1, 0),)}),
        "conv": ([("x", n, 8, 4), ("w", 1, 4, 4)], {**ones, "groups": 1}),
    }  # fmt: skip
    operands, attrs = table.get(op, ([("x", n, 8)], {"dtype": dtype, "shape": (n, 8), "value": 0}))
    if op == "full":
        operands = []
    made = [x(name, *shape, of="i64" if name == "i" else dtype) for name, *shape in operands]
    y = g.node(op, made, **attrs)
    return g.node("add", [y, x("z", n, 8)]) if op in ("iota", "full") else y
