"""Rules for lanes inside a workgroup: who must arrive together at a barrier or an intrinsic.

    nest     parallel loops stand directly inside one another, each on a deeper level, beside Lets and Allocs alone;
             inside the outermost their extents are constants
    meet     a barrier stands where all lanes of its scope take the same way; so does an intrinsic of a lockstep group

What may differ between lanes is found conservatively: a value read from registers may, one read from anywhere else
differs as its index does.  Design choice: a number per name says how far apart the lanes are (0 all agree, 1 those of a
lockstep group agree, 2 none need), so one comparison judges every meeting.
"""

from __future__ import annotations

from collections.abc import Iterator

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Ref,
    Stmt,
    Switch,
    Sync,
    Value,
    nested_parallel,
    parallel_loop,
    substatements,
    value_children,
)
from hwsdk.graph.dims import free_symbols
from hwsdk.target_desc.model import Target

AGREE, GROUP, LANE = 0, 1, 2


def lane_problems(kernel: LoopKernel, target: Target | None) -> Iterator[tuple[Stmt, str]]:
    """(statement, why it is wrong) for every broken rule."""
    grid = parallel_loop(kernel)
    if grid is None or nested_parallel(grid) is None:
        return
    yield from _nest(grid, target)
    walk = _Walk(kernel, target)
    yield from walk.body(kernel.body, AGREE)


def _nest(grid: For, target: Target | None) -> Iterator[tuple[Stmt, str]]:
    levels = [] if target is None else [x.name for x in target.levels]
    outer, inner = grid, nested_parallel(grid)
    while inner is not None:
        rest = [s for s in outer.body if not isinstance(s, Let | Alloc) and s is not inner]
        if rest:
            yield rest[0], "beside a parallel loop only let and alloc may stand"
        elif outer.body[-1] is not inner:
            yield inner, "the parallel loop must be the last statement"
        if not isinstance(inner.extent, int) or inner.extent < 1:
            yield inner, "a parallel loop inside a workgroup needs a constant extent of at least 1"
        if (
            inner.level in levels
            and outer.level in levels
            and levels.index(inner.level) <= levels.index(outer.level)
        ):
            yield inner, f"level {inner.level} is not inside level {outer.level}"
        outer, inner = inner, nested_parallel(inner)


class _Walk:
    def __init__(self, kernel: LoopKernel, target: Target | None) -> None:
        self.target = target
        self.apart: dict[str, int] = {}
        places = {} if target is None else {m.name: m.kind for m in target.memories}
        self.own = {p.name for p in kernel.params if places.get(p.place) == "registers"}
        self.registers = {n for n, kind in places.items() if kind == "registers"}

    def body(self, body: Body, apart: int) -> Iterator[tuple[Stmt, str]]:
        """apart: how far apart the lanes are that come here."""
        before, own = dict(self.apart), set(self.own)
        for stmt in body:
            yield from self._statement(stmt, apart)
        self.apart, self.own = before, own

    def _statement(self, stmt: Stmt, apart: int) -> Iterator[tuple[Stmt, str]]:
        match stmt:
            case Let(name=name, value=value):
                self.apart[name] = self.value(value)
            case Alloc(buffer=buffer):
                self.own.discard(buffer.name)
                if buffer.place in self.registers:
                    self.own.add(buffer.name)
            case Sync() | Intrin():
                yield from self._meeting(stmt, apart)
            case _:
                if isinstance(stmt, For):
                    self.apart[stmt.var] = self._variable(stmt)
                split = max(apart, self._split(stmt))
                for inner in substatements(stmt):
                    yield from self.body(inner, split)

    def _split(self, stmt: Stmt) -> int:
        """How far apart a statement sends the lanes that come to it."""
        match stmt:
            case For(extent=extent, kind=kind):
                return AGREE if kind == "parallel" else self.index(extent)
            case If(cond=cond):
                return self.value(cond)
            case Switch(index=index):
                return self.index(index)
        return AGREE

    def _variable(self, loop: For) -> int:
        """How far apart a loop's variable is: inside a workgroup the innermost parallel loop counts lanes."""
        if loop.kind != "parallel":
            return self.index(loop.extent)
        levels = {} if self.target is None else {x.name: x for x in self.target.levels}
        level = levels.get(loop.level or "")
        if level is not None and level.lockstep:
            return LANE
        return AGREE if level is None or level.index else GROUP

    def _meeting(self, stmt: Sync | Intrin, apart: int) -> Iterator[tuple[Stmt, str]]:
        if self.target is None:
            return
        several = False
        if isinstance(stmt, Sync):
            sync = self.target.syncs.get(stmt.name)
            if sync is None or sync.kind != "barrier":
                return
            scope = sync.scope
        else:
            found = self.target.intrinsics.get(stmt.name)
            if found is None:
                return
            scope, several = found.scope, found.scope_count > 1
        level = next((x for x in self.target.levels if x.name == scope), None)
        if level is None or level.lockstep:
            return
        if apart > (AGREE if level.index or several else GROUP):
            who = f"several {scope}s" if several else f"one {scope}"
            yield (
                stmt,
                f"lanes of {who} may take different ways here, and {stmt.name} needs all of them",
            )

    # -------------------------------------------------------------------------------------------- values and indices
    def index(self, i: Index) -> int:
        return max((self.apart.get(n, AGREE) for n in free_symbols(i)), default=AGREE)

    def value(self, root: Value) -> int:
        worst, stack, seen = AGREE, [root], set[int]()
        while stack:
            v = stack.pop()
            if id(v) in seen:
                continue
            seen.add(id(v))
            match v:
                case Ref(name=name):
                    worst = max(worst, self.apart.get(name, AGREE))
                case FromIndex(index=i):
                    worst = max(worst, self.index(i))
                case Load(buffer=name, index=index):
                    worst = max(
                        worst, LANE if name in self.own else AGREE, *(self.index(i) for i in index), AGREE
                    )
            stack += value_children(v)
        return worst
