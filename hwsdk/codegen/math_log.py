"""log, log2, log1p, asinh, acosh, atanh and pow as basic operations.

    log x = e*ln2 + log(1+f),  x = 2^e * (1+f)

Design choice: e and f come from one integer subtraction that puts 1+f around 1, so that log(1+f) needs no other case
near 1 and loses no accuracy there.  f32 uses a polynomial in f, f64 one in (f/(2+f))^2.
"""

from __future__ import annotations

from hwsdk.codegen import math_tables as t
from hwsdk.codegen.loop_ir import Binary, Cast, Const, Value
from hwsdk.codegen.math_build import Real
from hwsdk.codegen.math_exp import LOG2E

LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.90821492927058770e-10


def _exponent_and_rest(r: Real, x: Value) -> tuple[Value, Value]:
    """(e, f) with x = 2^e * (1+f); x is positive and finite, subnormals included."""
    least = 2.0 ** (1 - r.bias)
    small = r.lt(x, least)
    shift = float(r.mantissa + 1)
    normal = r.select(small, r.mul(x, 2.0**shift), x)
    start = int(r.pick(0x3F2AAAAB, 0x3FE6A09E667F3BCD))  # 2/3; sqrt(1/2)
    pattern = r.bits(normal)
    exponent = r.iand(r.isub(pattern, start), -(1 << r.mantissa) % (1 << r.width))
    f = r.sub(r.real(r.isub(pattern, exponent)), 1.0)
    correction = r.select(small, -shift, 0.0)
    return r.add(_exponent_value(r, exponent), correction), f


def _exponent_value(r: Real, exponent: Value) -> Value:
    """The exponent field as a float.  f64 adds it, moved down, to the pattern of a large float."""
    if r.dtype == "f32":
        return r.mul(r.signed(exponent), 2.0**-23)
    signed = Binary("i64", "shr", Cast("i64", exponent, "bits"), Const("i64", 52))
    magic = 3.0 * 2.0**51
    return r.sub(r.real(r.iadd(Cast("u64", signed, "bits"), 0x4338000000000000)), magic)


def _with_limits(r: Real, x: Value, y: Value) -> Value:
    """log's values at 0, below 0, at infinity and NaN."""
    y = r.select(r.lt(x, r.inf), y, x)
    return r.select(r.gt(x, 0.0), y, r.select(r.eq(x, 0.0), float("-inf"), r.select(r.lt(x, 0.0), r.nan, y)))


def _log_f64(r: Real, f: Value, e: Value | None) -> Value:
    """e*ln2 + log(1+f) = e*ln2_high - ((f^2/2 - (s*(f^2/2 + R) + e*ln2_low)) - f),  R = z*q(z)."""
    s = r.div(f, r.add(f, 2.0))
    z = r.mul(s, s)
    half = r.mul(r.mul(f, f), 0.5)
    tail = r.mul(s, r.add(half, r.mul(z, r.poly(t.LOG_F64, z))))
    if e is None:
        return r.sub(f, r.sub(half, tail))
    return r.sub(r.mul(e, _LN2_HIGH), r.sub(r.sub(half, r.fma(e, _LN2_LOW, tail)), f))


def log(r: Real, x: Value) -> Value:
    e, f = _exponent_and_rest(r, x)
    if r.dtype == "f32":
        y = r.fma(e, LN2, r.fma(r.mul(f, f), r.poly(t.LOG_F32, f), f))
    else:
        y = _log_f64(r, f, e)
    return _with_limits(r, x, y)


def log2(r: Real, x: Value) -> Value:
    """e + log(1+f)*log2(e), the constant in two parts."""
    e, f = _exponent_and_rest(r, x)
    if r.dtype == "f32":
        natural = r.fma(r.mul(f, f), r.poly(t.LOG_F32, f), f)
        y = r.fma(natural, LOG2E, r.fma(natural, 1.9259629911266175e-08, e))
    else:
        natural = _log_f64(r, f, None)
        y = r.fma(natural, LOG2E, r.fma(natural, 2.0355273740931033e-17, e))
    return _with_limits(r, x, y)


