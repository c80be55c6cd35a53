"""The scalar table against independent formulas: Python integers and `math`, per element."""

from __future__ import annotations

import math
import warnings

import ml_dtypes
import numpy as np
import pytest

from hwsdk.dtypes import DTYPES, dtype, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.graph.scalar import SCALAR, convert, integer_range, neutral, np_scalar

INTS = [n for n in DTYPES if DTYPES[n].kind in "iu"]
FLOATS = ["f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"]


def wrapped(value: int, name: str) -> int:
    low, high = integer_range(name)
    return (value - low) % (high - low + 1) + low


def samples(name: str) -> list[int]:
    low, high = integer_range(name)
    return sorted(
        {low, low + 1, high, high - 1, *(x for x in (-3, -1, 0, 1, 2, 3, 5, 7) if low <= x <= high)}
    )


def _truncated(p: int, q: int) -> int:
    return 0 if q == 0 else int(math.copysign(1, p) * math.copysign(1, q)) * (abs(p) // abs(q))


INTEGER = {
    "add": lambda p, q: p + q,
    "sub": lambda p, q: p - q,
    "mul": lambda p, q: p * q,
    "div": _truncated,
    "floordiv": lambda p, q: 0 if q == 0 else p // q,
    "mod": lambda p, q: 0 if q == 0 else p % q,
    "fmod": lambda p, q: 0 if q == 0 else p - q * _truncated(p, q),
    "max": max,
    "min": min,
    "and": lambda p, q: p & q,
    "or": lambda p, q: p | q,
    "xor": lambda p, q: p ^ q,
}


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("op", INTEGER)
def test_integers_wrap(op: str, name: str) -> None:
    pairs = [(p, q) for p in samples(name) for q in samples(name)]
    x, y = (
        np.array(c, object).astype(np.int64 if name[0] == "i" else np.uint64).astype(numpy_dtype(name))
        for c in zip(*pairs)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = np_scalar(op, x, y)
    assert got.dtype == numpy_dtype(name)
    assert [int(v) for v in got] == [wrapped(INTEGER[op](p, q), name) for p, q in pairs]


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "u8", "u64"])
def test_shifts(name: str) -> None:
    bits = dtype(name).bits
    pairs = [
        (p, q) for p in samples(name) for q in (0, 1, bits - 1, bits, 100) if q <= integer_range(name)[1]
    ]
    x, y = (np.array(c, object).astype(numpy_dtype(name)) for c in zip(*pairs))
    left = [wrapped(p << q, name) if q < bits else 0 for p, q in pairs]
    right = [p >> min(q, bits) for p, q in pairs]
    assert [int(v) for v in np_scalar("shl", x, y)] == left
    assert [int(v) for v in np_scalar("shr", x, y)] == right


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "u8"])
def test_integer_power(name: str) -> None:
    pairs = [(p, q) for p in (0, 1, 2, 3, 7) for q in (0, 1, 2, 3)]
    if name[0] == "i":
        pairs += [(p, q) for p in (-2, -1, 1, 2) for q in (-2, -1, 3)]
    x, y = (np.array(c, numpy_dtype(name)) for c in zip(*pairs))
    wanted = [wrapped(p**q if q >= 0 else int(float(p) ** q), name) for p, q in pairs]
    assert [int(v) for v in np_scalar("pow", x, y)] == wanted


FUNCTIONS = {
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "asinh": math.asinh,
    "exp2": lambda x: 2.0**x,
    "log2": math.log2,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "neg": lambda x: -x,
    "abs": abs,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
}
POSITIVE = {"log", "log1p", "log2", "sqrt", "rsqrt"}


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_are_rounded_once(op: str, name: str) -> None:
    x = np.array([0.03, 0.5, 1.0, 1.5, 2.5, 3.7, 5.99], numpy_dtype(name))
    x = x if op in POSITIVE else np.concatenate([x, -x]).astype(x.dtype)
    wanted = np.array([FUNCTIONS[op](float(v)) for v in x])
    got = np_scalar(op, x)
    if name == "f64":
        np.testing.assert_allclose(got, wanted, rtol=4e-15, atol=1e-16)
    else:
        np.testing.assert_array_equal(
            got, convert(wanted, name) if name == "f32" else wanted.astype(np.float32).astype(x.dtype)
        )


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_special_floats(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], numpy_dtype(name))
    zero = np.zeros(5, numpy_dtype(name))
    assert np_scalar("isnan", x).tolist() == [True, False, False, False, False]
    assert np_scalar("isinf", x).tolist() == [False, True, True, False, False]
    for op in ("max", "min"):
        assert np.isnan(np_scalar(op, x, zero)[0].astype(float))
        assert np.isnan(np_scalar(op, zero, x)[0].astype(float))
    assert np_scalar("eq", x, x).tolist() == [False, True, True, True, True]
    assert np_scalar("erf", x)[1:3].astype(float).tolist() == [1.0, -1.0]
    assert np.isnan(np_scalar("sign", x)[0].astype(float))


