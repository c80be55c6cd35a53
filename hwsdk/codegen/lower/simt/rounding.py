"""Values as a matrix intrinsic takes them: in which dtype they lie, and how they come to have its precision.

Design choice: a dtype that no memory stores lies in the float of the same width; its values are rounded where they are
staged, to nearest even, by integer operations on the bits.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Binary, Cast, Const, Select, Unary, Value
from hwsdk.dtypes import DTYPES

STORED = {"tf32": ("f32", 13)}  # the dtype in memory, and the low bits of its mantissa that are zero


def stored_as(dtype: str) -> str:
    """The dtype in which operands of an intrinsic lie in memory and registers."""
    return STORED[dtype][0] if dtype in STORED else dtype


def rounded(value: Value, dtype: str) -> Value:
    """The value as an operand of `dtype`, in `stored_as(dtype)`."""
    if dtype not in STORED:
        return value if value.dtype == dtype else Cast(dtype, value)
    home, low = STORED[dtype]
    value = value if value.dtype == home else Cast(home, value)
    kind = f"u{DTYPES[home].bits}"
    bits = Cast(kind, value, "bits")
    odd = Binary(kind, "and", Binary(kind, "shr", bits, Const(kind, low)), Const(kind, 1))
    half = Binary(kind, "add", odd, Const(kind, (1 << (low - 1)) - 1))
    mask = (1 << DTYPES[home].bits) - (1 << low)
    near = Cast(home, Binary(kind, "and", Binary(kind, "add", bits, half), Const(kind, mask)), "bits")
    return Select(home, Unary("bool", "isnan", value), Const(home, float("nan")), near)
