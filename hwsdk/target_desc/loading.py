"""From a name, family or path to the target of this machine.

Design choice: detection is a pure function of (description, host facts): conditions either hold or give a reason, so
that "no variant fits" can say why for each one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hwsdk.errors import TargetError, nearest
from hwsdk.target_desc.description import Description, read_description, target_of
from hwsdk.target_desc.host import Host, host
from hwsdk.target_desc.model import Target
from hwsdk.target_desc.roots import family_members, find_target


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The description file that a `--target` argument means (for a family: its best variant here)."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise TargetError(f"a target is a name or a path, not {type(name_or_path).__name__}")
    text = os.fspath(name_or_path)
    if "\0" in text or not text:
        raise TargetError(f"{text!r} is neither the name of a target nor a path")
    if not isinstance(name_or_path, str) or text.endswith((".yaml", ".yml")) or os.sep in text:
        if not Path(text).is_file():
            folder = ": it is a directory" if Path(text).is_dir() else ""
            raise TargetError(f"there is no description file {text}{folder}")
        return Path(text)
    members = family_members(text)
    if not members:
        return find_target(text)
    here = host()
    reasons: dict[str, list[str]] = {}
    fitting = []
    for entry, merged in members:
        why = misfit(merged.data, here)
        if why is None:
            fitting.append((len(merged.files), len(merged.data.get("features", [])), entry))
        else:
            reasons.setdefault(why, []).append(entry.name)
    if not fitting:
        listed = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        raise TargetError(
            f"no target of family {text!r} fits this machine ({listed}); name one to use it anyway"
        )
    return max(fitting, key=lambda f: f[:2])[2].path


def load_target(
    name_or_path: str | os.PathLike[str], *, detect: bool = True, features: Iterable[str] = ()
) -> Target:
    """The target as this machine has it.

    A family means its best variant for this machine.  With `detect`, and if the description's conditions hold here,
    optional features that are present are turned on and probed numbers are replaced.  `features` turns optional
    features on by name.  Only the shape of the file is checked; `hwsdk.intrinsics.load_checked` checks everything.
    """
    return load_described(read_description(resolve(name_or_path)), detect=detect, features=features)


def load_described(description: Description, *, detect: bool = True, features: Iterable[str] = ()) -> Target:
    """Like `load_target`, for a description that was read before."""
    wanted = set(features)
    optional = description.target.optional_features
    for feature in wanted - set(optional) - set(description.data.get("features", [])):
        raise TargetError(
            f"target {description.target.name} has no optional feature {feature!r}{nearest(feature, optional)}"
        )
    asks_cpu = _asks_cpu(
        description.data
    )  # otherwise no fact of this machine matters, and no driver is asked
    if not detect or not asks_cpu or misfit(description.data, host()) is not None:
        return target_of(description, wanted)
    aliases = _aliases(description.data)
    wanted |= {f for f in optional if host().has(f, aliases)}
    return target_of(description, wanted, host().measured)


def misfit(data: Mapping[str, Any], here: Host) -> str | None:
    """Why this machine is not the described chip; None when every condition holds."""
    conditions = data.get("detect")
    if not isinstance(conditions, list) or not conditions:
        return "it states no 'detect' conditions"
    devices: tuple[Mapping[str, str], ...] = ()
    for condition in conditions:
        asked = condition if isinstance(condition, Mapping) else {}
        why = _processor(asked, data, here)
        if why:
            return why
        if "driver" in asked:
            devices = here.devices(str(asked["driver"]), _port_module(data))
            if not devices:
                lacking = here.missing(str(asked["driver"]), _port_module(data))
                none = f"it needs a device of the driver {asked['driver']!r}, and none was found here"
                return f"{none}: {lacking[0]}" if lacking else none
        if "device_property" in asked:
            name = str(asked["device_property"])
            seen = ", ".join(sorted({d.get(name, "unknown") for d in devices})) or "unknown"
            devices = tuple(d for d in devices if _holds(asked, d.get(name)))
            if not devices:
                wanted = asked.get("equals") or asked.get("matches")
                return f"it needs a device with {name} {wanted}, here it is {seen}"
    return None


def drivers(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(driver, port module) that a description's conditions ask for."""
    conditions = data.get("detect")
    asked = conditions if isinstance(conditions, list) else []
    return [(str(c["driver"]), _port_module(data)) for c in asked if isinstance(c, Mapping) and "driver" in c]


def _port_module(data: Mapping[str, Any]) -> str:
    runtime = data.get("runtime")
    port = runtime.get("port", "") if isinstance(runtime, Mapping) else ""
    return str(port).partition(":")[0]


def _holds(condition: Mapping[str, Any], value: str | None) -> bool:
    """Does a property of a device satisfy `equals` or `matches`?"""
    if value is None:
        return False
    pattern = condition.get("matches")
    return value == condition.get("equals") if pattern is None else re.fullmatch(pattern, value) is not None


def _processor(condition: Mapping[str, Any], data: Mapping[str, Any], here: Host) -> str | None:
    arch = condition.get("cpu_arch")
    if arch is not None and arch != here.arch:
        return f"it is for {arch}, this machine is {here.arch}"
    if condition.get("cpu_features"):
        missing = here.lacks(data.get("features", []), condition.get("aliases", {}))
        if missing:
            return f"this machine lacks {', '.join(missing)}"
    return None


def _asks_cpu(data: Mapping[str, Any]) -> bool:
    return any("cpu_arch" in c or "cpu_features" in c for c in data.get("detect", []))


def _aliases(data: Mapping[str, Any]) -> dict[str, str]:
    out: dict[str, str] = {}
    for condition in data.get("detect", []):
        out |= condition.get("aliases", {})
    return out
