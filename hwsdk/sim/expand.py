"""Uses of simple intrinsics as plain LoopIR, so that the machine runs them as fast as plain statements.

    use fma(acc = &c[i, 0], a = &x[0], b = &y[0])   with acc[n] += a[n] * b[n], n: 16, becomes
    vector n < 16 { c[i, n] = fma(x[n], y[n], c[i, n]) }

Done for chips whose cores reorder instructions themselves (codegen.model simd): there a use counts its unit
and its interval, and latencies are taken as hidden.  A use is left alone if it is asynchronous, conditional,
saturating, or lies in memory in a way that an index cannot say.

Design choice: what is expanded means the same by the rules of both languages; only a fused f32 product is
computed through f64, as LoopIR's own fma is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwsdk.codegen import loop_ir as ir
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import sym
from hwsdk.intrinsics import CompiledIntrinsic, SemanticsError, compiled
from hwsdk.intrinsics import syntax as text
from hwsdk.sim.cells import row_major
from hwsdk.target_desc.model import Target

_INFIX = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
}
_CALLS = frozenset("max min abs exp exp2 log log2 sqrt tanh erf sin cos floor ceil round".split())
_ARITHMETIC = ("+", "-", "*", "/")


class _NoExpansion(Exception):
    """This use stays a use."""


def expand_kernel(kernel: ir.LoopKernel, target: Target) -> tuple[ir.LoopKernel, dict[int, ir.Intrin]]:
    """The kernel with simple uses expanded; and the use behind each loop (by the id of its For) that was put
    in."""
    origins: dict[int, ir.Intrin] = {}
    buffers = {b.name: b for b in kernel.params}
    body = _Expander(target, origins).body(kernel.body, buffers)
    return replace(kernel, body=body), origins


class _Expander:
    def __init__(self, target: Target, origins: dict[int, ir.Intrin]) -> None:
        self.target, self.origins, self.count = target, origins, 0

    def body(self, body: ir.Body, outer: Mapping[str, ir.Buffer]) -> ir.Body:
        buffers = dict(outer)
        return tuple(self.statement(s, buffers) for s in body)

    def statement(self, stmt: ir.Stmt, buffers: dict[str, ir.Buffer]) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=b):
                buffers[b.name] = b
            case ir.For(body=body) | ir.Outline(body=body):
                return replace(stmt, body=self.body(body, buffers))
            case ir.If(then=then, orelse=orelse):
                return replace(stmt, then=self.body(then, buffers), orelse=self.body(orelse, buffers))
            case ir.Switch(cases=cases):
                return replace(stmt, cases=tuple(self.body(c, buffers) for c in cases))
            case ir.Intrin(name=name):
                try:
                    loop = _Translation(compiled(self.target)[name], stmt, buffers, self.fresh()).loop()
                except (_NoExpansion, SemanticsError):
                    return stmt
                self.origins[id(loop)] = stmt
                return loop
        return stmt

    def fresh(self) -> str:
        self.count += 1
        return f"$u{self.count}"


class _Translation:
    """One use as a nest of vector loops around one store."""

    def __init__(
        self, intrinsic: CompiledIntrinsic, use: ir.Intrin, buffers: Mapping[str, ir.Buffer], prefix: str
    ) -> None:
        self.intrinsic, self.buffers, self.prefix = intrinsic, buffers, prefix
        self.operands = dict(use.operands)
        self.rounding = intrinsic.spec.rounding
        self.require(not use.dims and len(intrinsic.program) == 1)
        self.require((intrinsic.spec.denormals or intrinsic.target.numerics.denormals) == "keep")
        self.require(intrinsic.target.unit(intrinsic.spec.unit).completion is None)
        self.require(intrinsic.lanes == 1)

    def require(self, ok: object) -> None:
        if not ok:
            raise _NoExpansion

    def name(self, dim: str) -> str:
        return f"{self.prefix}.{dim}"

    def loop(self) -> ir.For:
        statement = self.intrinsic.program[0]
        self.require(
            statement.where is None and statement.assign in ("=", "+=") and statement.index is not None
        )
        names = [i.name for i in statement.index or () if isinstance(i, text.Name)]
        self.require(names and len(names) == len(statement.index or ()) == len(set(names)))
        target = text.Read(statement.target, statement.index or ())
        view, index = self.place(target)
        value = self.assigned(statement, target)
        body: ir.Body = (ir.Store(view.buffer, index, value),)
        for dim in reversed(names):
            body = (ir.For(self.name(dim), self.intrinsic.dims[dim], body, "vector"),)
        loop = body[0]
        assert isinstance(loop, ir.For)
        return loop

    def assigned(self, statement: text.Statement, target: text.Read) -> ir.Value:
        """The value stored, by the rules of `rounding`."""
        dtype = self.intrinsic.operands[statement.target].dtype
        floats = DTYPES[dtype].kind == "f"
        expr = statement.expr
        if self.rounding == "fused" and floats and not isinstance(expr, text.Read):
            self.require(statement.assign == "+=" and isinstance(expr, text.Binary) and expr.op == "*")
            assert isinstance(expr, text.Binary)
            return ir.Ternary(dtype, "fma", *(self.value(x, dtype) for x in (expr.x, expr.y, target)))
        if self.rounding == "free" and floats:  # exact until assigned: in f64
            value = self.exact(expr)
            if statement.assign == "+=":
                value = ir.Binary("f64", "add", self.exact(target), value)
            return ir.Cast(dtype, value)
        value = self.value(expr, dtype)
        return value if statement.assign == "=" else ir.Binary(dtype, "add", self.value(target, dtype), value)

    # ------------------------------------------------------------------------------------------------- values
    def value(self, expr: text.Expr, dtype: str) -> ir.Value:
        """The expression in `dtype`, every operation rounded."""
        match expr:
            case text.Number(value=x):
                return ir.Const(dtype, float(x) if DTYPES[dtype].kind == "f" else x)
            case text.Read(operand=operand):
                self.require(self.intrinsic.operands[operand].dtype == dtype)
                view, index = self.place(expr)
                return ir.Load(dtype, view.buffer, index)
            case text.Name(name=name):
                return self.scalar(name, dtype)
            case text.Cast(dtype=to, modifiers=(), x=x):
                source = self.dtype(x)
                self.require(to == dtype and (DTYPES[to].kind == "f" or DTYPES[source].kind in "iu"))
                return ir.Cast(to, self.value(x, source))
            case text.Binary(op=op, x=x, y=y) if op in _ARITHMETIC:
                self.require(op != "/" or DTYPES[dtype].kind == "f")
                return ir.Binary(dtype, _INFIX[op], self.value(x, dtype), self.value(y, dtype))
            case text.Unary(op="-", x=x):
                return ir.Unary(dtype, "neg", self.value(x, dtype))
            case text.Call(function=name, args=args) if name in _CALLS:
                parts = [self.value(a, dtype) for a in args]
                return ir.Binary(dtype, name, *parts) if len(parts) == 2 else ir.Unary(dtype, name, *parts)
            case text.Reduce(kind="sum", dims=dims, body=x) if DTYPES[dtype].kind in "iu":
                return self.sums(dims, self.value(x, dtype))
        raise _NoExpansion

    def exact(self, expr: text.Expr) -> ir.Value:
        """A sum of products in f64; casts between floats are exact there."""
        match expr:
            case text.Read(operand=operand):
                dtype = self.intrinsic.operands[operand].dtype
                return ir.Cast("f64", self.value(expr, dtype))
            case text.Cast(dtype=to, modifiers=(), x=text.Read() as x) if DTYPES[self.dtype(x)].kind == "f":
                self.require(DTYPES[to].bits >= DTYPES[self.dtype(x)].bits)
                return self.exact(x)
            case text.Binary(op=op, x=x, y=y) if op in ("+", "*"):
                return ir.Binary("f64", _INFIX[op], self.exact(x), self.exact(y))
            case text.Reduce(kind="sum", dims=dims, body=x):
                return self.sums(dims, self.exact(x))
        raise _NoExpansion

    def sums(self, dims: tuple[str, ...], value: ir.Value) -> ir.Value:
        for dim in dims:
            value = ir.Reduce(value.dtype, "sum", self.name(dim), self.intrinsic.dims[dim], value)
        return value

    def scalar(self, name: str, dtype: str) -> ir.Value:
        given = self.operands.get(name)
        self.require(given is not None and not isinstance(given, ir.View))
        self.require(self.intrinsic.operands[name].dtype == dtype)
        if isinstance(given, ir.Value):
            return given
        assert given is not None
        assert not isinstance(given, ir.View)
        return ir.FromIndex(dtype, given)

    def dtype(self, expr: text.Expr) -> str:
        match expr:
            case text.Read(operand=name) | text.Name(name=name) if name in self.intrinsic.operands:
                return self.intrinsic.operands[name].dtype
            case text.Cast(dtype=dtype):
                return dtype
        for child in expr.children:
            if not isinstance(child, text.Number):
                return self.dtype(child)
        raise _NoExpansion

    # ------------------------------------------------------------------------------------------------- places
    def place(self, read: text.Read) -> tuple[ir.View, tuple[ir.Index, ...]]:
        """The view behind an operand, and the index of one element in its buffer."""
        name = read.operand
        view = self.operands.get(name)
        self.require(isinstance(view, ir.View) and not self.intrinsic.operands[name].align_bytes)
        assert isinstance(view, ir.View)
        scalars = {n: v for n, v in self.operands.items() if isinstance(v, int)}
        coefficients = self.intrinsic.layout(name).coefficients()
        self.require(coefficients is not None and set(self.intrinsic.layout(name).scalars) <= set(scalars))
        strides = self.intrinsic.layout(name).strides(scalars) or {}
        coords = self.intrinsic.coords(name)
        self.require(len(coords) == len(read.index) and view.index)
        index = list(view.index)
        for coord, at in zip(coords, read.index):
            self.require(isinstance(at, text.Name) and at.name in self.intrinsic.dims and strides[coord] > 0)
            assert isinstance(at, text.Name)
            axis, step = self.axis(view, strides[coord], self.intrinsic.dims[at.name])
            index[axis] = index[axis] + step * sym(self.name(at.name))
        return view, tuple(index)

    def axis(self, view: ir.View, stride: int, extent: int) -> tuple[int, int]:
        """Along which axis of the buffer, and in which steps, `extent` elements `stride` apart lie."""
        buffer = self.buffers[view.buffer]
        if len(buffer.shape) == 1 and buffer.strides is None:
            return 0, stride
        self.require(all(isinstance(e, int) for e in (*buffer.shape, *(buffer.strides or ()))))
        shape = [e for e in buffer.shape if isinstance(e, int)]
        own = [e for e in buffer.strides or row_major(shape) if isinstance(e, int)]
        for axis, (base, size) in enumerate(zip(view.index, shape)):
            step = stride // own[axis] if own[axis] else 0
            exact = step > 0 and stride == step * own[axis]
            if exact and isinstance(base, int) and base + step * (extent - 1) < size:
                return axis, step
        raise _NoExpansion
