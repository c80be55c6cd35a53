"""A kernel of the syntax tree to a Program of the engine.

Design choice: problems are collected and building goes on, so that one error lists everything that a kernel uses and
the engine does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwsdk.sim.simt.problems import Problem
from hwsdk.sim.simt.program import Branch, Exit, Jump, Parameter, Place, Program, Statement, Variable, link
from hwsdk.sim.simt.program import Label as LabelHere
from hwsdk.sim.simt.spaces import Space
from hwsdk.targets.cuda.ptx.context import Context, Unsupported
from hwsdk.targets.cuda.ptx.scopes import LabelName, Register, Scope, Symbol, TargetList
from hwsdk.targets.cuda.ptx.syntax import (
    Block,
    Declaration,
    Function,
    Group,
    Instruction,
    Label,
    Name,
    Operand,
    Registers,
    Targets,
)
from hwsdk.targets.cuda.ptx.types import TYPES, Type

#: builds one instruction by adding statements through its context
Build = Callable[[Context], None]
_LARGEST = 1 << 20  # instructions of a kernel after calls are replaced
_WIDEST = 16


def variable_bytes(declaration: Declaration) -> int:
    kind = TYPES.get(declaration.type)
    return (declaration.count or 0) * (kind.bytes if kind is not None else 0)


class Builder:
    """table: from opcode to its builder.  functions: of the file, by name.  globals and shared: variables."""

    def __init__(
        self,
        table: Mapping[str, Build],
        functions: Mapping[str, Function],
        variables: Mapping[str, Symbol],
        shared: Mapping[str, Variable],
    ) -> None:
        self.table, self.functions, self.variables, self.shared = table, functions, variables, shared
        self.statements: list[Statement] = []
        self.problems: list[Problem] = []
        self.widths: list[int] = []
        self.used_shared: dict[str, Variable] = {}
        self.local: list[Variable] = []
        self.granule = _WIDEST
        self._labels = 0
        self._calls: list[str] = []

    def kernel(self, function: Function, module: tuple[Variable, ...]) -> Program:
        """The program; its problems are in `problems` and make it useless."""
        assert function.body is not None
        scope = Scope(None, function.name)
        parameters = self._parameters(function, scope)
        self._calls.append(function.name)
        self._block(function.body, scope)
        self.statements.append(Exit(Place(function.line, "end of kernel")))
        segments = () if self.problems else link(self.statements)
        required = function.directives.get(".reqntid")
        most = function.directives.get(".maxntid")
        return Program(
            function.name,
            segments,
            tuple(self.widths),
            parameters,
            tuple(v for name, v in self.shared.items() if name in self.used_shared) + self._own_shared(),
            module,
            tuple(self.local),
            self.granule,
            _three(required),
            _three(most),
        )

    def _own_shared(self) -> tuple[Variable, ...]:
        return tuple(v for name, v in self.used_shared.items() if name not in self.shared)

    def _parameters(self, function: Function, scope: Scope) -> tuple[Parameter, ...]:
        found: list[Parameter] = []
        at = 0
        for declaration in function.parameters:
            kind = self._type(declaration.type, declaration.line)
            size = variable_bytes(declaration)
            at = -(-at // declaration.align) * declaration.align
            dtype = kind.dtype if kind is not None and not declaration.array else None
            found.append(Parameter(declaration.name, at, size, dtype))
            scope.names[declaration.name] = Symbol("", Space.PARAMETER, at)
            at += size
        return tuple(found)

    def _type(self, name: str, line: int) -> Type | None:
        if name not in TYPES:
            self.problems.append(Problem(line, "", f"type .{name} is not supported"))
        return TYPES.get(name)

    # -------------------------------------------------------------------------------------------- names
    def fresh_label(self, what: str) -> str:
        self._labels += 1
        return f"{what} {self._labels}"

    def has_variable(self, name: str) -> bool:
        return name in self.variables or name in self.shared

    def variable(self, name: str) -> Symbol | None:
        """A variable of the module; shared ones become the kernel's by being named."""
        if name in self.shared:
            self.used_shared[name] = self.shared[name]
            return Symbol(name, Space.SHARED)
        return self.variables.get(name)

    def new_register(self, kind: Type) -> Register:
        self.widths.append(kind.bytes)
        return Register(len(self.widths) - 1, kind)

    # -------------------------------------------------------------------------------------------- statements
    def _block(self, block: Block, scope: Scope) -> None:
        for statement in block.statements:
            if isinstance(statement, Label):
                scope.names[statement.name] = LabelName(self.fresh_label(statement.name))
            elif isinstance(statement, Targets):
                scope.names[statement.name] = TargetList(statement.labels)
        for statement in block.statements:
            if isinstance(statement, Instruction):
                self._instruction(statement, scope)
            elif isinstance(statement, Label):
                found = scope.names[statement.name]
                assert isinstance(found, LabelName)
                self.statements.append(LabelHere(found.unique))
            elif isinstance(statement, Registers):
                self._registers(statement, scope)
            elif isinstance(statement, Declaration):
                self._variable(statement, scope)
            elif isinstance(statement, Block):
                self._block(statement, Scope(scope, scope.function, scope.returns))

    def _registers(self, statement: Registers, scope: Scope) -> None:
        kind = self._type(statement.type, statement.line)
        if kind is None:
            return
        for name, count in statement.names:
            for each in [f"{name}{i}" for i in range(count)] if count else [name]:
                scope.names[each] = self.new_register(kind)

    def _variable(self, declaration: Declaration, scope: Scope) -> None:
        if self._type(declaration.type, declaration.line) is None:
            return
        unique = f"{declaration.name} #{len(self.local) + len(self.used_shared)}"
        size = variable_bytes(declaration)
        if declaration.space == "shared":
            dynamic = declaration.extern and not declaration.count
            name = declaration.name if declaration.name not in self.used_shared else unique
            self.used_shared[name] = Variable(name, size, declaration.align, dynamic=dynamic)
            scope.names[declaration.name] = Symbol(name, Space.SHARED)
        elif declaration.space in ("local", "param"):
            self.local.append(Variable(unique, size, declaration.align))
            scope.names[declaration.name] = Symbol(unique, Space.LOCAL)
        else:
            message = f".{declaration.space} variables inside a function are not supported"
            self.problems.append(Problem(declaration.line, declaration.name, message))

    def _instruction(self, instruction: Instruction, scope: Scope) -> None:
        if len(self.statements) > _LARGEST:
            return
        try:
            if instruction.opcode == "call":
                self._call(instruction, scope)
                return
            build = self.table.get(instruction.opcode)
            if build is None:
                raise Unsupported("this instruction is not supported")
            build(Context(self, scope, instruction))
        except Unsupported as problem:
            found = Problem(instruction.line, instruction.text, str(problem))
            if found not in self.problems:
                self.problems.append(found)

    # -------------------------------------------------------------------------------------------- calls
    def _call(self, instruction: Instruction, scope: Scope) -> None:
        """Put the function's body here.  Its parameters are the caller's variables."""
        operands = list(instruction.operands)
        results: tuple[Operand, ...] = ()
        if operands and isinstance(operands[0], Group):
            results = operands.pop(0).items  # type: ignore[union-attr]
        if not operands or not isinstance(operands[0], Name):
            raise Unsupported("the call does not name a function")
        name = operands[0].text
        given: tuple[Operand, ...] = ()
        if len(operands) > 1 and isinstance(operands[1], Group):
            given = operands[1].items
        function = self.functions.get(name)
        if function is None or function.body is None:
            raise Unsupported(f"function {name} has no body here (calls through registers are not supported)")
        if name in self._calls:
            raise Unsupported(f"function {name} calls itself, which is not supported")
        context = Context(self, scope, instruction)
        inner = Scope(None, name, self.fresh_label(f"after {name}"))
        formal = [*function.results, *function.parameters]
        actual = [*results, *given]
        if len(formal) != len(actual):
            raise Unsupported(f"{len(actual)} parameters and results for the {len(formal)} of {name}")
        for declaration, operand in zip(formal, actual):
            if not isinstance(operand, Name):
                raise Unsupported("parameters of a call must be variables")
            inner.names[declaration.name] = context.symbol(operand.text)
        self._calls.append(name)
        skip = self.fresh_label("skip")
        guard = context.guard()
        if guard is not None:
            self.statements.append(Branch(guard, not instruction.negated, skip, context.place))
        self._block(function.body, inner)
        self.statements.append(LabelHere(inner.returns or ""))
        self.statements.append(LabelHere(skip))
        self._calls.pop()

    def leave(self, context: Context) -> None:
        """`ret`: out of the function, or of the kernel."""
        returns = context.scope.returns
        context.around(Exit(context.place) if returns is None else Jump(returns, context.place))


def _three(sizes: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    if not sizes:
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
