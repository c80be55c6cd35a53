"""A second interpreter of LoopIR, as slow and plain as possible: the machine must agree with it.

Lanes are dictionaries, a statement is executed lane by lane, values are recomputed by the definitions of `np_scalar`
and `convert`.  It shares no code with the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwsdk.codegen import loop_ir as ir
from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.graph.dims import evaluate
from hwsdk.graph.scalar import convert, neutral, np_scalar

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


class NaiveFault(Exception):
    """Out of bounds, uninitialised, clash of lanes."""


class Naive:
    def __init__(self, kernel: ir.LoopKernel, arrays: dict[str, np.ndarray], dims: dict[str, int]) -> None:
        self.kernel = kernel
        self.data: dict[str, np.ndarray] = {}
        self.valid: dict[str, np.ndarray] = {}
        self.dims = dims
        for p in kernel.params:
            self.data[p.name] = arrays[p.name].reshape([evaluate(e, dims) for e in p.shape])
            self.valid[p.name] = np.full(self.data[p.name].shape, p.name not in kernel.outputs)

    def run(self) -> None:
        loop = ir.parallel_loop(self.kernel)
        if loop is None:
            self.body(self.kernel.body, [dict(self.dims)])
            return
        env = dict(self.dims)
        self.body([s for s in self.kernel.body if isinstance(s, ir.Let)], [env])
        for p in range(evaluate(loop.extent, env)):
            mine = dict(self.dims)
            for stmt in self.kernel.body:
                if stmt is loop:
                    mine[loop.var] = p
                    self.body(loop.body, [mine])
                else:
                    self.statement(stmt, [mine])

    def body(self, body: Any, lanes: list[dict[str, Any]]) -> None:
        for stmt in body:
            self.statement(stmt, lanes)

    def inner(self, body: Any, lanes: list[dict[str, Any]], extra: list[dict[str, Any]]) -> None:
        self.body(body, [{**lane, **e} for lane, e in zip(lanes, extra)])

    def statement(self, stmt: ir.Stmt, lanes: list[dict[str, Any]]) -> None:
        match stmt:
            case ir.Let(name=name, value=value):
                for lane, x in zip(lanes, [self.value(value, lane) for lane in lanes]):
                    lane[name] = x
            case ir.Alloc(buffer=b):
                shape = [evaluate(e, self.ints(lanes[0])) for e in b.shape]
                self.data[b.name] = np.zeros(shape, numpy_dtype(b.dtype))
                self.valid[b.name] = np.zeros(shape, bool)
            case ir.Store():
                self.store(stmt, lanes)
            case ir.For():
                self.loop(stmt, lanes)
            case ir.If(cond=cond, then=then, orelse=orelse):
                truth = bool(self.value(cond, lanes[0]))
                self.inner(then if truth else orelse, lanes, [{}] * len(lanes))
            case ir.Switch(index=index, cases=cases):
                i = evaluate(index, self.ints(lanes[0]))
                if not 0 <= i < len(cases):
                    raise NaiveFault("switch")
                self.inner(cases[i], lanes, [{}] * len(lanes))
            case ir.Outline(body=body):
                self.inner(body, lanes, [{}] * len(lanes))
            case _:
                raise NotImplementedError(stmt)

    def loop(self, loop: ir.For, lanes: list[dict[str, Any]]) -> None:
        extent = evaluate(loop.extent, self.ints(lanes[0]))
        if loop.kind == "vector":
            if loop.active is not None:
                extent = min(extent, evaluate(loop.active, self.ints(lanes[0])))
            many = [{**lane, loop.var: i} for lane in lanes for i in range(extent)]
            if many:
                self.body(loop.body, many)
            return
        for i in range(extent):
            self.inner(loop.body, lanes, [{loop.var: i}] * len(lanes))

    def store(self, stmt: ir.Store, lanes: list[dict[str, Any]]) -> None:
        values = [self.value(stmt.value, lane) for lane in lanes]
        where = [stmt.where is None or bool(self.value(stmt.where, lane)) for lane in lanes]
        seen = set()
        for lane, value, active in zip(lanes, values, where):
            if active:
                at = self.index(stmt.buffer, stmt.index, lane)
                if at in seen:
                    raise NaiveFault("clash")
                seen.add(at)
                self.data[stmt.buffer][at] = value
                self.valid[stmt.buffer][at] = True

    def index(self, buffer: str, index: Any, lane: dict[str, Any]) -> tuple[int, ...]:
        at = tuple(int(evaluate(i, self.ints(lane))) for i in index)
        for i, n in zip(at, self.data[buffer].shape):
            if not 0 <= i < n:
                raise NaiveFault(f"bounds {buffer}{at}")
        return at

    def ints(self, lane: dict[str, Any]) -> dict[str, int]:
        return {k: int(v) for k, v in lane.items() if isinstance(v, int | np.integer)}

    def value(self, value: ir.Value, lane: dict[str, Any]) -> Any:
        go = self.value
        match value:
            case ir.Const(dtype=dtype, value=x):
                return convert(
                    np.array(x, numpy_dtype(dtype) if DTYPES[dtype].kind in "iu" else None), dtype
                )[()]
            case ir.Load(dtype=dtype, buffer=buffer, index=index, where=where):
                if where is not None and not go(where, lane):
                    return np.zeros((), numpy_dtype(dtype))[()]
                at = self.index(buffer, index, lane)
                if not self.valid[buffer][at]:
                    raise NaiveFault(f"uninitialised {buffer}{at}")
                return self.data[buffer][at]
            case ir.Ref(name=name):
                return lane[name]
            case ir.FromIndex(dtype=dtype, index=index):
                return convert(np.array(evaluate(index, self.ints(lane)), np.int64), dtype)[()]
            case ir.Unary(op=op, x=x):
                return np_scalar(op, go(x, lane))[()]
            case ir.Binary(op=op, x=x, y=y):
                return np_scalar(op, go(x, lane), go(y, lane))[()]
            case ir.Ternary(op=op, x=x, y=y, z=z):
                return np_scalar(op, go(x, lane), go(y, lane), go(z, lane))[()]
            case ir.Select(cond=cond, x=x, y=y):
                c, a, b = go(cond, lane), go(x, lane), go(y, lane)
                return a if c else b
            case ir.Cast(dtype=dtype, x=x, mode="value"):
                return convert(go(x, lane), dtype)[()]
            case ir.Cast(dtype=dtype, x=x):
                return np.asarray(go(x, lane)).view(numpy_dtype(dtype))[()]
            case ir.Reduce(op=op, var=var, extent=extent, value=x, dtype=dtype):
                if extent == 0:
                    return convert(np.array(neutral(op, dtype)), dtype)[()]
                total = go(x, {**lane, var: 0})
                for i in range(1, extent):
                    total = np_scalar(COMBINE[op], total, go(x, {**lane, var: i}))[()]
                return total
        raise NotImplementedError(value)
