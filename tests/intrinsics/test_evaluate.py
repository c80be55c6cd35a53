"""The evaluator against plain loops that follow the language's rules word by word."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwsdk.intrinsics import SemanticsError, compiled
from hwsdk.intrinsics.evaluate import Evaluator
from hwsdk.intrinsics.numbers import convert, storage
from hwsdk.intrinsics.signature import infer
from hwsdk.intrinsics.syntax import Binary, Call, Cast, Expr, Name, Number, Read, Reduce, Unary, parse
from hwsdk.intrinsics.trials import random_values
from hwsdk.target_desc import load_target
from tests.target_desc.editing import ROOT

RNG = np.random.default_rng(11)


def evaluator(
    text: str, types: dict[str, str], dims: dict[str, int], rounding: str = "each", **more: Any
) -> Evaluator:
    return Evaluator(infer(parse(text), types, dims, **more), rounding)


# ------------------------------------------------------------------------------------------- one element at a time
def loops(
    text: str, types: dict[str, str], dims: dict[str, int], arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The language read literally, with Python integers and f64: enough for exact and for `free` programs."""
    out = {n: np.array(a) for n, a in arrays.items()}

    def value(expr: Expr, at: dict[str, int]) -> Any:
        match expr:
            case Number(value=number):
                return number
            case Name(name=name):
                return at[name]
            case Read(operand=operand, index=index):
                item = out[operand][tuple(int(value(i, at)) for i in index)]
                return int(item) if types[operand][0] in "iu" else float(item)
            case Cast(dtype=dtype, modifiers=modifiers, x=x):
                inner = value(x, at)
                kind = np.int64 if isinstance(inner, int) else np.float64
                done = convert(np.asarray(inner, kind), dtype, modifiers)
                return int(done) if dtype[0] in "iu" else float(done)
            case Reduce(kind=kind, dims=reduced, body=body):
                terms = [
                    value(body, {**at, **dict(zip(reduced, p, strict=True))})
                    for p in itertools.product(*(range(dims[d]) for d in reduced))
                ]
                return {"sum": sum, "max": max, "min": min}[kind](terms)
            case Call(function="select", args=(condition, x, y)):
                return value(x if value(condition, at) else y, at)
            case Call(function="max", args=(x, y)):
                return max(value(x, at), value(y, at))
            case Unary(op="-", x=x):
                return -value(x, at)
            case Binary(op=op, x=x, y=y):
                a, b = value(x, at), value(y, at)
                table: dict[str, Callable[[], Any]] = {
                    "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b,
                    "%": lambda: a % b,
                    "^": lambda: a ^ b, "<": lambda: a < b, ">": lambda: a > b, "==": lambda: a == b,
                }  # fmt: skip
                return table[op]()
        raise AssertionError(expr)

    for statement in parse(text):
        index = statement.index or ()
        names = [
            n
            for n in dims
            if any(isinstance(x, Name) and x.name == n for i in index for x in (i, *i.children))
        ]
        for point in itertools.product(*(range(dims[n]) for n in names)):
            at = dict(zip(names, point, strict=True))
            if statement.where is not None and not value(statement.where, at):
                continue
            place = tuple(int(value(i, at)) for i in index)
            new, dtype = value(statement.expr, at), types[statement.target]
            if statement.assign == "+=":
                new = (int if dtype[0] in "iu" else float)(out[statement.target][place]) + new
            wide = np.asarray(
                new % 2**64 if isinstance(new, int) else new,
                np.uint64 if isinstance(new, int) else np.float64,
            )
            out[statement.target][place] = convert(wide, dtype)
    return out


