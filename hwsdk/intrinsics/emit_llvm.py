"""LLVM IR for one use of any intrinsic, from its binding alone.

Design choice: the emitter knows no instruction.  It takes values of natural type, casts their bits into the
pieces that the binding names, writes the call, IR lines or inline assembly, and casts the results back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hwsdk.intrinsics.bindings import (
    Argument,
    Piece,
    arguments,
    element_type,
    emission,
    natural_type_of,
    opaque_types,
)
from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.syntax import Binary, Expr, Name, Number, SemanticsError
from hwsdk.target_desc.model import Target

_ADDRESS_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "//": "udiv", "%": "urem", "^": "xor"}
_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}

Values = Mapping[str, str]


def natural_type(target: Target, intrinsic: str, operand: str) -> str:
    """LLVM type of an operand's value per lane: `<8 x float>`, `i32`, `ptr`, `ptr addrspace(3)`; i64 for an extent."""
    return natural_type_of(compiled(target)[intrinsic], operand)


def emit_llvm(
    target: Target, intrinsic: str, values: Values, fresh: Callable[[], str]
) -> tuple[list[str], dict[str, str]]:
    """IR lines for one use, and the SSA values of the written register operands.

    `values`: operand or run-time dim -> SSA value (or constant) of its natural type; operands in memories are
    addresses.  `fresh` gives an unused SSA name, such as `%v17`.  Lines carry no indentation.
    """
    x = compiled(target)[intrinsic]
    emitter = _Emitter(x, emission(x, "llvm"), values, fresh)
    return emitter.use()


