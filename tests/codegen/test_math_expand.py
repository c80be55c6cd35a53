"""Elementary functions: error in units of the last place against extended precision, and every special value."""

from __future__ import annotations

import dataclasses
import math
from types import MappingProxyType

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import Binary, Buffer, For, Load, LoopKernel, Store, Unary, Value
from hwsdk.codegen.math_expand import CHEAPER, FUNCTIONS
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import ceildiv, sym
from hwsdk.graph.scalar import np_scalar
from hwsdk.target_desc.model import MathFunction, Numerics, Target
from tests.codegen.llvm_harness import Compiled, host_target

# op -> largest error in units of the last place that is accepted: (f32, f64)
LIMITS = {
    "exp": (1.0, 1.0), "exp2": (1.0, 1.0), "expm1": (1.5, 2.0), "log": (1.1, 1.0), "log2": (2.0, 1.5),
    "log1p": (2.0, 2.0), "tanh": (2.5, 3.0), "erf": (2.5, 2.2), "sin": (1.6, 1.0), "cos": (1.6, 1.0),
    "tan": (3.3, 2.3), "asin": (2.0, 2.3), "acos": (1.5, 1.5), "atan": (1.6, 2.0), "sinh": (2.0, 2.0),
    "cosh": (1.6, 1.6), "asinh": (2.6, 2.6), "acosh": (2.6, 2.6), "atanh": (2.6, 2.6), "rsqrt": (1.6, 1.6),
    "reciprocal": (0.51, 0.51), "pow": (0.6, 1.7), "atan2": (2.0, 2.6), "fmod": (0.0, 0.0), "mod": (0.51, 0.51),
    "floordiv": (2.0, 2.0),
}  # fmt: skip
BINARY = frozenset("pow atan2 fmod mod floordiv".split())
LANES = 8


def function_kernel(op: str, dtype: str, arity: int, lanes: int = LANES) -> LoopKernel:
    n, i, lane = sym("n"), sym("i"), sym("l")
    at = i * lanes + lane
    params = [Buffer(f"x{k}", dtype, (n,), "dram") for k in range(arity)]
    x: list[Value] = [Load(dtype, b.name, (at,)) for b in params]
    value = Unary(dtype, op, x[0]) if arity == 1 else Binary(dtype, op, x[0], x[1])
    inner = For("l", lanes, (Store("y", (at,), value),), "vector", active=n - i * lanes)
    body = (For("i", ceildiv(n, lanes), (inner,)),)
    return LoopKernel("k", (*params, Buffer("y", dtype, (n,), "dram")), ("n",), body, ("y",))


def evaluate(op: str, dtype: str, *x: np.ndarray, target: Target | None = None) -> np.ndarray:
    y = np.zeros_like(x[0])
    compiled = Compiled(function_kernel(op, dtype, len(x)), target)
    compiled.run({**{f"x{k}": a for k, a in enumerate(x)}, "y": y}, {"n": len(y)})
    return y


