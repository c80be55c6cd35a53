"""Everything that can be known about a description without running it: structure, semantics, layouts, bindings,
peaks.

Design choice: the laws of a description are checked on the model that the compiler will use, and every finding is
led back to the line that said it.  A later stage looks only at intrinsics that passed the earlier ones, so one
mistake is one error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hwsdk.errors import DescriptionError, Problem
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.integers import extent
from hwsdk.intrinsics.lint_emission import emission_findings
from hwsdk.intrinsics.lint_layout import layout_findings
from hwsdk.intrinsics.signature import check_condition
from hwsdk.intrinsics.syntax import RESERVED, SemanticsError, names, parse_expr
from hwsdk.target_desc.description import Description, read_description
from hwsdk.target_desc.loading import load_described, resolve
from hwsdk.target_desc.model import Target
from hwsdk.target_desc.structure import Finding, one_per_line, structural_findings

PEAK_TOLERANCE = 0.05
_GROUND = (("execution",), ("memory",), ("units",))


def lint(target_file: str | os.PathLike[str]) -> list[Problem]:
    """Every problem of a description file, one per line; empty when there is none."""
    try:
        return problems(read_description(Path(target_file)))
    except DescriptionError as error:
        return list(error.problems)


def problems(description: Description) -> list[Problem]:
    """Like `lint`, for a description that was read before."""
    findings = structural_findings(description)
    findings += _widths(description.target)
    if any(path[:1] in _GROUND for path, _ in findings):
        # what stands on a broken place would only repeat the mistake
        return one_per_line(description.problem(path, message) for path, message in findings)
    broken = {path[1] for path, _ in findings if path[:1] == ("intrinsics",)}
    for name, spec in description.target.intrinsics.items():
        if name not in broken:
            x = CompiledIntrinsic(description.target, spec)
            findings += [
                (("intrinsics", name, *path), f"{name}: {message}") for path, message in _intrinsic(x)
            ]
    return one_per_line(description.problem(path, message) for path, message in findings)


def load_checked(
    name_or_path: str | os.PathLike[str], detect: bool = True, features: Iterable[str] = ()
) -> Target:
    """The target as this machine has it; DescriptionError lists everything that contradicts itself."""
    description = read_description(resolve(name_or_path))
    found = problems(description)
    if found:
        raise DescriptionError(found)
    return load_described(description, detect=detect, features=features)


load_target = load_checked  # the public `hwsdk.load_target`


def _widths(target: Target) -> Iterator[Finding]:
    """Register widths that are expressions over symbols."""
    for memory in target.memories:
        if isinstance(memory.width_bytes, str):
            try:
                extent(memory.width_bytes, dict.fromkeys(target.symbols, 1))
            except SemanticsError as error:
                yield (
                    ("memory", memory.name, "width_bytes"),
                    f"width_bytes of memory {memory.name!r}: {error}",
                )


# ---------------------------------------------------------------------------------------------------------- intrinsic
def _intrinsic(x: CompiledIntrinsic) -> Iterator[Finding]:
    """Stages: extents, semantics, operands, layouts, emission and cost; a stage with findings ends the walk."""
    for stage in (_semantics, _operands, _layouts, _scalars, _uses):
        found = list(stage(x))
        yield from found
        if found:
            return


def _semantics(x: CompiledIntrinsic) -> Iterator[Finding]:
    for block in ("dims", "operands"):
        for name in getattr(x.spec, block):
            if name in RESERVED:
                yield (block, name), f"{name!r} is a word of the semantics language; choose another name"
                return
    try:
        assert x.dims is not None
    except SemanticsError as error:
        name = str(error).split(":")[0].removeprefix("extent of ")
        yield ("dims", name), str(error)
        return
    try:
        assert x.signature is not None
    except SemanticsError as error:
        yield ("semantics",), str(error)


def _operands(x: CompiledIntrinsic) -> Iterator[Finding]:
    for name in x.tensors:
        if name not in x.reads and name not in x.writes:
            yield ("operands", name), f"operand {name!r} is not used in the semantics"


def _scalars(x: CompiledIntrinsic) -> Iterator[Finding]:
    mentioned = names(*(e for s in x.program for e in s.expressions))
    strides = {s for name in x.tensors for s in x.layout(name).scalars}
    for name in sorted(x.scalars - mentioned - strides):
        place = x.operands[name].place
        yield ("operands", name), f"{place} operand {name!r} is used neither in the semantics nor in a layout"


def _layouts(x: CompiledIntrinsic) -> Iterator[Finding]:
    for name in x.tensors:
        for message in layout_findings(x, name):
            stated = x.operands[name].layout is not None
            yield ("operands", name, *(("layout",) if stated else ())), message


def _uses(x: CompiledIntrinsic) -> Iterator[Finding]:
    for route, form in x.spec.emit.items():
        for message in emission_findings(x, route, form):
            yield ("emit", route), message
    yield from _route(x)
    if x.spec.when is not None:
        try:
            check_condition(parse_expr(x.spec.when), x.spec.dims, {n: x.operands[n].dtype for n in x.scalars})
        except SemanticsError as error:
            yield ("when",), f"when: {error}"
    yield from _peak(x)


def _route(x: CompiledIntrinsic) -> Iterator[Finding]:
    codegen = x.target.codegen
    route, stated = codegen.route, codegen.llvm if codegen.route == "llvm" else codegen.source
    if x.target.abstract or stated is None or "library" in x.spec.emit or route in x.spec.emit:
        return
    yield ("emit",), f"codegen.route is {route!r}, but there is no emission for it"


def _peak(x: CompiledIntrinsic) -> Iterator[Finding]:
    """peak_tops = ops x issue x units x instances x clock."""
    stated, derived = x.spec.cost.peak_tops, x.peak_tops()
    if stated is None or derived is None or abs(derived - stated) <= PEAK_TOLERANCE * stated:
        return
    unit = x.target.unit(x.spec.unit)
    total = 1
    for level in x.target.levels:
        total *= level.count or 1
        if level.name == unit.per:
            break
    terms = (
        f"{x.ops} ops",
        f"{x.spec.cost.issue_per_cycle:g} per cycle",
        f"{unit.count:g} {unit.name}",
        f"{total:g} {unit.per}",
        f"{unit.clock_ghz:g} GHz",
    )
    yield (
        ("cost", "peak_tops"),
        f"stated peak {stated:g} TOP/s, but {' x '.join(terms)} = {derived:.4g} TOP/s",
    )
