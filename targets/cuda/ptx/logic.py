"""Bits: and, or, xor, not, shifts, fields, permutations, counts; and moving values between registers.

Design choice: functions of whole arrays from `integers`, joined to opcodes by table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import integers
from hwsdk.sim.simt.program import Array, Lanes, Read, Write
from hwsdk.sim.simt.registers import binary, moved, ternary, unary
from hwsdk.targets.cuda.ptx.arithmetic import emit
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.syntax import Name, Vector
from hwsdk.targets.cuda.ptx.types import PREDICATE, TYPES, U32, Type, bits_type

_BITWISE: dict[str, Callable[..., Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def bitwise(context: Context) -> None:
    emit(context, context.type(), _BITWISE[context.instruction.opcode], 2, "integer")


def invert(context: Context) -> None:
    emit(context, context.type(), np.invert, 1, "integer")


def logical_not(context: Context) -> None:
    """1 where the operand is 0."""
    kind = context.type()
    emit(context, kind, lambda a: (a == 0).astype(a.dtype), 1, "integer")


def shift(context: Context) -> None:
    kind = context.type()
    context.done(3)
    function = integers.shift_left if context.instruction.opcode == "shl" else integers.shift_right
    run = binary(context.write(0, kind), function, context.read(1, kind), context.read(2, U32))
    context.emit(run, "integer")


def funnel(context: Context) -> None:
    kind = context.type()
    left = context.take("l", "r") == "l"
    wrap = context.take("wrap", "clamp") == "wrap"
    emit(context, kind, lambda a, b, c: integers.funnel_shift(a, b, c, left, wrap), 3, "integer")


def field(context: Context) -> None:
    kind = context.type()
    context.done(4)
    reads = (context.read(1, kind), context.read(2, U32), context.read(3, U32))
    context.emit(ternary(context.write(0, kind), integers.extract_field, *reads), "integer")


def insert(context: Context) -> None:
    kind = context.type()
    context.done(5)
    write, a, b = context.write(0, kind), context.read(1, kind), context.read(2, kind)
    start, length = context.read(3, U32), context.read(4, U32)

    def run(frame: Any, lanes: Lanes) -> None:
        parts = (a(frame, lanes), b(frame, lanes), start(frame, lanes), length(frame, lanes))
        write(frame, lanes, integers.insert_field(*parts))

    context.emit(run, "integer")


def extend(context: Context) -> None:
    """szext: the lowest bits, with their sign for signed types; at most all of them."""
    kind = context.type()
    context.take("clamp", "wrap")
    context.done(3)
    zero = np.zeros(1, np.uint32)

    def function(a: Array, length: Array) -> Array:
        return integers.extract_field(a, zero, np.minimum(length, np.uint32(32)))

    context.emit(
        binary(context.write(0, kind), function, context.read(1, kind), context.read(2, U32)), "integer"
    )


def mask(context: Context) -> None:
    """bmsk: ones from bit a, b of them."""
    kind = context.type()
    context.take("clamp", "wrap")

    def function(start: Array, length: Array) -> Array:
        ones = integers.shift_left(np.ones(1, np.uint32), np.minimum(length, np.uint32(32))) - np.uint32(1)
        return integers.shift_left(ones, np.minimum(start, np.uint32(32)))

    emit(context, kind, function, 2, "integer")


def permute(context: Context) -> None:
    kind = context.type()
    mode = context.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    if mode:
        context.fail(f".{mode} is not supported")
    emit(context, kind, integers.permute_bytes, 3, "integer")


def logic_of_three(context: Context) -> None:
    kind = context.type()
    table = context.number(4)
    context.done(5)
    reads = (context.read(1, kind), context.read(2, kind), context.read(3, kind))
    context.emit(ternary(context.write(0, kind), integers.three_input_logic(table), *reads), "integer")


def count(context: Context) -> None:
    """popc, clz: the result has 32 bits."""
    kind = context.type()
    context.done(2)
    function = integers.count_ones if context.instruction.opcode == "popc" else integers.leading_zeros
    context.emit(unary(context.write(0, U32), function, context.read(1, kind)), "integer")


def find(context: Context) -> None:
    kind = context.type()
    distance = bool(context.take("shiftamt"))
    context.done(2)
    run = unary(context.write(0, U32), lambda a: integers.find_leading(a, distance), context.read(1, kind))
    context.emit(run, "integer")


def reverse(context: Context) -> None:
    emit(context, context.type(), integers.reverse_bits, 1, "integer")


# ------------------------------------------------------------------------------------------------ moving
def move(context: Context) -> None:
    kind = context.type()
    context.done(2)
    source, target = context.operand(1), context.operand(0)
    if isinstance(source, Vector):
        _join(context, kind, source)
    elif isinstance(target, Vector):
        _divide(context, kind, target)
    else:
        plain = unary(context.write(0, kind), np.copy, context.read(1, kind))
        register, look = context.register(0, kind), context.held(1, kind)
        if register is not None and look is not None:
            plain = moved(register, look, plain)
        context.emit(plain, "move")


def _part(context: Context, kind: Type, parts: int) -> Type:
    if kind is PREDICATE or kind.bits % parts or f"b{kind.bits // parts}" not in TYPES:
        context.fail(f".{kind.name} has no {parts} parts")
    return bits_type(kind.bits // parts)


def _join(context: Context, kind: Type, source: Vector) -> None:
    part = _part(context, kind, len(source.items))
    reads: list[Read] = [context.reader(o, part) for o in source.items]
    write = context.write(0, kind)
    wide = np.dtype(f"u{kind.bytes}")

    def run(frame: Any, lanes: Lanes) -> None:
        total: Array = reads[0](frame, lanes).astype(wide)
        for number, read in enumerate(reads[1:], 1):
            total = total | (read(frame, lanes).astype(wide) << wide.type(number * part.bits))
        write(frame, lanes, total.view(kind.dtype))

    context.emit(run, "move")


def _divide(context: Context, kind: Type, target: Vector) -> None:
    part = _part(context, kind, len(target.items))
    writes: list[tuple[int, Write]] = [
        (number, context.writer(o, part))
        for number, o in enumerate(target.items)
        if not (isinstance(o, Name) and o.text == "_")
    ]
    read = context.read(1, bits_type(kind.bits))
    wide, narrow = np.dtype(f"u{kind.bytes}"), part.dtype

    def run(frame: Any, lanes: Lanes) -> None:
        value = read(frame, lanes)
        for number, write in writes:
            write(frame, lanes, (value >> wide.type(number * part.bits)).astype(narrow))

    context.emit(run, "move")


BUILDERS: dict[str, Callable[[Context], None]] = {
    **dict.fromkeys(_BITWISE, bitwise),
    "not": invert,
    "cnot": logical_not,
    "shl": shift,
    "shr": shift,
    "shf": funnel,
    "bfe": field,
    "bfi": insert,
    "szext": extend,
    "bmsk": mask,
    "prmt": permute,
    "lop3": logic_of_three,
    "popc": count,
    "clz": count,
    "bfind": find,
    "brev": reverse,
    "mov": move,
}
