"""Random control flow: loops, branches, cases, outlined bodies over memory, registers and Lets, in exact integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

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
    Let,
    Load,
    LoopKernel,
    Outline,
    Reduce,
    Ref,
    Select,
    Stmt,
    Store,
    Switch,
    Value,
)
from hwsdk.codegen.loop_text import print_kernel
from hwsdk.graph.dims import maximum, minimum, mod, sym
from tests.codegen.llvm_harness import agree

LANES = 4
CELLS = 3
SIZE = 24  # elements of x and y
Draw = Callable[[Any], Any]


class Program:
    """Writes statements; `loops`, `unrolled` and `lets` are the names in scope."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.count = 0
        self.outlines = 0

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    # ----------------------------------------------------------------------------------------------------- indices
    def index(self, names: list[str]) -> Index:
        """Any integer expression."""
        terms: list[Index] = [self.draw(some.integers(-3, 5))]
        for name in names:
            terms.append(sym(name) * self.draw(some.integers(-2, 3)))
        total: Index = sum(terms)  # type: ignore[arg-type]
        kind = self.draw(some.integers(0, 6))
        if kind == 1:
            return total // self.draw(some.integers(1, 4))
        if kind == 2:
            return minimum(total, self.draw(some.integers(0, 6)))
        if kind == 3:
            return maximum(total, self.draw(some.integers(-2, 3))) * 2 - 1
        return total

    def memory(self, names: list[str], lane: bool) -> Index:
        """An offset inside x and y."""
        start = mod(self.index(names), SIZE - LANES + 1)
        return start + sym("l") * self.draw(some.sampled_from([1, 1, 1, 0])) if lane else start

    # ------------------------------------------------------------------------------------------------------ values
    def value(self, names: list[str], lets: list[str], cells: list[Index], lane: bool, depth: int) -> Value:
        pick = self.draw(some.integers(0, 7 if depth else 3))
        if pick == 0:
            return Const("i32", self.draw(some.integers(-9, 9)))
        if pick == 1:
            return Load("i32", self.draw(some.sampled_from(["x", "y"])), (self.memory(names, lane),))
        if pick == 2 and lane:
            return Load("i32", "r", (self.draw(some.sampled_from(cells)), sym("l")))
        if pick == 3 and lets:
            return Ref("i32", self.draw(some.sampled_from(lets)))
        if not depth:
            return FromIndex("i32", self.index(names))
        x, y = (self.value(names, lets, cells, lane, depth - 1) for _ in range(2))
        if pick == 4:
            return Select("i32", Binary("bool", "lt", x, y), y, x)
        if pick == 5:
            inner = self.value([*names, "w"], lets, cells, lane, 0)
            return Reduce("i32", self.draw(some.sampled_from(["sum", "max", "min"])), "w", 4, inner)
        return Binary("i32", self.draw(some.sampled_from("add sub mul max xor".split())), x, y)

    # -------------------------------------------------------------------------------------------------- statements
    def body(self, names: list[str], lets: list[str], unrolled: list[str], depth: int) -> Body:
        lets = list(lets)
        out: list[Stmt] = []
        for _ in range(self.draw(some.integers(1, 3))):
            out.append(self.statement(names, lets, unrolled, depth))
        return tuple(out)

    def statement(self, names: list[str], lets: list[str], unrolled: list[str], depth: int) -> Stmt:
        cells: list[Index] = [0, 1, 2, *(sym(u) for u in unrolled)]
        pick = self.draw(some.integers(0, 8 if depth else 3))
        if pick == 0:
            name = self.name("t")
            made = Let(name, self.value(names, lets, cells, False, 2))
            lets.append(name)
            return made
        if pick in (1, 2):
            return self.lanes(names, lets, cells)
        if pick == 3:
            return Store("y", (self.memory(names, False),), self.value(names, lets, cells, False, 2))
        return self.nested(pick, names, lets, unrolled, depth - 1)

    def lanes(self, names: list[str], lets: list[str], cells: list[Index]) -> For:
        value = self.value(names, lets, cells, True, 2)
        where = None
        if self.draw(some.booleans()):
            where = Binary("bool", "lt", self.value(names, lets, cells, True, 1), Const("i32", 3))
        if self.draw(some.booleans()):
            store = Store("r", (self.draw(some.sampled_from(cells)), sym("l")), value, where)
        else:
            store = Store("y", (mod(self.index(names), SIZE - LANES + 1) + sym("l"),), value, where)
        active = self.draw(some.sampled_from([None, None, maximum(0, minimum(LANES, self.index(names)))]))
        return For("l", LANES, (store,), "vector", active=active)

    def nested(self, pick: int, names: list[str], lets: list[str], unrolled: list[str], depth: int) -> Stmt:
        if pick == 4:
            var = self.name("u")
            return For(var, CELLS, self.body([*names, var], lets, [*unrolled, var], depth), "unroll")
        if pick in (5, 6):
            var = self.name("i")
            extent = self.draw(
                some.sampled_from([2, sym("n"), minimum(sym("n"), 2), mod(self.index(names), 3)])
            )
            return For(var, extent, self.body([*names, var], lets, unrolled, depth))
        if pick == 7:
            left, right = (FromIndex("i64", self.index(names)) for _ in range(2))
            sides = [self.body(names, lets, unrolled, depth) for _ in range(2)]
            return If(Binary("bool", self.draw(some.sampled_from(["lt", "ge", "eq"])), left, right), *sides)
        if self.draw(some.booleans()):
            cases = tuple(self.body(names, lets, unrolled, depth) for _ in range(2))
            return Switch(mod(self.index(names), 2), cases)
        self.outlines += 1
        return Outline(f"part{self.outlines}", self.body(names, lets, unrolled, depth))


@some.composite
def kernels(draw: Draw) -> LoopKernel:
    program = Program(draw)
    x, y = Buffer("x", "i32", (SIZE,), "dram"), Buffer("y", "i32", (SIZE,), "dram")
    start = For(
        "u",
        CELLS,
        (For("l", LANES, (Store("r", (sym("u"), sym("l")), Load("i32", "x", (sym("l"),))),), "vector"),),
        "unroll",
    )
    result = For(
        "u",
        CELLS,
        (
            For(
                "l",
                LANES,
                (Store("y", (sym("u") * LANES + sym("l"),), Load("i32", "r", (sym("u"), sym("l")))),),
                "vector",
            ),
        ),
        "unroll",
    )
    body: Body = (
        Alloc(Buffer("r", "i32", (CELLS, LANES), "vreg")),
        start,
        *program.body(["n"], [], [], 3),
        result,
    )
    return LoopKernel("k", (x, y), ("n",), body, ("y",))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), some.integers(0, 3), some.integers(0, 1000))
def test_random_programs(kernel: LoopKernel, n: int, seed: int) -> None:
    note(print_kernel(kernel))
    rng = np.random.default_rng(seed)
    arrays = {name: rng.integers(-9, 10, SIZE).astype(np.int32) for name in ("x", "y")}
    agree(kernel, arrays, {"n": n})
