"""Verifier of host programs: names resolve, positions are in range, every symbol is bound, and a buffer is read only
after something filled it.

Design choice: it raises on the first fault with the place in words; what it accepts, the interpreter and the
native form both run without looking again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hwsdk.codegen.host_ir import WORKERS, HostProgram, Launch
from hwsdk.dtypes import dtype
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import free_symbols

if TYPE_CHECKING:
    from hwsdk.codegen.loop_ir import Index

STORAGES = ("input", "output", "constant", "arena")


def verify_host(program: HostProgram) -> None:
    """CodegenError that names the binding, check, buffer, write or launch that breaks a rule."""
    names = [b.name for b in program.buffers]
    _unique("buffer", names)
    _unique("input", [i.name for i in program.inputs])
    _unique("output", [o.name for o in program.outputs])
    _unique("symbol", [b.name for b in program.bindings])
    before = {WORKERS}
    for b in program.bindings:
        _require(_is_axis(program, b.input, b.axis), f"symbol {b.name}: input {b.input} has no axis {b.axis}")
        _require(b.factor != 0, f"symbol {b.name}: factor 0")
        _require(free_symbols(b.rest) <= before, f"symbol {b.name}: {b.rest} is not known before it")
        before.add(b.name)
    for number, check in enumerate(program.checks):
        _require(_is_axis(program, check.input, check.axis), f"check {number}: no axis {check.axis}")
        _require(
            check.multiple is None or check.multiple > 0, f"check {number}: multiple of {check.multiple}"
        )
    known = {WORKERS, *(b.name for b in program.bindings)}
    for place, index in _expressions(program):
        missing = sorted(free_symbols(index) - known)
        _require(not missing, f"{place}: symbol {', '.join(missing)} is not bound to an input dim")
    _buffers(program)
    there = set(names)
    _writes(program, there)
    for launch in program.launches:
        _require(bool(launch.versions), f"launch of {launch.kernel}: no version")
        unknown = [a for a in launch.args if a not in there]
        _require(not unknown, f"launch of {launch.kernel}: no buffer called {', '.join(unknown)}")
        unguarded = [v.guard is None for v in launch.versions]
        _require(
            not any(unguarded[:-1]),
            f"launch of {launch.kernel}: a version after one without guard never runs",
        )
        _lanes(launch)
    _all_filled(program)


def _lanes(launch: Launch) -> None:
    """All versions of a launch are called the same way."""
    place = f"launch of {launch.kernel}"
    lanes = [v.needs.lanes for v in launch.versions]
    _require(min(lanes) >= 0, f"{place}: {min(lanes)} lanes in a workgroup")
    _require(all(lanes) or not any(lanes), f"{place}: some versions have lanes and some have none")
    for v in launch.versions:
        one_kind = v.needs.workspace_bytes == 0 if v.needs.lanes else v.needs.scratch_bytes == 0
        _require(one_kind, f"{place}: a workgroup of lanes has a scratchpad, a tile has a workspace")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise CodegenError(f"host program: {message}")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        _require(name not in seen, f"two {what}s are called {name!r}")
        seen.add(name)


def _is_axis(program: HostProgram, number: int, axis: int) -> bool:
    return 0 <= number < len(program.inputs) and 0 <= axis < len(program.inputs[number].shape)


def _buffers(program: HostProgram) -> None:
    limit = {"input": len(program.inputs), "output": len(program.outputs), "constant": len(program.buffers)}
    for b in program.buffers:
        _require(b.storage in STORAGES, f"buffer {b.name}: unknown storage {b.storage!r}")
        if b.storage == "arena":
            continue
        position = b.position
        _require(isinstance(position, int), f"buffer {b.name}: position {position} is not a number")
        _require(
            0 <= int(str(position)) < limit[b.storage], f"buffer {b.name}: there is no {b.storage} {position}"
        )


def _writes(program: HostProgram, names: set[str]) -> None:
    for w in program.writes:
        _require(w.buffer in names, f"write: no buffer called {w.buffer}")
        buffer = program.buffer(w.buffer)
        kind = dtype(buffer.dtype)
        fits = kind.kind in "iu" and kind.bits >= 8 and buffer.storage in ("output", "arena")
        _require(fits, f"write: {w.buffer} is not a writable buffer of integers")


def _all_filled(program: HostProgram) -> None:
    """Memory that nothing has filled is never read, and every output is filled: never a silently wrong number."""
    fixed = {b.name for b in program.buffers if b.storage in ("input", "constant")}
    filled = fixed | {w.buffer for w in program.writes}
    for launch in program.launches:
        place = f"launch of {launch.kernel}"
        for name in launch.results:
            _require(name in launch.args, f"{place}: its result {name} is not among its arguments")
            _require(name not in fixed, f"{place}: it writes {name}, which is an input or a constant")
        for name in launch.args:
            known = name in filled or name in launch.results
            _require(known, f"{place}: it reads {name}, which nothing before it fills")
        filled.update(launch.results)
    made = {str(b.position) for b in program.buffers if b.storage == "output" and b.name in filled}
    for number, output in enumerate(program.outputs):
        _require(str(number) in made, f"output {output.name}: nothing fills it")


def _expressions(program: HostProgram) -> Iterator[tuple[str, Index]]:
    """Every index expression with the place where it occurs."""
    for s in (*program.inputs, *program.outputs):
        yield from ((f"shape of {s.name}", d) for d in s.shape)
    for number, check in enumerate(program.checks):
        yield f"check {number}", check.expected if check.expected is not None else 0
        yield f"check {number}", check.holds if check.holds is not None else 0
    for b in program.buffers:
        yield from ((f"buffer {b.name}", d) for d in (*b.shape, b.position))
    for w in program.writes:
        yield from ((f"write of {w.buffer}", v) for v in w.values)
    for launch in program.launches:
        place = f"launch of {launch.kernel}"
        yield from ((place, d) for d in (*launch.dims, launch.work))
        for v in launch.versions:
            sizes = (v.grid, v.needs.workspace_bytes, v.needs.scratch_bytes)
            yield from ((place, d) for d in (*sizes, v.guard if v.guard is not None else 0))
    yield from (("arena", program.arena_bytes), ("workspace", program.workspace_bytes))
