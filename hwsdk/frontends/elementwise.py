"""NumPy's elementwise functions on Arrays.

Design choice: a function is a row of a table (name, graph op, meaning); names are NumPy's where NumPy has the
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.frontends.arrays import Array
from hwsdk.frontends.operands import binary, call, select, unary


def _unary_function(name: str, op: str, meaning: str) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        return unary(op, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}  Shape and dtype of `x`."
    return call(function)


def _binary_function(name: str, op: str, meaning: str) -> Callable[[Any, Any], Array]:
    def function(a: Any, b: Any) -> Array:
        return binary(op, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}  Operands broadcast; a Python number takes the other's dtype."
    return call(function)


abs = _unary_function("abs", "abs", "Absolute value.")
negative = _unary_function("negative", "neg", "-x.")
sign = _unary_function("sign", "sign", "-1, 0 or 1.")
exp = _unary_function("exp", "exp", "e to the x.")
exp2 = _unary_function("exp2", "exp2", "2 to the x.")
expm1 = _unary_function("expm1", "expm1", "exp(x) - 1, exact near 0.")
log = _unary_function("log", "log", "Natural logarithm.")
log2 = _unary_function("log2", "log2", "Logarithm to base 2.")
log1p = _unary_function("log1p", "log1p", "log(1 + x), exact near 0.")
sqrt = _unary_function("sqrt", "sqrt", "Square root.")
rsqrt = _unary_function("rsqrt", "rsqrt", "1 / sqrt(x).")
reciprocal = _unary_function("reciprocal", "reciprocal", "1 / x.")
tanh = _unary_function("tanh", "tanh", "Hyperbolic tangent.")
erf = _unary_function("erf", "erf", "Error function.")
sin = _unary_function("sin", "sin", "Sine.")
cos = _unary_function("cos", "cos", "Cosine.")
tan = _unary_function("tan", "tan", "Tangent.")
arcsin = _unary_function("arcsin", "asin", "Inverse sine.")
arccos = _unary_function("arccos", "acos", "Inverse cosine.")
arctan = _unary_function("arctan", "atan", "Inverse tangent.")
sinh = _unary_function("sinh", "sinh", "Hyperbolic sine.")
cosh = _unary_function("cosh", "cosh", "Hyperbolic cosine.")
arcsinh = _unary_function("arcsinh", "asinh", "Inverse hyperbolic sine.")
arccosh = _unary_function("arccosh", "acosh", "Inverse hyperbolic cosine.")
arctanh = _unary_function("arctanh", "atanh", "Inverse hyperbolic tangent.")
floor = _unary_function("floor", "floor", "Round down.")
ceil = _unary_function("ceil", "ceil", "Round up.")
round = _unary_function("round", "round", "Round to the nearest integer, halves to even.")
trunc = _unary_function("trunc", "trunc", "Round toward zero.")
logical_not = _unary_function("logical_not", "not", "True where x is false.")
isnan = _unary_function("isnan", "isnan", "True where x is NaN.")
isinf = _unary_function("isinf", "isinf", "True where x is an infinity.")

add = _binary_function("add", "add", "a + b.")
subtract = _binary_function("subtract", "sub", "a - b.")
multiply = _binary_function("multiply", "mul", "a * b.")
floor_divide = _binary_function("floor_divide", "floordiv", "floor(a / b).")
remainder = _binary_function("remainder", "mod", "a - b*floor(a / b): the sign of b.")
fmod = _binary_function("fmod", "fmod", "a - b*trunc(a / b): the sign of a.")
power = _binary_function("power", "pow", "a to the b.")
arctan2 = _binary_function("arctan2", "atan2", "Angle of the point (b, a).")
maximum = _binary_function("maximum", "max", "The greater; NaN if either is NaN.")
minimum = _binary_function("minimum", "min", "The lesser; NaN if either is NaN.")
logical_and = _binary_function("logical_and", "and", "Both true.")
logical_or = _binary_function("logical_or", "or", "Either true.")
logical_xor = _binary_function("logical_xor", "xor", "Exactly one true.")


@call
def where(condition: Any, a: Any, b: Any) -> Array:
    """`a` where the condition is true, else `b`; all three broadcast."""
    return select(condition, a, b)


@call
def clip(x: Array, low: Any = None, high: Any = None) -> Array:
    """x limited to [low, high]; None leaves a side open.  Shape of `x`."""
    if low is not None:
        x = binary("max", x, low)
    return x if high is None else binary("min", x, high)


@call
def square(x: Array) -> Array:
    """x * x."""
    return binary("mul", x, x)