def samples(dtype: str, count: int, seed: int) -> np.ndarray:
    """Special values, all exponents, and the ranges where the functions bend."""
    rng = np.random.default_rng(seed)
    t = numpy_dtype(dtype)
    info = np.finfo(t)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, info.max, -info.max, info.tiny, -info.tiny, 0.5, -0.5, 2, -2, 1e5,
         88.7, -87.3, -103, 89, 104, 709, -745, 1e20, -1e20, 3, -3, 4, -4, info.smallest_subnormal,
         -info.smallest_subnormal, np.nextafter(t.type(1), t.type(0)), np.nextafter(t.type(1), t.type(2))], t
    )  # fmt: skip
    low, high = (-140, 127) if dtype == "f32" else (-1070, 1023)
    wide = (
        rng.uniform(1, 2, count) * np.ldexp(1.0, rng.integers(low, high, count)) * rng.choice([-1, 1], count)
    )
    near = 1 + rng.normal(0, 1, count) * np.ldexp(1.0, -rng.integers(1, 20, count))
    spans = [
        rng.normal(0, 1, count),
        rng.uniform(-100, 100, count),
        rng.uniform(-1, 1, count),
        rng.uniform(-5, 5, count),
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([special, wide.astype(t), near.astype(t), *(s.astype(t) for s in spans)])


def reference(op: str, *x: np.ndarray) -> np.ndarray:
    wide = [a.astype(np.longdouble) for a in x]
    with np.errstate(all="ignore"):
        if op == "erf":
            return np.array([math.erf(float(v)) for v in x[0]], np.longdouble)
        if op == "rsqrt":
            return 1 / np.sqrt(wide[0])
        names = {
            "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
            "atanh": "arctanh", "pow": "power", "atan2": "arctan2", "floordiv": "floor_divide",
        }  # fmt: skip
        return getattr(np, names.get(op, op))(*wide)  # type: ignore[no-any-return]


def errors(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(error in units of the last place where both are finite, where the rest is wrong)."""
    t = got.dtype
    with np.errstate(all="ignore"):
        rounded = want.astype(t)
        unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(t).tiny)).astype(np.longdouble)
        finite = np.isfinite(rounded) & np.isfinite(got)
        ulps = np.where(finite, np.abs(got.astype(np.longdouble) - want) / np.where(finite, unit, 1), 0)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return ulps, (~finite & ~same) | zero


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision to compare with")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", LIMITS)
def test_error(op: str, dtype: str) -> None:
    x = [samples(dtype, 4000, seed) for seed in range(1 + (op in BINARY))]
    if op in BINARY:
        grid = np.meshgrid(x[0][:33], x[1][:33])
        x = [np.concatenate([a, g.ravel()]) for a, g in zip(x, grid)]
        if op == "pow":
            x = [np.concatenate([x[0], np.abs(x[0])]), np.concatenate([x[1], x[1]])]
    ulps, wrong = errors(evaluate(op, dtype, *x), reference(op, *x))
    limit = LIMITS[op][dtype == "f64"]
    worst = int(ulps.argmax())
    assert ulps[worst] <= limit, f"{float(ulps[worst]):.2f} ulp at {[float(a[worst]) for a in x]}"
    assert not wrong.any(), [[float(a[i]) for a in x] for i in np.flatnonzero(wrong)[:5]]


def test_every_function_has_a_limit() -> None:
    assert set(FUNCTIONS) == set(LIMITS)


@pytest.mark.parametrize("op", CHEAPER)
def test_a_target_may_allow_a_larger_error(op: str) -> None:
    allowed = MappingProxyType({op: MathFunction(6.0)})
    target = dataclasses.replace(host_target(), numerics=Numerics(functions=allowed))
    x = samples("f32", 4000, 1)
    got = evaluate(op, "f32", x, target=target)
    ulps, wrong = errors(got, reference(op, x))
    assert ulps.max() <= 5.5
    assert not wrong.any()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "sin", "rsqrt"])
def test_narrow_floats_round_once(op: str, dtype: str) -> None:
    x = np.random.default_rng(3).normal(0, 2, 4000).astype(numpy_dtype(dtype))
    got, want = (evaluate(op, dtype, x).astype(np.float64), np_scalar(op, x).astype(np.float64))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert same.mean() > 0.995  # the definition rounds from f64; a last bit may differ
    unit = 2.0**-10 if dtype == "f16" else 2.0**-7
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=unit, atol=1e-7)


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8", "u64"])
def test_powers_of_integers(dtype: str) -> None:
    rng = np.random.default_rng(5)
    signed = dtype[0] == "i"
    x = rng.integers(-9 if signed else 0, 10, 4000).astype(numpy_dtype(dtype))
    y = rng.integers(-3 if signed else 0, 40, 4000).astype(numpy_dtype(dtype))
    np.testing.assert_array_equal(evaluate("pow", dtype, x, y), np_scalar("pow", x, y))


def test_constant_exponents() -> None:
    from hwsdk.codegen.loop_ir import Const
    from hwsdk.codegen.math_expand import expand

    x = Load("f32", "x", (0,))
    assert isinstance(expand(Binary("f32", "pow", x, Const("f32", 2.0)), "f32", {}), Binary)
    assert expand(Binary("f32", "pow", x, Const("f32", 1)), "f32", {}) is x


def test_unknown_operation() -> None:
    from hwsdk.codegen.math_expand import expand

    with pytest.raises(CodegenError, match="no operation 'gamma' on f32"):
        expand(Unary("f32", "gamma", Load("f32", "x", (0,))), "f32", {})
