"""L3: every operation x dtype, one compile each, at all its sizes.

Design choice: the reference is the graph interpreter on the same row built in f64, rounded once at the end;
integers, booleans and data movement must be equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import Target

from . import data
from .model import Case, Mismatch, Session, Unsupported
from .ops import specs
from .ops.spec import Make, Sizes, Spec
from .tolerance import FUNCTION_ULP, Tolerance, compare

Array = np.ndarray[Any, Any]


def cases(target: Target) -> list[Case]:
    """One case per operation and dtype."""
    return [
        Case("L3", f"{spec.name}-{dtype}", partial(_run, spec, dtype))
        for spec in specs()
        for dtype in spec.dtypes
    ]


def _run(spec: Spec, dtype: str, session: Session) -> None:
    target = session.device.target
    require(target, dtype)
    graph, make = spec.build(dtype)
    exact, _ = spec.build(dtype, exact=not spec.stepped)
    program = build(session, graph)
    worst = 0.0
    for sizes in spec.sizes:
        inputs = _draw(spec, make, graph, sizes, session)
        got = program(inputs)
        try:
            worst = max(worst, _check(spec, dtype, target, graph, exact, inputs, sizes, got))
        except Mismatch as wrong:
            raise Mismatch(f"at {_text(sizes)}: {wrong}") from None
    if program.compiles != 1:
        raise Mismatch(f"{program.compiles} compiles for {len(spec.sizes)} sizes, 1 expected")
    session.measured.update(sizes=len(spec.sizes), error_of_bound=round(worst, 4))


def require(target: Target, dtype: str) -> None:
    """Unsupported unless the description lists the dtype."""
    support = target.dtypes.get(dtype)
    if support is None or support.use == "none":
        raise Unsupported(f"the description does not list dtype {dtype}")
    missing = [f for f in support.needs if f not in target.features]
    if missing:
        raise Unsupported(f"dtype {dtype} needs feature {', '.join(missing)}, which this chip lacks")


def build(session: Session, graph: Graph) -> Any:
    """Compiles; where every operation must be an intrinsic of the description, a missing one is
    `unsupported`.
    """
    try:
        return session.device.build(graph)
    except UnsupportedError as refusal:
        if session.device.target.codegen.route == "source":
            raise Unsupported(f"the description cannot express it: {refusal}") from None
        raise


def _draw(spec: Spec, make: Make, graph: Graph, sizes: Sizes, session: Session) -> dict[str, Array]:
    flush = session.device.target.numerics.denormals == "flush"
    inputs = {}
    for value in graph.inputs:
        shape = tuple(int(evaluate(d, sizes)) for d in value.shape)
        rng = data.generator(session.seed, spec.name, value.name, tuple(sizes.items()))
        drawn = data.draw(rng, make.dtypes[value.name], shape, make.domains[value.name])
        inputs[value.name] = data.flushed(drawn) if flush else drawn
    return inputs


def _check(
    spec: Spec, dtype: str, target: Target, graph: Graph, exact: Graph, inputs: Mapping[str, Array], sizes: Sizes,
    got: Mapping[str, Array],
) -> float:  # fmt: skip
    wide = {v.name: inputs[v.name].astype(numpy_dtype(v.dtype)) for v in exact.inputs}
    want = interpret(exact, wide)
    weight = _magnitudes(spec, exact, wide, sizes)
    worst = 0.0
    for name, value_name in zip(graph.output_names, graph.outputs):
        result = graph.values[value_name].dtype
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = want[name].astype(numpy_dtype(result))
        bound = tolerance(spec, dtype, result, target, sizes)
        worst = max(worst, compare(name, got[name], rounded, bound, weight.get(name)))
    return worst


def _magnitudes(spec: Spec, exact: Graph, wide: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
    """The sums of the magnitudes of the accumulated terms: the same graph on absolute values."""
    if spec.terms is None or spec.relative or not any(DTYPES[v.dtype].kind == "f" for v in exact.inputs):
        return {}
    return magnitudes(exact, wide)


def magnitudes(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the graph on absolute values: for sums of products, the sums of the terms' magnitudes."""
    constants = {name: _absolute(value) for name, value in graph.constants.items()}
    positive = dataclasses.replace(graph, constants=constants)
    return interpret(positive, {name: _absolute(value) for name, value in inputs.items()})


def _absolute(value: Array) -> Array:
    return np.abs(value) if value.dtype.kind == "f" else value


def tolerance(spec: Spec, dtype: str, result: str, target: Target, sizes: Sizes) -> Tolerance:
    """The bound that follows from the row, the dtype and the description."""
    narrow = dtype in ("f16", "bf16")
    stated = target.numerics.functions.get(spec.function)
    ulp = 0.0 if not spec.function else stated.max_ulp if stated else FUNCTION_ULP
    precision = target.codegen.default_precision if spec.contraction and dtype == "f32" else None
    return Tolerance(
        dtype=result,
        accumulator="f32" if narrow and not spec.in_memory else result,
        operands=precision if precision and precision != dtype else "",
        terms=spec.terms(sizes) if spec.terms else 0,
        ulp=1.0 if narrow and ulp else ulp,
        steps=spec.steps,
    )


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{k} = {v}" for k, v in sizes.items())
