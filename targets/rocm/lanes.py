"""LLVM text of this family for the lock-step engine: what its address spaces and intrinsics mean.

    programs(text)     kernels as programs of `hwsdk.sim.simt`
    chip(wave)         widths and limits, for waves of 64 or of 32 lanes

Design choice: an intrinsic is a function that builds its call, in one table; those of the matrix units are in `matrix`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hwsdk.sim.simt import floats, integers, warps
from hwsdk.sim.simt.chip import SimtChip
from hwsdk.sim.simt.llvm_text.builder import programs as programs_of
from hwsdk.sim.simt.llvm_text.calls import Call, LlvmTarget
from hwsdk.sim.simt.llvm_text.types import AddressSpaces
from hwsdk.sim.simt.program import Array, Barrier, Lanes, Meeting, Program
from hwsdk.sim.simt.registers import constant, numbers, special, spread
from hwsdk.sim.simt.spaces import Space
from hwsdk.targets.rocm.matrix import PRODUCTS, flushed

LAYOUT = AddressSpaces(
    {0: Space.GENERIC, 1: Space.GLOBAL, 3: Space.SHARED, 4: Space.GLOBAL, 5: Space.LOCAL}, {3: 32, 5: 32}
)


def programs(text: str) -> dict[str, Program]:
    """LlvmTextError lists everything that is malformed or not supported."""
    return programs_of(text, TARGET)


def chip(wave: int = 64, shared_bytes: int = 65536) -> SimtChip:
    return SimtChip(warp_lanes=wave, sector_bytes=64, shared_bytes=shared_bytes)


def _block(attributes: Mapping[str, str]) -> tuple[int, int, int] | None:
    """A kernel for exactly one size of block says so with equal limits; its shape is free, so this is one row."""
    low, _, high = attributes.get("amdgpu-flat-work-group-size", "").partition(",")
    return (int(low), 1, 1) if low and low == high else None


# ------------------------------------------------------------------------------------------------ indices, barriers
def _index(name: str) -> Callable[[Call], None]:
    return lambda call: call.value(special(name))


def _barrier(call: Call) -> None:
    zero = constant(0, np.dtype(np.uint32))
    call.builder.statements.append(Barrier(zero, None, True, True, call.builder.place))


def _wave_barrier(call: Call) -> None:
    call.emit(warps.synchronise, "warp", Meeting(_present))


def _present(frame: Any, lanes: Lanes) -> Array:
    return warps.active_mask(frame, lanes)


def _count_below(upper: bool) -> Callable[[Call], None]:
    """mbcnt: the second operand plus the ones of the mask that belong to lower lanes of this half."""

    def build(call: Call) -> None:
        mask, start, (write,) = call.read(0), call.read(1), call.writes

        def run(frame: Any, lanes: Lanes) -> None:
            lane = (numbers(frame, lanes) % frame.chip.warp_lanes).astype(np.int64) - (32 if upper else 0)
            below = (np.uint64(1) << np.clip(lane, 0, 32).astype(np.uint64)) - np.uint64(1)
            count = np.bitwise_count(mask(frame, lanes).astype(np.uint64) & below)
            write(frame, lanes, start(frame, lanes) + count.astype(np.uint32))

        call.emit(run, "integer")

    return build


# ------------------------------------------------------------------------------------------------ exchanges
def _permute(call: Call) -> None:
    """ds.bpermute: the value of lane address / 4."""
    address, value, (write,) = call.read(0), call.read(1), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        source = spread(frame, lanes, address(frame, lanes)) // 4 % frame.chip.warp_lanes
        valid = np.ones(source.size, bool)
        everyone = _present(frame, lanes)
        write(frame, lanes, warps.shuffle(frame, lanes, value(frame, lanes), source, valid, everyone))

    call.emit(run, "warp")


def _dpp_source(control: int, lane: Array) -> tuple[Array, Array] | None:
    """(source lane, is there one?) of a data-parallel primitive; rows have 16 lanes."""
    row, at = lane // 16 * 16, lane % 16
    inside = np.ones(lane.shape, bool)
    if control < 0x100:
        return (lane // 4 * 4) | (control >> (2 * (lane % 4)) & 3), inside
    amount = control & 15
    if 0x101 <= control <= 0x10F:
        return lane + amount, at + amount < 16
    if 0x111 <= control <= 0x11F:
        return lane - amount, at >= amount
    if 0x121 <= control <= 0x12F:
        return row + (at - amount) % 16, inside
    if control == 0x140:
        return row + 15 - at, inside
    if control == 0x141:
        return lane // 8 * 8 + 7 - lane % 8, inside
    if control == 0x142:
        return row - 1, row >= 16
    return (lane // 32 * 32 - 1, lane >= 32) if control == 0x143 else None


def _move_lanes(call: Call) -> None:
    """update.dpp(old, source, control, row mask, bank mask, bound control)"""
    control, rows, banks, bound = (call.number(i) for i in range(2, 6))
    if _dpp_source(control, np.arange(64)) is None:
        call.builder.fail(f"data-parallel control {control:#x} is not supported")
    old, value, (write,) = call.read(0), call.read(1), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        lane = numbers(frame, lanes) % frame.chip.warp_lanes
        found = _dpp_source(control, lane)
        assert found is not None
        source, valid = found
        enabled = ((rows >> (lane // 16)) & 1 != 0) & ((banks >> (lane % 16 // 4)) & 1 != 0)
        everyone = _present(frame, lanes)
        given = warps.shuffle(frame, lanes, value(frame, lanes), source, valid & enabled, everyone)
        kept = spread(frame, lanes, old(frame, lanes))
        outside = np.zeros(1, given.dtype) if bound else kept
        write(frame, lanes, np.where(enabled, np.where(valid, given, outside), kept))

    call.emit(run, "warp")


def _first_lane(call: Call) -> None:
    """readfirstlane: of the lowest active lane."""
    value, (write,) = call.read(0), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        mask = _present(frame, lanes)
        lowest = np.bitwise_count((mask & (~mask + np.uint64(1))) - np.uint64(1))
        valid = np.ones(lowest.size, bool)
        write(frame, lanes, warps.shuffle(frame, lanes, value(frame, lanes), lowest, valid, mask))

    call.emit(run, "warp")


def _one_lane(call: Call) -> None:
    """readlane: of the lane that an operand names, the same for the wave."""
    value, lane, (write,) = call.read(0), call.read(1), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        source = spread(frame, lanes, lane(frame, lanes)) % frame.chip.warp_lanes
        valid, mask = np.ones(source.size, bool), _present(frame, lanes)
        write(frame, lanes, warps.shuffle(frame, lanes, value(frame, lanes), source, valid, mask))

    call.emit(run, "warp")


def _into_lane(call: Call) -> None:
    """writelane(value, lane, old): old, but the value in one lane."""
    value, lane, old, (write,) = call.read(0), call.read(1), call.read(2), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        mine = numbers(frame, lanes) % frame.chip.warp_lanes
        chosen = mine == lane(frame, lanes) % frame.chip.warp_lanes
        write(frame, lanes, np.where(chosen, value(frame, lanes), old(frame, lanes)))

    call.emit(run, "warp")


def _ballot(call: Call) -> None:
    predicate, (write,) = call.read(0), call.writes
    dtype = np.dtype(np.uint64 if call.name.endswith("i64") else np.uint32)

    def run(frame: Any, lanes: Lanes) -> None:
        mask = warps.ballot(frame, lanes, predicate(frame, lanes), _present(frame, lanes))
        write(frame, lanes, mask.astype(dtype))

    call.emit(run, "warp")


# ------------------------------------------------------------------------------------------------ products
def _dot_bytes(mixed: bool) -> Callable[[Call], None]:
    """sdot4(a, b, c, clamp); sudot4(a signed?, a, b signed?, b, c, clamp)."""

    def build(call: Call) -> None:
        if call.number(5 if mixed else 3):
            call.builder.fail("a clamped dot product is not supported")
        kinds = [np.int8, np.int8] if not mixed else [np.int8 if call.number(i) else np.uint8 for i in (0, 2)]
        a, b, c = (call.read(i) for i in ((1, 3, 4) if mixed else (0, 1, 2)))
        (write,) = call.writes

        def run(frame: Any, lanes: Lanes) -> None:
            values = (a(frame, lanes), b(frame, lanes), c(frame, lanes))
            write(frame, lanes, integers.dot_bytes(*values, kinds[0], kinds[1]))

        call.emit(run, "integer")

    return build


def _dot_halves(call: Call) -> None:
    """fdot2: c + a0 b0 + a1 b1, rounded once here; the hardware may round between."""
    a, b, c, (write,) = call.reads(0), call.reads(1), call.read(2), call.writes

    def run(frame: Any, lanes: Lanes) -> None:
        keep = flushed if call.name in frame.chip.flushing else (lambda values: values)
        total = keep(c(frame, lanes)).astype(np.float64)
        for x, y in zip(a, b):
            left, right = keep(x(frame, lanes)), keep(y(frame, lanes))
            total = total + left.astype(np.float64) * right.astype(np.float64)
        write(frame, lanes, keep(total.astype(np.float32)))

    call.emit(run, "float")


def _table() -> dict[str, Callable[[Call], None]]:
    name = "llvm.amdgcn."
    found: dict[str, Callable[[Call], None]] = {
        f"{name}s.barrier": _barrier,
        f"{name}wave.barrier": _wave_barrier,
        f"{name}mbcnt.lo": _count_below(False),
        f"{name}mbcnt.hi": _count_below(True),
        f"{name}ds.bpermute": _permute,
        f"{name}update.dpp": _move_lanes,
        f"{name}readfirstlane": _first_lane,
        f"{name}readlane": _one_lane,
        f"{name}writelane": _into_lane,
        f"{name}ballot": _ballot,
        f"{name}sdot4": _dot_bytes(False),
        f"{name}sudot4": _dot_bytes(True),
        f"{name}fdot2": _dot_halves,
        f"{name}s.waitcnt": Call.nothing,
        f"{name}sched.barrier": Call.nothing,
        f"{name}sched.group.barrier": Call.nothing,
    }
    for axis in "xyz":
        found[f"{name}workitem.id.{axis}"] = _index(f"thread.{axis}")
        found[f"{name}workgroup.id.{axis}"] = _index(f"block.{axis}")
    found |= {f"{name}{form}": build for form, build in PRODUCTS.items()}
    exact: dict[str, Callable[[Array], Array]] = {
        "rcp": lambda a: 1.0 / a,
        "rsq": lambda a: 1.0 / np.sqrt(a),
        "exp2": np.exp2,
        "log": np.log2,
        "sqrt": np.sqrt,
    }
    for short, function in exact.items():
        found[f"{name}{short}"] = _function(floats.in_f64(function))
    return found


def _function(function: Callable[[Array], Array]) -> Callable[[Call], None]:
    def build(call: Call) -> None:
        read = call.read(0)
        call.value(lambda frame, lanes: function(read(frame, lanes)), "float")

    return build


TARGET = LlvmTarget(LAYOUT, _table(), _block, "amdgpu_kernel")
