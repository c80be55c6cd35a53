"""Random kernels that are well formed and mostly right: every kind of statement and value, sizes of every kind."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from hwsdk.codegen import loop_ir as ir
from hwsdk.graph.dims import ceildiv, minimum, mod, sym

FLOATS = ("f32", "f32", "f64", "f16", "bf16")
INTS = ("i32", "i64", "u8", "i8")
FLOAT_OPS = ("add", "sub", "mul", "max", "min", "div")
INT_OPS = ("add", "sub", "mul", "max", "min", "and", "or", "xor", "div", "mod", "shl", "shr")
UNARY = ("neg", "abs", "exp", "tanh", "sqrt", "floor", "erf", "sign")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


class Maker:
    """Makes one kernel.  `names` are integers in scope with an upper bound (exclusive) that may be None."""

    def __init__(self, random: Random) -> None:
        self.r = random
        self.count = 0
        self.n = random.choice((1, 2, 3, 7, 16, 17, 31, 40))
        self.dtype = random.choice(FLOATS)
        self.itype = random.choice(INTS)
        self.buffers: dict[str, tuple[str, int | None]] = {"x": (self.dtype, None), "k": (self.itype, None)}

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def kernel(self) -> tuple[ir.LoopKernel, dict[str, np.ndarray], dict[str, int]]:
        n = sym("n")
        params = (
            ir.Buffer("x", self.dtype, (n,), "main"),
            ir.Buffer("k", self.itype, (n,), "main"),
            ir.Buffer("o", self.dtype, (n,), "main"),
        )
        if self.r.random() < 0.5:
            tile = self.r.choice((4, 8, 16))
            scope: dict[str, Any] = {"t": None, "n": None}
            body = self.statements(scope, 0, sym("t") * tile, tile, minimum(tile, n - sym("t") * tile))
            loop = ir.For("t", ceildiv(n, tile), body, "parallel")
            whole: tuple[ir.Stmt, ...] = (loop,)
            if self.r.random() < 0.5:
                whole = (ir.Let("q", self.value(self.dtype, {"n": None}, 1, None)), loop)
        else:
            whole = self.statements({"n": None}, 0, 0, 64, n)
        rng = np.random.default_rng(self.r.randrange(1 << 30))
        arrays = {
            "x": _array(rng, self.dtype, self.n),
            "k": _array(rng, self.itype, self.n),
            "o": np.zeros(self.n, _kind(self.dtype)),
        }
        return ir.LoopKernel("random", params, ("n",), whole, ("o",)), arrays, {"n": self.n}

    # ------------------------------------------------------------------------------------------------ statements
    def statements(self, scope: dict[str, Any], depth: int, base: Any, tile: int, active: Any) -> ir.Body:
        """Statements that fill o[base : base + active]."""
        out: list[ir.Stmt] = []
        scope = dict(scope)
        for _ in range(self.r.randrange(3)):
            name = self.fresh("v")
            dtype = self.r.choice((self.dtype, self.itype))
            out.append(ir.Let(name, self.value(dtype, scope, 2, None)))
            scope[name] = dtype
        kind = self.r.randrange(8 if depth < 3 else 3)
        if kind == 0 or (kind == 1 and tile > 64):
            var = self.fresh("i")
            out.append(ir.For(var, active, self.fill(scope, var, base), "serial"))
        elif kind in (1, 2):
            var = self.fresh("l")
            out.append(ir.For(var, tile, self.fill(scope, var, base), "vector", None, active))
        elif kind == 3:
            cond = self.value("bool", scope, 1, None)
            one = self.statements(scope, depth + 1, base, tile, active)
            out.append(ir.If(cond, one, self.statements(scope, depth + 1, base, tile, active)))
        elif kind == 4:
            cases = tuple(self.statements(scope, depth + 1, base, tile, active) for _ in range(2))
            out.append(ir.Switch(mod(active, 2), cases))
        elif kind == 5:
            out.append(ir.Outline(self.fresh("part"), self.statements(scope, depth + 1, base, tile, active)))
        elif kind == 6:
            out.append(self.with_rows_of_its_own(scope, base, active))
        else:
            out.extend(self.through_temporary(scope, base, active))
        return tuple(out)

    def with_rows_of_its_own(self, scope: dict[str, Any], base: Any, active: Any) -> ir.Stmt:
        """A loop whose iterations each fill a small buffer and read it back elsewhere."""
        i, lane, name, lanes = self.fresh("i"), self.fresh("l"), self.fresh("own"), self.r.choice((2, 3))
        inner = {**scope, i: None, lane: lanes}
        fill = ir.Store(name, (sym(lane),), self.value(self.dtype, inner, 2, i))
        first, last = (ir.Load(self.dtype, name, (k,)) for k in (0, lanes - 1))
        copy = ir.Store("o", (base + sym(i),), ir.Binary(self.dtype, "sub", first, last))
        kind = self.r.choice(("vector", "unroll", "serial"))
        body = (
            ir.Alloc(ir.Buffer(name, self.dtype, (lanes,), "main")), ir.For(lane, lanes, (fill,), kind), copy,
        )  # fmt: skip
        return ir.For(i, active, body, "serial")

    def fill(self, scope: dict[str, Any], var: str, base: Any) -> ir.Body:
        inner = {**scope, var: None}
        out: list[ir.Stmt] = []
        if self.r.random() < 0.6:
            name = self.fresh("v")
            dtype = self.r.choice((self.dtype, self.itype))
            out.append(ir.Let(name, self.value(dtype, inner, 2, var)))
            inner[name] = dtype
        where = self.value("bool", inner, 1, var) if self.r.random() < 0.3 else None
        out.append(ir.Store("o", (base + sym(var),), self.value(self.dtype, inner, 3, var), where))
        if self.r.random() < 0.3:
            old = ir.Load(self.dtype, "o", (base + sym(var),))
            value = ir.Binary(self.dtype, "add", old, self.value(self.dtype, inner, 1, var))
            out.append(ir.Store("o", (base + sym(var),), value, where))
        return tuple(out)

    def through_temporary(self, scope: dict[str, Any], base: Any, active: Any) -> list[ir.Stmt]:
        """A 2-d temporary, filled by nested loops (some as lanes), read back into the output."""
        name, rows, lanes = self.fresh("tmp"), self.r.choice((1, 2, 3)), self.r.choice((2, 4, 5))
        i, lane = self.fresh("i"), self.fresh("l")
        kinds = self.r.choice(
            (("unroll", "vector"), ("serial", "vector"), ("serial", "unroll"), ("vector", "vector"))
        )
        inner = {**scope, i: rows, lane: lanes}
        value = self.value(self.dtype, inner, 2, lane)
        body: ir.Body = (ir.Store(name, (sym(i), sym(lane)), value),)
        if self.r.random() < 0.4:
            again = ir.Binary(self.dtype, "mul", ir.Load(self.dtype, name, (sym(i), sym(lane))), value)
            body = (*body, ir.Store(name, (sym(i), sym(lane)), again))
        nest = ir.For(i, rows, (ir.For(lane, lanes, body, kinds[1]),), kinds[0])
        accumulate = self.accumulation(scope, name, rows, lanes) if self.r.random() < 0.5 else ()
        j, total = self.fresh("j"), self.fresh("v")
        r = self.fresh("r")
        reduced = ir.Reduce(
            self.dtype,
            self.r.choice(("sum", "max", "min")),
            r,
            lanes,
            ir.Load(self.dtype, name, (rows - 1, sym(r))),
        )
        element = ir.Load(self.dtype, name, (mod(sym(j), rows), mod(sym(j), lanes)))
        copy = ir.Store(
            "o", (base + sym(j),), ir.Binary(self.dtype, "add", element, ir.Ref(self.dtype, total))
        )
        return [
            ir.Alloc(ir.Buffer(name, self.dtype, (rows, lanes), "main")),
            nest,
            *accumulate,
            ir.Let(total, reduced),
            ir.For(j, active, (copy,), "serial"),
        ]

    def accumulation(self, scope: dict[str, Any], name: str, rows: int, lanes: int) -> tuple[ir.Stmt, ...]:
        """A loop that adds to (some of) the elements of a temporary, with lanes inside, around, or without."""
        k, lane, let = self.fresh("k"), self.fresh("l"), self.fresh("v")
        shape = self.r.choice(("inside", "around", "none", "unroll"))
        element: tuple[Any, ...] = (rows - 1, sym(lane) if shape != "none" else lanes - 1)
        inner = {**scope, k: None, **({lane: lanes} if shape != "none" else {})}
        old = ir.Load(self.dtype, name, element)
        lets: ir.Body = ()
        if self.r.random() < 0.5:
            lets = (ir.Let(let, self.value(self.dtype, inner, 1, k)),)
            inner[let] = self.dtype
        part = self.value(self.dtype, inner, 2, k)
        op = self.r.choice(("add", "mul", "max", "min", "sub"))
        sides = (old, part) if op == "sub" or self.r.random() < 0.5 else (part, old)
        body: ir.Body = (*lets, ir.Store(name, element, ir.Binary(self.dtype, op, *sides)))
        if shape in ("inside", "unroll"):
            body = (ir.For(lane, lanes, body, "vector" if shape == "inside" else "unroll"),)
        loop = ir.For(k, self.r.choice((sym("n"), 3, 0, sym("n") - 1)), body, "serial")
        return (ir.For(lane, lanes, (loop,), "vector"),) if shape == "around" else (loop,)

    # ---------------------------------------------------------------------------------------------------- values
    def index(self, scope: dict[str, Any], var: str | None) -> Any:
        """An index inside 0..n-1 whatever the names are."""
        names = [
            s
            for s, d in scope.items()
            if d is None or isinstance(d, int) or (isinstance(d, str) and d in INTS)
        ]
        e: Any = self.r.randrange(5)
        for _ in range(self.r.randrange(3)):
            e = e + self.r.choice((1, 2, -1, 3)) * sym(self.r.choice(names))
        if var is not None and self.r.random() < 0.6:
            e = e + sym(var)
        return mod(e, sym("n"))

    def value(self, dtype: str, scope: dict[str, Any], depth: int, var: str | None) -> ir.Value:
        r = self.r
        if dtype == "bool":
            other = r.choice((self.dtype, self.itype))
            return ir.Binary(
                "bool", r.choice(COMPARE), *(self.value(other, scope, depth - 1, var) for _ in range(2))
            )
        leaf = depth <= 0
        kind = r.randrange(4 if leaf else 11)
        floating = dtype in FLOATS
        if kind == 0:
            return ir.Const(dtype, r.choice((0.5, -1.25, 3.0)) if floating else r.randrange(8))
        if kind == 1:
            return ir.FromIndex(dtype, self.index(scope, var))
        if kind == 2:
            known = [n for n, d in scope.items() if d == dtype]
            if known:
                return ir.Ref(dtype, r.choice(known))
        if kind <= 3 or leaf:
            where = self.value("bool", scope, 0, var) if r.random() < 0.2 else None
            if dtype in (self.dtype, self.itype):
                return ir.Load(dtype, "x" if dtype == self.dtype else "k", (self.index(scope, var),), where)
            return ir.Const(dtype, 1.5 if floating else 3)
        if kind == 4 and floating:
            return ir.Unary(dtype, r.choice(UNARY), self.value(dtype, scope, depth - 1, var))
        if kind == 5:
            other = self.itype if floating else self.dtype
            return ir.Cast(dtype, self.value(other, scope, depth - 1, var))
        if kind == 6:
            cond, x, y = (self.value(d, scope, depth - 1, var) for d in ("bool", dtype, dtype))
            return ir.Select(dtype, cond, x, y)
        if kind == 7 and floating:
            return ir.Ternary(dtype, "fma", *(self.value(dtype, scope, depth - 1, var) for _ in range(3)))
        if kind == 8:
            name = self.fresh("r")
            inner = {**scope, name: None}
            return ir.Reduce(
                dtype,
                r.choice(("sum", "max", "min")),
                name,
                r.choice((1, 2, 3)),
                self.value(dtype, inner, depth - 1, var),
            )
        shared = self.value(dtype, scope, depth - 1, var)
        other_value = shared if r.random() < 0.4 else self.value(dtype, scope, depth - 1, var)
        return ir.Binary(dtype, r.choice(FLOAT_OPS if floating else INT_OPS), shared, other_value)


def _kind(dtype: str) -> Any:
    from hwsdk.dtypes import numpy_dtype

    return numpy_dtype(dtype)


def _array(rng: np.random.Generator, dtype: str, n: int) -> np.ndarray:
    if dtype in FLOATS:
        return rng.standard_normal(n).astype(_kind(dtype))
    return rng.integers(0, 100, n).astype(_kind(dtype))
