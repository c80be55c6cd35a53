"""What ships for a machine of lanes, read: the inner loop of a kernel in PTX or in machine code, registers, spills.

Design choice: the loop that counts is the one with most matrix products; an instruction is a product, a move (loads,
stores, copies, barriers, branches, moves between registers) or other arithmetic.  Anything unknown is arithmetic.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PTX_MOVES = {"ld", "st", "mov", "bra", "bar", "barrier", "cp", "ldmatrix", "ret", "cvta", "bra.uni"}
SASS_MOVES = {
    "LDSM", "LDS", "LDG", "LDGSTS", "LDGDEPBAR", "DEPBAR", "STS", "STG", "BAR", "BRA", "CALL", "MOV", "UMOV", "NOP",
    "WARPSYNC", "R2UR", "BSSY", "BSYNC", "CS2R", "ULDC", "LDC", "LDCU",
}  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """Instructions of the loop body by name."""

    products: int
    other: Counter[str]
    instructions: int = 0

    @property
    def share(self) -> float:
        """Products among all arithmetic."""
        return self.products / max(1, self.products + self.other.total())


def ptx_loop(text: str) -> Loop:
    """The loop with most products in PTX text."""
    lines: list[tuple[str, str]] = []  # (label or "", instruction)
    for line in text.splitlines():
        line = line.split("//")[0].strip()
        if re.fullmatch(r"\$\w+:", line):
            lines.append((line[:-1], ""))
        elif line and line[0] not in ".{})(" and (line.endswith(";") or re.match(r"(mma|ldmatrix)\.", line)):
            lines.append(("", line))
    return _densest(lines, r"\bbra(?:\.uni)?\s+(\$\w+)", "mma", PTX_MOVES)


def sass_loop(text: str) -> Loop:
    """The loop with most products in disassembled machine code."""
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            lines.append((label[1], ""))
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?!@!PT )(.*?);", line):  # @!PT: never executed
            lines.append(("", found[1].replace("IMAD.MOV", "MOV")))
    return _densest(lines, r"\bBRA.*\((\.L_x_\d+)\)", "MMA", SASS_MOVES)


def _densest(lines: Sequence[tuple[str, str]], branch: str, product: str, moves: Iterable[str]) -> Loop:
    at = {label: i for i, (label, _) in enumerate(lines) if label}
    best = Loop(0, Counter())
    for i, (_, text) in enumerate(lines):
        target = re.search(branch, text)
        if target is None or at.get(target[1], i + 1) > i:
            continue
        names = [_name(x) for _, x in lines[at[target[1]] : i + 1] if x]
        products = sum(product in n for n in names)
        if products > best.products:
            other = Counter(n for n in names if product not in n and n not in moves)
            best = Loop(products, other, len(names))
    return best


def _name(instruction: str) -> str:
    """The first part of the mnemonic, without its predicate."""
    words = instruction.split()
    return words[1 if words[0].startswith("@") else 0].split(".")[0].rstrip(";")


@dataclass(frozen=True)
class Assembled:
    """registers: of one lane; spill_bytes: stores and loads; cubin: the file; said: what the assembler printed."""

    registers: int
    spill_bytes: int
    cubin: Path
    said: str


def assemble(ptxas: str, text: str, cpu: str, folder: Path) -> Assembled:
    """One kernel through the assembler."""
    source, out = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(text)
    done = subprocess.run(
        [ptxas, "-v", f"-arch={cpu}", "-o", out, source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    registers = re.search(r"Used (\d+) registers", said)
    assert registers is not None
    spills = sum(int(x) for x in re.findall(r"(\d+) bytes spill", said))
    return Assembled(int(registers[1]), spills, out, said)
