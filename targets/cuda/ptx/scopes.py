"""What names mean inside a function: registers, variables, labels, parameters, by nested braces.

Design choice: device functions are put in place of their calls, so each instance has a scope of its own and every
register, label and variable gets a name of its own in the program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from hwsdk.sim.simt.spaces import Space
from hwsdk.targets.cuda.ptx.types import Type


@dataclass(frozen=True)
class Register:
    index: int
    type: Type


@dataclass(frozen=True)
class Symbol:
    """A variable.  symbol: its name in the program; space: where it lives; offset: of a kernel's parameter."""

    symbol: str
    space: Space
    offset: int = 0


@dataclass(frozen=True)
class LabelName:
    unique: str


@dataclass(frozen=True)
class TargetList:
    labels: tuple[str, ...]


Meaning: TypeAlias = Register | Symbol | LabelName | TargetList


@dataclass
class Scope:
    """names: declared here.  function: name of the function this is a part of; returns: label behind its call, or
    None in a kernel."""

    outer: Scope | None
    function: str
    returns: str | None = None
    names: dict[str, Meaning] = field(default_factory=dict)

    def find(self, name: str) -> Meaning | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    @property
    def in_kernel(self) -> bool:
        return self.returns is None