@dataclass
class _Emitter:
    x: CompiledIntrinsic
    form: Mapping[str, Any]
    values: Values
    fresh: Callable[[], str]
    lines: list[str] = field(default_factory=list)

    def let(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    # ---- values <-> pieces
    def cast(self, have: str, value: str, want: str) -> str:
        return value if have == want else self.let(f"bitcast {have} {value} to {want}")

    def value_of(self, name: str) -> str:
        if name not in self.values:
            raise SemanticsError(f"intrinsic {self.x.name}: no value is given for {name!r}")
        return self.values[name]

    def split(self, argument: Argument) -> list[tuple[str, str]]:
        """(type, value) pieces of one argument."""
        name, piece = argument.name, argument.piece
        if name is None:
            return [_typed(argument.constant)]
        have = natural_type_of(self.x, name)
        if argument.expr is not None:
            return [(piece.type, self.computed(name, have, argument.expr, piece.type))]
        value = self.value_of(name)
        if piece.bits is None:
            return [(have, value)]
        if name in self.x.runtime_dims or name in self.x.scalars:
            return [(piece.type, self.resized(have, value, piece.type))]
        if piece.count == 1:
            return [(piece.type, self.cast(have, value, piece.type))]
        vector_type = f"<{piece.count} x i{piece.bits}>"
        vector = self.cast(have, value, vector_type)
        out = []
        for i in range(piece.count):
            part = self.let(f"extractelement {vector_type} {vector}, i32 {i}")
            out.append((piece.type, self.cast(f"i{piece.bits}", part, piece.type)))
        return out

    def resized(self, have: str, value: str, want: str) -> str:
        """A scalar as another type: integers change their width, other bits are kept."""
        if have == want:
            return value
        if re.fullmatch(r"i\d+", have) and re.fullmatch(r"i\d+", want):
            if re.fullmatch(r"-?\d+", value):
                return value
            verb = "trunc" if int(have[1:]) > int(want[1:]) else "sext"
            return self.let(f"{verb} {have} {value} to {want}")
        return self.cast(have, value, want)

    def join(self, name: str, parts: list[str], piece: Piece) -> str:
        want = natural_type_of(self.x, name)
        if piece.bits is None:
            return parts[0]
        if piece.count == 1:
            return self.cast(piece.type, parts[0], want)
        vector_type, vector = f"<{piece.count} x i{piece.bits}>", "poison"
        for i, part in enumerate(parts):
            bits = self.cast(piece.type, part, f"i{piece.bits}")
            vector = self.let(f"insertelement {vector_type} {vector}, i{piece.bits} {bits}, i32 {i}")
        return self.cast(vector_type, vector, want)

    def computed(self, name: str, have: str, expr: Expr, want: str) -> str:
        """An integer expression over `address` (of the operand) and scalar operands."""

        def visit(node: Expr) -> str:
            match node:
                case Number(value=value):
                    return str(value)
                case Name(name="address"):
                    return self.let(f"ptrtoint {have} {self.value_of(name)} to {want}")
                case Name(name=other):
                    return self.resized(natural_type_of(self.x, other), self.value_of(other), want)
                case Binary(op=op, x=x, y=y) if op in _ADDRESS_OPERATORS:
                    left, right = visit(x), visit(y)
                    return self.let(f"{_ADDRESS_OPERATORS[op]} {want} {left}, {right}")
            raise SemanticsError(f"intrinsic {self.x.name}: {name!r} is not a computable address")

        return visit(expr)

    # ---- one use
    def use(self) -> tuple[list[str], dict[str, str]]:
        opaque = opaque_types(self.x)
        given, results = arguments(self.form.get("args"), opaque), arguments(self.form.get("result"), opaque)
        if "ir" in self.form:
            return self.lines, self.inline(given, results)
        pieces: list[tuple[str, str]] = []
        owners: list[tuple[str, int] | None] = []
        for argument in given:
            parts = self.split(argument)
            pieces += parts
            owners += [None if argument.name is None else (argument.name, i) for i in range(len(parts))]
        flat = [r.piece.type for r in results for _ in range(r.piece.count)]
        returned = "void" if not flat else flat[0] if len(flat) == 1 else "{" + ", ".join(flat) + "}"
        callee = f"@{self.form['call']}" if "call" in self.form else self.assembly(results, owners)
        together = " convergent" if "asm" in self.form and self.x.lanes > 1 else ""
        call = f"call {returned} {callee}({', '.join(f'{t} {v}' for t, v in pieces)}){together}"
        if not flat:
            self.lines.append(call)
            return self.lines, {}
        out = self.let(call)
        parts_out = (
            [out]
            if len(flat) == 1
            else [self.let(f"extractvalue {returned} {out}, {i}") for i in range(len(flat))]
        )
        return self.lines, self.joined(results, parts_out)

    def joined(self, results: tuple[Argument, ...], parts: list[str]) -> dict[str, str]:
        new: dict[str, str] = {}
        for result in results:
            assert result.name is not None
            count = result.piece.count
            new[result.name], parts = self.join(result.name, parts[:count], result.piece), parts[count:]
        return new

    def assembly(self, results: tuple[Argument, ...], owners: list[tuple[str, int] | None]) -> str:
        """Inline assembly: results first; an operand that is also a result is tied to its register."""
        slots: dict[str, list[int]] = {}
        constraints: list[str] = []
        stated = self.form["constraints"]
        for result in results:
            name = str(result.name)
            slots[name] = list(range(len(constraints), len(constraints) + result.piece.count))
            constraints += [f"={stated[name]}"] * result.piece.count
        tied = {str(r.name) for r in results}
        for owner in owners:
            if owner is None:
                raise SemanticsError(
                    f"intrinsic {self.x.name}: inline assembly takes no constants; write them in the text"
                )
            name, part = owner
            if name in tied and part < len(slots[name]):
                constraints.append(str(slots[name][part]))
            else:
                slots.setdefault(name, []).append(len(constraints))
                constraints.append(stated[name])
        constraints += [f"~{{{c}}}" for c in self.form.get("clobbers", ())]

        def filled(match: re.Match[str]) -> str:
            numbers = slots[match[1]]
            chosen = numbers if match[2] is None else [numbers[int(match[2])]]
            return ", ".join(f"${n}" for n in chosen)

        text = re.sub(r"\{(\w+)(?:\.(\d+))?\}", filled, self.form["asm"])
        return f'asm sideeffect "{text}", "{",".join(constraints)}"'

    def inline(self, given: tuple[Argument, ...], results: tuple[Argument, ...]) -> dict[str, str]:
        """IR lines: `%operand` is bound, every other %name is a temporary that is renamed."""
        bound: dict[str, str] = {}
        for argument in given:
            if argument.name is not None:
                bound[argument.name] = self.split(argument)[0][1]
        for name in self.x.scalars:
            if name not in bound and name in self.values:
                bound[name] = self.values[name]

        def renamed(match: re.Match[str]) -> str:
            if match[1] not in bound:
                raise SemanticsError(
                    f"intrinsic {self.x.name}: the ir uses %{match[1]} before it is assigned"
                )
            return bound[match[1]]

        for line in filter(None, map(str.strip, self.form["ir"].splitlines())):
            assigned = re.match(r"%([A-Za-z_]\w*) = ", line)
            body = re.sub(r"%([A-Za-z_]\w*)", renamed, line[assigned.end() :] if assigned else line)
            if assigned:
                bound[assigned[1]] = self.let(body)
            else:
                self.lines.append(body)
        return {str(r.name): self.join(str(r.name), [bound[str(r.name)]], r.piece) for r in results}


def settled(
    target: Target, intrinsic: str, operand: str, value: str, fresh: Callable[[], str]
) -> tuple[list[str], str]:
    """IR lines that give an operand in registers a new name, before which it is not computed and behind which nothing
    that uses it can move; and that name.  Where the binding is no inline assembly the value is left alone."""
    x = compiled(target)[intrinsic]
    form = emission(x, "llvm")
    if "asm" not in form:
        return [], value
    emitter = _Emitter(x, form, {operand: value}, fresh)
    (argument,) = (a for a in arguments(form.get("result"), opaque_types(x)) if a.name == operand)
    pieces = emitter.split(argument)
    constraint, count = form["constraints"][operand], len(pieces)
    constraints = ",".join([f"={constraint}"] * count + [str(i) for i in range(count)])
    kinds = ", ".join(kind for kind, _ in pieces)
    returned = kinds if count == 1 else f"{{{kinds}}}"
    given = ", ".join(f"{kind} {text}" for kind, text in pieces)
    out = emitter.let(f'call {returned} asm sideeffect "", "{constraints}"({given})')
    parts = (
        [out] if count == 1 else [emitter.let(f"extractvalue {returned} {out}, {i}") for i in range(count)]
    )
    joined = emitter.join(operand, parts, argument.piece)
    return emitter.lines, joined


def _typed(constant: str) -> tuple[str, str]:
    """`i32 0` or `<16 x i8> zeroinitializer` as (type, value)."""
    found = re.match(r"(<[^>]*>|\S+(?: addrspace\(\d+\))?) (.*)$", constant, re.DOTALL)
    assert found is not None
    return found[1], found[2]


def stands_alone(x: CompiledIntrinsic) -> bool:
    """Can every operand be loaded and stored by itself?  The contents of opaque registers cannot."""
    opaque = opaque_types(x)
    return not opaque or not any(x.in_registers(o) and x.memory(o).opaque in opaque for o in x.tensors)


def wrapper_function(target: Target, intrinsic: str, name: str) -> tuple[str, list[str]]:
    """`define void @NAME(ptr, ...)`: one pointer per operand and run-time extent; values travel through memory.

    For running an intrinsic by itself.  Returns the function and the order of its parameters.
    """
    x = compiled(target)[intrinsic]
    count = iter(range(1 << 30))

    def fresh() -> str:
        return f"%v{next(count)}"

    parameters, lines, values = [*x.operands, *x.runtime_dims], [], {}
    kinds = dict.fromkeys(parameters, "ptr")
    for operand in parameters:
        if operand in x.operands and operand not in x.scalars and not x.in_registers(operand):
            values[operand] = f"%{operand}.p"
            kinds[operand] = natural_type_of(x, operand)
            continue
        natural = natural_type_of(x, operand)
        bits = _mask_bits(natural)
        loaded = fresh()
        lines.append(f"{loaded} = load {bits or natural}, ptr %{operand}.p, align 1")
        values[operand] = loaded
        if bits:
            values[operand] = fresh()
            lines.append(f"{values[operand]} = bitcast {bits} {loaded} to {natural}")
    used, results = emit_llvm(target, intrinsic, values, fresh)
    lines += used
    for operand, value in results.items():
        lines.append(f"store {natural_type_of(x, operand)} {value}, ptr %{operand}.p, align 1")
    head = f"define void @{name}({', '.join(f'{kinds[p]} %{p}.p' for p in parameters)}) {{"
    return "\n".join([head, *(f"  {line}" for line in lines), "  ret void", "}", ""]), parameters


def _mask_bits(natural: str) -> str | None:
    """The integer that holds a vector of i1 in memory."""
    found = re.fullmatch(r"<(\d+) x i1>", natural)
    return f"i{found[1]}" if found else None


__all__ = ["element_type", "emit_llvm", "natural_type", "settled", "stands_alone", "wrapper_function"]