def test_narrow_floats_compute_in_f32() -> None:
    x = np.array([256.0, 1.0], ml_dtypes.bfloat16)
    y = np.array([1.0, 1 / 256], ml_dtypes.bfloat16)
    wanted = (x.astype(np.float32) + y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np_scalar("add", x, y), wanted)


def test_fma_rounds_once() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    z = np.array([-(1 + 2.0**-11)], np.float32)
    assert np_scalar("fma", x, x, z)[0] == np.float32(2.0**-24)


def test_logic() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert np_scalar("and", x, y).tolist() == [True, False, False, False]
    assert np_scalar("xor", x, y).tolist() == [False, True, True, False]
    assert np_scalar("not", x).tolist() == [False, False, True, True]
    assert np_scalar("max", x, y).tolist() == [True, True, True, False]


@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_float_to_integer_saturates(source: str, target: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.9, -1.9, 3e4, -3e4, 0.5], numpy_dtype(source))
    low, high = integer_range(target)
    wanted = [
        0 if math.isnan(v) else high if v >= high else low if v <= low else int(v) for v in map(float, x)
    ]
    assert [int(v) for v in convert(x, target)] == wanted


def test_extremes_of_64_bits() -> None:
    assert int(convert(np.array(2.0**63), "i64")) == 2**63 - 1
    assert int(convert(np.array(2.0**64), "u64")) == 2**64 - 1
    assert int(convert(np.array(2.0**63), "u64")) == 2**63
    assert int(convert(np.array(-1.0), "u64")) == 0


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("target", INTS)
def test_integers_convert_by_wrapping(source: str, target: str) -> None:
    values = samples(source)
    x = (
        np.array(values, object)
        .astype(np.int64 if source[0] == "i" else np.uint64)
        .astype(numpy_dtype(source))
    )
    assert [int(v) for v in convert(x, target)] == [wrapped(v, target) for v in values]


def test_bool_conversions() -> None:
    assert convert(np.array([0.0, -0.0, np.nan, 0.1]), "bool").tolist() == [False, False, True, True]
    assert convert(np.array([True, False]), "bf16").astype(float).tolist() == [1.0, 0.0]
    assert convert(np.array([0, 3], np.int64), "bool").tolist() == [False, True]


@pytest.mark.parametrize(
    "name", [n for n in DTYPES if DTYPES[n].numpy is not None and n != "f8e8m0"]
)  # has no 0
def test_neutral_elements(name: str) -> None:
    one = np.ones(1, np.int8).astype(numpy_dtype(name))
    for kind, op in (("sum", "add"), ("prod", "mul"), ("max", "max"), ("min", "min")):
        if dtype(name).kind in SCALAR[op].kinds:
            start = np.array([neutral(kind, name)]).astype(numpy_dtype(name))
            assert np_scalar(op, start, one)[0] == one[0]
    assert neutral("all", "bool") is True
    with pytest.raises(GraphError, match="neutral"):
        neutral("argmax", name)


def test_every_op_refuses_what_it_is_not_defined_for() -> None:
    with pytest.raises(GraphError, match="unknown scalar op 'sine'; did you mean 'sin"):
        np_scalar("sine", 1.0)
    with pytest.raises(GraphError, match="takes 2"):
        np_scalar("add", 1.0)
    with pytest.raises(GraphError, match="exp is not defined for i64"):
        np_scalar("exp", 1)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", [n for n, s in SCALAR.items() if s.kinds.startswith("f")])
def test_no_warnings_and_right_type(op: str, name: str) -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 400.0], np.float32).astype(numpy_dtype(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = np_scalar(op, *[x] * SCALAR[op].arity)
    assert got.dtype == (np.bool_ if SCALAR[op].result == "bool" else numpy_dtype(name))
    assert got.shape == (6,)
