"""Random kernels: the compiled code against the machine that defines LoopIR, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    LoopKernel,
    Ref,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.loop_text import print_kernel
from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.dims import ceildiv, minimum, sym
from tests.codegen.llvm_harness import agree

DTYPE = some.sampled_from("f32 f64 f16 bf16 i64 i32 i16 i8 u64 u32 u16 u8 bool".split())
FLOAT = "add sub mul div max min".split()
INTEGER = "add sub mul div floordiv mod fmod max min and or xor shl shr".split()
COMPARE = "eq ne lt le gt ge".split()
Draw = Callable[[Any], Any]


def literal(draw: Draw, dtype: str) -> Const:
    kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
    if kind == "b":
        return Const(dtype, draw(some.booleans()))
    if kind == "f":
        return Const(
            dtype, draw(some.sampled_from([0.0, -0.0, 1.0, -2.5, 3.0, 1e-3, float("inf"), float("nan")]))
        )
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "i" else (0, (1 << bits) - 1)
    return Const(dtype, draw(some.sampled_from([low, high, 0, 1, 2, 3, 7, max(low, -1)])))


class Maker:
    """Values over the buffers x0, x1 and the names in scope."""

    def __init__(self, draw: Draw, dtypes: dict[str, str], index: Index, lets: dict[str, str]) -> None:
        self.draw, self.dtypes, self.index, self.lets = draw, dtypes, index, lets
        self.made: list[Value] = []

    def leaf(self, dtype: str) -> Value:
        choices: list[Value] = [literal(self.draw, dtype)]
        for name, have in self.dtypes.items():
            load = Load(have, name, (self.index,))
            choices += [load if have == dtype else Cast(dtype, load)] * 2
        for name, have in self.lets.items():
            choices.append(Ref(have, name) if have == dtype else Cast(dtype, Ref(have, name)))
        choices += [v for v in self.made if v.dtype == dtype]
        if DTYPES[dtype].kind in "iu" and DTYPES[dtype].bits >= 32:
            choices.append(FromIndex(dtype, self.index))
        return self.draw(some.sampled_from(choices))

    def value(self, dtype: str, depth: int) -> Value:
        if depth == 0:
            return self.leaf(dtype)
        made = self.operation(dtype, depth - 1)
        self.made.append(made)
        return made

    def operation(self, dtype: str, depth: int) -> Value:
        kind = DTYPES[dtype].kind
        pick = self.draw(some.integers(0, 9))
        if pick == 0:
            return Select(
                dtype, self.value("bool", depth), self.value(dtype, depth), self.value(dtype, depth)
            )
        if pick == 1:
            return Cast(dtype, self.value(self.draw(DTYPE), depth))
        if kind == "b":
            if pick < 5:
                other = self.draw(DTYPE)
                return Binary(
                    "bool",
                    self.draw(some.sampled_from(COMPARE)),
                    self.value(other, depth),
                    self.value(other, depth),
                )
            op = self.draw(some.sampled_from("and or xor max min not".split()))
            if op == "not":
                return Unary("bool", op, self.value("bool", depth))
            return Binary("bool", op, self.value("bool", depth), self.value("bool", depth))
        if pick == 2:
            unary = (
                "neg abs sign floor ceil round trunc sqrt".split()
                if kind == "f"
                else "neg abs sign bitnot".split()
            )
            return Unary(dtype, self.draw(some.sampled_from(unary)), self.value(dtype, depth))
        op = self.draw(some.sampled_from(FLOAT if kind == "f" else INTEGER))
        return Binary(dtype, op, self.value(dtype, depth), self.value(dtype, depth))


@some.composite
def kernels(draw: Draw) -> tuple[LoopKernel, dict[str, str]]:
    """y[i, ...] = values of x, in one of several loop shapes, with Lets, branches, conditions and a register."""
    n, m = sym("n"), sym("m")
    i, j, lane = sym("i"), sym("j"), sym("l")
    lanes = draw(some.sampled_from([1, 2, 4, 8]))
    dtypes = {"x0": draw(DTYPE), "x1": draw(DTYPE)}
    out = draw(DTYPE)
    at: Index = i * m + j * lanes + lane
    lets: dict[str, str] = {}
    body: list[Stmt] = []
    maker = Maker(draw, dtypes, at, lets)
    for name in ("a", "b")[: draw(some.integers(0, 2))]:
        dtype = draw(DTYPE)
        body.append(Let(name, maker.value(dtype, draw(some.integers(0, 2)))))
        lets[name] = dtype
    result = maker.value(out, draw(some.integers(0, 3)))
    where = maker.value("bool", 1) if draw(some.booleans()) else None
    before: list[Stmt] = []
    if draw(some.booleans()):
        before.append(Alloc(Buffer("r", out, (lanes,), "vreg")))
        body += [
            Store("r", (lane,), literal(draw, out)),
            Store("r", (lane,), result, where),
            Store("y", (at,), Load(out, "r", (lane,))),
        ]
    else:
        body.append(Store("y", (at,), result, where))
    if draw(some.booleans()):
        cond = Binary("bool", "lt", FromIndex("i64", i + j), Const("i64", draw(some.integers(0, 4))))
        body = [If(cond, tuple(body), (Store("y", (at,), literal(draw, out)),))]
    active = draw(some.sampled_from([None, m - j * lanes, minimum(m - j * lanes, lanes)]))
    inner: Body = (
        *before,
        For("l", lanes, tuple(body), "vector", active=active),
    )
    trips = ceildiv(m, lanes) if active is not None else m // lanes
    outer = draw(some.sampled_from(["serial", "parallel"]))
    loops = For("i", n, (For("j", trips, inner),), outer, "core" if outer == "parallel" else None)
    params = (
        *(Buffer(b, d, (n * m,), "dram") for b, d in dtypes.items()),
        Buffer("y", out, (n * m,), "dram"),
    )
    return LoopKernel("k", params, ("n", "m"), (loops,), ("y",)), {**dtypes, "y": out}


def contents(dtype: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype].kind
    if kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if kind == "f":
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e-30, 6e4]
        values = np.where(rng.random(count) < 0.3, rng.choice(special, count), rng.normal(0, 3, count))
        with np.errstate(all="ignore"):
            return values.astype(np.float32).astype(numpy_dtype(dtype))
    info = ml_dtypes.iinfo(numpy_dtype(dtype))
    edges = np.array([info.min, info.max, 0, 1, 2, 3], dtype=numpy_dtype(dtype))
    small = rng.integers(0, 9, count).astype(numpy_dtype(dtype))
    return np.where(rng.random(count) < 0.4, rng.choice(edges, count), small)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), some.integers(0, 3), some.integers(0, 19), some.integers(0, 1 << 30))
def test_random_kernels(made: tuple[LoopKernel, dict[str, str]], n: int, m: int, seed: int) -> None:
    kernel, dtypes = made
    note(print_kernel(kernel))
    arrays = {name: contents(dtype, n * m, seed + k) for k, (name, dtype) in enumerate(dtypes.items())}
    agree(kernel, arrays, {"n": n, "m": m})
