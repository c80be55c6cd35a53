"""A small arithmetic of LoopIR values, in which the expansions of functions are written.

Design choice: an expansion is ordinary Python over `Real`, which knows one dtype (f32 or f64), its integer twin and the
numbers that depend on it.  So one text serves both precisions, and what comes out is plain LoopIR.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from hwsdk.codegen.loop_ir import Binary, Cast, Const, Select, Ternary, Unary, Value

Number = int | float


class Real:
    """Arithmetic in one float dtype.  `bits` and `real` reinterpret between a float and its unsigned pattern."""

    def __init__(self, dtype: str) -> None:
        wide = dtype == "f64"
        self.dtype = dtype
        self.int = "u64" if wide else "u32"
        self.width = 64 if wide else 32
        self.mantissa = 52 if wide else 23
        self.bias = 1023 if wide else 127
        self.numpy = np.float64 if wide else np.float32
        self.sign_mask = 1 << (self.width - 1)
        self.inf = self.c(float("inf"))
        self.nan = self.c(float("nan"))
        self.zero = self.c(0.0)
        self.one = self.c(1.0)

    def pick(self, f32: Number, f64: Number) -> Number:
        """The value for this precision."""
        return f64 if self.dtype == "f64" else f32

    # ---------------------------------------------------------------------------------------------------- constants
    def c(self, x: Number) -> Value:
        return Const(self.dtype, float(x))

    def i(self, x: int) -> Value:
        return Const(self.int, x)

    def _v(self, x: Value | Number) -> Value:
        return x if isinstance(x, Value) else self.c(x)

    # --------------------------------------------------------------------------------------------------- arithmetic
    def _bin(self, op: str, x: Value | Number, y: Value | Number) -> Value:
        return Binary(self.dtype, op, self._v(x), self._v(y))

    def add(self, x: Value | Number, y: Value | Number) -> Value:
        return self._bin("add", x, y)

    def sub(self, x: Value | Number, y: Value | Number) -> Value:
        return self._bin("sub", x, y)

    def mul(self, x: Value | Number, y: Value | Number) -> Value:
        return self._bin("mul", x, y)

    def div(self, x: Value | Number, y: Value | Number) -> Value:
        return self._bin("div", x, y)

    def fma(self, x: Value | Number, y: Value | Number, z: Value | Number) -> Value:
        return Ternary(self.dtype, "fma", self._v(x), self._v(y), self._v(z))

    def unary(self, op: str, x: Value) -> Value:
        return Unary(self.dtype, op, x)

    def neg(self, x: Value) -> Value:
        return self.unary("neg", x)

    def abs(self, x: Value) -> Value:
        return self.unary("abs", x)

    def sqrt(self, x: Value) -> Value:
        return self.unary("sqrt", x)

    def below(self, x: Value, limit: Number) -> Value:
        """min(x, limit); NaN stays."""
        return self._bin("min", x, limit)

    def above(self, x: Value, limit: Number) -> Value:
        """max(x, limit); NaN stays."""
        return self._bin("max", x, limit)

    def poly(self, coefficients: Sequence[float | Value], x: Value) -> Value:
        """Horner's rule; the coefficients begin with the constant."""
        return reduce(
            lambda total, c: self.fma(total, x, c), reversed(coefficients[:-1]), self._v(coefficients[-1])
        )

    # -------------------------------------------------------------------------------------------------- comparisons
    def compare(self, op: str, x: Value, y: Value | Number) -> Value:
        return Binary("bool", op, x, self._v(y))

    def lt(self, x: Value, y: Value | Number) -> Value:
        return self.compare("lt", x, y)

    def gt(self, x: Value, y: Value | Number) -> Value:
        return self.compare("gt", x, y)

    def eq(self, x: Value, y: Value | Number) -> Value:
        return self.compare("eq", x, y)

    def both(self, x: Value, y: Value) -> Value:
        return Binary("bool", "and", x, y)

    def either(self, x: Value, y: Value) -> Value:
        return Binary("bool", "or", x, y)

    def negated(self, x: Value) -> Value:
        return Unary("bool", "not", x)

    def select(self, cond: Value, x: Value | Number, y: Value | Number) -> Value:
        return Select(self.dtype, cond, self._v(x), self._v(y))

    # ----------------------------------------------------------------------------------------------------- patterns
    def bits(self, x: Value) -> Value:
        return Cast(self.int, x, "bits")

    def real(self, x: Value) -> Value:
        return Cast(self.dtype, x, "bits")

    def _int(self, op: str, x: Value, y: Value | int) -> Value:
        return Binary(self.int, op, x, y if isinstance(y, Value) else self.i(y))

    def iadd(self, x: Value, y: Value | int) -> Value:
        return self._int("add", x, y)

    def isub(self, x: Value, y: Value | int) -> Value:
        return self._int("sub", x, y)

    def imul(self, x: Value, y: Value | int) -> Value:
        return self._int("mul", x, y)

    def iand(self, x: Value, y: Value | int) -> Value:
        return self._int("and", x, y)

    def ior(self, x: Value, y: Value | int) -> Value:
        return self._int("or", x, y)

    def ixor(self, x: Value, y: Value | int) -> Value:
        return self._int("xor", x, y)

    def shl(self, x: Value, y: Value | int) -> Value:
        return self._int("shl", x, y)

    def shr(self, x: Value, y: Value | int) -> Value:
        return self._int("shr", x, y)

    def iselect(self, cond: Value, x: Value, y: Value) -> Value:
        return Select(self.int, cond, x, y)

    def bit_set(self, x: Value, bit: int) -> Value:
        """Is this bit of a pattern set?"""
        return Binary("bool", "ne", self.iand(x, 1 << bit), self.i(0))

    def copysign(self, size: Value, sign: Value) -> Value:
        """A non-negative size with the sign of another value."""
        return self.real(self.ior(self.bits(size), self.iand(self.bits(sign), self.sign_mask)))

    def flip(self, x: Value, sign_bits: Value) -> Value:
        """x with its sign inverted where the sign bit of the pattern is set."""
        return self.real(self.ixor(self.bits(x), sign_bits))

    def signed(self, pattern: Value) -> Value:
        """A pattern read as a signed integer, as a float."""
        as_int = Cast("i64" if self.width == 64 else "i32", pattern, "bits")
        return Cast(self.dtype, as_int)

    # ------------------------------------------------------------------------------------------------- double length
    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """a + b = s + e exactly, for |a| >= |b|."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def two_prod(self, a: Value, b: Value) -> tuple[Value, Value]:
        """a * b = p + e exactly."""
        p = self.mul(a, b)
        return p, self.fma(a, b, self.neg(p))
