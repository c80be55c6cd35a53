"""How each instruction of LLVM text is built: scalar by scalar, memory by whole vectors where the alignment allows.

Design choice: one function per form, in a table by opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.sim.simt import registers
from hwsdk.sim.simt.atomics import atomic
from hwsdk.sim.simt.llvm_text import operations
from hwsdk.sim.simt.llvm_text.syntax import Constant, Instruction
from hwsdk.sim.simt.llvm_text.types import (
    BOOL,
    Scalar,
    Sequence,
    Struct,
    Type,
    dtype_of,
    scalar_places,
    scalars,
    size_of,
)
from hwsdk.sim.simt.program import Array, Lanes, Read, Variable
from hwsdk.sim.simt.spaces import Access, Space, load, store
from hwsdk.sim.simt.sums import Sum

if TYPE_CHECKING:
    from hwsdk.sim.simt.frame import Frame
    from hwsdk.sim.simt.llvm_text.builder import Builder
    from hwsdk.sim.simt.registers import Held


def _binary(builder: Builder, i: Instruction) -> None:
    """Binary operations, fneg and comparisons."""
    columns = [builder.operands.reads(*o) for o in i.operands]
    kinds = scalars(i.operands[0][0])
    targets = builder.operands.values[i.result][1] if i.result else []
    counted = "float" if i.opcode.startswith("f") else "integer"
    for j, write in enumerate(builder.writes(i)):
        if "predicate" in i.facts:
            function = operations.comparison(i.opcode, i.facts["predicate"], kinds[j])
            counted = "compare"
            if function is None:
                builder.fail(f"no comparison {i.facts['predicate']}")
        else:
            function = operations.binary(i.opcode, kinds[j])
        parts = [c[j] for c in columns]
        if len(parts) == 1:
            builder.emit(registers.unary(write, function, parts[0]), counted)
            continue
        run = registers.binary(write, function, parts[0], parts[1])
        if i.opcode in ("add", "sub") and kinds[j].bits > 1:
            a, b = (builder.operands.held(*o)[j] for o in i.operands)
            run = registers.added(targets[j], a, b, 1 if i.opcode == "add" else -1, run)
        builder.emit(run, counted)


def _freeze(builder: Builder, i: Instruction) -> None:
    _moves(builder, i, builder.operands.reads(*i.operands[0]), builder.operands.held(*i.operands[0]))


def _cast(builder: Builder, i: Instruction) -> None:
    sources, targets = scalars(i.operands[0][0]), scalars(i.type)
    for read, source, to, write in zip(
        builder.operands.reads(*i.operands[0]), sources, targets, builder.writes(i)
    ):
        function = operations.cast(i.opcode, source, to, builder.layout)
        builder.emit(registers.unary(write, function, read), "convert")


def _bitcast(builder: Builder, i: Instruction) -> None:
    """The same bytes in other scalars."""
    target = dtype_of(scalars(i.type)[0], builder.layout)
    reads, writes = builder.operands.reads(*i.operands[0]), builder.writes(i)

    def run(frame: Frame, lanes: Lanes) -> None:
        parts = _regrouped([read(frame, lanes) for read in reads], target)
        for j, write in enumerate(writes):
            write(frame, lanes, np.ascontiguousarray(parts[:, j]))

    builder.emit(run, "move")


def _regrouped(columns: list[Array], target: np.dtype[Any]) -> Array:
    """The bytes of several columns as (lanes, parts) of another type; single bits lie side by side."""
    raw = np.ascontiguousarray(np.stack(np.broadcast_arrays(*columns), 1))
    octets = np.packbits(raw, 1, "little") if raw.dtype == np.bool_ else raw.view(np.uint8)
    return np.unpackbits(octets, 1, bitorder="little") != 0 if target == np.bool_ else octets.view(target)


def _bit_bytes(kind: Type) -> int:
    """Bytes of a vector of single bits in memory, which lie side by side there; 0 for other types."""
    several = isinstance(kind, Sequence) and kind.vector and kind.element == BOOL and kind.count > 1
    return kind.count // 8 if several and isinstance(kind, Sequence) else 0


def _select(builder: Builder, i: Instruction) -> None:
    conditions, yes, no = (builder.operands.reads(*o) for o in i.operands)
    for j, write in enumerate(builder.writes(i)):
        condition = conditions[j] if len(conditions) > 1 else conditions[0]
        builder.emit(registers.ternary(write, np.where, condition, yes[j], no[j]), "compare")


def _address(builder: Builder, i: Instruction) -> None:
    operands = list(i.operands)
    read, (write,) = builder.operands.address(i.type, operands), builder.writes(i)
    (base,) = builder.operands.held(*operands[0])

    def plain(frame: Frame, lanes: Lanes) -> None:
        write(frame, lanes, read(frame, lanes))

    run = registers.added(
        builder.operands.register_of(i), base, builder.operands.distance(i.type, operands), 1, plain
    )
    builder.emit(run, "integer")


def _alloca(builder: Builder, i: Instruction) -> None:
    name = f"{i.result} #{len(builder.local)}"
    size = size_of(i.type, builder.layout) * i.facts["count"]
    builder.local.append(Variable(name, size, i.facts["align"] or 16))
    (write,) = builder.writes(i)
    read = builder.operands.symbol(name, dtype_of(Scalar("ptr", 0, i.facts["space"]), builder.layout))
    builder.emit(lambda frame, lanes: write(frame, lanes, read(frame, lanes)), "move")


# ------------------------------------------------------------------------------------------------ memory
def _pieces(builder: Builder, kind: Type, align: int) -> list[tuple[int, np.dtype[Any], int]]:
    """(offset, dtype, elements) of the accesses that make up a value: as wide as the alignment allows."""
    if _bit_bytes(kind):
        kind = Sequence(_bit_bytes(kind), Scalar("int", 8), True)
    places = scalar_places(kind, builder.layout)
    dtypes = [_stored(s, builder) for _, s in places]
    size = dtypes[0].itemsize
    total = size * len(places)
    regular = all(d == dtypes[0] and at == j * size for j, ((at, _), d) in enumerate(zip(places, dtypes)))
    width = total
    while width > size and (width & (width - 1) or width > min(align or size, 16)):
        width -= size
    if not regular or total % width:
        return [(at, d, 1) for (at, _), d in zip(places, dtypes)]
    return [(at, dtypes[0], width // size) for at in range(0, total, width)]


def _stored(scalar: Scalar, builder: Builder) -> np.dtype[Any]:
    dtype = dtype_of(scalar, builder.layout)
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def _space(builder: Builder, kind: Type) -> Space:
    found = builder.layout.spaces.get(kind.space) if isinstance(kind, Scalar) else None
    if found is None:
        builder.fail("an address space that has no meaning here")
    return found


def _accesses(builder: Builder, kind: Type, pointer: Type, facts: Any) -> list[tuple[int, Access]]:
    space = _space(builder, pointer)
    found = []
    for at, dtype, count in _pieces(builder, kind, facts.get("align", 0)):
        access = Access(space, dtype, count, bool(facts.get("strong")))
        if space in (Space.SHARED, Space.GLOBAL, Space.GENERIC):
            builder.granule = min(builder.granule, access.size)
        found.append((at, access))
    return found


def _moved(at: Array | Sum, offset: int) -> Array | Sum:
    if not offset:
        return at
    if isinstance(at, Sum):
        return at.plus(offset)
    result: Array = at + at.dtype.type(offset)
    return result


def _load(builder: Builder, i: Instruction) -> None:
    address, writes = builder.operands.where(i.operands[0]), builder.writes(i)
    dtypes, bits = [dtype_of(s, builder.layout) for s in scalars(i.type)], _bit_bytes(i.type)
    accesses = _accesses(builder, i.type, i.operands[0][0], i.facts)

    def run(frame: Frame, lanes: Lanes) -> None:
        at = address(frame, lanes)
        found: list[Array] = []
        for offset, access in accesses:
            found += load(frame, lanes, _moved(at, offset), access)
        if bits:
            found = list(np.ascontiguousarray(_regrouped(found, dtypes[0]).T))
        for write, value, dtype in zip(writes, found, dtypes):
            write(frame, lanes, value if value.dtype == dtype else value.astype(dtype))

    builder.emit(run, "load")


def _store(builder: Builder, i: Instruction) -> None:
    reads, address = builder.operands.reads(*i.operands[0]), builder.operands.where(i.operands[1])
    accesses, bits = _accesses(builder, i.type, i.operands[1][0], i.facts), _bit_bytes(i.type)

    def run(frame: Frame, lanes: Lanes) -> None:
        at = address(frame, lanes)
        values = [read(frame, lanes) for read in reads]
        if bits:
            values = list(np.ascontiguousarray(_regrouped(values, np.dtype(np.uint8)).T))
        values = [v.astype(np.uint8) if v.dtype == np.bool_ else v for v in values]
        first = 0
        for offset, access in accesses:
            part = values[first : first + access.count]
            store(frame, lanes, _moved(at, offset), access, part)
            first += access.count

    builder.emit(run, "store")


def _swap(old: Array, wanted: Array, new: Array) -> Array:
    return np.where(old == wanted, new, old)


def _atomic(builder: Builder, i: Instruction) -> None:
    swap = i.opcode == "cmpxchg"
    name = "cmpxchg" if swap else i.facts["change"]
    change = _swap if swap else operations.CHANGES.get(name)
    kind = i.operands[1][0]
    if change is None or not isinstance(kind, Scalar):
        builder.fail(f"atomic {name} is not supported")
    access = Access(_space(builder, i.operands[0][0]), dtype_of(kind, builder.layout), 1, True)
    builder.granule = min(builder.granule, access.size)
    address, reads = builder.operands.read(i.operands[0]), [builder.operands.read(o) for o in i.operands[1:]]
    writes = builder.writes(i)

    def run(frame: Frame, lanes: Lanes) -> None:
        values = [read(frame, lanes) for read in reads]
        old = atomic(frame, lanes, address(frame, lanes), access, change, values, bool(writes))
        if writes:
            writes[0](frame, lanes, old)
        if swap and writes:
            writes[1](frame, lanes, old == values[0])

    builder.emit(run, "atomic")


# ------------------------------------------------------------------------------------------------ parts of values
def _slice(kind: Type, indices: tuple[int, ...]) -> tuple[int, int]:
    """(first scalar, number of scalars) of a part."""
    first = 0
    for index in indices:
        if isinstance(kind, Struct):
            first += sum(len(scalars(f)) for f in kind.fields[:index])
            kind = kind.fields[index]
        elif isinstance(kind, Scalar):
            raise ValueError("an index into a scalar")
        else:
            first += index * len(scalars(kind.element))
            kind = kind.element
    return first, len(scalars(kind))


def _moves(builder: Builder, i: Instruction, reads: list[Read], looks: list[Held]) -> None:
    for read, look, write, target in zip(
        reads, looks, builder.writes(i), builder.operands.values[i.result][1]
    ):
        builder.emit(registers.moved(target, look, registers.unary(write, np.copy, read)), "move")


def _extract_value(builder: Builder, i: Instruction) -> None:
    first, count = _slice(i.operands[0][0], i.facts["indices"])
    both = builder.operands.reads(*i.operands[0]), builder.operands.held(*i.operands[0])
    _moves(builder, i, both[0][first : first + count], both[1][first : first + count])


def _insert_value(builder: Builder, i: Instruction) -> None:
    first, count = _slice(i.operands[0][0], i.facts["indices"])
    reads = builder.operands.reads(*i.operands[0])
    looks = builder.operands.held(*i.operands[0])
    reads[first : first + count] = builder.operands.reads(*i.operands[1])
    looks[first : first + count] = builder.operands.held(*i.operands[1])
    _moves(builder, i, reads, looks)


def _fixed(i: Instruction, number: int) -> int | None:
    value = i.operands[number][1]
    return int(value.values[0] or 0) if isinstance(value, Constant) else None


def _extract_element(builder: Builder, i: Instruction) -> None:
    reads, at = builder.operands.reads(*i.operands[0]), _fixed(i, 1)
    if at is not None:
        _moves(builder, i, [reads[at]], [builder.operands.held(*i.operands[0])[at]])
        return
    index, (write,) = builder.operands.read(i.operands[1]), builder.writes(i)

    def run(frame: Frame, lanes: Lanes) -> None:
        columns = np.stack([registers.spread(frame, lanes, read(frame, lanes)) for read in reads])
        where = registers.spread(frame, lanes, index(frame, lanes)).astype(np.int64)
        write(frame, lanes, columns[where, np.arange(where.size)])

    builder.emit(run, "move")


def _insert_element(builder: Builder, i: Instruction) -> None:
    reads, part, at = (
        builder.operands.reads(*i.operands[0]),
        builder.operands.read(i.operands[1]),
        _fixed(i, 2),
    )
    if at is not None:
        looks = builder.operands.held(*i.operands[0])
        reads[at], looks[at] = part, builder.operands.held(*i.operands[1])[0]
        _moves(builder, i, reads, looks)
        return
    index = builder.operands.read(i.operands[2])
    for j, (read, write) in enumerate(zip(reads, builder.writes(i))):

        def hit(frame: Frame, lanes: Lanes, j: int = j) -> Array:
            result: Array = index(frame, lanes) == j
            return result

        builder.emit(registers.ternary(write, np.where, hit, part, read), "move")


def _shuffle(builder: Builder, i: Instruction) -> None:
    both = builder.operands.reads(*i.operands[0]) + builder.operands.reads(*i.operands[1])
    mask = i.operands[2][1]
    if not isinstance(mask, Constant):
        builder.fail("a shuffle whose mask is no constant")
    looks = builder.operands.held(*i.operands[0]) + builder.operands.held(*i.operands[1])
    chosen = [int(m or 0) for m in mask.values]
    _moves(builder, i, [both[m] for m in chosen], [looks[m] for m in chosen])


def _fence(builder: Builder, i: Instruction) -> None:
    """Lanes run in lock step: memory is ordered already."""


BUILDERS: dict[str, Callable[[Builder, Instruction], None]] = {
    "binary": _binary,
    "freeze": _freeze,
    **dict.fromkeys(
        "zext sext trunc fptrunc fpext sitofp uitofp fptosi fptoui ptrtoint inttoptr addrspacecast".split(),
        _cast,
    ),
    "bitcast": _bitcast,
    "select": _select,
    "getelementptr": _address,
    "alloca": _alloca,
    "load": _load,
    "store": _store,
    "atomicrmw": _atomic,
    "cmpxchg": _atomic,
    "extractvalue": _extract_value,
    "insertvalue": _insert_value,
    "extractelement": _extract_element,
    "insertelement": _insert_element,
    "shufflevector": _shuffle,
    "fence": _fence,
}
