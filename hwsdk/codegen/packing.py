"""Constant operands rearranged when the artifact is built.

Design choice: a packing is data (index expressions), applied here by one gather; nothing runs on the target.
"""

from __future__ import annotations

import numpy as np

from hwsdk.codegen.lower.lowered import Packing
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Array
from hwsdk.graph.scalar import convert


def pack(array: Array, packing: Packing) -> Array:
    """Apply a packing: one gather by its index expressions."""
    axes = np.ix_(*(np.arange(e) for e in packing.shape))
    values = {f"p{i}": a for i, a in enumerate(axes)}
    flat = np.ascontiguousarray(array).reshape(-1)
    inside = np.broadcast_to(np.asarray(evaluate(packing.inside, values)) != 0, packing.shape)
    source = np.broadcast_to(np.asarray(evaluate(packing.source, values)), packing.shape)
    out = np.zeros(packing.shape, numpy_dtype(packing.dtype))
    if flat.size:
        out[inside] = convert(flat[source[inside]], packing.dtype)
    return out
