"""Constant operands rearranged when the artifact is built.

Design choice: a packing is data (index expressions), applied here; nothing runs on the target.  Where the
source is affine in the place and no place is padding, which is so for most weights, it is one copy through
strides, else one gather.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hwsdk.codegen.lower.lowered import Packing
from hwsdk.dtypes import numpy_dtype
from hwsdk.graph.dims import coefficient, evaluate
from hwsdk.graph.graph import Array
from hwsdk.graph.scalar import convert


def pack(array: Array, packing: Packing) -> Array:
    """Apply a packing: the element at each place, zero where there is none."""
    axes = np.ix_(*(np.arange(e) for e in packing.shape))
    values = {f"p{i}": a for i, a in enumerate(axes)}
    flat = np.ascontiguousarray(array).reshape(-1)
    inside = np.asarray(evaluate(packing.inside, values)) != 0
    if inside.all() and (view := _strided(flat, packing)) is not None:
        return np.array(convert(view, packing.dtype), numpy_dtype(packing.dtype), order="C")
    inside = np.broadcast_to(inside, packing.shape)
    source = np.broadcast_to(np.asarray(evaluate(packing.source, values)), packing.shape)
    out = np.zeros(packing.shape, numpy_dtype(packing.dtype))
    if flat.size:
        out[inside] = convert(flat[source[inside]], packing.dtype)
    return out


def _strided(flat: Array, packing: Packing) -> Array | None:
    """All places as a view of the source, if its index moves evenly with each axis."""
    if 0 in packing.shape:
        return None
    names = [f"p{i}" for i in range(len(packing.shape))]
    steps = [coefficient(packing.source, name) for name in names]
    start = evaluate(packing.source, dict.fromkeys(names, 0))
    last = start
    for step, extent in zip(steps, packing.shape, strict=True):
        if not isinstance(step, int) or step < 0:
            return None
        last += step * (extent - 1)
    if not 0 <= start <= last < flat.size:
        return None
    strides = [int(step) * flat.itemsize for step in steps if isinstance(step, int)]
    return as_strided(flat[start:], packing.shape, strides, writeable=False)
