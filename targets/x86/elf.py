"""Loader of relocatable ELF64 objects: sections into one mapping, symbols resolved across objects,
relocations applied.

Design choice: everything is read through bounds-checked NumPy views and all relocations of one section are
computed at once, so that a corrupt object is an error with its place and never a crash, and a megabyte of
code links in milliseconds. Calls and data references to the C library go through slots in the mapping, so
that no distance limit applies to them.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_HEADER = np.dtype([
    ("magic", "S4"), ("klass", "u1"), ("data", "u1"), ("pad", "V10"), ("type", "<u2"), ("machine", "<u2"),
    ("version", "<u4"), ("entry", "<u8"), ("phoff", "<u8"), ("shoff", "<u8"), ("flags", "<u4"),
    ("ehsize", "<u2"), ("phentsize", "<u2"), ("phnum", "<u2"), ("shentsize", "<u2"), ("shnum", "<u2"),
    ("shstrndx", "<u2"),
])  # fmt: skip
_SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("addr", "<u8"), ("offset", "<u8"), ("size", "<u8"),
    ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entsize", "<u8"),
])  # fmt: skip
_SYMBOL = np.dtype([
    ("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8"),
])  # fmt: skip
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_PROGBITS, _SYMTAB, _RELA_SECTION, _NOBITS, _REL_SECTION = 1, 2, 4, 8, 9
_WRITE, _ALLOC, _EXEC, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_WEAK = 2

# relocation type -> (width in bytes, relative to the place, through a slot, signed range, unsigned range)
_ABS64, _PC32, _GOT32, _PLT32, _GOTPCREL, _ABS32, _ABS32S, _PC64 = 1, 2, 3, 4, 9, 10, 11, 24
_GOTPCRELX, _REX_GOTPCRELX = 41, 42
_WIDTH = {
    _ABS64: 8,
    _PC64: 8,
    _PC32: 4,
    _PLT32: 4,
    _GOTPCREL: 4,
    _GOTPCRELX: 4,
    _REX_GOTPCRELX: 4,
    _ABS32: 4,
    _ABS32S: 4,
}
_RELATIVE = (_PC64, _PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_THROUGH_SLOT = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)

PAGE = mmap.PAGESIZE
# A slot: `jmp *[rip+2]`, two bytes of padding, the address.  A reference to data uses the address.
_SLOT = 16
_JUMP = bytes((0xFF, 0x25, 0x02, 0x00, 0x00, 0x00, 0x90, 0x90))


class ElfError(Exception):
    """An object cannot be loaded: it is malformed, of another machine, or a symbol is missing."""


@dataclass
class _Section:
    name: str
    type: int
    flags: int
    data: Bytes | None  # None: zeros
    size: int
    align: int
    offset: int = -1  # in the image

    @property
    def group(self) -> int:
        """0 code, 1 read-only data, 2 writable data."""
        return 0 if self.flags & _EXEC else 2 if self.flags & _WRITE else 1


@dataclass
class ObjectFile:
    """One parsed object: sections that occupy memory, symbols, relocations by the section that they apply
    to."""

    label: str
    sections: list[_Section]
    symbols: np.ndarray  # type: ignore[type-arg]
    names: Bytes
    relocations: list[tuple[int, np.ndarray]]  # type: ignore[type-arg]

    def symbol_name(self, index: int) -> str:
        """Name of symbol number `index`."""
        return _text(self.names, int(self.symbols["name"][index]), self.label)

    def defined(self) -> dict[str, int]:
        """Global symbols that this object defines: name -> symbol number."""
        wanted = (self.symbols["info"] >> 4 != 0) & (self.symbols["section"] != _UNDEFINED)
        return {self.symbol_name(i): int(i) for i in np.flatnonzero(wanted)}


def _text(table: Bytes, start: int, label: str) -> str:
    if start >= len(table):
        raise ElfError(f"{label}: a name lies outside its string table")
    rest = table[start : start + 4096].tobytes()
    end = rest.find(b"\0")
    if end < 0:
        raise ElfError(f"{label}: a name has no end")
    return rest[:end].decode("utf-8", "replace")


def _slice(data: Bytes, offset: int, size: int, what: str) -> Bytes:
    if offset + size > len(data):
        raise ElfError(f"{what} lies outside the file ({offset}+{size} of {len(data)} bytes)")
    return data[offset : offset + size]


def _table(data: Bytes, kind: np.dtype, what: str) -> np.ndarray:  # type: ignore[type-arg]
    if len(data) % kind.itemsize:
        raise ElfError(f"{what} is not a whole number of entries")
    return np.frombuffer(data.tobytes(), kind)


def parse(code: bytes, label: str) -> ObjectFile:
    """Read one object; ElfError if anything in it points outside, or if it is for another machine."""
    data = np.frombuffer(code, np.uint8)
    if len(data) < _HEADER.itemsize:
        raise ElfError(f"{label}: too short for an object file")
    header = np.frombuffer(code[: _HEADER.itemsize], _HEADER)[0]
    if header["magic"] != b"\x7fELF" or header["klass"] != 2 or header["data"] != 1:
        raise ElfError(f"{label}: not a 64-bit little-endian ELF object")
    if header["type"] != 1 or header["machine"] != 62:
        raise ElfError(f"{label}: not a relocatable object for x86-64 (machine {header['machine']})")
    if header["shentsize"] != _SECTION.itemsize or not header["shnum"]:
        raise ElfError(f"{label}: no section table")
    size = int(header["shnum"]) * _SECTION.itemsize
    table = _table(_slice(data, int(header["shoff"]), size, f"{label}: the section table"), _SECTION, label)
    if int(header["shstrndx"]) >= len(table):
        raise ElfError(f"{label}: no section names")
    names = _contents(data, table[int(header["shstrndx"])], label)
    sections = [_section(data, row, names, label) for row in table]
    symbols, strings = _symbols(data, table, label)
    relocations = [
        (int(row["info"]), _table(_contents(data, row, label), _RELA, f"{label}: a relocation table"))
        for row in table
        if row["type"] == _RELA_SECTION
    ]
    result = ObjectFile(label, sections, symbols, strings, relocations)
    _check(result, [int(r["type"]) for r in table])
    return result


def _contents(data: Bytes, row: np.void, label: str) -> Bytes:
    return _slice(data, int(row["offset"]), int(row["size"]), f"{label}: a section")


def _section(data: Bytes, row: np.void, names: Bytes, label: str) -> _Section:
    name = _text(names, int(row["name"]), label)
    size, align, flags = int(row["size"]), max(int(row["align"]), 1), int(row["flags"])
    contents = None if row["type"] in (0, _NOBITS) else _contents(data, row, label)
    if flags & _ALLOC and (align & (align - 1) or align > PAGE or size > 1 << 31):
        raise ElfError(f"{label}: section {name} has alignment {align} and size {size}")
    if flags & _TLS:
        raise ElfError(f"{label}: thread-local section {name} is not supported")
    return _Section(name, int(row["type"]), flags, contents, size, align)


def _symbols(data: Bytes, table: np.ndarray, label: str) -> tuple[np.ndarray, Bytes]:  # type: ignore[type-arg]
    found = np.flatnonzero(table["type"] == _SYMTAB)
    if len(found) != 1:
        raise ElfError(f"{label}: {len(found)} symbol tables instead of one")
    row = table[found[0]]
    if int(row["link"]) >= len(table):
        raise ElfError(f"{label}: the symbol table has no names")
    return _table(_contents(data, row, label), _SYMBOL, f"{label}: the symbol table"), _contents(
        data, table[int(row["link"])], label
    )


def _check(object_: ObjectFile, types: list[int]) -> None:
    label, symbols, sections = object_.label, object_.symbols, object_.sections
    if _REL_SECTION in types:
        raise ElfError(f"{label}: relocations without addend are not of this machine")
    where = symbols["section"].astype(np.int64)
    placed = (where != _UNDEFINED) & (where < 0xFF00)
    sizes = np.array([s.size for s in sections], np.uint64)
    if np.any(where[placed] >= len(sections)) or np.any(symbols["value"][placed] > sizes[where[placed]]):
        raise ElfError(f"{label}: a symbol lies outside its section")
    if np.any(where == _COMMON):
        raise ElfError(f"{label}: common symbols are not supported")
    for index, rela in object_.relocations:
        if index >= len(sections) or np.any(rela["symbol"] >= len(symbols)):
            raise ElfError(f"{label}: a relocation names a section or symbol that does not exist")


# ----------------------------------------------------------------------------------------------------- memory
@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def map_memory(size: int, low: bool = False) -> int:
    """Private zeroed pages; `low`: below 2 GiB.  Not owned by a Python object, so nothing unmaps it behind
    our back."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x40 if low else 0)
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


