"""Operators that are defined by other operators: functions of the model and functions of the standard.

Design choice: only operators without an importer are expanded, so that those with one keep the form that
fusion knows; the expansion itself is the `onnx` package's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwsdk.errors import UnsupportedError
from hwsdk.frontends.onnx import reader
from hwsdk.frontends.onnx.operators import IMPORTERS

ROUNDS = 8  # functions may call functions; no model nests them deeper
_LOCAL = "hwsdk.expanded"


def _failures() -> tuple[type[Exception], ...]:
    return RuntimeError, ValueError, TypeError, reader.onnx_package().shape_inference.InferenceError


def expanded(model: Any) -> Any:
    """The model with every function call expanded that has no importer of its own."""
    for _ in range(ROUNDS):
        local = {(_domain(f.domain), f.name) for f in model.functions}
        calls = [n for n in _nodes(model.graph) if _key(n) in local]
        standard = [n for n in _nodes(model.graph) if _key(n) not in local and _schema(n, model) is not None]
        if not calls and not standard:
            break
        names = sorted({_key(n) for n in (*calls, *standard)})
        try:
            model = _inlined(model, names)
        except _failures() as error:
            text = ", ".join(n for _, n in names)
            raise UnsupportedError(f"cannot expand the functions {text}: {str(error).strip()}") from error
    return model


def _inlined(model: Any, names: list[tuple[str, str]]) -> Any:
    """Expands the functions `names`.

    The package does it alone unless an optional input is left out in the middle.
    """
    inliner = reader.onnx_package().inliner
    try:
        return inliner.inline_selected_functions(model, names, inline_schema_functions=True)
    except _failures():
        return inliner.inline_local_functions(_with_local_bodies(model))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _key(node: Any) -> tuple[str, str]:
    return _domain(node.domain), node.op_type


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(inner)


def _schema(node: Any, model: Any) -> Any:
    """The schema of an operator of the standard that has a body and no importer here, else None."""
    key = _key(node)
    version = reader.opsets(model).get(key[0])
    if key in IMPORTERS or version is None:
        return None
    defs = reader.onnx_package().defs
    try:
        schema = defs.get_schema(key[1], version, key[0])
    except defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _with_local_bodies(model: Any) -> Any:
    """A copy in which each such call is a call of a function of the model, made for its own inputs' types."""
    onnx = reader.onnx_package()
    types = _types(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    made = 0
    for node in _nodes(copy.graph):
        schema = _schema(node, model)
        if schema is None:
            continue
        function = onnx.FunctionProto()
        if schema.has_function:
            function.CopyFrom(schema.function_body)
        else:
            given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
            body = schema.get_context_dependent_function(node.SerializeToString(), given)
            function.ParseFromString(body)
        function.name, function.domain = f"{node.op_type}_{made}", _LOCAL
        copy.functions.append(function)
        node.op_type, node.domain = function.name, _LOCAL
        made += 1
    if _LOCAL not in {e.domain for e in copy.opset_import}:
        copy.opset_import.append(onnx.helper.make_opsetid(_LOCAL, 1))
    return copy


def _types(model: Any) -> dict[str, Any]:
    """What is known about the type of every value."""
    onnx = reader.onnx_package()
    inferred = onnx.shape_inference.infer_shapes(model)
    types: dict[str, Any] = {}
    for graph in [
        inferred.graph,
        *(a.g for n in _nodes(inferred.graph) for a in n.attribute if a.HasField("g")),
    ]:
        for value in (*graph.input, *graph.value_info, *graph.output):
            types[value.name] = value.type
        for tensor in graph.initializer:
            types.setdefault(
                tensor.name, onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            )
    return types
