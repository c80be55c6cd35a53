"""exp, exp2, expm1, tanh, sinh, cosh and erf as basic operations.

    e^x = 2^n * e^r,  n = round(x / ln2),  r = x - n*ln2

Design choice: n comes from adding a large constant, so it is at once a float (after subtracting the constant) and an
integer (in the low bits of the sum), and 2^n is one shift.  The scale is applied in two factors, so results overflow to
infinity and underflow through the subnormals without any special case.
"""

from __future__ import annotations

from hwsdk.codegen import math_tables as t
from hwsdk.codegen.loop_ir import Value
from hwsdk.codegen.math_build import Real

# ln2 in two parts: n times the first is exact for every n that occurs.
_LN2 = {
    "f32": (0.693145751953125, 1.428606820309417e-06),
    "f64": (0.6931471803691238, 1.90821492927058770e-10),
}
LOG2E = 1.4426950408889634


def _split(r: Real, x: Value, scale: float, bias: int) -> tuple[Value, Value]:
    """(bits of round(x*scale) + bias in the low end of a float, round(x*scale) as a float)."""
    magic = float(3 << (r.mantissa - 1)) + bias
    t_ = r.fma(x, scale, magic)
    return r.bits(t_), r.sub(t_, magic)


def _power_of_two(r: Real, low_bits: Value) -> Value:
    """2^(k - bias) for the k in the low bits."""
    return r.real(r.shl(low_bits, r.mantissa))


def _scaled(r: Real, y: Value, bits: Value) -> Value:
    """y * 2^n with n + 2*bias in the low bits: two factors of half the exponent each."""
    half = r.shr(bits, 1)
    return r.mul(r.mul(y, _power_of_two(r, half)), _power_of_two(r, r.isub(bits, half)))


def _reduced(r: Real, x: Value, n: Value) -> Value:
    """x - n*ln2."""
    high, low = _LN2[r.dtype]
    return r.fma(n, -low, r.fma(n, -high, x))


def _exp_core(r: Real, x: Value, shift: int) -> Value:
    """e^x * 2^shift; x is within the range in which the exponent arithmetic is valid."""
    bits, n = _split(r, x, LOG2E, 2 * r.bias + shift)
    f = _reduced(r, x, n)
    if r.dtype == "f32":
        y = r.poly((1.0, 1.0, *t.EXP[0]), f)
    else:
        y = r.add(r.fma(r.mul(f, f), r.poly(t.EXP[1], f), f), 1.0)
    return _scaled(r, y, bits)


def exp(r: Real, x: Value) -> Value:
    inside = r.below(r.above(x, r.pick(-105.0, -746.0)), r.pick(89.0, 710.0))
    return _exp_core(r, inside, 0)


def exp2(r: Real, x: Value) -> Value:
    """2^n * 2^f with f = x - n exact."""
    inside = r.below(r.above(x, r.pick(-151.0, -1076.0)), r.pick(129.0, 1025.0))
    bits, n = _split(r, inside, 1.0, 2 * r.bias)
    f = r.sub(inside, n)
    y = r.fma(f, r.poly(t.EXP2M1[r.dtype == "f64"], f), 1.0)
    return _scaled(r, y, bits)


def _expm1_core(r: Real, x: Value) -> Value:
    """e^x - 1 = 2*(2^(n-1)*p + (2^(n-1) - 1/2)),  p = e^f - 1;  the half keeps 2^128 out."""
    bits, n = _split(r, x, LOG2E, r.bias - 1)
    f = _reduced(r, x, n)
    p = r.fma(r.mul(f, f), r.poly(t.EXPM1[r.dtype == "f64"], f), f)
    half = _power_of_two(r, bits)
    y = r.fma(half, p, r.sub(half, 0.5))
    return r.add(y, y)


def expm1(r: Real, x: Value) -> Value:
    inside = r.below(r.above(x, r.pick(-20.0, -40.0)), r.pick(89.0, 710.0))
    return r.copysign(_expm1_core(r, inside), x)  # the sign is that of x already, but for -0


def tanh(r: Real, x: Value) -> Value:
    """m/(m+2) with m = e^(2|x|) - 1; above the limit the result rounds to 1."""
    m = _expm1_core(r, _double(r, r.below(r.abs(x), r.pick(10.0, 20.0))))
    return r.copysign(r.div(m, r.add(m, 2.0)), x)


def _double(r: Real, x: Value) -> Value:
    return r.add(x, x)


def tanh_ratio(r: Real, x: Value) -> Value:
    """5 ulp in half the operations; f32."""
    return _ratio(r, x, 9.01, *t.TANH_RATIO)


def _ratio(r: Real, x: Value, limit: float, p: tuple[float, ...], q: tuple[float, ...]) -> Value:
    inside = r.below(r.above(x, -limit), limit)
    s = r.mul(inside, inside)
    return r.div(r.mul(inside, r.poly(p, s)), r.poly(q, s))


def cosh(r: Real, x: Value) -> Value:
    """h + 1/(4h) with h = e^|x| / 2, which does not overflow before the result does."""
    h = _exp_core(r, r.below(r.abs(x), r.pick(91.0, 712.0)), -1)
    return r.add(h, r.div(0.25, h))


def sinh(r: Real, x: Value) -> Value:
    """h - 1/(4h); an odd polynomial below 1."""
    size = r.abs(x)
    h = _exp_core(r, r.below(size, r.pick(91.0, 712.0)), -1)
    large = r.copysign(r.sub(h, r.div(0.25, h)), x)
    s = r.mul(x, x)
    small = r.fma(r.mul(x, s), r.poly(t.SINH[r.dtype == "f64"], s), x)
    return r.select(r.lt(size, 1.0), small, large)


# --------------------------------------------------------------------------------------------------------------- erf
def _one_minus_power(r: Real, z: Value) -> Value:
    """1 - 2^(-z) = (1 - s) - s*(2^(-f) - 1) for z >= 0, s = 2^(-n), f = z - n: no cancellation for small z."""
    bits, minus_n = _split(r, z, -1.0, r.bias)
    f = r.add(z, minus_n)
    table = t.EXP2M1_SHORT if r.dtype == "f32" else t.EXP2M1[1]
    p = r.mul(f, r.poly([c if k % 2 else -c for k, c in enumerate(table)], f))
    scale = _power_of_two(r, bits)
    return r.fma(r.neg(scale), p, r.sub(1.0, scale))


def erf(r: Real, x: Value) -> Value:
    """1 - 2^(-|x|*g(|x|)), which keeps its relative accuracy down to 0; f64 has a polynomial for small x besides."""
    size = r.below(r.abs(x), r.pick(3.95, 6.0))
    if r.dtype == "f32":
        return r.copysign(_one_minus_power(r, r.mul(size, r.poly(t.ERF_F32, size))), x)
    far = (*t.ERF_LARGE, *[0.0] * (len(t.ERF_MIDDLE) - len(t.ERF_LARGE)))
    outer = r.gt(size, 2.5)
    g = r.poly([r.select(outer, b, a) for a, b in zip(t.ERF_MIDDLE, far)], size)
    y = r.copysign(_one_minus_power(r, r.mul(size, g)), x)
    return r.select(r.lt(size, 1.0), r.mul(x, r.poly(t.ERF_SMALL, r.mul(x, x))), y)


def erf_ratio(r: Real, x: Value) -> Value:
    """5 ulp in half the operations; f32."""
    return _ratio(r, x, 3.93, *t.ERF_RATIO)
