"""Types and constants of LLVM text for the element types of LoopIR.

Design choice: f16 and bf16 *values* are carried as `float` that has been rounded to the narrow type, because arithmetic
in them is defined as f32 arithmetic rounded once; only memory and register buffers hold the 16-bit pattern (as i16).
bool is i1 as a value and one byte in memory.
"""

from __future__ import annotations

import struct

import numpy as np

from hwsdk.dtypes import DTYPES, dtype, numpy_dtype
from hwsdk.errors import CodegenError

_VALUE = {"f64": "double", "f32": "float", "f16": "float", "bf16": "float", "bool": "i1"}
_STORED = {"f64": "double", "f32": "float", "f16": "i16", "bf16": "i16", "bool": "i8"}
NARROW = frozenset(("f16", "bf16"))
_SUPPORTED = frozenset("f64 f32 f16 bf16 bool i64 i32 i16 i8 u64 u32 u16 u8".split())


def value_type(name: str) -> str:
    """Element type of an SSA value of this dtype."""
    _check(name)
    return _VALUE.get(name) or f"i{DTYPES[name].bits}"


def stored_type(name: str) -> str:
    """Element type in memory."""
    _check(name)
    return _STORED.get(name) or f"i{DTYPES[name].bits}"


def cell_type(name: str) -> str:
    """Element type in a register buffer: that of memory, but masks stay masks."""
    return "i1" if name == "bool" else stored_type(name)


def _check(name: str) -> None:
    if name not in _SUPPORTED:
        raise CodegenError(
            f"dtype {name} has no plain values on this route; an intrinsic of the target must convert it"
        )


def vector(element: str, lanes: int) -> str:
    """`<lanes x element>`, or the element itself for a scalar (lanes 0)."""
    return f"<{lanes} x {element}>" if lanes else element


def float_text(value: float, element: str) -> str:
    """A constant of type float or double, exact."""
    if element == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def const_text(value: int | float | bool, name: str) -> str:
    """A scalar constant of this dtype; a float is rounded to the dtype, an integer wraps."""
    kind = dtype(name).kind
    if kind == "f":
        element = value_type(name)
        if name in NARROW:
            with np.errstate(over="ignore"):
                value = float(np.asarray(value, np.float64).astype(np.float32).astype(numpy_dtype(name)))
        return float_text(float(value), element)
    if kind == "b":
        return "true" if value else "false"
    bits = DTYPES[name].bits
    return str((int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))


def splat_text(scalar: str, element: str, lanes: int) -> str:
    """A constant with all lanes equal."""
    return f"splat ({element} {scalar})" if lanes else scalar


def bits_of(element: str) -> int:
    """Bits of an LLVM element type."""
    return {"double": 64, "float": 32, "half": 16}.get(element) or int(element[1:])
