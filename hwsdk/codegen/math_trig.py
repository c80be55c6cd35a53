"""sin, cos, tan and their inverses as basic operations.

    x = k*(pi/2) + r,  |r| <= pi/4

Design choice: the reduction works in f64 for both precisions.  Up to 2^20 it subtracts k times pi/2 in three parts
with fused operations; above, it multiplies the significand with the bits of 2/pi that matter (Payne and Hanek), in
integer words, with the window of bits chosen by a ladder of selects.  So every finite argument is right, and there is
no branch.
"""

from __future__ import annotations

from itertools import pairwise

from hwsdk.codegen import math_tables as t
from hwsdk.codegen.loop_ir import Binary, Cast, Value
from hwsdk.codegen.math_build import Real

_PIO2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_TWO_OVER_PI = 0.6366197723675814
_LIMIT = 2.0**20
# 2/pi = sum of word[i] * 2^(-32(i+1))
_WORDS = tuple(
    int(w, 16)
    for w in """
    a2f9836e 4e441529 fc2757d1 f534ddc0 db629599 3c439041 fe5163ab debbc561 b7246e3a 424dd2e0 06492eea 09d1921c
    fe1deb1c b129a73e e88235f5 2ebb4484 e99c7026 b45f7e41 3991d639 835339f4 9c845f8b bdf9283b 1ff897ff de05980f
    ef2f118b 5a0a6d1f 6d367ecf 27cb09b7 4f463f66 9e5fea2d 7527bac7 ebe5f17b 3d0739f7 8a5292ea 6bfb5fb1 1f8d5d08
    56033046 fc7b6bab f0cfbc20
    """.split()
)


# --------------------------------------------------------------------------------------------------------- reduction
def _reduce_small(d: Real, x: Value) -> tuple[Value, Value, Value]:
    """(k modulo 4 in the low bits of a pattern, r, rest of r) for |x| < 2^20."""
    magic = 3.0 * 2.0**51
    sum_ = d.fma(x, _TWO_OVER_PI, magic)
    k = d.sub(sum_, magic)
    first = d.fma(d.neg(k), _PIO2[0], x)  # exact
    product, error = d.two_prod(k, d.c(_PIO2[1]))
    high = d.sub(first, product)
    low = d.sub(d.sub(d.sub(first, high), product), error)
    return d.bits(sum_), high, d.fma(d.neg(k), _PIO2[2], low)


def _select_words(d: Real, index: Value, words: list[Value], count: int) -> list[Value]:
    """words[index : index + count], by shifting the list by 1, 2, 4 ... where the index has that bit."""
    step = 1
    while step < len(words):
        step *= 2
    while step > 1:
        step //= 2
        use = d.bit_set(index, step.bit_length() - 1)
        most = min(len(words), count + step - 1)
        zero = d.i(0)
        words = [
            d.iselect(use, words[i + step] if i + step < len(words) else zero, words[i]) for i in range(most)
        ]
    return words[:count]


def _reduce_large(d: Real, x: Value, single: bool) -> tuple[Value, Value, Value]:
    """The same for |x| >= 2^20: x*(2/pi) = m * 2^(e-52) * (2/pi); multiples of 4 do not matter.

    The string of words is 2^32*0 + 0 + 2/pi, moved left by e - 20 >= 0 bits.  What leaves it on the left has weights of
    2^32 and more in the product with m.  An f32 needs 5 words of it, an f64 7.
    """
    pattern = d.bits(d.abs(x))
    exponent = d.isub(d.shr(pattern, 52), 1023)  # 20 ... 1023
    m = d.ior(d.iand(pattern, (1 << 52) - 1), 1 << 52)
    shift = d.isub(exponent, 20)
    index, sub = d.shr(shift, 5), d.iand(shift, 31)
    count = 6 if single else 8
    known = [d.i(w) for w in (0, 0, *_WORDS)]
    window = _select_words(d, index, known[: 4 + count] if single else known, count)
    return _fraction(d, x, _multiply_words(d, m, _shifted_words(d, window, sub)))


def _shifted_words(d: Real, words: list[Value], shift: Value) -> list[Value]:
    """A string of 32-bit words moved left by 0 ... 31 bits; the last word is only a source of bits."""
    out = []
    for high, low in pairwise(words):
        both = d.shl(d.ior(d.shl(high, 32), low), shift)
        out.append(d.shr(both, 32))
    return out


def _multiply_words(d: Real, m: Value, words: list[Value]) -> list[Value]:
    """m (53 bits) times a string of words, without what is above the string; same length, most significant first."""
    mask = 0xFFFFFFFF
    low_m, high_m = d.iand(m, mask), d.shr(m, 32)
    out: list[Value] = []
    carry: Value = d.i(0)
    below: Value = d.i(0)  # high_m times the word below, added one place higher
    for word in reversed(words):
        product = d.imul(word, low_m)
        total = d.iadd(d.iadd(d.iand(product, mask), d.iand(below, mask)), d.iand(carry, mask))
        out.append(d.iand(total, mask))
        carry = d.iadd(
            d.iadd(d.shr(total, 32), d.shr(product, 32)), d.iadd(d.shr(below, 32), d.shr(carry, 32))
        )
        below = d.imul(word, high_m)
    return out[::-1]


