"""The matrix instructions of this family: which lane holds which element, and what is multiplied.

Design choice: fragment layouts are one formula per side of an instruction, as the instruction set manuals have them.
No device has confirmed them here yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.sim.simt import floats
from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.llvm_text.calls import Call
from hwsdk.sim.simt.matrix import Fragment, addend, give, product, stacked
from hwsdk.sim.simt.program import Array, Lanes, Meeting, Read
from hwsdk.sim.simt.registers import numbers

_WHOLE = Meeting(None)
_PACKED = {  # elements that registers of integers hold
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "fp8": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "bf8": np.dtype(ml_dtypes.float8_e5m2fnuz),
}


def side(outer: int, k: int) -> Fragment:
    """A (m x k) or the transposed B (n x k): consecutive k in a lane, then the outer index, then k again."""
    items = outer * k // 64
    return Fragment.of(outer, k, 64, lambda lane, item: (lane % outer, lane // outer * items + item))


def accumulator(size: int) -> Fragment:
    """C and D: four consecutive rows in a lane, columns over lanes."""
    if size == 16:
        return Fragment.of(16, 16, 64, lambda lane, item: (lane // 16 * 4 + item, lane % 16))
    return Fragment.of(32, 32, 64, lambda lane, item: (item // 4 * 8 + lane // 32 * 4 + item % 4, lane % 32))


def half_accumulator() -> Fragment:
    """C and D over waves of 32 lanes: even rows in the lower half of the wave, odd ones in the upper."""
    return Fragment.of(16, 16, 32, lambda lane, item: (2 * item + lane // 16, lane % 16))


def _elements(frame: Any, lanes: Lanes, reads: list[Read], element: str) -> Array:
    """(lanes, items) as numbers."""
    raw = stacked(frame, lanes, [read(frame, lanes) for read in reads])
    if element in _PACKED:
        return np.ascontiguousarray(raw).view(_PACKED[element])
    return floats.from_bf16(raw.view(np.uint16)) if element == "bf16" else raw


def flushed(values: Array) -> Array:
    """Denormal floats as zeros."""
    tiny = np.abs(values) < np.finfo(values.dtype).tiny
    result: Array = np.where(tiny, np.copysign(values.dtype.type(0), values), values)
    return result


def _finish(total: Array, more: Array, whole: bool) -> Array:
    """Product plus addend, as registers hold it."""
    if whole:
        result: Array = (total.astype(np.int64) + more.view(np.int32)).astype(np.int32).view(np.uint32)
        return result
    return (total + more).astype(np.float32)


def _matrix(size: int, k: int, element: str) -> Callable[[Call], None]:
    """mfma(a, b, c, broadcast, ...) over waves of 64 lanes."""
    ab, cd = side(size, k), accumulator(size)

    def build(call: Call) -> None:
        if any(call.number(i) for i in (3, 4, 5)):
            call.builder.fail("broadcasts and swizzles of a matrix product are not supported")
        a, b, c, looks, writes = call.reads(0), call.reads(1), call.reads(2), call.held(2), call.writes

        def run(frame: Any, lanes: Lanes) -> None:
            _whole_wave(frame, 64)
            left, right = (ab.matrices(_elements(frame, lanes, reads, element)) for reads in (a, b))
            more, flushes = addend(frame, lanes, cd, looks, c), call.name in frame.chip.flushing
            if flushes:
                left, right, more = flushed(left), flushed(right), flushed(more)
            result = _finish(product(left, right.swapaxes(1, 2)), more, element == "i8")
            give(frame, lanes, cd, flushed(result) if flushes else result, writes)

        call.emit(run, "matrix", _WHOLE)

    return build


def _whole_wave(frame: Any, lanes: int) -> None:
    if frame.chip.warp_lanes != lanes:
        message = f"the instruction is for waves of {lanes} lanes, these have {frame.chip.warp_lanes}"
        raise Fault(FaultKind.OPERAND, message)


def _twice(frame: Any, lanes: Lanes, elements: Array) -> Array:
    """(waves, 16, k) of an operand whose rows both halves of a wave must hold."""
    halves = elements.reshape(-1, 2, 16, elements.shape[1])
    bits = halves.view(f"u{halves.dtype.itemsize}")
    apart = (bits[:, 0] != bits[:, 1]).any(axis=(1, 2))
    if apart.any():
        lane = int(numbers(frame, lanes)[int(np.argmax(apart)) * 32])
        message = "the halves of the wave hold different elements of an operand that both must hold"
        raise Fault(FaultKind.OPERAND, message, lane)
    return halves[:, 0]


def _half_wave(element: str) -> Callable[[Call], None]:
    """wmma(a, b, c), or with integers (a signed?, a, b signed?, b, c, clamp), over waves of 32 lanes."""
    cd, integers = half_accumulator(), element == "i8"

    def build(call: Call) -> None:
        places = (1, 3, 4) if integers else (0, 1, 2)
        kinds = [element, element]
        if integers:
            if call.number(5):
                call.builder.fail("a clamped matrix product is not supported")
            kinds = ["i8" if call.number(i) else "u8" for i in (0, 2)]
        a, b, c = (call.reads(i) for i in places)
        looks, writes = call.held(places[2]), call.writes

        def run(frame: Any, lanes: Lanes) -> None:
            _whole_wave(frame, 32)
            both = zip((a, b), kinds)
            left, right = (_twice(frame, lanes, _elements(frame, lanes, reads, kind)) for reads, kind in both)
            total, more = product(left, right.swapaxes(1, 2)), addend(frame, lanes, cd, looks, c)
            give(frame, lanes, cd, _finish(total, more, integers), writes)

        call.emit(run, "matrix", _WHOLE)

    return build


#: Name behind `llvm.amdgcn.`, without the types where LLVM adds them, to what builds a call.
PRODUCTS: dict[str, Callable[[Call], None]] = {
    **{
        f"mfma.{form}": _matrix(size, k, element)
        for form, size, k, element in (
            ("f32.16x16x16f16", 16, 16, "f16"),
            ("f32.32x32x8f16", 32, 8, "f16"),
            ("f32.16x16x16bf16.1k", 16, 16, "bf16"),
            ("f32.32x32x8bf16.1k", 32, 8, "bf16"),
            ("f32.16x16x8bf16", 16, 8, "bf16"),
            ("f32.32x32x4bf16", 32, 4, "bf16"),
            ("f32.16x16x4f32", 16, 4, "f32"),
            ("f32.32x32x2f32", 32, 2, "f32"),
            ("i32.16x16x16i8", 16, 16, "i8"),
            ("i32.32x32x8i8", 32, 8, "i8"),
            ("i32.16x16x32.i8", 16, 32, "i8"),
            ("i32.32x32x16.i8", 32, 16, "i8"),
            ("f32.16x16x32.fp8.fp8", 16, 32, "fp8"),
            ("f32.16x16x32.bf8.bf8", 16, 32, "bf8"),
        )
    },
    "wmma.f32.16x16x16.f16": _half_wave("f16"),
    "wmma.f32.16x16x16.bf16": _half_wave("bf16"),
    "wmma.i32.16x16x16.iu8": _half_wave("i8"),
}