PROGRAMS = [
    ("acc[m, n] += sum[k](i32(a[m, k]) * i32(b[k, n]))", {"acc": "i32", "a": "i8", "b": "i8"}, "each"),
    ("acc[n, m] += sum[k](i32(a[k, m]) * i32(b[n, k]))", {"acc": "i32", "a": "u8", "b": "i8"}, "each"),
    ("acc[m, n] += sum[k](a[m, k] * b[k, n])", {"acc": "i64", "a": "i64", "b": "i64"}, "each"),
    (
        "acc[m, n] = c[m, n] + sum[k](i32(a[m, k]) * i32(b[n, k]))",
        {"acc": "i32", "c": "i32", "a": "i16", "b": "i16"},
        "each",
    ),
    ("acc[n] += sum[k](i32(a[n, k]) * i32(b[n, k]))", {"acc": "i32", "a": "u8", "b": "i8"}, "each"),
    ("d[n] = i16.sat(sum[k](i32(a[n, k]) * i32(b[n, k])))", {"d": "i16", "a": "u8", "b": "i8"}, "each"),
    ("d[m, n] = x[n, m]", {"d": "i8", "x": "i8"}, "each"),
    ("d[m, n] = x[m] - y[n] * 3", {"d": "i16", "x": "i16", "y": "i16"}, "each"),
    ("d[n] = x[n ^ 1] + i32(n)", {"d": "i32", "x": "i32"}, "each"),
    ("d[n] = select(x[n] > 0, x[n], -x[n])", {"d": "i32", "x": "i32"}, "each"),
    ("d[n] = x[n] where n % 2 == 0", {"d": "i32", "x": "i32"}, "each"),
    ("d[n // 2] += x[n]", {"d": "i32", "x": "i32"}, "each"),
    ("d[] = max[n](x[n])", {"d": "i32", "x": "i32"}, "each"),
    ("d[m] = sum[n, k](x[m, n] + y[k])", {"d": "i32", "x": "i32", "y": "i32"}, "each"),
    ("d[m] = sum[k](x[m])", {"d": "i32", "x": "i32"}, "each"),
    ("d[n] = 3; d[n] += x[n]", {"d": "i32", "x": "i32"}, "each"),
    ("d[m, n] = sum[k](f32(a[m, k]) * f32(s[m, k // 2]))", {"d": "f32", "a": "f4e2m1", "s": "f8e8m0"}, "free"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "types", "rounding"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_equals_loops(text: str, types: dict[str, str], rounding: str) -> None:
    dims = {d: s for d, s in {"m": 3, "n": 4, "k": 6}.items() if f"{d}" in text}
    stated = {
        "s": ("m", "n"),
        "x": ("n",) if "n ^ 1" in text else None,
        "d": ("n",) if "n // 2" in text else None,
    }
    coords = {n: c for n, c in stated.items() if c and n in types}
    run = evaluator(text, types, dims, rounding, coords=coords)
    for _ in range(5):
        arrays = {}
        for name, dtype in types.items():
            shape = tuple(dims[c] for c in run.signature.coords[name])
            values = random_values(RNG, dtype, shape)
            finite = np.where(np.isfinite(values.astype(np.float64)), values.astype(np.float64), 1.0)
            arrays[name] = convert(finite, dtype) if dtype[0] == "f" else values
        got, want = run.run(arrays, dims), loops(text, types, dims, arrays)
        for name in got:
            assert got[name].dtype == storage(types[name])
            assert np.array_equal(got[name], want[name])


# ----------------------------------------------------------------------------------------------------------- rules
def test_given_arrays_are_not_changed() -> None:
    run = evaluator("d[n] += x[n]", {"d": "i32", "x": "i32"}, {"n": 4})
    d = np.ones(4, np.int32)
    assert run.run({"d": d, "x": d}, {"n": 4})["d"].tolist() == [2] * 4
    assert d.tolist() == [1] * 4


def test_what_is_only_written_may_be_left_out() -> None:
    run = evaluator("d[n] = 2", {"d": "f32"}, {"n": 3})
    assert run.run({}, {"n": 3})["d"].tolist() == [2.0] * 3
    with pytest.raises(SemanticsError, match="must be given"):
        evaluator("d[n] += 2", {"d": "f32"}, {"n": 3}).run({}, {"n": 3})


def test_memory_under_a_false_condition_is_not_touched() -> None:
    types = {"d": "f32", "x": "f32", "m": "bool"}
    load = evaluator("d[n] = select(m[n], x[n], 0)", types, {"n": 8})
    short = {"x": np.float32([1, 2, 3]), "m": np.arange(8) < 3}
    assert load.run(short, {"n": 8})["d"].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert load.run({"x": np.zeros(0, np.float32), "m": np.zeros(8, bool)}, {"n": 8})["d"].tolist() == [0] * 8
    with pytest.raises(SemanticsError, match=r"outside 0\.\.2"):
        load.run({**short, "m": np.arange(8) < 4}, {"n": 8})
    store = evaluator("d[n] = x[n] where m[n]", types, {"n": 8})
    out = store.run(
        {"d": np.zeros(3, np.float32), "x": np.ones(8, np.float32), "m": np.arange(8) < 3}, {"n": 8}
    )["d"]
    assert out.tolist() == [1, 1, 1]


def test_outside_is_an_error() -> None:
    run = evaluator("d[n] = x[i[n]]", {"d": "f32", "x": "f32", "i": "i32"}, {"n": 4}, coords={"x": ("n",)})
    good = {"x": np.float32([1, 2, 3, 4]), "i": np.int32([3, 2, 1, 0])}
    assert run.run(good, {"n": 4})["d"].tolist() == [4, 3, 2, 1]
    for bad in (4, -1):
        with pytest.raises(SemanticsError, match=rf"x\[\] index {bad} is outside 0..3"):
            run.run({**good, "i": np.int32([bad, 0, 0, 0])}, {"n": 4})
    with pytest.raises(SemanticsError, match="has shape"):
        evaluator("d[n] = x[n]", {"d": "f32", "x": "f32"}, {"n": 4}).run(
            {"x": np.zeros(3, np.float32)}, {"n": 4}
        )


def test_runtime_extents_touch_only_their_part() -> None:
    run = evaluator("acc[n] += x[n]", {"acc": "i32", "x": "i32"}, {"n": 8})
    out = run.run({"acc": np.zeros(8, np.int32), "x": np.ones(8, np.int32)}, {"n": 3})["acc"]
    assert out.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert (
        run.run({"acc": np.zeros(8, np.int32), "x": np.ones(8, np.int32)}, {"n": 0})["acc"].tolist()
        == [0] * 8
    )


def test_nan_propagates_through_max_and_min() -> None:
    x, y = np.float32([np.nan, 1, 2]), np.float32([1, np.nan, 3])
    run = evaluator("d[n] = max(x[n], y[n])", {"d": "f32", "x": "f32", "y": "f32"}, {"n": 3})
    assert np.isnan(run.run({"x": x, "y": y}, {"n": 3})["d"]).tolist() == [True, True, False]
    whole = evaluator("d[] = min[n](x[n])", {"d": "f32", "x": "f32"}, {"n": 3})
    assert np.isnan(whole.run({"x": x}, {"n": 3})["d"])
    with pytest.raises(SemanticsError, match="max of nothing"):
        evaluator("d[] = max[n](x[n])", {"d": "f32", "x": "f32"}, {"n": 3}).run({"x": x}, {"n": 0})


def test_rounding_words() -> None:
    a = np.float32([1 + 2.0**-12])
    args = {"acc": np.float32([-1]), "a": a, "b": a}
    text, types = "acc[n] += a[n] * b[n]", {"acc": "f32", "a": "f32", "b": "f32"}
    each = evaluator(text, types, {"n": 1}, "each").run(args, {"n": 1})["acc"][0]
    fused = evaluator(text, types, {"n": 1}, "fused").run(args, {"n": 1})["acc"][0]
    assert each == np.float32(a[0] * a[0]) - 1
    assert fused == np.float32(2.0**-11 + 2.0**-24)
    half = evaluator("d[n] = x[n] + y[n] + y[n]", {"d": "bf16", "x": "bf16", "y": "bf16"}, {"n": 1}, "each")
    small = {"x": convert(np.array([1.0]), "bf16"), "y": convert(np.array([2.0**-8]), "bf16")}
    assert float(half.run(small, {"n": 1})["d"][0]) == 1.0
    once = evaluator("d[n] = x[n] + y[n] + y[n]", {"d": "bf16", "x": "bf16", "y": "bf16"}, {"n": 1}, "free")
    assert float(once.run(small, {"n": 1})["d"][0]) == 1 + 2.0**-7


def test_denormals_can_be_flushed() -> None:
    tiny = np.float32([2.0**-130, 1.0])
    sig = infer(parse("d[n] = x[n] * 2"), {"d": "f32", "x": "f32"}, {"n": 2})
    assert Evaluator(sig, "each", "flush").run({"x": tiny}, {"n": 2})["d"].tolist() == [0.0, 2.0]
    assert Evaluator(sig, "each", "keep").run({"x": tiny}, {"n": 2})["d"].tolist() == [2.0**-129, 2.0]


def test_functions_are_computed_in_f64_and_rounded() -> None:
    x = np.float32([0.1, -2.5, 3.0])
    for name, want in {
        "exp": np.exp,
        "tanh": np.tanh,
        "rsqrt": lambda v: 1 / np.sqrt(v),
        "abs": np.abs,
        "round": np.rint,
    }.items():
        run = evaluator(f"d[n] = {name}(x[n])", {"d": "f32", "x": "f32"}, {"n": 3})
        with np.errstate(all="ignore"):
            expected = want(x.astype(np.float64)).astype(np.float32)
        assert np.array_equal(run.run({"x": x}, {"n": 3})["d"], expected, equal_nan=True)


def test_fast_enough_for_a_simulator() -> None:
    """A hundred thousand tile products must be seconds, not minutes: one costs well under a millisecond."""
    mma = compiled(load_target(ROOT / "examples/new_chip/npu.yaml"))["mma_bf16"]
    args = {
        "acc": np.zeros((16, 16), np.float32),
        "a": np.ones((16, 16), storage("bf16")),
        "b": np.ones((16, 16), storage("bf16")),
    }
    mma.evaluate(args)
    began = time.process_time()
    for _ in range(200):
        out = mma.evaluate(args)
    assert (time.process_time() - began) / 200 < 1e-3
    assert (out["acc"] == 16).all()


def test_illegal_extents_are_refused() -> None:
    add = compiled(load_target(ROOT / "examples/new_chip/npu.yaml"))["vadd_f32"]
    x = np.ones(70, np.float32)
    with pytest.raises(SemanticsError, match=r"n = 65 is not in 0\.\.64"):
        add.evaluate({"x": x[:65], "y": x[:65]}, {"n": 65})
    with pytest.raises(SemanticsError, match="has no dim 'z'"):
        add.evaluate({"x": x[:4], "y": x[:4]}, {"z": 4})
    assert add.evaluate({"x": x[:4], "y": x[:4]}, {"n": 4})["d"].tolist() == [2] * 4
