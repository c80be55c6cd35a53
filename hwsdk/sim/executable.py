"""A compiled model on the machine: the host program interpreted, every launch simulated, every buffer
watched.

Beside what the machine checks within a launch, this checks what lies between launches: that a buffer still
holds what was put there (arena plans overlap), that everything an input promises was written, that the launch
size is the extent of the kernel's parallel loop, and that every output is complete.

Design choice: one tag per byte of the arena says which buffer it belongs to at the moment.  A launch takes
the bytes it writes and demands those it reads, so a lifetime that is too short names both buffers and the
launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.host_interpreter import Resolved, choose, resolve
from hwsdk.codegen.host_ir import HostBuffer, HostProgram, Launch
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import InputError, SimulationError
from hwsdk.sim.cells import Array
from hwsdk.sim.lanes.machine import LaneMachine
from hwsdk.sim.machine import Machine, ready
from hwsdk.sim.stats import Stats
from hwsdk.target_desc.model import Target

_JUNK = 0xA5  # what memory holds that nobody wrote


@dataclass(frozen=True)
class SimBundle:
    """What is needed to simulate: host program, kernels, target, constants by buffer name."""

    program: HostProgram
    kernels: tuple[LoopKernel, ...]
    target: Target
    constants: Mapping[str, Array]

    @staticmethod
    def of(made: Compilation) -> SimBundle:
        """From a compilation."""
        assembled = made.assembled
        program = assembled.program
        constants = {
            b.name: assembled.constants[int(str(b.position))]
            for b in program.buffers
            if b.storage == "constant"
        }
        return SimBundle(program, tuple(assembled.kernels), made.target, constants)


def simulate(
    bundle: SimBundle, inputs: Mapping[str, Array], *, check: bool = True, seed: int | None = None
) -> tuple[dict[str, Array], Stats]:
    """One inference: outputs by name, and what it cost."""
    executable = SimExecutable(bundle, check=check, seed=seed)
    outputs = executable(inputs)
    return outputs, executable.stats


class SimExecutable:
    """A model that may be called again and again; kernels are made ready on first use.

    check False: values and costs only.  seed: every launch runs its iterations in a random order.
    `stats` and `launches` (name of the kernel, its stats) are those of the last call.
    """

    def __init__(
        self, bundle: SimBundle, *, check: bool = True, cost: bool = True, seed: int | None = None
    ) -> None:
        self.bundle, self.check, self.cost, self.seed = bundle, check, cost, seed
        self.stats = Stats()
        self.launches: list[tuple[str, Stats]] = []
        self._kernels = {k.name: k for k in bundle.kernels}
        self._machines: dict[str, Machine | LaneMachine] = {}
        self._buffers = {b.name: b for b in bundle.program.buffers}

    @property
    def workers(self) -> int:
        """Tiles that run side by side."""
        return self.bundle.target.workers()

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """One inference."""
        program = self.bundle.program
        arrays = [input_array(program, i, {**(inputs or {}), **named}) for i in range(len(program.inputs))]
        resolved = resolve(program, [a.shape for a in arrays], self.workers)
        memory = _Memory(self.bundle, resolved, arrays, self._buffers)
        for write in program.writes:
            values = [resolved.value(v) for v in write.values]
            memory.array(write.buffer).reshape(-1)[:] = values
            memory.written(write.buffer, np.ones(len(values), bool))
        self.launches = []
        for number, launch in enumerate(program.launches):
            self._launch(number, launch, resolved, memory)
        self.stats = Stats.merged(stats for _, stats in self.launches)
        if self.check:
            memory.demand_outputs()
        return dict(zip((o.name for o in program.outputs), memory.outputs, strict=True))

    def machine(self, symbol: str) -> Machine | LaneMachine:
        """A kernel made ready."""
        if symbol not in self._machines:
            if symbol not in self._kernels:
                raise SimulationError(
                    f"the host program launches {symbol!r}, which is no kernel of the model"
                )
            kernel = self._kernels[symbol]
            self._machines[symbol] = ready(kernel, self.bundle.target, check=self.check, cost=self.cost)
        return self._machines[symbol]

    def _launch(self, number: int, launch: Launch, resolved: Resolved, memory: _Memory) -> None:
        _, version = choose(launch, resolved)
        grid = resolved.value(version.grid)
        if grid <= 0:
            return
        machine = self.machine(version.symbol)
        kernel = machine.kernel
        where = f"launch {number} ({launch.kernel})"
        if len(launch.args) != len(kernel.params) or len(launch.dims) != len(kernel.dims):
            raise SimulationError(
                f"{where}: {len(launch.args)} buffers and {len(launch.dims)} dims for"
                f" {len(kernel.params)} params and {len(kernel.dims)} dims of kernel {kernel.name}"
            )
        names = dict(zip((p.name for p in kernel.params), launch.args))
        initialised = {}
        if self.check:
            for param, name in names.items():
                if param in kernel.outputs:
                    initialised[param] = memory.held(name)
                else:
                    memory.demand(name, where)
        arrays = {param: memory.array(name).reshape(-1) for param, name in names.items()}
        dims = dict(zip(kernel.dims, (resolved.value(d) for d in launch.dims)))
        stats = machine.run(arrays, dims, seed=self.seed, initialised=initialised)
        if stats.iterations != grid:
            raise SimulationError(
                f"{where}: the host launches {grid} iterations, the kernel has {stats.iterations}"
            )
        if self.check:
            for param in kernel.outputs:
                memory.written(names[param], initialised[param])
        self.launches.append((launch.kernel, stats))


class _Memory:
    """All buffers of one inference, and whose bytes the arena's and the outputs' are."""

    def __init__(
        self, bundle: SimBundle, resolved: Resolved, inputs: list[Array], buffers: Mapping[str, HostBuffer]
    ) -> None:
        self.bundle, self.resolved, self.inputs, self.buffers = bundle, resolved, inputs, buffers
        specs = bundle.program.outputs
        self.outputs = [
            _junk(shape, numpy_dtype(s.dtype)) for shape, s in zip(resolved.outputs, specs, strict=True)
        ]
        self.arena = np.full(resolved.arena_bytes, _JUNK, np.uint8)
        self.owners = np.zeros(resolved.arena_bytes, np.int32)
        self.complete = [np.zeros(o.size, bool) for o in self.outputs]
        self.numbers = {name: i + 1 for i, name in enumerate(buffers)}
        self.known: dict[str, Array] = {}

    def array(self, name: str) -> Array:
        """The memory of a buffer."""
        if name not in self.known:
            self.known[name] = self._array(self.buffers[name])
        return self.known[name]

    def _array(self, buffer: HostBuffer) -> Array:
        kind = numpy_dtype(buffer.dtype)
        shape = tuple(self.resolved.value(d) for d in buffer.shape)
        position = self.resolved.value(buffer.position)
        match buffer.storage:
            case "constant":
                return self.bundle.constants[buffer.name]
            case "input":
                return self.inputs[position].reshape(-1).view(kind).reshape(shape)
            case "output":
                return self.outputs[position].reshape(-1).view(kind).reshape(shape)
        size = math.prod(shape) * kind.itemsize
        if position < 0 or position + size > self.arena.size or position % kind.itemsize:
            raise SimulationError(
                f"buffer {buffer.name} of {size} bytes at {position} does not fit the arena of {self.arena.size} bytes"
            )
        return self.arena[position : position + size].view(kind).reshape(shape)

    def _tags(self, name: str) -> Array:
        """The owners of the bytes of an arena buffer, one row per element."""
        buffer = self.buffers[name]
        array, position = self.array(name), self.resolved.value(buffer.position)
        return self.owners[position : position + array.nbytes].reshape(array.size, array.itemsize)

    def held(self, name: str) -> Any:
        """Which elements hold what was stored to this buffer; a mask of its own."""
        storage = self.buffers[name].storage
        if storage == "arena":
            return (self._tags(name) == self.numbers[name]).all(axis=1)
        if storage == "output":
            return self.complete[self.resolved.value(self.buffers[name].position)].copy()
        return np.ones(self.array(name).size, bool)

    def written(self, name: str, mask: Any) -> None:
        """These elements hold what the buffer stands for."""
        storage = self.buffers[name].storage
        if storage == "arena":
            self._tags(name)[mask] = self.numbers[name]
        elif storage == "output":
            self.complete[self.resolved.value(self.buffers[name].position)] |= mask

    def demand(self, name: str, where: str) -> None:
        """SimulationError unless the whole buffer holds what was stored to it."""
        held = self.held(name)
        if held.all():
            return
        at = int(np.argmin(held))
        why = "was never written"
        if self.buffers[name].storage == "arena":
            owner = int(self._tags(name)[at].max())
            others = [n for n, i in self.numbers.items() if i == owner and n != name]
            why = f"holds data of {others[0]}, which shares its place in the arena" if others else why
        raise SimulationError(f"{where} reads buffer {name}, but element {at} of {held.size} {why}")

    def demand_outputs(self) -> None:
        """SimulationError unless every output is complete."""
        for spec, done in zip(self.bundle.program.outputs, self.complete, strict=True):
            if not done.all():
                raise SimulationError(
                    f"output {spec.name}: element {int(np.argmin(done))} of {done.size} was never written"
                )


def input_array(program: HostProgram, number: int, given: Mapping[str, Any]) -> Array:
    """Input `number` of the program among what was given; InputError if it is missing or of another dtype."""
    spec = program.inputs[number]
    if spec.name not in given:
        raise InputError(
            f"input {spec.name!r} is missing; expected {', '.join(i.name for i in program.inputs)}"
        )
    array = np.asarray(given[spec.name])
    if array.dtype != numpy_dtype(spec.dtype):
        raise InputError(f"input {spec.name!r} has dtype {array.dtype}, expected {spec.dtype}")
    return np.ascontiguousarray(array).reshape(array.shape)


def _junk(shape: tuple[int, ...], kind: Any) -> Array:
    size = math.prod(shape) * kind.itemsize
    found: Array = np.full(size, _JUNK, np.uint8).view(kind).reshape(tuple(shape))
    return found
