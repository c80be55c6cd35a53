"""Sums of products, recognised and sent to matrix multiplication.

Design choice: only two cases are taken, because in both the fast result is the defined one: integers (exact in f64 as
long as every partial sum stays below 2^53, modulo 2^64 otherwise) and floats with `rounding: free` (exact products,
f64 sums, one rounding).  Everything else goes the general way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.intrinsics.numbers import Array, wrapped
from hwsdk.intrinsics.signature import Signature, is_float, is_integer
from hwsdk.intrinsics.syntax import Binary, Cast, Expr, Name, Read, Reduce, Statement


@dataclass(frozen=True)
class ProductSum:
    """[carry +] sum over `reduced` of a * b.  Axes of a: batch, m, k; of b: batch, k, n; `order` of the result."""

    a: Read
    b: Read
    carry: Read | None
    dtype: str
    factors: tuple[str, str]  # dtypes of a and b before widening
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    order: tuple[str, ...]

    def compute(self, a: Array, b: Array) -> Array:
        """The sums, exact (integers modulo 2^64, floats in f64), with axes in `order`."""
        if not self.batch and len(self.m) == len(self.n) == len(self.k) == 1:
            return self._matrices(a, b)
        left = _arranged(a, self.a, (self.batch, self.m, self.k))
        right = _arranged(b, self.b, (self.batch, self.k, self.n))
        terms = left.shape[2]
        wide = np.float64 if self._exact_in_f64(terms) else np.int64
        out = np.matmul(left.astype(wide), right.astype(wide))
        if wide is np.float64 and self._integers:
            out = out.astype(np.int64)
        sizes = dict(zip(_names(self.a), a.shape, strict=True)) | dict(
            zip(_names(self.b), b.shape, strict=True)
        )
        now = (*self.batch, *self.m, *self.n)
        shaped = out.reshape([sizes[d] for d in now])
        return np.asarray(
            shaped if now == self.order else shaped.transpose([now.index(d) for d in self.order])
        )

    def _matrices(self, a: Array, b: Array) -> Array:
        """The common case without reshaping: two matrices."""
        left = a if self.a.index[1] == self._k else a.T
        right = b if self.b.index[0] == self._k else b.T
        wide = np.float64 if self._exact_in_f64(left.shape[1]) else np.int64
        out = left.astype(wide) @ right.astype(wide)
        if self._integers and wide is np.float64:
            out = out.astype(np.int64)
        return out if self.order[0] == self.m[0] else out.T

    @cached_property
    def _k(self) -> Name:
        return Name(self.k[0])

    @cached_property
    def _integers(self) -> bool:
        return is_integer(self.dtype)

    @cached_property
    def _f64_terms(self) -> int:
        """How many terms a sum may have so that it is exact in f64."""
        return 1 << 62 if not self._integers else 1 << max(0, 52 - sum(DTYPES[d].bits for d in self.factors))

    def add(self, old: Array, new: Array) -> Array:
        if not self._integers:
            return old.astype(np.float64) + new
        return wrapped(old.astype(np.int64) + new, self.dtype)

    def _exact_in_f64(self, terms: int) -> bool:
        return terms <= self._f64_terms


def _names(read: Read) -> tuple[str, ...]:
    return tuple(i.name for i in read.index if isinstance(i, Name))


def _arranged(array: Array, read: Read, groups: tuple[tuple[str, ...], ...]) -> Array:
    """The array with its axes gathered into the groups, each flattened to one axis."""
    own = _names(read)
    sizes = dict(zip(own, array.shape, strict=True))
    flat = tuple(d for group in groups for d in group)
    moved = array if flat == own else array.transpose([own.index(d) for d in flat])
    return moved.reshape([math.prod(sizes[d] for d in group) for group in groups])


def find_product_sum(signature: Signature, statement: Statement, rounding: str) -> ProductSum | None:
    """The statement as a sum of products, if it is one."""
    if statement.where is not None or statement.assign not in ("=", "+="):
        return None
    expr, carry = statement.expr, None
    if (
        isinstance(expr, Binary)
        and expr.op == "+"
        and isinstance(expr.x, Read)
        and isinstance(expr.y, Reduce)
    ):
        if expr.x.index != statement.index:
            return None
        carry, expr = expr.x, expr.y
    if not (
        isinstance(expr, Reduce)
        and expr.kind == "sum"
        and isinstance(expr.body, Binary)
        and expr.body.op == "*"
    ):
        return None
    dtype = signature.dtypes[statement.target]
    if not (is_integer(dtype) or (is_float(dtype) and rounding == "free")) or dtype == "tf32":
        return None
    a, b = _factor(expr.body.x, dtype, signature), _factor(expr.body.y, dtype, signature)
    if a is None or b is None or a.operand in signature.writes or b.operand in signature.writes:
        return None
    return _arrange(signature, statement, a, b, carry, expr.dims, dtype)


def _factor(expr: Expr, dtype: str, signature: Signature) -> Read | None:
    """A plain read, widened to the type of the sum."""
    if isinstance(expr, Cast) and expr.dtype == dtype and not expr.modifiers:
        expr = expr.x
    if not isinstance(expr, Read) or expr.operand not in signature.plain:
        return None
    own, target = DTYPES[signature.dtypes[expr.operand]], DTYPES[dtype]
    if (
        own.name == "tf32"
        or own.kind == "b"
        or own.bits > target.bits
        or (own.kind == "f") != (target.kind == "f")
    ):
        return None
    return expr


def _arrange(
    signature: Signature,
    statement: Statement,
    a: Read,
    b: Read,
    carry: Read | None,
    reduced: tuple[str, ...],
    dtype: str,
) -> ProductSum | None:
    out = tuple(i.name for i in statement.index or () if isinstance(i, Name))
    in_a, in_b = _names(a), _names(b)
    batch = tuple(d for d in out if d in in_a and d in in_b)
    m = tuple(d for d in out if d in in_a and d not in in_b)
    n = tuple(d for d in out if d in in_b and d not in in_a)
    k = tuple(d for d in in_a if d in reduced and d in in_b)
    if set(out) != {*batch, *m, *n} or set(k) != set(reduced) or len(out) != len(statement.index or ()):
        return None
    if {*in_a} != {*batch, *m, *k} or {*in_b} != {*batch, *n, *k}:
        return None
    factors = (signature.dtypes[a.operand], signature.dtypes[b.operand])
    return ProductSum(a, b, carry, dtype, factors, batch, m, n, k, out)
