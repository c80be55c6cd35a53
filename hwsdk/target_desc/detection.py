"""Which described chips are here: for `targets detect`, `doctor`, `demo` and every command without `--target`.

Design choice: the default target is the best variant of the one family that describes the processor this
process runs on; several such families, or none, are an error that lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.errors import HwsdkError, TargetError
from hwsdk.target_desc.host import host
from hwsdk.target_desc.loading import misfit, resolve
from hwsdk.target_desc.merge import load_merged
from hwsdk.target_desc.roots import list_targets


@dataclass(frozen=True)
class Verdict:
    """`reason`: why it does not fit; for one that fits, `best of its family` or nothing.  `processor`: it
    describes the machine's own processor rather than a device beside it."""

    target: str
    family: str
    fits: bool
    reason: str = ""
    best: bool = False
    processor: bool = False


def verdicts() -> list[Verdict]:
    """Every description that can be compiled for, in name order."""
    found = []
    for entry in sorted(list_targets(), key=lambda e: e.name):
        if entry.abstract:
            continue
        try:
            data = load_merged(entry.path).data
            why = misfit(data, host())
        except HwsdkError as trouble:
            found.append(Verdict(entry.name, entry.family or "", False, str(trouble).splitlines()[0]))
            continue
        conditions = data.get("detect")
        asks = conditions if isinstance(conditions, list) else []
        processor = any(isinstance(c, dict) and "cpu_arch" in c for c in asks)
        best = why is None and _best_of(entry.family) == entry.path
        reason = why or ("best of its family" if best else "")
        found.append(Verdict(entry.name, entry.family or "", why is None, reason, best, processor))
    return found


def _best_of(family: str | None) -> object:
    try:
        return resolve(family) if family else None
    except HwsdkError:
        return None


def processor_target() -> str:
    """Name of the target of this machine's processor; TargetError when there is none or more than one."""
    found = verdicts()
    fitting = [v for v in found if v.best and v.processor]
    if len(fitting) == 1:
        return fitting[0].target
    if fitting:
        raise TargetError(
            f"several targets fit this machine: {', '.join(v.target for v in fitting)}; choose with -t"
        )
    reasons = "; ".join(f"{v.target}: {v.reason}" for v in found if v.processor) or "no description was found"
    raise TargetError(f"no target fits this machine's processor ({reasons}); see: hwsdk targets detect")
