"""Executes semantics: a typed program becomes NumPy closures once and is then called on logical tensors.

Design choice: each statement has its own small set of axes (the dims that it uses); a plainly indexed operand
enters as a transposed view of them, so no index grid is built unless an index is a real expression.  Sums of
products go to matrix multiplication (`products`).  What a false condition guards is never touched, as on the
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hwsdk.intrinsics.numbers import Array, convert, flushed, fused, storage, sum_odd, working
from hwsdk.intrinsics.operations import ACCUMULATE, apply_function, apply_operator, reduce_values
from hwsdk.intrinsics.products import ProductSum, find_product_sum
from hwsdk.intrinsics.signature import INDEX, LITERAL, Signature, is_float
from hwsdk.intrinsics.syntax import (
    Binary,
    Call,
    Cast,
    Expr,
    Name,
    Number,
    Read,
    Reduce,
    SemanticsError,
    Statement,
    Unary,
    names,
    walk,
)


@dataclass
class Frame:
    """One execution: operand arrays (written ones are copies), scalar values and the extents of all dims."""

    arrays: Any  # by name; only statements that run one after another change it
    dims: Mapping[str, int]


_F64 = np.dtype(np.float64)
Mask = Array | None
Closure = Callable[[Frame, Mask], Array]


@lru_cache(maxsize=4096)
def _grid(extent: int, axis: int, rank: int) -> Array:
    out = np.arange(extent, dtype=np.int64).reshape([extent if i == axis else 1 for i in range(rank)])
    out.flags.writeable = False
    return out


class Evaluator:
    """`run(arrays, dims)` gives the written operands after one execution; the given arrays are not changed.

    `execute` is `run` for callers that have switched NumPy's warnings off for many executions.
    """

    def __init__(self, signature: Signature, rounding: str = "each", denormals: str = "keep") -> None:
        self.signature = signature
        compiled = [
            _StatementCompiler(signature, s, rounding, denormals == "flush") for s in signature.program
        ]
        self._steps = [c.step() for c in compiled]
        self._whole = compiled[0].whole() if len(compiled) == 1 else None

    def run(self, arrays: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            return self.execute(arrays, dims)

    def execute(self, arrays: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, Array]:
        if self._whole is not None and self._whole[0] not in arrays:
            return {self._whole[0]: self._whole[1](Frame(arrays, dims))}
        frame = Frame(dict(arrays), dims)
        for name in self.signature.writes:
            frame.arrays[name] = self._own_copy(name, arrays.get(name), dims)
        for step in self._steps:
            step(frame)
        return {name: frame.arrays[name] for name in self.signature.writes}

    def _own_copy(self, name: str, given: Any, dims: Mapping[str, int]) -> Array:
        if given is not None:
            return np.array(given, copy=True)
        if name in self.signature.reads:
            raise SemanticsError(f"operand {name!r} is read and must be given")
        shape = tuple(dims[c] for c in self.signature.coords[name])
        return np.zeros(shape, storage(self.signature.dtypes[name]))


class _StatementCompiler:
    """One statement; `axes` are the dims it uses, outer to inner in the order of the description."""

    def __init__(self, signature: Signature, statement: Statement, rounding: str, flush: bool) -> None:
        self.sig, self.statement, self.rounding, self.flush = signature, statement, rounding, flush
        self.exact = rounding != "each"
        used = names(*statement.expressions)
        for expr in statement.expressions:
            used |= {d for node in walk(expr) if isinstance(node, Reduce) for d in node.dims}
        self.axes = tuple(d for d in signature.dims if d in used)
        self.left = tuple(d for d in self.axes if d in names(*(statement.index or ())))
        self.target, self.dtype = statement.target, signature.dtypes[statement.target]
        self.target_plain = self.is_plain(statement.index or ())

    # ---- statements
    def step(self) -> Callable[[Frame], None]:
        statement = self.statement
        product = None if self.flush else find_product_sum(self.sig, statement, self.rounding)
        if product is not None and self.target_plain:
            return self.product_step(product)
        fused_parts = self.fused_parts()
        if fused_parts is not None:
            return self.fused_step(*fused_parts)
        value = self.value(statement.expr, self.dtype)
        if statement.where is None and self.target_plain:
            return self.plain_step(value)
        return self.scatter_step(
            value, self.value(statement.where, "bool") if statement.where is not None else None
        )

    def whole(self) -> tuple[str, Callable[[Frame], Array]] | None:
        """(target, its new array) of a statement that assigns every element from values in the same order."""
        statement, store = self.statement, storage(self.dtype)
        order = tuple(i.name for i in statement.index or () if isinstance(i, Name))
        if statement.assign != "=" or statement.where is not None or not self.target_plain:
            return None
        product = None if self.flush else find_product_sum(self.sig, statement, self.rounding)
        if order != self.axes or product is not None or self.fused_parts() is not None:
            return None
        value = self.value(statement.expr, self.dtype)
        fresh = isinstance(statement.expr, Binary | Unary)  # anything else may be the array of an operand

        def run(frame: Frame) -> Array:
            dims = frame.dims
            new = self.settled(np.asarray(value(frame, None))).astype(store, copy=not fresh)
            shape = tuple([dims[d] for d in order])
            return new if new.shape == shape else np.broadcast_to(new, shape).copy()

        return self.target, run

    def is_plain(self, index: tuple[Expr, ...]) -> bool:
        dims = [i.name for i in index if isinstance(i, Name) and i.name in self.sig.dims]
        return len(dims) == len(index) == len(set(dims))

    def fused_parts(self) -> tuple[Expr, Expr, Expr | None] | None:
        """x, y and z of a statement that is one fused x*y + z (z None: the target itself)."""
        statement = self.statement
        order = tuple(i.name for i in statement.index or () if isinstance(i, Name))
        if self.rounding != "fused" or statement.where is not None or not is_float(self.dtype):
            return None
        if not self.target_plain or order != self.axes or self.dtype == "tf32" or self.flush:
            return None
        match statement.assign, statement.expr:
            case "+=", Binary(op="*", x=x, y=y):
                return x, y, None
            case "=", Binary(op="+", x=Binary(op="*", x=x, y=y), y=z):
                return x, y, z
            case "=", Binary(op="+", x=z, y=Binary(op="*", x=x, y=y)):
                return x, y, z
        return None

    def fused_step(self, x: Expr, y: Expr, z: Expr | None) -> Callable[[Frame], None]:
        left, right = self.value(x, self.dtype), self.value(y, self.dtype)
        addend = None if z is None else self.value(z, self.dtype)
        order, store = self.axes, storage(self.dtype)

        def run(frame: Frame) -> None:
            region = self.region(frame, self.target, order)
            old = self.widen(region, self.dtype) if addend is None else addend(frame, None)
            region[...] = fused(left(frame, None), right(frame, None), old, self.dtype).astype(
                store, copy=False
            )

        return run

    def product_step(self, product: ProductSum) -> Callable[[Frame], None]:
        order = tuple(i.name for i in self.statement.index or () if isinstance(i, Name))
        target, store = self.target, storage(self.dtype)

        def run(frame: Frame) -> None:
            factors = [self.extent_view(frame, r.operand, r.index) for r in (product.a, product.b)]
            value = product.compute(factors[0], factors[1])
            region = self.region(frame, target, order)
            if product.carry is not None:
                value = product.add(
                    self.extent_view(frame, product.carry.operand, product.carry.index), value
                )
            if self.statement.assign == "+=":
                value = product.add(region, value)
            region[...] = convert(value, self.dtype).astype(store, copy=False)

        return run

    def extent_view(self, frame: Frame, operand: str, index: tuple[Expr, ...]) -> Array:
        return self.region(frame, operand, tuple(i.name for i in index if isinstance(i, Name)))

    def region(self, frame: Frame, operand: str, order: tuple[str, ...]) -> Array:
        """The part of an operand's array that the extents cover; its axes are `order`."""
        array = np.asarray(frame.arrays[operand])
        shape = tuple(frame.dims[d] for d in order)
        if array.shape == shape:
            return array
        if len(array.shape) != len(shape) or any(a < s for a, s in zip(array.shape, shape, strict=True)):
            raise SemanticsError(f"{operand}[] has shape {array.shape}, but extents {shape} are used")
        return array[tuple(slice(s) for s in shape)]

    def plain_step(self, value: Closure) -> Callable[[Frame], None]:
        order = tuple(i.name for i in self.statement.index or () if isinstance(i, Name))
        kept = [d for d in self.axes if d in self.left]
        perm = tuple(kept.index(d) for d in order)
        drop = tuple(slice(None) if d in self.left else 0 for d in self.axes)
        combine, store = self.combine(), storage(self.dtype)

        def run(frame: Frame) -> None:
            new = np.asarray(value(frame, None))
            if new.ndim:
                new = new[drop].transpose(perm)
            region = self.region(frame, self.target, order)
            if combine is not None:
                new = combine(self.widen(region, self.dtype), new)
            region[...] = self.settled(new).astype(store, copy=False)

        return run

    def scatter_step(self, value: Closure, where: Closure | None) -> Callable[[Frame], None]:
        index = [self.value(i, INDEX) for i in self.statement.index or ()]
        combine, store = self.combine(), storage(self.dtype)
        assign = self.statement.assign

        def run(frame: Frame) -> None:
            mask = None if where is None else where(frame, None)
            shape = tuple(frame.dims[d] if d in self.left else 1 for d in self.axes)
            places = [np.broadcast_to(i(frame, mask), shape) for i in index]
            new = np.broadcast_to(value(frame, mask), shape)
            on = np.broadcast_to(True if mask is None else mask, shape)
            out = frame.arrays[self.target]
            at = tuple(p[on] for p in places)
            self.bounds(self.target, at, out)
            new = new[on] if index else new.reshape(-1)[on.reshape(-1)]
            if not new.size:
                return
            if combine is None:
                out[at] = self.settled(new).astype(store).reshape(out[at].shape)
                return
            wide = self.widen(out, self.dtype).copy()
            ACCUMULATE[assign].at(wide, at, new if index else new[0])
            out[at] = self.settled(wide[at]).astype(store)

        return run

    def combine(self) -> Callable[[Array, Array], Array] | None:
        """How the old value meets the new one."""
        assign = self.statement.assign
        if assign == "=":
            return None
        if assign == "+=" and self.rounding == "fused" and is_float(self.dtype) and self.dtype != "f64":
            return sum_odd
        ufunc: Callable[[Array, Array], Array] = ACCUMULATE[assign]
        return ufunc

    def settled(self, values: Array) -> Array:
        out = convert(values, self.dtype)
        return flushed(out, self.dtype) if self.flush and is_float(self.dtype) else out

    def widen(self, values: Array, dtype: str) -> Array:
        """From storage to the type in which values of `dtype` are computed."""
        if is_float(dtype):
            if self.flush:
                values = flushed(values, dtype)
            return values.astype(_F64) if self.exact else values
        work = working(dtype)
        return values if values.dtype == work else values.astype(work)

    # ---- expressions
    def kind(self, expr: Expr, want: str) -> str:
        kind = self.sig.types[expr]
        return want if kind == LITERAL else kind

    def value(self, expr: Expr, want: str) -> Closure:
        kind = self.kind(expr, want)
        match expr:
            case Number(value=number):
                return self.constant(number, kind)
            case Name(name=name):
                return self.scalar(name) if name in self.sig.scalars else self.dim(name)
            case Read():
                return self.read(expr)
            case Cast():
                return self.cast(expr)
            case Reduce():
                return self.reduce(expr, kind)
            case Call(function="select", args=(condition, x, y)):
                return self.select(condition, x, y, kind)
            case Call(function=function, args=args):
                parts = [self.operand(a, kind) for a in args]
                apply = apply_function(function, kind, self.exact)
                return lambda frame, mask: apply(*[p(frame, mask) for p in parts])
            case Unary(op=op, x=x):
                return self.operator(op, (x,), kind)
            case Binary(op=op, x=x, y=y):
                return self.operator(op, (x, y), kind)
        raise SemanticsError(f"unknown expression {expr}")

    def operand(self, expr: Expr, kind: str) -> Closure:
        """A child of an operation of type `kind`: integers that meet an index become indices."""
        inner = self.value(expr, kind)
        if kind == INDEX and self.kind(expr, kind) != INDEX:
            return lambda frame, mask: np.asarray(inner(frame, mask)).astype(np.int64)
        return inner

    def constant(self, number: int | float, kind: str) -> Closure:
        if kind == INDEX:
            array = np.asarray(number, np.int64)
        elif is_float(kind):
            array = np.asarray(number, np.float64 if self.exact else storage(kind))
        else:
            array = np.asarray(number).astype(np.float64 if kind == LITERAL else working(kind))
        return lambda frame, mask: array

    def scalar(self, name: str) -> Closure:
        dtype = self.sig.dtypes[name]
        work = working(dtype)
        return lambda frame, mask: self.widen(np.asarray(frame.arrays[name]).astype(work), dtype)

    def dim(self, name: str) -> Closure:
        axis, rank = self.axes.index(name), len(self.axes)
        return lambda frame, mask: _grid(frame.dims[name], axis, rank)

    def read(self, expr: Read) -> Closure:
        operand, dtype = expr.operand, self.sig.dtypes[expr.operand]
        index = [self.value(i, INDEX) for i in expr.index]
        gather = self.gather(operand, index)
        if not self.is_plain(expr.index):
            return lambda frame, mask: self.widen(gather(frame, mask), dtype)
        order = tuple(i.name for i in expr.index if isinstance(i, Name))
        perm = tuple(sorted(range(len(order)), key=lambda i: self.axes.index(order[i])))
        slots = tuple(slice(None) if d in order else None for d in self.axes)
        trivial = perm == tuple(range(len(order)))
        full = trivial and order == self.axes

        def run(frame: Frame, mask: Mask) -> Array:
            array = np.asarray(frame.arrays[operand])
            if array.shape != tuple([frame.dims[d] for d in order]):
                if mask is not None:
                    return self.widen(gather(frame, mask), dtype)
                array = self.region(frame, operand, order)
            if full:
                return self.widen(array, dtype)
            if not trivial:
                array = array.transpose(perm)
            return self.widen(array[slots], dtype)

        return run

    def gather(self, operand: str, index: list[Closure]) -> Closure:
        def run(frame: Frame, mask: Mask) -> Array:
            array = np.asarray(frame.arrays[operand])
            places = [np.asarray(i(frame, mask)).astype(np.int64) for i in index]
            if mask is not None:  # a location under a false condition is not touched
                places = [np.where(mask, p, 0) for p in places]
                if array.size == 0 and not mask.any():
                    shape = np.broadcast_shapes(mask.shape, *(p.shape for p in places))
                    return np.zeros(shape, array.dtype)
            self.bounds(operand, tuple(places), array)
            return np.asarray(array[tuple(places)])

        return run

    def bounds(self, name: str, places: tuple[Array, ...], array: Array) -> None:
        if len(places) != array.ndim:
            raise SemanticsError(f"{name}[] has {array.ndim} dims, but is indexed with {len(places)}")
        for axis, place in enumerate(places):
            if place.size and (place.min() < 0 or place.max() >= array.shape[axis]):
                worst = int(place.max() if place.max() >= array.shape[axis] else place.min())
                raise SemanticsError(
                    f"{name}[] index {worst} is outside 0..{array.shape[axis] - 1} in position {axis}"
                )

    def cast(self, expr: Cast) -> Closure:
        inner = self.operand(expr.x, self.kind(expr.x, "f64"))
        source, dtype, modifiers = self.sig.types[expr.x], expr.dtype, expr.modifiers
        guarded = (is_float(source) or source == LITERAL) and not is_float(dtype)

        def run(frame: Frame, mask: Mask) -> Array:
            values = np.asarray(inner(frame, mask))
            if guarded and mask is not None:
                values = np.where(mask, values, values.dtype.type(0))
            return self.widen(convert(values, dtype, modifiers), dtype)

        return run

    def reduce(self, expr: Reduce, kind: str) -> Closure:
        body, rank = self.value(expr.body, kind), len(self.axes)
        axes = tuple(self.axes.index(d) for d in expr.dims)
        apply = reduce_values(expr.kind, kind, self.exact)

        def run(frame: Frame, mask: Mask) -> Array:
            values = np.asarray(body(frame, mask))
            shape = list(values.shape or (1,) * rank)
            for axis, dim in zip(axes, expr.dims, strict=True):
                shape[axis] = frame.dims[dim]
            return apply(np.broadcast_to(values, shape), axes)

        return run

    def select(self, condition: Expr, x: Expr, y: Expr, kind: str) -> Closure:
        test, left, right = self.value(condition, "bool"), self.operand(x, kind), self.operand(y, kind)

        def run(frame: Frame, mask: Mask) -> Array:
            on = np.asarray(test(frame, mask))
            yes, no = (on, ~on) if mask is None else (mask & on, mask & ~on)
            return np.where(on, left(frame, yes), right(frame, no))

        return run

    def operator(self, op: str, parts: tuple[Expr, ...], kind: str) -> Closure:
        """Comparisons take the type of their sides, everything else its own."""
        inner_kind = kind
        if kind == "bool":
            sides = [self.sig.types[p] for p in parts if self.sig.types[p] != LITERAL] or ["f64"]
            inner_kind = INDEX if INDEX in sides else sides[0]
        closures = [self.operand(p, inner_kind) for p in parts]
        apply = apply_operator(op, inner_kind, self.exact)
        if len(closures) == 1:
            only = closures[0]
            return lambda frame, mask: apply(only(frame, mask))
        left, right = closures
        return lambda frame, mask: apply(left(frame, mask), right(frame, mask))
