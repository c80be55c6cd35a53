"""The definition of the host program's language: a Python interpreter.

    resolve(program, shapes)   symbols bound and checked, sizes known
    interpret(program, ...)    a whole inference on NumPy arrays; kernels are a callback

Design choice: the arena is one byte array filled with a pattern, and buffers are views at their offsets, so
that wrong lifetimes show as wrong values here as they would on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.codegen.host_ir import WORKERS, Check, HostBuffer, HostProgram, Launch, Version
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import CodegenError, GraphError, InputError
from hwsdk.graph.dims import evaluate

if TYPE_CHECKING:
    from hwsdk.codegen.loop_ir import Index

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

#: launch(version symbol, buffers in the order of the kernel's params, dims, grid)
LaunchCallback = Callable[[str, tuple[Array, ...], tuple[int, ...], int], None]

SIZE_LIMIT = 1 << 63  # sizes must fit the words of the native form


@dataclass(frozen=True)
class Resolved:
    """A program at given input shapes."""

    symbols: Mapping[str, int]
    outputs: tuple[Shape, ...]
    arena_bytes: int
    workspace_bytes: int  # per worker, aligned
    work: int

    def value(self, index: Index) -> int:
        """An index expression's value."""
        return int(evaluate(index, self.symbols))


def resolve(program: HostProgram, shapes: Sequence[Shape], workers: int = 1) -> Resolved:
    """Bind the symbols, check the dims, compute all sizes.  InputError names the input, the dim and the
    constraint."""
    for spec, shape in zip(program.inputs, shapes, strict=True):
        if len(shape) != len(spec.shape):
            raise InputError(
                f"input {spec.name!r} has {len(shape)} dims {shape}, "
                f"expected {len(spec.shape)}: {shape_text(spec.shape)}"
            )
    symbols = {WORKERS: workers}
    for b in program.bindings:
        rest = _value(b.rest, symbols, f"rest of {b.name}")
        symbols[b.name] = (shapes[b.input][b.axis] - rest) // b.factor
    for check in program.checks:
        _check(program, check, shapes, symbols)
    outputs = []
    for spec in program.outputs:
        shape = tuple(_value(d, symbols, f"shape of output {spec.name}") for d in spec.shape)
        if min(shape, default=0) < 0:
            raise InputError(f"output {spec.name!r} would have the shape {shape} = {shape_text(spec.shape)}")
        outputs.append(shape)
    for buffer in program.buffers:
        shape = tuple(_value(d, symbols, f"shape of {buffer.name}") for d in buffer.shape)
        if min(shape, default=0) < 0:
            raise InputError(
                f"these input shapes are too small: {buffer.name} would have the shape {shape} = "
                f"{shape_text(buffer.shape)}"
            )
    work: Index = 0
    for launch in program.launches:
        work = work + launch.work
    return Resolved(
        symbols,
        tuple(outputs),
        _value(program.arena_bytes, symbols, "size of the arena"),
        _value(program.workspace_stride, symbols, "size of the workspace"),
        _value(work, symbols, "work"),
    )


def shape_text(shape: Sequence[Index]) -> str:
    """A symbolic shape as text: [batch, 128]."""
    return f"[{', '.join(map(str, shape))}]"


def _value(index: Index, symbols: Mapping[str, int], what: str) -> int:
    try:
        value = int(evaluate(index, symbols))
    except GraphError as e:
        raise InputError(f"{what}: {e}") from None
    if abs(value) >= SIZE_LIMIT:
        raise InputError(f"{what} is too large for these input shapes: {index} = {value}")
    return value


