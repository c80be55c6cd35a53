"""L3, second half: the node tests of the onnx package, with their static dims made symbolic.

Design choice: one dim of one input is one symbol, so nothing is known beforehand about which dims are equal;
the graph constraints must find that out.  Inputs that say a shape (their value decides an output's rank or
dims) are given as constants, as every model has them, when the model cannot be imported otherwise.
"""

from __future__ import annotations

import warnings
from functools import lru_cache, partial
from typing import Any

import numpy as np

from hwsdk.dtypes import from_numpy
from hwsdk.errors import ModelError
from hwsdk.graph.graph import Graph
from hwsdk.target_desc import Target

from .l3_ops import build, magnitudes, require
from .model import Case, Mismatch, Session, Unsupported
from .noise import path_noise, sums_of_products
from .tolerance import unit

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def node_tests() -> dict[str, Any]:
    """Name -> the test case of the onnx package; expanded duplicates are left out.  Empty without the
    package.
    """
    try:
        from onnx.backend.test.loader import load_model_tests
    except ImportError:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the expected values divides by zero on purpose
        tests = load_model_tests(kind="node")
    return {t.name.removeprefix("test_"): t for t in tests if not t.name.endswith("_expanded")}


def cases(target: Target) -> list[Case]:
    """One case per node test."""
    return [Case("L3", f"onnx/{name}", partial(_run, name)) for name in node_tests()]


def _run(name: str, session: Session) -> None:
    test = node_tests()[name]
    for inputs, wanted in test.data_sets:
        arrays = [_plain(a) for a in (*inputs, *wanted)]
        _run_set(test, arrays[: len(inputs)], arrays[len(inputs) :], session)


def _plain(value: Any) -> Array:
    """The value as an array of numbers (newer types come as protocol buffers)."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "fiubV":
        return np.asarray(value)
    raise Unsupported("has strings, sequences, optionals or complex numbers")


def _run_set(test: Any, inputs: list[Array], wanted: list[Array], session: Session) -> None:
    names = [i.name for i in test.model.graph.input]
    for array in (*inputs, *wanted):
        try:
            require(session.device.target, from_numpy(array.dtype))
        except ModelError as unknown:
            raise Unsupported(str(unknown)) from None
    graph, given = _import(test.model, dict(zip(names, inputs)))
    program = build(session, graph)
    outputs = program({v.name: given[v.name] for v in graph.inputs})
    if program.compiles != 1:
        raise Mismatch(f"{program.compiles} compiles")
    noise = _absolute_noise(
        graph, {v.name: given[v.name] for v in graph.inputs}, outputs, session.device.target
    )
    for output, want in zip(test.model.graph.output, wanted):
        _compare(output.name, outputs[output.name], want, test.rtol, test.atol, noise[output.name])


def _absolute_noise(
    graph: Graph, inputs: dict[str, Array], outputs: dict[str, Array], target: Target
) -> dict[str, float]:
    """Of each output: the noise that the graph carries to it, of the largest value or of the largest sum of
    magnitudes.
    """
    noise = path_noise(graph, inputs, target)
    values = magnitudes(graph, inputs) if sums_of_products(graph) else outputs
    carried = {}
    for name, value in zip(graph.output_names, graph.outputs):
        sizes = np.abs(values[name].astype(np.float64)) if noise[value] else np.zeros(())
        carried[name] = noise[value] * float(sizes[np.isfinite(sizes)].max(initial=0.0))
    return carried


def _import(model: Any, inputs: dict[str, Array]) -> tuple[Any, dict[str, Array]]:
    """The graph with symbolic dims; shape-like inputs as constants, or the dims of weights as they are, only if it
    cannot be had otherwise.
    """
    from hwsdk.frontends import load

    small = {n: a for n, a in inputs.items() if a.dtype.kind in "iub" and a.ndim <= 1 and a.size <= 16}
    weights = frozenset([n for n, a in inputs.items() if a.ndim >= 3][1:])
    refusal = ""
    for constants, static in (({}, frozenset()), (small, frozenset()), ({}, weights)):
        if refusal and not constants and not static:
            continue  # nothing that was not tried
        try:
            return load(symbolic(model, constants, static)), inputs
        except ModelError as error:
            refusal = " ".join(str(error).split())
    raise Unsupported(f"the ONNX frontend refuses it: {refusal}")


def symbolic(
    model: Any, constants: dict[str, Array] | None = None, static: frozenset[str] = frozenset()
) -> Any:
    """A copy of an ONNX model with every static input dim renamed to a symbol (except of the inputs `static`), and
    some inputs made initializers.
    """
    import onnx
    from onnx import numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(model)
    held = constants or {}
    for name, array in held.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    kept = [i for i in made.graph.input if i.name not in held]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    for number, value in enumerate(made.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (
                dim.dim_value > 1 and value.name not in static
            ):  # a size of 1 may be there to broadcast, which is static
                dim.dim_param = f"s{number}_{axis}"
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


def _compare(name: str, got: Array, want: Array, rtol: float, atol: float, noise: float) -> None:
    """As the onnx package's own runner; beside that, narrow floats may be off by a rounding on the way and one at
    the end, and all by twice `noise`, which the graph carries to them on this chip.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Mismatch(f"{name}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    try:
        if want.dtype.kind in "fV":
            a, b = got.astype(np.float64), want.astype(np.float64)
            u = unit(from_numpy(want.dtype))
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
            np.testing.assert_allclose(a, b, rtol=max(rtol, 4 * u), atol=max(atol, 2 * u * scale, 2 * noise))
        else:
            np.testing.assert_array_equal(got, want)
    except AssertionError as wrong:
        raise Mismatch(f"{name}: {' '.join(str(wrong).split())[:300]}") from None
