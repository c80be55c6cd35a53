"""What the builder of one instruction needs: its operands as closures, its modifiers, a place to put the result.

Design choice: a builder takes the modifiers that it understands; what is left in the end is an error, so that nothing
is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hwsdk.sim.simt import program
from hwsdk.sim.simt.program import Array, Lanes, Meeting, Place, Read, Run, Statement, Write
from hwsdk.sim.simt.registers import (
    Held,
    Where,
    at_register,
    constant,
    everywhere,
    guarded,
    held,
    into,
    register,
    special,
)
from hwsdk.sim.simt.spaces import Space
from hwsdk.targets.cuda.ptx.scopes import LabelName, Register, Scope, Symbol, TargetList
from hwsdk.targets.cuda.ptx.syntax import (
    Address,
    Group,
    Instruction,
    Name,
    Not,
    Number,
    Operand,
    Pair,
    Vector,
)
from hwsdk.targets.cuda.ptx.types import PREDICATE, TYPES, Type

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame
    from hwsdk.targets.cuda.ptx.builder import Builder

_SPECIAL = {
    "%tid": "thread",
    "%ctaid": "block",
    "%ntid": "block_size",
    "%nctaid": "grid_size",
}
_SPECIAL_SCALARS = {
    "%laneid": "lane",
    "%warpid": "warp",
    "%nwarpid": "warps",
    "WARP_SZ": "warp_size",
    "%dynamic_smem_size": "dynamic_shared",
    "%total_smem_size": "shared_total",
}
_CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
_ZERO = {"%smid", "%gridid", "%reserved_smem_offset_begin"}
_LANE_MASKS: dict[str, Callable[[Array], Array]] = {
    "%lanemask_eq": lambda lane: np.uint32(1) << lane,
    "%lanemask_lt": lambda lane: (np.uint32(1) << lane) - np.uint32(1),
    "%lanemask_le": lambda lane: (np.uint32(2) << lane) - np.uint32(1),
    "%lanemask_gt": lambda lane: ~((np.uint32(2) << lane) - np.uint32(1)),
    "%lanemask_ge": lambda lane: ~((np.uint32(1) << lane) - np.uint32(1)),
}


class Unsupported(Exception):
    """Says why one instruction cannot be built."""


class Context:
    """One instruction in its scope."""

    def __init__(self, builder: Builder, scope: Scope, instruction: Instruction) -> None:
        self.builder, self.scope, self.instruction = builder, scope, instruction
        self.place = Place(instruction.line, instruction.text)
        self.left = list(instruction.modifiers)
        self.operands = instruction.operands

    # -------------------------------------------------------------------------------------------- modifiers
    def take(self, *options: str) -> str:
        """The first of the options that is there, removed; or an empty text."""
        for option in options:
            if option in self.left:
                self.left.remove(option)
                return option
        return ""

    def drop(self, options: Iterable[str]) -> None:
        """Modifiers that change nothing here."""
        for option in options:
            while option in self.left:
                self.left.remove(option)

    def type(self) -> Type:
        """The last modifier, which must be a type."""
        if not self.left or self.left[-1] not in TYPES:
            self.fail(
                f"{'.' + self.left[-1] if self.left else 'nothing'} is not a type that is supported here"
            )
        return TYPES[self.left.pop()]

    def done(self, count: int | None = None) -> None:
        """Everything has been understood.  count: of operands."""
        if self.left:
            self.fail(f"modifier .{self.left[0]} is not supported here")
        if count is not None and len(self.operands) != count:
            self.fail(f"{len(self.operands)} operands where {count} belong")

    def fail(self, message: str) -> NoReturn:
        raise Unsupported(message)

    def operand(self, number: int) -> Operand:
        if number >= len(self.operands):
            self.fail(f"operand {number + 1} is missing")
        return self.operands[number]

    # -------------------------------------------------------------------------------------------- reading
    def read(self, number: int, kind: Type) -> Read:
        return self.reader(self.operand(number), kind)

    def reader(self, operand: Operand, kind: Type) -> Read:
        """The operand's value as `kind`."""
        if isinstance(operand, Number):
            return constant(*_immediate(operand, kind))
        if isinstance(operand, Not) and kind is PREDICATE:
            inner = self.reader(operand.operand, kind)
            return lambda frame, lanes: ~inner(frame, lanes)
        if isinstance(operand, Address):
            return self._symbol_address(operand.base, operand.offset, kind)
        if not isinstance(operand, Name):
            self.fail("a register or a number belongs here")
        found = self.scope.find(operand.text)
        if isinstance(found, Register):
            return self._register(operand.text, found, kind)
        if isinstance(found, Symbol) or self.builder.has_variable(operand.text):
            return self._symbol_address(operand, 0, kind)
        return self._special(operand.text, kind)

    def _register(self, name: str, found: Register, kind: Type) -> Read:
        if (kind is PREDICATE) != (found.type is PREDICATE):
            self.fail(f"{name} is {'' if found.type is PREDICATE else 'not '}a predicate")
        if found.type.bits == kind.bits:
            return register(found.index, kind.dtype)
        if found.type.bits < kind.bits:
            self.fail(f"{name} has {found.type.bits} bits, {kind.name} has {kind.bits}")
        inner = register(found.index, np.dtype(f"u{found.type.bytes}"))
        narrow, dtype = np.dtype(f"u{kind.bytes}"), kind.dtype
        return lambda frame, lanes: inner(frame, lanes).astype(narrow).view(dtype)

    def _special(self, name: str, kind: Type) -> Read:
        base, _, part = name.partition(".")
        read: Read
        if base in _SPECIAL and part in {"x", "y", "z"}:
            read = special(f"{_SPECIAL[base]}.{part}")
        elif name in _SPECIAL_SCALARS:
            read = special(_SPECIAL_SCALARS[name])
        elif name in _LANE_MASKS:
            lane, mask = special("lane"), _LANE_MASKS[name]
            read = lambda frame, lanes: mask(lane(frame, lanes))  # noqa: E731
        elif name in _CLOCKS:
            read = _clock
        elif name in _ZERO:
            read = constant(0, np.dtype(np.uint32))
        else:
            self.fail(f"{name} is not declared and no special register")
        dtype = kind.dtype
        return lambda frame, lanes: read(frame, lanes).astype(dtype)

    def _symbol_address(self, base: Name | Number, offset: int, kind: Type) -> Read:
        if isinstance(base, Number):
            return constant((base.value + offset) & ((1 << kind.bits) - 1), kind.dtype)
        symbol = self.symbol(base.text)
        if symbol.symbol == "":
            return constant(symbol.offset + offset, kind.dtype)
        dtype, name = kind.dtype, symbol.symbol
        return lambda frame, lanes: np.array([frame.symbols[name] + offset], dtype)

    def symbol(self, name: str) -> Symbol:
        found = self.scope.find(name)
        if isinstance(found, Symbol):
            return found
        return self.builder.variable(name) or self.fail(f"{name} is not declared")

    def held(self, number: int, kind: Type) -> Held | None:
        """What the operand is for the whole batch, if it is a register as wide as `kind` or the same for all lanes."""
        operand = self.operand(number)
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        wide = isinstance(found, Register) and found.type.bits == kind.bits
        return (
            self.holder(operand, kind)
            if wide or isinstance(operand, Number) or isinstance(found, Symbol)
            else None
        )

    def holder(self, operand: Operand, kind: Type) -> Held:
        """The same of a register as wide as `kind`, a number or a symbol."""
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        if isinstance(found, Register) and found.type.bits == kind.bits:
            return held(found.index)
        read = self.reader(operand, kind)
        return lambda frame: read(frame, None)

    def register(self, number: int, kind: Type) -> int | None:
        """The register that an operand is, if it is as wide as `kind`."""
        return self.register_of(self.operand(number), kind)

    def register_of(self, operand: Operand, kind: Type) -> int | None:
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        return found.index if isinstance(found, Register) and found.type.bits == kind.bits else None

    def address(self, number: int) -> tuple[Where, Space | None]:
        """(addresses as uint64 or uint32, the memory if the operand names a variable)."""
        operand = self.operand(number)
        if not isinstance(operand, Address):
            self.fail("an address in brackets belongs here")
        base, offset = operand.base, operand.offset
        if isinstance(base, Number):
            return everywhere(constant(base.value + offset, np.dtype(np.uint64))), None
        found = self.scope.find(base.text)
        if not isinstance(found, Register):
            symbol = self.symbol(base.text)
            return everywhere(self._symbol_address(base, offset, TYPES["u64"])), symbol.space
        if found.type.bits not in (32, 64):
            self.fail(f"{base.text} has {found.type.bits} bits, which is no address")
        return at_register(found.index, offset, np.dtype(f"u{found.type.bytes}")), None

    def vector(self, number: int) -> tuple[Operand, ...]:
        """The parts of {a, b}, or the one operand."""
        operand = self.operand(number)
        return operand.items if isinstance(operand, Vector) else (operand,)

    def pair(self, number: int) -> tuple[Operand, Operand | None]:
        """a|b, or a alone."""
        operand = self.operand(number)
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)

    def number(self, number: int) -> int:
        """An operand that must be an integer in the text."""
        operand = self.operand(number)
        if not isinstance(operand, Number) or operand.width:
            self.fail(f"operand {number + 1} must be a constant")
        return operand.value

    def label(self, number: int) -> str:
        operand = self.operand(number)
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        if not isinstance(found, LabelName):
            self.fail("the label is not in this function")
        return found.unique

    def targets(self, number: int) -> tuple[str, ...]:
        operand = self.operand(number)
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        if not isinstance(found, TargetList):
            self.fail("the list of targets is not in this function")
        names = [self.scope.find(name) for name in found.labels]
        if not all(isinstance(n, LabelName) for n in names):
            self.fail("a target is not in this function")
        return tuple(n.unique for n in names if isinstance(n, LabelName))

    # -------------------------------------------------------------------------------------------- writing
    def write(self, number: int, kind: Type) -> Write:
        return self.writer(self.operand(number), kind)

    def writer(self, operand: Operand, kind: Type) -> Write:
        """Writes values of `kind`, widened to the register (with the sign for signed types)."""
        if isinstance(operand, Name) and operand.text == "_":
            return lambda frame, lanes, value: None
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        if not isinstance(found, Register) or not isinstance(operand, Name):
            self.fail("a register must take the result")
        if (kind is PREDICATE) != (found.type is PREDICATE) or found.type.bits < kind.bits:
            self.fail(f"{operand.text} is .{found.type.name}, which cannot hold .{kind.name}")
        store = into(found.index)
        if found.type.bits == kind.bits:
            return store
        wide = np.dtype(f"{'i' if kind.kind == 's' else 'u'}{found.type.bytes}")
        plain = np.dtype(f"{'i' if kind.kind == 's' else 'u'}{kind.bytes}")
        return lambda frame, lanes, value: store(frame, lanes, value.view(plain).astype(wide))

    # -------------------------------------------------------------------------------------------- results
    def emit(self, run: Run, kind: str, meeting: Meeting | None = None) -> None:
        """The instruction; a guard makes it one for some lanes, or a branch around a meeting."""
        guard = self.guard()
        if guard is None:
            self.add(program.Instruction(run, kind, self.place, meeting))
        elif meeting is None:
            self.add(program.Instruction(guarded(run, guard, self.instruction.negated), kind, self.place))
        else:
            self.around(program.Instruction(run, kind, self.place, meeting))

    def guard(self) -> Read | None:
        if not self.instruction.guard:
            return None
        return self.reader(Name(self.instruction.guard), PREDICATE)

    def around(self, *statements: Statement) -> None:
        """Statements that lanes without the guard jump over."""
        guard = self.guard()
        if guard is None:
            for statement in statements:
                self.add(statement)
            return
        skip = self.builder.fresh_label("skip")
        self.add(program.Branch(guard, not self.instruction.negated, skip, self.place))
        for statement in statements:
            self.add(statement)
        self.add(program.Label(skip))

    def add(self, statement: Statement) -> None:
        self.builder.statements.append(statement)

    def watch_width(self, size: int) -> None:
        """Lanes share memory at this width: races are looked for at the least of all."""
        self.builder.granule = min(self.builder.granule, size)


def _clock(frame: Frame, lanes: Lanes) -> Array:
    return np.array([frame.tally.steps & 0x7FFFFFFF], np.uint32)


def _immediate(number: Number, kind: Type) -> tuple[Any, np.dtype[Any]]:
    if kind is PREDICATE:
        return bool(number.value), kind.dtype
    plain = np.dtype(f"u{kind.bytes}")
    if number.width == 0:
        return np.array(number.value & ((1 << kind.bits) - 1), plain).view(kind.dtype)[()], kind.dtype
    wide = np.dtype(f"u{number.width // 8}")
    bits = np.array(number.value, wide)
    if number.width == kind.bits:
        return bits.view(kind.dtype)[()], kind.dtype
    if kind.kind != "f" or kind.pair:
        raise Unsupported(f"a float of {number.width} bits where .{kind.name} belongs")
    return bits.view(f"f{number.width // 8}").astype(kind.dtype)[()], kind.dtype


__all__ = ["Context", "Group", "Unsupported"]
