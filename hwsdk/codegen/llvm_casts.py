"""Numeric conversions as LLVM text: between values of different dtypes, and between values and what memory holds.

Design choice: half-precision conversions use the machine's instructions only where the description says that it has
them (`dtypes.f16` with all its `needs`); everywhere else they are a few exact integer and f32 operations, so that no
conversion ever becomes a call into a run-time library.
"""

from __future__ import annotations

from hwsdk.codegen.llvm_text import Function
from hwsdk.codegen.llvm_types import NARROW, bits_of, float_text, splat_text, value_type, vector
from hwsdk.dtypes import DTYPES, DType
from hwsdk.target_desc.model import Target


def native_half(target: Target) -> bool:
    """Does the machine convert f16 by itself?"""
    support = target.dtypes.get("f16")
    return support is not None and support.use != "none" and set(support.needs) <= set(target.features)


class Casts:
    """Emits conversions into one function."""

    def __init__(self, function: Function, target: Target) -> None:
        self.f = function
        self.half = native_half(target)
        self.bfloat = target.codegen.model == "simt" and target.native("bf16")  # SIMD units flush denormals
        self._patterns: dict[
            tuple[str, str], str
        ] = {}  # (float, dtype) -> the pattern that it was widened from

    # ---------------------------------------------------------------------------------------------------- helpers
    def _int(self, value: int, bits: int, lanes: int) -> str:
        return splat_text(str(value), f"i{bits}", lanes)

    def _bin(self, op: str, element: str, lanes: int, x: str, y: str) -> str:
        return self.f.op(f"{op} {vector(element, lanes)} {x}, {y}")

    def bitcast(self, x: str, have: str, want: str, lanes: int) -> str:
        """Reinterpret; an IR no-op when the types agree."""
        if have == want:
            return x
        return self.f.op(f"bitcast {vector(have, lanes)} {x} to {vector(want, lanes)}")

    def _convert(self, op: str, x: str, have: str, want: str, lanes: int) -> str:
        return self.f.op(f"{op} {vector(have, lanes)} {x} to {vector(want, lanes)}")

    # --------------------------------------------------------------------------------------------- 16-bit patterns
    def widen(self, x: str, dtype: str, lanes: int) -> str:
        """i16 pattern -> float, exact."""
        wide = self._widen(x, dtype, lanes)
        self._patterns[wide, dtype] = x
        return wide

    def _widen(self, x: str, dtype: str, lanes: int) -> str:
        if dtype == "bf16":
            wide = self._convert("zext", x, "i16", "i32", lanes)
            return self.bitcast(
                self._bin("shl", "i32", lanes, wide, self._int(16, 32, lanes)), "i32", "float", lanes
            )
        if self.half:
            return self._convert("fpext", self.bitcast(x, "i16", "half", lanes), "half", "float", lanes)
        return self._widen_half(x, lanes)

    def _widen_half(self, x: str, lanes: int) -> str:
        """Shift into place, multiply by 2^112 (exact, subnormals included), restore Inf and NaN."""
        i, n = "i32", lanes
        wide = self._convert("zext", x, "i16", i, n)
        sign = self._bin(
            "shl", i, n, self._bin("and", i, n, wide, self._int(0x8000, 32, n)), self._int(16, 32, n)
        )
        rest = self._bin(
            "shl", i, n, self._bin("and", i, n, wide, self._int(0x7FFF, 32, n)), self._int(13, 32, n)
        )
        scale = splat_text(float_text(2.0**112, "float"), "float", n)
        finite = self._bin("fmul", "float", n, self.bitcast(rest, i, "float", n), scale)
        bits = self.bitcast(finite, "float", i, n)
        special = self._bin("or", i, n, rest, self._int(0x7F800000, 32, n))
        is_special = self.f.op(f"icmp uge {vector(i, n)} {rest}, {self._int(0x7C00 << 13, 32, n)}")
        bits = self.select(is_special, special, bits, i, n)
        return self.bitcast(self._bin("or", i, n, bits, sign), i, "float", n)

    def narrow(self, x: str, dtype: str, lanes: int) -> str:
        """float -> i16 pattern, to nearest even; NaN stays NaN."""
        known = self._patterns.get((x, dtype))
        if known is not None:
            return known
        if dtype == "bf16" and self.bfloat:
            return self.bitcast(self._convert("fptrunc", x, "float", "bfloat", lanes), "bfloat", "i16", lanes)
        if dtype == "bf16":
            return self._narrow_bf16(x, lanes)
        if self.half:
            return self.bitcast(self._convert("fptrunc", x, "float", "half", lanes), "half", "i16", lanes)
        return self._narrow_half(x, lanes)

    def _narrow_bf16(self, x: str, lanes: int) -> str:
        i, n = "i32", lanes
        bits = self.bitcast(x, "float", i, n)
        top = self._bin("lshr", i, n, bits, self._int(16, 32, n))
        even = self._bin("and", i, n, top, self._int(1, 32, n))
        rounded = self._bin("add", i, n, self._bin("add", i, n, bits, self._int(0x7FFF, 32, n)), even)
        rounded = self._bin("lshr", i, n, rounded, self._int(16, 32, n))
        quiet = self._bin("or", i, n, top, self._int(0x40, 32, n))
        nan = self.f.op(f"fcmp uno {vector('float', n)} {x}, {x}")
        return self._convert("trunc", self.select(nan, quiet, rounded, i, n), i, "i16", n)

    def _narrow_half(self, x: str, lanes: int) -> str:
        """Adding 2^(e+13-23) in f32 rounds the significand at the place of the half's last bit."""
        i, n = "i32", lanes
        bits = self.bitcast(x, "float", i, n)
        size = self._bin("and", i, n, bits, self._int(0x7FFFFFFF, 32, n))
        sign = self._bin("and", i, n, bits, self._int(-0x80000000, 32, n))
        sign = self._bin("lshr", i, n, sign, self._int(16, 32, n))
        up, down = (splat_text(float_text(2.0**e, "float"), "float", n) for e in (112, -110))
        base = self._bin("fmul", "float", n, self.bitcast(size, i, "float", n), up)
        base = self._bin("fmul", "float", n, base, down)
        exponent = self._bin("and", i, n, size, self._int(0x7F800000, 32, n))
        kind = vector(i, n)
        least = self._int(0x38800000, 32, n)
        exponent = self.f.op(f"call {kind} @llvm.umax.{suffix(i, n)}({kind} {exponent}, {kind} {least})")
        magic = self.bitcast(self._bin("add", i, n, exponent, self._int(0x07800000, 32, n)), i, "float", n)
        sums = self.bitcast(self._bin("fadd", "float", n, base, magic), "float", i, n)
        top = self._bin(
            "and", i, n, self._bin("lshr", i, n, sums, self._int(13, 32, n)), self._int(0x7C00, 32, n)
        )
        low = self._bin("and", i, n, sums, self._int(0xFFF, 32, n))
        number = self._bin("add", i, n, top, low)
        nan = self.f.op(f"icmp ugt {kind} {size}, {self._int(0x7F800000, 32, n)}")
        number = self.select(nan, self._int(0x7E00, 32, n), number, i, n)
        return self._convert("trunc", self._bin("or", i, n, number, sign), i, "i16", n)

    def select(self, cond: str, x: str, y: str, element: str, lanes: int) -> str:
        kind = vector(element, lanes)
        return self.f.op(f"select {vector('i1', lanes)} {cond}, {kind} {x}, {kind} {y}")

    def round_to(self, x: str, dtype: str, lanes: int) -> str:
        """float -> the nearest float that the narrow dtype can hold."""
        return self.widen(self.narrow(x, dtype, lanes), dtype, lanes)

    # --------------------------------------------------------------------------------------------------- memory
    def from_stored(self, x: str, dtype: str, lanes: int) -> str:
        """What memory holds -> value."""
        if dtype == "bool":
            return self.f.op(f"icmp ne {vector('i8', lanes)} {x}, {self._int(0, 8, lanes)}")
        return self.widen(x, dtype, lanes) if dtype in NARROW else x

    def to_stored(self, x: str, dtype: str, lanes: int) -> str:
        if dtype == "bool":
            return self._convert("zext", x, "i1", "i8", lanes)
        return self.narrow(x, dtype, lanes) if dtype in NARROW else x

    # ---------------------------------------------------------------------------------------------------- numeric
    def convert(self, x: str, have: str, want: str, lanes: int) -> str:
        """The graph op `cast`."""
        if have == want:
            return x
        a, b = DTYPES[have].kind, DTYPES[want].kind
        if b == "b":
            return self._truth(x, have, lanes)
        if a == "f":
            return (
                self._float_to_float(x, have, want, lanes)
                if b == "f"
                else self._to_integer(x, have, want, lanes)
            )
        if b == "f":
            return self._integer_to_float(x, have, want, lanes)
        return self._resize(x, have, want, lanes)

    def _truth(self, x: str, have: str, lanes: int) -> str:
        element = value_type(have)
        if DTYPES[have].kind == "f":
            return self.f.op(f"fcmp une {vector(element, lanes)} {x}, {splat_text('0.0', element, lanes)}")
        return self.f.op(f"icmp ne {vector(element, lanes)} {x}, {splat_text('0', element, lanes)}")

    def _float_to_float(self, x: str, have: str, want: str, lanes: int) -> str:
        a, b = value_type(have), value_type(want)
        if a != b:
            x = self._convert("fpext" if b == "double" else "fptrunc", x, a, b, lanes)
        return self.round_to(x, want, lanes) if want in NARROW else x

    def _to_integer(self, x: str, have: str, want: str, lanes: int) -> str:
        """Truncates, saturates, NaN gives 0: clamped to what converts exactly, so that lanes stay lanes."""
        a, b = value_type(have), value_type(want)
        kind, whole = vector(a, lanes), DTYPES[want]
        low, high = integer_limits(whole)
        most = greatest_below(high, a)
        x = self.select(self.f.op(f"fcmp ord {kind} {x}, {x}"), x, vector_constant(0.0, a, lanes), a, lanes)
        inside = self._clamp(x, low, most, a, lanes)
        step = b if whole.bits >= 32 else "i32"
        op = "fptoui" if whole.kind == "u" and whole.bits >= 32 else "fptosi"
        result = self._convert(op, inside, a, step, lanes)
        if most < high:
            over = self.f.op(f"fcmp ogt {kind} {x}, {vector_constant(most, a, lanes)}")
            bits = high if whole.kind == "i" else -1
            result = self.select(over, self._int(bits, whole.bits, lanes), result, step, lanes)
        return result if step == b else self._convert("trunc", result, step, b, lanes)

    def _clamp(self, x: str, low: float, high: float, element: str, lanes: int) -> str:
        """Into [low, high]; x is no NaN."""
        kind = vector(element, lanes)
        least, most = vector_constant(low, element, lanes), vector_constant(high, element, lanes)
        x = self.select(self.f.op(f"fcmp olt {kind} {x}, {least}"), least, x, element, lanes)
        return self.select(self.f.op(f"fcmp ogt {kind} {x}, {most}"), most, x, element, lanes)

    def _integer_to_float(self, x: str, have: str, want: str, lanes: int) -> str:
        a, b = value_type(have), value_type(want)
        op = "sitofp" if DTYPES[have].kind == "i" else "uitofp"
        x = self._convert(op, x, a, b, lanes)
        return self.round_to(x, want, lanes) if want in NARROW else x

    def _resize(self, x: str, have: str, want: str, lanes: int) -> str:
        a, b = value_type(have), value_type(want)
        if a == b:
            return x
        widen = "sext" if DTYPES[have].kind == "i" else "zext"
        return self._convert("trunc" if bits_of(a) > bits_of(b) else widen, x, a, b, lanes)

    def reinterpret(self, x: str, have: str, want: str, lanes: int) -> str:
        """The same bits as another dtype."""
        if have == want:
            return x
        stored = self.to_stored(x, have, lanes)
        a = "i8" if have == "bool" else "i16" if have in NARROW else value_type(have)
        b = "i8" if want == "bool" else "i16" if want in NARROW else value_type(want)
        return self.from_stored(self.bitcast(stored, a, b, lanes), want, lanes)


def suffix(element: str, lanes: int) -> str:
    """How an overloaded intrinsic spells a type: v8f32, i64 ..."""
    short = {"double": "f64", "float": "f32", "half": "f16"}.get(element, element)
    return f"v{lanes}{short}" if lanes else short


def integer_limits(whole: DType) -> tuple[int, int]:
    """Least and greatest value of an integer dtype."""
    if whole.kind == "u":
        return 0, (1 << whole.bits) - 1
    return -(1 << (whole.bits - 1)), (1 << (whole.bits - 1)) - 1


def greatest_below(limit: int, element: str) -> float:
    """The greatest value of a float type that is not above an integer limit of the form 2^n - 1."""
    bits = 53 if element == "double" else 24
    size = limit.bit_length()
    return float(limit if size <= bits else limit - (1 << (size - bits)) + 1)


def vector_constant(value: float, element: str, lanes: int) -> str:
    """A float constant in all lanes."""
    return splat_text(float_text(value, element), element, lanes)
