"""What one workgroup of a lane kernel will take of a chip, and how many run side by side: predicted from its loops.

    footprint(kernel, target)     Footprint: registers of a lane, scratchpad, lanes, workgroups on a core
    overflow(kernel, target)      what of it is more than the chip has

Design choice: the kernel says it all, so every kind of kernel is predicted the same way, and a lowering may refuse
what it made when the chip cannot hold it.  The planner's own closed formulas only choose among tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.lives import peak_words
from hwsdk.codegen.llvm_simt import scratch_bytes, threads
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.graph.dims import Dim
from hwsdk.target_desc.model import Target


@dataclass(frozen=True)
class Footprint:
    """registers: of a lane.  scratch_bytes: of a workgroup.  lanes: of a workgroup.  resident: workgroups that one core
    holds at once (0: not even one); None where the description lacks the numbers or the scratchpad depends on dims."""

    registers: int
    scratch_bytes: Dim
    lanes: int
    resident: int | None

    def __str__(self) -> str:
        beside = "" if self.resident is None else f", {self.resident} workgroups on a core"
        return (
            f"{self.registers} registers a lane, {self.scratch_bytes} bytes of scratchpad for {self.lanes} lanes"
            f"{beside} (predicted)"
        )


def footprint(kernel: LoopKernel, target: Target) -> Footprint:
    """The prediction for one kernel of a machine of lanes."""
    chip = SimtChip.of(target)
    registers, lanes, scratch = peak_words(kernel, target), threads(kernel), scratch_bytes(kernel, target)
    registers = min(registers, _most_registers(chip, lanes) or registers)
    return Footprint(registers, scratch, lanes, _resident(chip, registers, lanes, scratch))


def overflow(kernel: LoopKernel, target: Target) -> str:
    """What of the kernel does not fit the chip, as a clause with both numbers; empty where everything fits."""
    chip, lanes, scratch = SimtChip.of(target), threads(kernel), scratch_bytes(kernel, target)
    pad = chip.scratch
    if isinstance(scratch, int) and scratch and pad is not None and scratch > (pad.usable_bytes or 0):
        return f"{scratch} bytes of {pad.name}, of which a {chip.group.name} has {pad.usable_bytes or 0}"
    waves, most = -(-lanes // chip.width), chip.waves(-(-lanes // chip.width))
    if waves > most:
        return f"{lanes} lanes, of which a {chip.group.name} has {most * chip.width}"
    limit, needed = _most_registers(chip, lanes), peak_words(kernel, target, ahead=False)
    if limit is not None and needed > limit:
        return f"{needed} {chip.registers.name} for each of {lanes} lanes, of which one has {limit}"
    return ""


def _most_registers(chip: SimtChip, lanes: int) -> int | None:
    """Registers that a lane of such a workgroup can have."""
    most, pool, width = chip.registers.count, _pool(chip), chip.registers.width_bytes
    if most is None or not pool or not lanes or not isinstance(width, int):
        return most
    return min(most, pool // (width * lanes))


def _core(chip: SimtChip) -> str:
    """The level whose instances hold several workgroups."""
    levels = chip.target.levels
    return levels[max(0, levels.index(chip.group) - 1)].name


def _pool(chip: SimtChip) -> int:
    """Bytes of registers that all lanes of a core share; 0 where the description does not say."""
    return int(chip.registers.pool_bytes_per.get(_core(chip), 0))


def _resident(chip: SimtChip, registers: int, lanes: int, scratch: Dim) -> int | None:
    """The least of what registers, scratchpad and the numbers of workgroups and lockstep groups allow."""
    core, width = chip.target.level(_core(chip)), chip.registers.width_bytes
    limits = [core.resident[chip.group.name]] if chip.group.name in core.resident else []
    if chip.wave is not None and chip.wave.name in core.resident:
        limits.append(core.resident[chip.wave.name] // max(1, -(-lanes // chip.width)))
    if _pool(chip) and isinstance(width, int):
        limits.append(_pool(chip) // max(1, registers * lanes * width))
    if chip.scratch is not None and scratch != 0:
        room = chip.scratch.pool_bytes_per.get(core.name)
        if not isinstance(scratch, int):
            return None
        if room is not None:
            limits.append(int(room) // (scratch + chip.scratch.reserved_bytes))
    return min(limits, default=None)
