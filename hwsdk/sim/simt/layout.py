"""Where the variables of a block lie in its shared memory, and those of a lane in its local memory.

Design choice: variables are kept apart by a row of untouchable bytes, a multiple of the banks, so that running over
the end of one is seen and bank conflicts inside one are what they are on the chip.  Capacity counts without the gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwsdk.sim.simt.program import Array, Variable
from hwsdk.sim.simt.storage import ALLOCATED

GAP_BYTES = 128


@dataclass(frozen=True)
class SharedLayout:
    """offsets: of each variable.  stride: bytes from block to block in the batch, 0 without shared memory.
    used_bytes: what the block takes of the chip's capacity.  state: of each byte of a block."""

    offsets: dict[str, int]
    stride: int
    used_bytes: int
    dynamic_bytes: int
    state: Array

    def name_of(self, address: int) -> str:
        """The variable at or before an address."""
        before = [(offset, name) for name, offset in self.offsets.items() if offset <= address]
        return max(before)[1] if before else "shared memory"


def lay_out(variables: Sequence[Variable], dynamic_bytes: int) -> SharedLayout:
    """Static variables in their order, then the dynamic ones, which all begin at the same place."""
    offsets: dict[str, int] = {}
    ranges: list[tuple[int, int]] = []
    packed = at = 0
    for variable in (v for v in variables if not v.dynamic):
        at = _up(at, max(variable.align_bytes, GAP_BYTES))
        packed = _up(packed, variable.align_bytes) + variable.size_bytes
        offsets[variable.name] = at
        ranges.append((at, variable.size_bytes))
        at += variable.size_bytes + GAP_BYTES
    dynamic = [v for v in variables if v.dynamic]
    align = max([GAP_BYTES, *(v.align_bytes for v in dynamic)])
    at = _up(at, align)
    offsets |= {v.name: at for v in dynamic}
    if dynamic_bytes:
        ranges.append((at, dynamic_bytes))
        packed = _up(packed, max([16, *(v.align_bytes for v in dynamic)])) + dynamic_bytes
    stride = _up(at + dynamic_bytes + GAP_BYTES, GAP_BYTES) if variables or dynamic_bytes else 0
    state = np.zeros(stride, np.uint8)
    for start, size in ranges:
        state[start : start + size] = ALLOCATED
    return SharedLayout(offsets, stride, packed, dynamic_bytes, state)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
