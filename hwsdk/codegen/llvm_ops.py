"""The scalar operations of LoopIR as LLVM instructions, for one value or for all lanes alike.

Design choice: one table from (name, kind of dtype) to a short function; what is not in the table is expanded into what
is (see `math_expand`).  No operation traps, and none loses a NaN: extremes are compare-and-select, never `maxnum`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hwsdk.codegen.llvm_casts import Casts, suffix
from hwsdk.codegen.llvm_text import Function
from hwsdk.codegen.llvm_types import NARROW, float_text, splat_text, value_type, vector
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError

_NUMBER = re.compile(r"(-?\d+)\)?$")
COMPARISONS = frozenset("eq ne lt le gt ge".split())


class Ops:
    """Emits operations into one function.  Operands are texts of equal lane count."""

    def __init__(self, function: Function, casts: Casts) -> None:
        self.f = function
        self.casts = casts

    def has(self, name: str, dtype: str) -> bool:
        """Is the operation emitted directly for this dtype?"""
        kind = DTYPES[dtype].kind
        return (name, kind) in _TABLE or (name, "*") in _TABLE

    def emit(self, name: str, dtype: str, lanes: int, *x: str) -> str:
        """The result of an operation whose operands have this dtype."""
        kind = DTYPES[dtype].kind
        rule = _TABLE.get((name, kind)) or _TABLE.get((name, "*"))
        if rule is None:
            raise CodegenError(f"{self.f.name}: no operation {name!r} on {dtype}")
        result = rule(_Use(self, name, dtype, kind, lanes), *x)
        rounded = dtype in NARROW and name not in EXACT
        return self.casts.round_to(result, dtype, lanes) if rounded else result


class _Use:
    """One use of an operation: the helpers that the rules below are written with."""

    def __init__(self, ops: Ops, name: str, dtype: str, kind: str, lanes: int) -> None:
        self.f = ops.f
        self.casts = ops.casts
        self.name = name
        self.dtype = dtype
        self.kind = kind
        self.lanes = lanes
        self.element = value_type(dtype)
        self.type = vector(self.element, lanes)
        self.suffix = suffix(self.element, lanes)
        self.bits = DTYPES[dtype].bits

    def const(self, value: float) -> str:
        text = float_text(value, self.element) if self.kind == "f" else str(value)
        return splat_text(text, self.element, self.lanes)

    def op(self, op: str, x: str, y: str) -> str:
        return self.f.op(f"{op} {self.type} {x}, {y}")

    def compare(self, op: str, x: str, y: str) -> str:
        return self.f.op(f"{'fcmp' if self.kind == 'f' else 'icmp'} {op} {self.type} {x}, {y}")

    def select(self, cond: str, x: str, y: str) -> str:
        return self.casts.select(cond, x, y, self.element, self.lanes)

    def call(self, name: str, *x: str, extra: str = "") -> str:
        args = ", ".join(f"{self.type} {a}" for a in x)
        return self.f.op(f"call {self.type} @llvm.{name}.{self.suffix}({args}{extra})")

    def logic(self, op: str, x: str, y: str) -> str:
        """On masks."""
        return self.f.op(f"{op} {vector('i1', self.lanes)} {x}, {y}")


Rule = Callable[..., str]
_TABLE: dict[tuple[str, str], Rule] = {}
# The result is representable whenever the operands are: no rounding to the narrow type is needed.
EXACT = frozenset("neg abs floor ceil round trunc sign not isnan isinf max min".split()) | COMPARISONS


def _rule(names: str, kinds: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names.split():
            for kind in kinds:
                _TABLE[name, kind] = rule
        return rule

    return add


# ------------------------------------------------------------------------------------------------------ arithmetic
_PLAIN = {
    ("add", "f"): "fadd", ("sub", "f"): "fsub", ("mul", "f"): "fmul", ("div", "f"): "fdiv",
    ("add", "iu"): "add", ("sub", "iu"): "sub", ("mul", "iu"): "mul",
    ("and", "iub"): "and", ("or", "iub"): "or", ("xor", "iub"): "xor",
}  # fmt: skip


def _plain(instruction: str) -> Rule:
    return lambda u, x, y: u.op(instruction, x, y)


for (_name, _kinds), _instruction in _PLAIN.items():
    _rule(_name, _kinds)(_plain(_instruction))

_CALLS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
}


def _call(intrinsic: str) -> Rule:
    return lambda u, *x: u.call(intrinsic, *x)


for _name, _instruction in _CALLS.items():
    _rule(_name, "f")(_call(_instruction))
_rule("fma", "f")(_call("fma"))


@_rule("fma", "iu")
def _integer_fma(u: _Use, x: str, y: str, z: str) -> str:
    return u.op("add", u.op("mul", x, y), z)


@_rule("neg", "f")
def _neg(u: _Use, x: str) -> str:
    return u.f.op(f"fneg {u.type} {x}")


@_rule("neg", "iu")
def _neg_integer(u: _Use, x: str) -> str:
    return u.op("sub", u.const(0), x)


@_rule("abs", "iu")
def _abs_integer(u: _Use, x: str) -> str:
    return u.call("abs", x, extra=", i1 false") if u.kind == "i" else x


@_rule("sign", "f")
def _sign(u: _Use, x: str) -> str:
    """Zeros and NaN are their own sign."""
    one = u.call("copysign", u.const(1.0), x)
    return u.select(u.compare("une", x, u.const(0.0)), u.select(u.compare("ord", x, x), one, x), x)


@_rule("sign", "iu")
def _sign_integer(u: _Use, x: str) -> str:
    one = u.select(u.compare("eq", x, u.const(0)), u.const(0), u.const(1))
    return u.select(u.compare("slt", x, u.const(0)), u.const(-1), one) if u.kind == "i" else one


@_rule("reciprocal", "f")
def _reciprocal(u: _Use, x: str) -> str:
    return u.op("fdiv", u.const(1.0), x)


@_rule("rsqrt", "f")
def _rsqrt(u: _Use, x: str) -> str:
    return u.op("fdiv", u.const(1.0), u.call("sqrt", x))


# --------------------------------------------------------------------------------------------------- integer division
def _safe_divisor(u: _Use, x: str, y: str) -> tuple[str, str]:
    """A divisor that cannot trap, and whether the real one was zero.   MIN / -1 wraps to MIN = MIN / 1."""
    zero = u.compare("eq", y, u.const(0))
    bad = zero
    if u.kind == "i":
        least = u.compare("eq", x, u.const(-(1 << (u.bits - 1))))
        bad = u.logic("or", zero, u.logic("and", least, u.compare("eq", y, u.const(-1))))
    return u.select(bad, u.const(1), y), zero


@_rule("div floordiv mod fmod", "iu")
def _integer_division(u: _Use, x: str, y: str) -> str:
    """Division by zero gives 0.  floordiv and mod round towards minus infinity, div and fmod towards zero."""
    safe, zero = _safe_divisor(u, x, y)
    sign = "s" if u.kind == "i" else "u"
    wants_rest = u.name in ("mod", "fmod")
    result = u.op(f"{sign}rem" if wants_rest else f"{sign}div", x, safe)
    if u.kind == "i" and u.name in ("floordiv", "mod"):
        rest = result if wants_rest else u.op("sub", x, u.op("mul", result, safe))
        differs = u.compare("slt", u.op("xor", rest, safe), u.const(0))
        adjust = u.logic("and", differs, u.compare("ne", rest, u.const(0)))
        step = u.op("add", rest, safe) if wants_rest else u.op("sub", result, u.const(1))
        result = u.select(adjust, step, result)
    return u.select(zero, u.const(0), result)


def _constant(text: str) -> int | None:
    """The number in the text of an integer constant."""
    found = _NUMBER.search(text) if not text.startswith("%") else None
    return None if found is None else int(found[1])


@_rule("shl shr", "iu")
def _shift(u: _Use, x: str, y: str) -> str:
    """Shifting everything out gives 0 (or the sign)."""
    constant = _constant(y)
    if constant is not None and 0 <= constant < u.bits:
        return u.op("shl" if u.name == "shl" else "ashr" if u.kind == "i" else "lshr", x, y)
    last = u.const(u.bits - 1)
    over = u.compare("ugt", y, last)
    amount = u.select(over, last, y)
    if u.name == "shr" and u.kind == "i":
        return u.op("ashr", x, amount)
    return u.select(over, u.const(0), u.op("shl" if u.name == "shl" else "lshr", x, amount))


@_rule("bitnot", "iub")
def _bitnot(u: _Use, x: str) -> str:
    return u.op("xor", x, u.const(-1) if u.kind != "b" else splat_text("true", "i1", u.lanes))


@_rule("not", "b")
def _not(u: _Use, x: str) -> str:
    return u.op("xor", x, splat_text("true", "i1", u.lanes))


# ---------------------------------------------------------------------------------------------------------- extremes
@_rule("max min", "f")
def _float_extreme(u: _Use, x: str, y: str) -> str:
    """NaN on either side gives NaN.  With a constant y one compare-and-select does it."""
    if not y.startswith("%") and "0x7FF8" not in y:
        return u.select(u.compare("olt" if u.name == "max" else "ogt", x, y), y, x)
    better = u.select(u.compare("ogt" if u.name == "max" else "olt", x, y), x, y)  # y if either is NaN
    return u.select(u.compare("uno", x, x), x, better)


@_rule("max min", "iu")
def _integer_extreme(u: _Use, x: str, y: str) -> str:
    return u.call(("s" if u.kind == "i" else "u") + u.name, x, y)


@_rule("max min", "b")
def _bool_extreme(u: _Use, x: str, y: str) -> str:
    return u.op("or" if u.name == "max" else "and", x, y)


# ------------------------------------------------------------------------------------------------------- comparisons
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


@_rule("eq ne lt le gt ge", "f")
def _float_compare(u: _Use, x: str, y: str) -> str:
    return u.compare(_FLOAT_COMPARE[u.name], x, y)


@_rule("eq ne lt le gt ge", "iub")
def _integer_compare(u: _Use, x: str, y: str) -> str:
    sign = "" if u.name in ("eq", "ne") else "s" if u.kind == "i" else "u"
    return u.compare(sign + u.name, x, y)


@_rule("isnan", "f")
def _isnan(u: _Use, x: str) -> str:
    return u.compare("uno", x, x)


@_rule("isinf", "f")
def _isinf(u: _Use, x: str) -> str:
    return u.compare("oeq", u.call("fabs", x), u.const(float("inf")))
