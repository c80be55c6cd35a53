"""The scalar types of PTX and how their registers look to NumPy.

Design choice: brain floats and packed pairs live in arrays of unsigned integers; `lifted` makes a function of floats
work on any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.sim.simt.floats import from_bf16, to_bf16
from hwsdk.sim.simt.program import Array


@dataclass(frozen=True)
class Type:
    """kind: u, s, b (integers, bits), f (IEEE floats), bf (brain float), p (predicate); pair: two in a register."""

    name: str
    kind: str
    bits: int  # of the register
    dtype: np.dtype[Any]
    pair: bool = False

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind in {"f", "bf"}


def _table() -> dict[str, Type]:
    found = {"pred": Type("pred", "p", 0, np.dtype(np.bool_))}
    for bits in (8, 16, 32, 64):
        for kind, letter in (("u", "u"), ("s", "i"), ("b", "u")):
            found[f"{kind}{bits}"] = Type(f"{kind}{bits}", kind, bits, np.dtype(f"{letter}{bits // 8}"))
        if bits > 8:
            found[f"f{bits}"] = Type(f"f{bits}", "f", bits, np.dtype(f"f{bits // 8}"))
    found["bf16"] = Type("bf16", "bf", 16, np.dtype(np.uint16))
    found["f16x2"] = Type("f16x2", "f", 32, np.dtype(np.uint32), True)
    found["bf16x2"] = Type("bf16x2", "bf", 32, np.dtype(np.uint32), True)
    found["tf32"] = Type("tf32", "b", 32, np.dtype(np.uint32))
    return found


TYPES = _table()
PREDICATE = TYPES["pred"]
U32 = TYPES["u32"]


def bits_type(width: int) -> Type:
    """The untyped type of a width in bits."""
    return TYPES[f"b{width}"] if width else PREDICATE


def unpack(values: Array, dtype: Any) -> Array:
    """uint32 to (n, 2) halves, the lower first."""
    result: Array = np.ascontiguousarray(values).view(dtype).reshape(-1, 2)
    return result


def pack(values: Array) -> Array:
    """(n, 2) of 2-byte elements to uint32."""
    result: Array = np.ascontiguousarray(values).view(np.uint32).reshape(-1)
    return result


def lifted(kind: Type, function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` takes float16, float32 or float64 arrays; the result takes registers of type `kind`.  For brain
    floats it gets float32 and its result, float32 or float64 rounded to odd, is rounded once."""
    if kind.pair and kind.kind == "f":
        return lambda *a: pack(function(*(unpack(x, np.float16) for x in a)))
    if kind.pair:
        return lambda *a: pack(to_bf16(function(*(from_bf16(unpack(x, np.uint16)) for x in a))))
    if kind.kind == "bf":
        return lambda *a: to_bf16(function(*(from_bf16(x) for x in a)))
    return function


def compared(kind: Type, function: Callable[..., Array]) -> Callable[..., Array]:
    """The same for functions whose result is a boolean per element."""
    if kind.pair:
        raise ValueError("pairs have two results")
    if kind.kind == "bf":
        return lambda *a: function(*(from_bf16(x) for x in a))
    return function
