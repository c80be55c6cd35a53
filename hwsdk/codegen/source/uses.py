"""Uses of intrinsics and syncs in C-family text, and the types in which registers are read for them.

An operand in a memory is a pointer.  An operand in registers is the variable that holds it, or a pointer to the first
of several.  `args: [a: 4 x u32]` of an emission cuts the operand's bits into pieces of another type (a dtype, or a type
of the language); `{a.2}` is the third piece.
Design choice: registers that are read as two types are a union: the one way of reinterpreting bits that every C-family
compiler keeps in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsdk.codegen.loop_ir import Index, Intrin, LoopKernel, Sync, Value, View, walk
from hwsdk.codegen.source.dialect import Dialect
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.emit_source import SourcePieces, fill_template, source_pieces
from hwsdk.intrinsics.syntax import SemanticsError

if TYPE_CHECKING:
    from hwsdk.codegen.source.statements import Emitter


@dataclass(frozen=True)
class Pieces:
    """How the text takes an operand in registers: `count` pieces of a type with `bytes` each."""

    count: int
    type: str
    bytes: int


class Registers:
    """The types in which a kernel's intrinsics read the registers of each buffer.

    types: buffer -> {type: (field of the buffer's union, bytes of one)}, that of the buffer's own elements included.
    """

    def __init__(self, kernel: LoopKernel, dialect: Dialect) -> None:
        self.d = dialect
        self.known: dict[tuple[str, str], Pieces] = {}
        self.types: dict[str, dict[str, tuple[str, int]]] = {}
        for stmt in walk(kernel.body):
            if isinstance(stmt, Intrin):
                x = _described(stmt, dialect)
                for name, o in stmt.operands:
                    if isinstance(o, View) and x.in_registers(name):
                        self._note(o.buffer, self.pieces(x, name))

    def _note(self, buffer: str, piece: Pieces) -> None:
        types = self.types.setdefault(buffer, {})
        types.setdefault(piece.type, (f"p{len(types)}", piece.bytes))

    def pieces(self, x: CompiledIntrinsic, name: str) -> Pieces:
        """What the emission says about an operand; by default its own elements."""
        found = self.known.get((x.name, name))
        if found is None:
            own = x.operands[name].dtype
            cut = source_pieces(x).get(name, SourcePieces(x.items(name), own))
            size = max(1, x.items(name) * DTYPES[own].bits // 8)
            kind = self.d.stored(cut.type) if cut.type in DTYPES else cut.type
            found = self.known[x.name, name] = Pieces(cut.count, kind, size // cut.count)
        return found


def _described(stmt: Intrin, dialect: Dialect) -> CompiledIntrinsic:
    x = compiled(dialect.target)[stmt.name]
    if "source" not in x.spec.emit:
        raise CodegenError(
            f"target {dialect.target.name}: intrinsic {stmt.name} has no emission for the source route (emit.source)"
        )
    return x


def intrinsic_text(emitter: Emitter, stmt: Intrin) -> str:
    """The lines of one use."""
    x = _described(stmt, emitter.d)
    values: dict[str, str] = {}
    for name, o in stmt.operands:
        values |= _operand(emitter, x, name, o)
    for name, extent in stmt.dims:
        values[name] = emitter.index.text(emitter.index.resolve(extent))
    try:
        return fill_template(x, values)
    except SemanticsError as problem:
        raise emitter.error(str(problem)) from None


def _operand(emitter: Emitter, x: CompiledIntrinsic, name: str, o: View | Value | Index) -> dict[str, str]:
    """Texts for `{name}` and, in registers, for each piece `{name.i}`."""
    if isinstance(o, Value):
        return {name: emitter.values.statement([o])[0]}
    if not isinstance(o, View):
        return {name: emitter.index.text(emitter.index.resolve(o))}
    if not x.in_registers(name):
        return {name: f"(&{emitter.values.element(o.buffer, o.index)})"}
    return _registers(emitter, x, name, o)


def _registers(emitter: Emitter, x: CompiledIntrinsic, name: str, view: View) -> dict[str, str]:
    place = emitter.values.place(view.buffer)
    piece = emitter.facts.registers.pieces(x, name)
    other = emitter.facts.registers.types.get(view.buffer, {}).get(piece.type)
    at = emitter.values.offset(place, view.index)
    if other is None or piece.type == emitter.d.stored(place.buffer.dtype):
        base = f"{place.name}{place.member}"
    else:
        base = f"{place.name}.{other[0]}"
        size = DTYPES[place.buffer.dtype].size_bytes
        if not isinstance(at, int) or at * size % piece.bytes:
            raise emitter.error(f"operand {name} of {x.name}: {view.buffer} is not cut at constant registers")
        at = at * size // piece.bytes
    parts = {f"{name}.{i}": f"{base}[{emitter.index.text(at + i)}]" for i in range(piece.count)}
    whole = parts[f"{name}.0"] if piece.count == 1 else f"(&{parts[f'{name}.0']})"
    return {name: whole, **parts}


def sync_text(emitter: Emitter, stmt: Sync) -> str:
    """The target's own text for a sync."""
    sync = emitter.d.target.syncs.get(stmt.name)
    if sync is None:
        raise emitter.error(f"target {emitter.d.target.name} has no sync {stmt.name!r}")
    if "source" not in sync.emit:
        raise emitter.error(
            f"sync {stmt.name} of target {emitter.d.target.name} has no emission for the source route"
        )
    return sync.emit["source"].replace("{pending}", str(stmt.pending))
