"""Types of a semantics program: which operands it reads and writes, with which coordinates, and what each node is.

Design choice: there is no implicit conversion and no implicit summation.  A mixed operation or a free dim on the
right is an error that names the cast or the reduction to write, because a silent choice here would become a wrong
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hwsdk.dtypes import DTYPES
from hwsdk.errors import nearest
from hwsdk.intrinsics.syntax import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Expr,
    Name,
    Number,
    Program,
    Read,
    Reduce,
    SemanticsError,
    Statement,
    Unary,
    names,
    walk,
)

LITERAL, INDEX = "literal", "index"
_VALUE_OPERATIONS = ("+", "-", "*", "/")


def is_float(dtype: str) -> bool:
    return dtype in DTYPES and DTYPES[dtype].kind == "f"


def is_integer(dtype: str) -> bool:
    return dtype in DTYPES and DTYPES[dtype].kind in "iu"


@dataclass(frozen=True)
class Signature:
    """A typed program.  `dims` in the order of the description; `coords` of every operand that is not a scalar."""

    program: Program
    dtypes: Mapping[str, str]
    dims: tuple[str, ...]
    scalars: frozenset[str]
    coords: Mapping[str, tuple[str, ...]]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    types: Mapping[Expr, str]  # dtype, `index` or `literal` of each node on a right side or in a condition
    plain: frozenset[str]  # operands that are only ever indexed by plain, different dims


def infer(
    program: Program,
    dtypes: Mapping[str, str],
    dims: Iterable[str],
    scalars: Iterable[str] = (),
    coords: Mapping[str, tuple[str, ...]] | None = None,
) -> Signature:
    """Check a program; `coords` states the coordinates of operands that are indexed by expressions."""
    return _Inference(program, dict(dtypes), tuple(dims), frozenset(scalars), dict(coords or {})).run()


class _Inference:
    def __init__(
        self,
        program: Program,
        dtypes: dict[str, str],
        dims: tuple[str, ...],
        scalars: frozenset[str],
        stated: dict[str, tuple[str, ...]],
    ) -> None:
        self.program, self.dtypes, self.dims, self.scalars, self.stated = (
            program,
            dtypes,
            dims,
            scalars,
            stated,
        )
        self.types: dict[Expr, str] = {}
        self.found: dict[str, list[tuple[Expr, ...]]] = {}  # operand -> every index list
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}

    def run(self) -> Signature:
        for name in (*self.dims, *self.scalars):
            if (name in self.dtypes and name not in self.scalars) or (
                name in self.scalars and name in self.dims
            ):
                raise SemanticsError(f"{name!r} is the name of a dim and of an operand")
        for statement in self.program:
            self.statement(statement)
        coords = {name: self.coords_of(name, lists) for name, lists in self.found.items()}
        plain = frozenset(n for n, lists in self.found.items() if all(self.is_plain(i) for i in lists))
        return Signature(
            self.program, self.dtypes, self.dims, self.scalars, coords, tuple(self.reads), tuple(self.writes),
            self.types, plain,
        )  # fmt: skip

    def is_plain(self, index: tuple[Expr, ...]) -> bool:
        plain = [i.name for i in index if isinstance(i, Name) and i.name in self.dims]
        return len(plain) == len(index) == len(set(plain))

    def coords_of(self, name: str, lists: list[tuple[Expr, ...]]) -> tuple[str, ...]:
        ranks = {len(index) for index in lists}
        if name in self.stated:
            ranks.add(len(self.stated[name]))
        if len(ranks) > 1:
            raise SemanticsError(f"{name} is indexed with {' and with '.join(map(str, sorted(ranks)))} dims")
        if name in self.stated:
            for dim in self.stated[name]:
                if dim not in self.dims:
                    raise SemanticsError(
                        f"coordinate {dim!r} of {name} is not a dim; dims: {' '.join(self.dims)}"
                    )
            return self.stated[name]
        for index in lists:
            if self.is_plain(index):
                return tuple(i.name for i in index if isinstance(i, Name))
        raise SemanticsError(f"operand {name!r} is indexed by expressions: name its coordinates with 'dims'")

    # ---- statements
    def statement(self, statement: Statement) -> None:
        target, index = statement.target, statement.index
        if index is None:
            raise SemanticsError(f"{target!r} needs an index list; write {target}[...]")
        if target not in self.dtypes or target in self.scalars:
            raise SemanticsError(
                f"{target!r} is assigned but is not an operand; operands: {' '.join(self.dtypes)}"
            )
        scope = frozenset(n for n in names(*index) if n in self.dims)
        self.index(target, index, scope)
        want = self.dtypes[target]
        kind = self.value(statement.expr, scope)
        self.fits(f"{target}[]", want, kind)
        if kind == LITERAL:
            self.literal(statement.expr, want)
        if statement.where is not None and self.value(statement.where, scope) != "bool":
            raise SemanticsError("the condition after 'where' must be bool")
        if statement.assign != "=":
            if want == "bool":
                raise SemanticsError(f"{target}[] is bool; {statement.assign} needs numbers")
            self.reads[target] = None
        self.writes[target] = None

    def fits(self, what: str, want: str, kind: str) -> None:
        if kind not in (want, LITERAL):
            raise SemanticsError(f"{what} is {want} but the right side is {kind}; write {want}(...)")

    def index(self, operand: str, index: tuple[Expr, ...], scope: frozenset[str]) -> None:
        """An index list: integer expressions over dims in scope, integer scalars and reads of integer operands."""
        self.found.setdefault(operand, []).append(index)
        for expr in index:
            kind = self.value(expr, scope, indexing=operand)
            if kind not in (INDEX, LITERAL) and not is_integer(kind):
                raise SemanticsError(f"an index of {operand}[] is {kind}; it must be an integer")
            if any(isinstance(n, Number) and not isinstance(n.value, int) for n in walk(expr)):
                raise SemanticsError(f"an index of {operand}[] must be an integer")

    # ---- expressions
    def value(self, expr: Expr, scope: frozenset[str], indexing: str | None = None) -> str:
        kind = self.uncached(expr, scope, indexing)
        self.types[expr] = kind
        return kind

    def uncached(self, expr: Expr, scope: frozenset[str], indexing: str | None) -> str:
        match expr:
            case Number():
                return LITERAL
            case Name(name=name):
                return self.name(name, scope, indexing)
            case Read(operand=operand, index=index):
                return self.read(operand, index, scope, indexing)
            case Cast(dtype=dtype, x=x):
                self.value(x, scope)
                return dtype
            case Reduce():
                return self.reduce(expr, scope)
            case Call():
                return self.call(expr, scope, indexing)
            case Unary(op="not") | Binary(op="and" | "or"):
                return self.logical(expr.op, expr.children, scope)
            case Unary() | Binary():
                return self.arithmetic(expr, scope, indexing)
        raise SemanticsError(f"unknown expression {expr}")

    def call(self, expr: Call, scope: frozenset[str], indexing: str | None) -> str:
        if expr.function != "select":
            return self.function(expr.function, self.same(expr.args, f"{expr.function}()", scope, indexing))
        kind = self.value(expr.args[0], scope)
        if kind != "bool":
            raise SemanticsError(f"select() needs a bool condition, not {kind}")
        return self.same(expr.args[1:], "select()", scope, indexing)

    def arithmetic(self, expr: Unary | Binary, scope: frozenset[str], indexing: str | None) -> str:
        if isinstance(expr, Binary):
            return self.binary(expr.op, self.same(expr.children, repr(expr.op), scope, indexing))
        kind = self.value(expr.x, scope, indexing)
        if kind == "bool":
            raise SemanticsError("'-' needs numbers, not bool")
        return kind

    def name(self, name: str, scope: frozenset[str], indexing: str | None) -> str:
        if name in self.scalars:
            return self.dtypes[name]
        if name in scope:
            return INDEX
        if indexing is not None:
            hint = f"; wrap it in sum[{name}](...)" if name in self.dims else ""
            raise SemanticsError(
                f"{name!r} in {indexing}[] is neither a dim of the left side nor reduced{hint}"
            )
        if name in self.dims:
            raise SemanticsError(
                f"{name!r} is neither a dim of the left side nor reduced; wrap it in sum[{name}](...)"
            )
        raise SemanticsError(
            f"unknown name {name!r} (operands are read with [...]; dims: {' '.join(self.dims)})"
        )

    def read(self, operand: str, index: tuple[Expr, ...], scope: frozenset[str], indexing: str | None) -> str:
        if operand not in self.dtypes or operand in self.scalars:
            known = " ".join(n for n in self.dtypes if n not in self.scalars)
            raise SemanticsError(f"{operand!r} is read but is not an operand; operands: {known}")
        if indexing is not None and not is_integer(self.dtypes[operand]):
            raise SemanticsError(f"an index may be read from an integer operand only, not from {operand!r}")
        self.index(operand, index, scope)
        self.reads[operand] = None
        return self.dtypes[operand]

    def reduce(self, expr: Reduce, scope: frozenset[str]) -> str:
        for dim in expr.dims:
            if dim not in self.dims:
                raise SemanticsError(f"{expr.kind}[{dim}]: {dim!r} is not a dim; dims: {' '.join(self.dims)}")
            if dim in scope:
                raise SemanticsError(f"{expr.kind}[{dim}]: {dim!r} is already a dim around it")
        kind = self.value(expr.body, scope | set(expr.dims))
        if (expr.kind in ("any", "all")) != (kind == "bool"):
            raise SemanticsError(f"{expr.kind}[...] cannot reduce {kind}")
        return kind

    def logical(self, op: str, parts: tuple[Expr, ...], scope: frozenset[str]) -> str:
        kinds = [self.value(p, scope) for p in parts]
        if set(kinds) != {"bool"}:
            raise SemanticsError(f"{op!r} needs bool operands, not {' and '.join(kinds)}")
        return "bool"

    def same(self, parts: tuple[Expr, ...], what: str, scope: frozenset[str], indexing: str | None) -> str:
        kinds = [self.value(p, scope, indexing) for p in parts]
        real = [k for k in kinds if k != LITERAL] or [LITERAL]
        if INDEX in real and all(k == INDEX or is_integer(k) for k in real):
            return INDEX
        if len(set(real)) > 1:
            mixed = " and ".join(sorted(set(real)))
            raise SemanticsError(f"{what} mixes {mixed}; there is no implicit conversion, write a cast")
        for part, kind in zip(parts, kinds, strict=True):
            if kind == LITERAL and real[0] != LITERAL:
                self.literal(part, real[0])
        return real[0]

    def literal(self, expr: Expr, dtype: str) -> None:
        """A literal takes the type of its neighbour, so it must have a value there."""
        for node in walk(expr):
            if not isinstance(node, Number):
                continue
            if dtype == "bool":
                raise SemanticsError(f"{node.value!r} is not bool; write a comparison")
            if (is_integer(dtype) or dtype == INDEX) and not isinstance(node.value, int):
                raise SemanticsError(f"{node.value!r} is not an integer, but its neighbour is {dtype}")
            if is_integer(dtype):
                bits, signed = DTYPES[dtype].bits, DTYPES[dtype].kind == "i"
                top = (1 << (bits - signed)) - 1
                if node.value > top + signed:  # one more for the least negative number
                    raise SemanticsError(f"{node.value} does not fit {dtype}")

    def function(self, function: str, kind: str) -> str:
        if function in ("max", "min", "abs"):
            if kind == "bool":
                raise SemanticsError(f"{function}() needs numbers, not bool")
        elif not (is_float(kind) or kind == LITERAL):
            raise SemanticsError(f"{function}() needs floats, not {kind}; write a cast")
        return kind

    def binary(self, op: str, kind: str) -> str:
        if op in COMPARISONS:
            if kind == "bool" and op not in ("==", "!="):
                raise SemanticsError(f"{op!r} needs numbers, not bool")
            return "bool"
        if kind == "bool" and op != "^":
            raise SemanticsError(f"{op!r} needs numbers, not bool")
        if op == "^" and is_float(kind):
            raise SemanticsError(f"'^' needs integers, not {kind}")
        if op == "/" and not (is_float(kind) or kind == LITERAL):
            raise SemanticsError(f"'/' needs floats, not {kind}; integers divide with //")
        return kind


def check_condition(expr: Expr, dims: Iterable[str], scalars: Mapping[str, str]) -> None:
    """A condition over dims and scalar operands (name -> dtype) must be bool; SemanticsError if it is not."""
    known = [*dims, *scalars]
    for name in sorted(names(expr) - set(known)):
        raise SemanticsError(
            f"{name!r} is neither a dim nor a scalar operand{nearest(name, known) if known else ''}"
        )
    inference = _Inference((), dict(scalars), tuple(dims), frozenset(scalars), {})
    kind = inference.value(expr, frozenset(dims))
    if kind != "bool":
        raise SemanticsError(f"a condition is bool, not {kind}")


# --------------------------------------------------------------------------------------------------------- operations
def count_operations(program: Program, extents: Mapping[str, int]) -> int:
    """Arithmetic operations of one execution: + - * / and functions, each over its iteration space; `+=` and `sum[k]`
    add their terms.  Casts, comparisons, `select`, signs and index arithmetic are free."""
    total = 0
    for statement in program:
        space = math.prod(extents[n] for n in names(*(statement.index or ())) if n in extents)
        total += _operations(statement.expr, space, extents) + (space if statement.assign != "=" else 0)
    return total


def _operations(expr: Expr, space: int, extents: Mapping[str, int]) -> int:
    match expr:
        case Read():
            return 0
        case Reduce(dims=dims, body=body):
            inner = space * math.prod(extents[d] for d in dims)
            return _operations(body, inner, extents) + inner - space
        case Call(function=function, args=args):
            own = space if function != "select" else 0
            return own + sum(_operations(a, space, extents) for a in args)
        case Binary(op=op, x=x, y=y):
            own = space if op in _VALUE_OPERATIONS else 0
            return own + _operations(x, space, extents) + _operations(y, space, extents)
    return sum(_operations(c, space, extents) for c in expr.children)
