"""ONNX models in: `import_onnx(path)` gives a graph of primitives.

Design choice: the importers of the operators are grouped by family in modules that register themselves in one
table; the walk over the model knows no operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsdk.errors import ModelError
from hwsdk.graph.dims import Dim
from hwsdk.graph.graph import Graph


def import_onnx(source: Any, dims: Mapping[str, Dim | str] | None = None) -> Graph:
    """The graph of an ONNX model.

    `source`: a path, the bytes of a model, or a ModelProto.  `dims` says more about its dims: `{"seq":
    "1..512"}` limits the symbolic dim `seq`, `{"x.0": "batch"}` makes axis 0 of input `x` a symbol,
    `{"height": "32*h"}` puts an expression in its place, `{"batch": 1}` fixes it.

    Raises ModelError for a file that is missing, truncated or malformed and UnsupportedError, with everything
    listed, for a model that uses what is not supported.
    """
    from hwsdk.frontends.dim_options import DimOptions
    from hwsdk.frontends.onnx import reader
    from hwsdk.frontends.onnx.functions import expanded
    from hwsdk.frontends.onnx.importer import MALFORMED, OnnxImporter

    options = DimOptions(dims)
    model, folder = reader.read_model(source)
    try:
        return OnnxImporter(expanded(model), folder, options).run()
    except MALFORMED as error:
        raise ModelError(f"the model is malformed ({type(error).__name__}: {error})") from error
