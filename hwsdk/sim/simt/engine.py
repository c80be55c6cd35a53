"""A simulated device for kernels that run in lock step: memory, and launches that say what they did or what was wrong.

    engine = Engine()
    a = engine.copy_of(array, "a", read_only=True)
    out = engine.allocate(array.nbytes, "out")
    stats = engine.launch(program, grid=(4,), block=(256,), args=[a, out, n])
    result = engine.read(out, array.dtype, array.shape)

Design choice: blocks run in batches as one axis of arrays, as many at a time as the memory budget allows; blocks of a
launch may run in any order and must not depend on each other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.errors import InputError
from hwsdk.sim.simt.chip import Checks, SimtChip
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.sim.simt.frame import Frame, Shape
from hwsdk.sim.simt.global_memory import GlobalMemory
from hwsdk.sim.simt.layout import SharedLayout, lay_out
from hwsdk.sim.simt.program import Array, Barrier, Jump, Parameter, Program, Variable
from hwsdk.sim.simt.races import RaceTable
from hwsdk.sim.simt.scheduler import Scheduler
from hwsdk.sim.simt.stats import SpaceStats, Stats, Tally
from hwsdk.sim.simt.storage import ALLOCATED, READ_ONLY, VALID, Storage

_BATCH_LANES = 8192


class Engine:
    """chip: widths and limits.  memory_bytes: of the arena for allocations.  batch_bytes: what the registers and
    memories of the blocks that run at once may take.  Launches of one engine follow each other; verbs may be called
    from several threads."""

    def __init__(
        self,
        chip: SimtChip | None = None,
        *,
        memory_bytes: int = 1 << 30,
        batch_bytes: int = 256 << 20,
        checks: Checks | None = None,
    ) -> None:
        self.chip = chip or SimtChip()
        self.checks = checks or Checks()
        self.memory = GlobalMemory(memory_bytes)
        self.batch_bytes = batch_bytes
        self._variables: dict[int, tuple[tuple[Variable, ...], dict[str, int]]] = {}
        self._lock = threading.Lock()

    # -------------------------------------------------------------------------------------------- memory
    def allocate(self, size_bytes: int, name: str = "") -> int:
        """Address of uninitialised memory.  `name` is how faults call it."""
        return self.memory.allocate(size_bytes, name)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def copy_in(self, address: int, data: Array) -> None:
        """The bytes of a host array to device memory."""
        self.memory.write(address, np.asarray(data))

    def copy_out(self, address: int, size_bytes: int) -> Array:
        """Bytes of device memory as uint8."""
        return self.memory.read(address, size_bytes)

    def copy_of(self, data: Array, name: str = "", read_only: bool = False) -> int:
        """Allocate, copy in and, if asked, forbid kernels to write.  Read-only inputs are also cheaper to watch."""
        data = np.asarray(data)
        address = self.allocate(data.nbytes, name)
        self.copy_in(address, data)
        if read_only:
            self.memory.protect(address)
        return address

    def read(self, address: int, dtype: Any, shape: int | Sequence[int]) -> Array:
        """Device memory as an array."""
        kind = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(sizes, dtype=np.int64))
        raw = self.copy_out(address, count * kind.itemsize)
        result: Array = raw.view(kind).reshape(sizes)
        return result

    # -------------------------------------------------------------------------------------------- launch
    def launch(
        self,
        program: Program,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
    ) -> Stats:
        """Run all blocks.  args: one per parameter: an integer, a float, or bytes (or an array) for a structure.

        KernelFault: the kernel did what it must not, or the launch exceeds a limit.  InputError: args do not fit.
        """
        shape = Shape(_three(grid, "grid"), _three(block, "block"), self.chip.warp_lanes)
        layout = lay_out(program.shared, shared_bytes)
        self._check_limits(program, shape, layout)
        parameters = _parameters(program, args)
        with self._lock, np.errstate(all="ignore"):
            return self._run(program, shape, layout, parameters)

    def _run(self, program: Program, shape: Shape, layout: SharedLayout, parameters: Storage) -> Stats:
        local = lay_out(program.local, 0)
        symbols = {**self._place(program.variables), **layout.offsets, **local.offsets}
        races = None
        if self.checks.global_races:
            top = self.memory.top
            races = RaceTable(top, program.granule_bytes, shape.padded, self.chip.warp_lanes, False)
        tally = Tally(len(program.segments))
        batch = self._batch(program, shape, layout, local)
        for first in range(0, shape.blocks, batch):
            blocks = min(batch, shape.blocks - first)
            frame = Frame(
                program,
                self.chip,
                self.checks,
                shape,
                first,
                blocks,
                self.memory,
                races,
                layout,
                local,
                parameters,
                symbols,
                tally,
            )
            Scheduler(frame).run()
        return _stats(program, shape, tally)

    def _batch(self, program: Program, shape: Shape, layout: SharedLayout, local: SharedLayout) -> int:
        """Blocks that run at once."""
        lane_bytes = sum(max(1, w) for w in program.registers) + 2 * local.stride + 128
        races = 24 // program.granule_bytes if self.checks.shared_races else 0
        block_bytes = shape.padded * lane_bytes + layout.stride * (2 + races)
        return max(1, min(_BATCH_LANES // max(1, shape.padded), self.batch_bytes // max(1, block_bytes)))

    def _check_limits(self, program: Program, shape: Shape, layout: SharedLayout) -> None:
        chip, problem = self.chip, ""
        if min(shape.block) < 1 or min(shape.grid) < 0:
            problem = f"grid {shape.grid} or block {shape.block} has a size below 1"
        elif any(g > m for g, m in zip(shape.grid, chip.max_grid)):
            problem = f"grid {shape.grid} exceeds {chip.max_grid}"
        elif shape.block_lanes > chip.max_block_lanes:
            problem = f"a block of {shape.block_lanes} lanes exceeds {chip.max_block_lanes}"
        elif program.block is not None and program.block != shape.block:
            problem = f"the kernel is compiled for blocks of {program.block}, not {shape.block}"
        elif program.max_block is not None and shape.block_lanes > int(np.prod(program.max_block)):
            problem = f"the kernel is compiled for blocks of at most {program.max_block}, not {shape.block}"
        elif layout.used_bytes > chip.shared_bytes:
            problem = (
                f"a block needs {layout.used_bytes} bytes of shared memory, the chip has {chip.shared_bytes}"
            )
        if problem:
            raise KernelFault(FaultKind.LAUNCH, problem, program.name)

    def _place(self, variables: tuple[Variable, ...]) -> dict[str, int]:
        """Addresses of a module's variables, which live as long as the engine; kernels of a module share the tuple."""
        found = self._variables.get(id(variables))
        if found is not None:
            return found[1]
        addresses = {v.name: self.memory.allocate(v.size_bytes, v.name, v.align_bytes) for v in variables}
        for v in variables:
            self._initialise(v, addresses)
        self._variables[id(variables)] = variables, addresses
        return addresses

    def _initialise(self, variable: Variable, addresses: Mapping[str, int]) -> None:
        content = np.zeros(variable.size_bytes, np.uint8)
        given = np.frombuffer(variable.content or b"", np.uint8)
        content[: given.size] = given
        for offset, symbol, addend, _ in variable.references:
            value = np.array([addresses[symbol] + addend], np.uint64)
            content[offset : offset + 8] = value.view(np.uint8)
        self.memory.write(addresses[variable.name], content)
        if variable.read_only:
            self.memory.protect(addresses[variable.name])


