"""Every opcode with its builder, from the files that define them."""

from __future__ import annotations

from hwsdk.targets.cuda.ptx import (
    arithmetic,
    comparisons,
    control,
    conversions,
    logic,
    matrix,
    memory,
    warp,
    wgmma,
)
from hwsdk.targets.cuda.ptx.builder import Build

TABLE: dict[str, Build] = {}
for _module in (arithmetic, logic, comparisons, conversions, memory, warp, matrix, wgmma, control):
    for _name, _build in _module.BUILDERS.items():
        if _name in TABLE:
            raise ValueError(f"opcode {_name} is defined twice")
        TABLE[_name] = _build
