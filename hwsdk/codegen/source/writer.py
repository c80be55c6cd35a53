"""Lines of a function in nested blocks, and names that are unique in it.

Design choice: a block keeps its lines until it is closed, so a definition can still be put into any enclosing block:
it then stands before everything that is being written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Words that no variable may be called: C and C++ keywords, and what the standard headers define as macros.
RESERVED = frozenset(
    """alignas alignof and asm auto bool break case catch char class complex const continue default delete do double
    else enum explicit extern false float for friend goto half if imaginary inline int long main namespace new not
    operator or private protected public register restrict return short signed sizeof static struct switch template
    this throw true try typedef typename typeof union unix unsigned using virtual void volatile while xor""".split()
)


class Block:
    """Lines of one block and what has been computed in it."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.lines: list[str] = []
        self.memo: dict[object, str] = {}


class Writer:
    """One function being written."""

    def __init__(self) -> None:
        self.blocks = [Block(0)]
        self.taken: dict[str, int] = {}

    @property
    def depth(self) -> int:
        return self.blocks[-1].depth

    def name(self, wanted: str) -> str:
        """A variable's name like `wanted` that nothing in this function has."""
        plain = word(wanted)
        if plain[0].isdigit() or plain in RESERVED or plain.startswith("hw_"):
            plain = f"v_{plain}"
        count = self.taken.get(plain)
        self.taken[plain] = (count or 0) + 1
        if count is None:
            return plain
        return self.name(f"{plain}_{count}")

    def line(self, text: str) -> None:
        self.blocks[-1].lines.append(f"{'  ' * (self.depth + 1)}{text}")

    def line_at(self, depth: int, text: str) -> None:
        """A line in an enclosing block, before the block that is being written there."""
        self.blocks[depth].lines.append(f"{'  ' * (depth + 1)}{text}")

    def remembered(self, key: object) -> str | None:
        """What is known under this key here or in an enclosing block."""
        for block in reversed(self.blocks):
            found = block.memo.get(key)
            if found is not None:
                return found
        return None

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """The lines of a nested block, for the caller to put where they belong."""
        inner = Block(self.depth + 1)
        self.blocks.append(inner)
        try:
            yield inner.lines
        finally:
            self.blocks.pop()

    @contextmanager
    def block(self, head: str | None, foot: str = "}", above: str = "") -> Iterator[None]:
        """`head { ... foot`.  The head is written last: what the block defines outside stands before it.

        head None: no line marks the block.  above: directives that belong to the head.
        """
        with self.captured() as lines:
            yield
        if head is None:
            self.blocks[-1].lines += [line.removeprefix("  ") for line in lines]
            return
        self.blocks[-1].lines += above.splitlines()
        self.line(f"{head} {{" if head else "{")
        self.blocks[-1].lines += lines
        self.line(foot)

    def text(self) -> str:
        return "\n".join(self.blocks[0].lines)


def word(name: str) -> str:
    """The name with what no identifier may have replaced."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "x"


def unbracketed(text: str) -> str:
    """Without the pair of brackets around the whole expression."""
    return text[1:-1] if is_bracketed(text) else text


def is_bracketed(text: str) -> bool:
    """Is the first bracket closed by the last?"""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False
