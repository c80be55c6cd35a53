"""Bindings: how `args` and `result` of an emission take operands apart.

Design choice: an operand has one natural type per lane, and a binding only says into which pieces of the same
bits it is cut; so emission needs bit casts and nothing else, and lint can count the bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.syntax import Expr, SemanticsError, parse_expr

_ELEMENTS = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "bool": "i1"}
_PIECE_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_TYPE = re.compile(
    r"(?:([0-9]{1,6}) x )?(?:<(vscale x )?([0-9]{1,6}) x ([a-z0-9]+)>|([A-Za-z_][A-Za-z0-9_]*))$"
)
_CONSTANT = re.compile(r"(<[^>]*>|[A-Za-z][A-Za-z0-9_]*(?: addrspace\([0-9]+\))?) (.+)$", re.DOTALL)


def element_type(dtype: str) -> str:
    """LLVM type of one element; types without arithmetic there are integers of their size."""
    return _ELEMENTS.get(dtype) or f"i{DTYPES[dtype].bits}"


@dataclass(frozen=True)
class Piece:
    """`4 x i32`: count 4, type i32.  `bits` of one piece, symbols at 1; None for ptr and opaque types."""

    count: int
    type: str
    bits: int | None


def parse_piece(text: str, opaque: frozenset[str] = frozenset()) -> Piece:
    """A type in a binding; SemanticsError if it is none."""
    found = _TYPE.match(text.strip())
    if not found:
        raise SemanticsError(
            f"{text!r} is not a type; write i32, <16 x i32>, <vscale x 4 x float>, 4 x i32 or ptr"
        )
    count, scalable, lanes, element, single = found.groups()
    word = element or single
    if single == "ptr" or single in opaque:
        if count:
            raise SemanticsError(f"{text!r}: {single} cannot be cut into pieces")
        return Piece(1, word, None)
    integer = re.fullmatch(r"i([1-9][0-9]{0,3})", word)
    bits = _PIECE_BITS.get(word) or (int(integer[1]) if integer else None)
    if bits is None:
        raise SemanticsError(f"{word!r} is not an element type")
    shape = f"<{scalable or ''}{lanes} x {word}>" if lanes else word
    number = int(count or 1)
    if number < 1 or (lanes and int(lanes) < 1):
        raise SemanticsError(f"{text!r} is empty")
    return Piece(number, shape, bits * int(lanes or 1))


@dataclass(frozen=True)
class Argument:
    """One entry of `args` or `result`: a constant, or an operand or dim in pieces, perhaps computed."""

    name: str | None  # None: a constant
    piece: Piece
    constant: str = ""
    expr: Expr | None = None


def arguments(entries: Any, opaque: frozenset[str] = frozenset()) -> tuple[Argument, ...]:
    """The entries of `args` or `result`, parsed."""
    return tuple(parse_argument(entry, opaque) for entry in entries or ())


def parse_argument(entry: Any, opaque: frozenset[str] = frozenset()) -> Argument:
    if isinstance(entry, str):
        found = _CONSTANT.match(entry.strip())
        if not found:
            raise SemanticsError(f"{entry!r} is not a constant such as 'i32 0'")
        return Argument(None, parse_piece(found[1].split(" addrspace")[0], opaque), entry.strip())
    ((name, text),) = entry.items()
    kind, equals, expr = text.partition("=")
    piece = parse_piece(kind, opaque)
    return Argument(name, piece, expr=parse_expr(expr) if equals else None)


def opaque_types(intrinsic: CompiledIntrinsic) -> frozenset[str]:
    """Types of registers that LLVM treats as one value."""
    return frozenset(m.opaque for m in intrinsic.memories.values() if m.opaque)


def pointer_type(address_space: int) -> str:
    return f"ptr addrspace({address_space})" if address_space else "ptr"


def natural_type_of(intrinsic: CompiledIntrinsic, name: str) -> str:
    """LLVM type of an operand's value in one lane; i64 for a run-time extent."""
    if name in intrinsic.runtime_dims:
        return "i64"
    operand = intrinsic.operands[name]
    if name in intrinsic.scalars:
        return element_type(operand.dtype)
    memory = intrinsic.memory(name)
    if memory.kind != "registers":
        return pointer_type(memory.address_space)
    if memory.opaque:
        return memory.opaque
    items, scalable = intrinsic.items(name), isinstance(memory.width_bytes, str)
    if items == 1 and not scalable:
        return element_type(operand.dtype)
    return f"<{'vscale x ' if scalable else ''}{items} x {element_type(operand.dtype)}>"


def value_bits(intrinsic: CompiledIntrinsic, name: str) -> int:
    """Bits of one lane's value of an operand in registers or of a scalar."""
    bits = DTYPES[intrinsic.operands[name].dtype].bits
    return bits if name in intrinsic.scalars else bits * intrinsic.items(name)


def emission(intrinsic: CompiledIntrinsic, route: str) -> Mapping[str, Any]:
    """The emission form for a route; SemanticsError when the description has none."""
    form = intrinsic.spec.emit.get(route)
    if form is None:
        raise SemanticsError(f"intrinsic {intrinsic.name} has no emission for the route {route!r}")
    return dict(form)
