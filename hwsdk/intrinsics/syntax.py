"""The expression language of semantics and layouts: grammar, tree and parser.

    program   = statement { ";" statement } [ ";" ]
    statement = NAME [ "[" exprs "]" ] ("=" | "+=" | "max=" | "min=") expr [ "where" expr ]
    expr      = or over and over comparison over "^" over + - over * / // % over unary (- not) over primary
    primary   = NUMBER | inf | nan | NAME | NAME "[" exprs "]" | "(" expr ")" | REDUCE "[" names "]" "(" expr ")"
              | DTYPE { "." MODIFIER } "(" expr ")" | FUNCTION "(" exprs ")"

Design choice: one tree and one parser serve the meaning of an instruction, the layout of an operand, the extent
of a dim and the condition of a library call.  Nothing is ever handed to Python's `eval`; size and depth are
bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from hwsdk.dtypes import DTYPES
from hwsdk.errors import TargetError, nearest

FUNCTIONS = {
    "max": 2, "min": 2, "select": 3, "abs": 1, "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sqrt": 1, "rsqrt": 1,
    "rcp": 1, "tanh": 1, "erf": 1, "sin": 1, "cos": 1, "floor": 1, "ceil": 1, "round": 1,
}  # fmt: skip
REDUCTIONS = ("sum", "max", "min", "any", "all")
MODIFIERS = ("sat", "rne", "rtz", "floor", "ceil")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LEVELS: tuple[tuple[str, ...], ...] = (
    ("or",),
    ("and",),
    COMPARISONS,
    ("^",),
    ("+", "-"),
    ("*", "/", "//", "%"),
)
RESERVED = frozenset({*REDUCTIONS, "inf", "nan", "or", "and", "not", "where", "address"})
MAX_DEPTH = 64
MAX_INTEGER = (1 << 63) - 1


class SemanticsError(TargetError):
    """A text in the semantics or layout language is wrong, or its evaluation is not defined."""


# --------------------------------------------------------------------------------------------------------------- tree
@dataclass(frozen=True)
class Expr:
    """Base of expressions; `depth` bounds recursion over them."""

    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max((c.depth for c in self.children), default=0))

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True)
class Number(Expr):
    value: int | float


@dataclass(frozen=True)
class Name(Expr):
    """A dim or a scalar operand."""

    name: str


@dataclass(frozen=True)
class Read(Expr):
    """One element of an operand."""

    operand: str
    index: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True)
class Cast(Expr):
    dtype: str
    modifiers: tuple[str, ...]
    x: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.x,)


@dataclass(frozen=True)
class Call(Expr):
    function: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True)
class Reduce(Expr):
    kind: str
    dims: tuple[str, ...]
    body: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)


@dataclass(frozen=True)
class Unary(Expr):
    op: str
    x: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.x,)


@dataclass(frozen=True)
class Binary(Expr):
    op: str
    x: Expr
    y: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.x, self.y)


@dataclass(frozen=True)
class Statement:
    """`target[index] assign expr where where`; index None is a plain name, as in a layout."""

    target: str
    index: tuple[Expr, ...] | None
    assign: str
    expr: Expr
    where: Expr | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*(self.index or ()), self.expr, *(() if self.where is None else (self.where,)))


Program = tuple[Statement, ...]


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression, outer first."""
    yield expr
    for child in expr.children:
        yield from walk(child)


def names(*exprs: Expr) -> set[str]:
    """Names that occur in the expressions, outside of operands' names."""
    return {node.name for expr in exprs for node in walk(expr) if isinstance(node, Name)}


# ------------------------------------------------------------------------------------------------------------- parser
_TOKEN = re.compile(
    r"\s*(?:(?P<num>[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+(?:[eE][-+]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op>\+=|//|<=|>=|==|!=|[-+*/%^()\[\],;=<>.]))"
)
_WORDS = {"or", "and", "not", "where"}


def parse(text: str) -> Program:
    """A program of one or more statements; SemanticsError says what was expected."""
    return _Parser(text).program()


def parse_expr(text: str) -> Expr:
    """One expression."""
    parser = _Parser(text)
    expr = parser.expr()
    parser.end()
    return expr