def log1p(r: Real, x: Value) -> Value:
    """With u = 1 + x = 2^e * m:  f = x*2^-e + (2^-e - 1), so that nothing of a small x is lost."""
    u = r.add(x, 1.0)
    start = int(r.pick(0x3F400000, 0x3FE6A09E667F3BCD))  # 3/4; sqrt(1/2)
    inside = r.below(r.above(x, -1.0), _greatest(r))
    exponent = r.iand(r.isub(r.bits(u), start), -(1 << r.mantissa) % (1 << r.width))
    quarter = r.real(r.isub(r.bits(r.c(4.0)), exponent))  # 4 * 2^-e, a normal number for every e
    scaled = r.mul(r.mul(inside, 0.25), quarter)
    f = r.add(scaled, r.fma(quarter, 0.25, -1.0))
    e = _exponent_value(r, exponent)
    if r.dtype == "f32":
        y = r.fma(e, LN2, r.fma(r.mul(f, f), r.poly(t.LOG1P_F32, f), f))
    else:
        y = _log_f64(r, f, e)
    y = r.select(r.eq(x, 0.0), x, y)
    return _with_limits(r, u, y)


def _greatest(r: Real) -> float:
    """The largest finite number."""
    return float.fromhex("0x1.fffffep127") if r.dtype == "f32" else float.fromhex("0x1.fffffffffffffp1023")


def asinh(r: Real, x: Value) -> Value:
    """log1p(|x| + x^2/(1 + sqrt(1 + x^2))); for large x log(2|x|)."""
    size = r.abs(x)
    large = r.gt(size, r.pick(1e9, 1e18))
    square = r.mul(size, size)
    inner = r.add(size, r.div(square, r.add(1.0, r.sqrt(r.add(square, 1.0)))))
    y = log1p(r, r.select(large, size, inner))
    return r.copysign(r.select(large, r.add(y, LN2), y), x)


def acosh(r: Real, x: Value) -> Value:
    """log1p(t + sqrt(2t + t^2)), t = x - 1; for large x log(2x)."""
    large = r.gt(x, r.pick(1e9, 1e18))
    over = r.sub(x, 1.0)
    inner = r.add(over, r.sqrt(r.fma(over, over, r.add(over, over))))
    y = log1p(r, r.select(large, over, inner))
    y = r.select(large, r.add(y, LN2), y)
    return r.select(r.lt(x, 1.0), r.nan, y)


def atanh(r: Real, x: Value) -> Value:
    """log1p(2|x|/(1-|x|))/2 with the sign of x."""
    size = r.abs(x)
    y = r.mul(log1p(r, r.div(r.add(size, size), r.sub(1.0, size))), 0.5)
    return r.select(r.gt(size, 1.0), r.nan, r.copysign(y, x))


# --------------------------------------------------------------------------------------------------------------- pow
def pow_(r: Real, x: Value, y: Value) -> Value:
    """|x|^y = 2^(y*log2|x|); f32 computes it in f64, f64 with a logarithm of double length."""
    size = r.abs(x)
    if r.dtype == "f32":
        d = Real("f64")
        result: Value = Cast("f32", _pow_in_double(d, Cast("f64", size), Cast("f64", y)))
    else:
        result = _pow_long(r, size, y)
    return _pow_cases(r, x, y, result)


def _pow_in_double(d: Real, x: Value, y: Value) -> Value:
    """In f64 with a relative error of about 2^-36: enough for one f32 rounding.  x is positive and never subnormal."""
    pattern = d.bits(x)
    start = 0x3FE6A09E667F3BCD
    exponent = d.iand(d.isub(pattern, start), -(1 << 52) % (1 << 64))
    f = d.sub(d.real(d.isub(pattern, exponent)), 1.0)
    s = d.div(f, d.add(f, 2.0))
    z = d.mul(s, s)
    # 2*atanh(s)*log2(e); the series is cut at z^6 < 2^-36 of its sum
    series = [2 * LOG2E / (2 * k + 1) for k in range(6)]
    log = d.fma(s, d.poly(series, z), _exponent_value(d, exponent))
    power = d.below(d.above(d.mul(y, log), -300.0), 300.0)
    magic = 3.0 * 2.0**51 + 1023
    sum_ = d.add(power, magic)
    g = d.sub(power, d.sub(sum_, magic))
    series = [LN2**k / _factorial(k) for k in range(9)]
    return d.mul(d.poly(series, g), d.real(d.shl(d.bits(sum_), 52)))


def _factorial(k: int) -> int:
    return 1 if k < 2 else k * _factorial(k - 1)


