"""A kernel of LLVM text to a Program of the engine.

    programs(text, target)   every kernel of the text by name

Design choice: each scalar of each value is a register.  Phis become copies on the edges, all read before any is
written.  What a target adds to LLVM, the meaning of its address spaces and intrinsics, it passes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hwsdk.sim.simt import program as engine
from hwsdk.sim.simt.llvm_text import operations
from hwsdk.sim.simt.llvm_text.calls import Call, LlvmTarget, Unsupported
from hwsdk.sim.simt.llvm_text.parser import parse
from hwsdk.sim.simt.llvm_text.syntax import (
    Constant,
    Expression,
    File,
    Function,
    Global,
    Instruction,
    LlvmTextError,
    Local,
    Tuple,
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
    scalar_places,
    scalars,
    size_of,
)
from hwsdk.sim.simt.problems import Problem
from hwsdk.sim.simt.program import Array, Lanes, Meeting, Parameter, Place, Program, Read, Run, Variable, link
from hwsdk.sim.simt.registers import (
    Held,
    Maybe,
    Where,
    at_register,
    constant,
    everywhere,
    held,
    into,
    register,
)
from hwsdk.sim.simt.spaces import Access, Space, load
from hwsdk.sim.simt.sums import Sum

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame


def programs(text: str, target: LlvmTarget) -> dict[str, Program]:
    """LlvmTextError lists everything that is malformed or not supported."""
    file = parse(text)
    problems: list[Problem] = []
    _checked(file, target.layout)
    module = _module_variables(file, target.layout)
    found = {}
    for function in file.functions.values():
        builder = Builder(file, function, target)
        found[function.name] = builder.program(module)
        problems += builder.problems
    if problems:
        raise LlvmTextError(sorted(problems, key=lambda p: p.line))
    return found


def _module_variables(file: File, layout: AddressSpaces) -> tuple[Variable, ...]:
    found = []
    for v in file.variables.values():
        if layout.spaces.get(v.space) is Space.SHARED or v.external:
            continue
        content = bytearray(size_of(v.type, layout))
        if isinstance(v.value, Constant):
            places = scalar_places(v.type, layout)
            for (at, kind), number in zip(places, v.value.values):
                raw = _immediate(number, kind, layout).tobytes()
                content[at : at + len(raw)] = raw
        elif v.value is not None:
            raise LlvmTextError([Problem(v.line, v.name, "an initialiser with addresses is not supported")])
        align = v.align or align_of(v.type, layout)
        found.append(Variable(v.name, len(content), align, bytes(content), read_only=v.constant))
    return tuple(found)


def _checked(file: File, layout: AddressSpaces) -> None:
    """Types of variables that no register holds."""
    for v in file.variables.values():
        try:
            size_of(v.type, layout)
        except ValueError as problem:
            raise LlvmTextError([Problem(v.line, v.name, str(problem))]) from None


def _immediate(value: Any, kind: Scalar, layout: AddressSpaces) -> Array:
    dtype = dtype_of(kind, layout)
    if value is None:
        value = 0
    if kind.kind == "bfloat":
        return np.array([np.float32(value).view(np.uint32) >> 16], np.uint16)
    if dtype.kind == "u":
        return np.array([int(value) & ((1 << 8 * dtype.itemsize) - 1)], dtype)
    return np.array([value], dtype)


class Builder:
    """One kernel."""

    def __init__(self, file: File, function: Function, target: LlvmTarget) -> None:
        self.file, self.function, self.target = file, function, target
        self.layout = target.layout
        self.statements: list[engine.Statement] = []
        self.problems: list[Problem] = []
        self.widths: list[int] = []
        self.values: dict[str, tuple[Type, list[int]]] = {}
        self.local: list[Variable] = []
        self.shared: dict[str, Variable] = {}
        self.granule = 16
        self.place = Place(function.line, "")

    def fail(self, message: str) -> NoReturn:
        raise Unsupported(message)

    # -------------------------------------------------------------------------------------------- whole kernel
    def program(self, module: tuple[Variable, ...]) -> Program:
        parameters: tuple[Parameter, ...] = ()
        try:
            parameters = self._parameters()
        except ValueError as problem:
            self._add_problem(str(problem))
        for block in self.function.blocks:  # phis are written before their blocks are reached
            for instruction in block.instructions:
                self._try(lambda i=instruction: self._declare(i), instruction)  # type: ignore[misc]
        for block in self.function.blocks:
            self.statements.append(engine.Label(block.name))
            for instruction in block.instructions:
                self._try(lambda i=instruction, b=block.name: self._instruction(i, b), instruction)  # type: ignore[misc]
        self.statements.append(engine.Exit(self.place))
        segments: tuple[engine.Segment, ...] = ()
        if not self.problems:
            try:
                segments = link(self.statements)
            except KeyError as missing:
                self.problems.append(
                    Problem(self.function.line, "", f"label {missing} is not in the function")
                )
        return Program(
            self.function.name,
            segments,
            tuple(self.widths),
            parameters,
            tuple(self.shared.values()),
            module,
            tuple(self.local),
            self.granule,
            self.target.block(self.function.attributes),
        )

    def _try(self, step: Callable[[], None], instruction: Instruction) -> None:
        self.place = Place(instruction.line, instruction.text)
        try:
            step()
        except (Unsupported, ValueError) as problem:
            self._add_problem(str(problem))
        except IndexError:
            self._add_problem("the number of parts does not fit the types")

    def _add_problem(self, message: str) -> None:
        found = Problem(self.place.line, self.place.text[:160], message)
        if found not in self.problems:
            self.problems.append(found)

    def _parameters(self) -> tuple[Parameter, ...]:
        found, at = [], 0
        for kind, name in self.function.parameters:
            align = align_of(kind, self.layout)
            at = -(-at // align) * align
            plain = dtype_of(kind, self.layout) if isinstance(kind, Scalar) else None
            found.append(Parameter(name, at, size_of(kind, self.layout), plain))
            registers = self._new(name, kind)
            for (offset, scalar), number in zip(scalar_places(kind, self.layout, at), registers):
                self._load_parameter(offset, scalar, number)
            at += size_of(kind, self.layout)
        return tuple(found)

    def _load_parameter(self, offset: int, scalar: Scalar, number: int) -> None:
        dtype = dtype_of(scalar, self.layout)
        stored = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        access, where, write = Access(Space.PARAMETER, stored), np.array([offset], np.uint64), into(number)

        def run(frame: Frame, lanes: Lanes) -> None:
            (value,) = load(frame, lanes, where, access)
            write(frame, lanes, value.astype(dtype))

        self.emit(run, "load")

    # -------------------------------------------------------------------------------------------- values
    def _declare(self, instruction: Instruction) -> None:
        if instruction.result:
            self._new(instruction.result, self._result_type(instruction))

    def _result_type(self, instruction: Instruction) -> Type:
        if instruction.opcode == "getelementptr":
            return instruction.operands[0][0]
        if instruction.opcode == "alloca":
            return Scalar("ptr", 0, instruction.facts["space"])
        if instruction.opcode == "extractvalue":
            kind = instruction.operands[0][0]
            for index in instruction.facts["indices"]:
                kind = kind.fields[index] if isinstance(kind, Struct) else _element(kind)
            return kind
        return instruction.type

    def _new(self, name: str, kind: Type) -> list[int]:
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
                constant(_immediate(v, s, self.layout)[0], dtype_of(s, self.layout))
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
            inner = _element(kind)
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

    # -------------------------------------------------------------------------------------------- statements
    def emit(self, run: Run, kind: str, meeting: Meeting | None = None) -> None:
        self.statements.append(engine.Instruction(run, kind, self.place, meeting))

    def writes(self, instruction: Instruction) -> list[engine.Write]:
        if not instruction.result:
            return []
        if instruction.result not in self.values:
            self.fail(f"{instruction.result} has no type that is known")
        return [into(n) for n in self.values[instruction.result][1]]

    def _instruction(self, instruction: Instruction, block: str) -> None:
        from hwsdk.sim.simt.llvm_text.instructions import BUILDERS

        if instruction.opcode == "phi":
            return
        if instruction.opcode in ("br", "switch", "ret", "unreachable"):
            self._end(instruction, block)
        elif instruction.opcode == "call":
            self._call(instruction)
        else:
            BUILDERS.get(instruction.opcode, BUILDERS["binary"])(self, instruction)

    def _call(self, instruction: Instruction) -> None:
        name = instruction.facts["function"]
        call = Call(self, instruction, name)
        found = self.target.intrinsic(name)
        if found is not None:
            found(call)
        elif name.startswith("llvm."):
            call.generic()
        else:
            self.fail(f"calls of functions are not supported: {name}")

    # -------------------------------------------------------------------------------------------- control
    def _end(self, instruction: Instruction, block: str) -> None:
        if instruction.opcode in ("ret", "unreachable"):
            self.statements.append(engine.Exit(self.place))
            return
        targets = instruction.facts["targets"]
        edges = [f"{block} to {t} ({i})" for i, t in enumerate(targets)]
        if instruction.opcode == "br" and len(targets) == 2:
            predicate = self.read(instruction.operands[0])
            self.statements.append(engine.Branch(predicate, False, edges[0], self.place))
            order = [1, 0]
        elif instruction.opcode == "br":
            order = [0]
        else:
            self._switch(instruction, edges)
            order = list(range(len(targets)))
        for i in order:
            self.statements.append(engine.Label(edges[i]))
            self._copies(block, targets[i])
            self.statements.append(engine.Jump(targets[i], self.place))

    def _switch(self, instruction: Instruction, edges: list[str]) -> None:
        kind = instruction.operands[0][0]
        if not isinstance(kind, Scalar):
            self.fail("a switch over no integer")
        value, dtype = self.read(instruction.operands[0]), dtype_of(kind, self.layout)
        for case, edge in zip(instruction.facts["cases"], edges[1:]):
            wanted = _immediate(case, kind, self.layout).astype(dtype)

            def hit(frame: Frame, lanes: Lanes, wanted: Array = wanted) -> Array:
                result: Array = value(frame, lanes) == wanted
                return result

            self.statements.append(engine.Branch(hit, False, edge, self.place))
        self.statements.append(engine.Jump(edges[0], self.place))

    def _copies(self, source: str, target: str) -> None:
        """What the phis of `target` take on the way from `source`."""
        pairs: list[tuple[Read, Held, engine.Write, int]] = []
        block = next((b for b in self.function.blocks if b.name == target), None)
        for phi in block.instructions if block is not None else ():
            if phi.opcode != "phi":
                break
            if source not in phi.facts["sources"]:
                self.fail(f"{phi.result} has no value from {source}")
            kind, value = phi.operands[phi.facts["sources"].index(source)]
            targets = self.values[phi.result][1]
            pairs += zip(self.reads(kind, value), self.held(kind, value), self.writes(phi), targets)

        def run(frame: Frame, lanes: Lanes) -> None:
            if lanes is None:
                found = [look(frame) for _, look, _, _ in pairs]
                for (_, _, _, target), value in zip(pairs, found):
                    frame.registers[target] = np.copy(value) if isinstance(value, np.ndarray) else value
                return
            taken = [np.copy(read(frame, lanes)) for read, _, _, _ in pairs]
            for (_, _, write, _), value in zip(pairs, taken):
                write(frame, lanes, value)

        if pairs:
            self.emit(run, "move")


def _same(read: Read) -> Held:
    """Of what is the same for all lanes."""
    return lambda frame: read(frame, None)


def _element(kind: Type) -> Type:
    if not isinstance(kind, Sequence):
        raise Unsupported("an index into no sequence")
    return kind.element
