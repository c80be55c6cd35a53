"""The Python text that a kernel becomes: lines with the statement each belongs to, names in scope, indices as
text.

Design choice: no name, string or number format of a kernel ever reaches the generated text.  Names become
numbered variables, constants become entries of a table, so the text is ours whatever a kernel file says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hwsdk.codegen.loop_ir import Buffer, Index
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Dim, Expr, Op, coefficient, free_symbols, substitute, sym

NONE: frozenset[int] = frozenset()


class Writer:
    """Lines of Python with an indentation; `marks[i]` is the number of the statement that line i belongs
    to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.marks: list[int] = []
        self.indent = 0
        self.statement = 0
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)
        self.marks.append(self.statement)

    def reserve(self) -> tuple[int, int]:
        """A line that is filled later, or stays empty."""
        self.line("")
        return len(self.lines) - 1, self.indent

    def fill(self, place: tuple[int, int], text: str) -> None:
        self.lines[place[0]] = " " * place[1] + text

    def name(self, letter: str) -> str:
        """A fresh variable."""
        self.count += 1
        return f"{letter}{self.count}"

    def temp(self, text: str, letter: str = "t") -> str:
        """A fresh variable with this value; names and numbers are used as they are."""
        if text.isidentifier() or text.isdecimal():
            return text
        name = self.name(letter)
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        """Lines one level further in, under `head`."""
        self.line(head)
        self.indent += 1
        before = len(self.lines)
        yield
        if all(not line.strip() for line in self.lines[before:]):
            self.line("pass")
        self.indent -= 1


@dataclass
class Axis:
    """A loop that runs as an array axis.  count: text of the number of lanes (`lanes`, if constant and always
    full).

    base: the symbol of the first value of the variable, None for 0.  `array` is the variable with all values;
    it is defined at `place` when something `used` it.  repeated: it stands for a loop that is not a vector
    loop.
    """

    position: int
    count: str
    lanes: int | None
    array: str
    width: int = 1  # lanes of a vector loop, active or not
    base: str | None = None
    repeated: bool = False
    used: bool = False
    lane: str = ""  # the symbol of the lane number, whatever the base


@dataclass
class Symbol:
    """What a name means in generated code.  index: its text as an integer; value: as a value of its dtype."""

    index: str
    axes: frozenset[int] = NONE
    axis: Axis | None = None
    value: str = ""


@dataclass
class BufferVar:
    """A buffer in generated code: cell bK, storage fK, states sK.  Extents and strides are numbers or
    variables.

    checked: its elements have states to look at; asynchronous: a copy may be reading or writing it; shared:
    iterations of the parallel loop share it and write it; read: something loads from it.
    """

    buffer: Buffer
    number: int
    shape: list[int | str]
    strides: list[int | str]
    checked: bool = True
    asynchronous: bool = False
    shared: bool = False
    read: bool = True
    prefix: tuple[str, ...] = ()  # lane symbols: inside lockstep loops every lane has a copy of its own

    def full(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """An index with that of the copy."""
        return (*(sym(p) for p in self.prefix), *index) if self.prefix else index

    @property
    def itemsize(self) -> int:
        return DTYPES[self.buffer.dtype].size_bytes

    @property
    def cell(self) -> str:
        return f"b{self.number}"

    @property
    def flat(self) -> str:
        return f"f{self.number}"

    @property
    def state(self) -> str:
        return f"s{self.number}"


@dataclass
class Scope:
    """The names visible at one place, and the axes that run there (`rank`: how many the whole nest has)."""

    symbols: dict[str, Symbol] = field(default_factory=dict)
    buffers: dict[str, BufferVar] = field(default_factory=dict)
    axes: list[Axis] = field(default_factory=list)
    rank: int = 0

    def inner(self) -> Scope:
        return Scope(dict(self.symbols), dict(self.buffers), list(self.axes), self.rank)

    def index(self, d: Index) -> tuple[str, frozenset[int]]:
        """The text of an index, and the axes over which it varies."""
        if not isinstance(d, Expr):
            return str(d), NONE
        text, axes = [], NONE
        for c, atoms in d.terms:
            factors = [str(c)] if c != 1 or not atoms else []
            for atom in atoms:
                part, over = self._operation(atom) if isinstance(atom, Op) else self._symbol(atom.name)
                factors.append(part)
                axes |= over
            text.append("*".join(factors))
        return (text[0] if len(text) == 1 else f"({' + '.join(text)})"), axes

    def _symbol(self, name: str) -> tuple[str, frozenset[int]]:
        symbol = self.symbols[name]
        if symbol.axis is not None:
            symbol.axis.used = True
        return symbol.index, symbol.axes

    def _operation(self, atom: Op) -> tuple[str, frozenset[int]]:
        parts = [self.index(a) for a in atom.args]
        axes = NONE.union(*(p[1] for p in parts))
        a, *rest = [f"({p[0]})" for p in parts]
        b = rest[0] if rest else "0"
        match atom.name:
            case "floordiv":
                return f"({a}//{b})", axes
            case "mod":
                return f"({a}%{b})", axes
            case "ceildiv":
                return f"(-(-{a}//{b}))", axes
            case "ge":
                return f"(({a} >= {b}) + 0)", axes
            case "eq":
                return f"(({a} == {b}) + 0)", axes
        function = f"np_{atom.name}imum" if axes else atom.name
        text = a
        for other in rest:
            text = f"{function}({text}, {other})"
        return text, axes

    def split(self, d: Index) -> tuple[Dim, dict[int, Dim]] | None:
        """d as rest + sum of step * lane number, steps by position of the axis; None where it is not
        affine."""
        if not isinstance(d, Expr):
            return d, {}
        varying = {n: s for n in d.free if (s := self.symbols[n]).axes}
        rest: Dim = d
        steps: dict[int, Dim] = {}
        for name, symbol in varying.items():
            step = coefficient(d, name)
            if symbol.axis is None or step is None or not free_symbols(step).isdisjoint(varying):
                return None
            steps[symbol.axis.position] = step
            rest = substitute(rest, {name: 0 if symbol.axis.base is None else sym(symbol.axis.base)})
        return rest, {p: s for p, s in steps.items() if s != 0}

    def product(self, axes: list[Axis]) -> str:
        """The text of the number of points of some axes."""
        return "*".join(a.count for a in axes) or "1"
