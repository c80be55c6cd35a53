"""Chips that the suite can run on: one that is here, and the LoopIR machine for one that is not.

Design choice: which of the two is used is said by the description and the user, never guessed from a failure:
a port that cannot be opened is an error, not a reason to simulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk import api
from hwsdk.dtypes import numpy_dtype
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.target_desc import Target

from .device import Array, Device, Program
from .model import Unsupported

if TYPE_CHECKING:
    from hwsdk.graph.graph import Graph
    from hwsdk.intrinsics.emit_lanes import LaneKernel
    from hwsdk.ral_port.executable import Executable
    from hwsdk.ral_port.interface import Ral
    from hwsdk.sim.instructions import InstructionExecutable

PATTERN = 0xA5  # what memory around an operand holds; it must still be there afterwards


def open_device(target: Target, *, simulate: bool = False, isa: bool = False, number: int = 0) -> Device:
    """The chip itself, if the description has a port and code generation for it; otherwise the simulated
    one.  isa: simulated by interpreting the instructions of its kernels.  number: which one, of several chips.
    """
    if isa:
        return SimulatedDevice(target, isa=True)
    built = target.codegen.llvm is not None  # which also makes the host program
    return (
        SimulatedDevice(target)
        if simulate or not built or not target.runtime.port
        else NativeDevice(target, number)
    )


# -------------------------------------------------------------------------------------------------------------- native
def _launches(counted: int, outputs: Mapping[str, Array]) -> int:
    """Launches of no iterations are left out: where all results are empty, one stands for them."""
    return max(counted, int(all(array.size == 0 for array in outputs.values())))


class NativeProgram:
    """An executable whose launches are counted by its device."""

    def __init__(self, device: NativeDevice, exe: Executable) -> None:
        self._device, self._exe = device, exe

    @property
    def compiles(self) -> int:
        return self._exe.stats.compiles

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        before = self._exe.stats.launches
        outputs = self._exe(inputs)
        self._device.launches += _launches(self._exe.stats.launches - before, outputs)
        return outputs


class NativeDevice:
    """A chip behind its port."""

    kind = "device"

    def __init__(self, target: Target, number: int = 0) -> None:
        self.target, self.number = target, number
        self.launches = 0
        self.folder = Path(target.file).resolve().parent
        self._port: Ral | None = None
        self._kernels: dict[str, tuple[int, list[str]]] = {}
        self._lanes = LaneUses(target)

    def build(self, graph: Graph) -> Program:
        return NativeProgram(self, api.compile(graph, self.target, device=self.number))

    def port(self) -> Ral:
        from hwsdk.ral_port.loader import open_port

        return open_port(self.target.runtime.port, self.folder, self.number)

    def execute(
        self, intrinsic: str, operands: Mapping[str, Array], dims: Mapping[str, int]
    ) -> dict[str, Array]:
        if self._port is None:
            self._port = self.port()
        port = self._port
        if self.target.codegen.model == "simt":
            self.launches += 1
            return self._lanes.execute(port, intrinsic, operands, dims)
        if intrinsic not in self._kernels:
            self._kernels[intrinsic] = self._load(port, intrinsic)
        kernel, parameters = self._kernels[intrinsic]
        x = compiled(self.target)[intrinsic]
        images = {name: _image(x, name, operands, dims) for name in parameters}
        addresses = {}
        for name, image in images.items():
            addresses[name] = port.alloc(image.nbytes, 4096)
            port.copy_in(addresses[name], image.ctypes.data, image.nbytes)
        port.launch(kernel, 1, [addresses[name] for name in parameters])
        port.synchronize()
        self.launches += 1
        for name, image in images.items():
            port.copy_out(image.ctypes.data, addresses[name], image.nbytes)
            port.free(addresses[name])
        return {name: _logical(x, name, images[name], operands, dims) for name in x.writes}

    def _load(self, port: Ral, intrinsic: str) -> tuple[int, list[str]]:
        """One use of the intrinsic as a kernel: pointers to its operands, in the calling convention of all
        kernels.
        """
        source = self.target.codegen.route == "source"
        code, parameters = (_source_use if source else _llvm_use)(self.target, intrinsic)
        return port.kernel(port.load([code]), "one_use"), parameters


class LaneUses:
    """Uses of intrinsics on a machine of lanes, as kernels that are made once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._made: dict[str, tuple[int, LaneKernel]] = {}

    def execute(
        self,
        port: Ral,
        intrinsic: str,
        operands: Mapping[str, Array],
        dims: Mapping[str, int],
        text: bool = False,
    ) -> dict[str, Array]:
        """The written operands after one use.  text: the port takes the text of kernels where code would be linked."""
        from .lanes import run

        if intrinsic not in self._made:
            self._made[intrinsic] = self._load(port, intrinsic, text)
        handle, kernel = self._made[intrinsic]
        return run(port, handle, kernel, compiled(self._target)[intrinsic], operands, dims)

    def _load(self, port: Ral, intrinsic: str, text: bool) -> tuple[int, LaneKernel]:
        from hwsdk.intrinsics.emit_lanes import lane_kernel

        kernel = lane_kernel(self._target, intrinsic, "one_use")
        code = api.device_code([(f"use_{intrinsic}", kernel.text)], self._target, interpreted=text)
        return port.kernel(port.load(code), "one_use"), kernel