def _check(program: HostProgram, check: Check, shapes: Sequence[Shape], symbols: Mapping[str, int]) -> None:
    value = shapes[check.input][check.axis]
    spec = program.inputs[check.input]
    wrong = ""
    if check.expected is not None:
        expected = _value(check.expected, symbols, f"dim {check.axis} of input {spec.name}")
        if value != expected:
            wrong = (
                f"must be {expected}"
                if isinstance(check.expected, int)
                else f"must be {check.expected} = {expected}"
            )
    elif check.holds is not None and _value(check.holds, symbols, "check") == 0:
        wrong = f"which breaks {check.holds}"
    elif check.low is not None and value < check.low:
        wrong = f"must be at least {check.low}"
    elif check.high is not None and value > check.high:
        wrong = f"must be at most {check.high}"
    elif check.multiple is not None and value % check.multiple:
        wrong = f"must be a multiple of {check.multiple}"
    if wrong:
        dim = spec.shape[check.axis]
        name = f" ({dim})" if not isinstance(dim, int) else ""
        reason = f" ({check.reason})" if check.reason else ""
        raise InputError(
            f"input {spec.name!r}: dim {check.axis}{name} is {value}, {wrong}{reason}; "
            f"shape {shapes[check.input]}, expected {shape_text(spec.shape)}"
        )


def choose(launch: Launch, resolved: Resolved) -> tuple[int, Version]:
    """The first version whose guard holds, with its number; CodegenError if there is none."""
    for number, version in enumerate(launch.versions):
        if version.guard is None or resolved.value(version.guard):
            return number, version
    raise CodegenError(f"no version of {launch.kernel} covers {dict(resolved.symbols)}")


def interpret(
    program: HostProgram,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    launch: LaunchCallback,
    workers: int = 1,
) -> dict[str, Array]:
    """One inference.  `constants`: buffer name -> packed array.  Outputs by name; launches of empty grids are
    left out."""
    arrays = [_input(program, i, inputs) for i in range(len(program.inputs))]
    resolved = resolve(program, [a.shape for a in arrays], workers)
    outputs = [
        _junk(shape, numpy_dtype(spec.dtype))
        for shape, spec in zip(resolved.outputs, program.outputs, strict=True)
    ]
    arena = np.full(resolved.arena_bytes, 0xA5, np.uint8)
    views = {b.name: _view(b, resolved, arrays, outputs, constants, arena) for b in program.buffers}
    for write in program.writes:
        views[write.buffer].reshape(-1)[:] = [resolved.value(v) for v in write.values]
    for item in program.launches:
        _, version = choose(item, resolved)
        grid = resolved.value(version.grid)
        if grid > 0:
            dims = tuple(resolved.value(d) for d in item.dims)
            launch(version.symbol, tuple(views[a] for a in item.args), dims, grid)
    return {spec.name: array for spec, array in zip(program.outputs, outputs, strict=True)}


def _input(program: HostProgram, number: int, inputs: Mapping[str, Array]) -> Array:
    spec = program.inputs[number]
    if spec.name not in inputs:
        raise InputError(
            f"input {spec.name!r} is missing; expected {', '.join(i.name for i in program.inputs)}"
        )
    array = inputs[spec.name]
    if array.dtype != numpy_dtype(spec.dtype):
        raise InputError(f"input {spec.name!r} has dtype {array.dtype}, expected {spec.dtype}")
    return np.ascontiguousarray(array).reshape(array.shape)


def _junk(shape: Shape, kind: np.dtype[Any]) -> Array:
    """Uninitialised memory that looks like it."""
    count = int(np.prod(shape, dtype=np.int64))
    return np.full(count * kind.itemsize, 0xA5, np.uint8).view(kind).reshape(shape)


def _view(
    buffer: HostBuffer,
    resolved: Resolved,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    constants: Mapping[str, Array],
    arena: Array,
) -> Array:
    shape = tuple(resolved.value(d) for d in buffer.shape)
    kind = numpy_dtype(buffer.dtype)
    position = resolved.value(buffer.position)
    if buffer.storage == "arena":
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if position < 0 or position + size > len(arena):
            raise CodegenError(
                f"host program: {buffer.name} at {position} does not fit the arena of {len(arena)} bytes"
            )
        return arena[position : position + size].view(kind).reshape(shape)
    if buffer.storage == "constant":
        return constants[buffer.name]
    home = inputs[position] if buffer.storage == "input" else outputs[position]
    return home.reshape(-1).view(kind).reshape(shape)
