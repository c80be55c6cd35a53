"""HostProgram: everything that happens on the host for one inference, as data.

    program = symbols bound from input dims, checks, buffers with a place each, launches
    buffer  = input | output | constant (packed at compile time) | arena (offset is an expression of the dims)
    write   = integers that are computed from dims, stored in a buffer before the first launch
    launch  = kernel, one version per guard, buffers, dims

Design choice: no control flow is hidden.  A version's guard is an expression over the same symbols; the first
version whose guard holds runs.  The Python interpreter of this file's language (`host_interpreter`) defines
it; the native form is one compiled function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwsdk.graph.dims import ceildiv, multiply

if TYPE_CHECKING:  # loading an artifact does without the IR of kernels
    from hwsdk.codegen.loop_ir import Index

ALIGNMENT = 64  # bytes: of arena offsets, constants and each worker's workspace

#: A symbol that every program may use in sizes, guards and grids: the number of workers of this run (at least
#: 1).
WORKERS = "workers$"


@dataclass(frozen=True)
class Binding:
    """Symbol `name` is (dim `axis` of input number `input` - `rest`) // `factor`; `rest` may speak of symbols
    that are bound before this one."""

    name: str
    input: int
    axis: int
    factor: int = 1
    rest: Index = 0


@dataclass(frozen=True)
class Check:
    """Axis `axis` of input `input` must equal `expected`; or lie in [low, high]; or be divisible.  `holds`: an
    expression over all symbols that must not be zero, blamed on that axis."""

    input: int
    axis: int
    expected: Index | None = None
    low: int | None = None
    high: int | None = None
    multiple: int | None = None
    reason: str = ""
    holds: Index | None = None


@dataclass(frozen=True)
class HostBuffer:
    """storage: input, output, constant or arena.  position: index among those, or (arena) offset in bytes."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    storage: str
    position: Index = 0


@dataclass(frozen=True)
class Needs:
    """What one kernel needs of a launch.  workspace_bytes: per worker.  lanes: of one workgroup, 0 where a tile is
    a function call of its own.  scratch_bytes: of one workgroup, beyond what its code declares.
    """

    workspace_bytes: Index = 0
    lanes: int = 0
    scratch_bytes: Index = 0


@dataclass(frozen=True)
class Version:
    """`guard`: runs when this expression is non-zero (None: always).  symbol: name of the compiled kernel."""

    symbol: str
    grid: Index  # launch size: iterations of the outermost parallel loop
    guard: Index | None = None
    needs: Needs = Needs()


@dataclass(frozen=True)
class Launch:
    """args: buffer names in the order of the kernel's params, of which it fills `results` and reads the others;
    dims: expressions in the order of its dims."""

    kernel: str
    versions: tuple[Version, ...]
    args: tuple[str, ...]
    dims: tuple[Index, ...]
    work: Index = 0  # estimated cycles of all tiles: below the fork cost it runs on the caller alone
    results: tuple[str, ...] = ()

    @property
    def has_workspace(self) -> bool:
        """Do its kernels take the workspace's address and bytes behind their dims?  Lanes of a workgroup have a
        scratchpad instead."""
        return not any(v.needs.lanes for v in self.versions)


@dataclass(frozen=True)
class Write:
    """`values` become the elements, in row-major order, of an integer buffer (shapes as tensors)."""

    buffer: str
    values: tuple[Index, ...]


@dataclass(frozen=True)
class Signature:
    """One input or output of the model: shape entries are ints or expressions over the program's symbols."""

    name: str
    dtype: str
    shape: tuple[Index, ...]


@dataclass(frozen=True)
class HostProgram:
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    bindings: tuple[Binding, ...]
    checks: tuple[Check, ...]
    buffers: tuple[HostBuffer, ...]
    launches: tuple[Launch, ...]
    arena_bytes: Index = 0
    workspace_bytes: Index = 0  # per worker: the largest of all launches
    notes: tuple[str, ...] = field(default=(), compare=False)
    writes: tuple[Write, ...] = ()

    def buffer(self, name: str) -> HostBuffer:
        """The buffer called `name`; KeyError if there is none."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)

    @property
    def input_ranks(self) -> list[int]:
        """Ranks of the inputs, in order."""
        return [len(i.shape) for i in self.inputs]

    @property
    def output_ranks(self) -> list[int]:
        """Ranks of the outputs, in order."""
        return [len(o.shape) for o in self.outputs]

    @property
    def workspace_stride(self) -> Index:
        """Workspace bytes per worker, rounded up so that every worker's part is aligned and shares no cache
        line."""
        return multiply(ceildiv(self.workspace_bytes, ALIGNMENT), ALIGNMENT)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols of all kernel versions in the order of the kernel table: launch by launch, version by
        version."""
        return tuple(v.symbol for launch in self.launches for v in launch.versions)
