"""An independent evaluator of intrinsic semantics: element by element, in plain Python.

It shares no code with `hwsdk.intrinsics`, whose evaluator is vectorised and typed by its own parser; the two
agreeing is evidence for both.  It is slow on purpose: one loop iteration for one element of one statement.

Design choice: the expression part of the language is a subset of Python's grammar, so Python's own parser
reads it (into a tree that is walked here, never executed); only `max=`, `min=`, `where` and empty subscripts
are handled by hand.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES, numpy_dtype
from hwsdk.intrinsics.numbers import storage

from .data import float_limits

Array = np.ndarray[Any, Any]
STATEMENT = re.compile(r"^\s*(\w+)\s*\[(.*?)\]\s*(\+=|max=|min=|=)(?!=)\s*(.+)$", re.DOTALL)
REDUCTIONS = ("sum", "max", "min", "any", "all")
ROUNDINGS: Mapping[str, Callable[[float], float]] = {
    "rne": lambda v: float(round(v)),
    "rtz": lambda v: float(math.trunc(v)),
    "floor": lambda v: float(math.floor(v)),
    "ceil": lambda v: float(math.ceil(v)),
}
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "exp": lambda v: math.exp(v) if v < 709 else math.inf,
    "exp2": lambda v: 2.0**v if v < 1024 else math.inf,
    "log": lambda v: math.log(v) if v > 0 else (-math.inf if v == 0 else math.nan),
    "log2": lambda v: math.log2(v) if v > 0 else (-math.inf if v == 0 else math.nan),
    "sqrt": lambda v: math.sqrt(v) if v >= 0 else math.nan,
    "rsqrt": lambda v: 1 / math.sqrt(v) if v > 0 else (math.copysign(math.inf, v) if v == 0 else math.nan),
    "rcp": lambda v: 1 / v if v else math.copysign(math.inf, v),
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": lambda v: math.sin(v) if math.isfinite(v) else math.nan,
    "cos": lambda v: math.cos(v) if math.isfinite(v) else math.nan,
}
WHOLE: Mapping[str, Callable[[float], float]] = {
    "floor": math.floor, "ceil": math.ceil, "round": round,
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A value with its dtype; `index` for dims and integer scalars that mix with them, '' for literals."""

    dtype: str
    value: Any


