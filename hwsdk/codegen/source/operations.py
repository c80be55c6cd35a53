"""The scalar operations and conversions of LoopIR in C-family text, with the helper functions that they call.

    Operations.emit(name, dtype, operands)     an expression
    Operations.helpers()                       text of every helper function used so far, callees first

Design choice: two tables.  INLINE has what is one expression that uses each operand once; BODIES has what needs more
and becomes a small function per dtype.  `codegen.source.operations` of a description replaces either by the chip's own
text.  `@name.dtype@` in any text is a call of another entry.  No operation traps and none loses a NaN.
"""

from __future__ import annotations

import re

from hwsdk.codegen.llvm_casts import greatest_below, integer_limits
from hwsdk.codegen.llvm_ops import COMPARISONS, EXACT
from hwsdk.codegen.llvm_types import NARROW, bits_of, value_type
from hwsdk.codegen.source.dialect import Dialect, fill, integer_constant
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError

_CALL = re.compile(r"@([\w.]+)@")

# (operation, kinds of dtype) -> expression.  {T}: the type; {U}: the unsigned type it wraps in; {f}: suffix in <math.h>
_INLINE: dict[tuple[str, str], str] = {
    ("add", "f"): "({0} + {1})", ("sub", "f"): "({0} - {1})", ("mul", "f"): "({0} * {1})",
    ("div", "f"): "({0} / {1})", ("neg", "f"): "(-{0})", ("fma", "f"): "fma{f}({0}, {1}, {2})",
    ("abs", "f"): "fabs{f}({0})", ("sqrt", "f"): "sqrt{f}({0})", ("floor", "f"): "floor{f}({0})",
    ("ceil", "f"): "ceil{f}({0})", ("trunc", "f"): "trunc{f}({0})", ("round", "f"): "rint{f}({0})",
    ("reciprocal", "f"): "({one} / {0})", ("rsqrt", "f"): "({one} / sqrt{f}({0}))",
    ("isinf", "f"): "(fabs{f}({0}) == @inf.{dtype}@())",
    ("add", "iu"): "({T})(({U}){0} + ({U}){1})", ("sub", "iu"): "({T})(({U}){0} - ({U}){1})",
    ("mul", "iu"): "({T})(({U}){0} * ({U}){1})", ("fma", "iu"): "({T})(({U}){0} * ({U}){1} + ({U}){2})",
    ("neg", "iu"): "({T})(0 - ({U}){0})", ("abs", "u"): "{0}", ("bitnot", "iu"): "({T})(~{0})",
    ("and", "iu"): "({T})({0} & {1})", ("or", "iu"): "({T})({0} | {1})", ("xor", "iu"): "({T})({0} ^ {1})",
    ("and", "b"): "({0} & {1})", ("or", "b"): "({0} | {1})", ("xor", "b"): "({0} ^ {1})",
    ("not", "b"): "(!{0})", ("bitnot", "b"): "(!{0})", ("max", "b"): "({0} | {1})", ("min", "b"): "({0} & {1})",
    ("eq", "fiub"): "({0} == {1})", ("ne", "fiub"): "({0} != {1})", ("lt", "fiub"): "({0} < {1})",
    ("le", "fiub"): "({0} <= {1})", ("gt", "fiub"): "({0} > {1})", ("ge", "fiub"): "({0} >= {1})",
    ("sign", "u"): "({T})({0} != 0)",
}  # fmt: skip