@dataclass
class _Parser:
    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)
    at: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        position, text = 0, self.text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise self.error(f"unexpected character {text[position:].strip()[0]!r}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()

    def error(self, message: str) -> SemanticsError:
        shown = self.text if len(self.text) <= 120 else self.text[:120] + "..."
        return SemanticsError(f"{message} in {shown!r}")

    def fail(self, message: str) -> NoReturn:
        raise self.error(message)

    def peek(self) -> str | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def kind(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def take(self, want: str | None = None) -> str:
        token = self.peek()
        if token is None or want not in (None, token):
            self.fail(f"expected {want or 'more'!r} but found {token or 'the end'!r}")
        self.at += 1
        return str(token)

    def end(self) -> None:
        if self.peek() is not None:
            self.fail(f"unexpected {self.peek()!r}")

    # ---- statements
    def program(self) -> Program:
        out = [self.statement()]
        while self.peek() == ";":
            self.take()
            if self.peek() is not None:
                out.append(self.statement())
        self.end()
        return tuple(out)

    def statement(self) -> Statement:
        if self.kind() != "name":
            self.fail(f"expected a name but found {self.peek() or 'the end'!r}")
        target = self.take()
        index = self.listing("[", "]") if self.peek() == "[" else None
        assign = self.take()
        if assign in ("max", "min"):
            assign += self.take("=")
        if assign not in ("=", "+=", "max=", "min="):
            self.fail(f"expected = += max= or min= but found {assign!r}")
        expr, where = self.expr(), None
        if self.peek() == "where":
            self.take()
            where = self.expr()
        return Statement(target, index, assign, expr, where)

    def listing(self, opening: str, closing: str) -> tuple[Expr, ...]:
        self.take(opening)
        out = []
        while self.peek() != closing:
            out.append(self.expr())
            if self.peek() != closing:
                self.take(",")
        self.take(closing)
        return tuple(out)

    # ---- expressions
    def expr(self, level: int = 0) -> Expr:
        if level == len(LEVELS):
            return self.unary()
        if level == 0:
            self.deeper()
        left = self.expr(level + 1)
        while self.peek() in LEVELS[level]:
            left = Binary(self.take(), left, self.expr(level + 1))
            if left.depth > MAX_DEPTH:
                self.fail(f"more than {MAX_DEPTH} operations deep")
        if level == 0:
            self.depth -= 1
        return left

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH // 4:
            self.fail(f"nested deeper than {MAX_DEPTH // 4}")

    def unary(self) -> Expr:
        signs: list[str] = []
        while self.peek() in ("-", "not") and self.kind() in ("op", "name"):
            signs.append(self.take())
            if len(signs) > MAX_DEPTH:
                self.fail("too many signs")
        out = self.primary()
        for sign in reversed(signs):
            out = Unary(sign, out)
        return out

    def primary(self) -> Expr:
        kind, token = self.kind(), self.take()
        if kind == "num":
            return self.number(token)
        if token == "(":
            inner = self.expr()
            self.take(")")
            return inner
        if kind != "name" or token in _WORDS:
            self.fail(f"unexpected {token!r}")
        if token in ("inf", "nan"):
            return Number(float(token))
        if token in REDUCTIONS and self.peek() == "[":
            return self.reduction(token)
        if self.peek() == "[":
            return Read(token, self.listing("[", "]"))
        return self.applied(token)

    def number(self, token: str) -> Number:
        if len(token) > 40:
            self.fail(f"the number {token[:20]}... is out of range")
        value = float(token) if re.search(r"[.eE]", token) else int(token)
        if abs(value) > MAX_INTEGER and isinstance(value, int):
            self.fail(f"the number {token} is out of range")
        return Number(value)

    def reduction(self, kind: str) -> Reduce:
        inner = self.listing("[", "]")
        dims = tuple(d.name for d in inner if isinstance(d, Name))
        if len(dims) != len(inner) or not dims or len(set(dims)) != len(dims):
            self.fail(f"{kind}[...] takes different names of dims")
        self.take("(")
        body = self.expr()
        self.take(")")
        return Reduce(kind, dims, body)

    def applied(self, token: str) -> Expr:
        modifiers = []
        while self.peek() == ".":
            self.take()
            modifiers.append(self.take())
        if self.peek() != "(":
            if modifiers:
                self.fail(f"expected '(' after {token}.{modifiers[-1]}")
            return Name(token)
        args = self.listing("(", ")")
        if token in DTYPES:
            for modifier in modifiers:
                if modifier not in MODIFIERS:
                    self.fail(f"unknown cast modifier .{modifier}; choose from {' '.join(MODIFIERS)}")
            if len(args) != 1:
                self.fail(f"the cast {token}() takes one value")
            return Cast(token, tuple(modifiers), args[0])
        if modifiers:
            self.fail(f"only casts take modifiers, not {token}()")
        if FUNCTIONS.get(token) != len(args):
            known = f"it takes {FUNCTIONS[token]}" if token in FUNCTIONS else nearest(token, FUNCTIONS)[2:]
            self.fail(f"unknown function {token}() with {len(args)} arguments; {known}")
        return Call(token, args)
