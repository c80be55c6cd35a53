"""Running totals along an axis, by teams of lanes.

    scan    a team takes chunks of a line, some neighbours per lane: totals of lanes are combined by exchanges (a lane
            adds what its partner block before it found), totals of lockstep groups through the scratchpad, and the
            total of all chunks so far is carried on in a register
    split   few long lines: a first kernel adds up parts of them, a second scans every part from what lies before it

Design choice: the order of combination depends on sizes alone, so results do not change from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwsdk.codegen.blocks import Kernel, Tensor
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
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, Namer, compare
from hwsdk.codegen.lower.node_loops import Axis, Context, cumulative_line
from hwsdk.codegen.lower.simt.across import carried
from hwsdk.codegen.lower.simt.changes import NONE, fitting, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.lines import ITEMS, WAVES, Team, by_teams, over_teams
from hwsdk.codegen.lower.simt.schedules import (
    LaneLineSchedule,
    lanes_reason,
    wide_reason,
    workers_reason,
)
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.codegen.overrides import Overrides
from hwsdk.graph.dims import Ranges, bounds, ceildiv, floordiv, minimum, mod, product, sym

DECISIONS = ("lanes", "split")
CHUNKS = 4  # chunks of a line that make it worth to bring in another workgroup


def lower_cumulative(
    c: Context, chip: SimtChip, ranges: Ranges, changes: Overrides = NONE
) -> tuple[list[Lowered], list[Tensor]]:
    """The launches and what lies between them."""
    axis, alone = cumulative_line(c)
    scan = Scan.of(c, axis)
    most = _parts(chip, axis, ranges)
    if most is not None:
        return _split(c, chip, scan, most, changes)
    return [over_teams(c, chip, ranges, axis, alone, scan.body, changes)], []


def _parts(chip: SimtChip, axis: Axis, ranges: Ranges) -> int | None:
    """Workgroups of a line, at most; None where lines alone keep the cores busy or are short."""
    lines, length = (bounds(x, ranges)[1] for x in (product((axis.outer, axis.inner)), axis.extent))
    workers = chip.target.workers()
    if not isinstance(lines, int) or lines * 2 > workers or chip.scratch is None:
        return None
    if isinstance(length, int) and length <= 2 * _chunk(chip.waves(WAVES) * chip.width):
        return None
    return max(2, 2 * workers // max(1, lines))


def _chunk(lanes: int) -> int:
    """Elements of a line that make it worth to bring in another workgroup."""
    return lanes * ITEMS * CHUNKS


def _split(
    c: Context, chip: SimtChip, scan: Scan, most: int, changes: Overrides
) -> tuple[list[Lowered], list[Tensor]]:
    """Totals of parts, then every part from the total before it."""
    name = c.kernel.name
    lanes = chip.waves(WAVES) * chip.width
    why = (lanes_reason(chip, lanes), wide_reason(chip, ITEMS), workers_reason(chip, "split", most))
    plan = changes.apply(name, LaneLineSchedule(lanes, 1, ITEMS, most, why), DECISIONS)
    waves = waves_of(changes, name, chip, plan.lanes)
    parts = minimum(plan.split, floordiv(scan.axis.extent, _chunk(plan.lanes)) + 1)
    between = Tensor(f"{c.node.outputs[0]}.parts", scan.dtype, (scan.axis.outer * scan.axis.inner, parts))
    team = Team(chip, waves, parts)
    first = replace(c.kernel, name=f"{name}_parts", outputs=(between,))
    second = replace(c.kernel, inputs=(*c.kernel.inputs, between))
    made = [
        replace(by_teams(_around(c, kernel), scan.axis, team, body), schedule=plan, decisions=decisions)
        for kernel, body, decisions in ((first, scan.totals, ()), (second, scan.body, DECISIONS))
    ]
    return [fitting(changes, name, chip, one) for one in made], [between]


def _around(c: Context, kernel: Kernel) -> Context:
    return replace(c, kernel=kernel, namer=Namer(kernel))


@dataclass(frozen=True)
class Scan:
    """One cumulative node.  dtype: of the totals."""

    axis: Axis
    source: str
    dtype: str
    kind: str
    reverse: bool
    exclusive: bool

    @staticmethod
    def of(c: Context, axis: Axis) -> Scan:
        source = c.dtype(c.node.inputs[0])
        dtype = "f32" if source in ("f16", "bf16") else source
        attrs = c.node.attrs
        return Scan(
            axis, source, dtype, attrs["kind"], bool(attrs.get("reverse")), bool(attrs.get("exclusive"))
        )

    def _both(self, x: Value, y: Value) -> Value:
        return Binary(self.dtype, COMBINE[self.kind], x, y)

    def _at(self, k: Index) -> Index:
        return self.axis.at(self.axis.extent - 1 - k if self.reverse else k)

    @property
    def _nothing(self) -> Const:
        return Const(self.dtype, neutral(self.kind, self.dtype))

    def _load(self, k: Index) -> Value:
        x = Load(self.source, "a0", (self._at(k),))
        return x if self.source == self.dtype else Cast(self.dtype, x)

    def _chunks(self, team: Team) -> tuple[Index, Index]:
        """(first chunk, number of chunks) of this workgroup."""
        all_ = ceildiv(self.axis.extent, team.lanes * ITEMS)
        if team.parts == 1:
            return 0, all_
        each = ceildiv(all_, team.parts)
        first = minimum(sym("part") * each, all_)
        return first, minimum(each, all_ - first)

    def _items(self, first: Index) -> Body:
        """The lane's elements of a chunk into `xs`; what does not exist changes nothing."""
        extent, v = self.axis.extent, sym("v")
        whole = For("v", ITEMS, (Store("xs", (v,), self._load(first + v)),), "vector")
        single = (If(compare("lt", first + v, extent), (Store("xs", (v,), self._load(first + v)),)),)
        return (
            For("v", ITEMS, (Store("xs", (v,), self._nothing),), "vector"),
            If(compare("le", first + ITEMS, extent), (whole,), (For("v", ITEMS, single, "unroll"),)),
        )

    def totals(self, team: Team) -> Body:
        """The total of a part of a line, for the kernel before the scan."""
        first, count = self._chunks(team)
        place = team.chip.registers.name
        begin = (sym("first_chunk") + sym("chunk")) * (team.lanes * ITEMS) + team.me * ITEMS
        own: Value = Load(self.dtype, "own", (0,))
        for v in range(ITEMS):
            own = self._both(own, Load(self.dtype, "xs", (v,)))
        step: Body = (
            Let("first", FromIndex("i64", begin)),
            Alloc(Buffer("xs", self.dtype, (ITEMS,), place)),
            *self._items(sym("first")),
            Store("own", (0,), own),
        )
        combined, total = team.across.reduce("own", self.kind, carried(self.dtype), self._carried("own"))
        place_of_part = sym("line") * team.parts + sym("part")
        return (
            Let("first_chunk", FromIndex("i64", first)),
            Alloc(Buffer("own", self.dtype, (1,), place)),
            Store("own", (0,), self._nothing),
            For("chunk", count, step),
            *combined,
            Let("whole", self._narrow(total)),
            If(
                compare("eq", sym("t"), 0),
                (Store("o0", (place_of_part,), Ref(self.dtype, "whole")),),
            ),
        )

    def _carried(self, buffer: str) -> Value:
        wide, x = carried(self.dtype), Load(self.dtype, buffer, (0,))
        return x if wide == self.dtype else Cast(wide, x)

    def _narrow(self, x: Value) -> Value:
        return x if x.dtype == self.dtype else Cast(self.dtype, x)

    def body(self, team: Team) -> Body:
        """What every lane of a team does for its line."""
        place, wide = team.chip.registers.name, carried(self.dtype)
        first, count = self._chunks(team)
        begin = (sym("first_chunk") + sym("chunk")) * (team.lanes * ITEMS) + team.me * ITEMS
        head: list[Stmt] = [
            Let("first_chunk", FromIndex("i64", first)),
            *(
                Alloc(Buffer(n, d, (1,), place))
                for n, d in (("carry", self.dtype), ("total", wide), ("before", wide))
            ),
            *team.across.registers("total", "other", wide),
            Store("carry", (0,), self._nothing),
        ]
        if team.waves > 1:
            assert team.chip.scratch is not None
            head.append(Alloc(Buffer("totals", wide, (2 * team.waves,), team.chip.scratch.name)))
        if team.parts != 1:
            earlier = Load(self.dtype, "a1", (sym("line") * team.parts + sym("earlier"),))
            add = Store("carry", (0,), self._both(Load(self.dtype, "carry", (0,)), earlier))
            head.append(For("earlier", sym("part"), (add,)))
        step: Body = (
            Let("first", FromIndex("i64", begin)),
            Alloc(Buffer("xs", self.dtype, (ITEMS,), place)),
            *self._items(sym("first")),
            *self._own(),
            *self._before(team, wide),
            *self._written(),
        )
        return (*head, For("chunk", count, step))

    def _own(self) -> list[Stmt]:
        """Running totals of the lane's own elements."""
        xs = [Load(self.dtype, "xs", (v,)) for v in range(ITEMS)]
        return [Store("xs", (v,), self._both(xs[v - 1], xs[v])) for v in range(1, ITEMS)]

    def _before(self, team: Team, wide: str) -> list[Stmt]:
        """`base`: the total of everything before the lane's elements; the carry then includes the chunk."""
        last = Load(self.dtype, "xs", (ITEMS - 1,))
        total, other = Load(wide, "total", (0,)), Load(wide, "other", (0,))
        before = Load(wide, "before", (0,))
        op = COMBINE[self.kind]
        nothing = Const(wide, neutral(self.kind, self.dtype))
        out: list[Stmt] = [
            Store("total", (0,), last if wide == self.dtype else Cast(wide, last)),
            Store("before", (0,), nothing),
        ]
        step = 1
        while step < team.chip.width:
            upper = compare("eq", mod(floordiv(sym("lane"), step), 2), 1)
            more = Select(wide, upper, Binary(wide, op, other, before), before)
            out += team.across.swapped("total", "other", wide, step)
            out += [Store("before", (0,), more), Store("total", (0,), Binary(wide, op, total, other))]
            step *= 2
        carry = Load(self.dtype, "carry", (0,))
        mine: Value = before
        chunk: Value = total
        if team.waves > 1:
            slot = mod(sym("chunk"), 2) * team.waves
            put = Store("totals", (slot + sym("wave"),), total)
            out += [If(compare("eq", sym("lane"), 0), (put,)), team.across.barrier()]
            chunk = nothing
            ahead: Value = nothing
            for w in range(team.waves):
                found = Load(wide, "totals", (slot + w,))
                ahead = Select(wide, compare("lt", w, sym("wave")), Binary(wide, op, ahead, found), ahead)
                chunk = Binary(wide, op, chunk, found)
            mine = Binary(wide, op, ahead, before)
        return [
            *out,
            Let("base", self._both(carry, self._narrow(mine))),
            Store("carry", (0,), self._both(carry, self._narrow(chunk))),
        ]

    def _written(self) -> list[Stmt]:
        extent, v, first = self.axis.extent, sym("v"), sym("first")
        base = Ref(self.dtype, "base")

        def store(v: Index, x: Value) -> Store:
            return Store(
                "o0", (self._at(first + v),), x if self.source == self.dtype else Cast(self.source, x)
            )

        shown: list[Value] = [self._both(base, Load(self.dtype, "xs", (n,))) for n in range(ITEMS)]
        if self.exclusive:
            shown = [base, *shown[:-1]]
        kept = [Store("xs", (n,), shown[n]) for n in range(ITEMS - 1, -1, -1)]
        now = Load(self.dtype, "xs", (v,))
        whole: Body = (For("v", ITEMS, (store(v, now),), "vector"),)
        single: Body = (If(compare("lt", first + v, extent), (store(v, now),)),)
        return [
            *kept,
            If(compare("le", first + ITEMS, extent), whole, (For("v", ITEMS, single, "unroll"),)),
        ]
