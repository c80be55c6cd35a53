"""From a path or bytes to a checked ModelProto, and from its tensors to NumPy arrays.

Design choice: this is the one module that touches the `onnx` package and the file system, so everything that
can be wrong with a file (missing, truncated, not a model, external data gone, element type unknown) becomes a
ModelError here.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hwsdk.errors import ModelError, UnsupportedError

MISSING_PACKAGE = 'reading ONNX models needs the package "onnx"; install it with: pip install "hwsdk[onnx]"'
OLDEST_OPSET = 7

# Element types of ONNX by their number; what is missing here (strings, complex numbers, …) is not supported.
DTYPE_OF = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64",
    12: "u32", 13: "u64", 16: "bf16", 17: "f8e4m3", 19: "f8e5m2", 21: "u4", 22: "i4", 23: "f4e2m1",
    24: "f8e8m0",
}  # fmt: skip


def onnx_package() -> Any:
    """The `onnx` package; ModelError that says how to install it if it is missing."""
    try:
        import onnx
        import onnx.external_data_helper
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError as error:
        raise ModelError(MISSING_PACKAGE) from error
    return onnx


def dtype_name(element_type: int, what: str) -> str:
    """Our name of an ONNX element type; UnsupportedError naming `what` has it."""
    found = DTYPE_OF.get(element_type)
    if found is None:
        onnx = onnx_package()
        names = {v: k for k, v in onnx.TensorProto.DataType.items()}
        raise UnsupportedError(
            f"{what} has element type {names.get(element_type, element_type)}, which is not supported"
        )
    return found


def read_model(source: Any) -> tuple[Any, Path | None]:
    """The ModelProto in a path, bytes or ModelProto, and the folder where its external data would lie."""
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return _checked(source, "the model"), None
    if isinstance(source, bytes | bytearray | memoryview):
        return _parsed(bytes(source), "the given bytes"), None
    path = Path(os.fspath(source))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    return _parsed(data, str(path)), path.resolve().parent


def _parsed(data: bytes, what: str) -> Any:
    onnx = onnx_package()
    undecodable = importlib.import_module("google.protobuf.message").DecodeError
    if not data:
        raise ModelError(f"{what}: empty, not an ONNX model")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (undecodable, RuntimeError, ValueError) as error:
        raise ModelError(f"{what}: truncated or not an ONNX model ({str(error).strip()})") from error
    return _checked(model, what)


def _checked(model: Any, what: str) -> Any:
    if any(not isinstance(text, str) for text in _texts(model)):
        raise ModelError(f"{what}: a name in it is not UTF-8 text, so it is damaged or not an ONNX model")
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{what}: not an ONNX model (it has no graph with outputs)")
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError(f"{what}: not a valid ONNX model (it names no operator set)")
    newest = onnx_package().defs.onnx_opset_version()
    for each in model.opset_import:
        if each.domain in ("", "ai.onnx") and not OLDEST_OPSET <= each.version <= newest:
            raise UnsupportedError(
                f"{what} uses operator set {each.version}; versions {OLDEST_OPSET} to {newest} are supported"
            )
    return model


def _texts(model: Any) -> Iterator[Any]:
    """Names and operators: protobuf hands out bytes where one is not UTF-8."""
    for each in model.opset_import:
        yield each.domain
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        yield graph.name
        for named in (*graph.initializer, *graph.input, *graph.output):
            yield named.name
        for value in graph.input:
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield attribute.name
                graphs += [attribute.g] if attribute.HasField("g") else attribute.graphs


@functools.lru_cache(maxsize=4096)
def arity(op: str, version: int, domain: str) -> tuple[int, int]:
    """Least and greatest number of inputs of an operator of the standard; (0, huge) for any other."""
    defs = onnx_package().defs
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return 0, 1 << 31
    return schema.min_input, schema.max_input


def opsets(model: Any) -> dict[str, int]:
    """Version of the operator set by domain; the default domain is ''."""
    return {"" if e.domain == "ai.onnx" else e.domain: e.version for e in model.opset_import} or {
        "": OLDEST_OPSET
    }


def to_array(tensor: Any, folder: Path | None, what: str) -> np.ndarray[Any, Any]:
    """The NumPy array of a TensorProto.

    ModelError naming `what` when its data is missing or does not fit its shape.
    """
    onnx = onnx_package()
    dtype_name(tensor.data_type, what)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _with_external_data(tensor, folder, what)
    if any(n < 0 for n in tensor.dims):
        raise ModelError(f"{what} has a negative dim: {list(tensor.dims)}")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, RuntimeError, OverflowError, IndexError) as error:
        raise ModelError(f"{what}: its data does not fit its shape {list(tensor.dims)} ({error})") from error


def _with_external_data(tensor: Any, folder: Path | None, what: str) -> Any:
    onnx = onnx_package()
    place = {e.key: e.value for e in tensor.external_data}.get("location", "?")
    if folder is None:
        raise ModelError(
            f"{what} has its data in the file {place!r}; give the model as a path, so that it can be found"
        )
    loaded = onnx.TensorProto()
    loaded.CopyFrom(tensor)
    try:
        onnx.external_data_helper.load_external_data_for_tensor(loaded, str(folder))
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{what}: cannot read its data from {place!r} in {folder} ({error})") from error
    return loaded


def attribute_value(attribute: Any) -> Any:
    """The value of an AttributeProto: int, float, str, list, TensorProto or GraphProto."""
    onnx = onnx_package()
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode("utf-8", "replace") for v in value]
    return value
