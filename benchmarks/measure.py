"""Times of alternating turns, and the few statistics that are reported of them.

Design choice: a sample keeps every call of every turn.  The median says what a user sees on this machine now; the
best of each call, over all turns, says what the code can do when nothing else runs; with one thread the processor
time of the calling thread is kept too, which leaves out whatever else held the core.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SETTLE_S = 0.1  # threads of a peer that spin after its turn have gone to sleep by then


@dataclass
class Sample:
    """Seconds of a sequence of different calls, one list per pass over the sequence."""

    wall: list[list[float]] = field(default_factory=list)
    cpu: list[list[float]] = field(default_factory=list)

    def add(self, calls: Sequence[Callable[[], object]]) -> None:
        """One pass: every call once, timed."""
        wall, cpu = [], []
        for call in calls:
            own, start = time.thread_time(), time.perf_counter()
            call()
            wall.append(time.perf_counter() - start)
            cpu.append(time.thread_time() - own)
        self.wall.append(wall)
        self.cpu.append(cpu)

    def passes(self) -> list[float]:
        """Seconds of each pass."""
        return [sum(p) for p in self.wall]

    def median(self) -> float:
        """Seconds of the median pass."""
        return statistics.median(self.passes())

    def best(self) -> float:
        """Seconds of a pass in which every call is as fast as it ever was."""
        return math.fsum(min(calls) for calls in zip(*self.wall, strict=True))

    def cpu_median(self) -> float:
        """Processor time of the calling thread for a pass: the sum of each call's median."""
        return math.fsum(statistics.median(calls) for calls in zip(*self.cpu, strict=True))


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of measurements that were made next to each other."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def settle(threads: int) -> None:
    """Let the last contestant's threads fall asleep before the next one's turn."""
    if threads > 1:
        time.sleep(SETTLE_S)


def turns(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: every second one is reversed, so that nobody always runs first."""
    return list(names) if number % 2 == 0 else list(reversed(names))
