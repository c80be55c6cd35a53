"""What compiled kernels take of a chip, read back from the code that ships: registers, spills, scratchpad.

    inspect_code(target, bundle.code)     {kernel: Resources}

Design choice: how to read a chip's code is known in its folder alone (`runtime.inspector`); here is only what every
reader must tell, so that it can be compared with what the planner predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwsdk.errors import TargetError
from hwsdk.ral_port.loader import port_module
from hwsdk.target_desc.model import Target

Code = Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class Resources:
    """Of one kernel.

    registers: per lane, as the chip counts them for residency.  spill_bytes: per lane, moved to memory because there
    were too few registers.  private_bytes: memory of a lane for other reasons.  scratch_bytes: scratchpad of a
    workgroup that the code declares (a launch may add some).  lanes: of a workgroup, 0 where the code does not say.
    matrix_instructions: how many the code contains; None where it was not disassembled.
    """

    registers: int
    spill_bytes: int = 0
    private_bytes: int = 0
    scratch_bytes: int = 0
    lanes: int = 0
    matrix_instructions: int | None = None


class ToolMissing(TargetError):
    """A program or package that reads the code is not here; the message says how to get it."""


Inspector = Callable[[Code, str], Mapping[str, Resources]]


def inspect_code(target: Target, code: Code) -> dict[str, Resources]:
    """Resources of every kernel in pieces of compiled code.

    TargetError if the description names no inspector; ToolMissing if its tools are not here.
    """
    module, _, function = target.runtime.inspector.partition(":")
    if not module or not function:
        raise TargetError(
            f"target {target.name} has no runtime.inspector: what its kernels take cannot be read back"
        )
    found = getattr(port_module(module, Path(target.file).resolve().parent), function, None)
    if not callable(found):
        raise TargetError(f"target {target.name}: runtime.inspector: {module} has no function {function}")
    cpu = target.codegen.llvm.cpu if target.codegen.llvm is not None else ""
    return dict(found(code, cpu))
