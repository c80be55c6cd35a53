"""What one scalar operation means, for every dtype: the table that graph, LoopIR and emitters share.

Rules: f16, bf16 and narrower floats compute in f32 and round once; f32 functions that are not exact compute
in f64 and round once; integers wrap; comparisons give bool; integer division or remainder by zero is 0; a
shift by the width or more (or by a negative count) shifts everything out; max and min propagate NaN.

Design choice: the definition is a NumPy callable per op, and one function (`np_scalar`) applies the dtype
rules around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from hwsdk.dtypes import DType, dtype, from_numpy, numpy_dtype
from hwsdk.errors import GraphError, nearest

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ScalarOp:
    """`kinds`: dtype kinds that it takes (f i u b).  `result`: same or bool.  `inexact`: not correctly
    rounded by NumPy.
    """

    name: str
    arity: int
    kinds: str
    result: str
    numpy: Callable[..., Any]
    inexact: bool = False


def _rsqrt(x: Array) -> Any:
    return 1 / np.sqrt(x)


@lru_cache(maxsize=1)
def _erf_table() -> Array:
    """Taylor coefficients of erf around k/16:  f' = 2/sqrt(pi)*exp(-x*x), f[n+2] = -2*x*f[n+1] - 2*n*f[n]."""
    rows = []
    for k in range(97):
        x = k / 16
        f = [math.erf(x), 2 / math.sqrt(math.pi) * math.exp(-x * x)]
        for n in range(9):
            f.append(-2 * x * f[-1] - 2 * n * f[-2] * (n > 0))
        rows.append([v / math.factorial(n) for n, v in enumerate(f)])
    return np.array(rows).T.copy()


def _erf(x: Array) -> Any:
    wide = np.abs(np.asarray(x, np.float64))
    inside = np.where(wide < 6, wide, 6)  # erf(6) is 1 in f64; NaN fails the test and is put back below
    k = np.rint(inside * 16).astype(np.int64)
    h = inside - k / 16
    table = _erf_table()
    total = table[-1][k]
    for row in table[-2::-1]:
        total = total * h + row[k]
    return np.where(np.isnan(wide), wide, np.copysign(total, x)).astype(np.asarray(x).dtype)


def _divide(x: Array, y: Array) -> Any:
    """Floats: x / y.  Integers: the quotient truncated towards zero."""
    if x.dtype.kind == "f":
        return x / y
    if x.dtype.kind == "u":
        return x // y
    q = x // y
    return q + ((q < 0) & (q * y != x)).astype(x.dtype) * (y != 0)


def _pow(x: Array, y: Array) -> Any:
    """Integers with a negative exponent: the real power truncated to zero (0, or 1/x for x of 1 and -1)."""
    if x.dtype.kind != "i":
        return np.power(x, y)
    unit = np.where(np.abs(x) == 1, np.where(y % 2 == 0, np.ones_like(x), x), np.zeros_like(x))
    return np.where(y < 0, unit, np.power(x, np.maximum(y, 0)))


def _shift(left: bool) -> Callable[[Array, Array], Any]:
    def shift(x: Array, y: Array) -> Any:
        bits = x.dtype.itemsize * 8
        inside = (y >= 0) & (y < bits)
        count = np.where(inside, y, np.zeros_like(y))
        if left:
            return np.where(inside, x << count, np.zeros_like(x))
        out = np.where(x < 0, -np.ones_like(x), np.zeros_like(x)) if x.dtype.kind == "i" else np.zeros_like(x)
        return np.where(inside, x >> count, out)

    return shift


def _fma(x: Array, y: Array, z: Array) -> Any:
    if x.dtype == np.float32:
        return (x.astype(np.float64) * y + z).astype(np.float32)
    return x * y + z


