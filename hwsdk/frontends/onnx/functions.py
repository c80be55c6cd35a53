"""Operators that are defined by other operators: functions of the model and functions of the standard.

Design choice: expansion is the `onnx` package's own inliner; only operators without an importer here are expanded, so
that those with one keep the form that fusion knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwsdk.errors import ModelError
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.operators import IMPORTERS

ROUNDS = 8  # functions may call functions; no model nests them deeper


def expanded(model: Any) -> Any:
    """The model with every function call expanded that has no importer of its own."""
    onnx = reader.onnx_package()
    for _ in range(ROUNDS):
        local = {(_domain(f.domain), f.name) for f in model.functions}
        wanted = sorted({key for key in _operators(model.graph) if key in local or _is_function(key, model)})
        if not wanted:
            break
        try:
            model = onnx.inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
        except (RuntimeError, ValueError, TypeError) as error:
            names = ", ".join(n for _, n in wanted)
            raise ModelError(f"cannot expand the functions {names}: {str(error).strip()}") from error
    return model


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _operators(graph: Any) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        yield _domain(node.domain), node.op_type
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _operators(inner)


def _is_function(key: tuple[str, str], model: Any) -> bool:
    """Is it an operator of the standard that has a body and no importer here?"""
    if key in IMPORTERS:
        return False
    onnx = reader.onnx_package()
    version = reader.opsets(model).get(key[0])
    if version is None:
        return False
    try:
        schema = onnx.defs.get_schema(key[1], version, key[0])
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
