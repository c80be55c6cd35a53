"""Register buffers as SSA values: which value each cell of a buffer holds, with phis at loops and joins.

A cell is a run of `width` elements of a register buffer at a constant offset.  Design choice: LoopIR is structured, so
SSA form needs no dominance frontiers.  A loop asks for a phi at the moment a cell that the loop writes is first read
in it; a branch is joined by comparing what both sides left.  Nothing goes through memory and no promotion pass runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hwsdk.codegen.llvm_text import Block, Function

Cell = tuple[str, int]  # buffer, offset in elements


@dataclass
class Frame:
    """What one region has done to the cells."""

    loop: bool = False
    written: frozenset[str] = frozenset()
    values: dict[Cell, str] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    phis: dict[Cell, tuple[str, str]] = field(default_factory=dict)  # cell -> (phi, value before the loop)


class Cells:
    """The state of all register buffers of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.types: dict[str, str] = {}
        self.frames = [Frame()]

    def declare(self, buffer: str, type_text: str) -> None:
        """A fresh buffer whose cells have this type; it dies with the innermost region."""
        self.types[buffer] = type_text
        frame = self.frames[-1]
        frame.local.add(buffer)
        for cell in [c for c in frame.values if c[0] == buffer]:
            del frame.values[cell]

    def read(self, cell: Cell) -> str | None:
        """The value of a cell, None if it has none yet."""
        return self._read(cell, len(self.frames) - 1)

    def _read(self, cell: Cell, level: int) -> str | None:
        while level >= 0:
            frame = self.frames[level]
            found = frame.values.get(cell)
            if found is not None:
                return found
            if cell[0] in frame.local:
                return None
            if frame.loop and cell[0] in frame.written:
                phi = self.function.fresh()
                frame.phis[cell] = (phi, self._read(cell, level - 1) or "poison")
                frame.values[cell] = phi
                return phi
            level -= 1
        return None

    def write(self, cell: Cell, value: str) -> None:
        self.frames[-1].values[cell] = value

    # ------------------------------------------------------------------------------------------------------- loops
    def begin_loop(self, written: Iterable[str]) -> None:
        self.frames.append(Frame(loop=True, written=frozenset(written)))

    def end_loop(self, head: Block, before: Block, latch: Block, after: Block, guarded: bool) -> None:
        """Writes the phis of the loop and hands the final values on.  The current block is `after`."""
        frame = self.frames.pop()
        for cell, (phi, initial) in frame.phis.items():
            final = frame.values[cell]
            if final == phi:
                self.function.aliases[phi] = initial
                continue
            kind = self.types[cell[0]]
            head.phis.append(
                f"  {phi} = phi {kind} [ {initial}, %{before.label} ], [ {final}, %{latch.label} ]"
            )
        for cell, final in frame.values.items():
            if cell[0] in frame.local or self._unchanged(frame, cell):
                continue
            if guarded:
                initial = frame.phis[cell][1] if cell in frame.phis else self.read(cell) or "poison"
                merged = self.function.fresh()
                kind = self.types[cell[0]]
                after.phis.append(
                    f"  {merged} = phi {kind} [ {initial}, %{before.label} ], [ {final}, %{latch.label} ]"
                )
                final = merged
            self.write(cell, final)

    @staticmethod
    def _unchanged(frame: Frame, cell: Cell) -> bool:
        return cell in frame.phis and frame.values[cell] == frame.phis[cell][0]

    # ---------------------------------------------------------------------------------------------------- branches
    def begin_branch(self) -> None:
        self.frames.append(Frame())

    def end_branch(self) -> Frame:
        return self.frames.pop()

    def join(self, sides: list[tuple[Frame, Block]], after: Block) -> None:
        """Merges the frames of all sides of a branch; the block of each is its last one."""
        touched = {c: None for frame, _ in sides for c in frame.values if c[0] not in frame.local}
        for cell in touched:
            values = [frame.values.get(cell) or self.read(cell) or "poison" for frame, _ in sides]
            if len(set(values)) == 1:
                self.write(cell, values[0])
                continue
            merged = self.function.fresh()
            pairs = ", ".join(f"[ {v}, %{block.label} ]" for v, (_, block) in zip(values, sides))
            after.phis.append(f"  {merged} = phi {self.types[cell[0]]} {pairs}")
            self.write(cell, merged)
