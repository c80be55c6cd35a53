"""What the instructions of LLVM do to arrays: binary operations, comparisons, casts, atomics, generic intrinsics.

Design choice: tables by name; integers are unsigned arrays, and signed operations look at them as signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwsdk.sim.simt import floats, integers
from hwsdk.sim.simt.llvm_text.types import AddressSpaces, Scalar, dtype_of
from hwsdk.sim.simt.program import Array
from hwsdk.sim.simt.spaces import BASES, Space

Function = Callable[..., Array]


def signed(a: Array) -> Array:
    """The same bits as signed numbers; a boolean is 0 or -1."""
    if a.dtype == np.bool_:
        return -(a.astype(np.int8))
    return a.view(f"i{a.dtype.itemsize}")


def as_signed(function: Function) -> Function:
    """On signed operands, the result as unsigned bits again."""

    def run(*operands: Array) -> Array:
        result = function(*(signed(a) for a in operands))
        return result.view(operands[0].dtype) if result.dtype.kind == "i" else result

    return run


def _shift(function: Function) -> Function:
    return lambda a, b: function(a, np.minimum(b, b.dtype.type(255)).astype(np.uint32))


_INTEGER: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "udiv": integers.divide,
    "urem": integers.remainder,
    "sdiv": as_signed(integers.divide),
    "srem": as_signed(integers.remainder),
    "shl": _shift(integers.shift_left),
    "lshr": _shift(integers.shift_right),
    "ashr": lambda a, b: _shift(integers.shift_right)(signed(a), b).view(a.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_ON_BOOLS: dict[str, Function] = {"add": np.logical_xor, "sub": np.logical_xor, "mul": np.logical_and}
_FLOAT: dict[str, Function] = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "frem": np.fmod,
    "fneg": np.negative,
}


def lifted(kind: Scalar, function: Function) -> Function:
    """A function of floats on registers of `kind`: brain floats go through float32."""
    if kind.kind == "bfloat":
        return lambda *a: floats.to_bf16(function(*(floats.from_bf16(x) for x in a)))
    return function


def binary(opcode: str, kind: Scalar) -> Function:
    """Also fneg."""
    if opcode in _FLOAT:
        return lifted(kind, _FLOAT[opcode])
    if kind.bits == 1 and opcode in _ON_BOOLS:
        return _ON_BOOLS[opcode]
    return _INTEGER[opcode]


_SIGNED_COMPARE = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}
_COMPARE: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ult": np.less,
    "ule": np.less_equal,
    "ugt": np.greater,
    "uge": np.greater_equal,
    **{name: as_signed(function) for name, function in _SIGNED_COMPARE.items()},
}
_FLOAT_COMPARE: dict[str, Function] = {
    "oeq": np.equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "olt": np.less,
    "ole": np.less_equal,
    "one": lambda a, b: (a < b) | (a > b),
    "ord": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "uno": lambda a, b: np.isnan(a) | np.isnan(b),
    "ueq": lambda a, b: ~((a < b) | (a > b)),
    "une": np.not_equal,
    "ugt": lambda a, b: ~(a <= b),
    "uge": lambda a, b: ~(a < b),
    "ult": lambda a, b: ~(a >= b),
    "ule": lambda a, b: ~(a > b),
}


def comparison(opcode: str, predicate: str, kind: Scalar) -> Function | None:
    if opcode == "icmp":
        return _COMPARE.get(predicate)
    function = _FLOAT_COMPARE.get(predicate)
    if function is not None and kind.kind == "bfloat":
        plain = function
        return lambda a, b: plain(floats.from_bf16(a), floats.from_bf16(b))
    return function


# ------------------------------------------------------------------------------------------------ casts
def cast(opcode: str, source: Scalar, to: Scalar, layout: AddressSpaces) -> Function:
    """Not bitcast, which may regroup scalars."""
    dtype = dtype_of(to, layout)
    if opcode == "trunc" and to.bits == 1:
        return lambda a: (a & a.dtype.type(1)) != 0
    if opcode in ("zext", "trunc", "ptrtoint", "inttoptr"):
        return lambda a: a.astype(dtype)
    if opcode == "sext":
        return lambda a: signed(a).astype(f"i{dtype.itemsize}").view(dtype)
    if opcode in ("uitofp", "sitofp"):
        return _from_integer(opcode == "sitofp", to, dtype)
    if opcode in ("fptoui", "fptosi"):
        whole = np.dtype(f"{'i' if opcode == 'fptosi' else 'u'}{dtype.itemsize}")
        widen: Function = floats.from_bf16 if source.kind == "bfloat" else (lambda a: a)
        return lambda a: floats.to_integer(widen(a), whole, "rzi").view(dtype)
    if opcode == "addrspacecast":
        return _change_space(layout.spaces.get(source.space), layout.spaces.get(to.space), dtype)
    return _change_float(source, to, dtype)


def _from_integer(is_signed: bool, to: Scalar, dtype: np.dtype[Any]) -> Function:
    def run(a: Array) -> Array:
        values = signed(a) if is_signed else a
        if values.dtype == np.bool_:
            values = values.astype(np.uint8)
        if to.kind == "bfloat":
            return floats.to_bf16(floats.from_integer(values, np.dtype(np.float64), "rn"))
        return floats.from_integer(values, dtype, "rn")

    return run


def _change_float(source: Scalar, to: Scalar, dtype: np.dtype[Any]) -> Function:
    def run(a: Array) -> Array:
        values = floats.from_bf16(a) if source.kind == "bfloat" else a
        if to.kind == "bfloat":
            return floats.to_bf16(values if values.dtype != np.float16 else values.astype(np.float32))
        return values.astype(dtype)

    return run


def _change_space(source: Space | None, to: Space | None, dtype: np.dtype[Any]) -> Function:
    if to is Space.GENERIC and source in BASES:
        base = np.uint64(BASES[source])
        return lambda a: a.astype(np.uint64) + base
    if source is Space.GENERIC and to in BASES:
        start = np.uint64(BASES[to])
        return lambda a: (a - start).astype(dtype)
    return lambda a: a.astype(dtype)


# ------------------------------------------------------------------------------------------------ atomics
CHANGES: dict[str, Function] = {
    "xchg": lambda old, new: new,
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "nand": lambda old, v: ~(old & v),
    "umin": np.minimum,
    "umax": np.maximum,
    "min": as_signed(np.minimum),
    "max": as_signed(np.maximum),
    "fadd": np.add,
    "fsub": np.subtract,
    "fmin": floats.minimum,
    "fmax": floats.maximum,
    "uinc_wrap": lambda old, v: np.where(old >= v, old.dtype.type(0), old + old.dtype.type(1)),
    "udec_wrap": lambda old, v: np.where((old == 0) | (old > v), v, old - old.dtype.type(1)),
}


# ------------------------------------------------------------------------------------------------ generic intrinsics
def _fma(kind: Scalar) -> Function:
    if kind.kind == "bfloat":
        return floats.fma_bf16
    return {"half": floats.fma_f16, "float": floats.fma_f32, "double": floats.fma_f64}[kind.kind]


_FLOAT_FUNCTIONS: dict[str, Function] = {
    "sqrt": np.sqrt,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "roundeven": np.rint,
    "exp": floats.in_f64(np.exp),
    "exp2": floats.in_f64(np.exp2),
    "log": floats.in_f64(np.log),
    "log2": floats.in_f64(np.log2),
    "log10": floats.in_f64(np.log10),
    "sin": floats.in_f64(np.sin),
    "cos": floats.in_f64(np.cos),
    "tanh": floats.in_f64(np.tanh),
    "copysign": np.copysign,
    "minnum": floats.minimum,
    "maxnum": floats.maximum,
    "minimumnum": floats.minimum,
    "maximumnum": floats.maximum,
    "minimum": floats.or_nan(floats.minimum),
    "maximum": floats.or_nan(floats.maximum),
    "canonicalize": np.copy,
}
_INTEGER_FUNCTIONS: dict[str, Function] = {
    "umin": np.minimum,
    "umax": np.maximum,
    "smin": as_signed(np.minimum),
    "smax": as_signed(np.maximum),
    "abs": lambda a, _: np.abs(signed(a)).view(a.dtype),
    "ctpop": lambda a: integers.count_ones(a).astype(a.dtype),
    "ctlz": lambda a, _: integers.leading_zeros(a).astype(a.dtype),
    "cttz": lambda a, _: integers.count_ones((a & (~a + a.dtype.type(1))) - a.dtype.type(1)).astype(a.dtype),
    "bitreverse": integers.reverse_bits,
    "bswap": lambda a: a.byteswap(),
}


def generic(name: str, kind: Scalar) -> Function | None:
    """The function of `llvm.NAME` on scalars of `kind`, or None."""
    if name in ("fma", "fmuladd"):
        return _fma(kind)
    if name in _FLOAT_FUNCTIONS:
        return lifted(kind, _FLOAT_FUNCTIONS[name])
    return _INTEGER_FUNCTIONS.get(name)
