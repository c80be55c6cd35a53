"""mma, ldmatrix, stmatrix: which lane holds which element, and what is multiplied.

Design choice: the manual's fragment formulas are written down once, as functions from (lane, item) to (row, column),
by element width; the engine proves them bijections and does the rest.  No device has confirmed them here yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.sim.simt import floats
from hwsdk.sim.simt.matrix import Fragment, addend, give, load_rows, product, stacked, store_rows
from hwsdk.sim.simt.program import Array, Lanes, Meeting
from hwsdk.sim.simt.registers import per_lane
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.conversions import space_of
from hwsdk.targets.cuda.ptx.syntax import Vector
from hwsdk.targets.cuda.ptx.types import TYPES, Type

_WHOLE = Meeting(None)


# ------------------------------------------------------------------------------------------------ fragments
def fragment_a(m: int, k: int, per_register: int) -> Fragment:
    """Rows over groups of four lanes and pairs of registers, columns inside; per_register: elements in 32 bits."""

    def where(lane: int, item: int) -> tuple[int, int]:
        register, part = divmod(item, per_register)
        halves = m // 8
        row = lane // 4 + 8 * (register % halves)
        column = lane % 4 * per_register + part + 4 * per_register * (register // halves)
        return row, column

    return Fragment.of(m, k, 32, where)


def fragment_b(k: int, n: int, per_register: int) -> Fragment:
    def where(lane: int, item: int) -> tuple[int, int]:
        register, part = divmod(item, per_register)
        return lane % 4 * per_register + part + 4 * per_register * register, lane // 4

    return Fragment.of(k, n, 32, where)


def fragment_c(m: int, n: int) -> Fragment:
    def where(lane: int, item: int) -> tuple[int, int]:
        return lane // 4 + 8 * (item // 2), lane % 4 * 2 + item % 2

    return Fragment.of(m, n, 32, where)


@dataclass(frozen=True)
class Element:
    """How an operand's registers become numbers: dtype of the elements, and a function to exact floats."""

    dtype: np.dtype[Any]
    exact: Callable[[Array], Array] = lambda a: a

    @property
    def per_register(self) -> int:
        return max(1, 4 // self.dtype.itemsize)


_ELEMENTS = {
    "f16": Element(np.dtype(np.float16)),
    "bf16": Element(np.dtype(np.uint16), floats.from_bf16),
    "tf32": Element(np.dtype(np.float32), lambda a: floats.to_tf32(a, "rz")),
    "s8": Element(np.dtype(np.int8)),
    "u8": Element(np.dtype(np.uint8)),
    "e4m3": Element(np.dtype(ml_dtypes.float8_e4m3fn)),
    "e5m2": Element(np.dtype(ml_dtypes.float8_e5m2)),
    "f64": Element(np.dtype(np.float64)),
}
_SHAPES = {
    "m16n8k4": (16, 8, 4, ("tf32",)),
    "m16n8k8": (16, 8, 8, ("f16", "bf16", "tf32")),
    "m16n8k16": (16, 8, 16, ("f16", "bf16", "s8", "u8", "e4m3", "e5m2")),
    "m16n8k32": (16, 8, 32, ("s8", "u8", "e4m3", "e5m2")),
    "m8n8k16": (8, 8, 16, ("s8", "u8")),
    "m8n8k4": (8, 8, 4, ("f64",)),
}


def multiply(context: Context) -> None:
    shape = context.take(*_SHAPES)
    plain = bool(context.take("sync")) & bool(context.take("aligned"))
    layouts = context.take("row"), context.take("col")
    saturates = bool(context.take("satfinite"))
    types = list(context.left)
    context.left.clear()
    context.done(4)
    if not shape or not plain or layouts != ("row", "col") or len(types) != 4:
        context.fail("this shape or layout of a matrix product is not supported")
    m, n, k, allowed = _SHAPES[shape]
    result, a_name, b_name, addend = types
    if a_name not in allowed or b_name not in allowed or result != addend:
        context.fail(f".{a_name} times .{b_name} to .{result} is not supported as {shape}")
    if result not in _RESULTS or (result == "s32") != (a_name in ("s8", "u8")):
        context.fail(f"a result of .{result} is not supported here")
    _emit_product(context, m, n, k, (_ELEMENTS[a_name], _ELEMENTS[b_name]), TYPES[result], saturates)


_RESULTS = ("f32", "f16", "s32", "f64")


def _emit_product(
    context: Context, m: int, n: int, k: int, elements: tuple[Element, Element], result: Type, saturates: bool
) -> None:
    left = fragment_a(m, k, elements[0].per_register)
    right = fragment_b(k, n, elements[1].per_register)
    out = fragment_c(m, n)
    packed = result.name == "f16"
    register = TYPES["b32"] if packed else result
    counts = [
        left.items // elements[0].per_register,
        right.items // elements[1].per_register,
        out.items // (2 if packed else 1),
    ]
    wide = TYPES["b64"] if elements[0].dtype.itemsize == 8 else TYPES["b32"]
    writes = [context.writer(o, register) for o in _parts(context, 0, counts[2])]
    a, b = ([context.reader(o, wide) for o in _parts(context, i + 1, counts[i])] for i in (0, 1))
    c = [context.reader(o, register) for o in _parts(context, 3, counts[2])]
    looks = [context.holder(o, register) for o in _parts(context, 3, counts[2])]
    finish = _finish(result, saturates)

    def run(frame: Any, lanes: Lanes) -> None:
        sides = []
        for reads, fragment, element in ((a, left, elements[0]), (b, right, elements[1])):
            raw = stacked(frame, lanes, [read(frame, lanes) for read in reads]).view(element.dtype)
            sides.append(element.exact(fragment.matrices(raw)))
        total = product(sides[0], sides[1])
        if not packed:
            give(frame, lanes, out, finish(total, addend(frame, lanes, out, looks, c)), writes)
            return
        halves = stacked(frame, lanes, [read(frame, lanes) for read in c]).view(np.float16)
        values = out.fragments(finish(total, out.matrices(halves))).view(np.uint32)
        for number, write in enumerate(writes):
            write(frame, lanes, np.ascontiguousarray(values[:, number]))

    context.emit(run, "matrix", _WHOLE)


def _finish(result: Type, saturates: bool) -> Callable[[Array, Array], Array]:
    """Product (float64) plus addend, rounded once."""
    if result.name != "s32":
        return lambda total, more: (total + more).astype(result.dtype)

    def integers(total: Array, more: Array) -> Array:
        whole = total.astype(np.int64) + more
        if saturates:
            whole = np.clip(whole, -(2**31), 2**31 - 1)
        return whole.astype(np.int32)

    return integers


def _parts(context: Context, number: int, count: int) -> tuple[Any, ...]:
    operand = context.operand(number)
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        context.fail(f"operand {number + 1} has {len(items)} registers where {count} belong")
    return items


# ------------------------------------------------------------------------------------------------ ldmatrix
def load_matrix(context: Context) -> None:
    number, transposed = _moving(context)
    context.done(2)
    writes = [context.writer(o, TYPES["b32"]) for o in _parts(context, 0, number)]
    addresses = per_lane(context.address(1)[0])
    context.watch_width(16)

    def run(frame: Any, lanes: Lanes) -> None:
        rows = load_rows(frame, lanes, addresses(frame, lanes), number)
        if transposed:
            rows = np.ascontiguousarray(rows.swapaxes(2, 3))
        words = rows.view(np.uint32).reshape(-1, number, 32)
        for each, write in enumerate(writes):
            write(frame, lanes, np.ascontiguousarray(words[:, each]).reshape(-1))

    context.emit(run, "matrix", _WHOLE)


def store_matrix(context: Context) -> None:
    number, transposed = _moving(context)
    context.done(2)
    reads = [context.reader(o, TYPES["b32"]) for o in _parts(context, 1, number)]
    addresses = per_lane(context.address(0)[0])
    context.watch_width(16)

    def run(frame: Any, lanes: Lanes) -> None:
        values = [read(frame, lanes) for read in reads]
        words = stacked(frame, lanes, values).reshape(-1, 32, number).swapaxes(1, 2)
        rows = np.ascontiguousarray(words).view(np.uint16).reshape(-1, number, 8, 8)
        store_rows(frame, lanes, addresses(frame, lanes), rows.swapaxes(2, 3) if transposed else rows)

    context.emit(run, "matrix", _WHOLE)


def _moving(context: Context) -> tuple[int, bool]:
    """(matrices, transposed?)"""
    plain = bool(context.take("sync")) & bool(context.take("aligned")) & bool(context.take("m8n8"))
    count = context.take("x1", "x2", "x4")
    transposed = bool(context.take("trans"))
    space_of(context)
    if not plain or not count or not context.take("b16"):
        context.fail("this form of moving matrices is not supported")
    return int(count[1]), transposed


BUILDERS: dict[str, Callable[[Context], None]] = {
    "mma": multiply,
    "ldmatrix": load_matrix,
    "stmatrix": store_matrix,
}
