"""Links parsed objects into memory: one mapping, symbols resolved across objects, relocations applied.

Design choice: all relocations of one type in one section are computed at once.  What lies outside the image
(the C library) and what is reached through a table gets a slot in the image, so no distance limit applies to
it.  Code is never writable once it can run.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .elf import PAGE, RESERVED, UNDEFINED, WEAK, ElfError, ObjectFile, Section, Table

# Relocation types of this machine.
_ABS64, _PC32, _PLT32, _GOTPCREL, _ABS32, _ABS32S, _PC64, _GOTPCRELX, _REX_GOTPCRELX = (
    1,
    2,
    4,
    9,
    10,
    11,
    24,
    41,
    42,
)
_THROUGH_SLOT = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_NEAR = (_PC32, _PLT32)
_RELATIVE = (_PC64, *_NEAR, *_THROUGH_SLOT)
_ABSOLUTE = (_ABS32, _ABS32S)
_WIDTH = {_ABS64: 8, _PC64: 8, **dict.fromkeys((*_NEAR, *_THROUGH_SLOT, *_ABSOLUTE), 4)}

# A slot: `jmp *[rip+2]`, two bytes of padding, the address.  A reference to data uses the address.
_SLOT = 16
_ADDRESS_IN_SLOT = 8
_JUMP = bytes((0xFF, 0x25, 0x02, 0x00, 0x00, 0x00, 0x90, 0x90))
_LOW = 0x40  # mmap: below 2 GiB

Place = tuple[int, int]  # (object, symbol)
Resolver = Callable[[str], int | None]


# ----------------------------------------------------------------------------------------------------- memory
@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    libc.mprotect.argtypes = [ctypes.c_void_p, size, number]
    return libc


@functools.cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")


def map_memory(size: int, low: bool = False) -> int:
    """Private zeroed pages; `low`: below 2 GiB.  No Python object owns them, so nothing unmaps them
    unasked."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_LOW if low else 0)
    address = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise ElfError(f"no memory for {size} bytes of code")
    return int(address)


@functools.cache
def library_symbol(name: str) -> int | None:
    """Address of a C library or mathematics function of this process; None if there is none."""
    for library in (_libc(), _libm()):
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


class Image:
    """Loaded code.  Close it when nothing runs in it any more.

    symbols: addresses of what the objects define.
    """

    def __init__(self, objects: Sequence[ObjectFile], resolve: Resolver = library_symbol) -> None:
        linker = _Linker(objects, resolve)
        self._base = map_memory(linker.size, low=linker.needs_low_memory)
        self._size = linker.size
        try:
            self.symbols: Mapping[str, int] = linker.link(self._base)
            self._protect(0, linker.code_end, mmap.PROT_READ | mmap.PROT_EXEC)
            self._protect(linker.code_end, linker.read_only_end, mmap.PROT_READ)
        except BaseException:
            self.close()
            raise

    def _protect(self, start: int, end: int, how: int) -> None:
        if end > start and _libc().mprotect(self._base + start, end - start, how):
            raise ElfError("the system refuses to make memory executable")

    def close(self) -> None:
        """Unmap the code."""
        if self._base:
            _libc().munmap(self._base, self._size)
            self._base = 0


