"""Functions that no instruction computes, in terms of basic operations of LoopIR.

    expand(value, dtype, functions)    the same value without the function

Design choice: an expansion is a value like any other, so every route (LLVM, source text, the simulator's cost) sees the
same arithmetic, and a target that has an instruction or a library for a function simply never asks.  Narrow floats
compute in f32 and round once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwsdk.codegen import math_divide, math_exp, math_log, math_trig
from hwsdk.codegen.loop_ir import Binary, Cast, Const, Unary, Value
from hwsdk.codegen.math_build import Real
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.target_desc.model import MathFunction

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": math_exp.exp, "exp2": math_exp.exp2, "expm1": math_exp.expm1, "tanh": math_exp.tanh, "erf": math_exp.erf,
    "sinh": math_exp.sinh, "cosh": math_exp.cosh, "log": math_log.log, "log2": math_log.log2,
    "log1p": math_log.log1p, "asinh": math_log.asinh, "acosh": math_log.acosh, "atanh": math_log.atanh,
    "pow": math_log.pow_, "sin": math_trig.sin, "cos": math_trig.cos, "tan": math_trig.tan, "asin": math_trig.asin,
    "acos": math_trig.acos, "atan": math_trig.atan, "atan2": math_trig.atan2, "fmod": math_divide.fmod,
    "mod": math_divide.mod, "floordiv": math_divide.floordiv,
    "rsqrt": lambda r, x: r.div(1.0, r.sqrt(x)), "reciprocal": lambda r, x: r.div(1.0, x),
}  # fmt: skip

# Cheaper forms for f32 where the target allows this error: name -> (units in the last place, rule).
CHEAPER: dict[str, tuple[float, Callable[..., Value]]] = {
    "tanh": (5.5, math_exp.tanh_ratio),
    "erf": (5.5, math_exp.erf_ratio),
}


def expand(value: Unary | Binary, dtype: str, functions: Mapping[str, MathFunction]) -> Value:
    """`value` (an operation on operands of `dtype`) in basic operations."""
    operands = (value.x, value.y) if isinstance(value, Binary) else (value.x,)
    kind = DTYPES[dtype].kind
    if value.op == "pow" and kind in "iu":
        return math_divide.integer_pow(dtype, *operands)
    if value.op not in FUNCTIONS or kind != "f":
        raise CodegenError(f"no operation {value.op!r} on {dtype}")
    special = _constant_power(value, dtype)
    if special is not None:
        return special
    if dtype in ("f32", "f64"):
        return _rule(value.op, dtype, functions)(Real(dtype), *operands)
    wide = [Cast("f32", x) for x in operands]
    return Cast(dtype, _rule(value.op, "f32", functions)(Real("f32"), *wide))


def _rule(op: str, dtype: str, functions: Mapping[str, MathFunction]) -> Callable[..., Value]:
    cheaper = CHEAPER.get(op)
    allowed = functions.get(op)
    if cheaper is not None and dtype == "f32" and allowed is not None and allowed.max_ulp >= cheaper[0]:
        return cheaper[1]
    return FUNCTIONS[op]


def _constant_power(value: Unary | Binary, dtype: str) -> Value | None:
    """x^2 = x*x,  x^1 = x,  x^-1 = 1/x:  one rounding, as exact as pow can be."""
    if value.op != "pow" or not isinstance(value, Binary) or not isinstance(value.y, Const):
        return None
    x, y = value.x, value.y.value
    if y == 2:
        return Binary(dtype, "mul", x, x)
    if y == 1:
        return x
    return Binary(dtype, "div", Const(dtype, 1.0), x) if y == -1 else None
