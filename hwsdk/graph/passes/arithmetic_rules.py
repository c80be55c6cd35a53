"""Rewrite rules of arithmetic: what algebra allows on one or two elementwise nodes.

Laws: a rule keeps the value for every input, infinities, NaN and the sign of zero included, up to one rounding
where it says so; it never keeps more nodes alive than before; integers are exact.

Design choice: a rule is a function with its algebra in the line above; the table at the end says which op it
serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hwsdk.dtypes import dtype
from hwsdk.graph.opdef import Value
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule, full_like
from hwsdk.graph.passes.signs import Sign, sign_of
from hwsdk.graph.scalar import SCALAR, convert, neutral

# op: (the element that leaves x as it is, only on the right?)
_UNITS: dict[str, tuple[float, bool]] = {
    "add": (-0.0, False), "sub": (0.0, True), "mul": (1, False), "div": (1, True), "pow": (1, True),
    "floordiv": (1, True),
}  # fmt: skip


# x + -0 = x - 0 = x*1 = x/1 = x**1 = x;  x + 0 = x unless x may be the float -0
def unit_operand(r: Rewriting, m: Match) -> Value | None:
    unit, right_only = _UNITS[m.op]
    real = dtype(m.type.dtype).kind == "f"
    if m.op == "floordiv" and real:
        return None
    for position in (1,) if right_only else (1, 0):
        x, number = m.inputs[1 - position], r.uniform(m.inputs[position])
        if number is None or number != unit:
            continue
        same = not real or math.copysign(1, number) == math.copysign(1, unit)
        if same or (m.op == "add" and sign_of(r, x) >= Sign.NON_NEGATIVE):
            return x
    return None


# max(x, -inf) = min(x, inf) = x
def neutral_extreme(r: Rewriting, m: Match) -> Value | None:
    for position in (1, 0):
        value = r.uniform(m.inputs[position])
        if value is not None and value == neutral(m.op, m.type.dtype):
            return m.inputs[1 - position]
    return m.inputs[0] if m.inputs[0] == m.inputs[1] else None


# x and true = x;  x and false = false;  x or false = x;  x or true = true;  x op x = x
def logic_constant(r: Rewriting, m: Match) -> Value | None:
    if m.inputs[0] == m.inputs[1]:
        return m.inputs[0]
    if m.type.dtype != "bool":
        return None
    for position in (1, 0):
        value = r.uniform(m.inputs[position])
        if value is not None:
            return m.inputs[1 - position if bool(value) == (m.op == "and") else position]
    return None


# --x = x;  not not x = x
def involution(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], m.op)
    return inner.inputs[0] if inner else None


# not (x = y) is x != y;  for integers also not (x < y) is x >= y and so on
def negated_comparison(r: Rewriting, m: Match) -> Value | None:
    opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
    inner = r.producer(m.inputs[0], *opposite)
    if inner is None or (inner.op not in ("eq", "ne") and dtype(inner.inputs[0].dtype).kind == "f"):
        return None
    return r.emit(opposite[inner.op], inner.inputs)


# |-x| = ||x|| = |x|
def absolute(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "neg", "abs")
    return r.emit("abs", inner.inputs) if inner and dtype(m.type.dtype).kind == "f" else None


# floor, ceil, round, trunc and sign of a rounded x are x (sign: of a sign)
def rounded(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], *(("sign",) if m.op == "sign" else ("floor", "ceil", "round", "trunc")))
    return m.inputs[0] if inner else None


# x * -1 = -x
def times_minus_one(r: Rewriting, m: Match) -> Value | None:
    for position in (1, 0):
        if dtype(m.type.dtype).kind != "u" and r.uniform(m.inputs[position]) == -1:
            return r.emit("neg", (m.inputs[1 - position],))
    return None


# x + -y = x - y;  x - -y = x + y
def add_negated(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[1], "neg")
    if inner:
        return r.emit("sub" if m.op == "add" else "add", (m.inputs[0], inner.inputs[0]))
    inner = r.producer(m.inputs[0], "neg") if m.op == "add" else None
    return r.emit("sub", (m.inputs[1], inner.inputs[0])) if inner else None


# x - x = 0, integers only (a float may be NaN or infinite)
def self_difference(r: Rewriting, m: Match) -> Value | None:
    if m.inputs[0] != m.inputs[1] or dtype(m.type.dtype).kind == "f":
        return None
    return r.emit("full", shape=m.type.shape, dtype=m.type.dtype, value=0)


# x**2 = x*x;  x**3 = x*x*x (one more rounding);  x**-1 = 1/x
# x**0.5 = sqrt(x) and x**-0.5 = rsqrt(x) unless x may be -0 or -inf, which pow takes for 0 and inf
def small_power(r: Rewriting, m: Match) -> Value | None:
    x, y = m.inputs
    exponent = r.uniform(y)
    if exponent is None:
        return None
    if exponent == 2:
        return r.emit("mul", (x, x))
    if exponent == 3:
        return r.emit("mul", (r.emit("mul", (x, x)), x))
    functions = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    name = functions.get(float(exponent)) if dtype(m.type.dtype).kind == "f" else None
    if name is None or (name != "reciprocal" and sign_of(r, x) < Sign.NON_NEGATIVE):
        return None
    return r.emit(name, (x,))


# x/c = x*(1/c): exact if c is a power of two, else one more rounding (the quotient is off by at most 1.5 ulp)
def divide_by_constant(r: Rewriting, m: Match) -> Value | None:
    c = r.uniform(m.inputs[1])
    if c is None or dtype(m.type.dtype).kind != "f" or not math.isfinite(float(c)) or float(c) == 0:
        return None
    inverse = 1 / float(c)
    exact = math.frexp(float(c))[0] in (0.5, -0.5)
    if not exact and (m.type.dtype not in ("f32", "f64") or not 1e-30 < abs(inverse) < 1e30):
        return None
    if not 1e-37 < abs(inverse) < 1e38 or (exact and float(convert(inverse, m.type.dtype)) != inverse):
        return None  # 1/c is no number of the dtype
    factor = r.emit("full", shape=m.type.shape, dtype=m.type.dtype, value=inverse)
    return r.emit("mul", (m.inputs[0], factor))


# 1/x is reciprocal(x)
def one_over(r: Rewriting, m: Match) -> Value | None:
    if dtype(m.type.dtype).kind == "f" and r.uniform(m.inputs[0]) == 1:
        return r.emit("reciprocal", (m.inputs[1],))
    return None


# reciprocal(sqrt(x)) = rsqrt(x): one rounding less
def reciprocal_of_root(r: Rewriting, m: Match) -> Value | None:
    inner = r.producer(m.inputs[0], "sqrt")
    return r.emit("rsqrt", inner.inputs) if inner else None


# select(true, x, y) = x;  select(false, x, y) = y;  select(c, x, x) = x;  select(not c, x, y) = select(c, y,
# x)
def decided_select(r: Rewriting, m: Match) -> Value | None:
    condition, x, y = m.inputs
    known = r.uniform(condition)
    if known is not None:
        return x if known else y
    if x == y:
        return x
    inner = r.producer(condition, "not")
    return r.emit("select", (inner.inputs[0], y, x)) if inner else None


def _contains(wide: str, narrow: str) -> bool:
    """Does dtype `wide` hold every value of dtype `narrow`?"""
    if wide == narrow:
        return True
    w, n = dtype(wide), dtype(narrow)
    if n.kind == "b":
        return w.bits >= 2
    if w.kind == "f":
        precision = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
        if n.kind in "iu":
            return n.bits <= precision.get(wide, 0)
        return (wide == "f64" and n.bits <= 32) or (wide == "f32" and n.bits <= 16)
    if w.kind == n.kind:
        return w.bits >= n.bits
    return w.kind == "i" and n.kind == "u" and w.bits > n.bits


# cast to the own dtype = x;  cast(cast(x)) = cast(x) if the inner one loses nothing (an integer that went
# through a float saturates in a narrower integer, where it would wrap)
def needless_cast(r: Rewriting, m: Match) -> Value | None:
    x = m.inputs[0]
    if x.dtype == m.type.dtype:
        return x
    inner = r.producer(x, "cast") if m.op == "cast" else None
    if inner and _contains(x.dtype, inner.inputs[0].dtype):
        kinds = dtype(inner.inputs[0].dtype).kind + dtype(x.dtype).kind + dtype(m.type.dtype).kind
        if kinds in ("ifi", "ifu", "ufi", "ufu") and not _contains(m.type.dtype, inner.inputs[0].dtype):
            return None
        return r.emit("cast", inner.inputs, dtype=m.type.dtype)
    return None


# f(broadcast(x), broadcast(y)) = broadcast(f(x, y)) if both are spread the same way (a number is spread any
# way)
def hoist_broadcast(r: Rewriting, m: Match) -> Value | None:
    spread = [r.producer(v, "broadcast_in_dim") for v in m.inputs]
    numbers = [r.uniform(v) for v in m.inputs]
    wide = [s for s, n in zip(spread, numbers, strict=True) if n is None]
    if not wide or wide[0] is None:
        return None
    first = wide[0]
    source = first.inputs[0]
    for s in wide[1:]:
        if s is None or s.attrs["dims"] != first.attrs["dims"] or s.inputs[0].shape != source.shape:
            return None
    operands = [
        full_like(r, source.shape, v.dtype, n) if n is not None or s is None else s.inputs[0]
        for v, s, n in zip(m.inputs, spread, numbers, strict=True)
    ]
    attrs = {"dtype": m.type.dtype} if m.op in ("cast", "bitcast") else {}
    small = r.emit(m.op, operands, **attrs)
    return r.emit("broadcast_in_dim", (small,), shape=m.type.shape, dims=first.attrs["dims"])


ARITHMETIC_RULES: dict[str, list[Rule]] = {
    "add": [unit_operand, add_negated],
    "sub": [unit_operand, add_negated, self_difference],
    "mul": [unit_operand, times_minus_one],
    "div": [unit_operand, one_over, divide_by_constant],
    "floordiv": [unit_operand],
    "pow": [unit_operand, small_power],
    "max": [neutral_extreme],
    "min": [neutral_extreme],
    "and": [logic_constant],
    "or": [logic_constant],
    "neg": [involution],
    "not": [involution, negated_comparison],
    "abs": [absolute],
    **{name: [rounded] for name in ("floor", "ceil", "round", "trunc", "sign")},
    "reciprocal": [reciprocal_of_root],
    "select": [decided_select],
    "cast": [needless_cast],
    "bitcast": [needless_cast],
}
_HOISTED: tuple[str, ...] = (*SCALAR, "cast", "bitcast", "select")
_hoist: Callable[[Rewriting, Match], Value | None] = hoist_broadcast
for _name in _HOISTED:
    ARITHMETIC_RULES.setdefault(_name, []).append(_hoist)
