"""Reading dims back from text: the inverse of `str`.

    sum = [-] product {(+ | -) product}     product = unary {(* | // | %) unary}     unary = {-} atom
    atom = integer | name | function(sum, ...) | (sum)    function = floordiv mod ceildiv min max ge eq gt ...

Design choice: a recursive-descent parser of one screen with a depth limit; the text is data, never executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hwsdk.errors import GraphError, nearest
from hwsdk.graph import expr
from hwsdk.graph.expr import Dim

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_$][A-Za-z0-9_$]*(?:\.[A-Za-z0-9_$]+)*)|(//|[-+*%(),]))")
_MAX_DEPTH = 60
_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    **expr.BUILD,
    "gt": expr.gt,
    "le": expr.le,
    "lt": expr.lt,
    "ne": expr.ne,
    "both": expr.both,
    "either": expr.either,
}
_VARIADIC = ("min", "max", "both")


def parse(text: str) -> Dim:
    """The Dim that `text` writes; GraphError with the text and the place otherwise."""
    parser = _Parser(text)
    result = parser.sum(0)
    if parser.peek():
        parser.fail("expected an operator or the end")
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.place = 0
        end = 0
        stripped = text.rstrip()
        while end < len(stripped):
            found = _TOKEN.match(text, end)
            if not found:
                raise GraphError(f"dimension {text!r}: unexpected {stripped[end:].lstrip()[:1]!r}")
            self.tokens.append(found.group().strip())
            end = found.end()

    def fail(self, why: str) -> None:
        got = self.peek()
        raise GraphError(f"dimension {self.text!r}: {why}, got {repr(got) if got else 'the end'}")

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def expect(self, token: str) -> None:
        if self.peek() != token:
            self.fail(f"expected {token!r}")
        self.place += 1

    def sum(self, depth: int) -> Dim:
        if depth > _MAX_DEPTH:
            self.fail("nested too deeply")
        result = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            result = expr.add(result, expr.multiply(sign, self.product(depth)))
        return result

    def product(self, depth: int) -> Dim:
        result = self.unary(depth)
        while self.peek() in ("*", "//", "%"):
            apply = {"*": expr.multiply, "//": expr.floordiv, "%": expr.mod}[self.take()]
            result = apply(result, self.unary(depth))
        return result

    def unary(self, depth: int) -> Dim:
        sign = 1
        while self.peek() == "-":
            self.take()
            sign = -sign
        return expr.multiply(sign, self.atom(depth))

    def atom(self, depth: int) -> Dim:
        token = self.peek()
        if token == "(":
            self.take()
            result = self.sum(depth + 1)
            self.expect(")")
            return result
        if token.isdecimal():
            if len(token) > 30:
                self.fail("number too long")
            return int(self.take())
        if not token or not expr.NAME.match(token):
            self.fail("expected a number, a name or '('")
        self.take()
        return self.call(token, depth) if self.peek() == "(" else expr.sym(token)

    def call(self, name: str, depth: int) -> Dim:
        if name not in _FUNCTIONS:
            raise GraphError(f"dimension {self.text!r}: unknown function {name!r}{nearest(name, _FUNCTIONS)}")
        self.expect("(")
        args = [self.sum(depth + 1)]
        while self.peek() == ",":
            self.take()
            args.append(self.sum(depth + 1))
        self.expect(")")
        if name not in _VARIADIC and len(args) != 2:
            self.fail(f"{name} takes 2 arguments, not {len(args)}")
        return _FUNCTIONS[name](*args)
