"""Short words for small kernels in LoopIR."""

from __future__ import annotations

import numpy as np

from hwsdk.codegen.loop_ir import (
    Binary,
    Buffer,
    Const,
    For,
    FromIndex,
    Index,
    Load,
    LoopKernel,
    Stmt,
    Store,
    Value,
)
from hwsdk.graph.dims import sym

L = 8
n, m, i, j, k, q, u = (sym(x) for x in "n m i j k l u".split())  # q: the lane
rng = np.random.default_rng(7)


def buf(name: str, *shape: Index, dtype: str = "f32", place: str = "dram", **more: object) -> Buffer:
    return Buffer(name, dtype, tuple(shape), place, **more)  # type: ignore[arg-type]


def ld(name: str, *index: Index, dtype: str = "f32", where: Value | None = None) -> Load:
    return Load(dtype, name, tuple(index), where)


def st(name: str, index: tuple[Index, ...] | Index, value: Value, where: Value | None = None) -> Store:
    return Store(name, index if isinstance(index, tuple) else (index,), value, where)


def c(value: float, dtype: str = "f32") -> Const:
    return Const(dtype, value)


def b(op: str, x: Value, y: Value) -> Binary:
    return Binary(x.dtype if op not in ("lt", "le", "gt", "ge", "eq", "ne") else "bool", op, x, y)


def ix(index: Index, dtype: str = "i64") -> FromIndex:
    return FromIndex(dtype, index)


def loop(var: str, extent: Index, *body: Stmt) -> For:
    return For(var, extent, tuple(body))


def unroll(var: str, extent: int, *body: Stmt) -> For:
    return For(var, extent, tuple(body), "unroll")


def vec(*body: Stmt, lanes: int = L, active: Index | None = None) -> For:
    return For("l", lanes, tuple(body), "vector", active=active)


def kernel(
    params: tuple[Buffer, ...], dims: tuple[str, ...], *body: Stmt, outputs: tuple[str, ...] = ("y",)
) -> LoopKernel:
    return LoopKernel("k", params, dims, tuple(body), outputs)


def f32(*shape: int) -> np.ndarray:
    return rng.normal(0, 1, shape).astype(np.float32)


X, Y = buf("x", n), buf("y", n)
