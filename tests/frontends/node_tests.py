"""The ONNX backend node tests as a check of the importer: every static size above 1 becomes a symbolic dim.

A case is imported with symbolic dims, run by the graph interpreter on the case's data, and compared with the
case's expected outputs at the case's own tolerance.  An input that decides a shape (a reshape target, axes,
pads) cannot be data of a compiled model, so it is bound as a constant, and only then.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from hwsdk.errors import HwsdkError, UnsupportedError
from hwsdk.frontends.onnx import import_onnx
from hwsdk.graph.interpret import interpret

BINDABLE = re.compile(r"\('([^']*)'\) (?:depends on data|is not a constant|are not constants)")


@lru_cache(maxsize=1)
def cases() -> dict[str, Any]:
    """All node tests by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


@dataclass
class Outcome:
    """`result`: pass, unsupported or fail.

    `bound`: inputs that became constants; `static`: sizes stayed numbers.
    """

    result: str
    detail: str = ""
    bound: list[str] = field(default_factory=list)
    static: bool = False


def symbolic(model: Any) -> Any:
    """A copy whose input sizes above 1 are symbolic, each with a name of its own."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 1:
                dim.dim_param = f"{value.name}_{axis}"
    return copy


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _may_be_size(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype in (np.int32, np.int64) and array.size <= 8


def _bind(model: Any, name: str, array: Any) -> None:
    """Turns an input into an initializer."""
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for i, value in enumerate(model.graph.input):
        if value.name == name:
            del model.graph.input[i]
            return


def run_case(case: Any) -> Outcome:
    """One case with symbolic sizes; with its own sizes, if some size has to be a number."""
    outcome = _run(case, static=False)
    if outcome.result == "unsupported":
        again = _run(case, static=True)
        return again if again.result != "unsupported" else outcome
    return outcome


def _run(case: Any, *, static: bool) -> Outcome:
    model = case.model if static else symbolic(case.model)
    if static:
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
    outcome = Outcome("pass", static=static)
    inputs, expected = ([_array(v) for v in values] for values in case.data_sets[0])
    names = [v.name for v in case.model.graph.input]
    feeds = dict(zip(names, inputs, strict=False))
    try:
        while True:
            try:
                graph = import_onnx(model)
                break
            except UnsupportedError as error:
                blamed = BINDABLE.findall(str(error))
                wanted = [n for n in blamed if n in feeds and n not in outcome.bound]
                if blamed and not wanted:  # something computed from inputs: all that may be sizes
                    wanted = [n for n, v in feeds.items() if n not in outcome.bound and _may_be_size(v)]
                if not wanted:
                    raise
                for name in dict.fromkeys(wanted):
                    _bind(model, name, feeds[name])
                    outcome.bound.append(name)
        found = interpret(graph, {k: np.asarray(v) for k, v in feeds.items() if k not in outcome.bound})
    except UnsupportedError as error:
        return Outcome("unsupported", str(error), outcome.bound, static)
    except HwsdkError as error:
        return Outcome("fail", f"{type(error).__name__}: {error}", outcome.bound, static)
    wanted_names = [v.name for v in case.model.graph.output]
    try:
        Runner.assert_similar_outputs(
            expected, [found[n] for n in wanted_names], rtol=case.rtol, atol=case.atol
        )
    except AssertionError as error:
        return Outcome("fail", " ".join(str(error).split())[:300], outcome.bound, static)
    return outcome
