"""The target that a command means: the one that `--target` names, or that of this machine's processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwsdk.target_desc import Target


def host_target() -> Target:
    """The target of this machine's processor; TargetError when there is none or more than one."""
    from hwsdk.intrinsics import load_target
    from hwsdk.target_desc.detection import processor_target

    return load_target(processor_target())


def target_or_host(name: str | None) -> Target:
    """The target that `--target` names, or this machine's."""
    from hwsdk.intrinsics import load_target

    return load_target(name) if name else host_target()
