"""Row kernels on lanes: a row belongs to a few lanes of a lockstep group, to all of one, or to a whole workgroup.

    held       what several passes read (elements of inputs, row-long intermediates) stays in registers: memory is read
               once, and every access of the row is on its way before the first pass needs it
    streamed   rows that registers cannot hold are read again in every pass, and intermediates computed again
    split      a reduction of few long rows gives a part of every row to each of many workgroups; a second kernel
               combines what they found

Design choice: the passes are those of the SIMD lowering, with the lanes of the row in the place of one vector.  An
access is as wide as the chip's widest where every row begins at a multiple of it, else one element, so that
neighbouring lanes always touch neighbouring memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel, Tensor
from hwsdk.codegen.iters import decode_lets
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
    Reduce,
    Ref,
    Select,
    Stmt,
    Store,
    Value,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    at,
    compare,
    finish_kernel,
    finished,
    with_fallback,
)
from hwsdk.codegen.lower.row import RowLowering
from hwsdk.codegen.lower.simt.across import Across, Exchange
from hwsdk.codegen.lower.simt.changes import NONE, fitting
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.row_plan import (
    DECISIONS,
    PART_DECISIONS,
    RowFacts,
    RowVersion,
    changed_parts,
    changed_rows,
    parts,
    parts_of,
    row_versions,
    streamed,
)
from hwsdk.codegen.lower.simt.schedules import LaneRowSchedule
from hwsdk.codegen.lower.simt.split import split
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    coefficient,
    eq,
    floordiv,
    free_symbols,
    le,
    minimum,
    mod,
    product,
    simplify,
    substitute,
    sym,
)


def lower_row(
    kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges, changes: Overrides = NONE
) -> tuple[list[Lowered], list[Tensor]]:
    """The launches (one kernel in versions, or a split reduction in two) and what lies between them."""
    facts = SimtRowLowering(kernel, chip, machine, ranges, streamed(chip, 1)).facts()
    plan = parts_of(chip, facts, ranges) if len(kernel.blocks) == 1 and facts.flat else None
    if plan is None:
        return [_version(kernel, chip, machine, ranges, facts, changes)], []
    name = f"{kernel.name}_parts"
    plan = changed_parts(name, chip, facts, plan, changes)
    many = parts(plan, facts)
    first, between, second = split(kernel, many)
    made = SimtRowLowering(first, chip, machine, ranges, plan, many).lower()
    made = fitting(changes, name, chip, replace(made, decisions=PART_DECISIONS))
    rest, _ = lower_row(second, chip, machine, ranges, changes)
    return [made, *rest], [between]


def _version(
    kernel: Kernel, chip: SimtChip, machine: Machine, ranges: Ranges, facts: RowFacts, changes: Overrides
) -> Lowered:
    """One kernel per version, each behind its guard."""
    found = row_versions(chip, facts, ranges)
    if kernel.name in changes:
        found = changed_rows(kernel.name, chip, facts, found, changes, ranges)
    main: Lowered | None = None
    for number, version in reversed(list(enumerate(found))):
        name = kernel.name if len(found) == 1 else f"{kernel.name}_v{number}"
        divisible = facts.divisible if version.multiple > 1 else ""
        one = replace(kernel, name=name)
        made = SimtRowLowering(one, chip, machine, ranges, version.schedule, divisible=divisible).lower()
        made = replace(
            made,
            version_of="" if len(found) == 1 else kernel.name,
            decisions=() if number else DECISIONS,
        )
        main = made if main is None else with_fallback(made, _guard(version, facts), main)
    assert main is not None
    return fitting(changes, kernel.name, chip, main)


def _guard(version: RowVersion, facts: RowFacts) -> Index:
    guard: Index = 1
    if version.most is not None:
        guard = le(facts.length, version.most)
    if version.multiple > 1:
        guard = guard * eq(mod(facts.length, version.multiple), 0)
    return guard


class SimtRowLowering(RowLowering):
    """One kernel for one schedule.  parts: workgroups that share a row of a split reduction.  divisible: a dim that is
    known to be a multiple of the width of an access."""

    def __init__(
        self,
        kernel: Kernel,
        chip: SimtChip,
        machine: Machine,
        ranges: Ranges,
        plan: LaneRowSchedule,
        parts: Index | None = None,
        divisible: str = "",
    ) -> None:
        super().__init__(kernel, machine, ranges, chip.group.name)
        self.chip, self.plan, self.parts, self.chains = chip, plan, parts, 1
        self.divisible = divisible
        self.waves = max(1, plan.lanes // chip.width)  # that share a row
        team = plan.lanes if plan.lanes < chip.width else 0
        self.across = Across(chip, self.waves, Exchange.of(chip.target, chip.width), team)
        self.recomputed: dict[str, FlatBlock] = {}
        self.kept: dict[tuple[str, Index], str] = {}  # loads that registers hold

    # ------------------------------------------------------------------------------------------------------- facts
    def facts(self) -> RowFacts:
        """What a plan is made from."""
        flats = self.prepared()
        wide = self.chip.elements(*(t.dtype for t in (*self.kernel.inputs, *self.kernel.outputs)))
        flat = len(self.inner) == 1
        length = product(i.extent for i in self.inner)
        temps, inputs = self._reread(flats) if flat else (set(), {})
        sizes = [DTYPES[self.kernel.tensor(t).dtype].bits for t in temps] + [
            DTYPES[d].bits for d in inputs.values()
        ]
        dim = next((n for n in free_symbols(length) if flat and length == sym(n)), "")
        starts = flat and self._aligned(flats, wide)
        return RowFacts(
            length=length,
            rows=product(i.extent for i in self.rows),
            wide=wide,
            aligned=starts and simplify(mod(length, wide), self.ranges) == 0,
            starts=starts,
            divisible=dim if dim and self._aligned(_multiple(flats, dim, wide), wide) else "",
            held=len(temps) + len(inputs),
            alone=self.across.alone,
            flat=flat,
            bits=max(sizes, default=32),
        )

    def _aligned(self, flats: list[FlatBlock], wide: int) -> bool:
        """Do all accesses along the row begin at multiples of `wide`, whatever the sizes?"""
        name = self.inner[-1].name
        for f in flats:
            values = (*(n.value for n in f.lets), f.value)
            moves = [x.index[0] for x in loads(*values)]
            if f.block.output not in self.temps and not f.block.combiner:
                moves.append(f.offset)
            for move in moves:
                start = move if isinstance(move, int) else substitute(move, {name: 0})
                moving = not isinstance(move, int) and name in free_symbols(move)
                if moving and coefficient(move, name) == 1 and simplify(mod(start, wide), self.ranges) != 0:
                    return False
        return True

    def _reread(self, flats: list[FlatBlock]) -> tuple[set[str], dict[tuple[str, Index], str]]:
        """(intermediates, loads of inputs with their dtype) along the row that several passes read."""
        name = self.inner[-1].name
        temps: set[str] = set()
        seen: dict[tuple[str, Index], tuple[int, str]] = {}
        inputs: dict[tuple[str, Index], str] = {}
        made: dict[str, int] = {}
        for number, phase in enumerate(super()._phases(flats)):
            for f in phase:
                own = {n.name for n in f.lets}
                for x in loads(*(n.value for n in f.lets), f.value):
                    if x.buffer in made:
                        temps |= {x.buffer} if made[x.buffer] != number else set()
                        continue
                    symbols = free_symbols(x.index[0])
                    if (
                        x.where is not None
                        or name not in symbols
                        or symbols & own
                        or not x.buffer.startswith("a")
                    ):
                        continue
                    key = (x.buffer, x.index[0])
                    if seen.setdefault(key, (number, x.dtype))[0] != number:
                        inputs[key] = x.dtype
                if f.block.output in self.long and f.block.output in self.temps:
                    made[self.names[f.block.output]] = number
        back = {v: k for k, v in self.names.items()}
        return {back[t] for t in temps}, inputs

    # ------------------------------------------------------------------------------------------------------ kernel
    def lower(self) -> Lowered:
        plan, chip = self.plan, self.chip
        body = tuple(self.row())
        rows = product(i.extent for i in self.rows)
        head: list[Stmt] = []
        if self.divisible:
            head.append(
                Let(_units(self.divisible), FromIndex("i64", floordiv(sym(self.divisible), plan.wide)))
            )
        inner = chip.lanes(plan.waves, self._place(rows, body))
        loop = For("group", ceildiv(rows, plan.rows), inner, "parallel", self.level)
        work = rows * product(i.extent for i in self.inner)
        return finish_kernel(
            self.kernel, self.namer, self.machine, (*head, loop), loop.extent, work, schedule=plan
        )

    def _place(self, rows: Index, body: Body) -> Body:
        """The row of a lane, and its work if there is that row."""
        plan, chip = self.plan, self.chip
        decode = tuple(decode_lets(self.rows, sym("row")))
        if plan.lanes >= chip.width:
            row: Index = sym("group")
            if plan.rows > 1:
                row = row * plan.rows + sym("wave")
            number = Let("row", FromIndex("i64", row))
            work: Body = (*decode, *body)
            return (number, If(compare("lt", sym("row"), rows), work)) if plan.rows > 1 else (number, *work)
        row = sym("group") * plan.rows + floordiv(sym("t"), plan.lanes)
        lets = (
            Let("place", FromIndex("i64", row)),
            Let("row", FromIndex("i64", minimum(row, rows - 1))),  # lanes behind the last row exchange, too
            Let("member", FromIndex("i64", mod(sym("lane"), plan.lanes))),
            Let("alive", compare("lt", sym("place"), rows)),
            Let(
                "limit", Select("i64", Ref("bool", "alive"), FromIndex("i64", self._length), Const("i64", 0))
            ),
        )
        return (*lets, *decode, *body)

    @property
    def _length(self) -> Index:
        return self._shown(self.inner[-1].extent)

    def _shown(self, i: Index) -> Index:
        """An index with the divisible dim said as a multiple."""
        if not self.divisible or isinstance(i, int):
            return i
        return substitute(i, {self.divisible: sym(_units(self.divisible)) * self.plan.wide})

    @property
    def me(self) -> Index:
        """The lane's number among those of its row."""
        if self.plan.lanes < self.chip.width:
            return sym("member")
        mine: Index = sym("lane") if self.waves == 1 else sym("t")
        return mine if self.parts is None else mod(sym("row"), self.parts) * self.plan.lanes + mine

    # ----------------------------------------------------------------------------------------------- intermediates
    def row(self) -> list[Stmt]:
        flats = self.prepared()
        if self.divisible:
            flats = _multiple(flats, self.divisible, self.plan.wide)
        temps, inputs = self._reread(flats) if self.plan.steps else (set(), {})
        self.held = {self.names[t] for t in temps}
        flats = [self._placed(f) for f in flats]
        kept = [f for f in flats if self.names[f.block.output] not in self.recomputed]
        count = self.plan.steps * self.plan.wide
        place = self.chip.registers.name
        body: list[Stmt] = [
            Alloc(Buffer(self.names[t], self.kernel.tensor(t).dtype, (count,), place)) for t in sorted(temps)
        ]
        body += self._fetched(inputs)
        done: set[str] = set()
        for phase in self._phases(kept):
            body += self._phase(phase, done)
        return body

    def _placed(self, f: FlatBlock) -> FlatBlock:
        """Row-long intermediates that registers do not hold become the value that they stand for."""
        made = self._inlined(f)
        name = self.names[f.block.output]
        if f.block.output in self.temps and f.block.output in self.long and name not in self.held:
            self.recomputed[name] = made
        return made

    def _inlined(self, f: FlatBlock) -> FlatBlock:
        lets: list[Let] = []

        def value(x: Value) -> Value | None:
            if not isinstance(x, Load) or x.buffer not in self.recomputed:
                return None
            source = self.recomputed[x.buffer]
            lets.extend(n for n in source.lets if n.name not in {m.name for m in lets})
            return source.value

        rewriter = Rewriter(value=value)
        body, finish = rewriter(f.value), rewriter.maybe(f.finish)
        own = tuple(Let(n.name, rewriter(n.value)) for n in f.lets)
        return replace(f, value=body, finish=finish, lets=(*lets, *own))

    def _fetched(self, inputs: dict[tuple[str, Index], str]) -> list[Stmt]:
        """Elements of inputs that several passes read, all at once into registers."""
        name, place = self.inner[-1].name, self.chip.registers.name
        count = self.plan.steps * self.plan.wide
        out: list[Stmt] = []
        for number, ((buffer, index), dtype) in enumerate(inputs.items()):
            held = f"h{number}"
            self.kept[(buffer, index)] = held
            out.append(Alloc(Buffer(held, dtype, (count,), place)))

        def fetch(element: Index, cell: Index, _v: Index) -> Body:
            return tuple(
                Store(held, (cell,), Load(inputs[(b, i)], b, (substitute(i, {name: element}),)))
                for (b, i), held in self.kept.items()
                if not isinstance(i, int)
            )

        return [*out, *self._steps(fetch)] if inputs else []

    # ------------------------------------------------------------------------------------------------------ passes
    def _lanes(self, phase: list[FlatBlock]) -> int:
        return self.plan.wide

    def _steps(self, body: Callable[[Index, Index, Index], Body]) -> list[Stmt]:
        """Every lane takes the accesses that are its turn: body(element, its cell in registers, its place in them)."""
        plan = self.plan
        step, v, first = (self.namer.fresh(x) for x in "jvf")
        lanes: Index = plan.lanes if self.parts is None else self.parts * plan.lanes
        begin = (sym(step) * lanes + self.me) * plan.wide
        whole = For(v, plan.wide, body(sym(first) + sym(v), sym(step) * plan.wide + sym(v), sym(v)), "vector")
        limit: Index = self._length if plan.lanes >= self.chip.width else sym("limit")
        part: Stmt = whole
        if (
            simplify(mod(self._length, plan.wide), self.ranges) != 0
        ):  # the last access of a row may be cut off
            e = self.namer.fresh("e")
            rest = For(e, limit - sym(first), body(sym(first) + sym(e), sym(step) * plan.wide, 0))
            part = If(compare("le", sym(first) + plan.wide, limit), (whole,), (rest,))
        inner: Body = (Let(first, FromIndex("i64", begin)), If(compare("lt", sym(first), limit), (part,)))
        if plan.steps:
            return [For(step, plan.steps, inner, "unroll")]
        return [For(step, ceildiv(self._length, lanes * plan.wide), inner)]

    def _vectors(
        self,
        phase: list[FlatBlock],
        vector: Iter,
        names: dict[str, str],
        bound: frozenset[str],
        done: set[str],
    ) -> list[Stmt]:
        def body(element: Index, cell: Index, v: Index) -> Body:
            here = [self._from_registers(f, cell) for f in phase]
            return self._body(here, vector, element, names, 0, v, bound, set(done))

        return self._steps(body)

    def _from_registers(self, f: FlatBlock, cell: Index) -> FlatBlock:
        """The block with what registers hold in its place."""

        def value(x: Value) -> Value | None:
            if not isinstance(x, Load) or x.where is not None:
                return None
            held = x.buffer if x.buffer in self.held else self.kept.get((x.buffer, x.index[0]))
            return None if held is None else Load(x.dtype, held, (cell,))

        rewriter = Rewriter(value=value)
        return replace(
            f,
            offset=cell if self.names[f.block.output] in self.held else f.offset,
            value=rewriter(f.value),
            lets=tuple(Let(n.name, rewriter(n.value)) for n in f.lets),
        )

    def _combine(self, name: str, f: FlatBlock, lanes: int) -> list[Stmt]:
        """What the lanes found, as one value; a finish sees it as r_..., the kernel as s_..."""
        dtype, op = f.block.accumulator or f.value.dtype, f.block.combiner or "sum"
        buffer, v = self.names[f.block.output], self.namer.fresh("v")
        own = Reduce(dtype, op, v, lanes, Load(dtype, name, (0, sym(v))))
        out, total = self.across.reduce(buffer, op, dtype, own)
        if f.finish is not None:
            out.append(Let(f"r_{buffer}", total))
            total = finished(f.finish, Ref(dtype, f"r_{buffer}"))
        return [*out, Let(f"s_{buffer}", total), *self._stored(f, buffer, total.dtype)]

    def _statistic(self, f: FlatBlock) -> list[Stmt]:
        name = self.names[f.block.output]
        return [*f.lets, Let(f"s_{name}", f.value), *self._stored(f, name, f.value.dtype)]

    def _stored(self, f: FlatBlock, name: str, dtype: str) -> list[Stmt]:
        """The first lane of the row stores a statistic that someone outside wants."""
        if f.block.output in self.temps:
            return []
        me: Index = self.me if self.parts is None else sym("t")
        first = compare("eq", me, 0)
        if self.plan.lanes < self.chip.width:
            first = Binary("bool", "and", first, Ref("bool", "alive"))
        return [If(first, (Store(name, (f.offset,), Ref(dtype, f"s_{name}")),))]


def _units(dim: str) -> str:
    """The name of a dim in units of one access."""
    return f"{dim}_units"


def _multiple(flats: list[FlatBlock], dim: str, wide: int) -> list[FlatBlock]:
    """The blocks with a dim said as a multiple of `wide`, which makes accesses provably aligned."""
    return [at(f, {dim: sym(_units(dim)) * wide}) for f in flats]