@functools.cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


class Image:
    """Loaded code: objects linked together into one mapping.  Close it when nothing runs in it any more."""

    def __init__(
        self, objects: Sequence[ObjectFile], resolve: Callable[[str], int | None] = library_symbol
    ) -> None:
        self._base, self._size = 0, 0
        self.symbols: Mapping[str, int] = {}
        globals_ = _global_symbols(objects)
        wanted = _wanted_slots(objects, globals_)
        starts = _place(objects, len(wanted) * _SLOT)
        self._size = starts[3]
        absolute = any(np.isin(r["type"], (_ABS32, _ABS32S)).any() for o in objects for _, r in o.relocations)
        self._base = map_memory(self._size, low=absolute)
        try:
            self._link(objects, globals_, wanted, starts, resolve)
        except BaseException:
            self.close()
            raise

    def _link(
        self,
        objects: Sequence[ObjectFile],
        globals_: Mapping[str, tuple[int, int]],
        wanted: Mapping[tuple[int, int], int],
        starts: tuple[int, int, int, int],
        resolve: Callable[[str], int | None],
    ) -> None:
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * self._size).from_address(self._base))
        for object_ in objects:
            for section in object_.sections:
                if section.offset >= 0 and section.data is not None:
                    memory[section.offset : section.offset + section.size] = section.data
        values = [_symbol_values(o, globals_, i, objects, self._base, resolve) for i, o in enumerate(objects)]
        outside = {k for k in wanted if _is_outside(objects[k[0]], k[1], globals_)}
        slots = {key: starts[0] + i * _SLOT for key, i in wanted.items()}
        for (number, index), offset in slots.items():
            memory[offset : offset + 8] = np.frombuffer(_JUMP, np.uint8)
            memory[offset + 8 : offset + 16] = np.frombuffer(
                values[number][index : index + 1].tobytes(), np.uint8
            )
        for i, object_ in enumerate(objects):
            for target, rela in object_.relocations:
                if object_.sections[target].offset >= 0:
                    _relocate(memory, self._base, object_, i, target, rela, values[i], slots, outside)
        self.symbols = {name: int(values[o][s]) for name, (o, s) in globals_.items()}
        _protect(self._base, (0, starts[1]), mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(self._base, (starts[1], starts[2]), mmap.PROT_READ)

    def close(self) -> None:
        """Unmap the code."""
        if self._base:
            _libc().munmap(self._base, self._size)
            self._base = 0


def _protect(base: int, span: tuple[int, int], how: int) -> None:
    if span[1] > span[0] and _libc().mprotect(base + span[0], span[1] - span[0], how):
        raise ElfError("the system refuses to make memory executable")


def _global_symbols(objects: Sequence[ObjectFile]) -> dict[str, tuple[int, int]]:
    """name -> (object, symbol).  Two strong definitions are an error; a strong one beats a weak one."""
    found: dict[str, tuple[int, int]] = {}
    for number, object_ in enumerate(objects):
        for name, index in object_.defined().items():
            weak = object_.symbols["info"][index] >> 4 == _WEAK
            if name in found:
                other = objects[found[name][0]]
                if weak:
                    continue
                if other.symbols["info"][found[name][1]] >> 4 != _WEAK:
                    raise ElfError(f"{object_.label}: symbol {name} is already defined in {other.label}")
            found[name] = (number, index)
    return found


def _is_outside(object_: ObjectFile, index: int, globals_: Mapping[str, tuple[int, int]]) -> bool:
    """Is it a symbol of the C library?"""
    undefined = object_.symbols["section"][index] == _UNDEFINED
    return bool(undefined) and object_.symbol_name(index) not in globals_


def _wanted_slots(
    objects: Sequence[ObjectFile], globals_: Mapping[str, tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """(object, symbol) -> slot number, for every symbol reached through a table or outside the image."""
    wanted: dict[tuple[int, int], int] = {}
    for number, object_ in enumerate(objects):
        for _, rela in object_.relocations:
            table = np.isin(rela["type"], _THROUGH_SLOT)
            near = np.isin(rela["type"], (_PC32, _PLT32))
            for index in np.unique(rela["symbol"][table]):
                wanted.setdefault((number, int(index)), len(wanted))
            for index in np.unique(rela["symbol"][near]):
                if _is_outside(object_, int(index), globals_):
                    wanted.setdefault((number, int(index)), len(wanted))
    return wanted


def _place(objects: Sequence[ObjectFile], slot_bytes: int) -> tuple[int, int, int, int]:
    """Give every section its offset in the image; (start of slots, end of code, end of read-only, end of
    all)."""
    end, ends = 0, []
    for group in range(3):
        for object_ in objects:
            members = [
                s for s in object_.sections if s.flags & _ALLOC and s.name != ".eh_frame" and s.group == group
            ]
            for section in members:
                section.offset = -(-end // section.align) * section.align
                end = section.offset + section.size
        if group == 0:
            slots = -(-end // _SLOT) * _SLOT
            end = slots + slot_bytes
        end = -(-end // PAGE) * PAGE
        ends.append(end)
    return slots, ends[0], ends[1], max(ends[2], PAGE)


def _symbol_values(
    object_: ObjectFile,
    globals_: Mapping[str, tuple[int, int]],
    number: int,
    objects: Sequence[ObjectFile],
    base: int,
    resolve: Callable[[str], int | None],
) -> np.ndarray:  # type: ignore[type-arg]
    """The address of every symbol of one object."""
    where = object_.symbols["section"]
    offsets = np.array([max(s.offset, 0) for s in object_.sections], np.uint64)
    placed = (where != _UNDEFINED) & (where < 0xFF00)
    values = object_.symbols["value"].copy()
    values[placed] += offsets[where[placed]] + np.uint64(base)
    for index in np.flatnonzero(where == _UNDEFINED)[1:]:
        name = object_.symbol_name(int(index))
        home = globals_.get(name)
        if home is not None:
            other = objects[home[0]]
            values[index] = _address(other, home[1], base)
        else:
            address = resolve(name)
            if address is None and object_.symbols["info"][index] >> 4 != _WEAK:
                raise ElfError(f"{object_.label}: undefined symbol {name!r}")
            values[index] = address or 0
    return values


def _address(object_: ObjectFile, index: int, base: int) -> int:
    row = object_.symbols[index]
    if row["section"] >= 0xFF00:
        return int(row["value"])
    return base + max(object_.sections[int(row["section"])].offset, 0) + int(row["value"])


def _relocate(
    memory: Bytes,
    base: int,
    object_: ObjectFile,
    number: int,
    target: int,
    rela: np.ndarray,  # type: ignore[type-arg]
    values: np.ndarray,  # type: ignore[type-arg]
    slots: Mapping[tuple[int, int], int],
    outside: set[tuple[int, int]],
) -> None:
    section = object_.sections[target]
    for kind in np.unique(rela["type"]):
        width = _WIDTH.get(int(kind))
        if width is None:
            raise ElfError(f"{object_.label}: relocation type {kind} in {section.name} is not supported")
        rows = rela[rela["type"] == kind]
        if np.any(rows["offset"] > np.uint64(max(section.size - width, 0))) or section.size < width:
            raise ElfError(f"{object_.label}: a relocation lies outside {section.name}")
        places = rows["offset"].astype(np.int64) + section.offset
        used = slots if kind in _THROUGH_SLOT else {k: v for k, v in slots.items() if k in outside}
        goals = _goals(int(kind), rows, number, base, values, used)
        with np.errstate(over="ignore"):
            result = goals + rows["addend"]
            if kind in _RELATIVE:
                result = result - (places + base)
        if width == 4:
            low, high = (0, 1 << 32) if kind == _ABS32 else (-(1 << 31), 1 << 31)
            if np.any(result < low) or np.any(result >= high):
                raise ElfError(f"{object_.label}: a relocation in {section.name} does not reach its symbol")
        raw = result.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        memory[places[:, None] + np.arange(width)] = raw


def _goals(
    kind: int,
    rows: np.ndarray,  # type: ignore[type-arg]
    number: int,
    base: int,
    values: np.ndarray,  # type: ignore[type-arg]
    slots: Mapping[tuple[int, int], int],
) -> np.ndarray:  # type: ignore[type-arg]
    """What each relocation points at: the symbol, its slot's address word, or its slot's jump."""
    if kind in (_PC32, _PLT32, *_THROUGH_SLOT):
        word = 8 if kind in _THROUGH_SLOT else 0
        chosen = {
            int(s): slots[number, int(s)] for s in np.unique(rows["symbol"]) if (number, int(s)) in slots
        }
        if chosen:
            direct = values.astype(np.int64)
            for index, offset in chosen.items():
                direct[index] = base + offset + word
            return direct[rows["symbol"]]
    return values.astype(np.int64)[rows["symbol"]]
