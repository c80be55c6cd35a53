"""LoopIR from text: the parsing half of `loop_text`, where the form is described.

Design choice: a cursor over one line at a time; every error is a CodegenError with the number of that line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

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
    Intrin,
    Let,
    Load,
    LoopKernel,
    Outline,
    Reduce,
    Ref,
    Select,
    Stmt,
    Store,
    Switch,
    Sync,
    Ternary,
    Unary,
    Value,
    View,
)
from hwsdk.codegen.loop_print import INFIX, NAME, PRECEDENCE, REDUCTIONS, implied_dtype
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError, GraphError, nearest
from hwsdk.graph import dims
from hwsdk.graph.scalar import SCALAR

_FROM_INFIX = {sign: op for op, sign in INFIX.items()}
_SIGNS = ("==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_INTEGER = re.compile(r"-?\d{1,20}\b")
_NUMBER = re.compile(r"-?(?:inf\b|\d[\d.]*(?:e[-+]?\d+)?)|(?:nan|true|false)\b")


def parse_kernel(text: str) -> LoopKernel:
    """The kernel that `text` writes; CodegenError with the line otherwise."""
    return _Parser(text).kernel()


class _Parser:
    """Recursive descent over one line at a time: `line` is its text, `at` the place in it."""

    def __init__(self, text: str) -> None:
        lines = enumerate(map(_without_comment, text.splitlines()), 1)
        self.lines = [(n, line) for n, line in lines if line]
        self.next = 0
        self.number, self.line, self.at = 0, "", 0
        self.dtypes: dict[str, str] = {}
        self.lets: dict[str, str] = {}
        self.temporaries: dict[str, Value] = {}
        self.depth = 0

    # lines
    def advance(self) -> None:
        if self.next >= len(self.lines):
            self.fail("the text ends here; expected a statement or '}'")
        self.number, self.line = self.lines[self.next]
        self.next, self.at = self.next + 1, 0

    def fail(self, why: str) -> NoReturn:
        rest = self.line[self.at :].strip()
        got = "" if why.endswith("'}'") else f", got {rest[:30]!r}" if rest else ", got the end of the line"
        raise CodegenError(f"LoopIR text, line {self.number}: {why}{got}")

    def take(self, *wanted: str) -> str:
        """The next of `wanted`, if it stands here (a word only as a whole)."""
        while self.line[self.at : self.at + 1] == " ":
            self.at += 1
        for token in wanted:
            end = self.at + len(token)
            whole = not token[0].isalpha() or not _word_goes_on(self.line, end)
            if whole and self.line.startswith(token, self.at):
                self.at = end
                return token
        return ""

    def expect(self, *wanted: str) -> str:
        return self.take(*wanted) or self.fail(f"expected {' or '.join(map(repr, wanted))}")

    def end(self) -> None:
        if self.line[self.at :].strip():
            self.fail("expected the end of the line")

    def name(self) -> str:
        self.take()
        found = NAME.match(self.line, self.at) or _QUOTED.match(self.line, self.at)
        if not found:
            self.fail("expected a name")
        self.at = found.end()
        return self.decoded(found.group()) if found.group()[0] == '"' else found.group()

    def decoded(self, text: str) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            self.fail(f"{text} is not a quoted string")

    def integer(self) -> int:
        self.take()
        found = _INTEGER.match(self.line, self.at)
        if not found:
            self.fail("expected an integer")
        self.at = found.end()
        return int(found.group())

    def dtype(self) -> str:
        name = self.name()
        if name not in DTYPES:
            self.fail(f"unknown dtype {name!r}{nearest(name, DTYPES)}")
        return name

    # dims: the text up to a terminator outside parentheses
    def dim(self, terminators: str) -> Index:
        start, depth = self.at, 0
        while self.at < len(self.line) and (depth or self.line[self.at] not in terminators):
            depth += {"(": 1, ")": -1}.get(self.line[self.at], 0)
            self.at += 1
        try:
            return dims.parse(self.line[start : self.at])
        except GraphError as error:
            raise CodegenError(f"LoopIR text, line {self.number}: {error}") from None

    def dim_list(self) -> tuple[Index, ...]:
        self.expect("[")
        out: list[Index] = []
        while not self.take("]"):
            out.append(self.dim(",]"))
            if not self.take(","):
                self.expect("]")
                break
        return tuple(out)

    # kernel and statements
    def kernel(self) -> LoopKernel:
        self.advance()
        self.expect("kernel")
        name = self.name()
        self.expect("{")
        self.end()
        params: list[Buffer] = []
        outputs: list[str] = []
        dim_names: list[str] = []
        notes: list[str] = []
        while True:
            self.advance()
            match self.take("param", "dim", "note"):
                case "param":
                    params.append(self.buffer())
                    if self.take("out"):
                        outputs.append(params[-1].name)
                case "dim":
                    dim_names.append(self.name())
                case "note":
                    notes.append(self.name())
                case _:
                    break
            self.end()
        self.next -= 1
        body = self.body()
        self.end()
        if self.next < len(self.lines):
            self.advance()
            self.fail("expected the end of the text")
        return LoopKernel(name, tuple(params), tuple(dim_names), body, tuple(outputs), tuple(notes))

    def buffer(self) -> Buffer:
        name = self.name()
        self.expect(":")
        self.dtypes[name] = dtype = self.dtype()
        shape = self.dim_list()
        self.expect("in")
        place = self.name()
        strides = self.dim_list() if self.take("strides") else None
        return Buffer(name, dtype, shape, place, strides, self.integer() if self.take("align") else 0)

    def body(self) -> Body:
        """Statements up to the closing brace, which is taken."""
        self.depth += 1
        if self.depth > 100:
            self.fail("statements nested too deeply")
        out: list[Stmt] = []
        while True:
            self.advance()
            if self.take("}"):
                self.depth -= 1
                return tuple(out)
            if self.take("%"):
                key = f"%{self.integer()}"
                self.expect("=")
                self.temporaries[key] = self.value()
                self.end()
            else:
                out.append(self.statement())
                self.temporaries = {}

    def statement(self) -> Stmt:
        keyword = self.take(*_STATEMENTS)
        stmt = _STATEMENTS[keyword](self) if keyword else self.store()
        self.end()
        return stmt

    def opened(self) -> Body:
        self.expect("{")
        self.end()
        self.temporaries = {}
        return self.body()

    def let(self) -> Stmt:
        name = self.name()
        self.expect(":")
        dtype = self.dtype()
        self.expect("=")
        value = self.value()
        if value.dtype != dtype:
            self.fail(f"{name} is {dtype} but the value is {value.dtype}")
        self.lets[name] = dtype
        return Let(name, value)

    def alloc(self) -> Stmt:
        return Alloc(self.buffer())

    def store(self) -> Stmt:
        name = self.name()
        index = self.dim_list()
        self.expect("=")
        value = self.value()
        return Store(name, index, value, self.value() if self.take("where") else None)

    def loop(self, kind: str) -> Stmt:
        level = None
        if self.take("("):
            level = self.name()
            self.expect(")")
        var = self.name()
        self.expect("<")
        extent = self.dim(",{")
        active = None
        if self.take(","):
            self.expect("active")
            active = self.dim("{")
        return For(var, extent, self.opened(), kind, level, active)

    def branch(self) -> Stmt:
        cond = self.value()
        then = self.opened()
        return If(cond, then, self.opened() if self.take("else") else ())

    def switch(self) -> Stmt:
        index = self.dim("{")
        self.expect("{")
        self.end()
        cases: list[Body] = []
        while True:
            self.advance()
            if self.take("}"):
                return Switch(index, tuple(cases))
            self.expect("case", "}")
            cases.append(self.opened())
            self.end()

    def outline(self) -> Stmt:
        return Outline(self.name(), self.opened())

    def use(self) -> Stmt:
        name = self.name()
        operands = self.bindings(self.operand)
        return Intrin(name, operands, self.bindings(lambda: self.dim(",)")) if self.take("dims") else ())

    def bindings(self, item: Callable[[], Any]) -> tuple[tuple[str, Any], ...]:
        self.expect("(")
        out: list[tuple[str, Any]] = []
        while not self.take(")"):
            name = self.name()
            self.expect("=")
            out.append((name, item()))
            if not self.take(","):
                self.expect(")")
                break
        return tuple(out)

    def operand(self) -> View | Index | Value:
        if self.take("&"):
            return View(self.name(), self.dim_list())
        if self.take("value"):
            self.expect("(")
            value = self.value()
            self.expect(")")
            return value
        return self.dim(",)")

    def sync(self) -> Stmt:
        return Sync(self.name(), self.integer() if self.take("pending") else 0)

    # values
    def value(self, level: int = 1) -> Value:
        """Infix operators of at least this precedence, left to right."""
        self.depth += 1
        if self.depth > 150:
            self.fail("values nested too deeply; name a part of it with %N = ...")
        left = self.postfix()
        while sign := self.take(*(s for s in _SIGNS if PRECEDENCE.get(s, 1) >= level)):
            left = self.infix(_FROM_INFIX[sign], left, self.value(PRECEDENCE.get(sign, 1) + 1))
        self.depth -= 1
        return left

    def infix(self, op: str, x: Value, y: Value) -> Value:
        return self.typed(lambda dtype: Binary(dtype, op, x, y))

    def postfix(self) -> Value:
        value = self.primary()
        if not isinstance(value, Const | FromIndex | Ref) and self.take(":"):
            dtype = self.dtype()
            fields = {k: getattr(value, k) for k in value.__dataclass_fields__}
            value = type(value)(**{**fields, "dtype": dtype})
        return value

    def typed(self, make: Callable[[str], Value]) -> Value:
        """The node with the dtype that its operands imply."""
        return make(implied_dtype(make(""), self.dtypes) or "")

    def primary(self) -> Value:
        if self.take("("):
            value = self.value()
            self.expect(")")
            return value
        if self.take("%"):
            key = f"%{self.integer()}"
            return self.temporaries.get(key) or self.fail(f"{key} is not defined before this statement")
        self.take()
        number = _NUMBER.match(self.line, self.at)
        if number:
            self.at = number.end()
            self.expect(":")
            return Const(self.dtype(), self.number_of(number.group()))
        if self.line[self.at : self.at + 1] == '"':
            return self.named(self.name())
        word = self.name()
        if self.take("("):
            return self.call(word)
        return self.reduce(word) if word in REDUCTIONS else self.named(word)

    def number_of(self, text: str) -> float | bool:
        if text in ("true", "false"):
            return text == "true"
        try:
            return int(text) if re.fullmatch(r"-?\d{1,30}", text) else float(text)
        except ValueError:
            self.fail(f"{text} is not a number")

    def named(self, name: str) -> Value:
        if self.line[self.at : self.at + 1] == "[":
            index = self.dim_list()
            where = None
            if self.take("?"):
                self.expect("(")
                where = self.value()
                self.expect(")")
            dtype = self.dtypes.get(name)
            if dtype is None:
                self.fail(f"unknown buffer {name!r}{nearest(name, self.dtypes)}")
            return Load(dtype, name, index, where)
        if self.take(":"):
            return Ref(self.dtype(), name)
        if name not in self.lets:
            self.fail(f"unknown value {name!r}{nearest(name, self.lets)}")
        return Ref(self.lets[name], name)

    def reduce(self, op: str) -> Value:
        self.expect("[")
        var = self.name()
        self.expect("<")
        extent = self.integer()
        self.expect("]")
        self.expect("(")
        value = self.value()
        self.expect(")")
        return Reduce(value.dtype, op, var, extent, value)

    def call(self, word: str) -> Value:
        if word == "index":
            index = self.dim(")")
            self.expect(")")
            self.expect(":")
            return FromIndex(self.dtype(), index)
        args = [self.value()]
        while self.take(","):
            args.append(self.value())
        self.expect(")")
        dtype, _, mode = word.partition(".")
        if dtype in DTYPES and len(args) == 1:
            return Cast(dtype, args[0], mode or "value")
        if word == "select" and len(args) == 3:
            return Select(args[1].dtype, *args)
        if word not in SCALAR:
            self.fail(f"unknown operation {word!r}{nearest(word, [*SCALAR, 'select', 'index'])}")
        if not SCALAR[word].arity == len(args) <= 3:
            self.fail(f"{word} takes {SCALAR[word].arity} operands, not {len(args)}")
        node: Any = (Unary, Binary, Ternary)[len(args) - 1]
        return self.typed(lambda dtype: node(dtype, word, *args))


_STATEMENTS: dict[str, Callable[[_Parser], Stmt]] = {
    "let": _Parser.let,
    "alloc": _Parser.alloc,
    "for": lambda p: p.loop("serial"),
    "unroll": lambda p: p.loop("unroll"),
    "vector": lambda p: p.loop("vector"),
    "parallel": lambda p: p.loop("parallel"),
    "if": _Parser.branch,
    "switch": _Parser.switch,
    "outline": _Parser.outline,
    "use": _Parser.use,
    "sync": _Parser.sync,
}


def _without_comment(line: str) -> str:
    quoted = re.compile(r'(?:[^"#]|"(?:[^"\\]|\\.)*")*').match(line)
    return line[: quoted.end()].strip() if quoted else line.strip()


def _word_goes_on(line: str, end: int) -> bool:
    return bool(re.match(r"[A-Za-z0-9_.$]", line[end : end + 1]))