def _fraction(d: Real, x: Value, words: list[Value]) -> tuple[Value, Value, Value]:
    """Quadrant and remainder from the product; the first word holds the integer part of x*(2/pi) in its low bits."""
    whole, parts = words[0], words[1:]
    top = d.ior(d.shl(parts[0], 32), parts[1])
    next_ = d.ior(d.shl(parts[2], 32), parts[3])
    up = d.shr(top, 63)  # a fraction of 1/2 or more counts down from the next quadrant
    quadrant = d.iadd(whole, up)
    flip = d.isub(d.i(0), up)
    top, next_ = d.ixor(top, flip), d.ixor(next_, flip)
    # 64 + 64 bits as doubles: the leading 53 bits of the fraction, exactly, and what follows
    lead = d.shr(top, 11)
    middle = d.iadd(d.shl(d.iand(top, 0x7FF), 42), d.shr(next_, 22))
    high = d.mul(_small_float(d, lead), 2.0**-53)
    low = d.mul(_small_float(d, middle), 2.0**-106)
    if len(parts) > 4:  # 53 bits more, for arguments next to a multiple of pi/2
        last = d.ior(d.shl(d.iand(next_, 0x3FFFFF), 31), d.shr(d.ixor(parts[4], d.iand(flip, 0xFFFFFFFF)), 1))
        low = d.fma(_small_float(d, last), 2.0**-159, low)
    high, low = d.two_sum(high, low)
    r, error = d.two_prod(high, d.c(_PIO2[0]))
    rest = d.fma(high, _PIO2[1], d.fma(low, _PIO2[0], error))
    sign = d.ixor(d.iand(d.bits(x), d.sign_mask), d.shl(up, 63))
    signed_quadrant = d.iselect(d.bit_set(d.bits(x), 63), d.isub(d.i(0), quadrant), quadrant)
    return signed_quadrant, d.flip(r, sign), d.flip(rest, sign)


def _small_float(d: Real, pattern: Value) -> Value:
    """An integer below 2^53 as a float: two halves put into the significands of 2^84 and 2^52."""
    high = d.real(d.ior(d.shr(pattern, 32), 0x4530000000000000))
    low = d.real(d.ior(d.iand(pattern, 0xFFFFFFFF), 0x4330000000000000))
    return d.add(d.sub(high, 2.0**84), d.sub(low, 2.0**52))


def _reduced(r: Real, x: Value) -> tuple[Value, Value, Value]:
    """(quadrant pattern, r, rest) in f64 for f64 and f32 arguments."""
    d = Real("f64")
    wide = x if r.dtype == "f64" else Cast("f64", x)
    small = d.lt(d.abs(wide), _LIMIT)
    near, far = _reduce_small(d, wide), _reduce_large(d, wide, r.dtype == "f32")
    quadrant = d.iselect(small, near[0], far[0])
    high, low = d.select(small, near[1], far[1]), d.select(small, near[2], far[2])
    finite = d.lt(d.abs(wide), d.inf)
    return quadrant, d.select(finite, high, d.nan), low


# --------------------------------------------------------------------------------------------------------- functions
def _kernels(r: Real, x: Value) -> tuple[Value, Value, Value]:
    """(quadrant, sin r, cos r)."""
    quadrant, high, low = _reduced(r, x)
    if r.dtype == "f32":
        a = Cast("f32", high)
        z = r.mul(a, a)
        sine = r.fma(r.mul(z, a), r.poly(t.SIN[0], z), a)
        cosine = r.fma(r.mul(z, z), r.poly(t.COS[0], z), r.fma(z, -0.5, 1.0))
        return quadrant, sine, cosine
    z = r.mul(high, high)
    # sin(r + e) = sin r + e*cos r, with cos r = 1 - r^2/2
    sine = r.add(high, r.fma(r.mul(z, high), r.poly(t.SIN[1], z), r.mul(low, r.fma(z, -0.5, 1.0))))
    half = r.mul(z, 0.5)
    w = r.sub(1.0, half)
    lost = r.sub(r.sub(1.0, w), half)
    cosine = r.add(w, r.add(lost, r.fma(r.mul(z, z), r.poly(t.COS[1], z), r.neg(r.mul(high, low)))))
    return quadrant, sine, cosine


def _sign_of(r: Real, quadrant: Value, shift: int) -> Value:
    """Bit 1 of (quadrant + shift) as a sign bit of r's dtype."""
    d = Real("f64")
    bit = d.shl(d.iand(d.shr(d.iadd(quadrant, shift), 1), 1), 63)
    if r.dtype == "f64":
        return bit
    return Cast("u32", d.shr(bit, 32))