def _table() -> dict[str, ScalarOp]:
    rows: list[tuple[str, int, str, str, Callable[..., Any]]] = [
        ("neg", 1, "fiu", "same", np.negative),
        ("abs", 1, "fiu", "same", np.abs),
        ("sqrt", 1, "f", "same", np.sqrt),
        ("floor", 1, "f", "same", np.floor),
        ("ceil", 1, "f", "same", np.ceil),
        ("round", 1, "f", "same", np.rint),
        ("trunc", 1, "f", "same", np.trunc),
        ("sign", 1, "fiu", "same", np.sign),
        ("not", 1, "b", "same", np.logical_not),
        ("bitnot", 1, "iu", "same", np.bitwise_not),
        ("isnan", 1, "f", "bool", np.isnan),
        ("isinf", 1, "f", "bool", np.isinf),
        ("add", 2, "fiu", "same", np.add),
        ("sub", 2, "fiu", "same", np.subtract),
        ("mul", 2, "fiu", "same", np.multiply),
        ("div", 2, "fiu", "same", _divide),
        ("floordiv", 2, "fiu", "same", np.floor_divide),
        ("mod", 2, "fiu", "same", np.mod),
        ("fmod", 2, "fiu", "same", np.fmod),
        ("max", 2, "fiub", "same", np.maximum),
        ("min", 2, "fiub", "same", np.minimum),
        ("and", 2, "iub", "same", np.bitwise_and),
        ("or", 2, "iub", "same", np.bitwise_or),
        ("xor", 2, "iub", "same", np.bitwise_xor),
        ("shl", 2, "iu", "same", _shift(True)),
        ("shr", 2, "iu", "same", _shift(False)),
        ("eq", 2, "fiub", "bool", np.equal),
        ("ne", 2, "fiub", "bool", np.not_equal),
        ("lt", 2, "fiub", "bool", np.less),
        ("le", 2, "fiub", "bool", np.less_equal),
        ("gt", 2, "fiub", "bool", np.greater),
        ("ge", 2, "fiub", "bool", np.greater_equal),
        ("fma", 3, "fiu", "same", _fma),
    ]
    functions: dict[str, Callable[..., Any]] = {
        "exp": np.exp,
        "exp2": np.exp2,
        "expm1": np.expm1,
        "log": np.log,
        "log2": np.log2,
        "log1p": np.log1p,
        "rsqrt": _rsqrt,
        "reciprocal": np.reciprocal,
        "tanh": np.tanh,
        "erf": _erf,
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
    }
    found = {r[0]: ScalarOp(*r) for r in rows}
    found |= {n: ScalarOp(n, 1, "f", "same", f, n != "reciprocal") for n, f in functions.items()}
    found["pow"] = ScalarOp("pow", 2, "fiu", "same", _pow, True)
    found["atan2"] = ScalarOp("atan2", 2, "f", "same", np.arctan2, True)
    return found


SCALAR: dict[str, ScalarOp] = _table()


def scalar_op(name: str) -> ScalarOp:
    """The entry for `name`; GraphError with the nearest name if there is none."""
    try:
        return SCALAR[name]
    except KeyError:
        raise GraphError(f"unknown scalar op {name!r}{nearest(name, SCALAR)}") from None


def np_scalar(op: str, *arrays: Any) -> Array:
    """The value of scalar op `op` on arrays of one dtype (broadcast as NumPy does), by the rules of this
    module.
    """
    entry = scalar_op(op)
    operands = [np.asarray(a) for a in arrays]
    if len(operands) != entry.arity:
        raise GraphError(f"{op} takes {entry.arity} operands, not {len(operands)}")
    kind = dtype(from_numpy(operands[0].dtype))
    if kind.kind not in entry.kinds:
        raise GraphError(f"{op} is not defined for {kind.name}")
    compute = _compute_type(kind, entry)
    with np.errstate(all="ignore"):
        if compute is not None:
            operands = [a.astype(compute) for a in operands]
        result = np.asarray(entry.numpy(*operands))
        return result if entry.result == "bool" else result.astype(numpy_dtype(kind.name), copy=False)


