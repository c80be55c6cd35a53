"""A kernel as Python text: statements, loops and scopes.  The machine compiles the text once and runs it many
times.

    def make(R, C, T, D, params): ...; return extent, tile     tile(p, me, tag, mine): one iteration of the
    launch

R is the run (alloc, free, intrinsics), C the counters, T the clock of the worker, D the dims.

Design choice: the text is plain sequential Python over NumPy slices.  Vector loops (and loops proved
independent) have no Python loop at all; every other loop is a Python loop.  A launch runs the whole body once
per iteration of the parallel loop, so what stands before that loop is private to an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    If,
    Intrin,
    Let,
    LoopKernel,
    Outline,
    Stmt,
    Store,
    Switch,
    Sync,
    parallel_loop,
    walk,
)
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import SimulationError
from hwsdk.graph.dims import coefficient, free_symbols
from hwsdk.sim.access_source import Accesses
from hwsdk.sim.accumulations import accumulations
from hwsdk.sim.axes import lockstep_loops, nesting
from hwsdk.sim.buffer_source import Buffers
from hwsdk.sim.chip import Chip
from hwsdk.sim.expand import expand_kernel
from hwsdk.sim.kernel_facts import Facts, touched_buffers
from hwsdk.sim.plain_cost import Entry, PlainUnits, Tally
from hwsdk.sim.program import Program
from hwsdk.sim.source import Axis, BufferVar, Scope, Symbol, Writer
from hwsdk.sim.store_source import Stores
from hwsdk.sim.use_source import Uses
from hwsdk.sim.value_source import Values

BUDGET = 1 << 16  # lanes that one NumPy operation may work on
_MAX_BLOCKS = 14  # Python allows 20 loops inside one another in one function


def generate(kernel: LoopKernel, chip: Chip | None, check: bool) -> Program:
    """The program of a verified kernel."""
    return _Generator(kernel, chip, check).run()


class _Generator:
    def __init__(self, kernel: LoopKernel, chip: Chip | None, check: bool) -> None:
        target = None if chip is None else chip.target
        self.original, self.chip, self.check = kernel, chip, check
        self.origins: dict[int, Intrin] = {}  # loops that stand for uses of intrinsics
        self.expanded = 0  # how many of them we are in
        if target is not None and target.codegen.model == "simd":
            kernel, self.origins = expand_kernel(kernel, target)
        self.kernel = kernel
        self.writer = Writer()
        self.accesses = Accesses(self.writer, check)
        self.constants: dict[str, Any] = {}
        self.values = Values(self.writer, self.accesses, self.constants)
        self.stores = Stores(kernel.name, self.writer, self.accesses, self.values)
        self.uses = Uses(self.writer, self.accesses, self.values)
        self.units = PlainUnits.of(target)
        self.entries: list[Entry] = []
        self.statements: list[Stmt] = []
        self.variables: dict[str, str] = {}  # those in scope
        self.seen: list[dict[str, str]] = []  # of each statement
        self.lockstep = lockstep_loops(kernel)
        self.accumulations = accumulations(kernel, self.lockstep)
        self.axes = self.lockstep | frozenset(self.accumulations)
        self.facts = Facts(kernel, target)
        self.buffers = Buffers(self.writer, self.facts)
        self.blocks = 0
        self.yields = False

    def run(self) -> Program:
        kernel, w = self.kernel, self.writer
        loop = parallel_loop(kernel)
        scope = Scope()
        with w.nested("def make(R, C, T, D, params):"):
            for name in kernel.dims:
                variable = w.name("d")
                w.line(f"{variable} = D[{len(scope.symbols)}]")
                self.variables[variable] = name
                scope.symbols[name] = Symbol(variable)
            for i, buffer in enumerate(kernel.params):
                self.buffers.declare(scope, buffer, f"params[{i}]", param=True)
            params = list(range(len(self.buffers.declared)))
            extent = self.extent_function(scope, loop)
            self.accesses.race = self.check and loop is not None
            with w.nested("def tile(p, me, tag, mine):"):
                if loop is not None:
                    self.variables["p"] = loop.var
                self.tile(scope, loop)
            w.line(f"return {extent}, tile")
        return Program(
            self.original,
            self.check,
            "\n".join(w.lines) + "\n",
            w.marks,
            self.statements,
            self.constants,
            self.entries,
            self.buffers.declared,
            [numpy_dtype(b.dtype) for b in self.buffers.declared],
            frozenset(i for i in params if self.facts.written(self.buffers.declared[i].name)),
            frozenset(i for i in params if self.facts.shared(self.buffers.declared[i].name)),
            frozenset(i for i, b in enumerate(self.buffers.declared) if b.name in self.facts.asynchronous),
            self.seen,
            self.yields,
        )

    def extent_function(self, scope: Scope, loop: For | None) -> str:
        if loop is None:
            return "None"
        before, count = list(self.statements), self.writer.statement
        with self.writer.nested("def extent():"):
            inner = scope.inner()
            tally = Tally(None)
            for stmt in self.kernel.body:
                if isinstance(stmt, Let):
                    self.number(stmt)
                    self.let(stmt, inner, tally)
                elif stmt is not loop:
                    self.number(stmt)
            self.number(loop)
            self.writer.line(f"return {inner.index(loop.extent)[0]}")
        self.statements, self.writer.statement = before, count
        self.seen = self.seen[: len(before)]
        return "extent"

    def tile(self, scope: Scope, loop: For | None) -> None:
        inner = scope.inner()
        if loop is None:
            self.statement_list(self.kernel.body, inner)
            return
        tally = Tally(self.units, self.entries)
        mine: list[BufferVar] = []
        for stmt in self.kernel.body:
            self.number(stmt)
            if stmt is loop:
                self.flush_clock(tally)
                inner.symbols[loop.var] = Symbol("p")
                self.statement_list(loop.body, inner)
            else:
                self.plain(stmt, inner, tally, mine)
        self.finish(tally, mine)

    # ------------------------------------------------------------ bodies
    def body(self, body: Body, scope: Scope) -> None:
        self.statement_list(body, scope.inner())

    def statement_list(self, body: Body, scope: Scope) -> None:
        """The statements of a body, in its own scope."""
        tally, around = self.tally(), dict(self.variables)
        mine: list[BufferVar] = []
        for stmt in body:
            self.number(stmt)
            if not self.expanded:
                tally.statement(self.lanes(scope))
            if isinstance(stmt, Let | Store | Alloc):
                self.plain(stmt, scope, tally, mine)
            else:
                self.flush_clock(tally)
                self.nest(stmt, scope, tally)
        self.finish(tally, mine)
        self.variables = around

    def tally(self) -> Tally:
        """For a body.  What is expanded from a use costs what the use costs, not what it is expanded to."""
        return Tally(None if self.expanded else self.units, self.entries)

    def finish(self, tally: Tally, mine: Sequence[BufferVar]) -> None:
        self.flush_clock(tally)
        for line in tally.close():
            self.writer.line(line)
        for var in reversed(mine):
            self.writer.line(f"R.free({var.cell})")

    def flush_clock(self, tally: Tally) -> None:
        for cycles in tally.take_cycles():
            self.writer.line(f"T[0] += {cycles}")

    def number(self, stmt: Stmt) -> None:
        if self.expanded:
            return
        self.statements.append(self.origins.get(id(stmt), stmt))
        self.seen.append(dict(self.variables))
        self.writer.statement = len(self.statements)

    def lanes(self, scope: Scope) -> tuple[Any, ...]:
        return tuple((a, True) for a in scope.axes)

    # ------------------------------------------------------------------------------------------ let, store,
    # alloc
    def plain(self, stmt: Stmt, scope: Scope, tally: Tally, mine: list[BufferVar]) -> None:
        if (
            self.facts.used
            and not isinstance(stmt, Alloc)
            and not self.facts.used.isdisjoint(touched_buffers(stmt))
        ):
            self.flush_clock(tally)
            self.writer.line("R.settle()")
        if isinstance(stmt, Let):
            self.let(stmt, scope, tally)
        elif isinstance(stmt, Store):
            self.values.start(scope, tally)
            self.stores.store(stmt, scope, tally)
        elif isinstance(stmt, Alloc):
            for hidden in [v for v in mine if v.buffer.name == stmt.buffer.name]:
                self.writer.line(f"R.free({hidden.cell})")
                mine.remove(hidden)
            mine.append(self.buffers.declare(scope, stmt.buffer, "", param=False))

    def let(self, stmt: Let, scope: Scope, tally: Tally) -> None:
        self.values.start(scope, tally)
        value = self.values.value(stmt.value)
        text = value.text if value.fresh else f"{value.text}.copy()"
        variable = self.writer.name("x")
        self.writer.line(f"{variable} = {text}")
        symbol = Symbol("", value.axes, None, variable)
        if stmt.name in self.facts.indices:
            symbol.index = self.writer.name("j")
            whole = f"{variable}.astype(d_i64)" if value.axes else f"int({variable})"
            self.writer.line(f"{symbol.index} = {whole}")
            self.variables[symbol.index] = stmt.name
        scope.symbols[stmt.name] = symbol

    # --------------------------------------------------------------------------------------------- control
    # flow
    def nest(self, stmt: Stmt, scope: Scope, tally: Tally) -> None:
        match stmt:
            case For() if id(stmt) in self.origins:
                self.expansion(stmt, scope, tally)
            case For():
                self.loop(stmt, scope)
            case If():
                self.branch(stmt, scope, tally)
            case Switch():
                self.switch(stmt, scope)
            case Outline(body=body):
                self.body(body, scope)
            case Intrin():
                self.uses.one(stmt, len(self.statements), scope, tally)
            case Sync(name=name):
                if self.facts.meets(name):
                    self.yields = True
                    self.writer.line(f"yield {len(self.statements)}")
                self.writer.line(f"R.sync({len(self.statements)})")
            case _:
                raise SimulationError(f"{type(stmt).__name__} is not a statement of LoopIR")

    def branch(self, stmt: If, scope: Scope, tally: Tally) -> None:
        self.values.start(scope, tally)
        condition = self.values.value(stmt.cond)
        with self.writer.nested(f"if {condition.text}:"):
            self.body(stmt.then, scope)
        if stmt.orelse:
            with self.writer.nested("else:"):
                self.body(stmt.orelse, scope)

    def switch(self, stmt: Switch, scope: Scope) -> None:
        chosen = self.writer.temp(scope.index(stmt.index)[0], "i")
        for i, case in enumerate(stmt.cases):
            with self.writer.nested(f"{'el' if i else ''}if {chosen} == {i}:"):
                self.body(case, scope)
        self.writer.line(f"else: no_case({chosen}, {len(stmt.cases)})")

    def expansion(self, loop: For, scope: Scope, tally: Tally) -> None:
        """A use of an intrinsic that runs as plain statements."""
        name = self.origins[id(loop)].name
        assert self.chip is not None
        tally.use(self.chip.cost(name), name, self.chip.intrinsics[name].ops, self.lanes(scope))
        self.expanded += 1
        self.loop(loop, scope)
        self.expanded -= 1

    def skip(self, body: Body) -> None:
        for stmt in walk(body):
            self.number(stmt)

    def loop(self, loop: For, scope: Scope) -> None:
        outer_blocks, outer_rank, around = self.blocks, scope.rank, dict(self.variables)
        inner = scope.inner()
        single = loop.kind == "vector" and loop.extent == 1
        if (id(loop) in self.lockstep and not single) or self.accumulates(loop, scope):
            if not scope.axes:
                inner.rank = nesting(loop, self.axes)
            self.axis(loop, scope, inner)
        else:
            self.python_loop(loop, scope, inner)
        self.blocks, scope.rank, self.variables = outer_blocks, outer_rank, around

    def accumulates(self, loop: For, scope: Scope) -> bool:
        """Does it run as one accumulation?  Its element must be regular over the lanes around it, too."""
        found = self.accumulations.get(id(loop))
        if found is None or loop.extent == 0:
            return False
        lanes = {n: s for n, s in scope.symbols.items() if s.axes}
        for i in found.store.index:
            for name in free_symbols(i) & lanes.keys():
                if lanes[name].axis is None or coefficient(i, name) is None:
                    return False
        return scope.buffers[found.store.buffer].prefix == ()

    def python_loop(self, loop: For, scope: Scope, inner: Scope) -> None:
        extent = scope.index(loop.extent)[0]
        if loop.active is not None:
            extent = f"min({scope.index(loop.active)[0]}, {extent})"
        variable = self.writer.name("x")
        self.variables[variable] = loop.var
        inner.symbols[loop.var] = Symbol(variable)
        count = self.writer.temp(extent, "n")
        done, before = "", len(self.entries)
        if not self.expanded:
            done = self.uses.many(loop, len(self.statements) + 1, inner, variable, count)
        with self.writer.nested(f"for {variable} in range({done + ', ' if done else ''}{count}):"):
            self.deeper(loop.body, inner)
        for entry in range(before, len(self.entries)) if done else ():
            self.writer.line(f"C[{entry}] += {done}")

    def deeper(self, body: Body, inner: Scope) -> None:
        """The body of a Python loop; now and then in a function of its own, as Python nests only 20 loops."""
        self.blocks += 1
        if self.blocks <= _MAX_BLOCKS:
            self.statement_list(body, inner)
            return
        self.blocks = 0
        function, before = self.writer.name("g"), self.yields
        self.yields = False
        with self.writer.nested(f"def {function}():"):
            self.statement_list(body, inner)
        self.writer.line(f"yield from {function}()" if self.yields else f"{function}()")
        self.yields |= before

    # ------------------------------------------------------------------------------------------------ array
    # axes
    def axis(self, loop: For, scope: Scope, inner: Scope) -> None:
        """A loop as an array axis: whole, or in chunks where it may be long."""
        position = len(scope.axes)
        extent = loop.extent
        if loop.kind == "vector":
            assert isinstance(extent, int)
            if loop.active is None:
                self.lockstep_body(
                    loop, inner, Axis(position, str(extent), extent, self.writer.name("l"), extent)
                )
                return
            count = self.writer.name("n")
            self.writer.line(f"{count} = min({scope.index(loop.active)[0]}, {extent})")
            with self.writer.nested(f"if {count} > 0:"):
                self.lockstep_body(loop, inner, Axis(position, count, None, self.writer.name("l"), extent))
            return
        inside = self.points(loop.body, scope)
        if scope.axes:
            inside = f"({inside})*{scope.product(scope.axes)}"
        whole = isinstance(extent, int) and inside.isdecimal() and extent * int(inside) <= BUDGET
        if whole and isinstance(extent, int):
            axis = Axis(position, str(extent), extent, self.writer.name("l"), repeated=True)
            if extent > 0:
                self.lockstep_body(loop, inner, axis)
            else:
                self.skip(loop.body)
            return
        base, count, limit, chunk = (self.writer.name(x) for x in "xnic")
        self.writer.line(f"{limit} = {scope.index(extent)[0]}; {chunk} = max(1, {BUDGET}//max(1, {inside}))")
        self.blocks += 1
        with self.writer.nested(f"for {base} in range(0, {limit}, {chunk}):"):
            self.writer.line(f"{count} = min({chunk}, {limit} - {base})")
            symbol = f"$base{base}"
            inner.symbols[symbol] = Symbol(base)
            self.variables[base] = loop.var
            axis = Axis(position, count, None, self.writer.name("l"), base=symbol, repeated=True)
            self.lockstep_body(loop, inner, axis)

    def lockstep_body(self, loop: For, inner: Scope, axis: Axis) -> None:
        found = None if id(loop) in self.lockstep else self.accumulations.get(id(loop))
        if found is not None:
            self.stores.accumulating[id(found.store)] = found
        place, lane_place = self.writer.reserve(), self.writer.reserve()
        lane = replace(axis, base=None, array=self.writer.name("l"))
        axis.lane = f"$lane{lane.array}"
        inner.axes.append(axis)
        along = frozenset((axis.position,))
        inner.symbols[loop.var] = Symbol(axis.array, along, axis)
        inner.symbols[axis.lane] = Symbol(lane.array, along, lane)
        self.statement_list(loop.body, inner)
        behind = inner.rank - axis.position - 1
        if axis.used:
            base = "0" if axis.base is None else inner.symbols[axis.base].index
            self.writer.fill(place, f"{axis.array} = lanes({base}, {axis.count}, {behind})")
        if lane.used:
            self.writer.fill(lane_place, f"{lane.array} = lanes(0, {lane.count}, {behind})")

    def points(self, body: Body, scope: Scope) -> str:
        """Lanes of the largest nest of axes in a body, as text; their extents do not depend on what it
        binds."""
        sizes = ["1"]
        for stmt in body:
            if isinstance(stmt, For) and id(stmt) in self.axes:
                extent, inside = scope.index(stmt.extent)[0], self.points(stmt.body, scope)
                known = extent.isdecimal() and inside.isdecimal()
                sizes.append(str(int(extent) * int(inside)) if known else f"{extent}*{inside}")
        if all(s.isdecimal() for s in sizes):
            return str(max(map(int, sizes)))
        return f"max({', '.join(sizes)})"