def _three(size: int | Sequence[int], what: str) -> tuple[int, int, int]:
    sizes = [size] if isinstance(size, int) else [int(s) for s in size]
    if not 1 <= len(sizes) <= 3:
        raise InputError(f"{what} has {len(sizes)} dimensions, not 1 to 3")
    x, y, z = sizes + [1] * (3 - len(sizes))
    return x, y, z


def _parameters(program: Program, args: Sequence[Any]) -> Storage:
    if len(args) != len(program.parameters):
        raise InputError(f"kernel {program.name} has {len(program.parameters)} parameters, not {len(args)}")
    storage = Storage(program.parameter_bytes)
    for parameter, value in zip(program.parameters, args):
        raw = _raw(program.name, parameter, value)
        place = slice(parameter.offset_bytes, parameter.offset_bytes + parameter.size_bytes)
        storage.data[place] = raw
        storage.state[place] = ALLOCATED | VALID | READ_ONLY
    return storage


def _raw(kernel: str, parameter: Parameter, value: Any) -> Array:
    """The bytes of an argument."""
    where = f"kernel {kernel}, parameter {parameter.name}"
    if isinstance(value, (bytes, bytearray)):
        raw = np.frombuffer(bytes(value), np.uint8)
    elif isinstance(value, (np.ndarray, np.generic)):
        raw = np.frombuffer(np.asarray(value).tobytes(), np.uint8)
    elif isinstance(value, (bool, int)):
        size = parameter.size_bytes
        if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            raise InputError(f"{where}: {value} does not fit {size} bytes")
        raw = np.frombuffer((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8)
    elif isinstance(value, float):
        kind = parameter.dtype if parameter.dtype is not None and parameter.dtype.kind == "f" else None
        kind = kind or np.dtype(f"f{parameter.size_bytes}" if parameter.size_bytes in (2, 4, 8) else "f4")
        raw = np.frombuffer(np.array(value, kind).tobytes(), np.uint8)
    else:
        raise InputError(f"{where}: {type(value).__name__} is neither a number nor bytes")
    if raw.size != parameter.size_bytes:
        raise InputError(f"{where}: {raw.size} bytes given for {parameter.size_bytes}")
    return raw


def _stats(program: Program, shape: Shape, tally: Tally) -> Stats:
    lanes: Counter[str] = Counter()
    warps: Counter[str] = Counter()
    for segment, ran, issued in zip(program.segments, tally.lanes, tally.warps):
        if not ran:
            continue
        kinds = Counter(i.kind for i in segment.body)
        if not (isinstance(segment.ending, Jump) and segment.ending.falls):
            kinds["barrier" if isinstance(segment.ending, Barrier) else "control"] += 1
        for kind, count in kinds.items():
            lanes[kind] += count * ran
            warps[kind] += count * issued
    spaces = {name: SpaceStats(*numbers) for name, numbers in tally.spaces.items()}
    return Stats(
        1, shape.blocks, dict(lanes), dict(warps), spaces, tally.bank_conflicts, tally.barriers, tally.steps
    )
