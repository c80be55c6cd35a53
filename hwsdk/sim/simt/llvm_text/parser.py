"""LLVM text to its syntax tree, one logical line at a time.

Design choice: a logical line is a line with its brackets closed; inside one, recursive descent over its words.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NoReturn

from hwsdk.sim.simt.llvm_text.syntax import Block as BlockTree
from hwsdk.sim.simt.llvm_text.syntax import (
    Constant,
    Expression,
    File,
    Function,
    Global,
    Instruction,
    LlvmTextError,
    Local,
    Problem,
    Tuple,
    Value,
    Variable,
)
from hwsdk.sim.simt.llvm_text.types import BOOL, VOID, Scalar, Sequence, Struct, Type, scalars

_WORD = re.compile(
    r"""\s+ | ;[^\n]*
      | (?P<word>c?"(?:[^"\\]|\\.)*"
      | [%@\#!$](?:"[^"]*"|[-\w.$]*)
      | 0x[HRKLM]?[0-9A-Fa-f]+ | -?\d+\.\d*(?:[eE][+-]?\d+)? | -?\d+
      | [A-Za-z_][\w.]* | \.\.\. | [=,(){}\[\]<>*:|])""",
    re.VERBOSE,
)
_FLAGS = set(
    "nuw nsw exact disjoint nneg fast nnan ninf nsz arcp contract reassoc afn inbounds nusw samesign volatile".split()
)
_PARAMETER_WORDS = set(
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
_BINARY = set("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
_CASTS = set(
    "zext sext trunc bitcast fptrunc fpext sitofp uitofp fptosi fptoui ptrtoint inttoptr addrspacecast".split()
)
_KINDS = {"half", "bfloat", "float", "double"}
_NAMED = {"undef": None, "poison": None, "zeroinitializer": 0, "null": 0, "true": 1, "false": 0}
_DEEPEST = 40


def parse(text: str) -> File:
    """LlvmTextError with the line if the text is malformed."""
    return _File(text).parse()


@dataclass(frozen=True)
class Logical:
    line: int
    text: str


def _logical_lines(text: str) -> list[Logical]:
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


class _File:
    def __init__(self, text: str) -> None:
        self.lines = _logical_lines(text)
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
                words = _Words(logical, self.types)
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
        words = _Words(logical, self.types)
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
        words = _Words(Logical(logical.line, head), self.types)
        while not words.peek().startswith("@"):
            if words.next() == "":
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
            name[1:].strip('"'), tuple(parameters), blocks, attributes, logical.line
        )

    def _blocks(self, parameters: int) -> tuple[BlockTree, ...]:
        blocks: list[BlockTree] = []
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
                    blocks.append(BlockTree(name or f"%{parameters}", tuple(held)))
                name, held = "%" + label.group(1), []
                continue
            held.append(_Words(logical, self.types).instruction())
        blocks.append(BlockTree(name or f"%{parameters}", tuple(held)))
        return tuple(blocks)


class _Words:
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

    def flags(self) -> None:
        while self.peek() in _FLAGS:
            self.at += 1

    def parameter_words(self) -> None:
        while True:
            word = self.peek()
            if word in _PARAMETER_WORDS or word.startswith('"'):
                self.at += 1
                if self.accept("="):
                    self.at += 1
            elif word in _WITH_BRACKETS:
                self.at += 1
                if self.peek() == "(":
                    self._skip_brackets()
                else:
                    self.at += 1
            else:
                return

    def _skip_brackets(self) -> None:
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
        if word == "getelementptr" or word in _CASTS or word in ("add", "sub"):
            return self._expression(word)
        if len(parts) == 1:
            return Constant((self._number(word, parts[0]),))
        self.fail(f"{word!r} is no value")

    def _splat(self, count: int) -> Value:
        self.expect("(")
        each = self._typed()[1]
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

    # -------------------------------------------------------------------------------------------- instructions
    def instruction(self) -> Instruction:
        result = ""
        if len(self.words) > 1 and self.words[1] == "=":
            result = self.next()
            self.at += 1
        opcode = self.next()
        while opcode in ("tail", "musttail", "notail"):
            opcode = self.next()
        self.flags()
        parse = getattr(self, f"_{opcode}", None) if opcode.isalpha() else None
        if opcode in _BINARY:
            kind, operands, facts = self._two()
        elif opcode in _CASTS:
            kind, operands, facts = self._cast()
        elif parse is not None and opcode in _FORMS:
            kind, operands, facts = parse()
        else:
            self.fail(f"instruction {opcode} is not supported")
        text = " ".join(self.logical.text.split())
        return Instruction(result, opcode, kind, tuple(operands), self.logical.line, text, facts)

    def _typed(self) -> tuple[Type, Value]:
        kind = self.type()
        return kind, self.value(kind)

    def _two(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind, first = self._typed()
        self.expect(",")
        return kind, [(kind, first), (kind, self.value(kind))], {}

    def _cast(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        source = self._typed()
        self.expect("to")
        return self.type(), [source], {}

    def _fneg(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind, value = self._typed()
        return kind, [(kind, value)], {}

    _freeze = _fneg

    def _icmp(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        predicate = self.next()
        self.flags()
        if predicate in _FLAGS:
            predicate = self.next()
        kind, operands, _ = self._two()
        result: Type = Sequence(kind.count, BOOL, True) if isinstance(kind, Sequence) else BOOL
        return result, operands, {"predicate": predicate}

    _fcmp = _icmp

    def _select(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        condition = self._typed()
        self.expect(",")
        yes = self._typed()
        self.expect(",")
        return yes[0], [condition, yes, self._typed()], {}

    def _phi(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind = self.type()
        operands, sources = [], []
        while True:
            self.expect("[")
            operands.append((kind, self.value(kind)))
            self.expect(",")
            sources.append(self.next())
            self.expect("]")
            if not self.accept(","):
                break
        return kind, operands, {"sources": tuple(sources)}

    def _br(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        if self.accept("label"):
            return VOID, [], {"targets": (self.next(),)}
        condition = self._typed()
        targets = []
        for _ in range(2):
            self.expect(",")
            self.expect("label")
            targets.append(self.next())
        return VOID, [condition], {"targets": tuple(targets)}

    def _switch(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        value = self._typed()
        self.expect(",")
        self.expect("label")
        targets, cases = [self.next()], []
        self.expect("[")
        while not self.accept("]"):
            self.type()
            cases.append(
                self.integer() if self.peek() not in ("true", "false") else int(self.next() == "true")
            )
            self.expect(",")
            self.expect("label")
            targets.append(self.next())
        return VOID, [value], {"targets": tuple(targets), "cases": tuple(cases)}

    def _ret(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind = self.type()
        return VOID, [] if kind == VOID else [(kind, self.value(kind))], {}

    def _unreachable(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        return VOID, [], {}

    def _fence(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        return VOID, [], {}

    def _align(self) -> int:
        while self.accept(",") or self.peek() not in ("", ","):
            word = self.peek()
            if word.startswith("!"):
                break
            self.at += 1
            if word == "align":
                return self.integer()
        return 0

    def _load(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        strong = self.accept("atomic") or self.words[self.at - 1] == "volatile"
        self.flags()
        kind = self.type()
        self.expect(",")
        return kind, [self._typed()], {"strong": strong, "align": self._align()}

    def _store(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        strong = self.accept("atomic") or self.words[self.at - 1] == "volatile"
        self.flags()
        value = self._typed()
        self.expect(",")
        return value[0], [value, self._typed()], {"strong": strong, "align": self._align()}

    def _getelementptr(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind = self.type()
        operands = []
        while self.accept(","):
            if self.peek().startswith("!"):
                break
            operands.append(self._typed())
        return kind, operands, {}

    def _alloca(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        kind = self.type()
        count, align, space = 1, 0, 0
        while self.accept(","):
            if self.accept("align"):
                align = self.integer()
            elif self.accept("addrspace"):
                space = self.bracketed()
            else:
                self.type()
                count = self.integer()
        return kind, [], {"count": count, "align": align, "space": space}

    def _indices(self) -> tuple[int, ...]:
        found = []
        while self.accept(","):
            found.append(self.integer())
        return tuple(found)

    def _extractvalue(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        whole = self._typed()
        return VOID, [whole], {"indices": self._indices()}

    def _insertvalue(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        whole = self._typed()
        self.expect(",")
        part = self._typed()
        return whole[0], [whole, part], {"indices": self._indices()}

    def _extractelement(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        whole = self._typed()
        self.expect(",")
        if not isinstance(whole[0], Sequence):
            self.fail("an element of no vector")
        return whole[0].element, [whole, self._typed()], {}

    def _insertelement(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        whole = self._typed()
        self.expect(",")
        part = self._typed()
        self.expect(",")
        return whole[0], [whole, part, self._typed()], {}

    def _shufflevector(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        first = self._typed()
        self.expect(",")
        second = self._typed()
        self.expect(",")
        mask = self._typed()
        if not isinstance(first[0], Sequence) or not isinstance(mask[0], Sequence):
            self.fail("a shuffle of no vectors")
        return Sequence(mask[0].count, first[0].element, True), [first, second, mask], {}

    def _atomicrmw(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        self.flags()
        name = self.next()
        place = self._typed()
        self.expect(",")
        value = self._typed()
        return value[0], [place, value], {"change": name}

    def _cmpxchg(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        self.accept("weak")
        self.flags()
        place = self._typed()
        self.expect(",")
        old = self._typed()
        self.expect(",")
        return Struct((old[0], BOOL)), [place, old, self._typed()], {}

    def _call(self) -> tuple[Type, list[tuple[Type, Value]], dict[str, object]]:
        while (
            self.peek() in _PARAMETER_WORDS
            or self.peek() in _FLAGS
            or self.peek() in ("fastcc", "ccc", "range")
        ):
            if self.next() == "range":
                self._skip_brackets()
        kind = self.type()
        name = self.next()
        if not name.startswith("@"):
            self.fail("calls of addresses are not supported")
        self.expect("(")
        operands = []
        while not self.accept(")"):
            if self.accept("metadata"):
                self.fail("metadata in a call")
            each = self.type()
            self.parameter_words()
            operands.append((each, self.value(each)))
            self.accept(",")
        return kind, operands, {"function": name[1:].strip('"')}


_FORMS = set(
    "fneg freeze icmp fcmp select phi br switch ret unreachable fence load store getelementptr alloca extractvalue"
    " insertvalue extractelement insertelement shufflevector atomicrmw cmpxchg call".split()
)


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
