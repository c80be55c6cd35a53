"""cvt and cvta: between integers, floats and packed pairs, in every rounding mode.

Design choice: a conversion is a function from arrays of the source's dtype to arrays of the target's, made from a
table by the kinds of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.sim.simt import floats, integers
from hwsdk.sim.simt.program import Array, Lanes
from hwsdk.sim.simt.registers import unary
from hwsdk.sim.simt.spaces import BASES, WINDOW_SHIFT, Space
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.types import PREDICATE, TYPES, Type, bits_type, pack

Convert = Callable[[Array], Array]
_FLOAT_MODES = ("rn", "rz", "rm", "rp", "rna")
_INTEGER_MODES = ("rni", "rzi", "rmi", "rpi")
_EIGHT_BITS: dict[str, Any] = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}


def convert(context: Context) -> None:
    names = [m for m in context.instruction.modifiers if m in TYPES or m in _EIGHT_BITS]
    if len(names) != 2:
        context.fail("a conversion needs two types that are supported")
    context.drop(names)
    to, source = names
    if to in _EIGHT_BITS or source in _EIGHT_BITS:
        _eight_bits(context, to, source)
    elif TYPES[to].pair:
        _to_pair(context, TYPES[to], TYPES[source])
    else:
        _scalar(context, TYPES[to], TYPES[source])


def _scalar(context: Context, to: Type, source: Type) -> None:
    mode = context.take(*_FLOAT_MODES, *_INTEGER_MODES)
    ftz, sat, relu = context.take("ftz"), context.take("sat"), context.take("relu")
    context.take("satfinite")
    context.done(2)
    if PREDICATE in (to, source) or source.pair:
        context.fail(f"no conversion from .{source.name} to .{to.name}")
    function = _function(context, to, source, mode)
    if ftz and source.name == "f32":
        inner = function
        function = lambda a: inner(floats.flush(a))  # noqa: E731
    if ftz and to.name == "f32":
        exact = function
        function = lambda a: floats.flush(exact(a))  # noqa: E731
    if sat and to.is_float:
        wide = function
        function = lambda a: floats.saturate(wide(a))  # noqa: E731
    elif sat and not source.is_float:
        function = lambda a: integers.clamp_to(a, to.dtype)  # noqa: E731
    if relu:
        plain = function
        function = lambda a: plain(np.where(a > 0, a, np.where(np.isnan(a), a, a.dtype.type(0))))  # noqa: E731
    context.emit(unary(context.write(0, to), function, context.read(1, source)), "convert")


def _function(context: Context, to: Type, source: Type, mode: str) -> Convert:
    if source.is_float and to.name == "tf32":
        return lambda a: floats.to_tf32(a, mode or "rna").view(np.uint32)
    if source.is_float and to.is_float:
        return _float_to_float(context, to, source, mode)
    widen: Convert = floats.from_bf16 if source.kind == "bf" else (lambda a: a)
    if source.is_float:
        if mode not in _INTEGER_MODES:
            context.fail("a conversion to integers must say how it rounds")
        return lambda a: floats.to_integer(widen(a), to.dtype, mode)
    if to.kind == "bf":
        return lambda a: floats.to_bf16(_odd_from_integer(a), mode or "rn")
    if to.is_float:
        return lambda a: floats.from_integer(a, to.dtype, mode or "rn")
    # through the source's own sign: widening repeats it, narrowing cuts
    return lambda a: a.astype(to.dtype)


def _odd_from_integer(a: Array) -> Array:
    return (
        a.astype(np.float64) if a.dtype.itemsize < 8 else floats.from_integer(a, np.dtype(np.float64), "rn")
    )


def _float_to_float(context: Context, to: Type, source: Type, mode: str) -> Convert:
    widen: Convert = floats.from_bf16 if source.kind == "bf" else (lambda a: a)
    if mode in _INTEGER_MODES:
        if to is not source:
            return lambda a: _round_to(to, floats.integral(widen(a), mode), "rn")
        if source.kind == "bf":
            return lambda a: floats.to_bf16(floats.integral(floats.from_bf16(a), mode))
        return lambda a: floats.integral(a, mode)
    if to is source:
        return lambda a: np.copy(a)
    return lambda a: _round_to(to, widen(a), mode or "rn")


def _round_to(to: Type, values: Array, mode: str) -> Array:
    """float16, float32 or float64 to any float."""
    if to.kind == "bf":
        return floats.to_bf16(values if values.dtype != np.float16 else values.astype(np.float32), mode)
    if values.dtype.itemsize <= to.bytes:
        result: Array = values.astype(to.dtype)
        return result
    return floats.rounded(values, to.dtype, mode)


def _to_pair(context: Context, to: Type, source: Type) -> None:
    """d = {b in the lower half, a in the upper}, from two float32."""
    mode = context.take("rn", "rz", "rna") or "rn"
    relu, finite = context.take("relu"), context.take("satfinite")
    context.done(3)
    if source.name != "f32":
        context.fail("pairs are made of two .f32")
    write, a, b = context.write(0, to), context.read(1, source), context.read(2, source)
    half = TYPES["f16" if to.kind == "f" else "bf16"]

    def shorten(values: Array) -> Array:
        if relu:
            values = np.where(values > 0, values, np.where(np.isnan(values), values, np.float32(0)))
        if finite:
            most = np.float32(65504.0) if to.kind == "f" else np.uint32(0x7F7F0000).view(np.float32)
            values = np.clip(values, -most, most)
        return _round_to(half, values, mode).view(np.uint16)

    def run(frame: Any, lanes: Lanes) -> None:
        high, low = np.broadcast_arrays(shorten(a(frame, lanes)), shorten(b(frame, lanes)))
        write(frame, lanes, pack(np.stack([low, high], 1)))

    context.emit(run, "convert")


def _eight_bits(context: Context, to: str, source: str) -> None:
    """Pairs of 8-bit floats, the lower element in the lower byte."""
    relu = context.take("relu")
    context.drop(("rn", "satfinite"))
    if source in _EIGHT_BITS:
        if to != "f16x2" or relu:
            context.fail("8-bit floats become .f16x2")
        context.done(2)
        kind = _EIGHT_BITS[source]

        def widen(a: Array) -> Array:
            return pack(np.ascontiguousarray(a).view(np.uint8).reshape(-1, 2).view(kind).astype(np.float16))

        context.emit(unary(context.write(0, TYPES["f16x2"]), widen, context.read(1, TYPES["b16"])), "convert")
        return
    kind = _EIGHT_BITS[to]
    most = np.float32(ml_dtypes.finfo(kind).max)

    def narrow(values: Array) -> Array:
        if relu:
            values = np.maximum(values, np.float32(0))
        return np.clip(values, -most, most).astype(kind).view(np.uint8)

    write = context.write(0, TYPES["b16"])
    if source == "f16x2":
        context.done(2)
        one = context.read(1, TYPES["b32"])

        def run_pair(frame: Any, lanes: Lanes) -> None:
            halves = (
                np.ascontiguousarray(one(frame, lanes)).view(np.float16).reshape(-1, 2).astype(np.float32)
            )
            write(frame, lanes, np.ascontiguousarray(narrow(halves)).view(np.uint16).reshape(-1))

        context.emit(run_pair, "convert")
        return
    context.done(3)
    a, b = context.read(1, TYPES["f32"]), context.read(2, TYPES["f32"])

    def run(frame: Any, lanes: Lanes) -> None:
        high, low = np.broadcast_arrays(narrow(a(frame, lanes)), narrow(b(frame, lanes)))
        write(frame, lanes, np.stack([low, high], 1).view(np.uint16).reshape(-1))

    context.emit(run, "convert")


# ------------------------------------------------------------------------------------------------ addresses
_SPACES = {
    "global": Space.GLOBAL,
    "const": Space.GLOBAL,
    "shared": Space.SHARED,
    "shared::cta": Space.SHARED,
    "local": Space.LOCAL,
    "param": Space.PARAMETER,
    "param::entry": Space.PARAMETER,
}


def space_of(context: Context) -> Space | None:
    """The memory that a modifier names."""
    name = context.take(*_SPACES)
    if not name:
        return None
    if name.startswith("param") and not context.scope.in_kernel:
        return Space.LOCAL  # parameters of a function are variables of its caller
    return _SPACES[name]


def convert_address(context: Context) -> None:
    """cvta: into the generic window of a memory, or (.to) out of it."""
    back = bool(context.take("to"))
    space = space_of(context)
    kind = context.type()
    context.done(2)
    if space is None or kind.bits != 64:
        context.fail("a 64-bit address of a named memory belongs here")
    base = np.array([BASES[space]], np.uint64)
    function: Convert = (lambda a: a - base) if back else (lambda a: a + base)
    context.emit(unary(context.write(0, kind), function, context.read(1, kind)), "move")


def is_in_space(context: Context) -> None:
    space = space_of(context)
    context.done(2)
    if space is None:
        context.fail("a memory must be named")
    number = np.uint64(BASES[space] >> WINDOW_SHIFT)
    function: Convert = lambda a: (a >> np.uint64(WINDOW_SHIFT)) == number  # noqa: E731
    context.emit(unary(context.write(0, PREDICATE), function, context.read(1, bits_type(64))), "compare")


BUILDERS: dict[str, Callable[[Context], None]] = {
    "cvt": convert,
    "cvta": convert_address,
    "isspacep": is_in_space,
}
