"""The NumPy-like builder: make a model in Python, with symbolic dims.

    import hwsdk.frontends.builder as hb

    m = hb.Model("mlp")
    x = m.input("x", "f32", ("batch", 128))
    h = hb.tanh(x @ w + b)                   # w and b are NumPy arrays
    m.output("y", hb.softmax(h, axis=-1))
    graph = m.graph()

Shapes are symbolic: `x.shape` is `(batch, 128)`, and dims may be used in arithmetic, as sizes (`h.reshape(-1,
x.shape[0])`), as slice ends and as numbers (`h.sum(0) / x.shape[0]`).  Only dims of size 1 broadcast; two
symbolic dims that meet are recorded as equal, and a run with other sizes is refused.

Design choice: this module only gathers the names; each family of functions has a module of its own.
"""

from __future__ import annotations

from typing import Any

from hwsdk.frontends.arrays import Array, Model
from hwsdk.frontends.elementwise import (
    abs,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    reciprocal,
    remainder,
    round,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)  # fmt: skip
from hwsdk.frontends.neural import (
    attention,
    avg_pool,
    conv,
    conv2d,
    embedding,
    gelu,
    layer_norm,
    log_softmax,
    max_pool,
    relu,
    rms_norm,
    sigmoid,
    silu,
    softmax,
    softplus,
)  # fmt: skip
from hwsdk.frontends.operands import binary, call, cast_to, divide
from hwsdk.frontends.reducing import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    cumsum,
    gather_nd,
    matmul,
    max,
    mean,
    min,
    prod,
    sort,
    sum,
    take,
    take_along_axis,
    top_k,
    var,
)  # fmt: skip
from hwsdk.frontends.shaping import (
    arange,
    concatenate,
    expand,
    expand_dims,
    flip,
    full,
    getitem,
    iota,
    moveaxis,
    pad,
    reshape,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
)  # fmt: skip

__all__ = [
    "Array", "Model", "abs", "add", "all", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "astype", "attention", "avg_pool", "ceil",
    "clip", "concatenate", "conv", "conv2d", "cos", "cosh", "cumsum", "embedding", "erf", "exp", "exp2",
    "expand", "expand_dims", "expm1", "flip", "floor", "floor_divide", "fmod", "full", "gather_nd", "gelu",
    "getitem", "iota", "isinf", "isnan", "layer_norm", "log", "log1p", "log2", "log_softmax", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matmul", "max", "max_pool", "maximum", "mean", "min",
    "minimum", "moveaxis", "multiply", "negative", "operator", "pad", "power", "prod", "reciprocal", "relu",
    "remainder", "reshape", "rms_norm", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh",
    "softmax", "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "subtract", "sum",
    "swapaxes", "take", "take_along_axis", "tan", "tanh", "tile", "top_k", "transpose", "trunc", "var",
    "where",
]  # fmt: skip


@call
def astype(x: Array, dtype: str) -> Array:
    """`x` converted to another dtype."""
    return cast_to(x, dtype)


@call
def operator(op: str, a: Any, b: Any) -> Array:
    """What the operator of an Array does: `op` is the name of the graph's primitive."""
    if op == "div":
        return divide(a, b)
    if op == "pow" and isinstance(b, int | float) and b == 2:
        return binary("mul", a, a)
    return binary(op, a, b)
