"""Lint of bindings: every operand is bound, every binding carries exactly the operand's bits, templates name what
exists.

Design choice: a finding points at the route's form (`emit.llvm`), the smallest thing that surely has a line; what
only the back end can judge (instruction names, constraints, IR text) is left to `verify`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hwsdk.dtypes import DTYPES
from hwsdk.errors import nearest
from hwsdk.intrinsics.bindings import Argument, arguments, opaque_types, value_bits
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.emit_source import PLACEHOLDER, source_pieces
from hwsdk.intrinsics.syntax import Expr, Name, Number, SemanticsError, Unary, names, walk

_FORMS = {"llvm": ("call", "ir", "asm"), "source": ("text",), "library": ("symbol",)}


def emission_findings(x: CompiledIntrinsic, route: str, form: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the emission of one route."""
    if not any(key in form for key in _FORMS[route]):
        yield f"the {route} route takes {', '.join(_FORMS[route])}"
        return
    if route == "source":
        yield from _template(x, form["text"])
        return
    opaque = opaque_types(x)
    try:
        given, results = arguments(form.get("args"), opaque), arguments(form.get("result"), opaque)
    except SemanticsError as error:
        yield str(error)
        return
    for side, entries in (("args", given), ("result", results)):
        for argument in entries:
            problem = _argument(x, side, argument)
            if problem:
                yield problem
                return
    yield from _completeness(x, route, form, given, results)


def _argument(x: CompiledIntrinsic, side: str, argument: Argument) -> str | None:
    name = argument.name
    if name is None:
        return None if side == "args" else "a result names an operand"
    if name not in x.operands and name not in x.runtime_dims:
        known = nearest(name, [*x.operands, *x.runtime_dims])
        return f"{side} names {name!r}, which is no operand and no runtime dim{known}"
    if side == "result":
        if name not in x.writes:
            return f"result {name!r} is never written by the semantics"
        if not x.in_registers(name) or argument.expr is not None:
            return (
                f"result {name!r} is not in registers; what is written to a memory goes through its address"
            )
    if argument.expr is not None:
        return _computed(x, argument, argument.expr)
    return _bits(x, argument)


def _computed(x: CompiledIntrinsic, argument: Argument, expr: Expr) -> str | None:
    integers = {n for n in x.scalars if DTYPES[x.operands[n].dtype].kind in "iu"}
    known = {"address", *integers}
    for unknown in sorted(names(expr) - known):
        return f"{argument.name!r}: unknown name {unknown!r}{nearest(unknown, known)}"
    for node in walk(expr):
        divides = getattr(node, "op", "") in ("//", "%")
        if divides and getattr(node, "y", None) == Number(0):
            return f"{argument.name!r}: division by zero"
        whole = isinstance(node, Number) and isinstance(node.value, int)
        operator = getattr(node, "op", "") in ("+", "-", "*", "//", "%", "^") and not isinstance(node, Unary)
        if not (whole or isinstance(node, Name) or operator):
            return f"{argument.name!r}: only + - * // % ^ over integers, 'address' and scalar operands"
    if not re.fullmatch(r"i(8|16|32|64)", argument.piece.type):
        return f"{argument.name!r}: a computed argument is an integer, not {argument.piece.type}"
    return None


def _bits(x: CompiledIntrinsic, argument: Argument) -> str | None:
    name, piece = str(argument.name), argument.piece
    if name in x.runtime_dims:
        ok = piece.count == 1 and re.fullmatch(r"i(8|16|32|64)", piece.type)
        return None if ok else f"the runtime extent {name!r} is passed as an integer, not {piece.type!r}"
    if piece.type == "ptr":
        return f"{name!r} is a value and cannot be passed as ptr" if _is_value(x, name) else None
    if not _is_value(x, name):
        return f"{name!r} is in memory {x.memory(name).name!r}; pass its address as ptr"
    opaque = None if name in x.scalars else x.memory(name).opaque
    if (opaque or piece.bits is None) and piece.type != opaque:
        return f"{name!r} is in registers that are passed as {opaque or 'plain types'}, not {piece.type!r}"
    if piece.bits is None:
        return None
    have, passed = value_bits(x, name), piece.count * piece.bits
    dtype = x.operands[name].dtype
    if name in x.scalars:
        widens = (
            DTYPES[dtype].kind in "iu" and piece.count == 1 and re.fullmatch(r"i(8|16|32|64)", piece.type)
        )
        return (
            None
            if passed == have or widens
            else f"{name!r} is {dtype}, but {piece.type!r} passes {passed} bits"
        )
    if passed == have or (x.operands[name].holes and passed >= have):
        return None
    shown = f"{piece.count} x {piece.type}" if piece.count > 1 else piece.type
    items = x.items(name)
    return f"{name!r} holds {items} x {dtype} = {have} bits per lane, but {shown!r} passes {passed}"


