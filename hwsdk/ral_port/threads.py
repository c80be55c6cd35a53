"""How many threads run a model: set by the program, by HWSDK_NUM_THREADS, or the physical cores it may use.

Design choice: one number per process with a generation counter; ports compare the counter and rebuild their
workers when it moved.  The counter also moves in a forked child, which has no workers of its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hwsdk.errors import InputError

VARIABLE = "HWSDK_NUM_THREADS"
LIMIT = 1024


class _State:
    """The process-wide setting."""

    def __init__(self) -> None:
        self.chosen: int | None = None
        self.generation = 1

    def renew(self) -> None:
        """Tell everybody who looks that workers must be rebuilt."""
        self.generation += 1


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.renew)


def set_num_threads(n: int | None) -> None:
    """Threads that run one inference, the calling one included; None: the default again.  Takes effect at the
    next run."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LIMIT):
        raise InputError(f"number of threads must be an integer from 1 to {LIMIT}, got {n!r}")
    _state.chosen = n
    _state.renew()


def generation() -> int:
    """Changes when the number of threads is set anew and after a fork."""
    return _state.generation


def num_threads() -> int:
    """Threads that run one inference, the calling one included."""
    if _state.chosen is not None:
        return _state.chosen
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return usable_cores()
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= LIMIT:
        raise InputError(f"{VARIABLE} must be an integer from 1 to {LIMIT}, got {text[:40]!r}")
    return int(text)


def usable_cores() -> int:
    """Physical cores that this process may run on: siblings of one core count once, container quotas
    count."""
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
    cores = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        cores.add(_read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list") or str(cpu))
    return max(1, min(len(cores), _quota() or len(cores)))


def _quota() -> int | None:
    """CPUs that a container's limit leaves, rounded up."""
    words = _read(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return -(-int(words[0]) // int(words[1]))
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
