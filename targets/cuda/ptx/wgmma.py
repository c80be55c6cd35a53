"""wgmma: products of four warps that read their operands from shared memory, and the fences and sets around them.

Design choice: a descriptor is decoded when the product starts; of the layouts that it can name only lines of 128 bytes
with turned chunks are known, and every other one is a fault.  No device has confirmed the formulas here yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hwsdk.sim.simt import floats
from hwsdk.sim.simt.faults import Fault, FaultKind
from hwsdk.sim.simt.group_products import PIECE, Operand
from hwsdk.sim.simt.matrix import Fragment
from hwsdk.sim.simt.program import Array, Lanes, Meeting
from hwsdk.sim.simt.registers import numbers, spread
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.syntax import Number, Vector
from hwsdk.targets.cuda.ptx.types import PREDICATE, TYPES

WARPS, ROWS, DEPTH = 4, 64, 16  # of a group; of A; of one product along k, in 2-byte elements
_LANES = 32 * WARPS
_TOGETHER = Meeting(None, WARPS)
_EXACT: dict[str, Callable[[Array], Array]] = {
    "f16": lambda raw: raw.view(np.float16),
    "bf16": lambda raw: floats.from_bf16(raw.view(np.uint16)),
}
_TURNED = 1  # the layout's number in bits 62 and 63
LINE = 128  # bytes


@cache
def fragment(columns: int) -> Fragment:
    """Sums: 16 rows to each warp, in it as in the sums of a single warp's product."""

    def where(lane: int, item: int) -> tuple[int, int]:
        row = lane // 32 * 16 + lane % 32 // 4 + 8 * (item % 4 // 2)
        return row, item // 4 * 8 + lane % 4 * 2 + item % 2

    return Fragment.of(ROWS, columns, _LANES, where)


@dataclass(frozen=True)
class Matrix:
    """An operand of `rows` rows (columns of B) by DEPTH; along_k: are lines along k, or along rows?"""

    rows: int
    along_k: bool
    exact: Callable[[Array], Array]

    def operand(self, descriptors: Array) -> Operand:
        """descriptors: one per group."""
        fields = [(descriptors >> np.uint64(b)).astype(np.int64) for b in (0, 16, 32, 49, 62)]
        start, far, next_lines = ((f & 0x3FFF) * PIECE for f in fields[:3])
        if (fields[4] != _TURNED).any() or ((fields[3] & 7) != 0).any():
            mode, base = int(fields[4][0]), int(fields[3][0] & 7)
            raise Fault(
                FaultKind.OPERAND, f"a descriptor with layout {mode} and base offset {base} is not supported"
            )
        across, chunks = (self.rows, DEPTH // 8) if self.along_k else (DEPTH, self.rows // 8)
        line, chunk = np.arange(across)[:, None], np.arange(chunks)[None, :]
        within = line % 8 * LINE + chunk % 8 * PIECE
        lines, wide = (line // 8)[None], (chunk // 8)[None]
        moved = within[None] + lines * next_lines[:, None, None] + wide * far[:, None, None]
        plain = start[:, None, None] + moved
        turned = plain ^ ((plain >> 7 & 7) << 4)
        return Operand(turned.reshape(len(descriptors), -1), self._numbers)

    def _numbers(self, raw: Array) -> Array:
        """Pieces as (groups, rows of A or DEPTH, DEPTH or columns of B)."""
        lines = self.rows if self.along_k else DEPTH
        result: Array = self.exact(np.ascontiguousarray(raw).reshape(len(raw), lines, -1))
        return result


def group_product(context: Context) -> None:
    if context.take("fence"):
        _closed(context, 0)
        context.emit(lambda frame, lanes: frame.products.fence(lanes), "fence", _TOGETHER)
    elif context.take("commit_group"):
        _closed(context, 0)
        context.emit(lambda frame, lanes: frame.products.commit(lanes, _LANES), "matrix", _TOGETHER)
    elif context.take("wait_group"):
        allowed = context.number(0)
        _closed(context, 1)
        context.emit(lambda frame, lanes: frame.products.wait(lanes, _LANES, allowed), "matrix", _TOGETHER)
    elif context.take("mma_async"):
        _start(context)
    else:
        context.fail("this form of wgmma is not supported")


def _closed(context: Context, operands: int) -> None:
    if not (context.take("sync") and context.take("aligned")):
        context.fail("wgmma needs .sync.aligned")
    context.done(operands)


def _start(context: Context) -> None:
    shape = next((m for m in context.left if m.startswith("m64n")), "")
    context.drop((shape,))
    plain = bool(context.take("sync")) & bool(context.take("aligned"))
    types, context.left[:] = list(context.left), []
    columns = int(shape[4:-3]) if shape.endswith("k16") and shape[4:-3].isdigit() else 0
    if not plain or columns not in range(8, 257, 8):
        context.fail(f"a product of shape {shape or 'unknown'} is not supported")
    if len(types) != 3 or types[0] != "f32" or types[1] not in _EXACT or types[1] != types[2]:
        context.fail(f".{'.'.join(types)} is not supported: sums are .f32, operands .f16 or .bf16")
    context.done(8)
    if isinstance(context.operand(1), Vector):
        context.fail("A in registers is not supported")
    signs, turned = ([context.number(i) for i in pair] for pair in ((4, 5), (6, 7)))
    if any(s not in (1, -1) for s in signs) or any(t not in (0, 1) for t in turned) or turned[0]:
        context.fail("this sign or order of an operand is not supported")
    if turned[1] and columns % 64:
        context.fail("lines along columns hold whole groups of 64")
    exact, out = _EXACT[types[1]], fragment(columns)
    a, b = Matrix(ROWS, True, exact), Matrix(columns, not turned[1], exact)
    registers = _registers(context, out.items)
    where = [context.read(i, TYPES["u64"]) for i in (1, 2)]
    scale = context.operand(3)
    keep = (
        (lambda frame, lanes: np.array([scale.value != 0]))
        if isinstance(scale, Number)
        else context.read(3, PREDICATE)
    )
    sign = signs[0] * signs[1]
    context.watch_width(PIECE)

    def run(frame: Any, lanes: Lanes) -> None:
        left, right = (_uniform(frame, lanes, read(frame, lanes)) for read in where)
        kept = _uniform(frame, lanes, keep(frame, lanes))
        second = b.operand(right)
        if b.along_k:
            second = Operand(second.addresses, lambda raw: b._numbers(raw).swapaxes(1, 2))
        frame.products.start(lanes, _LANES, out, registers, (a.operand(left), second), kept, sign)

    context.emit(run, "matrix", _TOGETHER)


def _registers(context: Context, count: int) -> tuple[int, ...]:
    parts = context.vector(0)
    if len(parts) != count:
        context.fail(f"operand 1 has {len(parts)} registers where {count} belong")
    found = [context.register_of(part, TYPES["f32"]) for part in parts]
    if None in found or len(set(found)) != count:
        context.fail("sums are different 32-bit registers")
    return tuple(r for r in found if r is not None)


def _uniform(frame: Any, lanes: Lanes, value: Array) -> Array:
    """One per group; Fault if its lanes disagree."""
    each = spread(frame, lanes, value).reshape(-1, _LANES)
    differs = (each != each[:, :1]).any(1)
    if differs.any():
        lane = int(numbers(frame, lanes)[int(np.argmax(differs)) * _LANES])
        raise Fault(FaultKind.OPERAND, "lanes of one group of warps give different operands", lane)
    return np.ascontiguousarray(each[:, 0])


BUILDERS: dict[str, Callable[[Context], None]] = {"wgmma": group_product}
