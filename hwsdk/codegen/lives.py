"""Registers that one lane of a kernel holds at once, read off its loops.

    buffers      what lies in registers, from its Alloc to its last use; in an unrolled loop once for every iteration
                 that is in flight
    names        values of Lets and loop variables, from their definition to their last use
    addresses    one per buffer and moving part of an index, kept over every loop in which it does not start anew
    temporaries  what evaluating one statement needs, times the elements of a vector loop

Design choice: whatever chip it is, the code generator is taken to keep what a loop does not change across the loop, and
to start loads of unrolled iterations together (`lives_ahead`).  So one walk over LoopIR serves all kinds of kernels,
and nothing of it knows how a kernel was planned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from hwsdk.codegen.lives_ahead import Ahead, words
from hwsdk.codegen.llvm_scan import (
    cell_widths,
    in_registers,
    statement_indices,
    statement_values,
    value_nodes,
)
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Const,
    For,
    FromIndex,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Outline,
    Ref,
    Stmt,
    Store,
    Value,
    View,
    parallel_loop,
    substatements,
    value_children,
)
from hwsdk.graph.dims import Atom, Op, constant_term, free_symbols, substitute, terms
from hwsdk.target_desc.model import Target

INDEX_BYTES = 8
DIVISION = 16  # words that a division by what only run time knows works in
BY_CONSTANT = 4  # the same for a known divisor


def peak_words(kernel: LoopKernel, target: Target, ahead: bool = True) -> int:
    """Most registers of `width_bytes` that one lane holds at once.

    ahead: with those in which loads of later iterations wait, of which code takes as many as there are.
    """
    found = _Walk(kernel, target, target.codegen.ahead_bytes if ahead else 0)
    found.body(kernel.body)
    return found.peak()


@dataclass
class _Life:
    """words: registers from `begin` to `end`, times in statements.  depth: loops around the definition."""

    begin: int
    end: int
    words: int
    depth: int


@dataclass
class _Loop:
    begin: int
    used: set[str] = field(default_factory=set)


class _Walk:
    def __init__(self, kernel: LoopKernel, target: Target, ahead_bytes: int) -> None:
        self.target = target
        self.widths = cell_widths(kernel, target)
        files = [m for m in target.memories if m.kind == "registers" and m.per == target.levels[-1].name]
        width = files[-1].width_bytes if files else None
        self.width = width if isinstance(width, int) else 4
        inner = {x.name for x in target.levels if x.lockstep}
        self.scalar = any(m.kind == "registers" and m.per not in inner for m in target.memories)
        self.same = set(kernel.dims)  # names that all lanes agree on
        self.near = {m.name for m in target.memories if m.kind == "scratchpad"}
        self.places = {p.name: p.place for p in kernel.params}
        self.ahead = Ahead(target, self.places, self.widths, self.width, ahead_bytes // self.width)
        self.clock = 0
        self.lives: dict[str, _Life] = {}
        self.ended: list[_Life] = []
        self.loops: list[_Loop] = []
        self.known: dict[str, Index] = {}  # variables that are numbers when the code is written
        self.flight = 1  # iterations whose loads are on their way together
        self.grid = parallel_loop(kernel)
        self.wide = 1  # elements of the vector loop around
        self.divided: dict[Index, int] = {}

    def peak(self) -> int:
        changes: dict[int, int] = {}
        for life in (*self.ended, *self.lives.values()):
            changes[life.begin] = changes.get(life.begin, 0) + life.words
            changes[life.end + 1] = changes.get(life.end + 1, 0) - life.words
        return max(accumulate(changes[t] for t in sorted(changes)), default=0)

    # ------------------------------------------------------------------------------------------------------- names
    def _define(self, name: str, count: int, begin: int | None = None, depth: int | None = None) -> None:
        if name in self.lives:
            self.ended.append(self.lives.pop(name))
        begin = self.clock if begin is None else begin
        self.lives[name] = _Life(begin, self.clock, count, len(self.loops) if depth is None else depth)

    def _use(self, name: str) -> None:
        life = self.lives.get(name)
        if life is not None:
            life.end = self.clock
            for loop in self.loops[life.depth :]:
                loop.used.add(name)

    def _agreed(self, names: Iterable[str]) -> bool:
        """Do all lanes agree, and have what they agree on in registers of its own?"""
        return self.scalar and self.same.issuperset(names)

    def _uniform(self, value: Value) -> bool:
        """Is it the same for all lanes, and kept once for all of them?"""
        for v in value_nodes([value]):
            match v:
                case Ref(name=name):
                    names: Iterable[str] = (name,)
                case FromIndex(index=index):
                    names = free_symbols(index)
                case Load(buffer=buffer, index=at):
                    if not self.ahead.in_memory(buffer) or self.places[buffer] in self.near:
                        return False
                    names = frozenset[str]().union(*map(free_symbols, at))
                case _:
                    continue
            if not self._agreed(names):
                return False
        return self.scalar

    def _index(self, index: Index) -> None:
        for name in free_symbols(index):
            self._use(name)

    def _address(self, buffer: str, index: Iterable[Index]) -> None:
        """Where an access moves to, but for constants, is kept from the loop on in which it begins."""
        place = self.places.get(buffer)
        if place is None or in_registers(self.target, place):
            return
        moving = [substitute(i, self.known) for i in index]
        names = frozenset[str]().union(*(free_symbols(i) for i in moving))
        if self._agreed(names):
            return
        key = "|".join([buffer, *(str(i - constant_term(i)) for i in moving)])
        depth = max((self.lives[n].depth for n in names if n in self.lives), default=0)
        if key not in self.lives or self.lives[key].depth > len(self.loops):
            depth = min(depth, len(self.loops))
            begin = self.loops[depth].begin if depth < len(self.loops) else self.clock
            self._define(key, 1 if place in self.near else INDEX_BYTES // self.width, begin, depth)
        self._use(key)

    # ------------------------------------------------------------------------------------------------------ values
    def _value(self, value: Value, seen: set[int]) -> tuple[int, int]:
        """(words that evaluating takes, words of them that wait for memory)."""
        if id(value) in seen:
            return 0, 0
        seen.add(id(value))
        parts = [self._value(c, seen) for c in value_children(value)]
        coming = sum(c for _, c in parts)
        own = words(self.width, value.dtype)
        match value:
            case Load(buffer=buffer, index=index):
                self._use(buffer)
                for i in index:
                    self._index(i)
                self._address(buffer, index)
                own = own if self.ahead.in_memory(buffer) else 0
                coming += own if self.ahead.waits(value) else 0
            case Ref(name=name):
                self._use(name)
                return 0, 0
            case FromIndex(index=index):
                self._index(index)
                return (0 if self._agreed(free_symbols(index)) else self._divisions(index)), 0
            case Const():
                return 0, 0
        held = need = 0
        for part in sorted((n for n, _ in parts), reverse=True):
            need = max(need, held + part)
            held += own if part else 0
        return max(need, own), coming

    def _divisions(self, index: Index) -> int:
        """Words that evaluating an index takes."""
        if isinstance(index, int):
            return 0
        known = self.divided.get(index)
        if known is None:
            work = max((_division(a) for _, m in terms(index) for a in m), default=0)
            known = self.divided[index] = INDEX_BYTES // self.width + work
        return known

    def _evaluated(self, stmt: Stmt) -> None:
        """The temporaries of one statement."""
        seen: set[int] = set()
        need = coming = 0
        for value in statement_values(stmt):
            taken, waiting = self._value(value, seen)
            need, coming = max(need, taken), coming + waiting
        for index in statement_indices(stmt):
            self._index(index)
        if isinstance(stmt, Store) and isinstance(stmt.value, Load) and not self.ahead.in_memory(stmt.buffer):
            need = coming = 0  # where it waits is the buffer
        total = (need + (self.flight - 1) * coming) * self.wide
        if total:
            self.ended.append(_Life(self.clock, self.clock, total, 0))

    # -------------------------------------------------------------------------------------------------- statements
    def body(self, body: Body) -> None:
        for stmt in body:
            self.clock += 1
            self._evaluated(stmt)
            match stmt:
                case Let(name=name, value=value):
                    self.clock += 1
                    self._let(name, value)
                case Alloc():
                    self._alloc(stmt)
                case Store(buffer=buffer, index=index):
                    self._use(buffer)
                    self._address(buffer, index)
                case Intrin(operands=operands):
                    for view in (o for _, o in operands if isinstance(o, View)):
                        self._use(view.buffer)
                        self._address(view.buffer, view.index)
                case For():
                    self._for(stmt)
                case _:
                    self._branches(stmt)

    def _let(self, name: str, value: Value) -> None:
        uniform = self._uniform(value)
        if uniform:
            self.same.add(name)
        else:
            self.same.discard(name)
        constant = isinstance(value, FromIndex) and isinstance(value.index, int)
        self._define(name, 0 if constant or uniform else words(self.width, value.dtype) * self.wide)

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        self.places[buffer.name] = buffer.place
        if in_registers(self.target, buffer.place):
            self._define(buffer.name, self.ahead.held(stmt) * self.flight)
        else:
            self.lives.pop(buffer.name, None)

    def _branches(self, stmt: Stmt) -> None:
        """Nothing is started ahead over a branch, unless it is short and becomes predicates."""
        flight = self.flight
        if not isinstance(stmt, Outline) and not self.ahead.predicated(stmt):
            self.flight = 1
        for inner in substatements(stmt):
            self.body(inner)
        self.flight = flight

    def _for(self, stmt: For) -> None:
        if stmt is self.grid:
            self.same.add(stmt.var)
        if stmt.kind == "parallel" or stmt.extent == 1:
            self._define(stmt.var, int(stmt.kind == "parallel" and not self._agreed([stmt.var])))
            self.body(stmt.body)
        elif stmt.kind == "serial":
            self._serial(stmt)
        else:
            wide, flight = self.wide, self.flight
            self.known[stmt.var] = 0
            if stmt.kind == "vector":
                self.wide = wide * int(str(stmt.extent))
            else:
                self.flight = self.ahead.together(stmt, int(str(stmt.extent)), self.flight)
            self.body(stmt.body)
            self.wide, self.flight = wide, flight
            del self.known[stmt.var]

    def _serial(self, stmt: For) -> None:
        flight = self.flight
        self.loops.append(_Loop(self.clock))
        if self._agreed(free_symbols(stmt.extent)):
            self.same.add(stmt.var)
        self._define(stmt.var, 0 if self._agreed([stmt.var]) else INDEX_BYTES // self.width)
        self.flight = self.ahead.together(stmt, self.ahead.unrolled(stmt, self.flight), self.flight)
        self.body(stmt.body)
        self.flight = flight
        self.clock += 1
        loop = self.loops.pop()
        for name in (stmt.var, *loop.used):
            life = self.lives.get(name)
            if life is not None and (name == stmt.var or life.depth <= len(self.loops)):
                life.end = self.clock


def _division(atom: Atom) -> int:
    """Words that the divisions in an atom work in."""
    if not isinstance(atom, Op):
        return 0
    inner = max((_division(a) for arg in atom.args for _, m in terms(arg) for a in m), default=0)
    if atom.name not in ("floordiv", "mod"):
        return inner
    divisor = atom.args[1]
    if not isinstance(divisor, int):
        return max(inner, DIVISION)
    return max(inner, BY_CONSTANT if divisor & (divisor - 1) else 0)
