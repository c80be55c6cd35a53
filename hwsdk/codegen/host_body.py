"""LLVM text of one host function under construction: words loaded and stored, index expressions evaluated.

Design choice: every expression and every atom is emitted once and remembered, which is right because host
functions are straight-line code: what was computed stays available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.loop_ir import Index
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import Atom, Expr, Symbol


class Body:
    """Text of one function under construction: fresh names and a memo of emitted expressions."""

    def __init__(self, checked: bool) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._checked = checked
        self._known: dict[object, str] = {}
        self.faults: dict[int, list[str]] = {layout.OVERFLOW: [], layout.DIVISION: [], layout.NEGATIVE: []}

    def add(self, text: str) -> None:
        """A line without result."""
        self.lines.append(f"  {text}")

    def new(self, text: str) -> str:
        """A line with a result; gives its name."""
        name = f"%v{self._count}"
        self._count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def bind(self, name: str, value: str) -> None:
        """Give a symbol its value."""
        self._known[name] = value

    def load(self, base: str, word: int | str, kind: str = "i64") -> str:
        """Word number `word` of the array at `base`."""
        place = self.new(f"getelementptr i64, ptr {base}, i64 {word}")
        return self.new(f"load {kind}, ptr {place}, align 8")

    def store(self, base: str, word: int, value: str) -> None:
        """Set word number `word` of the array at `base`."""
        place = self.new(f"getelementptr i64, ptr {base}, i64 {word}")
        self.add(f"store i64 {value}, ptr {place}, align 8")

    def value(self, index: Index) -> str:
        """The value of an index expression: an integer literal or a name."""
        if not isinstance(index, Expr):
            return str(index)
        if index not in self._known:
            total = "0"
            for c, atoms in index.terms:
                part = str(c)
                for atom in atoms:
                    part = self._times(part, self._atom(atom))
                total = self._plus(total, part)
            self._known[index] = total
        return self._known[index]

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            if atom.name not in self._known:
                raise CodegenError(f"host program: symbol {atom.name!r} has no value")
            return self._known[atom.name]
        if atom not in self._known:
            operands = [self.value(a) for a in atom.args]
            self._known[atom] = _OPERATIONS[atom.name](self, operands)
        return self._known[atom]

    def _times(self, a: str, b: str) -> str:
        return b if a == "1" else self._arithmetic("mul", a, b)

    def _plus(self, a: str, b: str) -> str:
        return b if a == "0" else self._arithmetic("add", a, b)

    def minus(self, a: str, b: str) -> str:
        """a - b."""
        return self._arithmetic("sub", a, b)

    def _arithmetic(self, op: str, a: str, b: str) -> str:
        if not self._checked:
            return self.new(f"{op} i64 {a}, {b}")
        pair = self.new(f"call {{ i64, i1 }} @llvm.s{op}.with.overflow.i64(i64 {a}, i64 {b})")
        self.faults[layout.OVERFLOW].append(self.new(f"extractvalue {{ i64, i1 }} {pair}, 1"))
        return self.new(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def truth(self, predicate: str, a: str, b: str) -> str:
        """A comparison as 0 or 1."""
        return self.new(f"zext i1 {self.new(f'icmp {predicate} i64 {a}, {b}')} to i64")

    def divide(self, a: str, b: str) -> tuple[str, str]:
        """Quotient and remainder of the division that rounds down.  A divisor of 0 is a fault, never a
        trap."""
        if b.lstrip("-").isdigit() and int(b) > 0 and int(b) & (int(b) - 1) == 0:
            shift = int(b).bit_length() - 1
            return self.new(f"ashr i64 {a}, {shift}"), self.new(f"and i64 {a}, {int(b) - 1}")
        zero = self.new(f"icmp eq i64 {b}, 0")
        self.faults[layout.DIVISION].append(zero)
        divisor = self.new(f"select i1 {zero}, i64 1, i64 {b}")
        q, r = self.new(f"sdiv i64 {a}, {divisor}"), self.new(f"srem i64 {a}, {divisor}")
        uneven = self.new(f"icmp ne i64 {r}, 0")
        apart = self.new(f"icmp slt i64 {self.new(f'xor i64 {r}, {divisor}')}, 0")
        down = self.new(f"and i1 {uneven}, {apart}")
        lower = self.new(f"sub i64 {q}, {self.new(f'zext i1 {down} to i64')}")
        return lower, self.new(f"add i64 {r}, {self.new(f'select i1 {down}, i64 {divisor}, i64 0')}")

    def negated(self, a: str) -> str:
        """-a."""
        return self.new(f"sub i64 0, {a}")

    def fold(self, name: str, values: list[str]) -> str:
        """min or max of several values."""
        result = values[0]
        for v in values[1:]:
            result = self.new(f"call i64 @llvm.s{name}.i64(i64 {result}, i64 {v})")
        return result


_OPERATIONS: Mapping[str, Callable[[Body, list[str]], str]] = {
    "floordiv": lambda b, x: b.divide(x[0], x[1])[0],
    "mod": lambda b, x: b.divide(x[0], x[1])[1],
    "ceildiv": lambda b, x: b.negated(b.divide(b.negated(x[0]), x[1])[0]),
    "min": lambda b, x: b.fold("min", x),
    "max": lambda b, x: b.fold("max", x),
    "ge": lambda b, x: b.truth("sge", x[0], x[1]),
    "eq": lambda b, x: b.truth("eq", x[0], x[1]),
}