class Oracle:
    """Evaluates one program.  rounding: each, fused or free; flush: denormal floats read and written as
    zero.
    """

    def __init__(
        self, program: str, dtypes: Mapping[str, str], dims: Mapping[str, int], rounding: str, flush: bool
    ) -> None:
        self.dtypes = dtypes
        self.dims = dims
        self.exact = rounding != "each"
        self.flush = flush
        self.statements = [_parse(text) for text in program.split(";") if text.strip()]

    def run(self, operands: Mapping[str, Array], every: int = 1, first: int = 0) -> dict[str, Array]:
        """The written operands after the program; the given arrays are not changed.

        every: compute only that many-th element of each statement, from `first` on; `seen` says which.
        """
        self.every, self.first = every, first
        self.seen = {name: np.zeros(np.shape(value), bool) for name, value in operands.items()}
        self.memory = {name: np.array(value, copy=True) for name, value in operands.items()}
        written = []
        for name, indices, assign, expr, where in self.statements:
            if name not in written:
                written.append(name)
            self._statement(name, indices, assign, expr, where)
        return {name: self.memory[name] for name in written}

    def _statement(self, name: str, indices: list[ast.expr], assign: str, expr: ast.expr, where: Any) -> None:
        free = [i.id for i in indices if isinstance(i, ast.Name) and i.id in self.dims]
        result = []
        places = itertools.product(*(range(self.dims[d]) for d in free))
        for values in itertools.islice(places, self.first, None, self.every):
            env = dict(zip(free, values))
            if where is not None and not self._eval(where, env).value:
                continue
            place = tuple(int(self._eval(i, env).value) for i in indices)
            result.append((place, self._combine(name, place, assign, self._eval(expr, env))))
        for place, value in result:
            self.memory[name][place] = value
        if self.every == 1:
            self.seen[name][...] = True
        for place, _ in result:
            self.seen[name][place] = True

    def _combine(self, name: str, place: tuple[int, ...], assign: str, value: Typed) -> Any:
        dtype = self.dtypes[name]
        if assign == "+=":
            value = self._arithmetic("+", self._read(name, place), value)
        elif assign in ("max=", "min="):
            value = self._extremum(assign[:3], self._read(name, place), value)
        return self._store(dtype, value.value)

    # ------------------------------------------------------------------------------------------------------- values
    def _read(self, name: str, place: tuple[int, ...]) -> Typed:
        array = self.memory[name]
        if any(not 0 <= i < n for i, n in zip(place, array.shape)):
            raise IndexError(f"{name}{list(place)} is outside {list(array.shape)}")
        dtype = self.dtypes[name]
        value = array[place]
        if DTYPES[dtype].kind == "f":
            return Typed(dtype, self._flushed(dtype, float(value)))
        return Typed(dtype, bool(value) if dtype == "bool" else int(value))

    def _store(self, dtype: str, value: Any) -> Any:
        if DTYPES[dtype].kind != "f":
            return value
        return np.asarray(self._flushed(dtype, _round(dtype, value))).astype(storage(dtype))

    def _flushed(self, dtype: str, value: float) -> float:
        if self.flush and value and abs(value) < _tiny(dtype):
            return math.copysign(0.0, value)
        return value

    def _eval(self, node: ast.expr, env: Mapping[str, int]) -> Typed:
        match node:
            case ast.Constant(value=value):
                return Typed("", value)
            case ast.Name(id="inf" | "nan" as name):
                return Typed("", float(name))
            case ast.Name(id=name):
                return self._name(name, env)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._read(name, tuple(int(self._eval(i, env).value) for i in _elements(index)))
            case ast.Call():
                return self._call(node, env)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(_SIGNS[type(op)], self._eval(left, env), self._eval(right, env))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                x = self._eval(inner, env)
                return Typed(x.dtype, _wrap(x.dtype, -x.value))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return Typed("bool", not self._eval(inner, env).value)
            case _:
                return self._logic(node, env)

    def _logic(self, node: ast.expr, env: Mapping[str, int]) -> Typed:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return Typed("bool", _compare(op, self._eval(left, env).value, self._eval(right, env).value))
            case ast.BoolOp(op=op, values=values):
                every = all if isinstance(op, ast.And) else any
                return Typed("bool", every(bool(self._eval(v, env).value) for v in values))
        raise ValueError(f"cannot evaluate {ast.unparse(node)}")

    def _name(self, name: str, env: Mapping[str, int]) -> Typed:
        if name in env:
            return Typed("index", env[name])
        if name in self.dims:
            return Typed("index", self.dims[name])
        scalar = self._read(name, ())
        return Typed("index", scalar.value) if DTYPES[scalar.dtype].kind in "iu" else scalar

    def _call(self, node: ast.Call, env: Mapping[str, int]) -> Typed:
        match node.func:
            case ast.Subscript(value=ast.Name(id=kind), slice=over) if kind in REDUCTIONS:
                return self._reduce(
                    kind, [e.id for e in _elements(over) if isinstance(e, ast.Name)], node.args[0], env
                )
            case ast.Name(id="select"):
                chosen = node.args[1] if self._eval(node.args[0], env).value else node.args[2]
                return self._eval(chosen, env)
            case ast.Name(id="max" | "min" as kind):
                first, *rest = [self._eval(a, env) for a in node.args]
                for other in rest:
                    first = self._extremum(kind, first, other)
                return first
            case ast.Name(id=name) if name in DTYPES:
                return self._cast(name, (), self._eval(node.args[0], env))
            case ast.Attribute():
                names = ast.unparse(node.func).split(".")
                return self._cast(names[0], tuple(names[1:]), self._eval(node.args[0], env))
            case ast.Name(id=name):
                return self._function(name, self._eval(node.args[0], env))
        raise ValueError(f"cannot call {ast.unparse(node)}")

    def _reduce(self, kind: str, over: list[str], body: ast.expr, env: Mapping[str, int]) -> Typed:
        total: Typed | None = None
        for values in itertools.product(*(range(self.dims[d]) for d in over)):
            term = self._eval(body, {**env, **dict(zip(over, values))})
            if total is None:
                total = term
            elif kind in ("max", "min"):
                total = self._extremum(kind, total, term)
            elif kind == "sum":
                total = self._arithmetic("+", total, term)
            else:
                both = (total.value and term.value) if kind == "all" else (total.value or term.value)
                total = Typed("bool", bool(both))
        if total is not None:
            return total
        return Typed("", {"sum": 0, "any": False, "all": True}[kind])

    def _arithmetic(self, sign: str, x: Typed, y: Typed) -> Typed:
        dtype = x.dtype if x.dtype not in ("", "index") else y.dtype or x.dtype
        if dtype in DTYPES and DTYPES[dtype].kind == "f":
            if (
                self.exact
                and dtype == "f64"
                and sign != "/"
                and math.isfinite(x.value)
                and math.isfinite(y.value)
            ):
                return Typed(
                    dtype, _INTEGER[sign](Fraction(x.value), Fraction(y.value))
                )  # f64 alone is not exact
            value = _float_arithmetic(sign, x.value, y.value)
            return Typed(dtype, value if self.exact else self._flushed(dtype, _round(dtype, value)))
        return Typed(dtype, _wrap(dtype, _INTEGER[sign](x.value, y.value)))

    def _extremum(self, kind: str, x: Typed, y: Typed) -> Typed:
        dtype = x.dtype or y.dtype
        if x.value != x.value or y.value != y.value:
            return Typed(dtype, math.nan)
        return Typed(dtype, max(x.value, y.value) if kind == "max" else min(x.value, y.value))

    def _function(self, name: str, x: Typed) -> Typed:
        if name == "abs":
            return Typed(x.dtype, _wrap(x.dtype, abs(x.value)))
        if math.isnan(x.value) or (name in WHOLE and math.isinf(x.value)):
            return x
        value = WHOLE[name](x.value) if name in WHOLE else FUNCTIONS[name](x.value)
        value = math.copysign(float(value), x.value) if name in WHOLE and not value else float(value)
        return Typed(x.dtype, value if self.exact else _round(x.dtype, value))

    def _cast(self, to: str, modifiers: tuple[str, ...], x: Typed) -> Typed:
        kind = DTYPES[to].kind
        if kind == "b":
            return Typed(to, bool(x.value))
        if kind == "f":
            value = float(x.value)
            if "sat" in modifiers and not math.isnan(value):
                largest = float_limits(numpy_dtype(to))[1]
                value = min(max(value, -largest), largest)
            return Typed(to, _round(to, value))
        value = x.value
        if isinstance(value, float):
            rounding = next((m for m in modifiers if m in ROUNDINGS), "rtz")
            low, high = _limits(to)
            if "sat" in modifiers:
                value = 0 if math.isnan(value) else min(max(value, low - 1.0), high + 1.0)
            value = int(ROUNDINGS[rounding](value))
        if "sat" in modifiers:
            low, high = _limits(to)
            return Typed(to, min(max(int(value), low), high))
        return Typed(to, _wrap(to, int(value)))


