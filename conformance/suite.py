"""All cases for a target, by level.

Design choice: a level is a function from target to cases; only the levels asked for are imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from hwsdk.target_desc import Target

from .model import LEVELS, Case
from .runner import select

HOMES = {
    "L0": ("l0_description",),
    "L1": ("l1_port",),
    "L2": ("l2_intrinsics",),
    "L3": ("l3_ops", "l3_onnx"),
    "L4": ("l4_random",),
    "L5": ("l5_models",),
}


def collect(
    target: Target, levels: Sequence[str] = (), pattern: str = "", graphs: int | None = None
) -> list[Case]:
    """The cases of some levels (default: all).  graphs: how many random ones; those that `pattern` names come too.

    The node tests of the onnx package take seconds to load: they are left out when `pattern` finds other cases.
    """
    found: list[Case] = []
    for level in levels or LEVELS:
        for home in HOMES[level]:
            if home == "l3_onnx" and pattern and "onnx" not in pattern and select(found, levels, pattern):
                continue
            module = import_module(f".{home}", __package__)
            found += (
                module.cases(target, module.seeds(graphs, pattern)) if level == "L4" else module.cases(target)
            )
    return found