def _llvm_use(target: Target, intrinsic: str) -> tuple[bytes, list[str]]:
    from hwsdk.codegen.objects import compile_modules
    from hwsdk.intrinsics.emit_llvm import wrapper_function

    body, parameters = wrapper_function(target, intrinsic, "use")
    lines = ["define void @one_use(ptr %args, i64 %tile, i64 %worker) {"]
    for i in range(len(parameters)):
        lines += [f"  %p{i} = getelementptr i64, ptr %args, i64 {i}", f"  %a{i} = load ptr, ptr %p{i}"]
    passed = ", ".join(f"ptr %a{i}" for i in range(len(parameters)))
    lines += [f"  call void @use({passed})", "  ret void", "}", ""]
    (code,) = compile_modules([(f"use_{intrinsic}", body + "\n".join(lines))], target)
    return code, parameters


def _source_use(target: Target, intrinsic: str) -> tuple[bytes, list[str]]:
    from hwsdk.codegen.source.toolchain import compile_sources
    from hwsdk.intrinsics.emit_source import wrapper_source

    words = target.codegen.source
    assert words is not None
    body, parameters = wrapper_source(target, intrinsic, "use")
    integer = words.types["i64"]
    head = f"void one_use(const {integer} *args, {integer} tile, {integer} worker)"
    text = f"{words.prologue}\nstatic {body}\n{head} {{\n  (void)tile; (void)worker;\n  use((void **)args);\n}}\n"
    (code,) = compile_sources([(f"use_{intrinsic}", text)], target)
    return code, parameters


def _image(x: CompiledIntrinsic, name: str, operands: Mapping[str, Array], dims: Mapping[str, int]) -> Array:
    """The bytes of one parameter: an extent, a scalar, or an operand laid out as the description says."""
    if name in x.runtime_dims:
        return np.frombuffer(np.int64(dims[name]).tobytes(), np.uint8).copy()
    logical = operands[name]
    if name in x.scalars:
        return np.frombuffer(np.asarray(logical).tobytes().ljust(8, b"\0"), np.uint8).copy()
    places = x.layout(name).grid(dims, strides(x, operands))
    items = x.items(name) if x.in_registers(name) else places.items
    if logical.dtype == np.bool_:
        return np.packbits(places.pack(logical, 1, items)[0], bitorder="little")
    kind = numpy_dtype(x.operands[name].dtype)
    image = np.full(items * kind.itemsize, PATTERN, np.uint8)
    image.view(kind)[_positions(x, name, operands, dims)] = logical.reshape(-1)
    return image


def _positions(
    x: CompiledIntrinsic, name: str, operands: Mapping[str, Array], dims: Mapping[str, int]
) -> Array:
    """The item of every logical element, in row-major order."""
    coords = [np.arange(dims[c]) for c in x.coords(name)]
    _, item = x.layout(name).places(dims, strides(x, operands))
    shape = tuple(len(c) for c in coords)
    return np.broadcast_to(np.asarray(item), shape).reshape(-1) if shape else np.asarray(item).reshape(-1)[:1]


def strides(x: CompiledIntrinsic, operands: Mapping[str, Array]) -> dict[str, int]:
    """Integer scalars that layouts may speak of."""
    return {s: int(operands[s]) for s in x.scalars if operands[s].dtype.kind in "iu"}


def _logical(
    x: CompiledIntrinsic, name: str, image: Array, operands: Mapping[str, Array], dims: Mapping[str, int]
) -> Array:
    """The operand back from its bytes; what lies between its elements must be untouched."""
    from .model import Mismatch

    logical = operands[name]
    if logical.dtype == np.bool_:
        bits = np.unpackbits(image, bitorder="little").astype(bool)
        return bits[_positions(x, name, operands, dims)].reshape(logical.shape)
    kind = numpy_dtype(x.operands[name].dtype)
    positions = _positions(x, name, operands, dims)
    if not x.in_registers(name):
        around = np.ones(image.size // kind.itemsize, bool)
        around[positions] = False
        if (image.reshape(-1, kind.itemsize)[around] != PATTERN).any():
            raise Mismatch(f"{name}: memory between its elements was written")
    return np.asarray(image.view(kind)[positions]).reshape(logical.shape)


# ----------------------------------------------------------------------------------------------------------- simulated
class SimulatedProgram:
    """A compilation on the LoopIR machine, or as interpreted instructions."""

    compiles = 1

    def __init__(self, device: SimulatedDevice, machine: api.Simulation | InstructionExecutable) -> None:
        self._device, self._machine = device, machine

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self._machine(inputs)
        self._device.launches += _launches(self._machine.stats.launches, outputs)
        return outputs


class SimulatedDevice:
    """A chip that exists as a description only: LoopIR runs, or (isa) the text of its kernels."""

    def __init__(self, target: Target, *, isa: bool = False) -> None:
        self.target, self.isa = target, isa
        self.kind = "simulated instructions" if isa else "simulated"
        self.launches = 0
        self._port: Ral | None = None
        self._lanes = LaneUses(target)

    def build(self, graph: Graph) -> Program:
        made = api.compile_stages(graph, self.target)
        return SimulatedProgram(
            self, api.instructions(made) if self.isa else api.Simulation(made, cost=False)
        )

    def port(self) -> Any:
        raise Unsupported("simulated: the description alone has no run-time port to test")

    def execute(
        self, intrinsic: str, operands: Mapping[str, Array], dims: Mapping[str, int]
    ) -> dict[str, Array]:
        self.launches += 1
        if self.isa:
            if self._port is None:
                self._port = api.lockstep_port(self.target)
            return self._lanes.execute(self._port, intrinsic, operands, dims, text=True)
        x = compiled(self.target)[intrinsic]
        return x.evaluate(operands, {d: dims[d] for d in x.runtime_dims})
