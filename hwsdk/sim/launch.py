"""One launch while it runs: buffers, intrinsics, syncs and the clock, called from generated code.

Design choice: everything that lives for one launch is here and nowhere else, so a machine may run launches
one after the other without cleaning up; `accounting` makes the statistics of it when it is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Sync
from hwsdk.sim import repeats
from hwsdk.sim.capacity import Capacity
from hwsdk.sim.cells import VALID, Array, Cell, span, storage_of
from hwsdk.sim.chip import Chip
from hwsdk.sim.faults import Fault
from hwsdk.sim.program import Program
from hwsdk.sim.timeline import Timeline
from hwsdk.sim.uses import Bound, Pending, Plan, Use, complete


@dataclass
class Counted:
    """What the timelines of a launch say."""

    busy: dict[str, float] = field(default_factory=dict)  # unit -> cycles
    durations: list[float] = field(default_factory=list)


class Launch:
    """`R` of generated code: bind, alloc, free, use, sync, settle."""

    def __init__(
        self,
        program: Program,
        chip: Chip | None,
        uses: Mapping[int, Use],
        repeatable: frozenset[int],
        initialised: Mapping[str, Any],
        cost: bool,
    ) -> None:
        self.program, self.chip, self.initialised, self.cost = program, chip, initialised, cost
        self.uses, self.repeatable = uses, repeatable
        self.check = program.check
        self.counters = [0] * len(program.entries)
        self.counts_before = np.zeros(len(program.entries))
        self.counted = Counted()
        self.iterations = 0
        self.params: list[Cell] = []
        self.free_cells: dict[int, list[Cell]] = {}
        memories = chip.target.memories if chip is not None else ()
        self.registers = frozenset(m.name for m in memories if m.kind == "registers")
        self.plans: dict[Plan, int] = {}  # how often each use of an intrinsic happened
        self.commits = 0
        # what belongs to the iteration that runs now
        self.clock = [0.0]
        self.timeline: Timeline | None = None
        self.pending: dict[str, list[Pending]] = {}
        self.capacity = Capacity(None, None, 1)
        self.paused: dict[int, tuple[Timeline | None, float, dict[str, list[Pending]], dict[str, int]]] = {}

    # ------------------------------------------------------------ buffers
    def bind(self, number: int, array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Cell:
        """A param."""
        buffer = self.program.buffers[number]
        flat = storage_of(array, buffer, shape, strides)
        written = number in self.program.written
        cell = Cell(
            buffer, shape, strides, flat, self._initial(buffer.name) if self.check and written else None
        )
        mask = self.initialised.get(buffer.name)
        if cell.state and mask is not None and mask is not True and mask is not False:
            cell.valid[:] = np.asarray(mask).reshape(-1)
        cell.param, cell.tracked = True, written
        cell.number = number
        cell.asynchronous = number in self.program.asynchronous
        if number in self.program.shared and self.check:
            cell.share()
        self.params.append(cell)
        return cell

    def report_initialised(self) -> None:
        """What holds values after the launch, into the masks that the caller gave."""
        for cell in self.params:
            mask = self.initialised.get(cell.name)
            if cell.state and isinstance(mask, np.ndarray):
                mask.reshape(-1)[:] = cell.valid & VALID

    def _initial(self, name: str) -> int:
        """Outputs hold nothing at launch; other params that the kernel writes hold something."""
        known = self.initialised.get(name)
        return int(known is True or (known is None and name not in self.program.kernel.outputs))

    def alloc(self, number: int, copies: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Cell:
        """A buffer of the kernel: uninitialised.

        The first `copies` dims are iterations that run in lockstep and have a copy each; one at a time
        counts.
        """
        free = self.free_cells.get(number)
        if free and free[-1].shape == shape and free[-1].strides == strides:
            cell = free.pop()
            self._renew(cell)
        else:
            cell = self._new(number, copies, shape, strides)
        self.capacity.take(cell.place, cell.taken, cell.name)
        return cell

    def _new(self, number: int, copies: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Cell:
        buffer = self.program.buffers[number]
        if shape and min(shape) < 0:
            raise Fault(f"{buffer.name} has a negative extent: {list(shape)}")
        flat = np.empty(span(shape, strides), self.program.dtypes[number])
        cell = Cell(buffer, shape, strides, flat, 0 if self.check else None)
        cell.number, cell.asynchronous = number, number in self.program.asynchronous
        cell.taken = self.capacity.bytes(buffer, shape[copies:], strides[copies:])
        return cell

    def _renew(self, cell: Cell) -> None:
        """A cell that was free: what it held is uninitialised again."""
        if cell.state:
            cell.valid[:] = 0
        if cell.ready is not None and cell.place in self.registers:  # renamed; memory is the same again
            cell.ready[:] = 0
            cell.ready_peak = cell.read_peak = 0.0
            if cell.read is not None:
                cell.read[:] = 0

    def free(self, cell: Cell) -> None:
        """The end of the body that holds the buffer."""
        self.capacity.give(cell.place, cell.taken)
        if cell.state and self.pending and int(cell.valid.max()) > VALID:
            raise Fault(f"{cell.name} ends while a copy that was not waited for still works on it")
        self.free_cells.setdefault(cell.number, []).append(cell)

    # ------------------------------------------------------------ intrinsics
    def use(self, number: int, views: Any, scalars: Any, extents: tuple[int, ...], me: int) -> None:
        """One use of an intrinsic."""
        use = self.uses[number]
        bound = Bound(use, views, scalars, extents, me)
        self.plans[bound.plan] = self.plans.get(bound.plan, 0) + 1
        results = bound.execute()
        if self.check:
            bound.watch(results)
        until = 0.0 if self.timeline is None else self._time(self.timeline, bound)
        if not use.cost.asynchronous:
            bound.store(results)
        elif not bound.plan.empty:
            self.pending.setdefault(use.cost.unit.name, []).append(bound.start(results, until))

    def many(
        self,
        number: int,
        count: int,
        views: Any,
        scalars: Any,
        extents: tuple[int, ...] | list[tuple[int, ...]],
    ) -> int:
        """The first uses of a loop as one operation: how many were done, 0 if they are to run one by one.

        views: (cell, index of the first use, what each use adds to it); extents: of all uses, or of each.
        """
        if count < 2 or number not in self.repeatable:
            return 0
        use = self.uses[number]
        if isinstance(extents, list):
            first = extents[0]
            count = next((k for k, e in enumerate(extents) if e != first), count)
            extents = first
        plan = repeats.plan_of(use, scalars, extents) if count > 1 else None
        made = None if plan is None else repeats.prepare(use, plan, views, count)
        if plan is None or made is None or not repeats.execute(use, *made, scalars):
            return 0
        self.plans[plan] = self.plans.get(plan, 0) + count
        if self.timeline is not None:
            self.timeline.many(use.cost, plan.interval, made[1], use.reads, use.writes, made[0])
        return count

    def _time(self, timeline: Timeline, bound: Bound) -> float:
        """The clock moves; returns when the results are there."""
        use, cost = bound.use, bound.use.cost
        if cost.unit.kind == "dma":
            return timeline.copy(cost, bound.spots, use.reads, use.writes)
        return timeline.use(cost, use.order, bound.plan.interval, bound.spots, use.reads, use.writes)

    def settle(self) -> None:
        """A plain access to what intrinsics work on waits for them."""
        if self.timeline is not None:
            self.clock[0] = max(self.clock[0], self.timeline.settled)

    # ------------------------------------------------------------ syncs
    def sync(self, number: int) -> None:
        """One sync."""
        stmt = self.program.statements[number - 1]
        assert isinstance(stmt, Sync)
        spec = None if self.chip is None else self.chip.target.syncs.get(stmt.name)
        if spec is None:
            return
        until = 0.0
        units = [spec.unit] if spec.unit is not None else list(self.pending)
        if spec.kind == "commit":
            self.commits += 1
            for unit in units:
                for item in self.pending.get(unit, ()):
                    item.group = self.commits if item.group is None else item.group
        elif spec.kind == "wait":
            until = max((self._wait(unit, stmt.pending) for unit in units), default=0.0)
        elif self.timeline is not None:
            until = self.timeline.settled
        if self.timeline is not None:
            self.timeline.wait(until, spec.cost_cycles)

    def _wait(self, unit: str, pending: int) -> float:
        """Completes all but the newest `pending` uses (or groups of uses) of a unit; returns when they are
        there."""
        queue = self.pending.get(unit, [])
        assert self.chip is not None
        if self.chip.units[unit].completion == "groups":
            groups = sorted({item.group for item in queue if item.group is not None})
            keep = set(groups[len(groups) - pending :] if pending else [])
            done = [item for item in queue if item.group is not None and item.group not in keep]
        else:
            done = queue[: max(0, len(queue) - pending)]
        for item in done:
            complete(item)
        ids = {id(item) for item in done}
        self.pending[unit] = [item for item in queue if id(item) not in ids]
        return max((item.until for item in done), default=0.0)

    # ------------------------------------------------------------ iterations
    def begin(self, iterations: int) -> None:
        """The size of the launch is known."""
        self.iterations = iterations
        if self.chip is not None:
            self.capacity = Capacity(self.chip.target, self.chip.level, iterations)
            for cell in self.params:
                self.capacity.take(cell.place, cell.size * cell.itemsize, cell.name)

    def forget(self, iterations: Sequence[int], older: bool) -> None:
        """Tags of iterations begin anew."""
        tags = [f"iteration {p}" for p in iterations]
        for cell in self.params:
            if cell.writers:
                cell.forget(older)
                cell.tags = tags

    def start_iteration(self) -> None:
        """A worker takes an iteration: its clock begins at 0."""
        self.clock[0] = 0.0
        self.pending = {}
        for cell in self.params:
            cell.start_times()
        for cells in self.free_cells.values():
            for cell in cells:
                cell.start_times()
        if self.chip is not None and self.cost:
            self.timeline = Timeline(self.chip, self.clock)

    def end_iteration(self) -> None:
        """Everything must have been waited for."""
        for unit, queue in self.pending.items():
            if queue:
                raise Fault(
                    f"the iteration ends before the wait for {len(queue)} uses of {unit},"
                    f" the first of them at statement {queue[0].statement}"
                )
        timeline = self.timeline
        end = self.clock[0] if timeline is None else timeline.finish()
        self.counted.durations.append(max(end, self._plain_cycles()))
        for unit, busy in timeline.busy.items() if timeline is not None else ():
            self.counted.busy[unit] = self.counted.busy.get(unit, 0.0) + busy

    def _plain_cycles(self) -> float:
        """Of a core that reorders instructions: how long the busiest unit took for plain work since last
        time."""
        if self.chip is None or not self.chip.reorders:
            return 0.0
        counts = np.array(self.counters, np.float64)
        busy = self.program.busy_table(self.chip.units) @ (counts - self.counts_before)
        self.counts_before = counts
        return float(busy.max(initial=0.0))

    def pause(self, number: int) -> None:
        """An iteration waits at a barrier; another goes on."""
        self.paused[number] = (self.timeline, self.clock[0], self.pending, dict(self.capacity.live))

    def resume(self, number: int) -> None:
        """Back to an iteration that waited at a barrier."""
        self.timeline, self.clock[0], self.pending, self.capacity.live = self.paused[number]

    def meet(self) -> None:
        """All iterations are at the barrier: they go on at the time of the last."""
        latest = max((state[1] for state in self.paused.values()), default=0.0)
        self.paused = {n: (t, latest, p, live) for n, (t, _, p, live) in self.paused.items()}