# ---------------------------------------------------------------------------------------------------- linking
class _Linker:
    """Plans the image, then fills it."""

    def __init__(self, objects: Sequence[ObjectFile], resolve: Resolver) -> None:
        self.objects, self._resolve = objects, resolve
        self.globals = self._global_symbols()
        self.slots: dict[Place, int] = {}  # offset in the image
        self.outside: set[Place] = set()  # symbols of the C library
        self._find_slots()
        self.code_end, self.read_only_end, self.size = self._place_sections()
        types = [r["type"] for o in objects for _, r in o.relocations]
        self.needs_low_memory = any(np.isin(t, _ABSOLUTE).any() for t in types)

    def _global_symbols(self) -> dict[str, Place]:
        """Two strong definitions are an error; a strong one beats a weak one."""
        found: dict[str, Place] = {}
        for number, item in enumerate(self.objects):
            for name, index in item.defined().items():
                if name in found:
                    if _is_weak(item, index):
                        continue
                    other = self.objects[found[name][0]]
                    if not _is_weak(other, found[name][1]):
                        raise ElfError(f"{item.label}: symbol {name} is already defined in {other.label}")
                found[name] = (number, index)
        return found

    def _find_slots(self) -> None:
        """Slots for every symbol that is reached through a table, or that lies outside and is
        near-referenced."""
        for number, item in enumerate(self.objects):
            for _, rela in item.relocations:
                for index in _distinct(rela["symbol"][np.isin(rela["type"], (*_NEAR, *_THROUGH_SLOT))]):
                    place = (number, index)
                    if (
                        item.symbols["section"][index] == UNDEFINED
                        and item.symbol_name(place[1]) not in self.globals
                    ):
                        self.outside.add(place)
                        self.slots.setdefault(place, 0)
                for index in _distinct(rela["symbol"][np.isin(rela["type"], _THROUGH_SLOT)]):
                    self.slots.setdefault((number, index), 0)

    def _place_sections(self) -> tuple[int, int, int]:
        """Offsets of all sections and slots: code and slots, read-only data, data; ends of the three
        groups."""
        end = 0
        ends = []
        for group in range(3):
            for section in (s for o in self.objects for s in o.sections if s.in_memory and s.group == group):
                section.offset = _round_up(end, section.align)
                end = section.offset + section.size
            if group == 0:
                end = _round_up(end, _SLOT)
                for place in self.slots:
                    self.slots[place] = end
                    end += _SLOT
            end = _round_up(end, PAGE)
            ends.append(end)
        return ends[0], ends[1], max(ends[2], PAGE)

    def link(self, base: int) -> dict[str, int]:
        """Fill the image at `base`; addresses of the global symbols."""
        memory = np.frombuffer((ctypes.c_uint8 * self.size).from_address(base), np.uint8)
        for section in (s for o in self.objects for s in o.sections if s.offset >= 0):
            if section.data is not None:
                memory[section.offset : section.offset + section.size] = section.data
        values = [self._addresses(item, base) for item in self.objects]
        for (number, index), offset in self.slots.items():
            memory[offset : offset + _ADDRESS_IN_SLOT] = np.frombuffer(_JUMP, np.uint8)
            address = values[number][index : index + 1].view(np.uint8)
            memory[offset + _ADDRESS_IN_SLOT : offset + _SLOT] = address
        for number, item in enumerate(self.objects):
            for target, rela in item.relocations:
                if item.sections[target].offset >= 0:
                    for kind in _distinct(rela["type"]):
                        rows = rela[rela["type"] == kind]
                        goals = self._goals(kind, number, rows["symbol"], values[number], base)
                        _relocate(memory, base, item, item.sections[target], kind, rows, goals)
        return {name: int(values[number][index]) for name, (number, index) in self.globals.items()}

    def _addresses(self, item: ObjectFile, base: int) -> Table:
        """The address of every symbol of one object."""
        where = item.symbols["section"]
        offsets = np.array([max(s.offset, 0) for s in item.sections], np.int64)
        placed = (where != UNDEFINED) & (where < RESERVED)
        values = item.symbols["value"].astype(np.int64)
        values[placed] += offsets[where[placed]] + base
        for index in np.flatnonzero(where == UNDEFINED)[1:]:
            values[index] = self._elsewhere(item, int(index), base)
        return values

    def _elsewhere(self, item: ObjectFile, index: int, base: int) -> int:
        """The address of a symbol that another object or the C library defines."""
        name = item.symbol_name(index)
        if name in self.globals:
            number, other = self.globals[name]
            row = self.objects[number].symbols[other]
            if row["section"] >= RESERVED:
                return int(row["value"])
            return (
                base + max(self.objects[number].sections[int(row["section"])].offset, 0) + int(row["value"])
            )
        address = self._resolve(name)
        if address is None and not _is_weak(item, index):
            raise ElfError(f"{item.label}: undefined symbol {name!r}")
        return address or 0

    def _goals(self, kind: int, number: int, symbols: Table, values: Table, base: int) -> Table:
        """What relocations of one type point at: the symbol, its slot's address word, or its slot's jump."""
        if kind not in (*_NEAR, *_THROUGH_SLOT):
            return np.asarray(values[symbols])
        goals = values.copy()
        for index in _distinct(symbols):
            place = (number, index)
            if kind in _THROUGH_SLOT:
                goals[index] = base + self.slots[place] + _ADDRESS_IN_SLOT
            elif place in self.outside:
                goals[index] = base + self.slots[place]
        return np.asarray(goals[symbols])


def _distinct(values: Table) -> list[int]:
    """The distinct numbers, sorted (np.unique costs an import that is slower than the whole link)."""
    return sorted(set(values.tolist()))


def _is_weak(item: ObjectFile, index: int) -> bool:
    return bool(item.symbols["info"][index] >> 4 == WEAK)


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _relocate(
    memory: Table, base: int, item: ObjectFile, section: Section, kind: int, rows: Table, goals: Table
) -> None:
    """Apply the relocations of one type to one section."""
    width = _WIDTH.get(kind)
    if width is None:
        raise ElfError(f"{item.label}: relocation type {kind} in {section.name} is not supported")
    if section.size < width or np.any(rows["offset"] > section.size - width):
        raise ElfError(f"{item.label}: a relocation lies outside {section.name}")
    places = rows["offset"].astype(np.int64) + section.offset
    with np.errstate(over="ignore"):
        result = goals + rows["addend"]
        if kind in _RELATIVE:
            result = result - (places + base)
    if width == 4:
        low, high = (0, 1 << 32) if kind == _ABS32 else (-(1 << 31), 1 << 31)
        if np.any(result < low) or np.any(result >= high):
            raise ElfError(f"{item.label}: a relocation in {section.name} does not reach its symbol")
    raw = result.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    memory[places[:, None] + np.arange(width)] = raw
