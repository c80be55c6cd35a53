"""A compiled model on the instructions that ship: every kernel as the text of its instruction set, interpreted.

Design choice: each buffer is an allocation of its own with guard zones around it, made when the first launch needs it,
read-only for launches that only read it, and freed after the last.  So an access that leaves its buffer, a read of
what nobody wrote and a write to what should stay are seen, whatever the arena would have put beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.codegen.host_interpreter import Resolved, choose, resolve
from hwsdk.codegen.host_ir import HostBuffer, HostProgram, Launch, Signature
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import SimulationError
from hwsdk.ral_port.executable import ModelSignature
from hwsdk.sim.cells import Array
from hwsdk.sim.executable import input_array
from hwsdk.sim.port import LockstepPort
from hwsdk.sim.simt.stats import Stats
from hwsdk.target_desc.model import Target

#: Buffers of one storage at one position share memory; arena buffers are told apart by name.
_Key = tuple[str, object]


class InstructionExecutable:
    """A model that may be called again and again.  codes: texts of its kernels.  constants: by buffer name.

    `launches` (name of the kernel, its stats) and `stats` are those of the last call.
    """

    def __init__(
        self,
        program: HostProgram,
        kernels: Sequence[LoopKernel],
        target: Target,
        constants: Mapping[str, Array],
        codes: Sequence[bytes],
        port: LockstepPort,
    ) -> None:
        self.program, self.target, self.port = program, target, port
        self.stats = Stats()
        self.launches: list[tuple[str, Stats]] = []
        self._kernels = {k.name: k for k in kernels}
        self._module = port.load(codes)
        self._buffers = {b.name: b for b in program.buffers}
        self._constants: dict[_Key, int] = {}
        for buffer in program.buffers:
            if buffer.storage == "constant":
                address = self._copied(constants[buffer.name], buffer.name)
                self._constants[_key(buffer)] = address

    @property
    def signature(self) -> ModelSignature:
        """Inputs and outputs with dtype and symbolic shape."""
        return ModelSignature(self.program.inputs, self.program.outputs)

    def _copied(self, array: Array, name: str) -> int:
        address = self.port.engine.copy_of(array if array.nbytes else np.zeros(1, np.uint8), name)
        self.port.protect(address)
        return address

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """One inference."""
        program = self.program
        arrays = [input_array(program, i, {**(inputs or {}), **named}) for i in range(len(program.inputs))]
        run = _Run(self, resolve(program, [a.shape for a in arrays], self.target.workers()), arrays)
        try:
            for number, launch in enumerate(program.launches):
                run.launch(number, launch)
            self.launches = run.launches
            self.stats = sum((stats for _, stats in run.launches), Stats())
            return run.outputs()
        finally:
            run.free()


class _Run:
    """One inference: which buffer is where."""

    def __init__(self, model: InstructionExecutable, resolved: Resolved, arrays: Sequence[Array]) -> None:
        self.model, self.resolved, self.port = model, resolved, model.port
        self.launches: list[tuple[str, Stats]] = []
        self.owned: dict[_Key, int] = {}
        self.writable: set[_Key] = set()
        self.last: dict[_Key, int] = {}
        for number, launch in enumerate(model.program.launches):
            self.last |= {_key(model._buffers[name]): number for name in launch.args}
        for number, array in enumerate(arrays):
            self.owned["input", number] = model._copied(array, model.program.inputs[number].name)
        for write in model.program.writes:
            buffer = model._buffers[write.buffer]
            values = np.array([resolved.value(v) for v in write.values], numpy_dtype(buffer.dtype))
            self.owned[_key(buffer)] = model._copied(values, write.buffer)

    def launch(self, number: int, launch: Launch) -> None:
        resolved, port = self.resolved, self.port
        _, version = choose(launch, resolved)
        grid = resolved.value(version.grid)
        kernel = self.model._kernels[version.symbol]
        args = []
        for param, name in zip(kernel.params, launch.args, strict=True):
            args.append(self._address(self.model._buffers[name], param.name in kernel.outputs))
        dims = [resolved.value(d) for d in launch.dims]
        if grid > 0:
            needs = version.needs
            scratch = resolved.value(needs.scratch_bytes)
            handle = port.kernel(self.model._module, version.symbol)
            port.launch(handle, grid, [*args, *dims], lanes=needs.lanes, scratch_bytes=scratch)
            self.launches.append((launch.kernel, port.last))
        for name in launch.args:
            self._done(number, self.model._buffers[name])

    def _address(self, buffer: HostBuffer, written: bool) -> int:
        key = _key(buffer)
        if buffer.storage == "constant":
            return self.model._constants[key]
        if key not in self.owned:
            self.owned[key] = self.port.engine.allocate(max(1, self._size(buffer)), buffer.name)
            self.writable.add(key)
        if written != (key in self.writable):
            self.port.protect(self.owned[key], not written)
            (self.writable.add if written else self.writable.discard)(key)
        return self.owned[key]

    def _size(self, buffer: HostBuffer) -> int:
        count = math.prod(self.resolved.value(d) for d in buffer.shape)
        return int(count) * numpy_dtype(buffer.dtype).itemsize

    def _done(self, number: int, buffer: HostBuffer) -> None:
        key = _key(buffer)
        if buffer.storage == "arena" and self.last[key] == number and key in self.owned:
            self.port.free(self.owned.pop(key))

    def outputs(self) -> dict[str, Array]:
        """By name; SimulationError for one that is not complete."""
        shapes = self.resolved.outputs
        return {
            spec.name: self._output(number, spec, shape)
            for number, (spec, shape) in enumerate(zip(self.model.program.outputs, shapes, strict=True))
        }

    def _output(self, number: int, spec: Signature, shape: tuple[int, ...]) -> Array:
        kind, memory = numpy_dtype(spec.dtype), self.port.engine.memory
        size = math.prod(shape) * kind.itemsize
        if not size:
            return np.zeros(shape, kind)
        address = self.owned.get(("output", number))
        if address is None or not memory.initialised(address, size).all():
            raise SimulationError(f"output {spec.name}: not every element was written")
        return memory.read(address, size).view(kind).reshape(shape)

    def free(self) -> None:
        for address in self.owned.values():
            self.port.free(address)


def _key(buffer: HostBuffer) -> _Key:
    if buffer.storage == "arena":
        return "arena", buffer.name
    return buffer.storage, int(str(buffer.position))
