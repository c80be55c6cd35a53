"""Functions that a chip may lack, in terms of those that it has.

Design choice: a rewrite is tried only when there is no intrinsic, and gives a value like any other, whose parts may be
rewritten again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwsdk.codegen.loop_ir import Binary, Const, Unary, Value


def _erf(dtype: str, x: Value) -> Value:
    """erf by exp: sign(x) * (1 - p(t) exp(-x*x)), t = 1/(1 + 0.3275911 |x|).

    Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7; the sign is x times a huge number, clamped to one.
    """

    def c(value: float) -> Value:
        return Const(dtype, value)

    def b(op: str, left: Value, right: Value) -> Value:
        return Binary(dtype, op, left, right)

    size = Unary(dtype, "abs", x)
    t = b("div", c(1.0), b("add", b("mul", size, c(0.3275911)), c(1.0)))
    p = c(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = b("add", b("mul", p, t), c(coefficient))
    rest = b("mul", b("mul", p, t), Unary(dtype, "exp", b("sub", c(0.0), b("mul", size, size))))
    sign = b("min", b("max", b("mul", x, c(1e30)), c(-1.0)), c(1.0))
    return b("mul", sign, b("sub", c(1.0), rest))


REWRITES: Mapping[str, Callable[[str, Value], Value]] = {
    "reciprocal": lambda t, x: Binary(t, "div", Const(t, 1.0), x),
    "rsqrt": lambda t, x: Binary(t, "div", Const(t, 1.0), Unary(t, "sqrt", x)),
    "erf": _erf,
    "neg": lambda t, x: Binary(t, "sub", Const(t, 0.0), x),
}
