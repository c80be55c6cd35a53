"""The syntax tree of PTX text, as the parser leaves it and the builder reads it.

Design choice: names stay names here; what they mean depends on where they stand and is found when the tree is turned
into a program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from hwsdk.sim.simt.problems import TextError


class PtxError(TextError):
    """The text is not PTX, or uses what is not supported."""


@dataclass(frozen=True)
class Name:
    text: str


@dataclass(frozen=True)
class Number:
    """bits of a float (width 32 or 64), or an integer (width 0)."""

    value: int
    width: int = 0


@dataclass(frozen=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    base: Name | Number
    offset: int = 0


@dataclass(frozen=True)
class Pair:
    """first|second"""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    operand: Operand


@dataclass(frozen=True)
class Group:
    """(a, b) of a call."""

    items: tuple[Operand, ...]


Operand: TypeAlias = Name | Number | Vector | Address | Pair | Not | Group


@dataclass(frozen=True)
class Instruction:
    """add.rn.f32 has opcode `add` and modifiers (`rn`, `f32`)."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    text: str
    guard: str = ""
    negated: bool = False


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Targets:
    """A list of labels for an indexed branch."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Registers:
    """names of one type; a name with count n stands for name0 .. name(n-1)."""

    type: str
    names: tuple[tuple[str, int], ...]
    line: int


@dataclass(frozen=True)
class Declaration:
    """A variable.  space: global, const, shared, local or param; count: elements, None for an array without a size.
    values: the initialiser; names in it are addresses (generic or not)."""

    space: str
    type: str
    name: str
    align: int
    count: int | None
    line: int
    array: bool = False
    extern: bool = False
    values: tuple[tuple[Operand, bool], ...] = ()


@dataclass(frozen=True)
class Block:
    statements: tuple[Statement, ...]


Statement: TypeAlias = Instruction | Label | Targets | Registers | Declaration | Block


@dataclass(frozen=True)
class Function:
    """entry: a kernel.  body None: only declared."""

    name: str
    entry: bool
    results: tuple[Declaration, ...]
    parameters: tuple[Declaration, ...]
    body: Block | None
    line: int
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class File:
    version: str
    target: str
    variables: tuple[Declaration, ...]
    functions: tuple[Function, ...]
