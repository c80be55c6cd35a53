"""Functions that a chip may lack, in terms of those that it has.

Design choice: a rewrite is tried only when there is no intrinsic, and gives a value like any other, whose parts may be
rewritten again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwsdk.codegen.loop_ir import Binary, Const, Unary, Value
from hwsdk.codegen.math_tables import TANH_RATIO
from hwsdk.dtypes import DTYPES

# erf x = tanh(x*p(s)), s = x^2 <= 3.93^2.  2^-23.3 before rounding errors.  p approximates atanh(erf x)/x at 3000
# Chebyshev points by least squares, the weights (erf's relative error per relative error of p, times Lawson's) renewed
# until the largest error no longer fell; coefficients rounded to f32.
_ERF = (
    1.128379225730896, 0.10276906192302704, -0.00019184556731488556, -0.0006197734037414193, 8.763362711761147e-05,
    -5.6679518820601515e-06, 1.4182644748506856e-07,
)  # fmt: skip


def _minus_zero(dtype: str) -> Const:
    """What x is taken from to give -x, zeros of both signs included."""
    return Const(dtype, -0.0 if DTYPES[dtype].kind == "f" else 0)


def _binary(op: str, x: Value, y: Value | float) -> Value:
    return Binary(x.dtype, op, x, y if isinstance(y, Value) else Const(x.dtype, y))


def _polynomial(coefficients: tuple[float, ...], s: Value) -> Value:
    """By Horner's rule, lowest coefficient first."""
    total = _binary("add", _binary("mul", s, coefficients[-1]), coefficients[-2])
    for c in reversed(coefficients[:-2]):
        total = _binary("add", _binary("mul", total, s), c)
    return total


def _clamped(x: Value, limit: float) -> Value:
    return _binary("min", _binary("max", x, -limit), limit)


def _erf(dtype: str, x: Value) -> Value:
    """erf x = tanh(x p(x*x)) of an f32: odd, and right to 5 roundings down to 0, where tanh is."""
    inside = _clamped(x, 3.93)
    p = _polynomial(_ERF, _binary("mul", inside, inside))
    return Unary(dtype, "tanh", _binary("mul", inside, p))


def _tanh(dtype: str, x: Value) -> Value:
    """tanh x = x p(s)/q(s), s = x*x, of an f32: keeps its relative accuracy down to 0."""
    inside = _clamped(x, 9.01)
    s = _binary("mul", inside, inside)
    p, q = (_polynomial(coefficients, s) for coefficients in TANH_RATIO)
    return Binary(dtype, "div", _binary("mul", inside, p), q)


REWRITES: Mapping[str, Callable[[str, Value], Value]] = {
    "reciprocal": lambda t, x: Binary(t, "div", Const(t, 1.0), x),
    "rsqrt": lambda t, x: Binary(t, "div", Const(t, 1.0), Unary(t, "sqrt", x)),
    "erf": _erf,
    "tanh": _tanh,
    "neg": lambda t, x: Binary(t, "sub", _minus_zero(t), x),
}
