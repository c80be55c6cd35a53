"""PTX text to its syntax tree, by recursive descent.

Design choice: the first malformed statement ends parsing with its line, because what follows it cannot be trusted;
unknown instructions are well formed and are all found later, by the builder.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from hwsdk.sim.simt.problems import Problem
from hwsdk.targets.cuda.ptx.lexer import Token, tokens_of
from hwsdk.targets.cuda.ptx.syntax import (
    Address,
    Block,
    Declaration,
    File,
    Function,
    Group,
    Instruction,
    Label,
    Name,
    Not,
    Number,
    Operand,
    Pair,
    PtxError,
    Registers,
    Statement,
    Targets,
    Vector,
)

_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_LINES = {".loc", ".file"}  # these end with their line
_DEEPEST = 64


def parse(text: str) -> File:
    """PtxError with the line if the text is malformed."""
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self.at = 0
        self.depth = 0

    # -------------------------------------------------------------------------------------------- tokens
    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.now
        if token.kind == "end":
            self.fail("the text ends in the middle of something")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.now.text == text and self.now.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.now.text!r}")

    def name(self) -> str:
        if self.now.kind != "name":
            self.fail(f"expected a name, found {self.now.text!r}")
        return self.next().text

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        if self.now.kind != "integer":
            self.fail(f"expected an integer, found {self.now.text!r}")
        return sign * _integer(self.next().text)

    def fail(self, message: str) -> NoReturn:
        line = self.now.line
        rows = self.text.split("\n")
        raise PtxError([Problem(line, rows[line - 1].strip()[:100] if line <= len(rows) else "", message)])

    def skip_line(self) -> None:
        line = self.now.line
        while self.now.line == line and self.now.kind != "end":
            self.at += 1

    def skip_to(self, text: str) -> None:
        while not self.accept(text):
            self.next()

    # -------------------------------------------------------------------------------------------- file
    def file(self) -> File:
        version = target = ""
        variables: list[Declaration] = []
        functions: list[Function] = []
        while self.now.kind != "end":
            word = self.now.text
            if word == ".version":
                self.next()
                version = self.next().text
            elif word == ".target":
                self.next()
                target = self.name()
                while self.accept(","):
                    self.name()
            elif word == ".address_size":
                self.next()
                if self.now.text != "64":
                    self.fail("only 64-bit addresses are supported")
                self.next()
            elif word in _LINES:
                self.skip_line()
            elif word == ".section":
                self.skip_to("{")
                self.skip_to("}")
            elif word in {".pragma", ".alias"}:
                self.skip_to(";")
            else:
                self._definition(variables, functions)
        return File(version, target, tuple(variables), tuple(functions))

    def _definition(self, variables: list[Declaration], functions: list[Function]) -> None:
        extern = False
        while self.now.text in _LINKAGE:
            extern |= self.next().text == ".extern"
        if self.now.text in {".entry", ".func"}:
            functions.append(self._function())
        elif self.now.text in _SPACES:
            variables.extend(self._declarations(extern))
        else:
            self.fail(f"{self.now.text!r} begins no definition")

    def _function(self) -> Function:
        line = self.now.line
        entry = self.next().text == ".entry"
        results: tuple[Declaration, ...] = ()
        if self.now.text == "(":
            results = self._parameters()
        name = self.name()
        parameters = self._parameters() if self.now.text == "(" else ()
        directives: dict[str, tuple[int, ...]] = {}
        while self.now.kind == "dotted":
            key = self.next().text
            numbers = []
            if self.now.kind == "string":
                self.next()
                self.accept(";")
            while self.now.kind == "integer":
                numbers.append(self.integer())
                self.accept(",")
            directives[key] = tuple(numbers)
        if self.accept(";"):
            return Function(name, entry, results, parameters, None, line, directives)
        return Function(name, entry, results, parameters, self._block(), line, directives)

    def _parameters(self) -> tuple[Declaration, ...]:
        self.expect("(")
        found: list[Declaration] = []
        while not self.accept(")"):
            if self.now.text == ".reg":
                self.fail("parameters in registers are not supported")
            found.append(self._one_declaration(self.next().text, False))
            if self.now.text != ")":
                self.expect(",")
        return tuple(found)

    # -------------------------------------------------------------------------------------------- declarations
    def _declarations(self, extern: bool) -> list[Declaration]:
        space = self.next().text
        first = self._one_declaration(space, extern)
        found = [first]
        while self.accept(","):
            found.append(self._declarator(space, first.type, first.align, extern))
        self.expect(";")
        return found

    def _one_declaration(self, space: str, extern: bool) -> Declaration:
        align, kind, lanes = 0, "", 1
        while self.now.kind == "dotted":
            word = self.next().text
            if word == ".align":
                align = self.integer()
            elif word == ".ptr":
                self._pointer_facts()
            elif word in {".v2", ".v4"}:
                lanes = int(word[2])
            elif word in {".attribute", ".managed", ".unified"}:
                self.fail(f"{word} is not supported")
            else:
                kind = word[1:]
        if not kind:
            self.fail("a declaration without a type")
        found = self._declarator(space, kind, align, extern)
        if lanes == 1:
            return found
        return Declaration(
            found.space,
            kind,
            found.name,
            align or lanes * _bytes(kind),
            lanes * (found.count or 1),
            found.line,
            True,
            extern,
            found.values,
        )

    def _pointer_facts(self) -> None:
        while self.now.text in {".global", ".shared", ".const", ".local", ".align"}:
            if self.next().text == ".align":
                self.integer()

    def _declarator(self, space: str, kind: str, align: int, extern: bool) -> Declaration:
        line, name = self.now.line, self.name()
        count: int | None = 1
        array = False
        while self.accept("["):
            array = True
            if self.accept("]"):
                count = None
            else:
                count = (count or 1) * self.integer()
                self.expect("]")
        values: tuple[tuple[Operand, bool], ...] = ()
        if self.accept("="):
            values = tuple(self._initialiser())
            if count is None:
                count = len(values)
        return Declaration(space[1:], kind, name, align or _bytes(kind), count, line, array, extern, values)

    def _initialiser(self) -> list[tuple[Operand, bool]]:
        if not self.accept("{"):
            return [self._initial_value()]
        found: list[tuple[Operand, bool]] = []
        self._deeper()
        while not self.accept("}"):
            found += self._initialiser()
            if self.now.text != "}":
                self.expect(",")
        self.depth -= 1
        return found

    def _initial_value(self) -> tuple[Operand, bool]:
        """(number, or an address as Address; is the address generic?)"""
        if self.now.text == "generic":
            self.next()
            self.expect("(")
            name = self.name()
            self.expect(")")
            return Address(Name(name), self._addend()), True
        if self.now.kind == "name":
            return Address(Name(self.name()), self._addend()), False
        return self._number(), False

    def _addend(self) -> int:
        return self.integer() if self.accept("+") else 0

    # -------------------------------------------------------------------------------------------- statements
    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"more than {_DEEPEST} levels of braces")

    def _block(self) -> Block:
        self.expect("{")
        self._deeper()
        found: list[Statement] = []
        while not self.accept("}"):
            self._statement(found)
        self.depth -= 1
        return Block(tuple(found))

    def _statement(self, found: list[Statement]) -> None:
        token = self.now
        if token.text == "{":
            found.append(self._block())
        elif token.text == ";":
            self.next()
        elif token.kind == "dotted":
            self._directive(found)
        elif token.kind == "name" and self.tokens[self.at + 1].text == ":":
            self._label(found)
        elif token.kind == "name" or token.text == "@":
            found.append(self._instruction())
        else:
            self.next()  # says so if the text ends here
            self.fail(f"{token.text!r} begins no statement")

    def _directive(self, found: list[Statement]) -> None:
        word = self.now.text
        if word in _LINES:
            self.skip_line()
        elif word == ".pragma":
            self.skip_to(";")
        elif word == ".reg":
            found.append(self._registers())
        elif word in _SPACES or word in _LINKAGE:
            extern = False
            while self.now.text in _LINKAGE:
                extern |= self.next().text == ".extern"
            found.extend(self._declarations(extern))
        else:
            self.fail(f"directive {word} is not supported")

    def _registers(self) -> Registers:
        line = self.next().line
        if self.now.kind != "dotted":
            self.fail("a register declaration without a type")
        kind = self.next().text[1:]
        names: list[tuple[str, int]] = []
        while True:
            name = self.name()
            count = 0
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                if not 0 < count <= 1 << 20:
                    self.fail(f"{count} registers")
            names.append((name, count))
            if not self.accept(","):
                break
        self.expect(";")
        return Registers(kind, tuple(names), line)

    def _label(self, found: list[Statement]) -> None:
        name = self.name()
        self.expect(":")
        if self.now.text == ".branchtargets":
            self.next()
            labels = [self.name()]
            while self.accept(","):
                labels.append(self.name())
            self.expect(";")
            found.append(Targets(name, tuple(labels)))
        elif self.now.text in {".callprototype", ".calltargets"}:
            self.skip_to(";")
        else:
            found.append(Label(name))

    def _instruction(self) -> Instruction:
        first = self.now
        guard, negated = "", False
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.name()
        opcode = self.name()
        modifiers = []
        while self.now.kind == "dotted":
            modifiers.append(self.next().text[1:])
        operands: list[Operand] = []
        while self.now.text != ";":
            operands.append(self._operand())
            if self.now.text != ";":
                self.expect(",")
        last = self.next()
        text = " ".join(self.text[first.start : last.start].split())
        return Instruction(opcode, tuple(modifiers), tuple(operands), first.line, text, guard, negated)

    # -------------------------------------------------------------------------------------------- operands
    def _operand(self) -> Operand:
        self._deeper()
        found = self._primary()
        if self.accept("|"):
            found = Pair(found, self._primary())
        self.depth -= 1
        return found

    def _primary(self) -> Operand:
        if self.accept("{"):
            return Vector(self._items("}"))
        if self.accept("("):
            return Group(self._items(")"))
        if self.accept("["):
            return self._address()
        if self.accept("!"):
            return Not(Name(self.name()))
        if self.now.kind == "name":
            text = self.name()
            if self.now.kind == "dotted" and text.startswith("%"):
                text += self.next().text
            if self.now.text == "+" and not text.startswith("%"):
                self.next()
                return Address(Name(text), self.integer())
            return Name(text)
        return self._number()

    def _items(self, close: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.accept(close):
            found.append(self._operand())
            if self.now.text != close:
                self.expect(",")
        return tuple(found)

    def _address(self) -> Address | Group:
        """[base+offset]; anything longer is a form that no builder takes."""
        base: Name | Number
        base = Name(self.name()) if self.now.kind == "name" else self._number()
        offset = 0
        if self.accept("+") or self.now.text == "-":
            offset = self.integer()
        if self.accept(","):
            return Group((Address(base, offset), *self._items("]")))
        self.expect("]")
        return Address(base, offset)

    def _number(self) -> Number:
        sign = -1 if self.accept("-") else 1
        token = self.next()
        if token.kind == "integer":
            return Number(sign * _integer(token.text))
        if token.kind == "float" and sign == 1:
            return Number(int("0x" + token.text[2:], 0), 32 if token.text[1] in "fF" else 64)
        if token.kind == "decimal":
            return Number(int.from_bytes(struct.pack("<d", sign * float(token.text)), "little"), 64)
        self.at -= 1
        self.fail(f"expected an operand, found {token.text!r}")


def _integer(text: str) -> int:
    digits = text.rstrip("U")
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        return int(digits, 8) if not set(digits) & {"8", "9"} else int(digits)
    return int(digits, 0)


def _bytes(kind: str) -> int:
    """Of an element; types that do not exist are found by the builder."""
    width = "".join(c for c in kind if c.isdigit())
    return max(1, int(width) // 8) if width and kind[0] in "busf" and "x" not in kind else 4
