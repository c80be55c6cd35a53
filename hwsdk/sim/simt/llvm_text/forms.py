"""The instructions of LLVM text, word by word: one function per form, in a table by opcode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hwsdk.sim.simt.llvm_text.syntax import Instruction, Value
from hwsdk.sim.simt.llvm_text.types import BOOL, VOID, Sequence, Struct, Type
from hwsdk.sim.simt.llvm_text.words import CASTS, FLAGS, PARAMETER_WORDS, Words

_BINARY = set("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
#: (type of the result, operands, facts)
Parts: TypeAlias = tuple[Type, list[tuple[Type, Value]], dict[str, Any]]


def instruction(words: Words) -> Instruction:
    """One logical line of a block."""
    result = words.result()
    opcode = words.next()
    while opcode in ("tail", "musttail", "notail"):
        opcode = words.next()
    words.flags()
    form = _FORMS.get(opcode)
    if form is None:
        words.fail(f"instruction {opcode} is not supported")
    kind, operands, facts = form(words)
    return Instruction(result, opcode, kind, tuple(operands), words.logical.line, words.text, facts)


def _two(words: Words) -> Parts:
    kind, first = words.typed()
    words.expect(",")
    return kind, [(kind, first), (kind, words.value(kind))], {}


def _cast(words: Words) -> Parts:
    source = words.typed()
    words.expect("to")
    return words.type(), [source], {}


def _fneg(words: Words) -> Parts:
    kind, value = words.typed()
    return kind, [(kind, value)], {}


def _icmp(words: Words) -> Parts:
    predicate = words.next()
    words.flags()
    if predicate in FLAGS:
        predicate = words.next()
    kind, operands, _ = _two(words)
    result: Type = Sequence(kind.count, BOOL, True) if isinstance(kind, Sequence) else BOOL
    return result, operands, {"predicate": predicate}


def _select(words: Words) -> Parts:
    condition = words.typed()
    words.expect(",")
    yes = words.typed()
    words.expect(",")
    return yes[0], [condition, yes, words.typed()], {}


def _phi(words: Words) -> Parts:
    kind = words.type()
    operands, sources = [], []
    while True:
        words.expect("[")
        operands.append((kind, words.value(kind)))
        words.expect(",")
        sources.append(words.next())
        words.expect("]")
        if not words.accept(","):
            break
    return kind, operands, {"sources": tuple(sources)}


def _br(words: Words) -> Parts:
    if words.accept("label"):
        return VOID, [], {"targets": (words.next(),)}
    condition = words.typed()
    targets = []
    for _ in range(2):
        words.expect(",")
        words.expect("label")
        targets.append(words.next())
    return VOID, [condition], {"targets": tuple(targets)}


def _switch(words: Words) -> Parts:
    value = words.typed()
    words.expect(",")
    words.expect("label")
    targets, cases = [words.next()], []
    words.expect("[")
    while not words.accept("]"):
        words.type()
        cases.append(
            words.integer() if words.peek() not in ("true", "false") else int(words.next() == "true")
        )
        words.expect(",")
        words.expect("label")
        targets.append(words.next())
    return VOID, [value], {"targets": tuple(targets), "cases": tuple(cases)}


def _ret(words: Words) -> Parts:
    kind = words.type()
    return VOID, [] if kind == VOID else [(kind, words.value(kind))], {}


def _nothing(words: Words) -> Parts:
    return VOID, [], {}


def _align(words: Words) -> int:
    while words.accept(",") or words.peek() not in ("", ","):
        word = words.peek()
        if word.startswith("!"):
            break
        words.next()
        if word == "align":
            return words.integer()
    return 0


def _load(words: Words) -> Parts:
    strong = words.accept("atomic") or words.before() == "volatile"
    words.flags()
    kind = words.type()
    words.expect(",")
    return kind, [words.typed()], {"strong": strong, "align": _align(words)}


def _store(words: Words) -> Parts:
    strong = words.accept("atomic") or words.before() == "volatile"
    words.flags()
    value = words.typed()
    words.expect(",")
    return value[0], [value, words.typed()], {"strong": strong, "align": _align(words)}


def _getelementptr(words: Words) -> Parts:
    kind = words.type()
    operands = []
    while words.accept(","):
        if words.peek().startswith("!"):
            break
        operands.append(words.typed())
    return kind, operands, {}


def _alloca(words: Words) -> Parts:
    kind = words.type()
    count, align, space = 1, 0, 0
    while words.accept(","):
        if words.accept("align"):
            align = words.integer()
        elif words.accept("addrspace"):
            space = words.bracketed()
        else:
            words.type()
            count = words.integer()
    return kind, [], {"count": count, "align": align, "space": space}


def _indices(words: Words) -> tuple[int, ...]:
    found = []
    while words.accept(","):
        found.append(words.integer())
    return tuple(found)


def _extractvalue(words: Words) -> Parts:
    whole = words.typed()
    return VOID, [whole], {"indices": _indices(words)}


def _insertvalue(words: Words) -> Parts:
    whole = words.typed()
    words.expect(",")
    part = words.typed()
    return whole[0], [whole, part], {"indices": _indices(words)}


def _extractelement(words: Words) -> Parts:
    whole = words.typed()
    words.expect(",")
    if not isinstance(whole[0], Sequence):
        words.fail("an element of no vector")
    return whole[0].element, [whole, words.typed()], {}


def _insertelement(words: Words) -> Parts:
    whole = words.typed()
    words.expect(",")
    part = words.typed()
    words.expect(",")
    return whole[0], [whole, part, words.typed()], {}


def _shufflevector(words: Words) -> Parts:
    first = words.typed()
    words.expect(",")
    second = words.typed()
    words.expect(",")
    mask = words.typed()
    if not isinstance(first[0], Sequence) or not isinstance(mask[0], Sequence):
        words.fail("a shuffle of no vectors")
    return Sequence(mask[0].count, first[0].element, True), [first, second, mask], {}


def _atomicrmw(words: Words) -> Parts:
    words.flags()
    name = words.next()
    place = words.typed()
    words.expect(",")
    value = words.typed()
    return value[0], [place, value], {"change": name}


def _cmpxchg(words: Words) -> Parts:
    words.accept("weak")
    words.flags()
    place = words.typed()
    words.expect(",")
    old = words.typed()
    words.expect(",")
    return Struct((old[0], BOOL)), [place, old, words.typed()], {}


def _call(words: Words) -> Parts:
    while (
        words.peek() in PARAMETER_WORDS or words.peek() in FLAGS or words.peek() in ("fastcc", "ccc", "range")
    ):
        if words.next() == "range":
            words.skip_brackets()
    kind = words.type()
    name = words.next()
    if not name.startswith("@"):
        words.fail("calls of addresses are not supported")
    words.expect("(")
    operands = []
    while not words.accept(")"):
        if words.accept("metadata"):
            words.fail("metadata in a call")
        each = words.type()
        words.parameter_words()
        operands.append((each, words.value(each)))
        words.accept(",")
    return kind, operands, {"function": name[1:].strip('"')}


_FORMS: dict[str, Callable[[Words], Parts]] = {
    **dict.fromkeys(_BINARY, _two),
    **dict.fromkeys(CASTS, _cast),
    "fneg": _fneg,
    "freeze": _fneg,
    "icmp": _icmp,
    "fcmp": _icmp,
    "select": _select,
    "phi": _phi,
    "br": _br,
    "switch": _switch,
    "ret": _ret,
    "unreachable": _nothing,
    "fence": _nothing,
    "load": _load,
    "store": _store,
    "getelementptr": _getelementptr,
    "alloca": _alloca,
    "extractvalue": _extractvalue,
    "insertvalue": _insertvalue,
    "extractelement": _extractelement,
    "insertelement": _insertelement,
    "shufflevector": _shufflevector,
    "atomicrmw": _atomicrmw,
    "cmpxchg": _cmpxchg,
    "call": _call,
}
