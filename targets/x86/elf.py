"""Reader of relocatable ELF64 objects: sections, symbols and relocations, all checked.

Design choice: everything is read through bounds-checked NumPy views and whole tables are checked at once, so
that a corrupt object is an error with its place and never a crash, and a megabyte of code costs milliseconds.
What is accepted here, `link` may trust.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

Table = np.ndarray[Any, Any]
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

_SYMTAB, _RELA_SECTION, _NOBITS, _REL_SECTION = 2, 4, 8, 9
_WRITE, _ALLOC, _EXEC, _TLS = 1, 2, 4, 0x400
_COMMON = 0xFFF2
UNDEFINED = 0  # a symbol's section: defined elsewhere
RESERVED = 0xFF00  # and from here on: no section
WEAK = 2
PAGE = mmap.PAGESIZE


class ElfError(Exception):
    """An object cannot be loaded: it is malformed, of another machine, or a symbol is missing."""


@dataclass
class Section:
    """One section; `offset` is its place in an image, -1 until it has one."""

    name: str
    type: int
    flags: int
    data: Bytes | None  # None: zeros
    size: int
    align: int
    offset: int = -1

    @property
    def in_memory(self) -> bool:
        """Does it belong into the image?  (Unwinding tables are left out: nothing unwinds through
        kernels.)"""
        return bool(self.flags & _ALLOC) and self.name != ".eh_frame"

    @property
    def group(self) -> int:
        """0 code, 1 read-only data, 2 writable data."""
        return 0 if self.flags & _EXEC else 2 if self.flags & _WRITE else 1


@dataclass
class ObjectFile:
    """One parsed object: sections that occupy memory, symbols, relocations by the section that they apply
    to."""

    label: str
    sections: list[Section]
    symbols: Table
    names: Bytes
    relocations: list[tuple[int, Table]]

    def symbol_name(self, index: int) -> str:
        """Name of symbol number `index`."""
        return _text(self.names, int(self.symbols["name"][index]), self.label)

    def defined(self) -> dict[str, int]:
        """Global symbols that this object defines: name -> symbol number."""
        wanted = (self.symbols["info"] >> 4 != 0) & (self.symbols["section"] != UNDEFINED)
        return {self.symbol_name(int(i)): int(i) for i in np.flatnonzero(wanted)}


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


def _table(data: Bytes, kind: np.dtype[Any], what: str) -> Table:
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


def _section(data: Bytes, row: np.void, names: Bytes, label: str) -> Section:
    name = _text(names, int(row["name"]), label)
    size, align, flags = int(row["size"]), max(int(row["align"]), 1), int(row["flags"])
    contents = None if row["type"] in (0, _NOBITS) else _contents(data, row, label)
    if flags & _ALLOC and (align & (align - 1) or align > PAGE or size > 1 << 31):
        raise ElfError(f"{label}: section {name} has alignment {align} and size {size}")
    if flags & _TLS:
        raise ElfError(f"{label}: thread-local section {name} is not supported")
    return Section(name, int(row["type"]), flags, contents, size, align)


def _symbols(data: Bytes, table: Table, label: str) -> tuple[Table, Bytes]:
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
    placed = (where != UNDEFINED) & (where < RESERVED)
    sizes = np.array([s.size for s in sections], np.uint64)
    if np.any(where[placed] >= len(sections)) or np.any(symbols["value"][placed] > sizes[where[placed]]):
        raise ElfError(f"{label}: a symbol lies outside its section")
    if np.any(where == _COMMON):
        raise ElfError(f"{label}: common symbols are not supported")
    for index, rela in object_.relocations:
        if index >= len(sections) or np.any(rela["symbol"] >= len(symbols)):
            raise ElfError(f"{label}: a relocation names a section or symbol that does not exist")
