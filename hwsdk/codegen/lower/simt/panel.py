"""One operand of a pipelined contraction: how its blocks come into the scratchpad, lie there, and go into fragments.

    memory       chunks of one widest access; lanes side by side take neighbouring chunks of a line, so that whole
                 segments move; one address per line of a lane, everything else is a displacement
    scratchpad   lines as they lie in memory: along k, or along rows where those are contiguous.  A chunk's place in
                 its line is xor-ed with bits of the line's number, so that neither a segment nor the same chunk of
                 neighbouring lines meets a bank twice
    registers    filled by copies of a lockstep group where the chip has one that fits, else by vector loads

Design choice: nothing here asks whether an element exists.  What is loaded beside the problem is either not stored in
the end (rows, columns) or zero (k), and the version that uses panels runs only where all chunks are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hwsdk.codegen.inline import both
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    Stmt,
    Store,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.simt.facts import AsyncCopy, SimtChip
from hwsdk.codegen.lower.simt.fragments import Fragment
from hwsdk.codegen.lower.simt.group_copy import GroupCopy, group_copies
from hwsdk.codegen.lower.simt.mask import Mask
from hwsdk.codegen.lower.simt.operand import Operand
from hwsdk.codegen.lower.simt.rounding import rounded
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, floordiv, minimum, mod, simplify, sym

SEGMENT_GRANULES = 2  # granules of memory that lanes side by side read together


@dataclass(frozen=True)
class Panel:
    """name: a or b.  The block's rows begin at `first`, `count` of them, each of `depth` elements along k.  coord and
    deep: what the fragment calls rows and k; tile_rows: rows of one fragment; share: rows of a block that one lockstep
    group takes.  slots: blocks held at once."""

    name: str
    chip: SimtChip
    source: Operand
    part: Fragment
    coord: str
    deep: str
    tile_rows: int
    share: int
    first: Index
    count: int
    depth: int
    lanes: int
    slots: int
    ranges: Ranges
    lets: list[Let] = field(default_factory=list)  # addresses that no loop changes, in the order of their use
    names: list[str] = field(default_factory=list)  # that were given away
    places: dict[tuple[object, ...], Index] = field(default_factory=dict)  # of fragments, within a slot

    # --------------------------------------------------------------------------------------------------- what it is
    @cached_property
    def along_k(self) -> bool:
        """Are lines of a block along k?"""
        return self.source.along_k

    @cached_property
    def wide(self) -> int:
        """Elements of one chunk."""
        return max(1, self.chip.access_bytes // DTYPES[self.part.dtype].size_bytes)

    @property
    def lines(self) -> int:
        return self.count if self.along_k else self.depth

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.depth if self.along_k else self.count

    @property
    def copy(self) -> AsyncCopy | None:
        """The copy beside the stream of instructions that moves one chunk."""
        copy, size = self.chip.copy, DTYPES[self.part.dtype].size_bytes
        same = (
            copy is not None and self.source.load.dtype == self.part.dtype and copy.size == self.wide * size
        )
        return copy if same else None

    def conditions(self) -> list[Index] | None:
        """What must be zero at run time for every chunk to exist as a whole at a multiple of its size; None where that
        can never be, or where neither rows nor k are contiguous."""
        source = self.source
        if not (source.along_k or source.along_rows) or self.length % self.wide:
            return None
        if source.load.where is not None and (source.taps is None or not self.along_k):
            return None
        inner = source.k[-1] if self.along_k else source.rows[-1]
        found: list[Index] = []
        for x in (*source.strides(inner), inner.extent):
            left = simplify(mod(x, self.wide), self.ranges)
            if isinstance(left, int) and left:
                return None
            if left != 0:
                found.append(left)
        return found

    # ------------------------------------------------------------------------------------------------- the scratchpad
    @cached_property
    def period(self) -> int:
        """Chunks in one row of the banks; 1: lines are padded instead."""
        assert self.chip.scratch is not None
        row = (self.chip.scratch.banks or 0) * (self.chip.scratch.bank_bytes or 0) // self.chip.access_bytes
        chunks = self.length // self.wide
        known = row and not chunks & (chunks - 1) and not row & (row - 1)
        aligned = self.share % max(1, row) == 0 or not self.along_k
        return row if known and aligned else 1

    @property
    def stride(self) -> int:
        """From line to line, in elements."""
        return self.length + (self.wide if self.period == 1 else 0)

    @property
    def block(self) -> int:
        """Elements of one slot."""
        return self.lines * self.stride

    def buffer(self) -> Buffer:
        assert self.chip.scratch is not None
        return Buffer(
            f"s{self.name}",
            self.part.stored,
            (self.slots * self.block,),
            self.chip.scratch.name,
            align_bytes=128,
        )

    def _turned(self, line: Index) -> Index:
        """What the place of a chunk is xor-ed with, by its line."""
        chunks = self.length // self.wide
        if chunks >= self.period:
            return mod(line, 2) * (self.period // 2) + mod(floordiv(line, 2), max(1, self.period // 2))
        return mod(floordiv(line, self.period // chunks), chunks)

    def _place(self, line: Index, moved: int, inner: Index, run: int) -> Index:
        """Offset within a slot of a run of neighbours: `line + moved` is its line (`line` over the lane's number),
        `inner` where it begins there, a multiple of `run`."""
        start = (line + moved) * self.stride
        if self.period == 1:
            return start + inner
        low = line + moved % self.period if moved % self.period else line
        chunk = floordiv(inner, self.wide)
        turn = self._turned(low)
        name = self._bound("x", Binary("i64", "xor", FromIndex("i64", chunk), FromIndex("i64", turn)))
        rest = mod(floordiv(inner, run), self.wide // run) * run if run < self.wide else 0
        return start + name * self.wide + rest

    def _bound(self, stem: str, value: Value) -> Index:
        """A value that no loop changes, bound to a name; equal ones once."""
        for let in self.lets:
            if _same(let.value, value):
                return sym(let.name)
        name = f"{stem}_{self.name}{len(self.lets)}"
        self.lets.append(Let(name, value))
        return sym(name)

    # --------------------------------------------------------------------------------------------- memory to scratchpad
    @cached_property
    def across(self) -> int:
        """Lanes side by side in a line."""
        chunks = self.length // self.wide
        granule = SEGMENT_GRANULES * (self.chip.main.granule_bytes or self.chip.access_bytes)
        across = max(1, min(chunks, granule // self.chip.access_bytes))
        while across < chunks and self.lanes // across > self.lines:
            across *= 2
        return across

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """(first line, first chunk) of every access of a lane."""
        for line in range(0, self.lines, self.lanes // self.across):
            for chunk in range(0, self.length // self.wide, self.across):
                yield line, chunk

    @property
    def accesses(self) -> int:
        """Chunks that one lane brings of a block."""
        return sum(1 for _ in self._chunks())

    @property
    def instructions(self) -> int:
        """About how many bring a block: an address and a test for each chunk of a window, displacements elsewhere."""
        return self.accesses * (1 if self.source.step is not None else 4)

    @cached_property
    def _lines(self) -> list[int]:
        """First lines of a lane's accesses, each once."""
        return list(dict.fromkeys(line for line, _ in self._chunks()))

    @cached_property
    def mask(self) -> Mask | None:
        """Where padding is told by bits."""
        if self.source.load.where is None:
            return None
        return Mask(self.source, f"q{self.name}", len(self._lines), self.chip.registers.name)

    def before(self) -> list[Stmt]:
        """What no loop changes."""
        out: list[Stmt] = list(self.lets)
        if self.mask is not None:
            out.append(self.mask.alloc())
            for number, line in enumerate(self._lines):
                out += self.mask.fill(number, self._row(line))
        return out

    def _row(self, line: int) -> Index:
        """The row of a lane's access along k; rows beside the problem repeat the last one."""
        return minimum(self.first + self._lane(line, 0)[0], self.source.row_count - 1)

    def _lane(self, line: int, chunk: int) -> tuple[Index, Index]:
        """(line, first element in it) of a lane's access."""
        return floordiv(sym("t"), self.across) + line, (mod(sym("t"), self.across) + chunk) * self.wide

    def _memory(self, line: int, chunk: int, walked: Index) -> Index:
        """Offset in memory of an access, `walked` elements from where it is in the first block."""
        source = self.source
        inner, depth = self._lane(line, 0)[::-1]
        row = self.first + inner
        if self.along_k:
            row, depth = self._row(line), inner
        start = source.row_offset(row) if source.step is None else source.offset(row, depth)
        address = self._bound("g", FromIndex("i64", floordiv(start, self.wide)))
        along = chunk * self.wide if source.step is not None or not self.along_k else 0
        return address * self.wide + along + walked

    def _walks(self, block: Index) -> tuple[list[Stmt], dict[tuple[int, int], Index]]:
        """How far the accesses of block `block` of k are from those of the first, and what must be bound for that."""
        source = self.source
        if source.step is not None:
            return [], dict.fromkeys(self._chunks(), block * self.depth * source.step)
        out: list[Stmt] = []
        walked: dict[Index, Index] = {}
        for depth in self._depths(block).values():
            if depth not in walked:
                deep = simplify(floordiv(source.deep_offset(depth), self.wide), self._known)
                out.append(Let(self._named("w"), FromIndex("i64", deep)))
                walked[depth] = sym(self.names[-1]) * self.wide
        return out, {access: walked[depth] for access, depth in self._depths(block).items()}

    def _inside(self, block: Index) -> tuple[list[Stmt], dict[tuple[int, int], Value]]:
        """Which accesses of block `block` of k are inside the image, and what must be bound for that; none where all
        are."""
        if self.mask is None:
            return [], {}
        out: list[Stmt] = []
        bits: dict[Index, str] = {}
        for depth in self._depths(block).values():
            if depth not in bits:
                bits[depth] = self._named("b")
                out.append(self.mask.bit(bits[depth], depth, self._known))
        return out, {
            (line, chunk): self.mask.test(self._lines.index(line), bits[depth])
            for (line, chunk), depth in self._depths(block).items()
        }

    def _depths(self, block: Index) -> dict[tuple[int, int], Index]:
        """The first place along k of every access."""
        side = 1 if self.along_k else 0
        return {x: self._lane(*x)[side] + block * self.depth for x in self._chunks()}

    @property
    def _known(self) -> Ranges:
        return {"t": (0, self.lanes - 1)}

    def _named(self, stem: str) -> str:
        """A new name."""
        self.names.append(f"{stem}_{self.name}{len(self.names)}")
        return self.names[-1]

    def _exists(self, line: int) -> Value | None:
        """Does a lane have the access that begins at `line`?  None: always."""
        if line + self.lanes // self.across <= self.lines:
            return None
        return compare("lt", self._lane(0, 0)[0], self.lines - line)

    def _here(self, line: int, chunk: int) -> Index:
        """Offset in a slot."""
        mine, inner = self._lane(0, chunk)
        return self._place(mine, line, inner, self.wide)

    def _within(self, line: int, chunk: int, block: Index) -> Value:
        """Is the access inside k?"""
        depth = self._lane(line, chunk)[1 if self.along_k else 0]
        return compare("lt", block * self.depth + depth, self.source.depth)

    def send(self, block: Index, slot: Index, edge: bool) -> list[Stmt]:
        """Block `block` of k on its way into a slot; edge: zeros behind the end of k."""
        copy = self.copy
        assert copy is not None
        out, walked = self._walks(block)
        bits, inside = self._inside(block)
        out += bits
        for line, chunk in self._chunks():
            memory, exists = self._memory(line, chunk, walked[line, chunk]), self._exists(line)
            place = slot * self.block + self._here(line, chunk)
            ends = {
                copy.operands[0]: View(f"s{self.name}", (place,)),
                copy.operands[1]: View(self.source.load.buffer, (memory,)),
            }
            body: Body = (Intrin(copy.name, tuple((n, ends[n]) for n in copy.operands)),)
            known = both(self._within(line, chunk, block) if edge else None, inside.get((line, chunk)))
            if known is not None:
                zero = Store(f"s{self.name}", (place + sym("v"),), Const(self.part.stored, 0))
                body = (If(known, body, (For("v", self.wide, (zero,), "vector"),)),)
            out += body if exists is None else [If(exists, body)]
        return out

    # ------------------------------------------------------------------------------------------- through registers
    def waiting(self) -> Alloc:
        """Registers in which a block waits."""
        shape = (self.accesses * self.wide,)
        return Alloc(Buffer(f"r{self.name}", self.part.stored, shape, self.chip.registers.name))

    def fetch(self, block: Index, edge: bool) -> list[Stmt]:
        """Block `block` of k into registers; edge: zeros behind the end of k."""
        out, walked = self._walks(block)
        bits, inside = self._inside(block)
        out += bits
        v, load = sym("v"), self.source.load
        for number, (line, chunk) in enumerate(self._chunks()):
            memory, exists = self._memory(line, chunk, walked[line, chunk]), self._exists(line)
            value = rounded(Load(load.dtype, load.buffer, (memory + v,)), self.part.dtype)
            at = (number * self.wide + v,)
            body: Body = (For("v", self.wide, (Store(f"r{self.name}", at, value),), "vector"),)
            known = both(self._within(line, chunk, block) if edge else None, inside.get((line, chunk)))
            known = both(known, exists)
            if known is not None:
                zero = Store(f"r{self.name}", at, Const(self.part.stored, 0))
                body = (If(known, body, (For("v", self.wide, (zero,), "vector"),)),)
            out += body
        return out

    def put(self, slot: Index) -> list[Stmt]:
        """What waits in registers, into a slot."""
        out: list[Stmt] = []
        v = sym("v")
        for number, (line, chunk) in enumerate(self._chunks()):
            here, exists = self._here(line, chunk), self._exists(line)
            value = Load(self.part.stored, f"r{self.name}", (number * self.wide + v,))
            store = Store(f"s{self.name}", (slot * self.block + here + v,), value)
            body: Body = (For("v", self.wide, (store,), "vector"),)
            out += body if exists is None else [If(exists, body)]
        return out

    # --------------------------------------------------------------------------------------- scratchpad to registers
    def fragments(self, buffer: str, start: Index, tiles: int, step: int, slot: Index) -> list[Stmt]:
        """Items of `tiles` fragments that follow each other from row `start` of the block on, at `step` of k."""
        out: list[Stmt] = []
        total, at = tiles * self.part.items, 0
        while at < total:
            tile, item = divmod(at, self.part.items)
            moved = tile * self.tile_rows
            found = self._copy_for(item, total - at)
            if found is not None:
                copy, lines = found
                where = self._at(lines, 0, start, moved, step, self.wide, slot)
                out.append(copy.use(View(buffer, (at,)), View(f"s{self.name}", (where,))))
                at += copy.items
                continue
            run = self._run(item)
            where = self._at(self.part, item, start, moved, step, run, slot)
            cell = Load(self.part.stored, f"s{self.name}", (where + sym("v"),))
            out.append(For("v", run, (Store(buffer, (at + sym("v"),), cell),), "vector"))
            at += run
        return out

    def _copy_for(self, item: int, left: int) -> tuple[GroupCopy, Fragment] | None:
        """The copy that fills most items from `item` of a fragment on, and the lines that lanes address for it."""
        inner = self.deep if self.along_k else self.coord
        for copy in group_copies(self.chip):
            if copy.items > left or copy.length != self.wide or self.chip.access_bytes % copy.align:
                continue
            lines = copy.lines(self.part, self.coord, self.tile_rows, item, inner)
            if lines is not None:
                return copy, lines
        return None

    def _at(
        self, part: Fragment, item: int, start: Index, moved: int, step: int, run: int, slot: Index
    ) -> Index:
        """Offset of the run that begins at an item of a fragment."""
        key = (part, item, start, moved, step, run)
        place = self.places.get(key)
        if place is None:  # the same in every slot
            row, depth = part.at(item, self.coord), part.at(item, self.deep)
            if self.along_k:
                place = self._place(row, moved, depth + step, run) + start * self.stride
            else:
                place = self._place(depth, step, start + moved + row, run)
            self.places[key] = place
        return slot * self.block + place

    def _run(self, item: int) -> int:
        """Neighbours along a line that begin at an item."""
        runs = self.part.runs(self.deep if self.along_k else self.coord)
        return max(1, min(runs[0][1], self.wide))


def _same(x: Value, y: Value) -> bool:
    """Are two index values written alike?"""
    match x, y:
        case FromIndex(), FromIndex():
            return x.index == y.index
        case Binary(), Binary():
            return x.op == y.op and _same(x.x, y.x) and _same(x.y, y.y)
    return False