def _is_value(x: CompiledIntrinsic, name: str) -> bool:
    return name in x.scalars or x.in_registers(name)


def _completeness(
    x: CompiledIntrinsic,
    route: str,
    form: Mapping[str, Any],
    given: tuple[Argument, ...],
    results: tuple[Argument, ...],
) -> Iterator[str]:
    passed = {a.name for a in given if a.name} | {
        n for a in given if a.expr is not None for n in names(a.expr)
    }
    returned = [str(r.name) for r in results]
    unbound = _unbound(x, passed, returned, () if "ir" in form else tuple(sorted(x.scalars)))
    if unbound:
        yield unbound
        return
    if "ir" in form:
        yield from _ir(x, form["ir"], passed | set(x.scalars), returned)
    if "asm" in form:
        yield from _asm(x, form, passed, returned, given)
    if route == "llvm" and "call" in form and not re.fullmatch(r"[A-Za-z_$.][\w$.-]*", form["call"]):
        yield f"{form['call']!r} is not the name of a function"


def _unbound(
    x: CompiledIntrinsic, passed: set[str], returned: list[str], scalars: tuple[str, ...]
) -> str | None:
    """The first operand that does not get into or out of the instruction."""
    if len(set(returned)) != len(returned):
        return "an operand occurs twice in result"
    for name in dict.fromkeys([*x.reads, *x.writes, *scalars]):
        if name not in passed and name not in returned:
            return f"operand {name!r} is bound by neither args nor result"
    for name in x.writes:
        if x.in_registers(name) and name not in returned:
            return f"operand {name!r} is written in registers but is no result"
    for name in x.reads:
        if name not in passed:
            return f"operand {name!r} is read but is not in args"
    return None


def _ir(x: CompiledIntrinsic, text: str, bound: set[str], returned: list[str]) -> Iterator[str]:
    known = set(bound)
    for line in filter(None, map(str.strip, text.splitlines())):
        assigned = re.match(r"%([A-Za-z_]\w*) = ", line)
        for name in re.findall(r"%([A-Za-z_]\w*)", line[assigned.end() :] if assigned else line):
            if name in known:
                continue
            if name in x.operands:
                yield f"the ir uses %{name}, which is bound by neither args nor result"
            else:
                yield f"the ir uses %{name} before it is assigned"
            return
        if assigned:
            known.add(assigned[1])
    for name in returned:
        if not re.search(rf"^\s*%{name} = ", text, re.MULTILINE):
            yield f"result {name!r} is never assigned in the ir"


def _asm(
    x: CompiledIntrinsic,
    form: Mapping[str, Any],
    passed: set[str],
    returned: list[str],
    given: tuple[Argument, ...],
) -> Iterator[str]:
    if any(a.name is None for a in given):
        yield "inline assembly takes no constants; write them in the text"
    pieces = {a.name: a.piece.count for a in (*given,)} | {r: 1 for r in returned if r not in passed}
    for name in [*pieces, *returned]:
        if name is not None and name not in form["constraints"]:
            yield f"inline assembly needs a constraint for {name!r}"
            return
    for name, part in PLACEHOLDER.findall(form["asm"]):
        if name not in pieces:
            known = nearest(name, map(str, pieces))
            yield f"the template uses {{{name}}}, which is bound by neither args nor result{known}"
            return
        if part and int(part) >= pieces[name]:
            yield f"the template uses {{{name}.{part}}}, but {name!r} has {pieces[name]} pieces"
            return


def _template(x: CompiledIntrinsic, text: str) -> Iterator[str]:
    known = [*x.operands, *x.dims]
    try:
        cut = source_pieces(x)
    except SemanticsError as error:
        yield str(error)
        return
    for name, pieces in cut.items():
        bits = DTYPES[pieces.type].bits * pieces.count if pieces.type in DTYPES else None
        if bits is not None and bits != value_bits(x, name):
            have = value_bits(x, name)
            yield f"{name!r} holds {have} bits per lane, but {pieces.count} x {pieces.type} passes {bits}"
            return
    for name, part in PLACEHOLDER.findall(text):
        if name not in known:
            yield f"the template uses {{{name}}}, which is neither operand nor dim{nearest(name, known)}"
            return
        if part and (name not in x.operands or not x.in_registers(name)):
            yield f"the template uses {{{name}.{part}}}, but {name!r} is not in registers"
            return
        count = cut[name].count if name in cut else x.items(name) if part else 0
        if part and int(part) >= count:
            yield f"the template uses {{{name}.{part}}}, but {name!r} has {count} pieces"
            return
    used = {name for name, _ in PLACEHOLDER.findall(text)}
    for name in [*x.tensors, *x.runtime_dims]:
        if name not in used:
            yield f"the template does not use {name!r}"
            return