def _compute_type(kind: DType, entry: ScalarOp) -> Any:
    """The NumPy type to compute in, or None for the operands' own."""
    if kind.kind == "f" and kind.bits < 32:
        return np.float64 if entry.inexact else np.float32
    if kind.name == "f32":
        return np.float64 if entry.inexact else None
    return {"i4": np.int8, "u4": np.uint8}.get(kind.name)


# ------------------------------------------------------------------------------------------------ conversions
def convert(values: Any, name: str) -> Array:
    """The definition of `cast`.

    Float to integer truncates and saturates, NaN is 0; to a narrower float rounds to nearest even; integers
    wrap; anything to bool is `!= 0`.
    """
    array: Array = np.asarray(values)
    source, target = dtype(from_numpy(array.dtype)), dtype(name)
    to = numpy_dtype(name)
    if source.name == name:
        return array
    if target.kind == "b":
        return np.asarray(_widened(array, source) != 0)
    if source.kind == "f" and target.kind in "iu":
        return _saturated(_widened(array, source), target)
    with np.errstate(all="ignore"):
        if target.kind in "iu" and target.bits < 8:  # wrap by hand: narrow types have no wrapping cast
            low = array.astype(np.int64) & ((1 << target.bits) - 1)
            negative = (low >> (target.bits - 1) > 0) & (target.kind == "i")
            return np.asarray(np.where(negative, low - (1 << target.bits), low).astype(to))
        return np.asarray(_widened(array, source).astype(to) if target.kind == "f" else array.astype(to))


def _widened(array: Array, source: DType) -> Array:
    """Narrow floats as f32 (exact): NumPy knows their comparisons and casts."""
    narrow = source.kind == "f" and source.bits < 32
    return array.astype(np.float32) if narrow else array.astype(np.int8) if source.bits == 4 else array


def _saturated(array: Array, target: DType) -> Array:
    low, high = integer_range(target.name)
    with np.errstate(all="ignore"):
        wide = np.trunc(array.astype(np.float64))
        inside = (wide > low) & (wide < high)
        middle = np.where(inside, wide, 0).astype(np.uint64 if target.name == "u64" else np.int64)
    whole = middle.astype(numpy_dtype(target.name))
    whole = np.where(wide >= high, np.array(high, whole.dtype), whole)
    return np.asarray(np.where(wide <= low, np.array(low, whole.dtype), whole))


def uniform(array: Array) -> bool:
    """Is every element the same, bit for bit?  (0 and -0 are not.)"""
    flat = np.ascontiguousarray(array).reshape(-1)
    size = flat.dtype.itemsize
    raw = flat.view(np.uint8).reshape(-1, size) if size > 8 else flat.view(f"u{size}")
    return bool(np.all(raw == raw[:1]))


def integer_range(name: str) -> tuple[int, int]:
    """Least and greatest value of an integer dtype."""
    d = dtype(name)
    return (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1) if d.kind == "i" else (0, (1 << d.bits) - 1)


def neutral(kind: str, name: str) -> int | float | bool:
    """The value that a reduction of `kind` over nothing gives, in dtype `name`."""
    d = dtype(name)
    if kind in ("any", "all"):
        return kind == "all"
    if kind in ("sum", "prod"):
        return {"f": float, "b": bool}.get(d.kind, int)(kind == "prod")
    if kind not in ("max", "min"):
        raise GraphError(f"reduction {kind!r} has no neutral element")
    if d.kind == "b":
        return kind == "min"
    if d.kind != "f":
        return integer_range(name)[kind == "min"]
    highest = math.inf if _has_infinity(name) else float(ml_dtypes.finfo(numpy_dtype(name)).max)  # type: ignore[no-untyped-call]
    return highest if kind == "min" else -highest


def _has_infinity(name: str) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.array(math.inf, np.float32).astype(numpy_dtype(name)).astype(np.float32)))
