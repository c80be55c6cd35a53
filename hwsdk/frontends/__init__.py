"""How models come in: ONNX files, a NumPy-like builder, and the catalogue of real models.

    graph = frontends.load("model.onnx", dims={"seq": "1..512"})

Design choice: nothing is imported until it is used, so that a machine without the `onnx` package has the
builder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsdk.errors import ModelError

if TYPE_CHECKING:
    from hwsdk.graph.dims import Dim
    from hwsdk.graph.graph import Graph

__all__ = ["load"]


def load(source: Any, dims: Mapping[str, Dim | str] | None = None) -> Graph:
    """The graph of anything that is a model.

    `source`: the path of an ONNX file, the bytes of one, a ModelProto, a `builder.Model`, or a Graph.  `dims`
    says more about the dims of an ONNX model (see `onnx.import_onnx`); a Graph has said it already.
    """
    from hwsdk.frontends.arrays import Model
    from hwsdk.graph.graph import Graph

    if isinstance(source, Graph | Model):
        if dims:
            raise ModelError("dims can be given for model files only; a graph has its constraints already")
        return source if isinstance(source, Graph) else source.graph()
    is_proto = hasattr(source, "ParseFromString") and hasattr(source, "opset_import")
    if not is_proto and not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        raise ModelError(
            f"a model is a path, bytes, a ModelProto, a Model or a Graph, not {type(source).__name__}"
        )
    from hwsdk.frontends.onnx import import_onnx

    return import_onnx(source, dims)
