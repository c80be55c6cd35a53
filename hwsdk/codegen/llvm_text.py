"""A function of LLVM text under construction: blocks, fresh names, scopes.

Design choice: a block keeps its terminator apart from its lines, so code can still be added to a block that has ended.
That is all hoisting needs: the block before a loop dominates the loop, and an expression that does not change in the
loop is appended there while the loop is being written.  The text is final; no pass has to clean it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_NAME = re.compile(r"%[\w.$-]+")
_PLAIN = re.compile(r"[A-Za-z_.$-][\w.$-]*", re.ASCII)


def symbol(name: str) -> str:
    """A global name as text; one that is no plain word is quoted, byte by byte where it must be."""
    if _PLAIN.fullmatch(name):
        return f"@{name}"
    quoted = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in name.encode())
    return f'@"{quoted}"'


@dataclass
class Block:
    label: str
    phis: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    end: str = ""


@dataclass
class Scope:
    """A region that is left as a whole: the function, a loop body, one side of a branch.

    `before` is the block in the parent from which the region is entered.  `memo` holds what has been computed in this
    region and so dominates the rest of it.  `kind`: function, loop, branch (hoisting passes), case (hoisting stops).
    """

    kind: str
    depth: int
    parent: Scope | None
    before: Block | None
    memo: dict[object, str] = field(default_factory=dict)


class Function:
    """Text of one function.  `op` appends an instruction to the current block and returns the name of its result."""

    def __init__(
        self, name: str, params: Sequence[tuple[str, str]], attributes: str = "", linkage: str = ""
    ) -> None:
        self.name = name
        self.params = tuple(params)
        self.attributes = attributes
        self.linkage = linkage
        self.count = 0
        self.allocas: list[str] = []
        self.aliases: dict[str, str] = {}
        self.entry = Block("entry")
        self.blocks = [self.entry]
        self.current = self.entry
        self.scope = Scope("function", 0, None, None)
        self.rolled = 0  # loops that must stay loops

    # ----------------------------------------------------------------------------------------------- instructions
    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def op(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.current.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.current.lines.append(f"  {text}")

    def alloca(self, type_text: str, count: int, align: int, space: int = 0) -> str:
        """A generic pointer to private memory; `space`: the address space that it lies in."""
        name = self.fresh()
        where = f", addrspace({space})" if space else ""
        self.allocas.append(f"  {name} = alloca [{count} x {type_text}], align {align}{where}")
        if not space:
            return name
        generic = self.fresh()
        self.allocas.append(f"  {generic} = addrspacecast ptr addrspace({space}) {name} to ptr")
        return generic

    # ------------------------------------------------------------------------------------------------------ blocks
    def block(self, hint: str) -> Block:
        self.count += 1
        return Block(f"{hint}{self.count}")

    def enter(self, block: Block) -> None:
        self.blocks.append(block)
        self.current = block

    def branch(self, to: Block) -> Block:
        """Ends the current block; returns it (as a predecessor for phis)."""
        self.current.end = f"  br label %{to.label}"
        return self.current

    def branch_if(self, condition: str, yes: Block, no: Block) -> Block:
        self.current.end = f"  br i1 {condition}, label %{yes.label}, label %{no.label}"
        return self.current

    def stays_rolled(self, latch: Block) -> None:
        """No later tool unrolls the loop that `latch` ends: whoever wrote it has decided how long its body is."""
        self.rolled += 1
        latch.end += f", !llvm.loop !{self.rolled}"

    @contextmanager
    def at(self, block: Block) -> Iterator[None]:
        """Append to `block` for a while."""
        saved, self.current = self.current, block
        try:
            yield
        finally:
            self.current = saved

    # ------------------------------------------------------------------------------------------------------ scopes
    @contextmanager
    def region(self, kind: str, before: Block | None) -> Iterator[Scope]:
        """A new innermost scope; `depth` grows by one."""
        outer = self.scope
        self.scope = Scope(kind, outer.depth + 1, outer, before)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def home(self, depth: int) -> tuple[Scope, Block]:
        """Where to put something that only depends on what is known at `depth`: as far out of loops as possible."""
        scope, best, place = self.scope, self.scope, self.current
        while (
            scope.depth > depth
            and scope.kind != "case"
            and scope.parent is not None
            and scope.before is not None
        ):
            before, loop = scope.before, scope.kind == "loop"
            scope = scope.parent
            if loop:
                best, place = scope, before
        return best, place

    def remembered(self, key: object, depth: int) -> str | None:
        """A value stored under `key` in any scope from the innermost out to `depth`."""
        scope: Scope | None = self.scope
        while scope is not None and scope.depth >= depth:
            found = scope.memo.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def once(self, key: object, depth: int, text: str) -> str:
        """The instruction `text`, at its home, unless `key` has been computed already."""
        found = self.remembered(key, depth)
        if found is not None:
            return found
        scope, place = self.home(depth)
        if place is self.current:
            name = self.op(text)
        else:
            with self.at(place):
                name = self.op(text)
        scope.memo[key] = name
        return name

    # -------------------------------------------------------------------------------------------------------- text
    def text(self) -> str:
        params = ", ".join(f"{t} {n}" for t, n in self.params)
        out = [
            f"define {self.linkage} void {symbol(self.name)}({params}) {self.attributes} {{".replace(
                "  ", " "
            )
        ]
        for block in self.blocks:
            out.append(f"{block.label}:")
            if block is self.entry:
                out += self.allocas
            out += block.phis
            out += block.lines
            out.append(block.end or "  ret void")
        out.append("}\n")
        if self.rolled:
            out += [f"!{n} = distinct !{{!{n}, !0}}" for n in range(1, self.rolled + 1)]
            out.append('!0 = !{!"llvm.loop.unroll.disable"}\n')
        body = "\n".join(out)
        return _NAME.sub(self._final, body) if self.aliases else body

    def _final(self, match: re.Match[str]) -> str:
        name = match[0]
        while name in self.aliases:
            name = self.aliases[name]
        return name
