"""The syntax tree of LLVM text: as much of the language as kernels use.

Design choice: constants are flattened to their scalars when they are read, so later stages see only scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hwsdk.sim.simt.llvm_text.types import Type
from hwsdk.sim.simt.problems import TextError


class LlvmTextError(TextError):
    """The text is no LLVM text, or uses what is not supported."""


class Unsupported(Exception):
    """Why one instruction cannot be built."""


@dataclass(frozen=True)
class Local:
    name: str


@dataclass(frozen=True)
class Global:
    name: str


@dataclass(frozen=True)
class Constant:
    """One entry per scalar of the type: a number, or None where it is undefined or zero by default."""

    values: tuple[int | float | bytes | None, ...]


@dataclass(frozen=True)
class Expression:
    """A constant expression: the same shape as the instruction of its name."""

    opcode: str
    type: Type
    operands: tuple[tuple[Type, Value], ...]


@dataclass(frozen=True)
class Tuple:
    """A constant aggregate some of whose parts are names."""

    parts: tuple[tuple[Type, Value], ...]


Value: TypeAlias = Local | Global | Constant | Expression | Tuple


@dataclass(frozen=True)
class Instruction:
    """type: of the result (of the access for a store; the source element type of an address).  facts: predicate,
    alignment, indices, targets and such, by name."""

    result: str
    opcode: str
    type: Type
    operands: tuple[tuple[Type, Value], ...]
    line: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Variable:
    name: str
    space: int
    type: Type
    value: Value | None
    align: int
    constant: bool
    external: bool
    line: int


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[tuple[Type, str], ...]
    blocks: tuple[Block, ...]
    attributes: Mapping[str, str]
    line: int
    words: frozenset[str] = frozenset()  # before its name: linkage, calling convention


@dataclass(frozen=True)
class File:
    variables: Mapping[str, Variable]
    functions: Mapping[str, Function]
