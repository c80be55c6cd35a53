"""Types of LLVM text, their layout in memory, and the scalars that a value of each is made of.

Design choice: vectors, arrays and structures are lists of scalars, one register each; lanes are the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from hwsdk.sim.simt.spaces import Space


@dataclass(frozen=True)
class Scalar:
    """kind: int, half, bfloat, float, double or ptr.  bits: of an integer; space: of a pointer."""

    kind: str
    bits: int = 0
    space: int = 0


@dataclass(frozen=True)
class Sequence:
    """A vector or an array."""

    count: int
    element: Type
    vector: bool


@dataclass(frozen=True)
class Struct:
    fields: tuple[Type, ...]
    packed: bool = False


Type: TypeAlias = Scalar | Sequence | Struct
VOID = Scalar("void")
BOOL = Scalar("int", 1)
I32, I64 = Scalar("int", 32), Scalar("int", 64)
_FLOATS = {
    "half": (2, np.float16),
    "bfloat": (2, np.uint16),
    "float": (4, np.float32),
    "double": (8, np.float64),
}


@dataclass(frozen=True)
class AddressSpaces:
    """What the numbers of address spaces mean on a target, and which of its pointers are narrow."""

    spaces: Mapping[int, Space]
    pointer_bits: Mapping[int, int] = field(default_factory=dict)  # 64 if not named

    def bits(self, space: int) -> int:
        return self.pointer_bits.get(space, 64)


def scalars(kind: Type) -> list[Scalar]:
    """Of a value of this type, in order."""
    if isinstance(kind, Scalar):
        return [] if kind == VOID else [kind]
    if isinstance(kind, Sequence):
        return scalars(kind.element) * kind.count
    return [s for f in kind.fields for s in scalars(f)]


def dtype_of(scalar: Scalar, layout: AddressSpaces) -> np.dtype[Any]:
    """ValueError for integers of widths that no register has."""
    if scalar.kind == "ptr":
        return np.dtype(f"u{layout.bits(scalar.space) // 8}")
    if scalar.kind == "int":
        if scalar.bits == 1:
            return np.dtype(np.bool_)
        if scalar.bits not in (8, 16, 32, 64):
            raise ValueError(f"integers of {scalar.bits} bits are not supported")
        return np.dtype(f"u{scalar.bits // 8}")
    if scalar.kind not in _FLOATS:
        raise ValueError(f"values of type {scalar.kind} are not supported")
    return np.dtype(_FLOATS[scalar.kind][1])


def size_of(kind: Type, layout: AddressSpaces) -> int:
    """Bytes from one element of an array to the next, for vectors the bytes of their elements."""
    if isinstance(kind, Scalar):
        return dtype_of(kind, layout).itemsize
    if isinstance(kind, Sequence):
        return kind.count * size_of(kind.element, layout)
    return _field_offsets(kind, layout)[-1]


def align_of(kind: Type, layout: AddressSpaces) -> int:
    if isinstance(kind, Scalar):
        return size_of(kind, layout)
    if isinstance(kind, Sequence):
        if kind.vector:
            size = size_of(kind, layout)
            return 1 << (size - 1).bit_length()
        return align_of(kind.element, layout)
    return 1 if kind.packed else max((align_of(f, layout) for f in kind.fields), default=1)


def field_offset(kind: Struct, number: int, layout: AddressSpaces) -> int:
    return _field_offsets(kind, layout)[number]


def _field_offsets(kind: Struct, layout: AddressSpaces) -> list[int]:
    """Of each field, and the size with its padding."""
    at, found = 0, []
    for each in kind.fields:
        align = 1 if kind.packed else align_of(each, layout)
        at = -(-at // align) * align
        found.append(at)
        at += size_of(each, layout)
    align = align_of(kind, layout)
    return [*found, -(-at // align) * align]


def scalar_places(kind: Type, layout: AddressSpaces, at: int = 0) -> list[tuple[int, Scalar]]:
    """(offset in memory, scalar) of each scalar."""
    if isinstance(kind, Scalar):
        return [(at, kind)]
    if isinstance(kind, Sequence):
        size = size_of(kind.element, layout)
        return [p for i in range(kind.count) for p in scalar_places(kind.element, layout, at + i * size)]
    offsets = _field_offsets(kind, layout)
    return [p for f, o in zip(kind.fields, offsets) for p in scalar_places(f, layout, at + o)]
