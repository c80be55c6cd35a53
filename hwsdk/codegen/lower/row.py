"""Row kernels on a SIMD core: reductions over a row stitched with the maps before and after it.

Design choice: one row at a time, in passes over a row that stays in the nearest cache.  Neighbouring blocks
share a pass when the later one needs only the same element of the earlier one; row-long intermediates live in
a scratch row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Buffer,
    Const,
    For,
    If,
    Index,
    Let,
    Load,
    Reduce,
    Ref,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    Tasks,
    at,
    compare,
    finish_kernel,
    finished,
    flatten_block,
    lets_for,
    merge,
    rows_per_task,
)
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.planner.problem import typical
from hwsdk.codegen.rewrite import Rewriter, refs
from hwsdk.codegen.schedule import RowSchedule
from hwsdk.graph.dims import Ranges, floordiv, mod, product, substitute, sym

ELEMENTS_PER_TASK = 4096
DECISIONS = ("accumulators", "rows_per_task")  # what is read of a schedule
CHAINS = 4  # independent partial results: hides the latency of the combining operation


def lower_row(
    kernel: Kernel, machine: Machine, ranges: Ranges, level: str, schedule: RowSchedule | None = None
) -> list[Lowered]:
    return [RowLowering(kernel, machine, ranges, level, schedule).lower()]


class RowLowering:
    """Lowers one row kernel; `rows` and `inner` are the iters of the row space and inside a row, once `row`
    ran.
    """

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        ranges: Ranges,
        level: str,
        schedule: RowSchedule | None = None,
    ) -> None:
        self.kernel, self.machine, self.ranges, self.level = kernel, machine, ranges, level
        self.schedule = schedule
        self.chains = CHAINS if schedule is None else schedule.accumulators
        self.namer = Namer(kernel)

    def lower(self) -> Lowered:
        """Rows in tasks of some thousand elements."""
        body = self.row()
        cost = product(i.extent for i in self.inner)
        rows = rows_per_task(cost, ELEMENTS_PER_TASK) if self.schedule is None else self._rows(self.schedule)
        tasks = Tasks(tuple(self.rows), rows)
        work = tasks.rows * cost * (2 + len(self.kernel.blocks))
        loop = tasks.loop(self.level, self.namer, tuple(body))
        return finish_kernel(
            self.kernel, self.namer, self.machine, loop, tasks.grid, work,
            schedule=self.schedule, decisions=() if self.schedule is None else DECISIONS,
        )  # fmt: skip

    def _rows(self, schedule: RowSchedule) -> Index:
        """As many rows as make a task of the planned size, whatever the length of a row turns out to be."""
        length = product(i.extent for i in self.inner)
        likely = planner_extent(length, self.ranges)
        return rows_per_task(length, schedule.rows_per_task * max(1, typical(likely)))

    def row(self) -> list[Stmt]:
        """All passes over the row that the iters `rows` name."""
        flats = self.prepared()
        length = product(i.extent for i in self.inner)
        place = self.machine.near.name
        body: list[Stmt] = [
            Alloc(Buffer(self.names[t.name], t.dtype, (length,), place, align_bytes=64))
            for t in self.kernel.temps
            if t.name in self.long
        ]
        done: set[str] = set()
        for phase in self._phases(flats):
            body += self._phase(phase, done)
        return body

    def prepared(self) -> list[FlatBlock]:
        """The blocks over merged iters, statistics of the row as values; fixes `rows` and `inner`."""
        flats = [flatten_block(self.kernel, b, self.namer, self.ranges) for b in self.kernel.blocks]
        spaces = {i.name: replace(i, kind="parallel") for f in flats for i in f.block.iters}
        rows = [i for n, i in spaces.items() if n.startswith("p")]
        inner = [i for n, i in spaces.items() if n.startswith("r")]
        flats, self.rows, self.inner = self._merged(flats, rows, inner)
        self.temps = {t.name for t in self.kernel.temps}
        self.names = {b.output: self.namer.buffer[b.output] for b in self.kernel.blocks}
        self.long = {f.block.output for f in flats if not f.block.combiner and self._whole(f)}
        self.scalars = {f.block.output for f in flats} - self.long
        return [self._localised(f) for f in flats]

    def _merged(
        self, flats: list[FlatBlock], rows: list[Iter], inner: list[Iter]
    ) -> tuple[list[FlatBlock], list[Iter], list[Iter]]:
        """Flatten the row space and the space inside a row, each as far as all blocks allow."""
        whole = [f for f in flats if self._is_whole(f, inner)]
        rows, gone_rows = merge(rows, flats)
        inner, gone_inner = merge(inner, whole)
        gone = {**gone_rows, **gone_inner}
        return [at(f, gone) for f in flats], rows, inner

    def _is_whole(self, f: FlatBlock, inner: Sequence[Iter]) -> bool:
        names = {i.name for i in f.block.iters}
        return bool(inner) and inner[0].name in names

    def _whole(self, f: FlatBlock) -> bool:
        return any(i.name.startswith("r") for i in f.block.iters)

    def _localised(self, f: FlatBlock) -> FlatBlock:
        """Row statistics become values, scratch rows are indexed from the start of the row."""
        inner_index = self._inner_offset()
        back = {v: k for k, v in self.names.items()}

        def local(value: Value) -> Value | None:
            if not isinstance(value, Load) or value.buffer not in back:
                return None
            name = back[value.buffer]
            if name in self.scalars:
                return Ref(value.dtype, f"s_{value.buffer}")
            return Load(value.dtype, value.buffer, (inner_index,)) if name in self.temps else None

        rewriter = Rewriter(value=local)
        offset = inner_index if f.block.output in self.temps and f.block.output in self.long else f.offset
        return replace(
            f,
            offset=offset,
            value=rewriter(f.value),
            finish=rewriter.maybe(f.finish),
            lets=tuple(Let(x.name, rewriter(x.value)) for x in f.lets),
        )

    def _inner_offset(self) -> Index:
        offset: Index = 0
        for i in self.inner:
            offset = offset * i.extent + sym(i.name)
        return offset

    # ------------------------------------------------------------------------------------------------- phases
    def _phases(self, flats: list[FlatBlock]) -> list[list[FlatBlock]]:
        """Consecutive blocks over the row that need no statistic of each other share a pass."""
        phases: list[list[FlatBlock]] = []
        made: set[str] = set()
        for f in flats:
            if not self._whole(f):
                phases.append([f])
                made = set()
                continue

            needs = refs(f.value, *(x.value for x in f.lets))
            if phases and self._whole(phases[-1][0]) and not needs & made:
                phases[-1].append(f)
            else:
                phases.append([f])
                made = set()
            if f.block.combiner:
                made.add(f"s_{self.names[f.block.output]}")
        return phases

    def _phase(self, phase: list[FlatBlock], done: set[str]) -> list[Stmt]:
        if not self._whole(phase[0]):
            return self._statistic(phase[0])
        outer, vector = self.inner[:-1], self.inner[-1]
        accumulators = self._accumulators(phase)
        out: list[Stmt] = [s for name, f, lanes in accumulators for s in self._init(name, f, lanes)]
        bound = frozenset(i.name for i in (*self.rows, *outer))
        for f in phase:
            out += lets_for(f, frozenset(i.name for i in self.rows), done) if not outer else []
        loop = self._vectors(phase, vector, dict_names(accumulators), bound, set(done))
        for i in reversed(outer):
            loop = [For(i.name, i.extent, tuple(loop))]
        out += loop
        for name, f, lanes in accumulators:
            out += self._combine(name, f, lanes)
        return out

    def _statistic(self, f: FlatBlock) -> list[Stmt]:
        """A value per row: bound once, stored if someone outside wants it."""
        name = self.names[f.block.output]
        out: list[Stmt] = [*f.lets, Let(f"s_{name}", f.value)]
        if f.block.output not in self.temps:
            out.append(Store(name, (f.offset,), Ref(f.value.dtype, f"s_{name}")))
        return out

    def _lanes(self, phase: list[FlatBlock]) -> int:
        return self.machine.lanes(*(f.block.accumulator or f.value.dtype for f in phase))

    def _accumulators(self, phase: list[FlatBlock]) -> list[tuple[str, FlatBlock, int]]:
        lanes = self._lanes(phase)
        return [(f"c_{self.names[f.block.output]}", f, lanes) for f in phase if f.block.combiner]

    def _init(self, name: str, f: FlatBlock, lanes: int) -> list[Stmt]:
        dtype = f.block.accumulator or f.value.dtype
        zero = Const(dtype, neutral(f.block.combiner or "sum", dtype))
        c, v = self.namer.fresh("c"), self.namer.fresh("v")
        fill = For(v, lanes, (Store(name, (sym(c), sym(v)), zero),), "vector")
        return [
            Alloc(Buffer(name, dtype, (self.chains, lanes), self.machine.registers.name)),
            For(c, self.chains, (fill,), "unroll"),
        ]

    def _vectors(
        self,
        phase: list[FlatBlock],
        vector: Iter,
        names: dict[str, str],
        bound: frozenset[str],
        done: set[str],
    ) -> list[Stmt]:
        lanes = self._lanes(phase)
        block = lanes * self.chains
        out: list[Stmt] = []
        extent = vector.extent
        groups = floordiv(extent, block)
        if groups != 0 and names:
            j, c, v = (self.namer.fresh(x) for x in "jcv")
            element = sym(j) * block + sym(c) * lanes + sym(v)
            inner = For(
                v, lanes, self._body(phase, vector, element, names, sym(c), sym(v), bound, done), "vector"
            )
            out.append(For(j, groups, (For(c, self.chains, (inner,), "unroll"),)))
            start: Index = groups * block
        else:
            start = 0
        singles = floordiv(extent - start, lanes)
        if singles != 0:
            j, v = self.namer.fresh("j"), self.namer.fresh("v")
            element = start + sym(j) * lanes + sym(v)
            inner = For(v, lanes, self._body(phase, vector, element, names, 0, sym(v), bound, done), "vector")
            out.append(For(j, singles, (inner,)))
        rest = mod(extent, lanes) if not isinstance(extent, int) else extent % lanes
        if rest != 0:
            v = self.namer.fresh("v")
            body = self._body(phase, vector, extent - rest + sym(v), names, 0, sym(v), bound, done)
            tail = For(v, lanes, body, "vector", active=rest)
            out.append(tail if isinstance(rest, int) else If(compare("gt", rest, 0), (tail,)))
        return out

    def _body(
        self,
        phase: list[FlatBlock],
        vector: Iter,
        element: Index,
        names: dict[str, str],
        chain: Index,
        lane: Index,
        bound: frozenset[str],
        done: set[str],
    ) -> tuple[Stmt, ...]:
        here = {vector.name: element}
        out: list[Stmt] = []
        fresh = set(done)
        known: dict[str, Value] = {}

        def shown(value: Value) -> Value | None:
            return known.get(value.buffer) if isinstance(value, Load) else None

        share = Rewriter(index=lambda i: substitute(i, here), value=shown)
        for f in phase:
            moved = replace(f, lets=tuple(Let(x.name, share(x.value)) for x in f.lets))
            out += lets_for(moved, bound | {vector.name}, fresh)
            value = share(f.value)
            output = f.block.output
            if f.block.combiner:
                name = names[output]
                old = Load(value.dtype, name, (chain, lane))
                out.append(
                    Store(name, (chain, lane), Binary(value.dtype, COMBINE[f.block.combiner], old, value))
                )
                continue
            buffer = self.names[output]
            out.append(Store(buffer, (share.index(f.offset),), value))
            known[buffer] = value
        return tuple(out)

    def _combine(self, name: str, f: FlatBlock, lanes: int) -> list[Stmt]:
        """Partial results of chains and lanes to one value."""
        dtype = f.block.accumulator or f.value.dtype
        op = f.block.combiner or "sum"
        v = self.namer.fresh("v")
        partial: list[Value] = [Load(dtype, name, (c, sym(v))) for c in range(self.chains)]
        while len(partial) > 1:
            pairs = zip(partial[::2], partial[1::2], strict=False)
            odd = partial[-1:] if len(partial) % 2 else []
            partial = [*(Binary(dtype, COMBINE[op], a, b) for a, b in pairs), *odd]
        total: Value = Reduce(dtype, op, v, lanes, partial[0])
        total = finished(f.finish, total)
        buffer = self.names[f.block.output]
        out: list[Stmt] = [Let(f"s_{buffer}", total)]
        if f.block.output not in self.temps:
            out.append(Store(buffer, (f.offset,), Ref(total.dtype, f"s_{buffer}")))
        return out


def dict_names(accumulators: list[tuple[str, FlatBlock, int]]) -> dict[str, str]:
    return {f.block.output: name for name, f, _ in accumulators}
