"""LLVM text to its syntax tree: variables, functions, blocks.

Design choice: types and attribute groups are read first, because they may stand behind what uses them.
"""

from __future__ import annotations

import re

from hwsdk.sim.simt.llvm_text.forms import instruction
from hwsdk.sim.simt.llvm_text.syntax import (
    Block,
    File,
    Function,
    Instruction,
    LlvmTextError,
    Variable,
)
from hwsdk.sim.simt.llvm_text.types import Type
from hwsdk.sim.simt.llvm_text.words import Logical, Words, logical_lines
from hwsdk.sim.simt.problems import Problem


def parse(text: str) -> File:
    """LlvmTextError with the line if the text is malformed."""
    return _File(text).parse()


class _File:
    def __init__(self, text: str) -> None:
        self.lines = logical_lines(text)
        self.at = 0
        self.types: dict[str, Type] = {}
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.groups: dict[str, dict[str, str]] = {}

    def parse(self) -> File:
        for logical in self.lines:
            if logical.text.startswith("attributes "):
                name = logical.text.split()[1]
                self.groups[name] = dict(re.findall(r'"([^"]+)"="([^"]*)"', logical.text))
            elif re.match(r"%\S+ = type ", logical.text):
                words = Words(logical, self.types)
                name = words.next()
                words.at += 2
                self.types[name] = words.type()
        while self.at < len(self.lines):
            logical = self.lines[self.at]
            self.at += 1
            if logical.text.startswith("@"):
                self._variable(logical)
            elif logical.text.startswith("define"):
                self._function(logical)
        return File(self.variables, self.functions)

    def _variable(self, logical: Logical) -> None:
        words = Words(logical, self.types)
        name = words.next()
        words.expect("=")
        space, external = 0, False
        while words.peek() not in ("global", "constant"):
            word = words.next()
            external |= word in ("external", "extern_weak")
            if word == "addrspace":
                space = words.bracketed()
        constant = words.next() == "constant"
        kind = words.type()
        value = None if external or words.peek() in ("", ",") else words.value(kind)
        align = 0
        while words.accept(","):
            if words.next() == "align":
                align = words.integer()
        self.variables[name] = Variable(name, space, kind, value, align, constant, external, logical.line)

    def _function(self, logical: Logical) -> None:
        head = logical.text
        words = Words(Logical(logical.line, head), self.types)
        before = set()
        while not words.peek().startswith("@"):
            before.add(words.next())
            if "" in before:
                words.fail("a function without a name")
        name = words.next()
        parameters: list[tuple[Type, str]] = []
        words.expect("(")
        while not words.accept(")"):
            kind = words.type()
            words.parameter_words()
            given = words.next() if words.peek().startswith("%") else f"%{len(parameters)}"
            parameters.append((kind, given))
            words.accept(",")
        attributes: dict[str, str] = dict(re.findall(r'"([^"]+)"="([^"]*)"', head))
        for group in re.findall(r"#\d+", head):
            attributes |= self.groups.get(group, {})
        blocks = self._blocks(sum(name[1:].isdigit() for _, name in parameters))
        self.functions[name[1:].strip('"')] = Function(
            name[1:].strip('"'), tuple(parameters), blocks, attributes, logical.line, frozenset(before)
        )

    def _blocks(self, parameters: int) -> tuple[Block, ...]:
        blocks: list[Block] = []
        name: str | None = None
        held: list[Instruction] = []
        while True:
            if self.at >= len(self.lines):
                raise LlvmTextError([Problem(self.lines[-1].line, "", "a function that is never closed")])
            logical = self.lines[self.at]
            self.at += 1
            if logical.text == "}":
                break
            label = re.match(r'^("[^"]*"|[-\w.$]+):', logical.text)
            if label:
                if name is not None or held:
                    blocks.append(Block(name or f"%{parameters}", tuple(held)))
                name, held = "%" + label.group(1), []
                continue
            held.append(instruction(Words(logical, self.types)))
        blocks.append(Block(name or f"%{parameters}", tuple(held)))
        return tuple(blocks)
