"""A kernel of LLVM text to a Program of the engine.

    programs(text, target)   every kernel of the text by name

Design choice: phis become copies on the edges, all read before any is written; functions are put where they are called.
What a target adds to LLVM, the meaning of its address spaces and intrinsics, it passes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hwsdk.sim.simt import program as engine
from hwsdk.sim.simt.llvm_text.calls import Call, LlvmTarget
from hwsdk.sim.simt.llvm_text.operands import Operands, element_of, immediate
from hwsdk.sim.simt.llvm_text.parser import parse
from hwsdk.sim.simt.llvm_text.syntax import (
    Constant,
    File,
    Function,
    Instruction,
    LlvmTextError,
    Unsupported,
    Value,
)
from hwsdk.sim.simt.llvm_text.types import (
    AddressSpaces,
    Scalar,
    Struct,
    Type,
    align_of,
    dtype_of,
    scalar_places,
    size_of,
)
from hwsdk.sim.simt.problems import Problem
from hwsdk.sim.simt.program import Array, Lanes, Meeting, Parameter, Place, Program, Read, Run, Variable, link
from hwsdk.sim.simt.registers import Held, into, moved, unary
from hwsdk.sim.simt.spaces import Access, Space, load

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
        if target.kernel and target.kernel not in function.words:
            continue
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
                raw = immediate(number, kind, layout).tobytes()
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


class Builder:
    """One kernel."""

    def __init__(self, file: File, function: Function, target: LlvmTarget) -> None:
        self.file, self.function, self.target = file, function, target
        self.layout = target.layout
        self.statements: list[engine.Statement] = []
        self.problems: list[Problem] = []
        self.operands = Operands(file, target.layout)
        self.local: list[Variable] = []
        self.granule = 16
        self.place = Place(function.line, "")
        self._calls = [function.name]
        self._prefix = ""  # of the labels of the function that is being built
        self._returns: tuple[str, list[int]] | None = None  # label and registers of the result
        self._inlined = 0

    def fail(self, message: str) -> NoReturn:
        raise Unsupported(message)

    # -------------------------------------------------------------------------------------------- whole kernel
    def program(self, module: tuple[Variable, ...]) -> Program:
        parameters: tuple[Parameter, ...] = ()
        try:
            parameters = self._parameters()
        except ValueError as problem:
            self._add_problem(str(problem))
        self._body()
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
            tuple(self.operands.widths),
            parameters,
            tuple(self.operands.shared.values()),
            module,
            tuple(self.local),
            self.granule,
            self.target.block(self.function.attributes),
        )

    def _body(self) -> None:
        function = self.function
        for block in function.blocks:  # phis are written before their blocks are reached
            for instruction in block.instructions:
                self._try(lambda i=instruction: self._declare(i), instruction)  # type: ignore[misc]
        for block in function.blocks:
            self.statements.append(engine.Label(self._prefix + block.name))
            for instruction in block.instructions:
                self._try(lambda i=instruction, b=block.name: self._instruction(i, b), instruction)  # type: ignore[misc]

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
            registers = self.operands.new(name, kind)
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
            self.operands.new(instruction.result, self._result_type(instruction))

    def _result_type(self, instruction: Instruction) -> Type:
        if instruction.opcode == "getelementptr":
            return instruction.operands[0][0]
        if instruction.opcode == "alloca":
            return Scalar("ptr", 0, instruction.facts["space"])
        if instruction.opcode == "extractvalue":
            kind = instruction.operands[0][0]
            for index in instruction.facts["indices"]:
                kind = kind.fields[index] if isinstance(kind, Struct) else element_of(kind)
            return kind
        return instruction.type

    # -------------------------------------------------------------------------------------------- statements
    def emit(self, run: Run, kind: str, meeting: Meeting | None = None) -> None:
        self.statements.append(engine.Instruction(run, kind, self.place, meeting))

    def writes(self, instruction: Instruction) -> list[engine.Write]:
        if not instruction.result:
            return []
        if instruction.result not in self.operands.values:
            self.fail(f"{instruction.result} has no type that is known")
        return [into(n) for n in self.operands.values[instruction.result][1]]

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
            self._inline(instruction, name)

    def _inline(self, instruction: Instruction, name: str) -> None:
        """Put a function's body here."""
        function = self.file.functions.get(name)
        if function is None:
            self.fail(f"function {name} has no body here")
        if name in self._calls:
            self.fail(f"function {name} calls itself, which is not supported")
        if len(function.parameters) != len(instruction.operands):
            self.fail(f"{len(instruction.operands)} arguments for the {len(function.parameters)} of {name}")
        given = [self._moves_of(*operand) for operand in instruction.operands]
        targets = self.operands.values[instruction.result][1] if instruction.result else []
        outer = self.function, self.operands.values, self._prefix, self._returns, self.place
        self._inlined += 1
        after = f"after {name} {self._inlined}"
        self.function, self.operands.values, self._prefix = function, {}, f"{name} {self._inlined}: "
        self._returns = after, targets
        self._calls.append(name)
        for (kind, parameter), sources in zip(function.parameters, given):
            self._give(sources, self.operands.new(parameter, kind))
        self._body()
        self._calls.pop()
        self.function, self.operands.values, self._prefix, self._returns, self.place = outer
        self.statements.append(engine.Label(after))

    def _moves_of(self, kind: Type, value: Value) -> list[tuple[Read, Held]]:
        return list(zip(self.operands.reads(kind, value), self.operands.held(kind, value)))

    def _give(self, sources: list[tuple[Read, Held]], targets: list[int]) -> None:
        for (read, look), target in zip(sources, targets, strict=True):
            self.emit(moved(target, look, unary(into(target), np.copy, read)), "move")

    # -------------------------------------------------------------------------------------------- control
    def _end(self, instruction: Instruction, block: str) -> None:
        if instruction.opcode == "ret" and self._returns is not None:
            after, registers = self._returns
            if registers:
                self._give(self._moves_of(*instruction.operands[0]), registers)
            self.statements.append(engine.Jump(after, self.place))
            return
        if instruction.opcode in ("ret", "unreachable"):
            self.statements.append(engine.Exit(self.place))
            return
        targets = instruction.facts["targets"]
        edges = [f"{self._prefix}{block} to {t} ({i})" for i, t in enumerate(targets)]
        if instruction.opcode == "br" and len(targets) == 2:
            predicate = self.operands.read(instruction.operands[0])
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
            self.statements.append(engine.Jump(self._prefix + targets[i], self.place))

    def _switch(self, instruction: Instruction, edges: list[str]) -> None:
        kind = instruction.operands[0][0]
        if not isinstance(kind, Scalar):
            self.fail("a switch over no integer")
        value, dtype = self.operands.read(instruction.operands[0]), dtype_of(kind, self.layout)
        for case, edge in zip(instruction.facts["cases"], edges[1:]):
            wanted = immediate(case, kind, self.layout).astype(dtype)

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
            targets = self.operands.values[phi.result][1]
            pairs += zip(
                self.operands.reads(kind, value), self.operands.held(kind, value), self.writes(phi), targets
            )

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