# ------------------------------------------------------------------------------------------------------------ parsing
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitXor: "^",
}  # fmt: skip
_INTEGER: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: int(Fraction(x, y)),
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "^": lambda x, y: x ^ y,
}


def _parse(text: str) -> tuple[str, list[ast.expr], str, ast.expr, ast.expr | None]:
    match = STATEMENT.match(text)
    if match is None:
        raise ValueError(f"not a statement: {text}")
    name, indices, assign, rest = match.groups()
    expr, _, where = rest.partition(" where ")
    condition = _expression(where) if where else None
    return (
        name,
        _elements(_expression(f"({indices},)" if indices.strip() else "()")),
        assign,
        _expression(expr),
        condition,
    )


def _expression(text: str) -> ast.expr:
    return ast.parse(re.sub(r"\[\s*\]", "[()]", text.strip()), mode="eval").body


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


# --------------------------------------------------------------------------------------------------------- arithmetic
def _float_arithmetic(sign: str, x: Any, y: Any) -> float:
    """In f64 (a product of two f32 numbers is exact there)."""
    with np.errstate(all="ignore"):
        a, b = np.float64(x), np.float64(y)
        if sign == "+":
            return float(a + b)
        if sign == "-":
            return float(a - b)
        if sign == "*":
            return float(a * b)
        if sign == "/":
            return float(a / b)
    raise ValueError(f"{sign} of floats")


def _compare(op: ast.cmpop, x: Any, y: Any) -> bool:
    table: Mapping[type[ast.cmpop], bool] = {
        ast.Eq: x == y, ast.NotEq: x != y, ast.Lt: x < y, ast.LtE: x <= y, ast.Gt: x > y, ast.GtE: x >= y,
    }  # fmt: skip
    return bool(table[type(op)])


def _round(dtype: str, value: Any) -> float:
    if dtype not in DTYPES or dtype == "f64":
        return float(value)
    if dtype == "tf32":  # f32 with 10 bits of significand, to nearest even
        bits = int(np.float32(value).view(np.uint32))
        if not math.isfinite(float(value)):
            return float(value)
        bits += 0xFFF + (bits >> 13 & 1)
        return float(np.uint32(bits & 0xFFFFE000).view(np.float32))
    with np.errstate(all="ignore"):
        return float(np.asarray(float(value), dtype=np.float64).astype(numpy_dtype(dtype)))


def _tiny(dtype: str) -> float:
    return float_limits(numpy_dtype("f32" if dtype == "tf32" else dtype))[0]


def _limits(dtype: str) -> tuple[int, int]:
    d = DTYPES[dtype]
    return (-(1 << d.bits - 1), (1 << d.bits - 1) - 1) if d.kind == "i" else (0, (1 << d.bits) - 1)


def _wrap(dtype: str, value: Any) -> Any:
    if dtype not in DTYPES or DTYPES[dtype].kind not in "iu":
        return value
    low, _ = _limits(dtype)
    return (value - low) % (1 << DTYPES[dtype].bits) + low
