"""add, sub, mul, mad, fma, div, rem, min, max, abs, neg and the functions of one operand.

Design choice: one table from (opcode, kind of type) to a function of arrays; rounding, saturation and flushing of
subnormal numbers are wrapped around it as the modifiers say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import floats, integers
from hwsdk.sim.simt.program import Array, Lanes, Run
from hwsdk.sim.simt.registers import added, binary, ternary, unary
from hwsdk.targets.cuda.ptx.context import Context
from hwsdk.targets.cuda.ptx.types import TYPES, Type, lifted

Function = Callable[..., Array]
ROUNDINGS = ("rn", "rz", "rm", "rp")


# ------------------------------------------------------------------------------------------------ wrapping
def finish(context: Context, kind: Type, function: Function) -> Function:
    """Take .ftz, .sat and .relu and wrap them around a function of floats."""
    ftz = context.take("ftz")
    saturate = context.take("sat")
    relu = context.take("relu")
    if ftz and kind.name == "f32":
        inner = function
        function = lambda *a: floats.flush(inner(*(floats.flush(x) for x in a)))  # noqa: E731
    if saturate:
        exact = function
        function = lambda *a: floats.saturate(exact(*a))  # noqa: E731
    if relu:
        plain = function
        function = lambda *a: _relu(plain(*a))  # noqa: E731
    return function


def _relu(values: Array) -> Array:
    zero = values.dtype.type(0)
    result: Array = np.where(values > 0, values, np.where(np.isnan(values), values, zero))
    return result


def emit(context: Context, kind: Type, function: Function, operands: int, counted: str) -> None:
    """All operands and the result have one type."""
    context.done(operands + 1)
    write = context.write(0, kind)
    reads = [context.read(i + 1, kind) for i in range(operands)]
    run: Run
    if operands == 1:
        run = unary(write, function, reads[0])
    elif operands == 2:
        run = binary(write, function, reads[0], reads[1])
    else:
        run = ternary(write, function, reads[0], reads[1], reads[2])
    context.emit(run, counted)


# ------------------------------------------------------------------------------------------------ add, sub, mul
_PLAIN: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def add_or_sub(context: Context) -> None:
    kind = context.type()
    name = context.instruction.opcode
    if kind.is_float or kind.pair:
        _float_binary(context, kind, name)
        return
    if "cc" in context.left:
        _with_carry(context, kind, name, False)
        return
    if context.take("sat"):
        if kind.name != "s32":
            context.fail("only .s32 saturates")
        emit(
            context,
            kind,
            integers.add_saturating if name == "add" else integers.subtract_saturating,
            2,
            "integer",
        )
        return
    context.done(3)
    plain = binary(context.write(0, kind), _PLAIN[name], context.read(1, kind), context.read(2, kind))
    context.emit(_or_sum(context, kind, 1 if name == "add" else -1, plain), "integer")


def _or_sum(context: Context, kind: Type, sign: int, plain: Run) -> Run:
    """What is the same for all lanes is added without looking at them."""
    target, a, b = context.register(0, kind), context.held(1, kind), context.held(2, kind)
    if target is None or a is None or b is None:
        return plain
    return added(target, a, b, sign, plain)


def _float_binary(context: Context, kind: Type, name: str) -> None:
    mode = context.take(*ROUNDINGS) or "rn"
    function: Function = _PLAIN[name]
    if mode != "rn":
        if kind.name != "f32":
            context.fail(f".{mode} is supported for .f32 only")
        function = floats.directed(_PLAIN[name], kind.dtype, mode)
    emit(context, kind, lifted(kind, finish(context, kind, function)), 2, "float")


def multiply(context: Context) -> None:
    kind = context.type()
    if kind.is_float or kind.pair:
        _float_binary(context, kind, "mul")
        return
    part = context.take("lo", "hi", "wide")
    if part == "wide":
        wide = TYPES[f"{kind.kind}{kind.bits * 2}"]
        context.done(3)
        run = binary(
            context.write(0, wide), integers.multiply_wide, context.read(1, kind), context.read(2, kind)
        )
        context.emit(run, "integer")
    elif part:
        emit(context, kind, np.multiply if part == "lo" else integers.multiply_high, 2, "integer")
    else:
        context.fail("an integer product must say .lo, .hi or .wide")


def multiply_add(context: Context) -> None:
    kind = context.type()
    if kind.is_float or kind.pair:
        fused(context, kind)
        return
    part = context.take("lo", "hi", "wide")
    third = kind
    product: Function = np.multiply
    if part == "wide":
        third, product = TYPES[f"{kind.kind}{kind.bits * 2}"], integers.multiply_wide
    elif part == "hi":
        product = integers.multiply_high
    elif not part:
        context.fail("an integer product must say .lo, .hi or .wide")
    if "cc" in context.left:
        _with_carry(context, kind, "add", False, product)
        return
    function: Function = lambda a, b, c: product(a, b) + c  # noqa: E731
    saturates = bool(context.take("sat"))
    if saturates:
        if kind.name != "s32" or part != "hi":
            context.fail("only mad.hi.s32 saturates")
        function = lambda a, b, c: integers.add_saturating(product(a, b), c)  # noqa: E731
    context.done(4)
    reads = (context.read(1, kind), context.read(2, kind), context.read(3, third))
    plain = ternary(context.write(0, third), function, *reads)
    target, c = context.register(0, third), context.held(3, third)
    if target is not None and c is not None and not saturates:

        def factor(frame: Any) -> Array | None:
            """The product, where both factors are the same for all lanes."""
            a, b = reads[0](frame, None), reads[1](frame, None)
            return product(a, b) if a.shape[0] == b.shape[0] == 1 else None

        plain = added(target, factor, c, 1, plain)
    context.emit(plain, "integer")


def multiply_24(context: Context) -> None:
    """The lower or upper 32 bits of the 48-bit product of 24-bit numbers."""
    kind = context.type()
    upper = context.take("lo", "hi") == "hi"
    adds = context.instruction.opcode == "mad24"
    wide = np.dtype(np.int64 if kind.kind == "s" else np.uint64)

    def cut(values: Array) -> Array:
        shift = kind.dtype.type(8)
        return ((values << shift) >> shift).astype(wide)

    def function(a: Array, b: Array, *c: Array) -> Array:
        product = cut(a) * cut(b)
        part = (product >> wide.type(16 if upper else 0)).astype(kind.dtype)
        result: Array = part + c[0] if c else part
        return result

    emit(context, kind, function, 3 if adds else 2, "integer")


def fused_multiply_add(context: Context) -> None:
    fused(context, context.type())


_FUSED: dict[str, Function] = {
    "f16": floats.fma_f16,
    "f16x2": floats.fma_f16,
    "f32": floats.fma_f32,
    "f64": floats.fma_f64,
}


def fused(context: Context, kind: Type) -> None:
    mode = context.take(*ROUNDINGS) or "rn"
    function: Function
    if mode != "rn":
        if kind.name != "f32":
            context.fail(f".{mode} is supported for .f32 only")
        function = lambda a, b, c: floats.to_f32(floats.fma_wide(a, b, c), mode)  # noqa: E731
    elif kind.kind == "bf":
        function = floats.fma_wide
    else:
        function = {
            "f16": floats.fma_f16,
            "f16x2": floats.fma_f16,
            "f32": floats.fma_f32,
            "f64": floats.fma_f64,
        }[kind.name]
    emit(context, kind, lifted(kind, finish(context, kind, function)), 3, "float")


def divide(context: Context) -> None:
    kind = context.type()
    if not kind.is_float:
        emit(context, kind, integers.divide, 2, "integer")
        return
    context.drop(("approx", "full"))
    _float_binary(context, kind, "div")


def remainder(context: Context) -> None:
    emit(context, context.type(), integers.remainder, 2, "integer")


# ------------------------------------------------------------------------------------------------ carries
def _with_carry(context: Context, kind: Type, name: str, uses: bool, product: Function | None = None) -> None:
    """A sum or difference that takes the carry (`uses`) and leaves one (.cc); of `product` of the first two operands
    and the third, or of two operands."""
    writes = bool(context.take("cc"))
    context.done(4 if product else 3)
    plain = np.dtype(f"u{kind.bytes}")
    write = context.write(0, kind)
    reads = [context.read(i, kind) for i in range(1, 4 if product else 3)]

    def run(frame: Any, lanes: Lanes) -> None:
        values = [read(frame, lanes) for read in reads]
        if product is not None:
            values = [product(values[0], values[1]), values[2]]
        carry = frame.carry if frame.carry.shape[0] == 1 or lanes is None else frame.carry[lanes]
        extra = carry.astype(plain) if uses else np.zeros(1, plain)
        total, out = _carried(values[0].view(plain), values[1].view(plain), extra, name)
        write(frame, lanes, total.view(kind.dtype))
        if writes:
            full = np.zeros(frame.lanes, bool)
            full[:] = frame.carry
            full[slice(None) if lanes is None else lanes] = out
            frame.carry = full

    context.emit(run, "integer")


def _carried(x: Array, y: Array, extra: Array, name: str) -> tuple[Array, Array]:
    """(result, carry or borrow out)"""
    if name == "sub":
        return x - y - extra, (x < y) | ((extra != 0) & (x == y))
    total = x + y + extra
    return total, (total < x) | ((extra != 0) & (total == x))


def add_with_carry(context: Context) -> None:
    kind = context.type()
    _with_carry(context, kind, context.instruction.opcode[:3], True)


def multiply_add_with_carry(context: Context) -> None:
    kind = context.type()
    part = context.take("lo", "hi")
    if not part:
        context.fail("a product with carry is .lo or .hi")
    product: Function = np.multiply if part == "lo" else integers.multiply_high
    _with_carry(context, kind, "add", True, product)


# ------------------------------------------------------------------------------------------------ min, max, abs, neg
def least_or_greatest(context: Context) -> None:
    kind = context.type()
    name = context.instruction.opcode
    if not kind.is_float and not kind.pair:
        relu = context.take("relu")
        function: Function = np.minimum if name == "min" else np.maximum
        if relu:
            inner = function
            function = lambda a, b: np.maximum(inner(a, b), a.dtype.type(0))  # noqa: E731
        emit(context, kind, function, 2, "integer")
        return
    chosen: Function = floats.minimum if name == "min" else floats.maximum
    if context.take("NaN"):
        chosen = floats.or_nan(chosen)
    if context.take("xorsign"):
        context.fail(".xorsign is not supported")
    emit(context, kind, lifted(kind, finish(context, kind, chosen)), 2, "float")


_SIGNS = {
    "f16": 0x8000,
    "bf16": 0x8000,
    "f32": 1 << 31,
    "f64": 1 << 63,
    "f16x2": 0x80008000,
    "bf16x2": 0x80008000,
}


def absolute_or_negative(context: Context) -> None:
    kind = context.type()
    negate = context.instruction.opcode == "neg"
    if not kind.is_float and not kind.pair:
        emit(context, kind, np.negative if negate else np.abs, 1, "integer")
        return
    plain = np.dtype(f"u{kind.bytes}")
    sign = np.array([_SIGNS[kind.name]], plain)

    def change(a: Array) -> Array:
        bits = a.view(plain)
        result: Array = (bits ^ sign if negate else bits & ~sign).view(a.dtype)
        return result

    emit(context, kind, finish(context, kind, change), 1, "float")


# ------------------------------------------------------------------------------------------------ functions
def _quiet(function: Function) -> Function:
    return floats.in_f64(function)


_FUNCTIONS: dict[str, Function] = {
    "ex2": _quiet(np.exp2),
    "lg2": _quiet(np.log2),
    "sin": _quiet(np.sin),
    "cos": _quiet(np.cos),
    "tanh": _quiet(np.tanh),
    "rcp": _quiet(lambda a: 1.0 / a),
    "rsqrt": _quiet(lambda a: 1.0 / np.sqrt(a)),
    "sqrt": np.sqrt,
}


def function_of_one(context: Context) -> None:
    """Approximations are computed as exactly as float64 allows, which is inside what PTX promises."""
    kind = context.type()
    name = context.instruction.opcode
    approximate = context.take("approx")
    mode = context.take(*ROUNDINGS)
    context.drop(("ftz",) if approximate and kind.bits == 64 else ())
    function = _FUNCTIONS[name]
    if mode in ("rz", "rm", "rp"):
        if kind.name != "f32" or name not in ("rcp", "sqrt"):
            context.fail(f".{mode} is not supported here")
        if name == "sqrt":
            function = lambda a: floats.directed_sqrt(a, kind.dtype, mode)  # noqa: E731
        else:
            divide_to = floats.directed(np.divide, kind.dtype, mode)
            function = lambda a: divide_to(np.ones(1, a.dtype), a)  # noqa: E731
    if not approximate and not mode:
        context.fail("neither .approx nor a rounding is given")
    emit(context, kind, lifted(kind, finish(context, kind, function)), 1, "special")


def copy_sign(context: Context) -> None:
    """The sign of the first operand, the magnitude of the second."""
    kind = context.type()
    emit(context, kind, lambda a, b: np.copysign(b, a), 2, "float")


def sum_of_differences(context: Context) -> None:
    """c + |a - b|"""
    kind = context.type()
    emit(context, kind, lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), 3, "integer")


def dot_product(context: Context) -> None:
    first, second = ((context.take("s32") and "s32") or "", "")
    types = list(context.instruction.modifiers)
    context.drop(types)
    if len(types) != 2 or any(t not in ("u32", "s32") for t in types):
        context.fail("two types of 32 bits belong here")
    first, second = types
    kind, bits = TYPES["s32" if "s32" in types else "u32"], TYPES["b32"]
    dtypes = [np.int8 if t == "s32" else np.uint8 for t in (first, second)]
    context.done(4)

    def function(a: Array, b: Array, c: Array) -> Array:
        return integers.dot_bytes(a, b, c, dtypes[0], dtypes[1]).view(kind.dtype)

    reads = (context.read(1, bits), context.read(2, bits), context.read(3, kind))
    context.emit(ternary(context.write(0, kind), function, *reads), "integer")


BUILDERS: dict[str, Callable[[Context], None]] = {
    "add": add_or_sub,
    "sub": add_or_sub,
    "addc": add_with_carry,
    "subc": add_with_carry,
    "madc": multiply_add_with_carry,
    "mul": multiply,
    "mad": multiply_add,
    "mul24": multiply_24,
    "mad24": multiply_24,
    "fma": fused_multiply_add,
    "div": divide,
    "rem": remainder,
    "min": least_or_greatest,
    "max": least_or_greatest,
    "abs": absolute_or_negative,
    "neg": absolute_or_negative,
    "copysign": copy_sign,
    "sad": sum_of_differences,
    "dp4a": dot_product,
    **dict.fromkeys(_FUNCTIONS, function_of_one),
}
