"""Values of one statement for all lanes of a batch at once.

Everything is an array of two axes, lanes and the iterations of a vector loop; either axis has length 1 where nothing
varies along it.  Design choice: values are computed in lanes that do not act, too; only memory knows masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.codegen.loop_ir import (
    Binary,
    Cast,
    Const,
    FromIndex,
    Index,
    Load,
    Reduce,
    Ref,
    Select,
    Ternary,
    Unary,
    Value,
    value_children,
)
from hwsdk.codegen.neutral import COMBINE
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import evaluate, free_symbols
from hwsdk.graph.scalar import convert, neutral, np_scalar
from hwsdk.sim.lanes.memory import Array

if TYPE_CHECKING:
    from hwsdk.sim.lanes.execute import Batch


class Names:
    """Bindings of one scope: integers for indices, values for Refs."""

    def __init__(self, indices: Mapping[str, Any], values: Mapping[str, Array]) -> None:
        self.indices, self.values = dict(indices), dict(values)

    def inner(self) -> Names:
        return Names(self.indices, self.values)

    def index(self, i: Index) -> Array:
        """As int64 with two axes."""
        if isinstance(i, int):
            return np.full((1, 1), i, np.int64)
        found = evaluate(i, {n: self.indices[n] for n in free_symbols(i)})
        return found if isinstance(found, np.ndarray) else np.full((1, 1), found, np.int64)


class Evaluation:
    """The values of one statement: each node once, in operand order."""

    def __init__(self, batch: Batch, names: Names, mask: Array) -> None:
        self.batch, self.names, self.mask = batch, names, mask
        self.known: dict[int, Array] = {}

    def __call__(self, root: Value) -> Array:
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.known:
                stack.pop()
                continue
            children = () if isinstance(node, Reduce) else value_children(node)
            waiting = [c for c in children if id(c) not in self.known]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            self.known[id(node)] = self._node(node)
            stack.pop()
        return self.known[id(root)]

    def _node(self, node: Value) -> Array:
        match node:
            case Const(dtype=dtype, value=x):
                return np.asarray(convert(np.full((1, 1), x), dtype))
            case Ref(name=name):
                return self.names.values[name]
            case FromIndex(dtype=dtype, index=index):
                return np.asarray(convert(self.names.index(index), dtype))
            case Load():
                return self._load(node)
            case Reduce():
                return self._reduce(node)
            case Cast(dtype=dtype, x=x, mode=mode):
                inner = self.known[id(x)]
                return _bits(inner, dtype) if mode == "bits" else np.asarray(convert(inner, dtype))
            case Select():
                return np.where(*(self.known[id(p)] for p in value_children(node)))
            case Ternary(op="fma"):
                return _fused(*(self.known[id(p)] for p in value_children(node)))
            case Unary(op=op) | Binary(op=op):
                parts = [self.known[id(p)] for p in value_children(node)]
                return np_scalar(op, *parts)
        raise CodegenError(f"{type(node).__name__} is not a value of LoopIR")

    def _load(self, node: Load) -> Array:
        mask = self.mask
        if node.where is not None:
            mask = mask & self.known[id(node.where)]
        return self.batch.load(node.buffer, [self.names.index(i) for i in node.index], mask)

    def _reduce(self, node: Reduce) -> Array:
        """var = 0, 1, ... in order, each combined with what came before."""
        total: Array | None = None
        for i in range(node.extent):
            names = self.names.inner()
            names.indices[node.var] = np.full((1, 1), i, np.int64)
            part = Evaluation(self.batch, names, self.mask)(node.value)
            total = part if total is None else np_scalar(COMBINE[node.op], total, part)
        if total is None:
            return np.asarray(convert(np.full((1, 1), neutral(node.op, node.dtype)), node.dtype))
        return total


def _bits(x: Array, dtype: str) -> Array:
    return np.ascontiguousarray(x).view(numpy_dtype(dtype)).reshape(x.shape)


def _fused(x: Array, y: Array, z: Array) -> Array:
    """x*y + z; the product of two f32 is exact in f64."""
    if x.dtype == np.float32:
        return np.asarray((x.astype(np.float64) * y + z).astype(np.float32))
    return np.asarray(x * y + z)
