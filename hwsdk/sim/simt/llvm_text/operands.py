"""Values of LLVM text as registers: how operands are read, where addresses point.

Design choice: each scalar of each value is a register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hwsdk.sim.simt.llvm_text import operations
from hwsdk.sim.simt.llvm_text.syntax import (
    Constant,
    Expression,
    File,
    Global,
    Instruction,
    Local,
    Tuple,
    Unsupported,
    Value,
)
from hwsdk.sim.simt.llvm_text.types import (
    AddressSpaces,
    Scalar,
    Sequence,
    Struct,
    Type,
    align_of,
    dtype_of,
    field_offset,
    scalars,
    size_of,
)
from hwsdk.sim.simt.program import Array, Lanes, Read, Variable
from hwsdk.sim.simt.registers import Held, Maybe, Where, at_register, constant, everywhere, held, register
from hwsdk.sim.simt.spaces import Space
from hwsdk.sim.simt.sums import Sum

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame


def immediate(value: Any, kind: Scalar, layout: AddressSpaces) -> Array:
    dtype = dtype_of(kind, layout)
    if value is None:
        value = 0
    if kind.kind == "bfloat":
        return np.array([np.float32(value).view(np.uint32) >> 16], np.uint16)
    if dtype.kind == "u":
        return np.array([int(value) & ((1 << 8 * dtype.itemsize) - 1)], dtype)
    return np.array([value], dtype)


class Operands:
    """Of one kernel.  widths: of its registers.  shared: variables of a block that it names.  values: registers of each
    name in the function that is being built."""

    def __init__(self, file: File, layout: AddressSpaces) -> None:
        self.file, self.layout = file, layout
        self.widths: list[int] = []
        self.shared: dict[str, Variable] = {}
        self.values: dict[str, tuple[Type, list[int]]] = {}

    def fail(self, message: str) -> NoReturn:
        raise Unsupported(message)

    def new(self, name: str, kind: Type) -> list[int]:
        numbers = []
        for scalar in scalars(kind):
            dtype = dtype_of(scalar, self.layout)
            self.widths.append(0 if dtype == np.bool_ else dtype.itemsize)
            numbers.append(len(self.widths) - 1)
        self.values[name] = kind, numbers
        return numbers

    def reads(self, kind: Type, value: Value) -> list[Read]:
        """One per scalar."""
        if isinstance(value, Local):
            if value.name not in self.values:
                self.fail(f"{value.name} is not defined")
            have, numbers = self.values[value.name]
            return [register(n, dtype_of(s, self.layout)) for n, s in zip(numbers, scalars(have))]
        if isinstance(value, Constant):
            kinds = scalars(kind)
            if len(kinds) != len(value.values):
                self.fail(f"{len(value.values)} constants for {len(kinds)} scalars")
            return [
                constant(immediate(v, s, self.layout)[0], dtype_of(s, self.layout))
                for v, s in zip(value.values, kinds)
            ]
        if isinstance(value, Tuple):
            return [r for k, v in value.parts for r in self.reads(k, v)]
        if isinstance(value, Global):
            return [self._address_of(value.name, kind)]
        return [self._expression(value)]

    def read(self, operand: tuple[Type, Value]) -> Read:
        """Of a scalar."""
        found = self.reads(*operand)
        if len(found) != 1:
            self.fail("a scalar belongs here")
        return found[0]

    def held(self, kind: Type, value: Value) -> list[Held]:
        """What each scalar is for the whole batch: in a register, or the same for all lanes."""
        if isinstance(value, Local) and value.name in self.values:
            return [held(n) for n in self.values[value.name][1]]
        return [_same(read) for read in self.reads(kind, value)]

    def where(self, operand: tuple[Type, Value]) -> Where:
        """Addresses of an access."""
        kind, value = operand
        if isinstance(value, Local) and value.name in self.values and isinstance(kind, Scalar):
            (number,) = self.values[value.name][1]
            return at_register(number, 0, dtype_of(kind, self.layout))
        return everywhere(self.read(operand))

    def register_of(self, instruction: Instruction) -> int:
        """Of a scalar result."""
        (number,) = self.values[instruction.result][1]
        return number

    def _address_of(self, name: str, kind: Type) -> Read:
        variable = self.file.variables.get(name)
        if variable is None or not isinstance(kind, Scalar):
            self.fail(f"{name} is no variable of this module")
        if self.layout.spaces.get(variable.space) is Space.SHARED:
            size = size_of(variable.type, self.layout)
            align = variable.align or align_of(variable.type, self.layout)
            self.shared[name] = Variable(name, size, align, dynamic=variable.external and not size)
        return self.symbol(name, dtype_of(kind, self.layout))

    @staticmethod
    def symbol(name: str, dtype: np.dtype[Any]) -> Read:
        return lambda frame, lanes: np.array([frame.symbols[name]], dtype)

    def _expression(self, value: Expression) -> Read:
        if value.opcode == "getelementptr":
            return self.address(value.type, list(value.operands))
        if value.opcode in ("add", "sub"):
            a, b = (self.read(o) for o in value.operands)
            change = np.add if value.opcode == "add" else np.subtract
            return lambda frame, lanes: change(a(frame, lanes), b(frame, lanes))
        source, to = value.operands[0][0], value.type
        if value.opcode == "bitcast" or not isinstance(source, Scalar) or not isinstance(to, Scalar):
            self.fail(f"a constant {value.opcode} is not supported")
        inner, function = self.read(value.operands[0]), operations.cast(value.opcode, source, to, self.layout)
        return lambda frame, lanes: function(inner(frame, lanes))

    def address(self, element: Type, operands: list[tuple[Type, Value]]) -> Read:
        """Of getelementptr."""
        base = self.read(operands[0])
        fixed, moving = self._steps(element, operands)
        reads = [(self.read(operand), size) for operand, size in moving]

        def read(frame: Frame, lanes: Lanes) -> Array:
            at = base(frame, lanes)
            total = at.view(np.int64) if at.dtype.itemsize == 8 else at.astype(np.int64)
            for index, size in reads:
                step = operations.signed(index(frame, lanes)).astype(np.int64, copy=False)
                total = total + (step if size == 1 else step * size)
            total = total + fixed
            return total.view(at.dtype) if at.dtype.itemsize == 8 else total.astype(at.dtype)

        return read

    def _steps(
        self, element: Type, operands: list[tuple[Type, Value]]
    ) -> tuple[int, list[tuple[tuple[Type, Value], int]]]:
        """(bytes that the text says, (index, bytes) of the rest)"""
        fixed = 0
        moving: list[tuple[tuple[Type, Value], int]] = []
        kind: Type = Sequence(0, element, False)
        for each, value in operands[1:]:
            if isinstance(kind, Struct):
                if not isinstance(value, Constant) or value.values[0] is None:
                    self.fail("a field is chosen by a constant")
                number = int(value.values[0])
                fixed += field_offset(kind, number, self.layout)
                kind = kind.fields[number]
                continue
            inner = element_of(kind)
            size = size_of(inner, self.layout)
            if isinstance(value, Constant):
                fixed += int(value.values[0] or 0) * size
            else:
                moving.append(((each, value), size))
            kind = inner
        return fixed, moving

    def distance(self, element: Type, operands: list[tuple[Type, Value]]) -> Maybe:
        """What getelementptr adds to its base: the same for all lanes, or one index of 64 bits in bytes."""
        fixed, moving = self._steps(element, operands)
        helds = [(self.held(*operand)[0], size) for operand, size in moving]

        def look(frame: Frame) -> Sum | Array | None:
            total, index = fixed, None
            for each, size in helds:
                found = each(frame)
                if isinstance(found, np.ndarray):
                    total += int(operations.signed(found)[0]) * size
                elif index is None and isinstance(found, Sum) and size == 1 and found.bits == 64:
                    index = found
                else:
                    return None
            return np.array([total]) if index is None else index.plus(total)

        return look


def _same(read: Read) -> Held:
    """Of what is the same for all lanes."""
    return lambda frame: read(frame, None)


def element_of(kind: Type) -> Type:
    if not isinstance(kind, Sequence):
        raise Unsupported("an index into no sequence")
    return kind.element
