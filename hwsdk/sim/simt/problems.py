"""What is wrong with a text that a front end reads: every problem at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hwsdk.errors import SimulationError


@dataclass(frozen=True)
class Problem:
    """text: the words it is about."""

    line: int
    text: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" + (f": {self.text}" if self.text else "")


class TextError(SimulationError):
    """The text is malformed or uses what is not supported; `problems` has everything that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
