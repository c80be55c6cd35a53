"""Every error that hwsdk raises on purpose.  One root, so that the command line prints a message and never a traceback.

Design choice: an error carries its sentence and, where there is one, the place (file, line or node) as data; the
sentence says what is wrong, where, and what a valid choice would be.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class HwsdkError(Exception):
    """Base of all deliberate errors.  `exit_code` is what the command line returns for it."""

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file: `file:line: message`."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class DescriptionError(HwsdkError):
    """A target description is wrong; `problems` has one entry per line of the message."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class TargetError(HwsdkError):
    """No such target, or the target cannot be used on this machine."""

    exit_code = 2


class ModelError(HwsdkError):
    """A model file or graph is malformed, or uses what is not supported."""

    exit_code = 3


class GraphError(ModelError):
    """A graph breaks a rule of the graph language; the message names the node."""


class UnsupportedError(ModelError):
    """The model asks for something that is valid but not supported; all findings are listed at once."""


class PlanError(HwsdkError):
    """No schedule fits the target; the message names the limit that stopped it."""

    exit_code = 4


class CodegenError(HwsdkError):
    """Code generation failed; the message names the kernel."""

    exit_code = 4


class ArtifactError(HwsdkError):
    """An artifact is truncated, altered, of another version, or made for another machine."""

    exit_code = 5


class InputError(HwsdkError):
    """Run-time inputs do not fit the signature: names the input, the dim and the constraint."""

    exit_code = 6


class DeviceError(HwsdkError):
    """A run-time port reports an error: carries the verb, the device and the driver's message."""

    exit_code = 7


class SimulationError(HwsdkError):
    """The simulated machine refused: out of bounds, over capacity, uninitialised read, race."""

    exit_code = 8


def nearest(name: object, names: Iterable[object]) -> str:
    """`; did you mean 'x'?` or the list of known names, to end an error sentence."""
    known = sorted(str(n) for n in names)
    hit = difflib.get_close_matches(str(name), known, 1, 0.6)
    return f"; did you mean {hit[0]!r}?" if hit else f"; known: {' '.join(known)}"
