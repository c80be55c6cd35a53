"""C-family text for one use of an intrinsic, and calls of library symbols.

Design choice: the text is the description's template with names filled in; braces around anything but a plain
word stand for themselves, so a template may hold blocks of the language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hwsdk.intrinsics.bindings import emission
from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.syntax import SemanticsError
from hwsdk.target_desc.model import Target

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:\.([0-9]+))?\}")


_PIECE = re.compile(r"(?:([1-9]\d{0,3}) x )?([A-Za-z_].*)")


@dataclass(frozen=True)
class SourcePieces:
    """How a text takes an operand in registers: `count` pieces of a dtype, or of a type of the language."""

    count: int
    type: str


def source_pieces(x: CompiledIntrinsic) -> dict[str, SourcePieces]:
    """What `args` of the emission says, by operand; others are passed as their own elements.  SemanticsError if it
    is malformed."""
    found: dict[str, SourcePieces] = {}
    for entry in emission(x, "source").get("args", ()):
        name, text = next(iter(entry.items())) if isinstance(entry, Mapping) else ("", entry)
        match = _PIECE.fullmatch(str(text).strip())
        if match is None or name not in x.operands or not x.in_registers(name):
            raise SemanticsError(
                f"args: {text!r} does not say in which pieces an operand in registers is passed"
            )
        found[name] = SourcePieces(int(match[1] or 1), match[2])
    return found


def emit_source(target: Target, intrinsic: str, values: Mapping[str, str]) -> str:
    """The statement for one use.

    `values`: operand or run-time dim -> expression of the language (memory operands as pointers, registers as
    variables).  Fixed dims are filled in by their extents.
    """
    return fill_template(compiled(target)[intrinsic], values)


def fill_template(x: CompiledIntrinsic, values: Mapping[str, str]) -> str:
    """The same for a compiled intrinsic; `values` may also have pieces of operands, `a.0`."""
    form = emission(x, "source")
    if "text" not in form:
        raise SemanticsError(f"intrinsic {x.name} has no 'text' for the source route")
    known = {name: str(size) for name, size in x.dims.items() if name not in x.runtime_dims} | dict(values)

    def filled(match: re.Match[str]) -> str:
        name = match[1] if match[2] is None else f"{match[1]}.{match[2]}"
        if name not in known:
            raise SemanticsError(f"intrinsic {x.name}: no value is given for {name!r}")
        return known[name]

    return PLACEHOLDER.sub(filled, form["text"])


def wrapper_source(target: Target, intrinsic: str, name: str) -> tuple[str, list[str]]:
    """`void NAME(void **)`: one pointer per operand and run-time extent, in the returned order.

    For running an intrinsic by itself: operands in registers are memory here.
    """
    x, source = compiled(target)[intrinsic], target.codegen.source
    if source is None:
        raise SemanticsError(f"target {target.name} has no codegen.source block")
    parameters, lines = [*x.operands, *x.runtime_dims], []
    values: dict[str, str] = {}
    cut = source_pieces(x)
    for position, operand in enumerate(parameters):
        dtype = x.operands[operand].dtype if operand in x.operands else "i32"
        if dtype not in source.types:
            raise SemanticsError(f"codegen.source.types has no entry for {dtype}")
        kind, values[operand] = source.types[dtype], operand
        if operand in x.scalars or operand not in x.operands:
            lines.append(f"  {kind} {operand} = *({kind} *)at_[{position}];")
        elif not x.in_registers(operand):
            pointer = f"{x.memory(operand).qualifier} {kind} *".lstrip()
            lines.append(f"  {pointer}{operand} = ({pointer})at_[{position}];")
        else:
            pieces = cut.get(operand, SourcePieces(x.items(operand), dtype))
            kind = source.types.get(pieces.type, pieces.type)
            lines.append(f"  {kind} *{operand} = ({kind} *)at_[{position}];")
            values |= {f"{operand}.{i}": f"{operand}[{i}]" for i in range(pieces.count)}
            if pieces.count == 1:
                values[operand] = f"{operand}[0]"
    lines.append("  " + fill_template(x, values))
    return f"void {name}(void **at_) {{\n" + "\n".join(lines) + "\n}\n", parameters
