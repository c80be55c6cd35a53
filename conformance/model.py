"""What a case is and what can come of it.

    case     level, name, one function that is given a Session and returns what it measured
    outcome  pass | fail | unsupported | expected_failure | unexpected_pass | not_run

Design choice: unsupported is permanent and says why the chip cannot; expected failure is temporary and
expires.  Both are facts about the port that the report prints; neither hides anything, and a case that starts
to pass must say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device

LEVELS: Mapping[str, str] = {
    "L0": "the description itself",
    "L1": "the run-time port: memory, copies, streams, errors, threads",
    "L2": "every intrinsic against its semantics",
    "L3": "every operation x dtype x dynamic sizes",
    "L4": "random graphs against the interpreter, shrunk where they fail",
    "L5": "real models against their reference runtime",
}
STATUSES = ("pass", "fail", "unsupported", "expected_failure", "unexpected_pass", "not_run")
CONFORMANT = frozenset({"pass", "unsupported", "expected_failure"})


class Unsupported(Exception):
    """The target cannot do this, and its description says why: the sentence of the reason."""


class Mismatch(Exception):
    """The device gave a wrong answer."""


@dataclass
class Session:
    """What a case is given: the device, the seed, and a place to record measurements and tolerance
    overrides.
    """

    device: Device
    seed: int = 0
    shapes: int = 10  # how many shapes of each real model
    measured: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """`on_device`: the device must have launched something for the result to count."""

    level: str
    name: str
    run: Callable[[Session], None]
    on_device: bool = True

    @property
    def id(self) -> str:
        return f"{self.level}/{self.name}"


@dataclass(frozen=True)
class Outcome:
    """What came of one case."""

    level: str
    name: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    launches: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.level}/{self.name}"

    @property
    def conformant(self) -> bool:
        return self.status in CONFORMANT