def _wave(r: Real, x: Value, start: int) -> Value:
    """sin(x + start*pi/2)."""
    quadrant, sine, cosine = _kernels(r, x)
    d = Real("f64")
    odd = d.bit_set(d.iadd(quadrant, start), 0)
    return r.flip(r.select(odd, cosine, sine), _sign_of(r, quadrant, start))


def sin(r: Real, x: Value) -> Value:
    return r.select(r.lt(r.abs(x), r.pick(2.0**-13, 2.0**-27)), x, _wave(r, x, 0))


def cos(r: Real, x: Value) -> Value:
    return _wave(r, x, 1)


def tan(r: Real, x: Value) -> Value:
    """sin/cos, or -cos/sin in the odd quadrants."""
    quadrant, sine, cosine = _kernels(r, x)
    odd = Real("f64").bit_set(quadrant, 0)
    y = r.div(r.select(odd, r.neg(cosine), sine), r.select(odd, sine, cosine))
    return r.select(r.lt(r.abs(x), r.pick(2.0**-13, 2.0**-27)), x, y)


def _asin_core(r: Real, x: Value, z: Value) -> Value:
    return r.fma(r.mul(x, z), r.poly(t.ASIN[r.dtype == "f64"], z), x)


def _pi_parts(r: Real) -> tuple[float, float]:
    """pi/2 in two parts."""
    return (1.5707963705062866, -4.371139000186241e-08) if r.dtype == "f32" else _PIO2[:2]


def asin(r: Real, x: Value) -> Value:
    """For |x| > 1/2:  pi/2 - 2*asin(sqrt((1-|x|)/2))."""
    size = r.abs(x)
    inner = r.lt(size, 0.5)
    z = r.select(inner, r.mul(x, x), r.fma(size, -0.5, 0.5))
    a = r.select(inner, size, r.sqrt(z))
    y = _asin_core(r, a, z)
    high, low = _pi_parts(r)
    outer = r.add(r.sub(high, r.add(y, y)), low)
    return r.copysign(r.select(inner, y, outer), x)


def acos(r: Real, x: Value) -> Value:
    """2*asin(sqrt((1-|x|)/2)) for x > 1/2, pi minus that for x < -1/2, else pi/2 - asin x."""
    size = r.abs(x)
    inner = r.lt(size, 0.5)
    z = r.select(inner, r.mul(x, x), r.fma(size, -0.5, 0.5))
    a = r.select(inner, x, r.sqrt(z))
    y = _asin_core(r, a, z)
    high, low = _pi_parts(r)
    middle = r.sub(high, r.sub(y, low))
    twice = r.add(y, y)
    outer = r.select(r.lt(x, 0.0), r.sub(2 * high, r.sub(twice, 2 * low)), twice)
    return r.select(inner, middle, outer)


def _atan_positive(r: Real, x: Value) -> Value:
    """atan of x >= 0."""
    high, low = _pi_parts(r)
    if r.dtype == "f32":
        large = r.gt(x, 1.0)
        a = r.select(large, r.div(1.0, x), x)
        z = r.mul(a, a)
        y = r.fma(r.mul(a, z), r.poly(t.ATAN[0], z), a)
        return r.select(large, r.add(r.sub(high, y), low), y)
    large, middle = r.gt(x, 2.414213562373095), r.gt(x, 0.41421356237309503)
    turned = r.div(r.sub(x, 1.0), r.add(x, 1.0))
    a = r.select(large, r.div(-1.0, x), r.select(middle, turned, x))
    z = r.mul(a, a)
    base = r.select(large, high, r.select(middle, high / 2, 0.0))
    rest = r.select(large, low, r.select(middle, low / 2, 0.0))
    tail = r.fma(r.mul(a, z), r.poly(t.ATAN[1], z), rest)
    return r.add(base, r.add(a, tail))


def atan(r: Real, x: Value) -> Value:
    return r.copysign(_atan_positive(r, r.abs(x)), x)


def atan2(r: Real, y: Value, x: Value) -> Value:
    """atan(|y|/|x|) moved into the quadrant of (x, y)."""
    a, b = r.abs(y), r.abs(x)
    equal = r.eq(a, b)  # also infinity over infinity and zero over zero
    ratio = r.select(r.both(equal, r.gt(a, 0.0)), 1.0, r.select(r.eq(a, 0.0), 0.0, r.div(a, b)))
    angle = _atan_positive(r, ratio)
    high, low = _pi_parts(r)
    left = Binary("bool", "ne", r.iand(r.bits(x), r.sign_mask), r.i(0))
    angle = r.select(left, r.sub(2 * high, r.sub(angle, 2 * low)), angle)
    nan = r.either(r.compare("ne", x, x), r.compare("ne", y, y))
    return r.select(nan, r.nan, r.copysign(angle, y))
