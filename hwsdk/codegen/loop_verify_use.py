"""Does one use of an intrinsic fit the intrinsic: the part of `loop_verify` that reads a target.

Design choice: problems are sentences, not exceptions; who asks knows the kernel and the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hwsdk.codegen.loop_ir import Buffer, Const, Index, Intrin, Value, View
from hwsdk.dtypes import DTYPES
from hwsdk.errors import nearest
from hwsdk.target_desc.model import Extent, Operand, Target

ADDRESSABLE = frozenset(("host", "dram", "cache"))  # one address space: caches hold what memory holds


def use_problems(use: Intrin, target: Target, buffers: Mapping[str, Buffer]) -> Iterator[str]:
    """Why this use is wrong, one sentence each; nothing if it is right."""
    if use.name not in target.intrinsics:
        yield f"target {target.name} has no intrinsic {use.name!r}{nearest(use.name, target.intrinsics)}"
        return
    spec = target.intrinsics[use.name]
    runtime = {n: e for n, e in spec.dims.items() if isinstance(e, Extent)}
    missing = [
        *_names([n for n, _ in use.operands], list(spec.operands), "operand"),
        *_names([n for n, _ in use.dims], list(runtime), "run-time extent"),
    ]
    yield from missing
    if missing:
        return
    for name, extent in use.dims:
        yield from _extent(name, extent, runtime[name])
    for name, operand in use.operands:
        wanted = spec.operands[name]
        scalar = wanted.place in ("scalar", "immediate")
        yield from _scalar(wanted, operand) if scalar else _view(wanted, operand, target, buffers)


def _names(given: list[str], wanted: list[str], what: str) -> Iterator[str]:
    for name in given:
        if name not in wanted:
            yield f"no {what} {name!r}{nearest(name, wanted)}"
        elif given.count(name) > 1:
            yield f"{what} {name} is given twice"
    for name in wanted:
        if name not in given:
            yield f"{what} {name} is missing"


def _extent(name: str, value: Index, limits: Extent) -> Iterator[str]:
    if isinstance(value, int):
        high = limits.max if isinstance(limits.max, int) else value
        if not limits.min <= value <= high or value % limits.multiple:
            yield f"{name} = {value} is not in {limits.min}..{limits.max}, multiple of {limits.multiple}"


def _scalar(spec: Operand, operand: View | Index | Value) -> Iterator[str]:
    if isinstance(operand, View):
        yield f"operand {spec.name} is a scalar, not a place"
        return
    if isinstance(operand, Value) and operand.dtype != spec.dtype:
        yield f"operand {spec.name} is {spec.dtype}, not {operand.dtype}"
    if spec.place == "immediate":
        constant = operand.value if isinstance(operand, Const) else operand
        if not isinstance(constant, int):
            yield f"operand {spec.name} must be a constant"
        elif spec.values and constant not in spec.values:
            yield f"operand {spec.name} = {constant} is not one of {' '.join(map(str, spec.values))}"


def _view(
    spec: Operand, operand: View | Index | Value, target: Target, buffers: Mapping[str, Buffer]
) -> Iterator[str]:
    if not isinstance(operand, View):
        yield f"operand {spec.name} is in {spec.place}: it needs a view of a buffer"
        return
    buffer = buffers[operand.buffer]
    if not _same_bits(spec, buffer, target):
        yield f"operand {spec.name} is {spec.dtype}, {buffer.name} holds {buffer.dtype}"
    kinds = {m.kind for m in target.memories if m.name in (buffer.place, spec.place)}
    if buffer.place != spec.place and not kinds <= ADDRESSABLE:
        yield f"operand {spec.name} is in {spec.place}, {buffer.name} in {buffer.place}"


def _same_bits(spec: Operand, buffer: Buffer, target: Target) -> bool:
    """May the operand view the buffer?  The same dtype; machines of lanes also take other dtypes of as many bits, and
    bytes of anything in memory."""
    if buffer.dtype == spec.dtype:
        return True
    if target.codegen.model != "simt":
        return False
    registers = any(m.name == buffer.place and m.kind == "registers" for m in target.memories)
    return DTYPES[buffer.dtype].bits == DTYPES[spec.dtype].bits or (spec.dtype == "u8" and not registers)