# (operation, kinds) -> parameters and body of a function.
_BODIES: dict[tuple[str, str], tuple[str, str]] = {
    ("max", "f"): ("{T} x, {T} y", "const {T} z = x > y ? x : y; return x != x ? x : z;"),
    ("min", "f"): ("{T} x, {T} y", "const {T} z = x < y ? x : y; return x != x ? x : z;"),
    ("max", "iu"): ("{T} x, {T} y", "return x > y ? x : y;"),
    ("min", "iu"): ("{T} x, {T} y", "return x < y ? x : y;"),
    ("isnan", "f"): ("{T} x", "return x != x;"),
    ("sign", "f"): ("{T} x", "return x > 0 ? ({T})1 : x < 0 ? ({T})-1 : x;"),
    ("sign", "i"): ("{T} x", "return ({T})((x > 0) - (x < 0));"),
    ("abs", "i"): ("{T} x", "return x < 0 ? ({T})(0 - ({U})x) : x;"),
    # division by zero gives 0; the least number divided by -1 wraps to itself
    ("div", "i"): ("{T} x, {T} y", "return y == 0 ? 0 : y == -1 ? ({T})(0 - ({U})x) : ({T})(x / y);"),
    ("fmod", "i"): ("{T} x, {T} y", "return y == 0 || y == -1 ? 0 : ({T})(x % y);"),
    ("floordiv", "i"): (
        "{T} x, {T} y",
        "const {T} q = @div.{dtype}@(x, y), r = @fmod.{dtype}@(x, y);"
        " return y != 0 && r != 0 && (r ^ y) < 0 ? ({T})(q - 1) : q;",
    ),
    ("mod", "i"): (
        "{T} x, {T} y",
        "const {T} r = @fmod.{dtype}@(x, y); return r != 0 && (r ^ y) < 0 ? ({T})(r + y) : r;",
    ),
    ("div", "u"): ("{T} x, {T} y", "return y == 0 ? 0 : ({T})(x / y);"),
    ("floordiv", "u"): ("{T} x, {T} y", "return y == 0 ? 0 : ({T})(x / y);"),
    ("fmod", "u"): ("{T} x, {T} y", "return y == 0 ? 0 : ({T})(x % y);"),
    ("mod", "u"): ("{T} x, {T} y", "return y == 0 ? 0 : ({T})(x % y);"),
    # shifting everything out gives 0, or the sign
    ("shl", "iu"): ("{T} x, {T} y", "return ({V})y < {bits} ? ({T})(({U})x << y) : ({T})0;"),
    ("shr", "u"): ("{T} x, {T} y", "return y < {bits} ? ({T})(x >> y) : ({T})0;"),
    ("shr", "i"): ("{T} x, {T} y", "return ({T})(x >> (({V})y < {bits} ? y : {bits} - 1));"),
}  # fmt: skip

# Functions by full name: result dtype, parameters, body.  Index arithmetic has no dtype of its own: i64.
_NAMED: dict[str, tuple[str, str, str]] = {
    # a division may stand outside the guard that protects it: its divisor is kept away from zero
    "floordiv.index": (
        "i64",
        "{i64} x, {i64} y",
        "const {i64} d = y > 1 ? y : 1, r = x % d; return (x - (r < 0 ? r + d : r)) / d;",
    ),
    "mod.index": (
        "i64",
        "{i64} x, {i64} y",
        "const {i64} d = y > 1 ? y : 1, r = x % d; return r < 0 ? r + d : r;",
    ),
    "divide.index": ("i64", "{i64} x, {i64} y", "return ({i64})(({u64})x / ({u64})(y > 1 ? y : 1));"),
    "rest.index": ("i64", "{i64} x, {i64} y", "return ({i64})(({u64})x % ({u64})(y > 1 ? y : 1));"),
    "ceildiv.index": ("i64", "{i64} x, {i64} y", "return -@floordiv.index@(-x, y);"),
    "min.index": ("i64", "{i64} x, {i64} y", "return x < y ? x : y;"),
    "max.index": ("i64", "{i64} x, {i64} y", "return x > y ? x : y;"),
    "nan.f32": ("f32", "", "return @bits.u32.f32@(0x7fc00000u);"),
    "inf.f32": ("f32", "", "return @bits.u32.f32@(0x7f800000u);"),
    "nan.f64": ("f64", "", "return @bits.u64.f64@(0x7ff8000000000000);"),
    "inf.f64": ("f64", "", "return @bits.u64.f64@(0x7ff0000000000000);"),
    "widen.bf16": ("f32", "{u16} x", "return @bits.u32.f32@(({u32})x << 16);"),
    "narrow.bf16": (
        "u16",
        "{f32} x",
        "const {u32} b = @bits.f32.u32@(x), top = b >> 16;"
        " return ({u16})(x != x ? top | 0x40 : (b + 0x7fff + (top & 1)) >> 16);",
    ),
    # shifted into place, times 2^112 (exact, subnormals included), Inf and NaN restored
    "widen.f16": (
        "f32",
        "{u16} x",
        "const {u32} rest = ({u32})(x & 0x7fff) << 13, sign = ({u32})(x & 0x8000) << 16;"
        " const {u32} finite = @bits.f32.u32@(@bits.u32.f32@(rest) * 5192296858534827628530496329220096.0f);"
        " return @bits.u32.f32@((rest >= 0x0f800000u ? rest | 0x7f800000u : finite) | sign);",
    ),
    # adding 2^(e+13-23) in f32 rounds the significand at the place of the half's last bit
    "narrow.f16": (
        "u16",
        "{f32} x",
        "const {u32} b = @bits.f32.u32@(x), size = b & 0x7fffffffu, sign = (b >> 16) & 0x8000u,"
        " power = size & 0x7f800000u;"
        " const {f32} base = @bits.u32.f32@(size) * 5192296858534827628530496329220096.0f"
        " * 7.703719777548943412e-34f;"
        " const {f32} magic = @bits.u32.f32@((power > 0x38800000u ? power : 0x38800000u) + 0x07800000u);"
        " const {u32} sums = @bits.f32.u32@(base + magic), number = ((sums >> 13) & 0x7c00u) + (sums & 0xfffu);"
        " return ({u16})((size > 0x7f800000u ? 0x7e00u : number) | sign);",
    ),
    "round.bf16": ("f32", "{f32} x", "return @widen.bf16@(@narrow.bf16@(x));"),
    "round.f16": ("f32", "{f32} x", "return @widen.f16@(@narrow.f16@(x));"),
}


