"""Sorting and top-k on lanes: runs in the scratchpad, then merges of neighbouring runs.

    runs     a workgroup sorts a run of a line (or several short lines) by a bitonic network in the scratchpad
    merge    every element of a run finds its place in the neighbouring run by binary search; one launch doubles the
             length of runs.  Launches that a line is too short for have no workgroups
    top-k    only the first k of a run are merged, so all but the sorting of runs is short

Design choice: elements are ordered by key and place, which no two share, so every way of sorting gives the same result:
ties keep their order, NaN is greater than every number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.inline import both
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    Ref,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, Namer, compare, with_fallback
from hwsdk.codegen.lower.node_loops import Axis, Context, axis_of
from hwsdk.codegen.lower.ordering import less
from hwsdk.codegen.lower.simt.across import Across
from hwsdk.codegen.lower.simt.changes import NONE, fitting, power_of_two, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.lines import PLACE, POSITIONS, positions
from hwsdk.codegen.lower.simt.schedules import LaneSortSchedule, lanes_reason, scratch_reason
from hwsdk.codegen.overrides import Overrides
from hwsdk.dtypes import DTYPES
from hwsdk.errors import PlanError
from hwsdk.graph.dims import (
    Ranges,
    bounds,
    ceildiv,
    floordiv,
    gt,
    le,
    maximum,
    minimum,
    mod,
    simplify,
    sym,
)

DECISIONS = ("lanes", "run")
WAVES = 8
LONGEST = 1024  # elements of a run: longer ones would keep fewer cores busy for longer
RUNS = (64, 256)  # shorter runs, for lines that are short


def lower_ordering(
    c: Context, chip: SimtChip, ranges: Ranges, changes: Overrides = NONE
) -> tuple[list[Lowered], list[Tensor]]:
    """Values, and the positions they came from: the launches and what lies between them."""
    ordering = Ordering.of(c, chip)
    name, (_, most) = c.kernel.name, bounds(ordering.axis.extent, ranges)
    if isinstance(most, int) and most <= ordering.run:
        ordering = replace(ordering, run=1 << max(1, (most - 1).bit_length()))
    if name in changes:
        ordering = ordering.changed(changes)
    if isinstance(most, int) and most <= ordering.run:
        return [fitting(changes, name, chip, ordering.alone(ranges))], []
    between = tuple(
        Tensor(f"{c.node.outputs[0]}.{name}{n}", dtype, (ordering.lines * ordering.axis.extent,))
        for n in range(2)
        for name, dtype in (("keys", ordering.dtype), ("places", PLACE))
    )
    required = positions(c, ordering.axis.extent, ranges)
    made = ordering.in_runs(between, ranges, most if isinstance(most, int) else POSITIONS)
    first = fitting(changes, name, chip, replace(made[0], requires=required))
    return [first, *made[1:]], [*between]


@dataclass(frozen=True)
class Ordering:
    """One sort or top_k.  count: elements of a line that are wanted.  lanes: of a workgroup.  run: elements that it
    sorts in the scratchpad."""

    c: Context
    chip: SimtChip
    axis: Axis
    count: Index
    descending: bool
    dtype: str
    lanes: int
    run: int

    @staticmethod
    def of(c: Context, chip: SimtChip) -> Ordering:
        top = c.node.op == "top_k"
        source = c.node.inputs[0]
        axis = axis_of(c.shape(source), c.node.attrs["axis"])
        descending = c.node.attrs["largest" if top else "descending"]
        count = c.node.attrs["k"] if top else axis.extent
        lanes, dtype = chip.waves(WAVES) * chip.width, c.dtype(source)
        return Ordering(c, chip, axis, count, descending, dtype, lanes, _longest(chip, dtype))

    def changed(self, changes: Overrides) -> Ordering:
        """The same as somebody asked for."""
        name, plan = self.c.kernel.name, self._schedule(self.run, self._many(self.run))
        plan = changes.apply(name, plan, DECISIONS)
        waves_of(changes, name, self.chip, plan.lanes)
        power_of_two(changes, name, "run", plan.run, _longest(self.chip, self.dtype))
        if plan.lanes & (plan.lanes - 1) or plan.run < 2:
            changes.refuse(
                name, f"{plan.lanes} lanes, run {plan.run}: both are powers of two, a run at least 2"
            )
        return replace(self, lanes=plan.lanes, run=plan.run)

    def _many(self, run: int) -> int:
        """Runs that a workgroup takes at once."""
        return max(run, 2 * self.lanes) // run

    @property
    def lines(self) -> Index:
        return self.axis.outer * self.axis.inner

    @property
    def waves(self) -> int:
        return self.lanes // self.chip.width

    # ------------------------------------------------------------------------------------------------------- launches
    def alone(self, ranges: Ranges) -> Lowered:
        """Lines that one run holds."""
        sizes = [r for r in RUNS if r < self.run] if not isinstance(self.axis.extent, int) else []
        main = replace(self._runs(self.c, self.run, "", direct=True), decisions=DECISIONS)
        return self._by_length([*sizes, self.run], main, ranges)

    def _by_length(
        self, sizes: list[int], main: Lowered, ranges: Ranges, c: Context | None = None
    ) -> Lowered:
        """Versions for lines of up to each size, the last of which is `main`."""
        for run in reversed(sizes[:-1]):
            fits = simplify(le(self.axis.extent, run), ranges)
            if fits != 0:
                short = self._runs(c or self.c, run, f"_{run}", direct=True)
                main = with_fallback(short, fits, main)
        return main

    def in_runs(self, between: tuple[Tensor, ...], ranges: Ranges, most: int) -> list[Lowered]:
        """Runs, merges, and the result from where the last merge left it."""
        keys0, places0, keys1, places1 = between
        kernel = self.c.kernel
        around = self._around(replace(kernel, outputs=(*kernel.outputs, keys0, places0)))
        longest, extent = self.run, self.axis.extent
        runs = replace(self._runs(around, longest, "_runs", direct=False), decisions=DECISIONS)
        fits = simplify(le(extent, longest), ranges)
        if fits != 0:
            sizes = [*(r for r in RUNS if r < longest), longest, 2 * longest]
            runs = self._by_length(sizes, runs, ranges, around)
        out, done, width = [runs], list[Index](), longest
        merge = self._merge(self._around(replace(kernel, inputs=(keys0, places0), outputs=(keys1, places1))))
        names = {keys0.name: keys1.name, places0.name: places1.name}
        turned = tuple({**names, **{v: k for k, v in names.items()}}[a] for a in merge.args)
        while width < most:
            number = len(done)
            dims: dict[str, Index] = {"run": width, "halvings": width.bit_length()}
            given = tuple(dims[d] if d in dims else sym(d) for d in merge.loop.dims)
            loop = replace(merge.loop, name=f"{kernel.name}_merge{number}")
            grid = self._merges(width)
            out.append(
                replace(merge, loop=loop, args=turned if number % 2 else merge.args, dims=given, grid=grid)
            )
            done.append(gt(extent, width))
            width *= 2
        last = self._last(self._around(replace(kernel, inputs=between)))
        dims = {"merged": mod(sum(done[1:], done[0]), 2)}
        given = tuple(dims[d] if d in dims else sym(d) for d in last.loop.dims)
        return [*out, replace(last, dims=given)]

    def _around(self, kernel: Kernel) -> Context:
        return replace(self.c, kernel=kernel, namer=Namer(kernel))

    def _schedule(self, run: int, lines: int) -> LaneSortSchedule:
        assert self.chip.scratch is not None
        why = (lanes_reason(self.chip, self.lanes), scratch_reason(self.chip, "run", run))
        return LaneSortSchedule(self.lanes, run, lines, why=why)

    # ----------------------------------------------------------------------------------------------------------- order
    def _after(self, x: Value, x_at: Value, y: Value, y_at: Value) -> Value:
        """Does (x, x_at) go after (y, y_at)?  A negative place is that of no element and goes last."""
        none = Const(PLACE, 0)
        x_none, y_none = (Binary("bool", "lt", p, none) for p in (x_at, y_at))
        plain = less(x, y) if self.descending else less(y, x)
        other = less(y, x) if self.descending else less(x, y)
        tie = Unary("bool", "not", Binary("bool", "or", plain, other))
        later = Binary("bool", "or", plain, Binary("bool", "and", tie, Binary("bool", "gt", x_at, y_at)))
        real = Binary("bool", "and", Unary("bool", "not", y_none), Binary("bool", "or", x_none, later))
        return real

    # ------------------------------------------------------------------------------------------------------------ runs
    def _runs(self, c: Context, run: int, ending: str, direct: bool) -> Lowered:
        """Every run of every line, sorted.  direct: a line is one run, and the result goes where it belongs."""
        chip, lanes = self.chip, self.lanes
        slots, many = max(run, 2 * lanes), self._many(run)
        each: Index = 1 if direct else ceildiv(self.axis.extent, run)
        grid = ceildiv(self.lines * each, many)
        assert chip.scratch is not None
        keys, places = (
            Buffer(n, d, (slots,), chip.scratch.name) for n, d in (("keys", self.dtype), ("places", PLACE))
        )
        turns = slots // lanes
        walk = [
            For("turn", turns, self._fetch(run, many, each)),
            self._barrier,
            self._network(run, slots),
            For("turn", turns, self._store(run, many, each, direct)),
        ]
        loop = For(
            "group", grid, (Alloc(keys), Alloc(places), *chip.lanes(self.waves, tuple(walk))), "parallel",
            chip.group.name,
        )  # fmt: skip
        made = c.done((loop,), grid, self.lines * self.axis.extent * 16)
        name = f"{c.kernel.name}{ending}"
        kernel = replace(made.loop, name=name)
        return replace(made, loop=kernel, version_of=c.kernel.name, schedule=self._schedule(run, many))

    @property
    def _barrier(self) -> Stmt:
        return Across(self.chip, 1, None).barrier()

    def _slot(self, run: int, many: int, each: Index) -> list[Stmt]:
        """Which element of which line a slot of the scratchpad belongs to."""
        slot = sym("turn") * self.lanes + sym("t")
        return [
            Let("slot", FromIndex("i64", slot)),
            Let("number", FromIndex("i64", sym("group") * many + floordiv(sym("slot"), run))),
            Let("line", FromIndex("i64", floordiv(sym("number"), each) if each != 1 else sym("number"))),
            Let("first", FromIndex("i64", mod(sym("number"), each) * run if each != 1 else 0)),
            Let("e", FromIndex("i64", mod(sym("slot"), run))),
            *decode_lets(self.axis.lines(), sym("line")),
        ]

    def _fetch(self, run: int, many: int, each: Index) -> Body:
        at = sym("first") + sym("e")
        known = both(compare("lt", sym("line"), self.lines), compare("lt", at, self.axis.extent))
        assert known is not None
        take: Body = (
            Store("keys", (sym("slot"),), Load(self.dtype, "a0", (self.axis.at(at),))),
            Store("places", (sym("slot"),), FromIndex(PLACE, at)),
        )
        none: Body = (
            Store("keys", (sym("slot"),), Const(self.dtype, 0)),
            Store("places", (sym("slot"),), Const(PLACE, -1)),
        )
        return (*self._slot(run, many, each), If(known, take, none))

    def _network(self, run: int, slots: int) -> Stmt:
        """Bitonic stages: comparisons over `stride` inside blocks of `size`, whose directions alternate."""
        one, stages = Const("i64", 1), run.bit_length() - 1

        def power(i: Index) -> Value:
            return Binary("i64", "shl", one, FromIndex("i64", i))

        pair, low = Ref("i64", "pair"), Ref("i64", "low")
        here = sym("left")
        keys = [Load(self.dtype, "keys", (i,)) for i in (here, here + sym("stride"))]
        places = [Load(PLACE, "places", (i,)) for i in (here, here + sym("stride"))]
        names = [Ref(self.dtype, "x"), Ref(self.dtype, "y")]
        spots = [Ref(PLACE, "p"), Ref(PLACE, "q")]
        forward = self._after(names[0], spots[0], names[1], spots[1])
        backward = self._after(names[1], spots[1], names[0], spots[0])
        within = Binary("i64", "and", FromIndex("i64", here), Const("i64", run - 1))
        rising = Binary("bool", "eq", Binary("i64", "and", within, Ref("i64", "size")), Const("i64", 0))
        swap: Body = (
            Store("keys", (here,), names[1]),
            Store("keys", (here + sym("stride"),), names[0]),
            Store("places", (here,), spots[1]),
            Store("places", (here + sym("stride"),), spots[0]),
        )
        compared: Body = (
            Let("pair", FromIndex("i64", sym("turn") * self.lanes + sym("t"))),
            Let("low", Binary("i64", "and", pair, Binary("i64", "sub", Ref("i64", "stride"), one))),
            Let("left", Binary("i64", "sub", Binary("i64", "add", pair, pair), low)),
            Let("x", keys[0]),
            Let("y", keys[1]),
            Let("p", places[0]),
            Let("q", places[1]),
            If(Select("bool", rising, forward, backward), swap),
        )
        step: Body = (
            Let("stride", power(sym("stage") - sym("step"))),
            For("turn", slots // 2 // self.lanes, compared),
            self._barrier,
        )
        stage: Body = (Let("size", power(sym("stage") + 1)), For("step", sym("stage") + 1, step))
        return For("stage", stages, stage)

    def _store(self, run: int, many: int, each: Index, direct: bool) -> Body:
        rank = sym("first") + sym("e")
        key, place = Load(self.dtype, "keys", (sym("slot"),)), Load(PLACE, "places", (sym("slot"),))
        real = both(compare("lt", sym("line"), self.lines), Binary("bool", "ge", place, Const(PLACE, 0)))
        wanted = both(real, compare("lt", sym("e"), self.count))
        assert wanted is not None
        if direct:
            at = (sym("o") * self.count + rank) * self.axis.inner + sym("i")
            put: Body = (Store("o0", (at,), key), Store("o1", (at,), Cast("i64", place)))
        else:
            at = sym("line") * self.axis.extent + rank
            put = (Store("o2", (at,), key), Store("o3", (at,), place))
        return (*self._slot(run, many, each), If(wanted, put))

    # ---------------------------------------------------------------------------------------------------------- merges
    def _merges(self, run: Index) -> Index:
        """Workgroups of a merge; none where a line is no longer than one run."""
        units = self.lines * ceildiv(self.axis.extent, run) * minimum(run, self.count)
        return ceildiv(units, self.lanes) * gt(self.axis.extent, run)

    def _merge(self, c: Context) -> Lowered:
        """Runs of `run` elements to runs of twice that; `halvings`: steps of a binary search in one."""
        chip, extent = self.chip, self.axis.extent
        run, kept = sym("run"), minimum(sym("run"), self.count)
        runs = ceildiv(extent, run)
        grid = self._merges(run)
        other = sym("mine") + 1 - 2 * mod(sym("mine"), 2)
        x, p = Ref(self.dtype, "x"), Ref(PLACE, "p")
        middle = floordiv(sym("low") + sym("high"), 2)
        there = sym("line") * extent + other * run + sym("middle")
        y, q = Load(self.dtype, "a0", (there,)), Load(PLACE, "a1", (there,))
        halve: Body = (
            Let("low", Load("i64", "least", ())),
            Let("high", Load("i64", "most", ())),
            Let("middle", FromIndex("i64", middle)),
            If(
                compare("lt", sym("low"), sym("high")),
                (
                    If(
                        self._after(x, p, y, q),
                        (Store("least", (), FromIndex("i64", sym("middle") + 1)),),
                        (Store("most", (), Ref("i64", "middle")),),
                    ),
                ),
            ),
        )
        here = sym("line") * extent + sym("mine") * run + sym("j")
        left = maximum(0, minimum(kept, extent - other * run))
        rank = sym("j") + sym("before")
        target = sym("line") * extent + floordiv(sym("mine"), 2) * 2 * run + rank
        write: Body = (Store("o0", (target,), x), Store("o1", (target,), p))
        element: Body = (
            Let("x", Load(self.dtype, "a0", (here,))),
            Let("p", Load(PLACE, "a1", (here,))),
            *(Alloc(c.scalar(n, "i64")) for n in ("least", "most")),
            Store("least", (), Const("i64", 0)),
            Store("most", (), FromIndex("i64", left)),
            For("halving", sym("halvings"), halve),
            Let("before", Load("i64", "least", ())),
            If(compare("lt", rank, self.count), write),
        )
        lets = {
            "line": floordiv(sym("unit"), runs * kept),
            "mine": floordiv(mod(sym("unit"), runs * kept), kept),
            "j": mod(sym("unit"), kept),
        }
        body: Body = (
            Let("unit", FromIndex("i64", sym("group") * self.lanes + sym("t"))),
            If(
                compare("lt", sym("unit"), self.lines * runs * kept),
                (
                    *(Let(n, FromIndex("i64", v)) for n, v in lets.items()),
                    If(compare("lt", sym("mine") * run + sym("j"), extent), element),
                ),
            ),
        )
        loop = For("group", grid, chip.lanes(self.waves, body), "parallel", chip.group.name)
        made = c.done((loop,), grid, self.lines * extent)
        return replace(made, schedule=self._schedule(1, self.lanes))

    def _last(self, c: Context) -> Lowered:
        """The result from the buffers that hold it: the second pair after an odd number of merges."""
        units = self.lines * self.count * gt(self.axis.extent, self.run)
        grid = ceildiv(units, self.lanes)
        at = sym("line") * self.axis.extent + sym("rank")
        out = (sym("o") * self.count + sym("rank")) * self.axis.inner + sym("i")

        def copy(first: int) -> Body:
            place = Load(PLACE, f"a{first + 1}", (at,))
            return (
                Store("o0", (out,), Load(self.dtype, f"a{first}", (at,))),
                Store("o1", (out,), Cast("i64", place)),
            )

        body: Body = (
            Let("unit", FromIndex("i64", sym("group") * self.lanes + sym("t"))),
            If(
                compare("lt", sym("unit"), units),
                (
                    Let("line", FromIndex("i64", floordiv(sym("unit"), self.count))),
                    Let("rank", FromIndex("i64", mod(sym("unit"), self.count))),
                    *decode_lets(self.axis.lines(), sym("line")),
                    If(compare("eq", sym("merged"), 0), copy(0), copy(2)),
                ),
            ),
        )
        loop = For("group", grid, self.chip.lanes(self.waves, body), "parallel", self.chip.group.name)
        made = c.done((loop,), grid, units)
        kernel = replace(made.loop, name=f"{c.kernel.name}_last")
        return replace(made, loop=kernel, schedule=self._schedule(1, self.lanes))


def _longest(chip: SimtChip, dtype: str) -> int:
    """Elements of the longest run that half of a scratchpad holds."""
    scratch = chip.scratch
    if scratch is None:
        raise PlanError(f"target {chip.target.name}: no scratchpad per {chip.group.name} to sort in")
    room = (scratch.usable_bytes or 0) // 2 // (DTYPES[dtype].size_bytes + DTYPES[PLACE].size_bytes)
    return max(2 * chip.width, min(LONGEST, 1 << (max(1, room).bit_length() - 1)))
