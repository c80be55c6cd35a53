"""Remainders of floats and powers of integers as basic operations.

Design choice: a remainder must be exact, and x/y may be as large as 2^277 (2^2098 in f64).  So the divisor is scaled by
falling powers of two and each step takes off as many multiples as one fused operation keeps exact.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Binary, Const, Select, Unary, Value
from hwsdk.codegen.math_build import Real
from hwsdk.dtypes import DTYPES


def fmod(r: Real, x: Value, y: Value) -> Value:
    """The remainder with the sign of x."""
    rest, size = r.abs(x), r.abs(y)
    step = int(r.pick(22, 50))
    most = int(r.pick(277, 2098))
    for power in range(-(-most // step) * step, -1, -step):
        rest = _take_multiples(r, rest, _scale(r, size, power))
    result = r.copysign(rest, x)
    result = r.select(r.gt(r.abs(y), r.abs(x)), x, result)
    valid = r.both(r.lt(r.abs(x), r.inf), r.gt(r.abs(y), 0.0))
    nan = r.compare("ne", y, y)
    return r.select(r.both(valid, r.negated(nan)), result, r.nan)


def _scale(r: Real, x: Value, power: int) -> Value:
    """x * 2^power in steps that are representable; infinity when it is too large."""
    while power > r.bias:
        x, power = r.mul(x, 2.0**r.bias), power - r.bias
    return r.mul(x, 2.0**power) if power else x


def _take_multiples(r: Real, rest: Value, unit: Value) -> Value:
    """rest modulo unit, if rest/unit is small enough; rest itself if unit is larger."""
    quotient = r.unary("floor", r.div(rest, unit))
    less = r.fma(r.neg(quotient), unit, rest)  # exact, but the quotient may be one too large or too small
    less = r.select(r.lt(less, 0.0), r.add(less, unit), less)
    less = r.select(r.lt(less, unit), less, r.sub(less, unit))
    return r.select(r.lt(rest, unit), rest, less)


def mod(r: Real, x: Value, y: Value) -> Value:
    """The remainder with the sign of y."""
    rest = fmod(r, x, y)
    rest = r.select(_signs_differ(r, rest, y), r.add(rest, y), rest)
    return r.select(r.eq(rest, 0.0), r.copysign(r.abs(rest), y), rest)


def _signs_differ(r: Real, rest: Value, y: Value) -> Value:
    """A remainder that is not zero and whose sign is not that of y."""
    opposite = Binary("bool", "xor", r.lt(rest, 0.0), r.lt(y, 0.0))
    return r.both(r.compare("ne", rest, 0.0), opposite)


def floordiv(r: Real, x: Value, y: Value) -> Value:
    """floor(x/y), exact: (x - fmod)/y is a whole number but for rounding; one less where the signs differ."""
    rest = fmod(r, x, y)
    quotient = r.div(r.sub(x, rest), y)
    quotient = r.select(_signs_differ(r, rest, y), r.sub(quotient, 1.0), quotient)
    whole = r.unary("floor", quotient)
    whole = r.select(r.gt(r.sub(quotient, whole), 0.5), r.add(whole, 1.0), whole)
    plain = r.div(x, y)
    whole = r.select(r.eq(quotient, 0.0), r.copysign(r.abs(quotient), plain), whole)
    return r.select(r.eq(y, 0.0), plain, whole)


def integer_pow(dtype: str, x: Value, y: Value) -> Value:
    """Square and multiply over all bits of the exponent; wraps.  A negative exponent leaves 0, 1 or -1."""
    bits = DTYPES[dtype].bits
    signed = DTYPES[dtype].kind == "i"

    def op(name: str, a: Value, b: Value) -> Value:
        return Binary(dtype, name, a, b)

    def constant(value: int) -> Value:
        return Const(dtype, value)

    def bit(value: Value, index: int) -> Value:
        return Binary("bool", "ne", op("and", value, constant(1 << index)), constant(0))

    result: Value = constant(1)
    square = x
    for index in range(bits - (1 if signed else 0)):
        result = Select(dtype, bit(y, index), op("mul", result, square), result)
        square = op("mul", square, square)
    if not signed:
        return result
    one = Binary("bool", "eq", Unary(dtype, "abs", x), constant(1))
    unit = Select(dtype, one, Select(dtype, bit(y, 0), x, constant(1)), constant(0))
    return Select(dtype, Binary("bool", "lt", y, constant(0)), unit, result)
