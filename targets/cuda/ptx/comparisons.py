"""setp, set, selp, slct, testp: comparisons with and without order, and choices.

Design choice: the comparison is a function of two arrays; unordered ones are the negation of the opposite ordered one,
which is what NaN makes true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import floats
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.registers import ternary, unary
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.types import PREDICATE, Type, compared, unpack

Compare = Callable[[Array, Array], Array]
_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNORDERED: dict[str, Compare] = {
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_INTEGER: dict[str, Compare] = {
    **_ORDERED,
    "ne": np.not_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_JOIN: dict[str, Compare] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(context: Context, kind: Type) -> Compare:
    table = {**_ORDERED, **_UNORDERED} if kind.is_float or kind.pair else _INTEGER
    name = context.take(*table)
    if not name:
        context.fail(f"no comparison of .{kind.name}")
    function = table[name]
    if context.take("ftz") and kind.name == "f32":
        return lambda a, b: function(floats.flush(a), floats.flush(b))
    return function


def set_predicate(context: Context) -> None:
    kind = context.type()
    function = _comparison(context, kind)
    join = context.take(*_JOIN)
    context.done(4 if join else 3)
    first, second = context.pair(0)
    if kind.pair:
        _pair_predicates(context, kind, function, join)
        return
    compare = compared(kind, function)
    write = context.writer(first, PREDICATE)
    other = context.writer(second, PREDICATE) if second is not None else None
    a, b = context.read(1, kind), context.read(2, kind)
    third = context.read(3, PREDICATE) if join else None
    combine = _JOIN.get(join)

    def run(frame: Any, lanes: Lanes) -> None:
        result = compare(a(frame, lanes), b(frame, lanes))
        opposite = ~result if other is not None else None
        if third is not None and combine is not None:
            extra = third(frame, lanes)
            result = combine(result, extra)
            opposite = combine(opposite, extra) if opposite is not None else None
        write(frame, lanes, result)
        if other is not None and opposite is not None:
            other(frame, lanes, opposite)

    context.emit(run, "compare")


def _pair_predicates(context: Context, kind: Type, function: Compare, join: str) -> None:
    """p|q: of the lower and of the upper half."""
    first, second = context.pair(0)
    if second is None:
        context.fail("a comparison of pairs has two results")
    writes = context.writer(first, PREDICATE), context.writer(second, PREDICATE)
    a, b = context.read(1, kind), context.read(2, kind)
    third = context.read(3, PREDICATE) if join else None
    part = np.float16 if kind.kind == "f" else np.uint16
    widen: Callable[[Array], Array] = floats.from_bf16 if kind.kind == "bf" else (lambda x: x)

    def run(frame: Any, lanes: Lanes) -> None:
        halves = [widen(unpack(read(frame, lanes), part)) for read in (a, b)]
        result = function(halves[0], halves[1])
        for column, write in enumerate(writes):
            value = result[:, column].copy()
            write(frame, lanes, _JOIN[join](value, third(frame, lanes)) if third is not None else value)

    context.emit(run, "compare")


def set_value(context: Context) -> None:
    """set: all ones or 1.0 where the comparison holds."""
    kind = context.type()
    result = context.type()
    compare = compared(kind, _comparison(context, kind)) if not kind.pair else _pair_compare(context, kind)
    join = context.take(*_JOIN)
    context.done(4 if join else 3)
    write = context.write(0, result)
    a, b = context.read(1, kind), context.read(2, kind)
    third = context.read(3, PREDICATE) if join else None
    yes, no = _true_value(result), np.zeros(1, result.dtype)

    def run(frame: Any, lanes: Lanes) -> None:
        flags = compare(a(frame, lanes), b(frame, lanes))
        if third is not None:
            flags = _JOIN[join](flags, third(frame, lanes))
        if flags.ndim == 2:  # a half of a pair each
            half = np.uint16(0x3C00 if result.kind == "f" else 0x3F80 if result.kind == "bf" else 0xFFFF)
            write(
                frame,
                lanes,
                np.where(flags, half, np.uint16(0)).view(np.uint32).reshape(-1).view(result.dtype),
            )
            return
        write(frame, lanes, np.where(flags, yes, no))

    context.emit(run, "compare")


def _pair_compare(context: Context, kind: Type) -> Compare:
    function = _comparison(context, kind)
    if kind.kind == "f":
        return lambda a, b: function(unpack(a, np.float16), unpack(b, np.float16))
    return lambda a, b: function(
        floats.from_bf16(unpack(a, np.uint16)), floats.from_bf16(unpack(b, np.uint16))
    )


def _true_value(kind: Type) -> Array:
    if kind.kind == "f" and not kind.pair:
        return np.ones(1, kind.dtype)
    if kind.kind == "bf" and not kind.pair:
        return np.array([0x3F80], np.uint16)
    return np.array([(1 << kind.bits) - 1], f"u{kind.bytes}").view(kind.dtype)


def select(context: Context) -> None:
    kind = context.type()
    context.done(4)
    predicate, a, b = context.read(3, PREDICATE), context.read(1, kind), context.read(2, kind)
    context.emit(ternary(context.write(0, kind), np.where, predicate, a, b), "compare")


def select_by_sign(context: Context) -> None:
    """slct: a where c >= 0, else b."""
    by = context.type()
    kind = context.type()
    context.take("ftz")
    context.done(4)
    a, b, c = context.read(1, kind), context.read(2, kind), context.read(3, by)
    context.emit(ternary(context.write(0, kind), lambda x, y, z: np.where(z >= 0, x, y), a, b, c), "compare")


def _normal(a: Array) -> Array:
    result: Array = np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny)
    return result


_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": _normal,
    "subnormal": lambda a: np.isfinite(a) & ~_normal(a),
}


def test(context: Context) -> None:
    kind = context.type()
    name = context.take(*_TESTS)
    context.done(2)
    if not name:
        context.fail("no property to test")
    context.emit(unary(context.write(0, PREDICATE), _TESTS[name], context.read(1, kind)), "compare")


BUILDERS: dict[str, Callable[[Context], None]] = {
    "setp": set_predicate,
    "set": set_value,
    "selp": select,
    "slct": select_by_sign,
    "testp": test,
}