def _spread(table: dict[tuple[str, str], object]) -> dict[tuple[str, str], object]:
    return {(name, kind): entry for (name, kinds), entry in table.items() for kind in kinds}


INLINE = _spread(_INLINE)  # type: ignore[arg-type]
BODIES = _spread(_BODIES)  # type: ignore[arg-type]


class Operations:
    """Expressions for one file of text, and the helpers that they need."""

    def __init__(self, dialect: Dialect) -> None:
        self.d = dialect
        self.used: dict[str, str] = {}  # name of a helper -> its text, callees first

    # ------------------------------------------------------------------------------------------------- operations
    def has(self, name: str, dtype: str) -> bool:
        """Is the operation written directly for this dtype?"""
        kind = DTYPES[dtype].kind
        given = self.d.words.operations
        return (name, kind) in INLINE or (name, kind) in BODIES or f"{name}.{dtype}" in given

    def emit(self, name: str, dtype: str, *operands: str) -> str:
        """The result of an operation on operands of this dtype: variables, constants or bracketed expressions."""
        if not self.has(name, dtype):
            raise CodegenError(f"no operation {name!r} on {dtype} on the source route")
        narrow = dtype in NARROW
        work = "f32" if narrow else dtype
        text = self._applied(name, work, operands)
        if narrow and name not in EXACT and name not in COMPARISONS:
            return self.call(f"round.{dtype}", text)
        return text

    def _applied(self, name: str, dtype: str, operands: tuple[str, ...]) -> str:
        given = self.d.words.operations.get(f"{name}.{dtype}")
        found = given or INLINE.get((name, DTYPES[dtype].kind))
        if found is None:
            return self.call(f"{name}.{dtype}", *operands)
        words = self._words(dtype) | {str(i): x for i, x in enumerate(operands)}
        return self.resolve(fill(str(found), words))

    def _words(self, dtype: str) -> dict[str, str]:
        types = {name: self.d.type(name) for name in ("i64", "u64", "u32", "u16", "f32", "f64")}
        if dtype not in DTYPES:
            return types
        entry = DTYPES[dtype]
        own = {"T": self.d.type(dtype), "dtype": dtype, "bits": str(entry.bits)}
        if entry.kind in "iu":
            own |= {"U": self.d.unsigned(dtype), "V": self.d.type(f"u{entry.bits}")}
        wide = dtype == "f64"
        return types | own | {"f": "" if wide else "f", "one": "1.0" if wide else "1.0f"}

    # ---------------------------------------------------------------------------------------------------- helpers
    def call(self, name: str, *operands: str) -> str:
        """A call of a helper, which becomes part of the text; or the description's own text for it."""
        given = self.d.words.operations.get(name)
        if given is not None:
            return self.resolve(fill(given, {str(i): x for i, x in enumerate(operands)}))
        return f"{self.function(name)}({', '.join(operands)})"

    def resolve(self, text: str) -> str:
        """The text with `@name@` replaced by names of helpers."""
        return _CALL.sub(lambda m: self.function(m[1]), text)

    def function(self, name: str) -> str:
        symbol = f"hw_{name.replace('.', '_')}"
        if symbol not in self.used:
            result, parameters, body = self._definition(name)
            body = self.resolve(body)  # first: its own helpers come before it
            given = self.d.words.operations.get(name)
            if given is not None:  # called from another helper
                names = [p.split()[-1] for p in parameters.split(",")] if parameters else []
                body = f"return {self.resolve(fill(given, {str(i): x for i, x in enumerate(names)}))};"
            head = fill(
                self.d.words.function, {"type": result, "name": symbol, "params": parameters or "void"}
            )
            self.used[symbol] = f"{head} {{ {body} }}"
        return symbol

    def _definition(self, name: str) -> tuple[str, str, str]:
        """(result type, parameters, body) of a helper."""
        first, _, dtype = name.partition(".")
        if first == "bits":
            have, _, want = dtype.partition(".")
            a, b = self.d.stored(have), self.d.stored(want)
            return b, f"{a} x", f"union {{ {a} from; {b} to; }} u; u.from = x; return u.to;"
        if first == "to":
            want, _, have = dtype.partition(".")
            return self._to_integer(want, have)
        if name in _NAMED:
            result, parameters, body = _NAMED[name]
            words = self._words("")
            return self.d.type(result), fill(parameters, words), fill(body, words)
        entry = BODIES.get((first, DTYPES[dtype].kind))
        if entry is None:
            raise CodegenError(f"no operation {first!r} on {dtype} on the source route")
        parameters, body = entry  # type: ignore[misc]
        words = self._words(dtype)
        result = self.d.type("bool" if first == "isnan" else dtype)
        return result, fill(str(parameters), words), fill(str(body), words)

    def _to_integer(self, want: str, have: str) -> tuple[str, str, str]:
        """Float to integer: truncates, saturates, NaN gives 0."""
        whole, real, target = DTYPES[want], self.d.type(have), self.d.type(want)
        low, high = integer_limits(whole)
        most = greatest_below(high, value_type(have))
        least, top = self.d.constant(float(low), have), self.d.constant(most, have)
        body = (
            f"const {real} a = x == x ? x : 0, b = a < {least} ? {least} : a, c = b > {top} ? {top} : b;"
            f" const {target} whole = ({target})c;"
        )
        if most < high:
            return (
                target,
                f"{real} x",
                f"{body} return b > {top} ? ({target}){integer_constant(high)} : whole;",
            )
        return target, f"{real} x", f"{body} return whole;"

    def helpers(self) -> str:
        return "\n".join(self.used.values())

    # ------------------------------------------------------------------------------------------------ conversions
    def convert(self, x: str, have: str, want: str) -> str:
        """The graph op `cast`."""
        if have == want:
            return x
        a, b = DTYPES[have].kind, DTYPES[want].kind
        if b == "b":
            return f"({x} != 0)"
        if a == "f" and b != "f":
            return self.call(f"to.{want}.{'f64' if have == 'f64' else 'f32'}", x)
        cast = f"({self.d.type(want)}){x}"
        if b == "f" and self.d.type(have) == self.d.type(want):
            cast = x
        return self.call(f"round.{want}", cast) if want in NARROW else cast

    def reinterpret(self, x: str, have: str, want: str) -> str:
        """The same bits as another dtype."""
        if have == want:
            return x
        pattern = {"f16": "u16", "bf16": "u16", "bool": "u8"}
        a, b = pattern.get(have, have), pattern.get(want, want)
        stored = self.to_stored(x, have)
        return self.from_stored(stored if a == b else f"{self.function(f'bits.{a}.{b}')}({stored})", want)

    def from_stored(self, x: str, dtype: str) -> str:
        """What memory holds -> value."""
        return self.call(f"widen.{dtype}", x) if dtype in NARROW else f"({x} != 0)" if dtype == "bool" else x

    def to_stored(self, x: str, dtype: str) -> str:
        return self.call(f"narrow.{dtype}", x) if dtype in NARROW else x

    def constant(self, value: int | float | bool, dtype: str) -> str:
        return self.resolve(self.d.constant(value, dtype))


__all__ = ["Operations", "bits_of"]