def _pow_long(r: Real, x: Value, y: Value) -> Value:
    """log x as a sum of two doubles, its product with y likewise, and the small part applied to the exponential."""
    high, low = _log_long(r, x)
    p = r.mul(y, high)
    rest = r.fma(y, low, r.fma(y, high, r.neg(p)))
    inside = r.below(r.above(p, -800.0), 800.0)
    magic = 3.0 * 2.0**51 + 2046
    sum_ = r.fma(inside, LOG2E, magic)
    n = r.sub(sum_, magic)
    f = r.fma(n, -_LN2_LOW, r.fma(n, -_LN2_HIGH, inside))
    f = r.add(f, r.select(r.eq(inside, p), rest, 0.0))
    value = r.add(r.fma(r.mul(f, f), r.poly(t.EXP[1], f), f), 1.0)
    bits = r.bits(sum_)
    half = r.shr(bits, 1)
    scaled = r.mul(value, r.real(r.shl(half, 52)))
    return r.mul(scaled, r.real(r.shl(r.isub(bits, half), 52)))


def _log_long(r: Real, x: Value) -> tuple[Value, Value]:
    """log x to about 2^-64:  2s + (2/3)s^3 in double length, the rest of the series in single."""
    e, f = _exponent_and_rest(r, x)
    d_high, d_low = r.two_sum(r.c(2.0), f)
    s = r.div(f, d_high)
    s_low = r.div(r.sub(r.fma(r.neg(s), d_high, f), r.mul(s, d_low)), d_high)
    z, z_low = r.two_prod(s, s)
    z_low = r.fma(r.add(s, s), s_low, z_low)
    third, third_low = 0.6666666666666666, 3.700743415417188e-17
    c, c_low = r.two_prod(z, s)  # s^3
    c_low = r.add(c_low, r.fma(z, s_low, r.mul(z_low, s)))
    q, q_low = r.two_prod(c, r.c(third))
    q_low = r.add(q_low, r.fma(c_low, third, r.mul(c, third_low)))
    tail = r.mul(r.mul(c, z), r.poly(_LOG_TAIL, z))
    two = r.add(s, s)
    low = r.add(r.add(s_low, s_low), r.add(q_low, tail))
    first, first_low = r.two_sum(two, q)
    base = r.mul(e, _LN2_HIGH)  # exact: 21 low bits of the constant are zero
    sum_high = r.add(base, first)
    sum_low = r.select(
        r.gt(r.abs(base), r.abs(first)),
        r.sub(first, r.sub(sum_high, base)),
        r.sub(base, r.sub(sum_high, first)),
    )
    low = r.add(r.add(low, first_low), r.add(sum_low, r.mul(e, _LN2_LOW)))
    return r.two_sum(sum_high, low)


_LOG_TAIL = tuple(
    2 / (2 * k + 5) for k in range(9)
)  # atanh's own series: z <= 0.0295, so 9 terms reach 2^-63


def _pow_cases(r: Real, x: Value, y: Value, result: Value) -> Value:
    """Signs, zeros, infinities and NaN as NumPy has them."""
    size = r.abs(x)
    negative_y = r.lt(y, 0.0)
    result = r.select(r.eq(size, 0.0), r.select(negative_y, r.inf, 0.0), result)
    result = r.select(r.eq(size, r.inf), r.select(negative_y, 0.0, r.inf), result)
    huge = r.eq(r.abs(y), r.inf)
    shrinking = r.either(r.both(r.lt(size, 1.0), r.gt(y, 0.0)), r.both(r.gt(size, 1.0), negative_y))
    result = r.select(huge, r.select(r.eq(size, 1.0), 1.0, r.select(shrinking, 0.0, r.inf)), result)
    whole = r.eq(r.unary("floor", y), y)
    half = r.mul(y, 0.5)
    odd = r.both(whole, r.compare("ne", r.unary("floor", half), half))
    minus = Binary("bool", "ne", r.iand(r.bits(x), r.sign_mask), r.i(0))
    result = r.select(r.both(minus, odd), r.neg(result), result)
    invalid = r.both(r.both(r.lt(x, 0.0), r.negated(whole)), r.both(r.lt(size, r.inf), r.negated(huge)))
    result = r.select(invalid, r.nan, result)
    nan = r.either(r.compare("ne", x, x), r.compare("ne", y, y))
    result = r.select(nan, r.nan, result)
    return r.select(r.either(r.eq(y, 0.0), r.eq(x, 1.0)), 1.0, result)
