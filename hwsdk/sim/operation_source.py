"""Scalar operations and conversions as Python text that gives exactly what `np_scalar` and `convert` give.

Design choice: the definitions are general and slow (4 microseconds a call).  The common cases have a direct
NumPy form here; a test compares each of them with the definition on every dtype, extreme values included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.scalar import SCALAR, np_scalar
from hwsdk.graph.scalar import convert as convert_value

_WIDE = ("f32", "f64")
_FLOATS = (*_WIDE, "f16", "bf16")
_INTEGERS = tuple(f"{s}{b}" for s in "iu" for b in (8, 16, 32, 64))
_PLAIN = (*_FLOATS, *_INTEGERS)

# op -> (dtypes, text); {0} {1} are variables
DIRECT: dict[str, tuple[tuple[str, ...], str]] = {
    "add": (_PLAIN, "{0} + {1}"),
    "sub": (_PLAIN, "{0} - {1}"),
    "mul": (_PLAIN, "{0} * {1}"),
    "div": (_WIDE, "{0} / {1}"),
    "neg": ((*_FLOATS, *_INTEGERS), "-{0}"),
    "abs": (_WIDE, "np_absolute({0})"),
    "sqrt": (_WIDE, "np_sqrt({0})"),
    "floor": (_WIDE, "np_floor({0})"),
    "max": ((*_WIDE, *_INTEGERS), "np_maximum({0}, {1})"),
    "min": ((*_WIDE, *_INTEGERS), "np_minimum({0}, {1})"),
    "and": ((*_INTEGERS, "bool"), "{0} & {1}"),
    "or": ((*_INTEGERS, "bool"), "{0} | {1}"),
    "xor": ((*_INTEGERS, "bool"), "{0} ^ {1}"),
    "not": (("bool",), "~{0}"),
    "eq": ((*_PLAIN, "bool"), "{0} == {1}"),
    "ne": ((*_PLAIN, "bool"), "{0} != {1}"),
    "lt": (_PLAIN, "{0} < {1}"),
    "le": (_PLAIN, "{0} <= {1}"),
    "gt": (_PLAIN, "{0} > {1}"),
    "ge": (_PLAIN, "{0} >= {1}"),
}

_ZERO_DIMENSIONAL = "[()]"


def globals_for_operations() -> dict[str, Any]:
    """What the texts of this module refer to."""
    names: dict[str, Any] = {
        f"np_{n}": getattr(np, n) for n in ("absolute", "sqrt", "floor", "maximum", "minimum", "where")
    }
    names |= {f"u_{n}": op.numpy for n, op in SCALAR.items()}
    names |= {f"d_{n}": d.numpy for n, d in DTYPES.items() if d.numpy is not None}
    names |= {f"s_{n}": _bound(n) for n in SCALAR}
    names |= {f"t_{n}": numpy_dtype(n).type for n in _PLAIN}
    names |= {f"w_{n}": _wrapper(n) for n in _INTEGERS}
    names |= {f"c_{n}": _converter(n) for n, d in DTYPES.items() if d.numpy is not None}
    return names


def _bound(op: str) -> Any:
    return lambda *operands: np_scalar(op, *operands)


def _converter(name: str) -> Any:
    return lambda x: convert_value(x, name)


def _wrapper(name: str) -> Any:
    """From a Python integer, wrapping."""
    kind, bits = numpy_dtype(name).type, DTYPES[name].bits
    half = 1 << (bits - 1) if name[0] == "i" else 0

    def wrap(x: int) -> Any:
        try:
            return kind(x)
        except OverflowError:
            return kind(((x + half) & ((1 << bits) - 1)) - half)

    return wrap


def operation(op: str, dtype: str, operands: list[str], scalar: bool) -> str:
    """The text of `op` on variables of one dtype.  scalar: they are NumPy scalars, not arrays."""
    direct = DIRECT.get(op)
    if direct is not None and dtype in direct[0]:
        return direct[1].format(*operands)
    if op == "fma" and dtype == "f32":
        x, y, z = operands
        return f"t_f32(t_f64({x})*{y} + {z})" if scalar else f"({x}.astype(d_f64)*{y} + {z}).astype(d_f32)"
    if op == "fma" and dtype == "f64":
        x, y, z = operands
        return f"{x} * {y} + {z}"
    entry = SCALAR[op]
    if entry.inexact and entry.arity == 1 and dtype in _WIDE and isinstance(entry.numpy, np.ufunc):
        return _inexact(op, dtype, operands[0], scalar)
    return f"s_{op}({', '.join(operands)}){_ZERO_DIMENSIONAL if scalar else ''}"


def _inexact(op: str, dtype: str, x: str, scalar: bool) -> str:
    """A function that is computed in f64 and rounded once."""
    if dtype == "f64":
        return f"u_{op}({x})"
    return f"t_f32(u_{op}(t_f64({x})))" if scalar else f"u_{op}({x}.astype(d_f64)).astype(d_f32)"


def _scalar_cast(x: str, source: str, target: str) -> str | None:
    """NumPy scalars have slow methods: the constructors are ten times faster.  None: no such form."""
    if source in _FLOATS and target in _WIDE:
        return f"t_{target}({x})"
    if source in (*_INTEGERS, "bool") and target in _INTEGERS:
        return f"w_{target}(int({x}))"
    if (source == "bool" or (source in _INTEGERS and DTYPES[source].bits <= 32)) and target in _WIDE:
        return f"t_{target}(int({x}))"
    return None


def from_index(text: str, dtype: str, scalar: bool) -> str:
    """An index (a Python integer, or an int64 array) as a value."""
    if scalar and dtype in _INTEGERS:
        return f"w_{dtype}({text})"
    if scalar and dtype in _WIDE:
        return f"t_{dtype}({text})"
    return cast(f"t_i64({text})" if scalar else f"({text})", "i64", dtype, "value", scalar)


def cast(x: str, source: str, target: str, mode: str, scalar: bool) -> str:
    """The text of a conversion of a variable."""
    if source == target:
        return x
    if mode == "bits":
        return f"{x}.view(d_{target})"
    quick = _scalar_cast(x, source, target) if scalar else None
    if quick is not None:
        return quick
    if source in (*_INTEGERS, "bool") and target in _PLAIN:
        return f"{x}.astype(d_{target})"
    if (source in _WIDE and target in _FLOATS) or (source in _FLOATS and target in _WIDE):
        return f"{x}.astype(d_{target})"
    if target == "bool" and source in (*_WIDE, *_INTEGERS):
        return f"{x} != 0"
    return f"c_{target}({x}){_ZERO_DIMENSIONAL if scalar else ''}"


def constant(value: float | bool, dtype: str) -> Any:
    """The NumPy scalar of a constant."""
    if DTYPES[dtype].kind in "iu" and DTYPES[dtype].bits >= 8:
        return numpy_dtype(dtype).type(value)
    return convert_value(np.asarray(value), dtype)[()]
