"""A module of PTX text, ready to launch.

    module = Module.parse(text)
    engine.launch(module.kernels["gemm"], grid, block, args, shared_bytes)

Design choice: everything is checked and compiled to closures when the text is parsed; a launch only runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hwsdk.sim.simt.chip import SimtChip
from hwsdk.sim.simt.problems import Problem
from hwsdk.sim.simt.program import Program, Variable
from hwsdk.sim.simt.spaces import Space
from hwsdk.targets.cuda.ptx.builder import Builder, variable_bytes
from hwsdk.targets.cuda.ptx.parser import parse
from hwsdk.targets.cuda.ptx.scopes import Symbol
from hwsdk.targets.cuda.ptx.syntax import Address, Declaration, File, Name, Number, Operand, PtxError
from hwsdk.targets.cuda.ptx.table import TABLE
from hwsdk.targets.cuda.ptx.types import TYPES

#: What the text itself relies on; capacity and limits are the caller's, per chip.
WARP_LANES = 32


@dataclass(frozen=True)
class Module:
    """version and target as the text says them; kernels by name."""

    version: str
    target: str
    kernels: Mapping[str, Program]

    @staticmethod
    def parse(text: str) -> Module:
        """PtxError lists every malformed or unsupported line with its number and text."""
        file = parse(text)
        problems = [
            Problem(d.line, d.name, f"type .{d.type} is not supported")
            for d in file.variables
            if d.type not in TYPES
        ]
        if problems:
            raise PtxError(problems)
        variables, symbols = _module_variables(file)
        shared = {d.name: _shared(d) for d in file.variables if d.space == "shared"}
        functions = {f.name: f for f in file.functions if f.body is not None}
        kernels: dict[str, Program] = {}
        for function in file.functions:
            if function.entry and function.body is not None:
                builder = Builder(TABLE, functions, symbols, shared)
                kernels[function.name] = builder.kernel(function, variables)
                problems += [p for p in builder.problems if p not in problems]
        if problems:
            raise PtxError(sorted(problems, key=lambda p: p.line))
        return Module(file.version, file.target, MappingProxyType(kernels))


def chip(shared_bytes: int = 49152, **limits: int) -> SimtChip:
    """The widths that every chip of this family has, with a capacity of shared memory per block."""
    return SimtChip(warp_lanes=WARP_LANES, shared_bytes=shared_bytes, **limits)  # type: ignore[arg-type]


def _shared(declaration: Declaration) -> Variable:
    size = variable_bytes(declaration)
    return Variable(declaration.name, size, declaration.align, dynamic=declaration.extern and not size)


def _module_variables(file: File) -> tuple[tuple[Variable, ...], dict[str, Symbol]]:
    found: list[Variable] = []
    symbols: dict[str, Symbol] = {}
    names = {d.name for d in file.variables if d.space in ("global", "const")}
    for declaration in file.variables:
        if declaration.space in ("global", "const"):
            found.append(_variable(declaration, names))
            symbols[declaration.name] = Symbol(declaration.name, Space.GLOBAL)
    return tuple(found), symbols


def _variable(declaration: Declaration, names: set[str]) -> Variable:
    size = TYPES[declaration.type].bytes
    content = bytearray()
    references: list[tuple[int, str, int, bool]] = []
    for operand, generic in declaration.values:
        if isinstance(operand, Address) and isinstance(operand.base, Name):
            if operand.base.text not in names or size != 8:
                message = f"{operand.base.text} is no 64-bit address of a variable of this module"
                raise PtxError([Problem(declaration.line, declaration.name, message)])
            references.append((len(content), operand.base.text, operand.offset, generic))
            content += bytes(size)
        else:
            content += _value(operand, size, declaration)
    total = variable_bytes(declaration)
    if len(content) > total:
        raise PtxError([Problem(declaration.line, declaration.name, "more values than elements")])
    return Variable(
        declaration.name,
        total,
        declaration.align,
        bytes(content),
        read_only=declaration.space == "const",
        references=tuple(references),
    )


def _value(operand: Operand, size: int, declaration: Declaration) -> bytes:
    if not isinstance(operand, Number):
        raise PtxError([Problem(declaration.line, declaration.name, "an initialiser that is no number")])
    if operand.width and operand.width != size * 8:
        wide = np.array([operand.value], f"u{operand.width // 8}").view(f"f{operand.width // 8}")
        return wide.astype(f"f{size}").tobytes()
    return (operand.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
