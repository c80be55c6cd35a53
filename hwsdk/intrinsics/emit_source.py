"""C-family text for one use of an intrinsic, and calls of library symbols.

Design choice: the text is the description's template with names filled in; braces around anything but a plain
word stand for themselves, so a template may hold blocks of the language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hwsdk.intrinsics.bindings import emission
from hwsdk.intrinsics.compiled import compiled
from hwsdk.intrinsics.syntax import SemanticsError
from hwsdk.target_desc.model import Target

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:\.([0-9]+))?\}")


def emit_source(target: Target, intrinsic: str, values: Mapping[str, str]) -> str:
    """The statement for one use.

    `values`: operand or run-time dim -> expression of the language (memory operands as pointers, registers as
    variables).  Fixed dims are filled in by their extents.
    """
    x = compiled(target)[intrinsic]
    form = emission(x, "source")
    if "text" not in form:
        raise SemanticsError(f"intrinsic {intrinsic} has no 'text' for the source route")
    known = {name: str(size) for name, size in x.dims.items() if name not in x.runtime_dims} | dict(values)

    def filled(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise SemanticsError(f"intrinsic {intrinsic}: no value is given for {match[1]!r}")
        return known[match[1]]

    return PLACEHOLDER.sub(filled, form["text"])


def wrapper_source(target: Target, intrinsic: str, name: str) -> tuple[str, list[str]]:
    """`void NAME(void **p)`: one pointer per operand and run-time extent, in the returned order."""
    x, source = compiled(target)[intrinsic], target.codegen.source
    if source is None:
        raise SemanticsError(f"target {target.name} has no codegen.source block")
    parameters, lines = [*x.operands, *x.runtime_dims], []
    for position, operand in enumerate(parameters):
        dtype = x.operands[operand].dtype if operand in x.operands else "i32"
        if dtype not in source.types:
            raise SemanticsError(f"codegen.source.types has no entry for {dtype}")
        kind = source.types[dtype]
        if operand in x.scalars or operand not in x.operands:
            lines.append(f"  {kind} {operand} = *({kind} *)p[{position}];")
        else:
            qualifier = x.memory(operand).qualifier
            lines.append(f"  {qualifier} {kind} *{operand} = p[{position}];")
    lines.append("  " + emit_source(target, intrinsic, {p: p for p in parameters}))
    return f"void {name}(void **p) {{\n" + "\n".join(lines) + "\n}\n", parameters
