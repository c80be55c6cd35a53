"""What this machine is, as far as a description may ask: features, cores, caches, clock, memory.

Design choice: facts come from the operating system's files, because reading them costs a millisecond and needs no
compiler library; a helper process asks LLVM only where those files do not exist.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FLAG_LINES = ("flags", "features")  # /proc/cpuinfo: the words on these lines are feature names
_ASK_LLVM = (
    "import llvmlite.binding as b; print(' '.join(k for k, v in b.get_host_cpu_features().items() if v))"
)
_CACHE_PROBES = {("1", "Data"): "cache_l1d", ("1", "Unified"): "cache_l1d", ("2", "Unified"): "cache_l2",
                 ("3", "Unified"): "cache_l3"}  # fmt: skip


@dataclass(frozen=True)
class Host:
    """`words`: the system's names of processor features; `measured`: probe name -> value."""

    arch: str
    words: frozenset[str]
    measured: Mapping[str, float]

    def has(self, feature: str, aliases: Mapping[str, str]) -> bool:
        """Is the feature here?  Spelling differences in `.`, `-`, `_` do not count; `aliases` has the others."""
        return _plain(feature) in self.words or _plain(aliases.get(feature, feature)) in self.words

    def devices(self, driver: str, module: str) -> tuple[Mapping[str, str], ...]:
        """Properties of the devices of a driver, as the port `module` of the installed target folder `driver` lists
        them; looked at once per process."""
        return _survey(driver, module)[0]

    def missing(self, driver: str, module: str) -> tuple[str, ...]:
        """What keeps that port from running here, in sentences."""
        return _survey(driver, module)[1]

    def lacks(self, features: Iterable[str], aliases: Mapping[str, str]) -> tuple[str, ...]:
        """Those that are not here."""
        return tuple(f for f in features if not self.has(f, aliases))


def _plain(word: str) -> str:
    return re.sub(r"[._-]", "", word.lower())


@cache
def host() -> Host:
    """This machine, looked at once per process."""
    info = _read(Path("/proc/cpuinfo"))
    words = _cpuinfo_words(info) or _ask_llvm()
    return Host(platform.machine(), frozenset(map(_plain, words)), _measure(info))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _cpuinfo_words(info: str) -> set[str]:
    for line in info.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in _FLAG_LINES:
            return set(value.split())
    return set()


def _ask_llvm() -> set[str]:
    try:
        done = subprocess.run([sys.executable, "-c", _ASK_LLVM], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return set()
    return set(done.stdout.split()) if done.returncode == 0 else set()


@cache
def _survey(driver: str, module: str) -> tuple[tuple[Mapping[str, str], ...], tuple[str, ...]]:
    """Asked in a process of its own: a driver that crashes or hangs costs this one nothing."""
    command = [sys.executable, "-m", "hwsdk.ral_port.devices", driver, module]
    roots = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        said: dict[str, list[Any]] = json.loads(done.stdout) if done.returncode == 0 else {}
        found = said or {"missing": [_last_line(done.stderr)]}
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        found = {"missing": [f"the driver cannot be asked: {problem}"]}
    devices = tuple({str(k): str(v) for k, v in d.items()} for d in found.get("devices", ()))
    return devices, tuple(map(str, found.get("missing", ())))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["the driver cannot be asked"])[-1]


# --------------------------------------------------------------------------------------------------------- quantities
def _measure(info: str) -> dict[str, float]:
    facts: dict[str, float | None] = {
        "physical_cores": usable_cores(),
        "memory_total": _memory_total(),
        "clock_max": _clock(info, "cpuinfo_max_freq"),
        "clock_under_load": _clock(info, "base_frequency") or _clock(info, "cpuinfo_max_freq"),
        **_caches(),
    }
    return {name: value for name, value in facts.items() if value}


def usable_cores() -> int:
    """Physical cores that this process may run on: siblings on one core count once, container quotas count."""
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
    cores = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        siblings = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
        cores.add(siblings.strip() or str(cpu))
    return max(1, min(len(cores), _quota() or len(cores)))


def _quota() -> int | None:
    """CPUs that a container limit leaves, rounded up."""
    words = _read(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return -(-int(words[0]) // int(words[1]))
    return None


def _memory_total() -> float | None:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return None


def _clock(info: str, name: str) -> float | None:
    """GHz, rounded so that a drifting reading gives the same description every time."""
    khz = _read(Path(f"/sys/devices/system/cpu/cpu0/cpufreq/{name}")).strip()
    if khz.isdigit():
        return round(int(khz) / 1e6, 2)
    stated = re.search(r"@ *([0-9.]+) *GHz", info)
    if stated:
        return float(stated[1])
    mhz = re.search(r"^cpu MHz\s*: *([0-9.]+)", info, re.MULTILINE)
    return round(float(mhz[1]) / 1000 / 0.05) * 0.05 if mhz else None


def _caches() -> dict[str, float]:
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    out = {}
    for index in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        probe = _CACHE_PROBES.get((_read(index / "level").strip(), _read(index / "type").strip()))
        size = re.fullmatch(r"([0-9]+)([KMG]?)", _read(index / "size").strip())
        if probe and size:
            out[probe] = float(int(size[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[2]])
    return out
