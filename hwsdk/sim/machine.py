"""The LoopIR machine: runs a kernel on NumPy arrays, checks everything that can be checked, and says what it
cost.

It is the definition of LoopIR.  Where the grammar leaves a question open, the answer is here:

    sharing    a node of a value is computed once per statement; a Let keeps a value over statements
    select     both sides are computed; only `where` of a load or store keeps memory from being touched
    reduce     var runs upwards; the first element is taken as it is, each further one is combined with the
               result
    vector     all active lanes do one statement, then the next; two lanes must not store to one element
    launch     the body of a kernel runs once per iteration of its parallel loop: lets and allocs before that
               loop are private to an iteration
    outputs    are uninitialised at launch, unless the caller says otherwise
    copies     what an asynchronous intrinsic writes is there after the matching wait; until then its
               destination may be neither read nor written and its source not be written

Design choice: the kernel is compiled once, to the Python text of `kernel_source`, and run many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Intrin, LoopKernel, parallel_loop
from hwsdk.codegen.loop_print import print_statement
from hwsdk.codegen.loop_verify import verify_kernel
from hwsdk.errors import SimulationError
from hwsdk.sim import faults, gather, repeats
from hwsdk.sim.accounting import launch_stats
from hwsdk.sim.cells import Array
from hwsdk.sim.chip import Chip
from hwsdk.sim.faults import Fault
from hwsdk.sim.kernel_source import generate
from hwsdk.sim.lanes.machine import LaneMachine, has_lanes
from hwsdk.sim.launch import Launch
from hwsdk.sim.operation_source import globals_for_operations
from hwsdk.sim.program import Program
from hwsdk.sim.stats import Stats
from hwsdk.sim.uses import Use
from hwsdk.target_desc.model import Target

_TAGS = 254  # iterations that can be told apart at once


def run(
    kernel: LoopKernel,
    target: Target | None,
    buffers: Mapping[str, Array],
    dims: Mapping[str, int],
    *,
    check: bool = True,
    cost: bool = True,
    seed: int | None = None,
    initialised: Mapping[str, Any] | None = None,
) -> Stats:
    """Runs the kernel in place on `buffers` (an array for every param) and returns what it cost.

    target None: all places are plain memory without limits and cost, and there are no intrinsics.
    seed: iterations of the parallel loop run in the order that it gives, instead of upwards.
    initialised: for outputs whose contents count: name -> True, or a mask of the elements that hold values; a
    mask is updated to what holds values afterwards.
    SimulationError (kernel, statement, buffer, index) for whatever the kernel does wrong.
    """
    return ready(kernel, target, check=check, cost=cost).run(
        buffers, dims, seed=seed, initialised=initialised
    )


def ready(
    kernel: LoopKernel, target: Target | None, *, check: bool = True, cost: bool = True
) -> Machine | LaneMachine:
    """The kernel made ready, to be run any number of times: by this machine, or by that for lanes of workgroups."""
    if target is not None and has_lanes(kernel):
        return LaneMachine(kernel, target, check=check)
    return Machine(kernel, target, check=check, cost=cost)


class Machine:
    """A kernel made ready to run on a target; `run` may be called any number of times, by several threads."""

    def __init__(
        self,
        kernel: LoopKernel,
        target: Target | None = None,
        *,
        check: bool = True,
        cost: bool = True,
        repeat: bool = True,
    ) -> None:
        """repeat False: every use of an intrinsic runs by itself, as the definition says."""
        verify_kernel(kernel, target)
        self.kernel, self.target, self.cost = kernel, target, cost
        self.chip = None if target is None else Chip(target, kernel)
        self.program: Program = generate(kernel, self.chip, check)
        self.uses = {} if self.chip is None else _uses(self.program, self.chip)
        self.repeatable = frozenset(n for n, u in self.uses.items() if repeat and repeats.possible(u))
        self.file = f"<kernel {kernel.name}>"
        self.make = _compiled(self.program, self.file)

    def run(
        self,
        buffers: Mapping[str, Array],
        dims: Mapping[str, int],
        *,
        seed: int | None = None,
        initialised: Mapping[str, Any] | None = None,
    ) -> Stats:
        """One launch; see `run`."""
        arrays = [self._array(buffers, p.name) for p in self.kernel.params]
        values = [self._dim(dims, name) for name in self.kernel.dims]
        launch = Launch(self.program, self.chip, self.uses, self.repeatable, initialised or {}, self.cost)
        with np.errstate(all="ignore"):
            try:
                extent, tile = self.make(launch, launch.counters, launch.clock, values, arrays)
                iterations = extent() if extent is not None else 1
                launch.begin(max(0, iterations))
                self._iterate(launch, tile, _order(iterations, seed))
            except Fault as fault:
                raise self._located(str(fault), fault) from None
            except ZeroDivisionError as error:
                raise self._located("division by zero in an index", error) from None
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                raise self._located("store to an array that is read-only", error) from None
        launch.report_initialised()
        return launch_stats(launch)

    def _array(self, buffers: Mapping[str, Array], name: str) -> Array:
        if name not in buffers:
            raise SimulationError(f"kernel {self.kernel.name}: no array is bound to param {name}")
        return np.asarray(buffers[name])

    def _dim(self, dims: Mapping[str, int], name: str) -> int:
        if name not in dims:
            raise SimulationError(f"kernel {self.kernel.name}: dim {name} has no value")
        return int(dims[name])

    # ------------------------------------------------------------ iterations
    def _iterate(self, launch: Launch, tile: Any, order: list[int]) -> None:
        if self.program.yields:
            self._in_phases(launch, tile, order)
            return
        for number, p in enumerate(order):
            me = 1 + number % _TAGS
            if me == 1:
                launch.forget(order[number : number + _TAGS], older=number > 0)
            launch.start_iteration()
            tile(p, me, bytes((me,)), (0, me))
            launch.end_iteration()

    def _in_phases(self, launch: Launch, tile: Any, order: list[int]) -> None:
        """Iterations that meet at barriers: each runs up to its next barrier, then all go on."""
        if len(order) > _TAGS:
            raise SimulationError(f"kernel {self.kernel.name}: more than {_TAGS} iterations meet at barriers")
        running: dict[int, Iterator[int]] = {}
        for number, p in enumerate(order):
            me = 1 + number
            launch.start_iteration()
            running[number] = tile(p, me, bytes((me,)), (0, me))
            launch.pause(number)
        while running:
            launch.forget(order, older=False)
            met: dict[int, list[int]] = {}
            for number, iteration in running.items():
                launch.resume(number)
                at = next(iteration, 0)
                met.setdefault(at, []).append(order[number])
                if at:
                    launch.pause(number)
                else:
                    launch.end_iteration()
            if len(met) > 1:
                raise self._diverged(met)
            running = {} if 0 in met else running
            launch.meet()

    def _diverged(self, met: dict[int, list[int]]) -> SimulationError:
        loop = parallel_loop(self.kernel)
        name = loop.var if loop is not None else "iteration"
        parts = []
        for at, iterations in sorted(met.items()):
            where = (
                f"waits at statement {at} ({print_statement(self.program.statements[at - 1])})"
                if at
                else "ends"
            )
            parts.append(f"{name} = {iterations[0]} {where}")
        return SimulationError(f"kernel {self.kernel.name}: barrier divergence: {'; '.join(parts)}")

    # ------------------------------------------------------------ errors
    def _located(self, why: str, error: BaseException) -> SimulationError:
        """The error with kernel, statement and the values of the loop variables at that place."""
        trace, found = error.__traceback__, None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                found = trace
            trace = trace.tb_next
        if found is None:
            return SimulationError(f"kernel {self.kernel.name}: {why}")
        number = self.program.marks[found.tb_lineno - 1]
        variables = found.tb_frame.f_locals
        text = (
            print_statement(self.program.statements[number - 1], buffers=self.program.buffers)
            if number
            else "params"
        )
        known = self.program.variables[number - 1] if number else {}
        at = [f"{n} = {int(variables[v])}" for v, n in known.items() if _whole(variables.get(v))]
        where = f" at {', '.join(dict.fromkeys(at))}" if at else ""
        return SimulationError(f"kernel {self.kernel.name}: statement {number} ({text}): {why}{where}")


def _whole(x: Any) -> bool:
    return isinstance(x, int | np.integer)


def _order(iterations: int, seed: int | None) -> list[int]:
    order = range(max(0, iterations))
    return (
        list(order) if seed is None else [int(i) for i in np.random.default_rng(seed).permutation(len(order))]
    )


def _uses(program: Program, chip: Chip) -> dict[int, Use]:
    """The intrinsics of a kernel by the number of their statement."""
    numbered = enumerate(program.statements, 1)
    homes = {b.name: b.place for b in program.buffers}
    return {n: Use(chip, s, n, homes) for n, s in numbered if isinstance(s, Intrin)}


def _compiled(program: Program, file: str) -> Any:
    """The function `make` of the generated text."""
    names: dict[str, Any] = dict(_NAMES)
    names |= program.constants
    # The text is made by kernel_source alone; no name or string of the kernel occurs in it.
    exec(compile(program.text, file, "exec"), names)  # noqa: S102
    return names["make"]


_NAMES: dict[str, Any] = {
    **globals_for_operations(),
    **{
        n: getattr(faults, n)
        for n in ("check_reach", "check_read", "check_write", "out_of_bounds", "race_read", "race_write")
    },
    **{n: getattr(gather, n) for n in ("accumulate", "clash", "gather", "lanes", "no_case", "scatter")},
    "ND": np.ndarray,
    "U1": np.dtype(np.uint8),
    "ONE": b"\1",
    **{f"np_{n}": getattr(np, n) for n in ("add", "subtract", "multiply", "minimum", "maximum")},
}
