"""The words of a logical line of LLVM text, and the types and values that they make.

Design choice: a logical line is a line with its brackets closed; inside one, recursive descent over its words.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NoReturn

from hwsdk.sim.simt.llvm_text.syntax import (
    Constant,
    Expression,
    Global,
    LlvmTextError,
    Local,
    Tuple,
    Value,
)
from hwsdk.sim.simt.llvm_text.types import VOID, Scalar, Sequence, Struct, Type, scalars
from hwsdk.sim.simt.problems import Problem

_WORD = re.compile(
    r"""\s+ | ;[^\n]*
      | (?P<word>c?"(?:[^"\\]|\\.)*"
      | [%@\#!$](?:"[^"]*"|[-\w.$]*)
      | 0x[HRKLM]?[0-9A-Fa-f]+ | -?\d+\.\d*(?:[eE][+-]?\d+)? | -?\d+
      | [A-Za-z_][\w.]* | \.\.\. | [=,(){}\[\]<>*:|])""",
    re.VERBOSE,
)
FLAGS = set(
    "nuw nsw exact disjoint nneg fast nnan ninf nsz arcp contract reassoc afn inbounds nusw samesign volatile".split()
)
PARAMETER_WORDS = set(
    "noundef nonnull signext zeroext inreg noalias readonly readnone writeonly immarg returned nocapture nofree"
    " dead_on_unwind writable noreturn nounwind".split()
)
_WITH_BRACKETS = {
    "align",
    "range",
    "captures",
    "dereferenceable",
    "nofpclass",
    "byval",
    "initializes",
    "memory",
}
CASTS = set(
    "zext sext trunc bitcast fptrunc fpext sitofp uitofp fptosi fptoui ptrtoint inttoptr addrspacecast".split()
)
_KINDS = {"half", "bfloat", "float", "double"}
_NAMED = {"undef": None, "poison": None, "zeroinitializer": 0, "null": 0, "true": 1, "false": 0}
_DEEPEST = 40


@dataclass(frozen=True)
class Logical:
    line: int
    text: str


def logical_lines(text: str) -> list[Logical]:
    """LlvmTextError for a bracket that is never closed."""
    found: list[Logical] = []
    held: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not held:
            start = number
        held.append(line)
        whole = "\n".join(held)
        bare = re.sub(r'"[^"]*"', "", re.sub(r";[^\n]*", "", whole))
        if bare.count("[") > bare.count("]"):
            continue
        if bare.strip():
            found.append(Logical(start, whole.strip()))
        held = []
    if held:
        raise LlvmTextError([Problem(start, held[0].strip()[:100], "a bracket that is never closed")])
    return found


class Words:
    """The words of a logical line, and what is made of them."""

    def __init__(self, logical: Logical, types: dict[str, Type]) -> None:
        self.logical, self.types = logical, types
        self.words: list[str] = []
        self.at = self.depth = 0
        place = 0
        while place < len(logical.text):
            match = _WORD.match(logical.text, place)
            if match is None:
                self.fail(f"{logical.text[place : place + 10]!r} begins no word")
            if match.group("word"):
                self.words.append(match.group("word"))
            place = match.end()

    def fail(self, message: str) -> NoReturn:
        text = " ".join(self.logical.text.split())[:160]
        raise LlvmTextError([Problem(self.logical.line, text, message)])

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def next(self) -> str:
        if self.at >= len(self.words):
            self.fail("the line ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def before(self) -> str:
        return self.words[self.at - 1] if self.at else ""

    def accept(self, word: str) -> bool:
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"expected {word!r}, found {self.peek()!r}")

    def integer(self) -> int:
        word = self.next()
        if not re.fullmatch(r"-?\d+", word):
            self.fail(f"expected an integer, found {word!r}")
        return int(word)

    def bracketed(self) -> int:
        self.expect("(")
        number = self.integer()
        self.expect(")")
        return number

    @property
    def text(self) -> str:
        return " ".join(self.logical.text.split())

    def result(self) -> str:
        """The name before `=`, if there is one."""
        if len(self.words) < 2 or self.words[1] != "=":
            return ""
        self.at = 2
        return self.words[0]

    def flags(self) -> None:
        while self.peek() in FLAGS:
            self.at += 1

    def parameter_words(self) -> None:
        while True:
            word = self.peek()
            if word in PARAMETER_WORDS or word.startswith('"'):
                self.at += 1
                if self.accept("="):
                    self.at += 1
            elif word in _WITH_BRACKETS:
                self.at += 1
                if self.peek() == "(":
                    self.skip_brackets()
                else:
                    self.at += 1
            else:
                return

    def skip_brackets(self) -> None:
        depth = 0
        while True:
            word = self.next()
            depth += (word == "(") - (word == ")")
            if not depth:
                return

    # -------------------------------------------------------------------------------------------- types
    def type(self) -> Type:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("types nested too deeply")
        found = self._type()
        self.depth -= 1
        return found

    def _type(self) -> Type:
        word = self.next()
        if word == "ptr":
            return Scalar("ptr", 0, self.bracketed() if self.accept("addrspace") else 0)
        if re.fullmatch(r"i\d+", word):
            return Scalar("int", int(word[1:]))
        if word in _KINDS:
            return Scalar(word)
        if word == "void":
            return VOID
        if word == "<" and self.peek() != "{":
            return self._sequence(">", True)
        if word == "[":
            return self._sequence("]", False)
        if word in ("<", "{"):
            return self._struct(word == "<" and self.accept("{"))
        return self.types.get(word) or self.fail(f"{word!r} is no type that is supported")

    def _struct(self, packed: bool) -> Type:
        fields = []
        while not self.accept("}"):
            fields.append(self.type())
            self.accept(",")
        if packed:
            self.expect(">")
        return Struct(tuple(fields), packed)

    def _sequence(self, close: str, vector: bool) -> Type:
        count = self.integer()
        self.expect("x")
        element = self.type()
        self.expect(close)
        return Sequence(count, element, vector)

    # -------------------------------------------------------------------------------------------- values
    def value(self, kind: Type) -> Value:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("values nested too deeply")
        found = self._value(kind)
        self.depth -= 1
        return found

    def _value(self, kind: Type) -> Value:
        word = self.next()
        if word[0] == "%":
            return Local(word)
        if word[0] == "@":
            return Global(word)
        parts = scalars(kind)
        if word in _NAMED:
            return Constant((_NAMED[word],) * len(parts))
        if word == "splat":
            return self._splat(len(parts))
        if word.startswith('c"'):
            return Constant(tuple(_string(word)))
        if word in ("<", "[", "{"):
            return self._aggregate({"<": ">", "[": "]", "{": "}"}[word])
        if word == "getelementptr" or word in CASTS or word in ("add", "sub"):
            return self._expression(word)
        if len(parts) == 1:
            return Constant((self._number(word, parts[0]),))
        self.fail(f"{word!r} is no value")

    def _splat(self, count: int) -> Value:
        self.expect("(")
        each = self.typed()[1]
        self.expect(")")
        if not isinstance(each, Constant):
            self.fail("a splat of no constant")
        return Constant(each.values * count)

    def _aggregate(self, close: str) -> Value:
        found: list[tuple[Type, Value]] = []
        while not self.accept(close):
            kind = self.type()
            found.append((kind, self.value(kind)))
            self.accept(",")
        if all(isinstance(v, Constant) for _, v in found):
            return Constant(tuple(x for _, v in found if isinstance(v, Constant) for x in v.values))
        return Tuple(tuple(found))

    def _expression(self, word: str) -> Value:
        self.flags()
        self.expect("(")
        kind: Type = VOID
        if word == "getelementptr":
            kind = self.type()
            self.expect(",")
        operands = []
        while True:
            each = self.type()
            operands.append((each, self.value(each)))
            if self.accept("to"):
                kind = self.type()
            if not self.accept(","):
                break
        self.expect(")")
        return Expression(word, kind, tuple(operands))

    def _number(self, word: str, kind: Scalar) -> int | float:
        try:
            if kind.kind == "int":
                return int(word)
            if word.startswith(("0xH", "0xR")):
                return _half(word, kind)
            if word.startswith("0x"):
                number: float = struct.unpack("<d", int(word, 16).to_bytes(8, "little"))[0]
                return number
            return float(word)
        except (ValueError, OverflowError):
            self.fail(f"{word!r} is no number of type {kind.kind}")

    def typed(self) -> tuple[Type, Value]:
        kind = self.type()
        return kind, self.value(kind)


def _string(word: str) -> bytes:
    return re.sub(
        rb"\\([0-9A-Fa-f]{2})", lambda m: bytes([int(m.group(1), 16)]), word[2:-1].encode("latin-1")
    )


def _half(word: str, kind: Scalar) -> float:
    bits = int(word[3:], 16)
    if kind.kind == "half":
        number: float = struct.unpack("<e", bits.to_bytes(2, "little"))[0]
        return number
    wide: float = struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]
    return wide
