"""Which lanes run which segment next: groups of lanes by segment, the one that comes first in the order of `order`.

Design choice: lanes that stand at the same segment are one group, kept as an array of their positions.  Running the
group that is furthest behind lets the others be caught up with, which reconverges structured code; a group whose
instruction needs lanes that are elsewhere is put aside until they come.  Every 1024 steps the furthest group runs
instead, so that lanes that spin on a lock cannot starve the one that holds it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from hwsdk.sim.simt.faults import Fault, FaultKind, KernelFault
from hwsdk.sim.simt.frame import Frame
from hwsdk.sim.simt.program import Array, Barrier, Branch, Exit, Instruction, Lanes, Place, Segment, Table
from hwsdk.sim.simt.races import after_barrier, block_clock
from hwsdk.sim.simt.registers import choose, numbers, spread
from hwsdk.sim.simt.warps import missing

_FAIR = 1024


class Scheduler:
    """Runs one batch to its end."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.ranks = frame.program.ranks
        self.ready: dict[int, Lanes] = {}
        self.parked: dict[int, Array] = {}
        self.arrived = np.full(frame.lanes, -1)  # number of the barrier at which a lane waits
        self.resume = np.zeros(frame.lanes, np.int64)  # segment after it
        self.extra: dict[tuple[int, int], int] = {}  # arrivals without waiting, by (block, barrier)
        self.waiting = 0

    def run(self) -> None:
        frame, segments = self.frame, self.frame.program.segments
        everyone = frame.everyone
        if everyone is None or everyone.size:
            self.ready[0] = everyone
        steps = 0
        limit = frame.checks.max_steps
        while True:
            if not self.ready:
                if not self.parked and not self.waiting:
                    break
                self._stuck()
                continue
            steps += 1
            number = (
                (max if steps % _FAIR == 0 else min)(self.ready, key=self.ranks.__getitem__)
                if len(self.ready) > 1
                else next(iter(self.ready))
            )
            lanes = self.ready.pop(number)
            if number in self.parked:
                lanes = self._joined(lanes, self.parked.pop(number))
            if steps > limit:
                self._fault(
                    Fault(FaultKind.NO_PROGRESS, f"still running after {limit} steps", self._some(lanes)),
                    segments[number].ending.place,
                )
            self._segment(number, segments[number], lanes)
        frame.tally.steps += steps

    # -------------------------------------------------------------------------------------------- one segment
    def _segment(self, number: int, segment: Segment, lanes: Lanes) -> None:
        frame = self.frame
        if segment.meeting is not None:
            lanes = self._meet(number, segment, lanes)
            if lanes is not None and not lanes.size:
                return
        instruction: Instruction | None = None
        try:
            for instruction in segment.body:
                instruction.run(frame, lanes)
        except Fault as fault:
            assert instruction is not None
            if fault.lane is None:
                fault.lane = self._some(lanes)
            self._fault(fault, instruction.place)
        tally = frame.tally
        tally.lanes[number] += frame.lanes if lanes is None else lanes.size
        tally.warps[number] += self._warps(lanes)
        try:
            self._end(segment, lanes)
        except Fault as fault:
            self._fault(fault, segment.ending.place)

    def _warps(self, lanes: Lanes) -> int:
        if lanes is None:
            return self.frame.lanes // self.frame.chip.warp_lanes
        warps = self.frame.warp_of[lanes]
        return int(np.count_nonzero(warps[1:] != warps[:-1])) + 1

    def _end(self, segment: Segment, lanes: Lanes) -> None:
        ending, targets = segment.ending, segment.targets
        if isinstance(ending, Branch):
            taken = choose(self.frame, lanes, ending.predicate(self.frame, lanes), ending.negated)
            self._split(lanes, taken, targets)
        elif isinstance(ending, Exit):
            if lanes is None:
                self.frame.exited[:] = True
            else:
                self.frame.exited[lanes] = True
        elif isinstance(ending, Barrier):
            self._arrive(ending, targets[0], lanes)
        elif isinstance(ending, Table):
            self._switch(ending, targets, lanes)
        else:
            self._add(targets[0], lanes)

    def _split(self, lanes: Lanes, taken: Lanes, targets: tuple[int, ...]) -> None:
        if taken is lanes or (taken is not None and lanes is not None and taken.size == lanes.size):
            self._add(targets[0], lanes)
        elif taken is not None and not taken.size:
            self._add(targets[1], lanes)
        else:
            assert taken is not None
            rest = np.ones(self.frame.lanes, bool)
            rest[taken] = False
            self._add(targets[0], taken)
            self._add(targets[1], np.flatnonzero(rest) if lanes is None else lanes[rest[lanes]])

    def _switch(self, ending: Table, targets: tuple[int, ...], lanes: Lanes) -> None:
        index = ending.index(self.frame, lanes)
        if (index >= len(targets)).any():
            at = int(np.flatnonzero(index >= len(targets))[0])
            lane = int(numbers(self.frame, lanes)[at if index.shape[0] > 1 else 0])
            raise Fault(
                FaultKind.BRANCH, f"index {int(index[at])} into a table of {len(targets)} targets", lane
            )
        index = spread(self.frame, lanes, index)
        for case in np.unique(index).tolist():
            self._add(targets[case], numbers(self.frame, lanes)[index == case])

    def _add(self, number: int, lanes: Lanes) -> None:
        if number in self.ready:
            lanes = self._joined(self.ready[number], lanes)
        elif lanes is not None and lanes.size == self.frame.lanes:
            lanes = None
        self.ready[number] = lanes

    def _joined(self, a: Lanes, b: Lanes) -> Lanes:
        if a is None or b is None:
            return None
        both = np.concatenate([a, b])
        if both.size == self.frame.lanes:
            return None
        both.sort()
        return both

    # -------------------------------------------------------------------------------------------- meetings
    def _meet(self, number: int, segment: Segment, lanes: Lanes) -> Lanes:
        """The lanes whose warps are complete; the others are put aside."""
        assert segment.meeting is not None
        try:
            absent = missing(self.frame, lanes, segment.meeting)
        except Fault as fault:
            self._fault(fault, segment.body[0].place)
        if absent is None:
            return lanes
        all_of = numbers(self.frame, lanes)
        self.parked[number] = all_of[absent]
        return all_of[~absent]

    def _stuck(self) -> None:
        """Nobody can run: lanes that exited may have completed a warp; otherwise say who waits for whom."""
        for number, lanes in sorted(self.parked.items()):
            segment = self.frame.program.segments[number]
            assert segment.meeting is not None
            if segment.meeting.members is not None and missing(self.frame, lanes, segment.meeting) is None:
                self.ready[number] = self.parked.pop(number)
                return
        if self.parked:
            number, lanes = min(self.parked.items())
            place = self.frame.program.segments[number].body[0].place
            message = (
                f"lanes {self._warp_lanes(lanes)} of the warp are here, the others {self._elsewhere(lanes)}"
            )
            self._fault(Fault(FaultKind.DIVERGED_WARP, message, int(lanes[0])), place)
        self._barrier_fault()

    def _warp_lanes(self, lanes: Array) -> str:
        frame = self.frame
        mine = lanes[frame.warp_of[lanes] == frame.warp_of[lanes[0]]] % frame.chip.warp_lanes
        return _ranges(mine.tolist())

    def _elsewhere(self, lanes: Array) -> str:
        frame = self.frame
        warp = np.flatnonzero(frame.warp_of == frame.warp_of[lanes[0]])
        others = np.setdiff1d(warp, lanes)
        padding = others % frame.shape.padded >= frame.shape.block_lanes
        if padding.any():
            return "do not exist"
        if frame.exited[others].all():
            return "have exited"
        return "wait at a barrier" if (self.arrived[others] >= 0).any() else "are elsewhere"

    # -------------------------------------------------------------------------------------------- barriers
    def _arrive(self, barrier: Barrier, after: int, lanes: Lanes) -> None:
        frame = self.frame
        number = barrier.number(frame, lanes)
        if (
            lanes is None
            and barrier.count is None
            and number.shape[0] == 1
            and barrier.waits
            and not self.waiting
        ):
            frame.tags = after_barrier(frame.tags, block_clock(frame.tags) + 1)
            if frame.shared_races is not None:
                frame.shared_races.passed()
            frame.tally.barriers += frame.blocks
            self._add(after, None)
            return
        who = numbers(frame, lanes)
        number = spread(frame, lanes, number).astype(np.int64)
        count = (
            None
            if barrier.count is None
            else spread(frame, lanes, barrier.count(frame, lanes)).astype(np.int64)
        )
        if barrier.waits:
            self.arrived[who] = number
            self.resume[who] = after
            self.waiting += who.size
        else:
            for block, name in zip((who // frame.shape.padded).tolist(), number.tolist()):
                self.extra[block, name] = self.extra.get((block, name), 0) + 1
            self._add(after, lanes)
        self._release(barrier, who, number, count)

    def _check_aligned(self, lanes: Array) -> None:
        """Lanes of a warp that leave the barrier together must have come by the same instruction."""
        warp = self.frame.warp_of[lanes]
        same_warp = warp[1:] == warp[:-1]
        apart = same_warp & (self.resume[lanes[1:]] != self.resume[lanes[:-1]])
        if apart.any():
            lane = int(lanes[int(np.argmax(apart)) + 1])
            message = "lanes of one warp arrive by different instructions"
            raise Fault(FaultKind.DIVERGENT_BARRIER, message, lane)

    def _release(self, barrier: Barrier, who: Array, number: Array, count: Array | None) -> None:
        frame, padded = self.frame, self.frame.shape.padded
        block = who // padded
        for name in np.unique(number).tolist():
            some = number == name
            blocks = np.unique(block[some])
            here = np.flatnonzero(self.arrived == name)
            arrived = np.bincount(here // padded, minlength=frame.blocks)[blocks]
            arrived = (
                arrived + [self.extra.get((b, name), 0) for b in blocks.tolist()] if self.extra else arrived
            )
            if count is None:
                needed = np.full(blocks.size, frame.shape.block_lanes)
            else:
                needed = count[some][np.searchsorted(block[some], blocks)]
            done = blocks[arrived >= needed]
            if done.size:
                lanes = here[np.isin(here // padded, done)]
                if barrier.aligned:
                    self._check_aligned(lanes)
                self._go(lanes, done, name)

    def _go(self, lanes: Array, blocks: Array, name: int) -> None:
        frame, padded = self.frame, self.frame.shape.padded
        for block in blocks.tolist() if self.extra else ():
            self.extra.pop((block, name), None)
        latest = np.zeros(frame.blocks, np.int64)
        np.maximum.at(latest, lanes // padded, block_clock(frame.tags[lanes]))
        fresh = frame.tags.copy()  # reads that are noted keep the old ones
        fresh[lanes] = after_barrier(frame.tags[lanes], latest[lanes // padded] + 1)
        frame.tags = fresh
        if frame.shared_races is not None and lanes.size == frame.blocks * frame.shape.block_lanes:
            frame.shared_races.passed()
        frame.tally.barriers += blocks.size
        self.arrived[lanes] = -1
        self.waiting -= lanes.size
        for after in np.unique(self.resume[lanes]).tolist():
            self._add(after, lanes[self.resume[lanes] == after])

    def _barrier_fault(self) -> NoReturn:
        frame, padded = self.frame, self.frame.shape.padded
        lane = int(np.flatnonzero(self.arrived >= 0)[0])
        block = lane // padded
        rows = slice(block * padded, block * padded + frame.shape.block_lanes)
        names = self.arrived[rows]
        waiting = int(np.count_nonzero(names == names[lane % padded]))
        exited = int(np.count_nonzero(frame.exited[rows]))
        rest = frame.shape.block_lanes - waiting - exited
        parts = [f"{waiting} lanes of {frame.shape.block_lanes} wait at barrier {int(names[lane % padded])}"]
        parts += [f"{exited} have exited"] if exited else []
        parts += [f"{rest} wait at another"] if rest else []
        after = int(self.resume[lane])
        place = next(
            s.ending.place
            for s in frame.program.segments
            if isinstance(s.ending, Barrier) and s.targets[0] == after
        )
        self._fault(Fault(FaultKind.DIVERGENT_BARRIER, ", ".join(parts), lane), place)

    # -------------------------------------------------------------------------------------------- faults
    def _some(self, lanes: Lanes) -> int:
        return 0 if lanes is None else int(lanes[0])

    def _fault(self, fault: Fault, place: Place) -> NoReturn:
        block = thread = None
        if fault.lane is not None:
            block, thread = self.frame.where(fault.lane)
        name = self.frame.program.name
        raise KernelFault(fault.kind, fault.message, name, place.line, place.text, block, thread) from None


def _ranges(numbers: list[int]) -> str:
    """0..3, 7: consecutive ones drawn together."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in parts)
